"""The networks that learn what was done to an image: what they learn, and that scoring runs the same networks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood import Detector, statistics
from tfbnood.data.pseudo import ALL_KINDS, KINDS, pseudo_outliers
from tfbnood.errors import StatisticError
from tfbnood.metrics import auroc
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.pretext.network import (
    batches,
    fold_batch_norm,
    layers_of,
    make_network,
    number_of_steps,
    scaled,
    train_network,
)
from tfbnood.statistics.pretext.statistic import Pretext


@pytest.fixture(scope="module")
def pretext(digits):
    return Pretext(steps=2000).fit(None, digits.train)


def separation(statistic, inliers, outliers):
    is_ood = np.repeat([False, True], [len(inliers), len(outliers)])
    return auroc(is_ood, statistic.score(np.concatenate([inliers, outliers])))


def test_finds_what_it_was_trained_on_in_new_images(pretext, digits):
    spoiled = pseudo_outliers(digits.test[200:], seed=7, kinds=ALL_KINDS)
    found = {kind: separation(pretext, digits.test[:197], spoiled[kind]) for kind in ALL_KINDS}
    assert min(found.values()) > 0.55
    assert np.mean(list(found.values())) > 0.9


def test_finds_what_it_has_not_seen(pretext, digits):
    assert separation(pretext, digits.test, 255 - digits.test) > 0.95
    with_seams = ("patches", "mosaic", "halves")
    kinds = [kind for kind in ALL_KINDS if kind not in with_seams]
    unseen = Pretext(steps=2000, kinds=kinds)
    unseen.fit(None, digits.train)
    spoiled = pseudo_outliers(digits.test[200:], seed=7, kinds=with_seams)
    found = {kind: separation(unseen, digits.test[:197], spoiled[kind]) for kind in with_seams}
    assert min(found["patches"], found["mosaic"]) > 0.7
    assert found["halves"] > 0.6  # Halves of two digits often make one.


def test_the_score_is_that_of_the_networks_in_evaluation_mode(monkeypatch):
    shape = (9, 10, 3)  # odd and even sides: strides must pad as Keras does
    random = np.random.RandomState(0)
    layers = [layers_of(3, 4, 1 + len(kinds)) for kinds in (KINDS, ALL_KINDS)]
    networks = [make_network(shape, one, seed=0) for one in layers]
    for layer in (layer for network in networks for layer in network.layers):
        if isinstance(layer, keras.layers.BatchNormalization):
            # Fresh moments are 0 and 1, which would hide a slip.
            layer.set_weights([random.uniform(0.5, 2, one.shape) for one in layer.get_weights()])
    images = random.randint(0, 256, (50, *shape)) * random.rand(50, 1, 1, 1)
    images = images.astype(np.uint8)
    logs = [tf.nn.log_softmax(one(scaled(images), training=False))[:, 0] for one in networks]
    expected = -np.mean(logs, axis=0)

    def score():
        trained = zip(networks, layers, strict=True)
        monkeypatch.setattr(
            "tfbnood.statistics.pretext.statistic.train_network",
            lambda *_: fold_batch_norm(*next(trained)),
        )
        return Pretext(width=4).fit(None, images).score(images)

    in_bytes = score()
    np.testing.assert_allclose(in_bytes, expected, atol=0.02)
    assert np.corrcoef(in_bytes, expected)[0, 1] > 0.999
    # Without rounding to bytes it is the same.
    monkeypatch.setattr(
        "tfbnood.statistics.pretext.statistic.as_bytes",
        lambda kernel, axis: (kernel, np.ones(kernel.shape[-1])),
    )
    np.testing.assert_allclose(score(), expected, rtol=1e-4, atol=1e-5)


def test_the_second_column_is_the_mahalanobis_distance_of_features(pretext, digits):
    from sklearn.covariance import LedoitWolf

    def features(images):
        outputs = pretext._outputs(tf.cast(images, tf.float32))
        return [features.numpy().astype(np.float64) for features, _ in outputs]

    images = np.concatenate([digits.test[:30], 255 - digits.test[:30]])
    expected = []
    for known, own in zip(features(digits.train), features(images), strict=True):
        assert own.shape == (60, 96)
        mean, deviation = known.mean(axis=0), np.maximum(known.std(axis=0), 1e-3)
        covariance = LedoitWolf().fit((known - mean) / deviation).covariance_ + 1e-3 * np.eye(96)
        away = (own - mean) / deviation
        expected.append(np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away))
    columns = pretext.tensor_columns(gather(None, "pixels", images)).numpy()
    np.testing.assert_allclose(columns[:, 1], np.mean(expected, axis=0), rtol=1e-2)
    np.testing.assert_allclose(columns[:, 0], pretext.score(images), rtol=1e-4, atol=1e-4)
    assert np.median(columns[30:, 1]) > 5 * np.median(columns[:30, 1])


def test_few_reference_images_have_features_too(digits):
    pretext = Pretext(steps=2).fit(None, digits.train[:2])
    assert np.isfinite(pretext.tensor_columns(gather(None, "pixels", digits.test[:5]))).all()


def test_same_seed_same_weights_and_no_other_randomness_is_touched(digits):
    settings = {"steps": 3, "width": 4}
    np.random.seed(5)
    keras.utils.set_random_seed(5)
    expected = np.random.rand(), float(keras.random.uniform(()))
    keras.utils.set_random_seed(5)
    first = Pretext(**settings).fit(None, digits.train)
    assert (np.random.rand(), float(keras.random.uniform(()))) == expected
    again = Pretext(**settings).fit(None, digits.train)
    for key, value in first.get_state().items():
        np.testing.assert_array_equal(value, again.get_state()[key])
    other = Pretext(seed=1, **settings).fit(None, digits.train)
    assert (first.kernel_0_dense_ != other.kernel_0_dense_).any()


@pytest.mark.parametrize(
    ("images", "most", "steps"), [(500, 2000, 125), (40, 2000, 100), (500, 7, 7)]
)
def test_few_images_are_not_learned_by_heart(images, most, steps):
    assert number_of_steps(images, most) == steps


def test_training_takes_the_steps_of_the_stream(digits, monkeypatch):
    """Keras' `fit` does what a loop over the same batches by hand does."""
    layers = layers_of(1, 4, 2)
    network = make_network((8, 8, 1), layers, seed=0)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, 3))
    for images, labels in batches(digits.train, ("flip",), range(3), seed=0):
        with tf.GradientTape() as tape:
            logits = network(scaled(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
    expected = fold_batch_norm(network, layers)
    found = train_network(digits.train, ("flip",), 3, width=4, seed=0)
    assert found.keys() == expected.keys()
    for name in expected:
        for one, other in zip(found[name], expected[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(("kinds", "images"), [(KINDS, 16), (ALL_KINDS, 8), (("flip",), 64)])
def test_every_image_is_there_untouched_and_once_for_every_kind(kinds, images, digits):
    ((batch, labels),) = batches(digits.train, kinds, range(1), seed=0)
    assert batch.shape[0] == images * (1 + len(kinds)) <= 176
    assert (np.bincount(labels) == images).all()
    flips = batch[images * (1 + kinds.index("flip")) :][:images]
    np.testing.assert_array_equal(flips, batch[:images, ::-1])


def test_fitted_arrays_have_names_and_kernels_are_bytes_in_variables(digits):
    pretext = Pretext(steps=2, width=4, kinds=("flip", "blur")).fit(None, digits.train)
    state = pretext.get_state()
    names = [*(f"convolution_{index}" for index in range(6)), "dense"]
    named = {f"{part}_0_{name}_" for part in ("kernel", "scale", "bias") for name in names}
    assert state.keys() == named | {"image_shape_", "centres_", "whitening_"}
    kernels = [state[f"kernel_0_{name}_"] for name in names]
    assert {kernel.dtype for kernel in kernels} == {np.dtype(np.int8)}
    assert [kernel.shape for kernel in kernels[::6]] == [(3, 3, 1, 4), (16, 3)]
    for variable, kernel in zip(pretext.variables, kernels, strict=True):
        np.testing.assert_array_equal(variable, kernel)


def as_version_0_1_0(state, networks):
    """The state with all kernels in one vector, and all that multiplies and adds in another."""
    names = [*(f"convolution_{index}" for index in range(6)), "dense"]
    layers = [f"{index}_{name}_" for index in range(networks) for name in names]
    parts = [state[f"{part}_{layer}"] for layer in layers for part in ("scale", "bias")]
    return {
        "image_shape_": state["image_shape_"],
        "weights_": np.concatenate([state[f"kernel_{layer}"].ravel() for layer in layers]),
        "scales_": np.concatenate(parts),
        "centres_": state["centres_"],
        "whitening_": state["whitening_"],
    }


def test_the_two_vectors_of_version_0_1_0_become_named_arrays(digits):
    fitted = Pretext(steps=2, width=4).fit(None, digits.train)
    old = as_version_0_1_0(fitted.get_state(), networks=2)
    again = Pretext(width=4)
    again.set_state(None, old)
    assert again.get_state().keys() == fitted.get_state().keys()
    for key, value in fitted.get_state().items():
        np.testing.assert_array_equal(again.get_state()[key], value)
    for key in ("weights_", "scales_"):
        with pytest.raises(StatisticError, match=f"pretext must have {key} of shape"):
            Pretext(width=4).set_state(None, {**old, key: old[key][:-1]})


def test_a_state_with_other_arrays_is_refused(digits):
    pretext = Pretext(steps=2, width=4, kinds=("flip",))
    state = pretext.fit(None, digits.train).get_state()
    with pytest.raises(StatisticError, match="pretext has no 'kernel_1_dense_'"):
        pretext.set_state(None, {**state, "kernel_1_dense_": state["kernel_0_dense_"]})
    for spoil in (
        lambda state: state.pop("bias_0_dense_"),
        lambda state: state.update(bias_0_dense_=np.ones(3)),
    ):
        spoiled = dict(state)
        spoil(spoiled)
        with pytest.raises(StatisticError, match=r"must have bias_0_dense_ of shape \(2,\)"):
            pretext.set_state(None, spoiled)


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
        ({"kinds": ["flip", "shear"]}, "kinds must be some of .*Received: shear"),
        ({"steps": 0}, "steps and width must be at least 1. Received: steps=0"),
        ({"width": 0}, "steps and width must be at least 1. Received: steps=20, width=0"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(StatisticError, match=message):
        statistics.get("pretext", **settings)
