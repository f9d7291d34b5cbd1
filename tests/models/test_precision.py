"""Models whose convolutions compute with bfloat16 numbers while they are trained."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood._core import precision
from tfbnood.errors import TfbnoodError
from tfbnood.models import VAE, PixelCNN, RealNVP
from tfbnood.models.layers import BatchNormalization, WeightNormConv2D
from tfbnood.training.run import train

SMALL = {
    "realnvp": lambda **k: RealNVP((8, 8, 1), channels=4, blocks=1, **k),
    "vae": lambda **k: VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8, **k),
    "pixelcnn": lambda **k: PixelCNN((8, 8, 1), filters=4, blocks=1, mixtures=3, **k),
}


@pytest.fixture(params=SMALL, scope="module")
def models(request):
    """The same weights in float32 and in bfloat16; gains that start at 0 would hide the difference."""
    exact = SMALL[request.param]()
    random = np.random.default_rng(0)
    for variable in exact.trainable_variables:
        variable.assign_add(0.1 * random.normal(size=variable.shape))
    return exact, exact.in_precision("mixed_bfloat16")


def test_values_are_float32_and_near_to_those_of_float32_but_not_the_same(models, digits):
    exact, fast = models
    for training in (False, True):
        expected, found = (one.log_prob(digits.test[:16], training) for one in models)
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=0.05)
        assert (found.numpy() != expected.numpy()).any()
    assert {variable.dtype for variable in fast.variables} == {"float32"}
    np.testing.assert_allclose(
        exact.log_prob(digits.test[:4]),
        fast.in_precision("float32").log_prob(digits.test[:4]),
        rtol=1e-5,
    )


def test_convolutions_compute_in_bfloat16_and_the_model_takes_its_images_as_they_are(models):
    exact, fast = models
    kinds = {
        type(layer).__name__: layer.compute_dtype
        for layer in fast._flatten_layers(include_self=False)
        if layer.weights
    }
    assert "bfloat16" in kinds.values()
    assert fast.compute_dtype == "float32"
    assert {layer.compute_dtype for layer in exact._flatten_layers()} == {"float32"}


def test_a_keras_file_keeps_the_precision_and_files_of_float32_models_do_not_name_it(
    models, tmp_path
):
    exact, fast = models
    fast.save(tmp_path / "fast.keras")
    assert keras.models.load_model(tmp_path / "fast.keras").precision == "mixed_bfloat16"
    assert "precision" not in exact.get_config()


def test_a_step_of_fit_moves_every_weight_kind_in_float32(models, digits):
    _, fast = models
    before = [variable.numpy() for variable in fast.trainable_variables]
    history = fast.fit(digits.train[:64], verbose=0).history
    assert np.isfinite(history["loss"]).all()
    moved = [
        (variable.numpy() != old).any()
        for variable, old in zip(fast.trainable_variables, before, strict=True)
    ]
    assert np.mean(moved) > 0.95


def test_moments_of_bfloat16_inputs_are_those_of_a_numpy_line_in_float32():
    inputs = np.random.default_rng(0).normal(3.0, 2.0, (16, 8, 8, 3)).astype(np.float32)
    rounded = tf.cast(inputs, tf.bfloat16)
    layer = BatchNormalization(dtype="mixed_bfloat16")
    outputs = layer(rounded, training=True)
    assert outputs.dtype == tf.bfloat16
    seen = tf.cast(rounded, tf.float32).numpy()
    mean, variance = seen.mean(axis=(0, 1, 2)), seen.var(axis=(0, 1, 2))
    # bfloat16 has three digits; sums in it would be off in the first.
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-4)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * variance, rtol=1e-4)


def test_norms_of_kernels_are_taken_in_float32():
    layer = WeightNormConv2D(4, 3, use_bias=False, dtype="mixed_bfloat16")
    layer.build((None, 8, 8, 3))
    layer.direction.assign(1e-3 * layer.direction)
    impulse = np.zeros((1, 5, 5, 3), np.float32)
    norms = np.zeros(4)
    for channel in range(3):
        impulse[:] = 0
        impulse[0, 2, 2, channel] = 1
        norms += (tf.cast(layer(impulse), tf.float32).numpy() ** 2).sum(axis=(0, 1, 2))
    np.testing.assert_allclose(np.sqrt(norms), 1.0, rtol=4e-3)


def test_a_training_in_bfloat16_gives_a_model_of_float32_and_says_so(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)  # or it would warn
    options = {"model": "vae", "preset": "tiny", "steps": 3, "progress": False}
    trained = train(digits, out=tmp_path / "run", precision="mixed_bfloat16", **options)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["precision"] == "mixed_bfloat16"
    assert run["result"]["precision"] == "float32"
    assert trained.precision == "float32"
    again = keras.models.load_model(tmp_path / "run" / "model.keras")
    assert {layer.compute_dtype for layer in again._flatten_layers()} == {"float32"}
    images = digits.test[:4]
    np.testing.assert_allclose(again.log_prob(images), trained.log_prob(images), rtol=1e-5)
    checkpoint = keras.models.load_model(tmp_path / "run" / "checkpoint.keras")
    assert checkpoint.precision == "mixed_bfloat16"
    with pytest.raises(TfbnoodError, match=r"precision='mixed_bfloat16' instead of 'float32'"):
        train(digits, out=tmp_path / "run", **options)


def test_a_processor_without_bfloat16_is_warned_of_in_one_line(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    assert precision.warn_of_precision("float32") == ""
    sentence = precision.warn_of_precision("mixed_bfloat16", argument="--precision")
    assert sentence.startswith("--precision should be float32 here: this processor has no bfloat16")
    assert sentence.endswith("Received: --precision=mixed_bfloat16")
    assert "\n" not in sentence


def test_an_unknown_precision_is_refused_in_one_line():
    with pytest.raises(TfbnoodError, match=r"precision must be one of float32, mixed_bf.*Received"):
        SMALL["vae"](precision="float16")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 sha\n", True),
        ("flags\t\t: fpu amx_bf16\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("flags\t\t: fpu avx2 avx512f\nmodel name : bf16 machine\n", False),
    ],
)
def test_the_processor_says_whether_it_has_bfloat16(tmp_path, content, expected):
    (tmp_path / "cpuinfo").write_text(content)
    assert precision.has_bfloat16(str(tmp_path / "cpuinfo")) == expected
    assert not precision.has_bfloat16(str(tmp_path / "nothing"))
