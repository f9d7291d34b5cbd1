"""A network as something a detector can stand on: what goes in, what comes out, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood import Detector
from tfbnood.errors import StatisticError
from tfbnood.networks import Network
from tfbnood.networks.network import as_model
from tfbnood.scoring.rules import batch_normalizations

layers = keras.layers


def conv_stack(channels=1, side=16):
    return [
        keras.Input((side, side, channels)),
        layers.Conv2D(4, 3, kernel_initializer=keras.initializers.GlorotUniform(0)),
        layers.BatchNormalization(name="norm"),
        layers.ReLU(name="relu"),
        layers.GlobalAveragePooling2D(name="pool"),
    ]


def sequential(**kwargs):
    top = [layers.Dropout(0.5), layers.Dense(5, kernel_initializer="ones"), layers.Softmax()]
    return keras.Sequential([*conv_stack(**kwargs), *top])


def functional():
    inputs, *others = conv_stack()
    x = inputs
    for layer in others:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


@keras.saving.register_keras_serializable(package="tfbnood_tests")
class Subclassed(keras.Model):
    """A user's encoder, not built yet."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.conv = layers.Conv2D(4, 3, kernel_initializer=keras.initializers.GlorotUniform(0))
        self.norm = layers.BatchNormalization()

    def call(self, inputs, training=False):
        return self.norm(self.conv(inputs), training=training)


KINDS = {"sequential": sequential, "functional": functional, "subclassed": Subclassed}


@pytest.fixture(params=KINDS)
def made(request):
    return KINDS[request.param]()


def test_a_detector_stands_on_every_kind_of_network(made, digits, tmp_path):
    detector = Detector(made, reference=digits.train[:80], preprocess=layers.Rescaling(1 / 255))
    detector.calibrate(digits.calibration[:40])
    assert [one.name for one in detector.statistic._members] == ["features", "bn_moments"]
    before = [variable.numpy() for variable in made.variables]
    found = detector.predict(digits.test[:9], fpr=0.05)
    assert found.bits_per_dim is None
    for old, variable in zip(before, made.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
    detector.save(tmp_path / "detector")
    again = Detector.load(tmp_path / "detector")
    np.testing.assert_array_equal(again.p_values(digits.test[:9]), found.p_value)
    np.testing.assert_allclose(again.score(digits.test[:9]), found.score, rtol=1e-5)


def test_an_export_gives_the_scores_of_the_detector(digits, tmp_path):
    detector = Detector(sequential(), reference=digits.train[:80]).calibrate(digits.calibration)
    version = detector.export(tmp_path / "model", fpr=0.05, held_out=digits.calibration)
    served = tf.saved_model.load(str(version)).signatures
    rows = served["uint8"](images=tf.constant(digits.test[:5]))
    np.testing.assert_allclose(rows["score"], detector.score(digits.test[:5]), rtol=1e-4)
    # Rounded otherwise, a score may change places with one of the 300 calibration scores.
    expected = detector.p_values(digits.test[:5])
    np.testing.assert_allclose(rows["p_value"], expected, atol=1.01 / 301)
    assert "log_prob" not in served
    inliers = served["score_batch"](images=tf.constant(digits.test[:64], tf.float32))
    outliers = served["score_batch"](images=tf.constant(255 - digits.test[:64], tf.float32))
    assert inliers["batch_p_value"][0] > 0.01
    assert outliers["batch_p_value"][0] <= 0.002


def test_features_are_what_the_last_dense_reads(digits):
    """An independent line: the convolution, the moving moments, the mean over places."""
    network = Network(sequential(side=8), preprocess=layers.Rescaling(1 / 255))
    conv, norm = network.network.layers[:2]
    norm.moving_mean.assign([0.1, -0.2, 0.0, 0.3])
    norm.moving_variance.assign([0.5, 1.0, 2.0, 0.1])
    pixels = digits.test[:3].astype(np.float32) / 255
    kernel, bias = (value.numpy() for value in conv.weights)
    windows = np.lib.stride_tricks.sliding_window_view(pixels[..., 0], (3, 3), axis=(1, 2))
    maps = np.einsum("nhwij,ijc->nhwc", windows, kernel[:, :, 0]) + bias
    maps = (maps - norm.moving_mean) / np.sqrt(norm.moving_variance + norm.epsilon)
    expected = np.maximum(maps, 0).mean(axis=(1, 2))
    np.testing.assert_allclose(network.features(digits.test[:3]), expected, rtol=1e-4, atol=1e-5)


def test_an_encoder_without_a_dense_gives_its_pooled_output(digits):
    encoder = Subclassed()
    network = Network(encoder).prepare((8, 8, 1))
    expected = encoder(digits.test[:3].astype(np.float32)).numpy().mean(axis=(1, 2))
    np.testing.assert_allclose(network.features(digits.test[:3]), expected, rtol=1e-5)


def test_chosen_layers_are_pooled_and_scaled_to_unit_length(digits):
    network = Network(sequential(), layers=["norm", "relu"])
    found = network.features(digits.test[:3]).numpy()
    assert found.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(found[:, :4], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found[:, 4:], axis=1), 1, rtol=1e-5)
    one = Network(sequential(), layers=["relu"]).features(digits.test[:3]).numpy()
    np.testing.assert_allclose(
        found[:, 4:], one / np.linalg.norm(one, axis=1, keepdims=True), rtol=1e-5
    )


