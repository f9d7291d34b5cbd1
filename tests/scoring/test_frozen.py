"""A frozen model answers with the weights that it had, and says when they are others now."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from brought import PlainModel, trained_brought_model

import tfbnood
from tfbnood.errors import StatisticError
from tfbnood.models import RealNVP
from tfbnood.scoring import frozen
from tfbnood.scoring.frozen import FrozenModel, freeze, frozen_log_prob
from tfbnood.scoring.moments import image_moments


@pytest.fixture(params=["stock layers", "our layers"])
def model(request, digits):
    if request.param == "stock layers":
        return trained_brought_model(digits.train)
    return RealNVP((8, 8, 1), channels=4, blocks=1, scales=1)


def test_values_are_the_models_in_both_modes_and_with_moments(model, digits):
    images, held = digits.test[:6], freeze(model)
    for training in (False, True):
        np.testing.assert_allclose(
            frozen_log_prob(held)(images, training),
            frozen_log_prob(model)(images, training),
            rtol=1e-5,
        )
    for own, expected in zip(
        image_moments(held)(images)[1], image_moments(model)(images)[1], strict=True
    ):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-4)


def test_no_variable_is_read_or_written(model, digits):
    held = freeze(model)
    function = frozen_log_prob(held).get_concrete_function(digits.test[:2], False)
    assert all(one.dtype != tf.resource for one in function.captured_inputs)
    assert not function.graph.variables


def test_a_trained_model_is_frozen_anew_and_the_old_detector_says_so(digits, tmp_path):
    model = trained_brought_model(digits.train)
    detector = tfbnood.Detector(model, "bn_moments", reference=digits.train[:200])
    detector.calibrate(digits.calibration)
    before = detector.score(digits.test[:5])
    first = freeze(model)
    assert freeze(model) is first
    assert first.is_current
    model.conv.kernel.assign(1.5 * model.conv.kernel)
    assert freeze(model) is not first
    np.testing.assert_array_equal(detector.score(digits.test[:5]), before)
    for work in (
        lambda: detector.save(tmp_path / "detector"),
        lambda: detector.calibrate(digits.calibration),
        lambda: detector.export(tmp_path / "base"),
    ):
        with pytest.raises(StatisticError, match=r"make a new Detector.*other weights"):
            work()


def test_what_cannot_be_frozen_stays_as_it_is(monkeypatch, digits):
    plain = PlainModel()
    assert freeze(None) is None
    several = [plain, plain]
    assert freeze(several) is several
    assert isinstance(freeze(plain), FrozenModel)
    model = trained_brought_model(digits.train)
    monkeypatch.setattr(frozen, "_MOST_BYTES", 10)
    assert freeze(model) is model


def test_a_large_model_is_exported_with_variables(monkeypatch, digits, tmp_path):
    monkeypatch.setattr(frozen, "_MOST_BYTES", 10)
    model = trained_brought_model(digits.train)
    detector = tfbnood.Detector(model, "bn_moments", reference=digits.train[:200])
    version = detector.calibrate(digits.calibration).export(tmp_path / "base")
    served = tf.saved_model.load(str(version)).signatures["uint8"]
    found = served(images=tf.constant(digits.test[:5]))["score"]
    np.testing.assert_allclose(found, detector.score(digits.test[:5]), rtol=1e-4)


def test_a_model_that_nobody_holds_is_forgotten(digits):
    model = trained_brought_model(digits.train)
    held = freeze(model)
    gone = weakref.ref(held)
    del held, model
    gc.collect()
    assert gone() is None
