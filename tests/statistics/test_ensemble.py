"""The combined statistic: its formula against scikit-learn and SciPy, and that it keeps what its members know."""

import gc
import json

import numpy as np
import pytest
import tensorflow as tf
from brought import PlainModel, trained_brought_model
from scipy.stats import norm

from tfbnood import Detector, statistics
from tfbnood._core.sampling import shuffled_halves
from tfbnood.errors import SavedDetectorError, StatisticError
from tfbnood.metrics import auroc
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.ensemble import Ensemble


@pytest.fixture(scope="module")
def ensemble(digits):
    return Ensemble(components=3).fit(trained_brought_model(digits.train), digits.train)


def member_names(ensemble):
    return [member.name for member in ensemble._members]


def test_members_are_what_the_model_allows(ensemble, digits):
    pixels, likelihoods = ["pixel_pca", "pixel_knn"], ["log_prob", "complexity"]
    moments = ["bn_moments", "bn_moments"]
    assert member_names(ensemble) == [*pixels, *likelihoods, *moments, "pretext"]
    plain = Ensemble().fit(PlainModel(), digits.train[:100])
    assert member_names(plain) == [*pixels, *likelihoods, "pretext"]
    assert member_names(Ensemble(pretext=False).fit(None, digits.train)) == pixels


def test_keeps_its_model_alive(digits):
    ensemble = Ensemble(pretext=False, components=1)
    ensemble.fit(trained_brought_model(digits.train), digits.train[:100])
    gc.collect()  # Nobody else holds the model.
    # A function of the model that nothing has called yet.
    assert np.isfinite(ensemble.member("log_prob").score(digits.test[:3])).all()
    with pytest.raises(StatisticError, match=r"name must be one of pixel_pca.*Received: 'waic'"):
        ensemble.member("waic")


def test_auto_is_the_ensemble(digits):
    assert isinstance(statistics.get("auto"), Ensemble)


def test_members_are_fitted_to_one_half_and_the_mixture_to_the_other(ensemble, digits):
    half = len(digits.train) // 2
    known = digits.train[np.random.RandomState(0).permutation(len(digits.train))[:half]]
    assert len(ensemble._members[1].known_inside_) == half
    # An image of the half that the members know is its own neighbour; the table must not be of such.
    assert ensemble._members[1].score(known).mean() < 0.9 * ensemble.values_[1].mean()


def test_normal_scores_are_ranks_inside_and_logarithms_outside(ensemble, digits):
    scores = ensemble.columns(digits.train)
    normal = ensemble._normal_scores(tf.constant(scores, tf.float32)).numpy()
    knots = ensemble.values_[2]
    heights = norm.ppf((np.arange(len(knots)) + 0.5) / len(knots))
    inside = (scores[:, 2] >= knots[0]) & (scores[:, 2] <= knots[-1])
    expected = np.interp(scores[inside, 2], knots, heights)
    np.testing.assert_allclose(normal[inside, 2], expected, atol=1e-3)
    far = np.tile(np.median(scores, axis=0), (3, 1))
    slope = ensemble.slopes_[2, 1]
    far[:, 2] = knots[-1] + np.array([0, 1, 100]) / slope
    reached = ensemble._normal_scores(tf.constant(far, tf.float32)).numpy()[:, 2]
    assert reached[0] == pytest.approx(norm.ppf(1 - 0.5 / len(knots)), rel=1e-5)
    grown = reached - heights[-1]
    np.testing.assert_allclose(grown, np.log1p([0, 1, 100]), rtol=1e-2, atol=1e-2)


def test_density_is_scikit_learn_s(ensemble):
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(len(ensemble.means_))
    mixture.weights_ = np.exp(ensemble.log_weights_)
    mixture.means_, mixture.precisions_cholesky_ = ensemble.means_, ensemble.precisions_cholesky_
    points = np.random.RandomState(0).normal(size=(9, ensemble.means_.shape[1])).astype("f4")
    constant = 0.5 * points.shape[1] * np.log(2 * np.pi)
    expected = mixture.score_samples(points) + constant
    np.testing.assert_allclose(ensemble._log_density(points), expected, rtol=1e-4, atol=1e-3)


