"""`tfbnood.data` finds images, splits them without overlap, and says plainly what is wrong."""

import dataclasses
import doctest
import functools
import gzip
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from tfbnood import data
from tfbnood.data import catalogue
from tfbnood.data.pools import outlier_set
from tfbnood.errors import DataError

DIGITS = np.rint(load_digits().images[..., None] * 255 / 16).astype(np.uint8)
FASHION = Path("/usr/share/datasets/fashion-mnist")
FOLDER = os.environ.get("TFBNOOD_DATA")

needs_fashion = pytest.mark.skipif(
    not FASHION.is_dir(), reason="needs the Debian package dataset-fashion-mnist"
)
needs_folder = pytest.mark.skipif(
    not FOLDER, reason="needs TFBNOOD_DATA to name a folder of npz data sets"
)


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("TFBNOOD_DATA", raising=False)


@pytest.fixture
def no_fashion(monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "_DEBIAN_FASHION_MNIST", tmp_path / "not" / "installed")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    # A proxy that refuses: the same answer with and without a network under it.
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "tfds"))


def save(path: Path, images=DIGITS, **others) -> Path:
    np.savez(path, images=images, **others)
    return path


def numbered(n: int) -> dict[str, np.ndarray]:
    """Real digits whose labels are their index."""
    return {"images": DIGITS[:n], "labels": np.arange(n)}