def test_images_are_resized_once_by_the_stated_method(digits):
    seen = []
    network = Network(sequential(), preprocess=lambda pixels: seen.append(pixels) or pixels)
    network.features(digits.test[:2])
    wanted = tf.image.resize(digits.test[:2], (16, 16), method="bicubic", antialias=True)
    np.testing.assert_array_equal(seen[-1], np.clip(wanted, 0, 255))
    network.features(np.repeat(np.repeat(digits.test[:2], 2, 1), 2, 2))  # its own size: untouched
    np.testing.assert_array_equal(seen[-1], np.repeat(np.repeat(digits.test[:2], 2, 1), 2, 2))


def test_grey_images_become_three_equal_channels(digits):
    seen = []
    Network(sequential(channels=3), preprocess=lambda x: seen.append(x) or x).features(
        digits.test[:2]
    )
    assert seen[-1].shape == (2, 16, 16, 3)
    np.testing.assert_array_equal(seen[-1][..., 0], seen[-1][..., 2])


def test_colour_images_are_refused_by_a_grey_network(digits):
    colour = np.repeat(digits.train[:30], 3, axis=3)
    with pytest.raises(StatisticError, match=r"1 channels for this network.*\(8, 8, 3\)"):
        Detector(sequential(), reference=colour)


def test_a_network_without_batch_normalisation_has_features_alone_and_says_so(digits):
    plain = keras.Sequential([keras.Input((8, 8, 1)), layers.Flatten(), layers.Dense(10)])
    with pytest.warns(UserWarning, match="no BatchNormalization layers"):
        detector = Detector(plain, reference=digits.train[:80])
    assert [one.name for one in detector.statistic._members] == ["features"]
    with pytest.raises(StatisticError, match="Received: a model without any"):
        Detector(plain, "bn_moments", reference=digits.train[:80])


def test_statistics_of_one_network_share_one_wrapping(digits):
    classifier = sequential()
    assert as_model(classifier, (8, 8, 1)) is as_model(classifier, (8, 8, 1))
    assert len(batch_normalizations(as_model(classifier, (8, 8, 1)))) == 1


def test_a_preprocessing_is_known_again_or_refused(digits, tmp_path):
    preprocess = keras.applications.mobilenet_v2.preprocess_input
    detector = Detector(sequential(), reference=digits.train[:40], preprocess=preprocess)
    detector.save(tmp_path / "known")
    again = Detector.load(tmp_path / "known")
    assert again.model.preprocess is preprocess
    np.testing.assert_allclose(again.score(digits.test[:4]), detector.score(digits.test[:4]))
    unknown = Detector(sequential(), reference=digits.train[:40], preprocess=lambda x: x / 255)
    with pytest.raises(StatisticError, match=r"preprocess must be a Keras layer.*<lambda>"):
        unknown.save(tmp_path / "unknown")
    assert not (tmp_path / "unknown").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(object()), "network must be a keras.Model"),
        (lambda: Network(Network(sequential())), "plain Keras model"),
        (lambda: Network(sequential(), size=(8, 8)), r"size must be \(16, 16\)"),
        (lambda: Network(Subclassed(), size=(8,)), r"size must be \(height, width\)"),
        (lambda: Network(sequential(), layers=["nothing"]), "such as dropout.*'nothing'"),
        (lambda: Network(Subclassed(), layers=["conv"]), "layers needs a Functional"),
        (
            lambda: Network(keras.Sequential([keras.Input((8,)), layers.Dense(2)])),
            "one input of images",
        ),
        (
            lambda: Network(keras.Sequential([keras.Input((3, 8, 8)), layers.Flatten()])),
            "channels last",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(make, message):
    with pytest.raises(StatisticError, match=message):
        make()


def test_a_network_that_fails_on_the_images_is_refused_with_its_reason(digits):
    with pytest.raises(
        StatisticError, match=r"model must accept images of shape \(8, 8, 1\).*fails"
    ):
        Detector(Network(Subclassed(), size=(2, 2)), reference=digits.train[:30])


def test_preprocess_goes_with_a_plain_network_alone(digits, brought_model):
    for model in (Network(sequential()), brought_model, None):
        with pytest.raises(StatisticError, match="preprocess needs a plain Keras model"):
            Detector(model, reference=digits.train[:30], preprocess=layers.Rescaling(1 / 255))


def test_a_network_trained_on_since_the_fit_is_refused(digits, tmp_path):
    classifier = sequential()
    detector = Detector(classifier, reference=digits.train[:40])
    classifier.layers[0].kernel.assign_add(tf.ones_like(classifier.layers[0].kernel))
    with pytest.raises(StatisticError, match="as it was when the detector was fitted"):
        detector.save(tmp_path / "detector")