def test_score_is_minus_log_density_plus_the_height_of_one_sided_members(ensemble, digits):
    images = np.concatenate([digits.test[:20], 255 - digits.test[:20]])
    columns = ensemble.columns(images)
    members = np.stack([member.score(images) for member in ensemble._members], axis=1)
    # The eighth column, the distance of `pretext`'s features, is part of the density alone.
    np.testing.assert_allclose(columns[:, :7], members, rtol=1e-4)
    assert columns.shape == (40, 8)
    points = ensemble._normal_scores(tf.constant(columns, tf.float32)).numpy()
    height = 1.5 * points[:, 4:6].sum(axis=1) + 2 * points[:, 6]
    expected = height - ensemble._log_density(points).numpy()
    np.testing.assert_allclose(ensemble.score(images), expected, rtol=1e-3, atol=1e-2)


def test_without_one_sided_members_the_height_of_all_counts(digits):
    ensemble = Ensemble(components=1, pretext=False).fit(None, digits.train)
    members = np.stack([member.score(digits.test[:9]) for member in ensemble._members], axis=1)
    points = ensemble._normal_scores(tf.constant(members, tf.float32))
    expected = 1.5 * points.numpy().sum(axis=1) - ensemble._log_density(points).numpy()
    np.testing.assert_allclose(ensemble.score(digits.test[:9]), expected, rtol=1e-3, atol=1e-2)


def test_it_is_better_than_its_members_are_on_average(ensemble, digits):
    # This model's weights are random: half of the members know nothing, and the others must prevail.
    is_ood = np.repeat([False, True], 100)
    for images in (255 - digits.test[100:200], digits.test[100:200, ::-1]):
        pool = np.concatenate([digits.test[:100], images])
        members = [auroc(is_ood, member.score(pool)) for member in ensemble._members]
        assert auroc(is_ood, ensemble.score(pool)) > np.mean(members)


def test_a_member_that_is_fitted_already_is_taken_as_it_is(digits, monkeypatch):
    members = ["pixel_pca", ("pretext", {"steps": 2, "width": 4})]
    own = Ensemble(members=members, components=1).fit(None, digits.train)
    known, new = shuffled_halves(digits.train)
    assert len(known) + len(new) == len(digits.train)
    fitted = statistics.get("pretext", steps=2, width=4).fit(None, known)
    monkeypatch.setattr(
        "tfbnood.statistics.pretext.statistic.train_network", None
    )  # Training again would fail.
    taken = Ensemble(members=members, components=1).take(fitted).fit(None, digits.train)
    assert taken.member("pretext") is fitted
    for wrong in ("pretext", "bn_moments"):  # One is not fitted, and there may be two of the other.
        with pytest.raises(StatisticError, match=f"already fitted. Received: {wrong}"):
            Ensemble().take(statistics.get(wrong))
    np.testing.assert_array_equal(taken.score(digits.test[:9]), own.score(digits.test[:9]))


def test_networks_of_a_member_run_once_though_it_says_two_things(digits):
    ensemble = Ensemble(members=["pixel_pca", ("pretext", {"steps": 2, "width": 4})], components=1)
    ensemble.fit(None, digits.train)
    graph = tf.function(lambda images: ensemble.tensor_score(gather(None, "pixels", images)))
    operations = graph.get_concrete_function(tf.constant(digits.test[:2])).graph.get_operations()
    assert sum(one.type == "Conv2D" for one in operations) == 12  # two networks of six


