import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbnood
from tfbnood import data, statistics
from tfbnood.callbacks import OodEvaluation
from tfbnood.errors import DataError, StatisticError
from tfbnood.metrics import auroc

DIGITS = data.load("digits")
OUTLIERS = {
    "inverted": 255 - DIGITS.test[:128],
    "photos": data.photo_patches(128, (8, 8, 1), seed=0),
}


REFERENCE = DIGITS.train[:200]


def _ood(**settings):
    """The callback with images that it takes."""
    return OodEvaluation(DIGITS.test, OUTLIERS, **{"reference": REFERENCE, **settings})


class Brought(keras.Model):
    """A user's own Keras model: stock batch normalisation, stateful dropout, log_prob(images, training=…)."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Conv2D(4, 3, padding="same")
        self.norm = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.5, seed=1)
        self.out = keras.layers.Conv2D(1, 3, padding="same")
        self.traces = 0

    def call(self, images, training=False):
        pixels = tf.cast(images, tf.float32) / 255
        hidden = tf.nn.relu(self.norm(self.hidden(pixels), training=training))
        mean = self.out(self.drop(hidden, training=training))
        return -tf.reduce_sum((pixels - mean) ** 2, axis=(1, 2, 3))

    def log_prob(self, images, training=False):
        self.traces += 1
        return self(images, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return -tf.reduce_mean(y_pred)


def _fit(callbacks=(), *, epochs=2):
    keras.utils.set_random_seed(0)
    model = Brought()
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(
        DIGITS.train[:256], batch_size=64, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )
    return model, history.history


def _variables(model):
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]


def _assert_same(one, other):
    for value, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(value, expected)


class Recorder(keras.callbacks.Callback):
    """What a callback later in the list finds in the logs."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(dict(logs))


@pytest.mark.parametrize("statistic", ["auto", "bn_delta"])
def test_history_and_later_callbacks_have_the_auroc_of_the_present_weights(statistic):
    recorder = Recorder()
    model, history = _fit([_ood(n=100, statistic=statistic), recorder])
    assert [logs["ood_auroc_photos"] for logs in recorder.seen] == history["ood_auroc_photos"]
    # By hand, with the final weights: 100 of all inliers, none of which is left out.
    fitted = (
        statistics.get("ensemble", pretext=False)
        if statistic == "auto"
        else statistics.get(statistic)
    ).fit(model, REFERENCE)
    for name, images in OUTLIERS.items():
        pools = [
            pool[np.sort(np.random.RandomState(0).permutation(len(pool))[:100])]
            for pool in (DIGITS.test, images)
        ]
        scores = np.concatenate([fitted.score(pool) for pool in pools])
        expected = auroc(np.arange(200) >= 100, scores)
        # But for a few of the 10,000 pairs, which may change places by rounding.
        assert history[f"ood_auroc_{name}"][-1] == pytest.approx(expected, abs=3e-4)


def test_the_default_is_the_default_detector_s_without_its_networks():
    statistic = _ood().statistic
    assert statistic.name == statistics.get("auto").name
    assert statistic.scope == "image"
    assert statistic.get_config() == {**statistics.get("auto").get_config(), "pretext": False}


def test_all_inliers_are_scored_and_none_becomes_the_reference():
    callback = _ood(n=1000)
    np.testing.assert_array_equal(callback.inliers, DIGITS.test)
    np.testing.assert_array_equal(callback.reference, REFERENCE)
    with pytest.raises(TypeError, match="required keyword-only argument: 'reference'"):
        OodEvaluation(DIGITS.test, OUTLIERS)


def test_training_with_the_callback_is_bit_identical_to_one_without():
    with_callback, history = _fit([_ood()])
    without, plain = _fit()
    _assert_same(_variables(with_callback), _variables(without))
    assert history["loss"] == plain["loss"]


def test_training_of_a_pixelcnn_with_dropout_is_bit_identical_with_the_callback():
    model = tfbnood.models.PixelCNN((8, 8, 1), filters=4, blocks=1, mixtures=1, dropout=0.5)
    model.compile("sgd")  # Adam would double the time to trace a step.
    start = _variables(model)
    ends = []
    for callbacks in ([], [_ood(n=64, statistic="bn_delta")]):
        for variable, value in zip(
            [*model.variables, *model.optimizer.variables], start, strict=True
        ):
            variable.assign(value)
        keras.utils.set_random_seed(0)
        model.fit(DIGITS.train[:128], epochs=2, verbose=0, callbacks=callbacks)
        ends.append(_variables(model))
    _assert_same(*ends)
    assert any((one != other).any() for one, other in zip(start, ends[0], strict=True))


def test_the_global_random_stream_of_numpy_stays_where_it_was():
    callback = _ood(n=64)
    callback.set_model(Brought())
    callback.model(DIGITS.test[:2])
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    callback.on_train_begin()
    callback.on_epoch_end(0, {})
    assert np.random.random() == expected