def triangle_resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Antialiased bilinear resizing from its definition: a triangle as wide as an output pixel."""

    def weights(old: int, new: int) -> np.ndarray:
        scale = old / new
        centre = (np.arange(new)[:, None] + 0.5) * scale - 0.5
        w = np.maximum(0, 1 - np.abs(np.arange(old) - centre) / max(scale, 1))
        return w / w.sum(1, keepdims=True)

    rows, columns = weights(image.shape[0], height), weights(image.shape[1], width)
    return np.einsum("ih,jw,hwc->ijc", rows, columns, image)


# Named sets


def test_importing_data_and_loading_digits_does_not_import_tensorflow():
    code = (
        "import sys, tfbnood.data as d; d.load('digits'); "
        "sys.exit(any(m.startswith('tensorflow') for m in sys.modules))"
    )
    env = {k: v for k, v in os.environ.items() if k != "TFBNOOD_DATA"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_examples_in_docstrings_run(no_folder):
    result = doctest.testmod(sys.modules[data.load.__module__])
    assert result.attempted > 0
    assert result.failed == 0


def test_digits_are_scikit_learns_scaled_to_255(no_folder):
    digits = data.load("digits")
    assert (len(digits.train), len(digits.calibration), len(digits.test)) == (1100, 300, 397)
    assert digits.image_shape == (8, 8, 1)
    pixels = np.concatenate([digits.train, digits.calibration, digits.test])
    labels = np.concatenate([digits.train_labels, digits.calibration_labels, digits.test_labels])
    assert pixels.dtype == np.uint8
    assert labels.dtype == np.int64
    assert pixels.max() == 255
    # Every image with its label once, in another order.
    ours = sorted(zip(map(bytes, pixels), labels, strict=True))
    assert ours == sorted(zip(map(bytes, DIGITS), load_digits().target, strict=True))


def test_a_second_load_gives_the_same_splits(no_folder):
    first, second = data.load("digits"), data.load("digits")
    np.testing.assert_array_equal(first.train, second.train)
    np.testing.assert_array_equal(first.calibration, second.calibration)


def test_the_split_is_the_one_that_saved_detectors_were_trained_on(tmp_path):
    # Pinned: another stream or rule would leak training images into their calibration.
    save(tmp_path / "lone.npz", **numbered(40))
    lone = data.load("lone", data_dir=tmp_path)
    assert lone.calibration_labels.tolist() == [23, 38]
    assert lone.train_labels[:6].tolist() == [21, 5, 12, 3, 32, 26]
    save(tmp_path / "mine_train.npz", **numbered(40))
    mine = data.load("mine", data_dir=tmp_path)
    order = np.random.RandomState(0).permutation(40)
    np.testing.assert_array_equal(mine.calibration_labels, order[:4])
    np.testing.assert_array_equal(mine.train_labels, order[4:])
    assert order[:4].tolist() == [22, 20, 25, 4]


@needs_fashion
def test_fashion_mnist_comes_from_debians_files(no_folder):
    fashion = data.load("fashion_mnist")
    assert "dataset-fashion-mnist" in fashion.source
    assert (len(fashion.train), len(fashion.calibration)) == (55000, 5000)
    raw = gzip.decompress((FASHION / "t10k-images-idx3-ubyte.gz").read_bytes())
    np.testing.assert_array_equal(
        fashion.test, np.frombuffer(raw[16:], np.uint8).reshape(10000, 28, 28, 1)
    )
    labels = np.concatenate([fashion.train_labels, fashion.calibration_labels])
    assert np.bincount(labels).tolist() == [6000] * 10
    total = fashion.train.sum(dtype=np.int64) + fashion.calibration.sum(dtype=np.int64)
    raw = gzip.decompress((FASHION / "train-images-idx3-ubyte.gz").read_bytes())
    assert total == np.frombuffer(raw[16:], np.uint8).sum(dtype=np.int64)


@needs_folder
@pytest.mark.parametrize("name", ["mnist", "omniglot", "svhn", "tinyimagenet", "lsun"])
def test_named_sets_load_from_the_folder(name):
    if not list(Path(FOLDER).glob(f"{name}*.npz")):
        pytest.skip(f"needs {name} in TFBNOOD_DATA")
    loaded = data.load(name)
    size = (28, 28, 1) if name in ("mnist", "omniglot") else (32, 32, 3)
    assert loaded.image_shape == size
    assert str(FOLDER) in loaded.source
    for split in (loaded.train, loaded.calibration, loaded.test):
        assert split.dtype == np.uint8
        assert split.shape[1:] == size
    if size[2] == 1:  # white ink on black
        assert np.median(loaded.test) == 0


@needs_folder
def test_the_test_file_of_the_folder_is_the_test_split_in_its_own_order():
    path = Path(FOLDER) / "kmnist_test.npz"
    if not path.is_file():
        pytest.skip("needs kmnist_test.npz in TFBNOOD_DATA")
    with np.load(path) as archive:
        np.testing.assert_array_equal(data.load("kmnist").test, archive["images"])


# Splits


@pytest.mark.parametrize("n", [3, 4, 11, 100, 1797])
def test_the_splits_of_a_lone_file_are_disjoint_and_complete(tmp_path, n):
    save(tmp_path / "mine.npz", **numbered(n))
    mine = data.load("mine", data_dir=tmp_path)
    splits = [mine.train_labels, mine.calibration_labels, mine.test_labels]
    assert sorted(np.concatenate(splits).tolist()) == list(range(n))
    assert len(mine.test) == n // 2
    assert len(mine.calibration) == max(1, (n - n // 2) // 10)
    for images, index in zip((mine.train, mine.calibration, mine.test), splits, strict=True):
        np.testing.assert_array_equal(images, DIGITS[index])


def test_with_split_files_calibration_is_a_tenth_of_train_and_test_is_untouched(tmp_path):
    save(tmp_path / "mine_train.npz", **numbered(1000))
    save(tmp_path / "mine_test.npz", DIGITS[1000:1100], labels=np.arange(100))
    save(tmp_path / "mine.npz", DIGITS[:3])  # the split files win
    mine = data.load("mine", data_dir=tmp_path)
    held_in, held_out = set(mine.train_labels), set(mine.calibration_labels)
    assert len(held_out) == 100
    assert held_in | held_out == set(range(1000))
    np.testing.assert_array_equal(mine.test, DIGITS[1000:1100])
    np.testing.assert_array_equal(mine.test_labels, np.arange(100))


def test_calibration_never_exceeds_5000_images(tmp_path):
    save(tmp_path / "mine_train.npz", np.tile(DIGITS[:, ::4, ::4], (40, 1, 1, 1)))
    mine = data.load("mine", data_dir=tmp_path)
    assert (len(mine.calibration), len(mine.train)) == (5000, 40 * 1797 - 5000)


def test_labels_are_optional(tmp_path):
    save(tmp_path / "mine.npz", DIGITS[:20])
    assert data.load("mine", data_dir=tmp_path).test_labels is None


def test_the_environment_names_the_folder_and_data_dir_overrides_it(tmp_path, monkeypatch):
    for folder, n in (("a", 10), ("b", 20)):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder / "mine.npz", DIGITS[:n])
    monkeypatch.setenv("TFBNOOD_DATA", str(tmp_path / "a"))
    assert len(data.load("mine").test) == 5
    assert len(data.load("mine", data_dir=tmp_path / "b").test) == 10


def test_the_folder_comes_before_the_system(tmp_path):
    save(tmp_path / "digits_train.npz", DIGITS[:50])
    assert "digits_train.npz" in data.load("digits", data_dir=tmp_path).source
    assert len(data.load("digits", data_dir=tmp_path).train) == 45


def test_a_dataset_prints_in_one_line(no_folder):
    assert repr(data.load("digits")) == (
        "<Dataset digits: 1100 train, 300 calibration, 397 test, image_shape=(8, 8, 1), "
        "scikit-learn's load_digits>"
    )


# What is not there


def test_a_split_that_is_not_there_says_which_file_was_looked_for(tmp_path):
    save(tmp_path / "kmnist_test.npz", DIGITS[:10])
    kmnist = data.load("kmnist", data_dir=tmp_path)
    assert len(kmnist.test) == 10
    assert kmnist.image_shape == (8, 8, 1)
    for split in ("train", "calibration"):
        message = (
            rf"kmnist has no {split} images: .*kmnist_train\.npz does not exist.*put that file"
        )
        with pytest.raises(DataError, match=message):
            getattr(kmnist, split)
        with pytest.raises(DataError, match=message):
            getattr(kmnist, f"{split}_labels")
    save(tmp_path / "mine_train.npz", DIGITS[:10])
    with pytest.raises(
        DataError, match=r"mine has no test images: .*mine_test\.npz does not exist"
    ):
        _ = data.load("mine", data_dir=tmp_path).test


def test_an_unknown_name_says_what_was_looked_for_and_what_there_is(tmp_path):
    with pytest.raises(DataError, match=r"'foo' was not found.*foo\.npz in .*choose one of digits"):
        data.load("foo", data_dir=tmp_path)


def test_without_a_folder_the_error_names_the_variable(no_folder):
    with pytest.raises(DataError, match=r"neither TFBNOOD_DATA nor data_dir names a folder"):
        data.load("foo")


def test_tinyimagenet_points_to_imagenet32(tmp_path):
    with pytest.raises(DataError, match=r'tinyimagenet\.npz.*load "imagenet32"'):
        data.load("tinyimagenet", data_dir=tmp_path)


def test_lsun_says_which_package_its_builder_needs(tmp_path):
    if importlib.util.find_spec("tensorflow_io"):
        pytest.skip("tensorflow_io is installed, so that lsun would be downloaded")
    with pytest.raises(DataError, match=r"lsun\.npz.*lsun/bedroom .*install tensorflow_io$"):
        data.load("lsun", data_dir=tmp_path)


def test_offline_the_error_names_every_source_in_order(no_folder, no_fashion, offline):
    with pytest.raises(DataError) as caught:
        data.load("fashion_mnist")
    message = str(caught.value)
    wanted = [
        "'fashion_mnist' was not found: looked for fashion_mnist_train.npz",
        "then for the Debian package's",
        "then for tensorflow-datasets' fashion_mnist (no internet access",
        "to get it, run `apt install dataset-fashion-mnist`",
        "or put fashion_mnist_train.npz and fashion_mnist_test.npz",
        "TFBNOOD_DATA names",
    ]
    places = [message.find(words) for words in wanted]
    assert -1 not in places, message
    assert places == sorted(places)
    assert "\n" not in message


def test_one_host_that_answers_is_internet_enough(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    catalogue._check_internet(f"http://127.0.0.1:{server.server_port}")  # answers 501
    thread.join()
    server.server_close()


def test_a_name_cannot_leave_the_folder(tmp_path):
    save(tmp_path / "mine.npz", DIGITS[:10])
    (tmp_path / "inner").mkdir()
    # With a separator it is a path from here, and never one from the folder.
    for name in ("../mine", "a/b", "/etc/passwd", "~nobody-of-this-name/x"):
        with pytest.raises(
            DataError, match=r"name must be the name of a data set, or the path of a f"
        ):
            data.load(name, data_dir=tmp_path / "inner")
    for name in ("", "a\\b", "mine\n", "a\0b", None, 3, b"mine"):
        with pytest.raises(
            DataError, match=r"name must be the name of a data set.*Received: name="
        ):
            data.load(name, data_dir=tmp_path / "inner")


def test_a_folder_that_is_not_there_is_named_with_where_its_name_came_from(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    with pytest.raises(DataError, match=r"data_dir must name an existing folder.*gone"):
        data.load("digits", data_dir=gone)
    monkeypatch.setenv("TFBNOOD_DATA", str(gone))
    with pytest.raises(DataError, match=r"TFBNOOD_DATA must name an existing folder.*gone"):
        data.load("digits")


def test_half_a_debian_package_is_named(no_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "_DEBIAN_FASHION_MNIST", tmp_path)
    with pytest.raises(
        DataError, match=r"train-images.*is missing, though.*--reinstall dataset-fashion"
    ):
        data.load("fashion_mnist")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    for content, message in [
        (b"no gzip", r"intact file of plain numbers.*BadGzipFile"),
        (gzip.compress(bytes(100))[:-12], r"intact file of plain numbers.*EOFError"),
        (gzip.compress(b"no idx"), r"must be an idx file"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1])), r"must hold \(9,\) bytes.*: 1 bytes"),
    ]:
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            data.load("fashion_mnist")


# tensorflow-datasets, with its own mock data


@pytest.fixture
def mocked_tfds(monkeypatch, no_folder, no_fashion):
    monkeypatch.setattr(catalogue, "_check_internet", lambda homepage: None)


@pytest.mark.parametrize("name", [n for n in catalogue._TFDS if n != "lsun"])
def test_names_load_through_tensorflow_datasets(name, mocked_tfds):
    with tfds.testing.mock_data(num_examples=30):
        loaded = data.load(name)
        builder = tfds.builder(catalogue._TFDS[name].tfds_name)
        examples = list(builder.as_dataset(split="test").as_numpy_iterator())
    grey = ("fashion_mnist", "mnist", "kmnist", "omniglot")
    assert loaded.image_shape == ((28, 28, 1) if name in grey else (32, 32, 3))
    assert (len(loaded.train), len(loaded.calibration), len(loaded.test)) == (27, 3, 30)
    assert "tensorflow-datasets" in loaded.source
    np.testing.assert_array_equal(loaded.test_labels, [e["label"] for e in examples])
    if name != "omniglot":
        np.testing.assert_array_equal(loaded.test, [e["image"] for e in examples])


def test_omniglot_of_tensorflow_datasets_becomes_white_on_black_28_by_28(mocked_tfds):
    # Dark digits on white, 105 × 105 × 3, as the builder gives them.
    ink = np.pad(
        np.kron(DIGITS[:10], np.ones((1, 13, 13, 1), np.uint8)), [(0, 0), (0, 1), (1, 0), (0, 0)]
    )
    dark_on_white = np.repeat(255 - ink, 3, axis=-1)

    def as_dataset(self, *args, **kwargs):
        zeros = np.zeros(10, np.int64)
        return tf.data.Dataset.from_tensor_slices({"image": dark_on_white, "label": zeros})

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        omniglot = data.load("omniglot")
    expected = np.stack([triangle_resize(image, 28, 28) for image in ink])
    assert np.abs(omniglot.test - expected).max() <= 1


def test_lsun_pictures_of_any_size_become_32_by_32_without_labels(mocked_tfds, monkeypatch):
    # As if tensorflow_io were installed; the mock data does not need it.
    monkeypatch.setitem(
        catalogue._TFDS, "lsun", dataclasses.replace(catalogue._TFDS["lsun"], needs=None)
    )
    with tfds.testing.mock_data(num_examples=10):
        lsun = data.load("lsun")
        examples = tfds.builder("lsun/bedroom").as_dataset(split="train").as_numpy_iterator()
        expected = np.stack([triangle_resize(e["image"], 32, 32) for e in examples])
    assert lsun.test_labels is None
    assert np.abs(lsun.test - expected).max() <= 0.51


def test_a_builder_that_breaks_leaves_as_one_sentence(mocked_tfds):
    def as_dataset(self, *args, **kwargs):
        raise OSError("the disk is full\nand more")

    with (
        tfds.testing.mock_data(as_dataset_fn=as_dataset),
        pytest.raises(
            DataError, match=r"svhn_cropped \(OSError: the disk is full\); to get it, put"
        ),
    ):
        data.load("svhn")


# Files


def test_from_npz_reads_npz_and_npy(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", images=DIGITS[:5], others=DIGITS[5:9].astype(float))
    np.save(tmp_path / "b.npy", DIGITS[:7])
    np.testing.assert_array_equal(data.from_npz(tmp_path / "a.npz"), DIGITS[:5])
    np.testing.assert_array_equal(data.from_npz(str(tmp_path / "a.npz"), "others"), DIGITS[5:9])
    np.testing.assert_array_equal(data.from_npz(tmp_path / "b.npy"), DIGITS[:7])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": DIGITS}, r"must hold an array named 'images'\. Received: \['x_train'\]"),
        ({"images": DIGITS / 255}, r"images in .*mine\.npz must lie in 0–255, not 0–1"),
        ({"images": np.full((2, 8, 8, 1), np.nan)}, r"images in .*mine\.npz must be finite"),
        ({"images": DIGITS > 0}, r"images in .*mine\.npz must hold numbers.*dtype=bool"),
        ({"images": DIGITS[..., 0]}, r"images in .*mine\.npz must have the four axes"),
        ({"images": DIGITS[:0]}, r"images in .*mine\.npz must hold at least one image"),
        (
            {"images": np.array([DIGITS, None], object)},
            r"mine\.npz must be an intact file of plain",
        ),
    ],
)
def test_files_that_hold_no_images_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message):
        data.from_npz(tmp_path / "mine.npz")
    with pytest.raises(DataError, match=message):
        data.load("mine", data_dir=tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_a_truncated_file_is_named(tmp_path, keep):
    path = save(tmp_path / "mine.npz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"mine\.npz must be an intact file.*Received: \w+: "):
        data.from_npz(path)


def test_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, images=DIGITS)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine\.npz must be an intact file"):
        data.from_npz(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"path must be an npz or npy file\. Received: .*gone\.npz"):
        data.from_npz(tmp_path / "gone.npz")


@pytest.mark.parametrize("labels", [np.arange(9), np.arange(10.0), np.zeros((10, 1), int)])
def test_labels_that_do_not_fit_are_named(tmp_path, labels):
    save(tmp_path / "mine.npz", DIGITS[:10], labels=labels)
    with pytest.raises(DataError, match=r"labels in .* must be integers of shape \(10,\)"):
        data.load("mine", data_dir=tmp_path)


def test_split_files_of_two_shapes_are_named(tmp_path):
    save(tmp_path / "mine_train.npz", DIGITS)
    save(tmp_path / "mine_test.npz", DIGITS[:, :4])
    with pytest.raises(DataError, match=r"one shape\. Received: \(8, 8, 1\) and \(4, 8, 1\)"):
        data.load("mine", data_dir=tmp_path)


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_images_to_split_are_named(tmp_path, n):
    save(tmp_path / "mine.npz", DIGITS[:n])
    with pytest.raises(DataError, match=r"mine must have at least two training images"):
        data.load("mine", data_dir=tmp_path)


# The graph of exports


def test_decode_image_runs_in_an_exported_graph(tmp_path):
    module = tf.Module()
    module.decode = tf.function(
        lambda encoded: tf.map_fn(
            lambda one: data.decode_image(one, (8, 8, 1)), encoded, fn_output_signature=tf.uint8
        ),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    encoded = tf.stack([tf.io.encode_png(image) for image in DIGITS[:4]])
    decoded = tf.saved_model.load(str(tmp_path)).decode(encoded)
    assert decoded.shape == (4, 8, 8, 1)
    np.testing.assert_array_equal(decoded, DIGITS[:4])


@pytest.mark.parametrize("channels", [1, 3])
def test_decode_image_keeps_every_value_of_an_image_that_fits(channels):
    image = np.random.RandomState(0).randint(0, 256, (32, 28, channels)).astype(np.uint8)
    decoded = data.decode_image(tf.io.encode_png(image), (32, 28, channels))
    np.testing.assert_array_equal(decoded, image)


# tf.data


def test_tf_data_is_collected_batched_or_not_with_labels_or_without():
    images = tf.data.Dataset.from_tensor_slices(DIGITS[:10])
    pairs = tf.data.Dataset.from_tensor_slices((DIGITS[:10], np.arange(10)))
    examples = tf.data.Dataset.from_tensor_slices({"image": DIGITS[:10], "label": np.arange(10)})
    floats = images.map(lambda image: tf.cast(image, tf.float32))
    for dataset in (images, images.batch(4), pairs, pairs.batch(3), examples.batch(4), floats):
        collected = data.from_tf_data(dataset)
        assert collected.dtype == np.uint8
        np.testing.assert_array_equal(collected, DIGITS[:10])


def test_tf_data_that_gives_no_images_is_named():
    images = tf.data.Dataset.from_tensor_slices(DIGITS[:10])
    mixed = tf.data.Dataset.from_generator(
        lambda: (DIGITS[0], DIGITS[0, :4]), output_signature=tf.TensorSpec([None, 8, 1], tf.uint8)
    )
    for dataset, message in [
        (DIGITS, r"dataset must be a tf\.data\.Dataset\. Received: ndarray"),
        (images.repeat(), r"dataset must be finite"),
        (images.take(0), r"dataset must hold at least one image"),
        (mixed, r"images of one shape\. Received: \[\(4, 8, 1\), \(8, 8, 1\)\]"),
        (images.map(lambda x: {"x": x}), r"must have the key 'image'\. Received: keys \['x'\]"),
        (images.map(lambda x: tf.cast(x, tf.float32) / 255), r"dataset must lie in 0–255, not 0–1"),
    ]:
        with pytest.raises(DataError, match=message):
            data.from_tf_data(dataset)


# Rotations


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 1), (180, 2), (270, 3), (-90, 3)])
def test_right_angles_are_exact(degrees, turns, interpolation):
    for images in (DIGITS, np.repeat(DIGITS[:10, :7, :7], 3, -1)):
        rotated = data.rotate(images, (degrees, degrees), seed=0, interpolation=interpolation)
        np.testing.assert_array_equal(rotated, np.rot90(images, turns, axes=(1, 2)))


def test_angles_between_agree_with_scipy():
    from scipy.ndimage import rotate

    images = np.pad(DIGITS[:20], ((0, 0), (6, 6), (3, 3), (0, 0)))  # 20 × 14
    rotated = data.rotate(images, (33, 33), seed=0, interpolation="bilinear").astype(int)
    expected = rotate(images.astype(float), 33, axes=(1, 2), reshape=False, order=1)
    assert np.abs(rotated - expected)[:, 1:-1, 1:-1].max() <= 1


def test_nearest_neighbours_are_those_of_pillow_and_blur_nothing():
    from PIL import Image

    images = np.pad(DIGITS[:20], ((0, 0), (6, 6), (3, 3), (0, 0)))
    for degrees in (101, 200, 263.5):
        rotated = data.rotate(images, (degrees, degrees), seed=0)
        expected = [np.asarray(Image.fromarray(one[..., 0]).rotate(degrees)) for one in images]
        # Pillow's default. It takes pixel corners where sides are even: ties may fall to the other side.
        assert (rotated[..., 0] == np.stack(expected)).mean() > 0.99
        assert set(np.unique(rotated)) <= set(np.unique(images))


def test_rotations_by_name_are_nearest_unless_bilinear_is_asked_for():
    inliers = data.load("digits")
    nearest, bilinear = (
        outlier_set(name, inliers, seed=3) for name in ("rotation", "rotation-bilinear")
    )
    np.testing.assert_array_equal(nearest, data.rotate(inliers.test, seed=3))
    np.testing.assert_array_equal(
        bilinear, data.rotate(inliers.test, seed=3, interpolation="bilinear")
    )
    assert bilinear.std() < nearest.std()  # The angles are the same, and it blurs.


def test_every_image_has_its_own_angle_from_the_range_and_the_seed():
    same = np.repeat(np.pad(DIGITS[:1], ((0, 0), (4, 4), (4, 4), (0, 0))), 300, 0)
    # Nearest neighbours of so few pixels are the same for angles that are close.
    rotate = functools.partial(data.rotate, interpolation="bilinear")
    rotated = rotate(same, seed=1)
    assert len(np.unique(rotated, axis=0)) > 200
    np.testing.assert_array_equal(rotated, rotate(same, seed=1))
    assert (rotated != rotate(same, seed=2)).any()
    angles = np.random.RandomState(1).uniform(90, 270, 300)
    for index in (0, 255, 256, 299):  # on both sides of a seam between pieces
        alone = rotate(same[:1], (angles[index], angles[index]), seed=0)
        np.testing.assert_array_equal(rotated[index], alone[0])


def test_corners_are_filled_with_zero():
    white = np.full((1, 9, 9, 1), 255, np.uint8)
    rotated = data.rotate(white, (45, 45), seed=0)[0, ..., 0]
    assert rotated[[0, 0, -1, -1], [0, -1, 0, -1]].tolist() == [0, 0, 0, 0]
    assert rotated[4, 4] == 255


def test_rotate_names_bad_arguments():
    for degrees in ((270, 90), 90, (1, 2, 3), (0, np.nan), "ab"):
        with pytest.raises(DataError, match=r"degrees must be \(low, high\).*Received: degrees="):
            data.rotate(DIGITS, degrees, seed=0)
    for seed in (-1, 2**32, 0.5, None, True):
        with pytest.raises(DataError, match=r"seed must be an integer.*Received: seed="):
            data.rotate(DIGITS, seed=seed)
    with pytest.raises(DataError, match=r"interpolation must be one of nearest, bilinear. Rec"):
        data.rotate(DIGITS, seed=0, interpolation="cubic")
    with pytest.raises(DataError, match=r"images must lie in 0–255, not 0–1"):
        data.rotate(DIGITS / 255, seed=0)


# Mixtures


@pytest.mark.parametrize(
    ("n_in", "n_out", "fraction", "expected"),
    [
        (1000, 100, 0.5, (100, 100)),
        (1000, 100, 0.1, (900, 100)),
        (900, 100, 0.1, (900, 100)),
        (900, 100, 0.2, (400, 100)),
        (95, 100, 0.05, (95, 5)),
        (100, 100, 0.05, (100, 5)),
        (100, 7, 0.3, (16, 7)),
        (100, 100, 1.0, (0, 100)),
    ],
)
def test_a_mixture_has_the_fraction_asked_for_and_repeats_nothing(n_in, n_out, fraction, expected):
    inliers, outliers = DIGITS[:n_in], 255 - DIGITS[:n_out]
    images, is_outlier = data.mix(inliers, outliers, fraction, seed=3)
    assert is_outlier.dtype == bool
    assert (int((~is_outlier).sum()), int(is_outlier.sum())) == expected
    assert abs(is_outlier.sum() - fraction * len(images)) <= 1
    # 255 - digit is never a digit: the border columns are black in one and white in the other.
    assert set(map(bytes, images[~is_outlier])) <= set(map(bytes, inliers))
    assert set(map(bytes, images[is_outlier])) <= set(map(bytes, outliers))
    assert len(np.unique(images, axis=0)) == len(images)


def test_a_mixture_is_shuffled_by_its_seed():
    images, is_outlier = data.mix(DIGITS, 255 - DIGITS, 0.5, seed=3)
    again, again_is_outlier = data.mix(DIGITS, 255 - DIGITS, 0.5, seed=3)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(is_outlier, again_is_outlier)
    assert (is_outlier != data.mix(DIGITS, 255 - DIGITS, 0.5, seed=4)[1]).any()
    half = len(images) // 2
    assert abs(is_outlier[:half].mean() - 0.5) < 0.05


def test_mix_names_bad_arguments():
    for fraction in (0, -0.1, 1.1, np.nan, "half", None, True):
        with pytest.raises(DataError, match=r"fraction must lie in \(0, 1\]\. Received: fraction="):
            data.mix(DIGITS, DIGITS, fraction, seed=0)
    for counts, fraction in (((10, 10), 0.01), ((10, 3), 0.95)):
        with pytest.raises(DataError, match=r"enough for one image of each kind.*inliers"):
            data.mix(DIGITS[: counts[0]], DIGITS[: counts[1]], fraction, seed=0)
    with pytest.raises(
        DataError, match=r"outliers must have \(height, width, channels\)=\(8, 8, 1"
    ):
        data.mix(DIGITS, DIGITS[:, :4], 0.5, seed=0)
    with pytest.raises(DataError, match=r"inliers must hold at least one image"):
        data.mix(DIGITS[:0], DIGITS, 0.5, seed=0)
    with pytest.raises(DataError, match=r"seed must be an integer"):
        data.mix(DIGITS, DIGITS, 0.5, seed=-1)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3), (4, 12, 3)], ids=str)
def test_photo_patches_have_the_shape_that_is_asked_for(shape):
    patches = data.photo_patches(5, shape, seed=0)
    assert patches.shape == (5, *shape)
    assert patches.dtype == np.uint8
    assert patches.std() > 20  # Photographs, not blanks.


def test_photo_patches_are_a_function_of_the_seed():
    first, again, other = (data.photo_patches(6, (8, 8, 3), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any(axis=(1, 2, 3)).all()
    # More patches begin with the same ones.
    np.testing.assert_array_equal(data.photo_patches(9, (8, 8, 3), seed=1)[:6], first)


def test_photo_patches_in_colour_and_in_grey_are_the_same_places():
    colour = data.photo_patches(20, (8, 8, 3), seed=0).astype(float)
    grey = data.photo_patches(20, (8, 8, 1), seed=0)[..., 0].astype(float)
    assert (np.ptp(colour, axis=-1) > 20).any()
    luminance = colour @ [0.299, 0.587, 0.114]
    assert np.abs(luminance - grey).max() < 6


def test_a_photo_patch_is_the_mean_of_four_by_four_pixels():
    folder = Path(sklearn.datasets.__file__).parent / "images"
    photos = [tf.io.decode_jpeg(path.read_bytes()).numpy() for path in folder.glob("*.jpg")]
    assert len(photos) == 2
    patch = data.photo_patches(1, (8, 8, 3), seed=0)[0]
    best = np.inf
    for photo in photos:
        sums = np.pad(photo.astype(float).cumsum(0).cumsum(1), ((1, 0), (1, 0), (0, 0)))
        means = (sums[4:, 4:] - sums[:-4, 4:] - sums[4:, :-4] + sums[:-4, :-4]) / 16
        tall, wide = photo.shape[0] - 31, photo.shape[1] - 31
        error = np.zeros((tall, wide))
        for row, column in np.ndindex(8, 8):
            top, left = 4 * row, 4 * column
            near = means[top : top + tall, left : left + wide] - patch[row, column]
            error = np.maximum(error, np.abs(near).max(axis=-1))
        best = min(best, error.min())
    assert best <= 0.5 + 1e-6  # There is one place where all 64 means round to it.


def test_describe_says_where_and_how_many(no_folder):
    line = data.describe(["digits"])
    assert line.split() == [
        *("digits", "8×8×1", "1100", "train,", "300", "calibration,", "397", "test;"),
        *("scikit-learn's", "load_digits"),
    ]


def test_describe_says_of_what_is_missing_how_to_get_it(no_folder, offline):
    found, missing = data.describe(["digits", "nothing_like_it"]).splitlines()
    assert found.startswith("digits ")
    assert missing.startswith("nothing_like_it not available: ")
    rows = json.loads(data.describe(["nothing_like_it", "digits"], as_json=True))
    assert [row["name"] for row in rows] == ["nothing_like_it", "digits"]
    assert "nothing_like_it.npz" in rows[0]["error"]
    assert rows[1]["test"] == 397


def test_describe_reads_the_folder(tmp_path):
    save(tmp_path / "mine.npz", DIGITS[:40])
    (row,) = json.loads(data.describe(["mine"], data_dir=tmp_path, as_json=True))
    assert row == {
        "name": "mine",
        "shape": [8, 8, 1],
        "train": 18,
        "calibration": 2,
        "test": 20,
        "source": str(tmp_path / "mine.npz"),
    }