@pytest.mark.parametrize("member", ["bn_delta", "typicality", "ensemble", "reconstruction"])
def test_members_must_be_of_single_images_in_tensorflow(member):
    with pytest.raises(StatisticError, match=f"members must be .*Received: '{member}'"):
        Ensemble(members=["log_prob", member])


def test_members_may_have_settings(digits):
    ensemble = Ensemble(members=["pixel_knn", ("pixel_pca", {"components": 5})], components=1)
    ensemble.fit(None, digits.train)
    assert ensemble._members[1].components == 5
    again = statistics.get("ensemble", **ensemble.get_config())
    again.set_state(None, ensemble.get_state())
    np.testing.assert_array_equal(again.score(digits.test[:9]), ensemble.score(digits.test[:9]))
    with pytest.raises(StatisticError, match="components must be at least 1"):
        Ensemble(components=0)


def edit_config(folder, edit):
    """Changes the settings in a saved detector as if version 0.1.0 had written them."""
    description = json.loads((folder / "detector.json").read_text())
    description.pop("content_sha256", None)
    edit(description["config"])
    (folder / "detector.json").write_text(json.dumps({**description, "format": 1}))


def test_whether_a_file_has_a_pretext_is_read_in_its_settings(digits, tmp_path):
    saved = Detector(None, Ensemble(components=1, pretext=False), reference=digits.train)
    saved.save(tmp_path / "saved")
    edit_config(tmp_path / "saved", lambda config: config.pop("pretext"))
    again = Detector.load(tmp_path / "saved")
    assert member_names(again.statistic) == ["pixel_pca", "pixel_knn"]
    np.testing.assert_array_equal(again.score(digits.test[:9]), saved.score(digits.test[:9]))
    assert again.statistic.get_config() == saved.statistic.get_config()
    # No array says otherwise: a file that claims a pretext must have one.
    edit_config(tmp_path / "saved", lambda config: config.update(pretext=True))
    with pytest.raises(SavedDetectorError, match="its statistic cannot be restored"):
        Detector.load(tmp_path / "saved")


def test_a_check_builds_nothing(ensemble, digits):
    members = list(ensemble._members)
    ensemble._check_model(PlainModel())
    assert ensemble._members == members
    fresh = Ensemble()
    fresh._check_model(None)
    assert not hasattr(fresh, "_members")


def test_a_state_is_of_members_that_are_there(digits):
    saved = Ensemble(members=["pixel_pca"], components=1).fit(None, digits.train)
    for key in ("1.mean_", "-1.mean_", "x.mean_", "0.0.mean_", "mean"):
        with pytest.raises(StatisticError, match=f"ensemble has no '{key}'"):
            Ensemble(members=["pixel_pca"]).set_state(None, {key: np.ones(2), **saved.get_state()})
    with pytest.raises(StatisticError, match="pixel_pca has no '_score'"):
        Ensemble(members=["pixel_pca"]).set_state(
            None, {"0._score": np.ones(2), **saved.get_state()}
        )


def test_reference_images_without_a_finite_likelihood_are_refused(digits):
    class Wild(PlainModel):
        def log_prob(self, images, training=False):
            return super().log_prob(images) / 0.0

    with pytest.raises(
        StatisticError, match=r"must have finite scores .*Received: 50 of 50 images"
    ):
        Ensemble(pretext=False).fit(Wild(), digits.train[:100])


def test_reads_what_was_saved_before_features_of_pretext_were_kept(digits):
    members = ["pixel_pca", ("pretext", {"steps": 2, "width": 4})]
    pretext = statistics.get("pretext", steps=2, width=4).fit(None, digits.train)
    del pretext.centres_, pretext.whitening_
    saved = Ensemble(members=members, components=1).take(pretext).fit(None, digits.train)
    again = statistics.get("ensemble", **saved.get_config())
    again.set_state(None, saved.get_state())
    assert len(again.values_) == 2
    np.testing.assert_array_equal(again.score(digits.test[:9]), saved.score(digits.test[:9]))