def test_the_model_is_traced_once_a_training_and_not_once_an_epoch():
    traces = []

    class Count(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            traces.append(self.model.traces)

    _fit([_ood(n=64, statistic="bn_delta"), Count()], epochs=4)
    assert traces[0] > 0
    assert len(set(traces)) == 1


def test_a_statistic_that_learns_from_the_model_follows_its_weights():
    model, history = _fit([_ood(statistic="t_perm", reference=DIGITS.train)])
    t_perm = statistics.get("t_perm").fit(model, DIGITS.train)
    pools = [
        pool[np.sort(np.random.RandomState(0).permutation(len(pool))[:256])]
        for pool in (DIGITS.test, OUTLIERS["photos"])
    ]
    scores = np.concatenate([t_perm.score(pool) for pool in pools])
    expected = auroc(np.arange(len(scores)) >= 256, scores)
    assert history["ood_auroc_photos"][-1] == pytest.approx(expected, abs=3e-4)


def test_epochs_in_between_repeat_the_last_value():
    _, history = _fit([_ood(n=64, every=2, statistic="bn_delta")], epochs=5)
    _, every_epoch = _fit([_ood(n=64, statistic="bn_delta")], epochs=5)
    values = every_epoch["ood_auroc_photos"]
    expected = [values[0], values[1], values[1], values[3], values[3]]
    assert history["ood_auroc_photos"] == expected


def test_a_deep_copy_before_and_after_use_gives_the_same_values(tmp_path):
    original = _ood(n=64)
    copied = copy.deepcopy(original)
    _, first = _fit([original], epochs=1)
    _, second = _fit([copied], epochs=1)
    _, again = _fit([original], epochs=1)
    assert first == second == again


def test_early_stopping_and_checkpoints_monitor_it_without_a_warning(tmp_path):
    stop = keras.callbacks.EarlyStopping("ood_auroc_photos", mode="max", patience=1, min_delta=2)
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.weights.h5",
        "ood_auroc_photos",
        mode="max",
        save_best_only=True,
        save_weights_only=True,
    )
    # Keras warns of a missing monitor, and warnings are errors here.
    _, history = _fit([_ood(n=64), stop, best], epochs=5)
    assert len(history["loss"]) == 2  # an AUROC cannot rise by 2
    assert (tmp_path / "best.weights.h5").is_file()


@pytest.mark.parametrize("statistic", ["auto", "bn_delta"])
def test_scores_that_are_not_finite_are_no_reason_to_end_a_training(statistic):
    callback = _ood(n=64, statistic=statistic)
    model, _ = _fit()
    model.out.bias.assign([np.inf])
    callback.set_model(model)
    callback.on_train_begin()
    with pytest.warns(UserWarning, match="finite"):
        callback.on_epoch_end(0, logs := {})
    assert np.isnan(logs["ood_auroc_photos"])
    model.out.bias.assign([0])  # The next epoch is a new attempt.
    callback.on_epoch_end(1, logs)
    assert 0 <= logs["ood_auroc_photos"] <= 1


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"every": 0}, DataError, "every=0"),
        ({"n": 0}, DataError, "n=0"),
        ({"seed": -1}, DataError, "seed=-1"),
        ({"statistic": "entropy"}, StatisticError, "^statistic must be .*Received: 'entropy'"),
        (
            {"reference": REFERENCE[:19]},
            DataError,
            "^reference must hold at least 20 images for statistic='ensemble'. Received: 19",
        ),
        ({"reference": REFERENCE[:, :6]}, DataError, r"^reference must have .*=\(8, 8, 1\)"),
        ({"reference": REFERENCE / 255}, DataError, "^reference must lie in 0–255, not 0–1"),
        ({"reference": None}, DataError, "^reference must hold numbers"),
    ],
)
def test_wrong_arguments_are_named_at_once(settings, error, message):
    with pytest.raises(error, match=message):
        _ood(**settings)


def test_wrong_images_are_named_at_once():
    for outliers, message in (
        (OUTLIERS["photos"], "^outliers must be a dict"),
        ({"photos": OUTLIERS["photos"] / 255}, r"^outliers\['photos'\] must lie in 0–255, not 0–1"),
    ):
        with pytest.raises(DataError, match=message):
            OodEvaluation(DIGITS.test, outliers, reference=REFERENCE)
    with pytest.raises(DataError, match=r"^inliers must lie in 0–255, not 0–1"):
        OodEvaluation(DIGITS.test / 255, OUTLIERS, reference=REFERENCE)


def _classifier():
    """A user's classifier, which takes images in 0–255."""
    layers = keras.layers
    classifier = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
    classifier.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return classifier


def test_a_classifier_in_training_has_its_auroc_in_the_history():
    history = _classifier().fit(
        REFERENCE, np.arange(200) % 2, verbose=0, epochs=2, callbacks=[_ood()]
    )
    for name, values in history.history.items():
        assert len(values) == 2
        if name.startswith("ood_auroc_"):
            assert all(0 <= value <= 1 for value in values)
    assert any(name.startswith("ood_auroc_") for name in history.history)


def test_a_statistic_that_cannot_use_the_model_is_named_before_the_training():
    trained = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: trained.append(1))
    with pytest.raises(StatisticError, match=r"^statistic must be .*Received: statistic='waic' \("):
        _fit([_ood(statistic="waic"), count])
    classifier = _classifier()
    with pytest.raises(StatisticError, match=r"statistic='log_prob' \(model must have .*log_prob"):
        classifier.fit(
            REFERENCE, np.zeros(200), verbose=0, callbacks=[_ood(statistic="log_prob"), count]
        )
    model = tfbnood.models.VAE((8, 8, 3), channels=4, latents=3, bottleneck=8, head=8)
    model.compile("sgd")
    rgb = np.repeat(REFERENCE, 3, axis=3)
    with pytest.raises(DataError, match=r"^inliers must have .*=\(8, 8, 3\)"):
        model.fit(rgb, verbose=0, callbacks=[_ood(), count])
    assert not trained
