"""The network that tells what was done to an image: what it learns, and that it is the same as a vector of weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood import Detector, statistics
from tfbnood.data import load
from tfbnood.errors import StatisticError
from tfbnood.evidence import Evidence
from tfbnood.metrics import auroc
from tfbnood.pretext_statistic import Pretext, _folded, _network, _scaled
from tfbnood.pseudo import KINDS, pseudo_outliers


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def pretext(digits):
    return Pretext().fit(None, digits.train)


def separation(statistic, inliers, outliers):
    is_ood = np.repeat([False, True], [len(inliers), len(outliers)])
    return auroc(is_ood, statistic.score(np.concatenate([inliers, outliers])))


def test_finds_what_it_was_trained_on_in_new_images(pretext, digits):
    spoiled = pseudo_outliers(digits.test[200:], seed=7)
    found = {kind: separation(pretext, digits.test[:197], spoiled[kind]) for kind in KINDS}
    assert min(found.values()) > 0.55
    assert np.mean(list(found.values())) > 0.9


def test_finds_what_it_has_not_seen(pretext, digits):
    assert separation(pretext, digits.test, 255 - digits.test) > 0.95
    unseen = Pretext(kinds=[kind for kind in KINDS if kind not in ("patches", "mosaic")])
    unseen.fit(None, digits.train)
    spoiled = pseudo_outliers(digits.test[200:], seed=7, kinds=("patches", "mosaic"))
    for images in spoiled.values():
        assert separation(unseen, digits.test[:197], images) > 0.7


def test_folded_weights_are_the_network_in_evaluation_mode():
    shape, classes = (9, 10, 3), 4  # odd and even sides: strides must pad as Keras does
    network = _network(shape, 4, classes, seed=0)
    random = np.random.RandomState(0)
    for layer in network.layers:  # Fresh moments are 0 and 1, which would hide a slip.
        if isinstance(layer, keras.layers.BatchNormalization):
            weights = layer.get_weights()
            layer.set_weights([random.uniform(0.5, 2, one.shape) for one in weights])
    images = random.randint(0, 256, (5, *shape)).astype(np.float32)
    expected = -tf.nn.log_softmax(network(_scaled(images), training=False))[:, 0]
    statistic = Pretext(width=4, kinds=KINDS[: classes - 1])
    statistic.image_shape_, statistic.weights_ = shape, _folded(network)
    statistic._restore(None)
    found = statistic.tensor_score(Evidence(tf.constant(images)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_same_seed_same_weights_and_no_other_randomness_is_touched(digits):
    settings = {"steps": 3, "width": 4}
    np.random.seed(5)
    keras.utils.set_random_seed(5)
    expected = np.random.rand(), float(keras.random.uniform(()))
    keras.utils.set_random_seed(5)
    first = Pretext(**settings).fit(None, digits.train)
    assert (np.random.rand(), float(keras.random.uniform(()))) == expected
    again = Pretext(**settings).fit(None, digits.train)
    np.testing.assert_array_equal(first.weights_, again.weights_)
    other = Pretext(seed=1, **settings).fit(None, digits.train)
    assert (first.weights_ != other.weights_).any()


def test_few_images_are_not_learned_by_heart(digits, monkeypatch):
    steps = []
    monkeypatch.setattr(
        "tfbnood.pretext_statistic._training_step", lambda *_: lambda *batch: steps.append(batch)
    )
    Pretext().fit(None, digits.train[:500])
    assert len(steps) == 125  # four passes of 500 images, 16 a step
    Pretext().fit(None, digits.train[:40])
    assert len(steps) == 125 + 100
    Pretext(steps=7).fit(None, digits.train)
    assert len(steps) == 125 + 100 + 7
    images, labels = steps[0]
    assert images.shape[0] == len(labels) == 16 * (1 + len(KINDS))
    assert (np.bincount(labels) == 16).all()


def test_is_saved_and_exported(digits, tmp_path):
    # A detector fits what it is given: few steps, since what is learned does not matter here.
    detector = Detector(None, "pretext", steps=2, reference=digits.train)
    detector.calibrate(digits.calibration)
    detector.save(tmp_path / "detector")
    images = digits.test[:20]
    expected = detector.score(images)
    np.testing.assert_array_equal(Detector.load(tmp_path / "detector").score(images), expected)
    served = tf.saved_model.load(str(detector.export(tmp_path / "served")))
    found = served.signatures["uint8"](images=tf.constant(images))["score"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["flip", "shear"]}, "kinds must be of .*Received: shear"),
        ({"steps": 0}, "steps and width must be at least 1. Received: steps=0"),
        ({"width": 0}, "steps and width must be at least 1. Received: steps=2000, width=0"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(StatisticError, match=message):
        statistics.get("pretext", **settings)
