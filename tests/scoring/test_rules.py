"""One hook into batch normalisation: right in every thread, and the user's model stays as it is."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from brought import BroughtModel, trained_brought_model

import tfbnood
from tfbnood.errors import StatisticError
from tfbnood.models import RealNVP
from tfbnood.scoring.conditional import ConditionalLogProb, MixedMomentsLogProb
from tfbnood.scoring.frozen import frozen_log_prob
from tfbnood.scoring.moments import image_moments, moment_columns
from tfbnood.scoring.rules import batch_normalizations, ruled

THREADS = 8


def flow(digits):
    model = RealNVP((8, 8, 1), channels=4, blocks=1, scales=1)
    model.compile(run_eagerly=True)
    model.fit(digits.train[:256], batch_size=128, verbose=0)
    return model


@pytest.fixture(params=["stock layers", "our layers"])
def model(request, digits):
    return trained_brought_model(digits.train) if request.param == "stock layers" else flow(digits)


def at_once(jobs):
    """Runs every job in a thread of its own, all from the same moment on."""
    barrier = threading.Barrier(len(jobs))

    def run(job):
        barrier.wait()
        return job()

    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def test_eight_threads_on_one_model_have_the_values_of_one_thread(model, digits):
    images = digits.test[:32]

    def fresh_moments():
        # A new function each time, so that it is traced while others run.
        trace = tf.function(lambda batch: image_moments(model).python_function(batch))
        return trace(images)[1][1].numpy()

    def fresh_mixed():
        return MixedMomentsLogProb(model, batch_size=16)(images, ratio=0.5)

    def fresh_samples():
        return ConditionalLogProb(model, digits.train[:64], batch_size=16)(images, ratio=0.5)

    def plotted():
        return tfbnood.plots.moment_deviations(model, images, digits.train[:64])

    detector = tfbnood.Detector(model, "bn_moments", reference=digits.train[:200])
    detector.calibrate(digits.calibration)
    jobs = {
        "log_prob": lambda: model.log_prob(images).numpy(),
        "log_prob in training mode": lambda: frozen_log_prob(model)(images, True).numpy(),
        "compiled": lambda: tf.function(lambda: model.log_prob(images))().numpy(),
        "moments": fresh_moments,
        "mixed moments": fresh_mixed,
        "mixed samples": fresh_samples,
        "plots.moments": plotted,
        "predict": lambda: detector.predict(images, fpr=0.05).score,
    }
    assert len(jobs) == THREADS
    expected = {name: job() for name, job in jobs.items()}
    before = [variable.numpy() for variable in model.variables]
    for _ in range(3):
        found = dict(zip(jobs, at_once(list(jobs.values())), strict=True))
        for name in jobs:
            tf.nest.map_structure(np.testing.assert_array_equal, found[name], expected[name])
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


def test_one_detector_predicts_in_eight_threads_from_its_first_call_on(digits, model):
    detector = tfbnood.Detector(model, "bn_moments", reference=digits.train[:200])
    detector.calibrate(digits.calibration)
    again = tfbnood.Detector(model, "bn_moments", reference=digits.train[:200])
    again.calibrate(digits.calibration)
    expected = detector.predict(digits.test[:20], fpr=0.05)
    for found in at_once([lambda: again.predict(digits.test[:20], fpr=0.05)] * THREADS):
        np.testing.assert_array_equal(found.score, expected.score)
        np.testing.assert_array_equal(found.bits_per_dim, expected.bits_per_dim)


def test_the_users_model_is_the_same_afterwards(model, digits, tmp_path):
    layers = batch_normalizations(model)
    calls = [layer.call for layer in layers]
    attributes = [set(vars(layer)) for layer in layers]
    config, before = model.get_config(), [variable.numpy() for variable in model.variables]
    values = model.log_prob(digits.test[:5]).numpy()
    image_moments(model)(digits.test[:5])
    moment_columns(model, (8, 8, 1))
    MixedMomentsLogProb(model)(digits.test[:5], ratio=0.9)
    assert [layer.call for layer in layers] == calls
    assert [set(vars(layer)) for layer in layers] == attributes
    assert model.get_config() == config
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.log_prob(digits.test[:5]), values)
    np.testing.assert_array_equal(model.log_prob(digits.test[:5]), values)


def test_a_rule_ends_with_its_block_also_after_an_error(model, digits):
    expected = model.log_prob(digits.test[:3]).numpy()

    def ones(layer, inputs):
        return tf.zeros((), inputs.dtype), tf.ones((), inputs.dtype)

    with ruled(model, ones):
        assert np.abs(model.log_prob(digits.test[:3]) - expected).max() > 1e-3
    with pytest.raises(ZeroDivisionError), ruled(model, lambda *_: 1 / 0):
        model.log_prob(digits.test[:3])
    np.testing.assert_array_equal(model.log_prob(digits.test[:3]), expected)


class Brought(BroughtModel):
    """The brought model with another normalisation."""

    def __init__(self, norm):
        keras.Model.__init__(self)
        self.norm = norm
        self.conv = keras.layers.Conv2D(1, 3, padding="same", use_bias=False)


class OwnNormalization(keras.layers.BatchNormalization):
    """Does not ask Keras' own `call`, and so no rule."""

    def call(self, inputs, training=None, mask=None):
        return inputs


def test_a_normalisation_that_would_pass_the_rule_by_is_refused(digits):
    model = Brought(OwnNormalization())
    model.log_prob(digits.test[:2])
    with pytest.raises(StatisticError, match=r"must end in super\(\).call\(\)"):
        image_moments(model)(digits.test[:2])


class Doubling(keras.layers.BatchNormalization):
    """Calls Keras' own, and obeys."""

    def call(self, inputs, training=None, mask=None):
        return 2 * super().call(inputs, training=training, mask=mask)


def test_a_subclass_that_calls_keras_obeys_the_rule_and_keeps_what_it_adds(digits):
    model = Brought(Doubling())
    expected = model.log_prob(digits.test[:4]).numpy()
    log_prob, (moments, _) = image_moments(model)(digits.test[:4])
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    assert moments.shape == (4, 2)


def test_a_tf_function_around_log_prob_is_looked_into(digits):
    plain = trained_brought_model(digits.train)
    expected = image_moments(plain)(digits.test[:4])[1][0].numpy()
    values = frozen_log_prob(plain)(digits.test[:4], False).numpy()
    wrapped = trained_brought_model(digits.train)
    wrapped.log_prob = tf.function(wrapped.log_prob)
    wrapped.log_prob(digits.test[:4])  # It has a trace without any rule.
    np.testing.assert_allclose(image_moments(wrapped)(digits.test[:4])[1][0], expected, rtol=1e-5)
    np.testing.assert_allclose(wrapped.log_prob(digits.test[:4]), values, rtol=1e-5)


def test_a_tf_function_inside_the_model_is_refused_since_it_would_keep_the_rule(digits):
    model = trained_brought_model(digits.train)
    inner = tf.function(lambda images, training: BroughtModel.call(model, images, training))
    model.call = lambda images, training=False: inner(images, training)
    with pytest.raises(StatisticError, match=r"inside its own tf.function.*remove the decorator"):
        image_moments(model)(digits.test[:2])
