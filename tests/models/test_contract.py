"""What every likelihood model owes, run over all of them."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood._core.presets import PRESETS
from tfbnood.errors import DataError, TfbnoodError, TrainingDivergedError
from tfbnood.models import VAE, LikelihoodModel, PixelCNN, RealNVP

SMALL = {
    "realnvp": lambda **k: RealNVP((8, 8, 1), channels=4, blocks=1, **k),
    "vae": lambda **k: VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8, **k),
    "pixelcnn": lambda **k: PixelCNN((8, 8, 1), filters=4, blocks=1, mixtures=3, **k),
}
CLASSES = {"realnvp": RealNVP, "vae": VAE, "pixelcnn": PixelCNN}


@pytest.fixture(params=SMALL, scope="module")
def name(request):
    return request.param


@pytest.fixture(scope="module")
def trained(name, digits):
    """A model after two epochs of plain Keras, the last batch of each shorter than the others."""
    model = SMALL[name]()
    history = model.fit(digits.train[:330], epochs=2, verbose=0)
    return model, history.history


@pytest.fixture
def model(trained):
    return trained[0]


def snapshot(model):
    return [variable.numpy() for variable in model.variables]


def assert_unchanged(model, before):
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old, err_msg=variable.path)


def test_log_prob_is_one_finite_number_an_image(model, digits):
    for training in (False, True):
        values = model.log_prob(digits.test[:5], training)
        assert values.shape == (5,)
        assert values.dtype == tf.float32
        assert np.isfinite(values).all()


def test_scoring_leaves_every_variable_bit_identical(model, digits):
    images = digits.test[:20]
    before = snapshot(model)
    compiled = tf.function(lambda x: model.log_prob(x, training=True))
    model.log_prob(images, training=True)
    model.log_prob(images)
    compiled(images)
    model.bits_per_dim(images, training=True, batch_size=8)
    model.evaluate(images, verbose=0)
    model.predict(images, verbose=0)
    model.sample(2, seed=0)
    assert_unchanged(model, before)


def test_the_mode_changes_the_value_only_through_the_companions(model, digits):
    images = digits.test[:8]
    strangers = 255 - digits.test[8:16]
    moving, batch = model.log_prob(images), model.log_prob(images, training=True)
    among_strangers = np.concatenate([images, strangers])
    assert np.abs(moving - batch).max() > 0.1
    # Not to the bit: convolutions add up in another order in a batch of another size.
    np.testing.assert_allclose(model.log_prob(among_strangers)[:8], moving, rtol=1e-4)
    assert np.abs(model.log_prob(among_strangers, training=True)[:8] - batch).max() > 0.1


def test_an_image_has_the_same_value_at_every_place_in_the_batch(model, digits):
    images = digits.test[:8]
    for training in (False, True):
        forward = model.log_prob(images, training).numpy()
        backward = model.log_prob(images[::-1], training).numpy()[::-1]
        np.testing.assert_allclose(forward, backward, rtol=1e-4)


def test_scoring_is_deterministic_and_has_no_dropout(model, digits):
    images = digits.test[:8]
    for training in (False, True):
        first, second = (model.log_prob(images, training).numpy() for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_bits_per_dim_is_log_prob_in_other_units_for_any_number_of_images(model, digits):
    images = digits.test[:10]
    expected = -model.log_prob(images).numpy() / (64 * math.log(2))
    np.testing.assert_allclose(model.bits_per_dim(images, batch_size=4), expected, rtol=1e-4)
    batches = [images[:4], images[4:8], np.concatenate([images[8:], images[:2]])]
    expected = np.concatenate([model.log_prob(batch, training=True) for batch in batches])
    expected = -expected[:10] / (64 * math.log(2))
    np.testing.assert_allclose(
        model.bits_per_dim(images, training=True, batch_size=4), expected, rtol=1e-4
    )


def test_fit_reports_and_lowers_loss_and_bits_per_dim(trained):
    _, history = trained
    assert history["loss"][1] < history["loss"][0]
    expected = np.array(history["loss"]) / (64 * math.log(2))
    np.testing.assert_allclose(history["bits_per_dim"], expected, rtol=1e-3)


def test_keras_evaluate_and_predict_are_log_prob(model, digits):
    images = digits.test[:70]
    expected = model.log_prob(images).numpy()
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, rtol=1e-4)
    metrics = model.evaluate(images, return_dict=True, verbose=0)
    assert metrics["loss"] == pytest.approx(-expected.mean(), rel=1e-4)
    assert metrics["bits_per_dim"] == pytest.approx(model.bits_per_dim(images).mean(), rel=1e-4)


def test_a_keras_file_brings_back_the_same_model_and_optimiser(model, digits, tmp_path):
    images = digits.test[:8]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert again.get_config() == model.get_config()
    assert int(again.optimizer.iterations) == int(model.optimizer.iterations) > 0
    for training in (False, True):
        np.testing.assert_array_equal(
            again.log_prob(images, training), model.log_prob(images, training)
        )


def test_the_same_seed_gives_the_same_model_and_another_seed_another(name):
    first, second, third = SMALL[name](seed=3), SMALL[name](seed=3), SMALL[name](seed=4)
    pairs = list(zip(first.variables, second.variables, third.variables, strict=True))
    assert all((a.numpy() == b.numpy()).all() for a, b, _ in pairs)
    kernels = [(a.numpy(), c.numpy()) for a, _, c in pairs if a.numpy().std() > 0]
    assert kernels
    assert all((a != c).any() for a, c in kernels)


def test_sample_gives_images_by_seed_and_temperature(model):
    images = model.sample(3, seed=1)
    assert images.shape == (3, 8, 8, 1)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, model.sample(3, seed=1))
    assert (images != model.sample(3, seed=2)).any()
    assert (images != model.sample(3, temperature=0.3, seed=1)).any()
    with pytest.raises(DataError, match=r"temperature must be positive. Received: temperature=0"):
        model.sample(1, temperature=0, seed=1)
    with pytest.raises(DataError, match=r"n must be at least 1. Received: n=0"):
        model.sample(0, seed=1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x[0], r"four axes \[n, 8, 8, 1\]"),
        (lambda x: x[..., 0], r"four axes \[n, 8, 8, 1\]"),
        (lambda x: x[:, :6], r"\(8, 8, 1\).*Received: shape=\(4, 6, 8, 1\)"),
        (lambda x: np.repeat(x, 3, axis=3), r"Received: shape=\(4, 8, 8, 3\)"),
        (lambda x: x[:0], "at least one image"),
        (lambda x: x / 255.0, "0–255, not 0–1"),
        (lambda x: x * 2.0, "must lie in 0–255. Received"),
        (lambda x: np.where(x > 250, np.nan, x), "must be finite"),
        (lambda x: x.astype(object), "dtype=object"),
    ],
)
def test_unusable_images_are_refused_in_one_sentence(model, digits, spoil, message):
    images = spoil(digits.test[:4])
    for method in (model.log_prob, model.bits_per_dim, model.fit):
        with pytest.raises(DataError, match=message) as caught:
            method(images)
        assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_finite_stops_training_with_a_message(name, digits):
    model = SMALL[name]()
    model.compile(run_eagerly=True)
    variable = next(v for v in model.trainable_variables if len(v.shape) == 4)
    variable.assign(np.full(variable.shape, np.nan))
    with pytest.raises(TrainingDivergedError, match=r"the loss became nan at step 1: lower"):
        model.fit(digits.train[:64], verbose=0)


def test_fit_takes_tf_data_of_images_or_pairs_with_validation(model, digits):
    pairs = tf.data.Dataset.from_tensor_slices((digits.train[:100], digits.train_labels[:100]))
    before = snapshot(model)
    history = model.fit(
        pairs.batch(40), validation_data=(digits.test[:50],), epochs=1, verbose=0
    ).history
    assert set(history) == {"loss", "bits_per_dim", "val_loss", "val_bits_per_dim"}
    for variable, old in zip(model.variables, before, strict=True):
        variable.assign(old)


def test_summary_counts_the_parameters(name):
    model, lines = SMALL[name](), []
    model.summary(print_fn=lines.append)
    assert f"Total params: {model.count_params():,}" in "\n".join(lines)


def test_presets_are_frozen_and_complete(name):
    assert set(PRESETS[name]) == {"paper-grey", "paper-colour", "cpu-grey", "cpu-colour", "tiny"}
    with pytest.raises(TypeError):
        PRESETS[name]["tiny"] = None
    with pytest.raises(AttributeError):
        PRESETS[name]["tiny"].config.seed = 1


@pytest.mark.parametrize("preset", ["cpu-grey", "cpu-colour", "tiny"])
def test_presets_make_models_of_their_shape_or_of_mine(name, preset):
    model = CLASSES[name].from_preset(preset)
    assert isinstance(model, LikelihoodModel)
    assert isinstance(model, keras.Model)
    assert model.image_shape == PRESETS[name][preset].image_shape
    assert CLASSES[name].from_preset(preset, image_shape=(12, 8, 3)).image_shape == (12, 8, 3)


def test_an_unknown_preset_is_refused_with_the_known_ones(name):
    with pytest.raises(TfbnoodError, match=r"preset must be one of paper-grey, .*Received: 'huge'"):
        CLASSES[name].from_preset("huge")


def test_a_preset_warns_of_images_it_is_not_meant_for_unless_any_size_will_do(name):
    shape = (36, 36, 1)  # 1.65 times 28×28
    with pytest.warns(UserWarning, match=r"image_shape should .* Received: 36×36 pix") as warned:
        assert CLASSES[name].from_preset("tiny", shape).image_shape == shape
    (warning,) = warned
    assert warning.filename == __file__
    # Warnings are errors here.
    assert CLASSES[name].from_preset("tiny", shape, any_size=True).image_shape == shape


def test_a_wrong_shape_is_refused_before_its_size_is_looked_at(name):
    for shape in ((64, 64), (65, 64, 2), (64.0, 64.0, 3)):
        with pytest.raises(DataError, match="image_shape must be"):
            CLASSES[name].from_preset("cpu-colour", shape)
