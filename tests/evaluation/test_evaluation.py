import dataclasses
import json
import math

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import tfbnood
from tfbnood import data, statistics
from tfbnood.errors import DataError, StatisticError
from tfbnood.evaluation.run import Evaluation, evaluate
from tfbnood.scoring.evidence import gather

mpl.use("Agg")

DIGITS = data.load("digits")
INLIERS = DIGITS.test
OUTLIERS = {
    "rotated": data.rotate(INLIERS, seed=0)[:150],
    "photos": data.photo_patches(200, (8, 8, 1), seed=0),
}


class Brightness(statistics.Statistic):
    """Mean grey level; counts the images it has scored."""

    name = "test_brightness"
    scope = "image"
    needs_model = False

    def __init__(self, *, calls=None):
        self.calls = [] if calls is None else calls

    def _fit(self, model, reference):
        self.reference_ = reference

    def _score(self, images):
        self.calls.append(images)
        return images.mean(axis=(1, 2, 3))

    def get_config(self):
        return {}


class PoolBrightness(Brightness):
    """Mean grey level above that of the pool; records the pools."""

    name = "test_pool_brightness"
    scope = "batch"

    def _score(self, images):
        brightness = super()._score(images)
        return np.abs(brightness - brightness.mean())


@pytest.fixture(scope="module")
def model():
    model = tfbnood.models.VAE((8, 8, 1), channels=4, latents=4, bottleneck=8, head=8)
    model.fit(DIGITS.train[:512], epochs=1, verbose=0)
    return model


@pytest.fixture(scope="module")
def detector(model):
    return tfbnood.Detector(model, statistic="log_prob", reference=DIGITS.train)


@pytest.fixture(scope="module")
def mixed():
    """Two cheap statistics, four contaminations; no model."""
    return evaluate(
        None,
        INLIERS,
        OUTLIERS,
        statistics=[Brightness(), PoolBrightness()],
        contamination=(1.0, 0.5, 0.2, 0.05),
        reference=DIGITS.train,
    )


def _metrics(inliers, outliers):
    is_ood = np.r_[np.zeros(len(inliers)), np.ones(len(outliers))]
    scores = np.r_[inliers, outliers]
    return roc_auc_score(is_ood, scores), average_precision_score(is_ood, scores)


def test_pure_protocol_numbers_are_those_of_scikit_learn(mixed):
    inliers = INLIERS.mean(axis=(1, 2, 3))
    for name, images in OUTLIERS.items():
        row = mixed.row(name, "test_brightness")
        area, precision = _metrics(inliers, images.mean(axis=(1, 2, 3)))
        assert row.auroc.value == pytest.approx(area, abs=1e-12)
        assert row.average_precision.value == pytest.approx(precision, abs=1e-12)
        assert (row.inliers, row.outliers) == (397, len(images))
        assert row.prevalence == len(images) / (397 + len(images))


def test_contaminated_numbers_are_those_of_the_pool_that_mix_draws(mixed):
    for name, images in OUTLIERS.items():
        for share in (0.5, 0.2, 0.05):
            pool, is_ood = data.mix(INLIERS, images, share, seed=0)
            brightness = pool.mean(axis=(1, 2, 3))
            deviation = np.abs(brightness - brightness.mean())
            for label, scores in (
                ("test_brightness", brightness),
                ("test_pool_brightness", deviation),
            ):
                row = mixed.row(name, label, share)
                assert row.auroc.value == pytest.approx(roc_auc_score(is_ood, scores), abs=1e-12)
                assert row.prevalence == pytest.approx(share, abs=0.01)
                assert (row.inliers, row.outliers) == ((~is_ood).sum(), is_ood.sum())


def test_a_batch_statistic_sees_each_pool_as_a_whole_and_an_image_statistic_each_set_once():
    alone, together = Brightness(), PoolBrightness()
    evaluate(
        None,
        INLIERS,
        OUTLIERS,
        statistics=[alone, together],
        contamination=(1.0, 0.2),
        reference=DIGITS.train,
        seed=3,
    )
    expected = [INLIERS, *OUTLIERS.values()]
    assert len(alone.calls) == 3
    for scored, images in zip(alone.calls, expected, strict=True):
        np.testing.assert_array_equal(scored, images)
    expected += [data.mix(INLIERS, images, 0.2, seed=3)[0] for images in OUTLIERS.values()]
    assert len(together.calls) == 5
    for scored, images in zip(together.calls, expected, strict=True):
        np.testing.assert_array_equal(scored, images)


def test_statistics_of_single_images_share_one_pass_of_the_model(model, monkeypatch):
    gathered = []

    def counting(model, need, images):
        gathered.append(need)
        return gather(model, need, images)

    monkeypatch.setattr("tfbnood.scoring.compiled.gather", counting)
    names = ["log_prob", "complexity", "t_perm", "bn_moments", "pixel_pca"]
    fitted = {name: statistics.get(name).fit(model, DIGITS.train) for name in names}
    expected = {name: fitted[name].score(OUTLIERS["photos"]) for name in names}
    log_prob = statistics.get("log_prob").fit(model, DIGITS.train)  # of nobody's pass but its own
    gathered.clear()
    options = {"statistics": names, "reference": DIGITS.train}
    found = evaluate(model, INLIERS[:64], {"photos": OUTLIERS["photos"]}, **options)
    # t_perm is fitted to likelihoods of the reference; then one function is traced for all five and both sets.
    assert gathered == ["log_prob", "moments"]
    for name in names:
        own = fitted[name].score(INLIERS[:64])
        is_ood = np.arange(64 + 200) >= 64
        auroc = roc_auc_score(is_ood, np.concatenate([own, expected[name]]))
        assert found.auroc("photos", name) == pytest.approx(auroc, abs=2e-3)
    gathered.clear()
    evaluate(model, INLIERS[:64], {"photos": OUTLIERS["photos"][:64]}, statistics=log_prob)
    assert gathered == ["log_prob"]


def test_without_the_pure_protocol_a_batch_statistic_scores_mixed_pools_only():
    together = PoolBrightness()
    evaluate(
        None,
        INLIERS,
        OUTLIERS,
        statistics=together,
        contamination=0.1,
        reference=DIGITS.train,
    )
    assert [len(pool) for pool in together.calls] == [
        len(data.mix(INLIERS, images, 0.1, seed=0)[0]) for images in OUTLIERS.values()
    ]
    assert not hasattr(together, "image_shape_")  # The caller's object stays unfitted.


def test_a_detector_is_evaluated_with_its_own_statistic(detector):
    result = evaluate(detector, INLIERS, OUTLIERS)
    expected, _ = _metrics(detector.score(INLIERS), detector.score(OUTLIERS["photos"]))
    assert list(result.statistics) == ["log_prob"]
    # Another function: of the 79,400 pairs a few may be rounded to the other order.
    assert result.auroc("photos", "log_prob") == pytest.approx(expected, abs=1e-4)
    assert "already fitted" in result.reference


def test_other_statistics_are_fitted_to_the_detectors_reference(detector):
    other = Brightness()
    result = evaluate(detector, INLIERS, OUTLIERS, statistics=["log_prob", other, "pixel_pca"])
    pca = statistics.get("pixel_pca").fit(None, DIGITS.train)
    expected, _ = _metrics(pca.score(INLIERS), pca.score(OUTLIERS["rotated"]))
    assert result.auroc("rotated", "pixel_pca") == pytest.approx(expected, abs=1e-4)
    assert result.reference == "the detector's (1100 images)"
    assert result.row("photos", "log_prob").inliers == 397


def test_a_bare_model_gives_half_of_the_inliers_to_the_reference(model):
    result = evaluate(model, INLIERS, {"photos": OUTLIERS["photos"]}, n=64)
    assert list(result.statistics) == ["bn_delta", "log_prob"]
    assert "half of the inliers, left out of the test (198 images)" in result.reference
    assert [bits.images for bits in result.bits_per_dim] == [64, 64]
    assert result == evaluate(model, INLIERS, {"photos": OUTLIERS["photos"]}, n=64)


def test_a_loaded_detector_keeps_its_own_statistic_and_fits_others_to_half_of_the_inliers(tmp_path):
    made = tfbnood.Detector(None, "pixel_knn", reference=DIGITS.train, neighbours=3)
    made.save(tmp_path / "detector")
    loaded = tfbnood.Detector.load(tmp_path / "detector")
    result = evaluate(loaded, INLIERS, OUTLIERS, statistics=["pixel_knn", "pixel_pca"])
    assert result.statistics["pixel_knn"]["config"]["neighbours"] == 3
    assert "half of the inliers" in result.reference
    assert {row.inliers for row in result.rows} == {199}
    assert "half" not in evaluate(loaded, INLIERS, OUTLIERS).reference


def test_half_of_the_inliers_as_reference_leaves_the_other_half_for_the_test():
    alone = Brightness(calls=(calls := []))
    seen = {}
    alone._fit = lambda model, reference: seen.update(reference=reference)
    evaluate(None, INLIERS, OUTLIERS, statistics=alone, seed=1)
    split = np.concatenate([seen["reference"], calls[0]]).reshape(397, -1)
    assert len(calls[0]) == 199
    np.testing.assert_array_equal(
        split[np.lexsort(split.T)],
        (flat := INLIERS.reshape(397, -1))[np.lexsort(flat.T)],
    )


def test_bits_per_dim_in_both_modes_are_those_of_the_model(detector, model):
    inliers, photos = INLIERS[:128], OUTLIERS["photos"][:64]
    result = evaluate(detector, inliers, {"photos": photos}, seed=2)
    first, second = result.bits_per_dim
    assert (first.set, first.images, second.set, second.images) == ("inliers", 128, "photos", 64)
    order = np.random.RandomState(2).permutation(128)
    for bits, images in ((first, inliers[order]), (second, photos)):
        nats = [
            np.concatenate(
                [model.log_prob(images[i : i + 64], mode) for i in range(0, len(images), 64)]
            )
            for mode in (False, True)
        ]
        low, high = (-each.mean() / (64 * math.log(2)) for each in nats)
        np.testing.assert_allclose([bits.evaluation, bits.training], [low, high], rtol=1e-5)
        assert bits.difference == bits.training - bits.evaluation
        assert abs(bits.difference) > 1e-4  # the modes are two


def test_evaluation_leaves_every_variable_bit_identical(detector, model):
    before = [variable.numpy() for variable in model.variables]
    evaluate(detector, INLIERS[:64], {"photos": OUTLIERS["photos"][:64]})
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_n_takes_random_images_by_seed():
    ramp = np.repeat(np.arange(2, 202, dtype=np.uint8), 64).reshape(200, 8, 8, 1)
    taken = []
    for seed in (0, 0, 1):
        alone = Brightness()
        evaluate(None, ramp, {"same": ramp}, statistics=alone, reference=ramp, n=20, seed=seed)
        taken.append(alone.calls[0][:, 0, 0, 0].tolist())
    assert taken[0] == taken[1] != taken[2]
    assert len(set(taken[0])) == 20
    assert max(taken[0]) > 100


def test_a_stream_has_the_numbers_of_the_array(detector):
    photos = OUTLIERS["photos"]
    streams = evaluate(detector, iter(INLIERS), {"photos": (one for one in photos)}, seed=3)
    assert streams.rows == evaluate(detector, INLIERS, {"photos": photos}, seed=3).rows


def test_a_long_stream_is_sampled_at_random_and_never_held():
    random, alive, most = np.random.RandomState(0), [], []

    class Counted(np.ndarray):
        def __del__(self):
            alive.pop()

    def images():
        for _ in range(3000):
            alive.append(1)
            most.append(len(alive))
            yield random.randint(2, 256, (8, 8, 1)).astype(np.uint8).view(Counted)

    settings = {"statistics": Brightness(), "reference": INLIERS, "n": 40}
    (row,) = evaluate(None, images(), {"inverted": 255 - INLIERS}, **settings).rows
    assert (row.inliers, row.outliers) == (40, 40)
    assert max(most) < 300  # three chunks and what the collector has not met yet


def test_two_settings_of_one_statistic_have_two_labels():
    five, two = (statistics.get("pixel_knn", neighbours=count) for count in (5, 2))
    result = evaluate(None, INLIERS, OUTLIERS, statistics=[five, two], reference=DIGITS.train)
    assert list(result.statistics) == ["pixel_knn(neighbours=5)", "pixel_knn(neighbours=2)"]
    with pytest.raises(StatisticError, match="must differ"):
        evaluate(None, INLIERS, OUTLIERS, statistics=["pixel_knn"] * 2, reference=INLIERS)


def test_print_shows_both_tables_and_what_they_rest_on(mixed, detector):
    text = str(mixed)
    lines = text.splitlines()
    assert lines[0].split() == ["AUROC", "contamination", "test_brightness", "test_pool_brightness"]
    row = mixed.row("photos", "test_brightness", 0.05).auroc
    assert lines[8].split()[:4] == ["photos", "0.05", f"{row.value:.3f}", f"±{row.half_width:.3f}"]
    assert len({len(line) for line in lines[:9]}) == 1  # aligned
    assert "seed 0; reference: the reference argument (1100 images)" in lines[-1]
    assert "test_pool_brightness: scores depend on the pool" in lines[-1]
    assert "bits per dim" not in text  # there is no model
    assert "bits per dim  images  evaluation  training  difference" in str(
        evaluate(detector, INLIERS, OUTLIERS, n=10)
    )


def test_json_and_markdown_come_back(mixed, tmp_path):
    mixed.save(tmp_path / "all")
    content = json.loads((tmp_path / "all" / "evaluation.json").read_text())
    assert content == mixed.to_dict()
    assert content["provenance"]["versions"]["tfbnood"] == tfbnood.__version__
    assert content["provenance"]["machine"]["cores"] >= 1
    assert content["statistics"]["test_brightness"]["scope"] == "image"
    found = {
        (row["set"], row["statistic"], row["contamination"]): row["auroc"]["value"]
        for row in content["rows"]
    }
    assert found == {
        (row.set, row.statistic, row.contamination): row.auroc.value for row in mixed.rows
    }
    lines = (tmp_path / "all" / "evaluation.md").read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| photos | 0.2 |")]
    row = mixed.row("photos", "test_brightness", 0.2)
    assert cells[0][2] == str(row.auroc)
    assert cells[1][3].startswith(f"{row.auroc.value:.3f} [{row.auroc.low:.3f}, ")
    assert cells[1][6:] == [f"{row.prevalence:.3f}", str(row.inliers), str(row.outliers)]
    assert (tmp_path / "all" / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "all").iterdir()} == {
        "evaluation.json",
        "evaluation.md",
        "evaluation.png",
    }


def test_a_name_with_a_bar_does_not_break_the_markdown_table():
    result = evaluate(None, INLIERS, {"a|b": INLIERS}, statistics=Brightness(), n=20)
    assert "| a\\|b | 1 |" in result.to_markdown()


def test_the_plot_of_several_contaminations_has_a_panel_a_set_and_a_line_a_statistic(mixed):
    figure = mixed.plot()
    assert [axes.get_title() for axes in figure.axes] == list(OUTLIERS)
    for axes in figure.axes:
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == {"test_brightness", "test_pool_brightness", "chance"}
        assert list(lines["chance"].get_ydata()) == [0.5, 0.5]
        for label in mixed.statistics:
            shares, values = lines[label].get_data()
            assert list(shares) == [0.05, 0.2, 0.5, 1.0]
            assert list(values) == [mixed.auroc(axes.get_title(), label, c) for c in shares]
        assert "share of outliers" in axes.get_xlabel()
    assert figure.axes[0].get_ylabel() == "AUROC"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*mixed.statistics, "chance"]


@pytest.mark.parametrize(
    ("sets", "statistics", "columns"), [(1, 5, 2), (2, 2, 3), (3, 4, 5), (3, 5, 3)]
)
def test_lines_of_the_legend_are_of_one_length(mixed, sets, statistics, columns):
    names = list("abcde")[:statistics]
    rows = tuple(
        dataclasses.replace(mixed.rows[0], set=str(index), statistic=name, contamination=share)
        for index in range(sets)
        for name in names
        for share in (0.2, 1.0)
    )
    labels = dict.fromkeys(names, next(iter(mixed.statistics.values())))
    figure = dataclasses.replace(mixed, rows=rows, statistics=labels).plot()
    assert figure.legends[0]._ncols == columns


def test_the_plot_of_one_contamination_has_a_bar_a_set_and_statistic(tmp_path):
    both = [Brightness(), PoolBrightness()]
    result = evaluate(None, INLIERS, OUTLIERS, statistics=both, reference=DIGITS.train)
    (axes,) = result.plot().axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(OUTLIERS)
    assert [bar.get_height() for bar in axes.patches] == [
        result.auroc(name, label) for label in result.statistics for name in OUTLIERS
    ]
    result.save(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("outliers", "settings", "said"),
    [
        (INLIERS, {}, "outliers must be a dict.*Received: ndarray"),
        ({}, {}, "Received: an empty dict"),
        ({"inliers": INLIERS}, {}, "other than \"inliers\". Received: 'inliers'"),
        ({"x": INLIERS[:0]}, {}, r"outliers\['x'\] must hold at least one image"),
        ({"x": np.zeros((3, 28, 28, 1))}, {}, r"outliers\['x'\] must have .*\(8, 8, 1\)"),
        (OUTLIERS, {"contamination": (1.0, 0.0)}, r"contamination must lie in \(0, 1\].*0\.0"),
        (OUTLIERS, {"contamination": 1.5}, "Received: 1.5"),
        (OUTLIERS, {"contamination": ()}, "at least one share"),
        ({"x": INLIERS[:1]}, {"contamination": 0.001}, "enough for one image"),
        (OUTLIERS, {"n": 0}, "n must be an integer of at least 1. Received: n=0"),
        (OUTLIERS, {"seed": None}, "seed=None"),
        (
            OUTLIERS,
            {"statistics": "entropy"},
            "statistic must be auto or one of .* Received: 'entropy'",
        ),
        (OUTLIERS, {"statistics": ()}, "at least one"),
        (OUTLIERS, {"statistics": ["log_prob", "waic"]}, "at least two independently"),
        (OUTLIERS, {"reference": INLIERS}, "reference must be left out"),
    ],
)
def test_what_cannot_be_evaluated_is_said(detector, outliers, settings, said):
    with pytest.raises((DataError, StatisticError), match=said):
        evaluate(detector, INLIERS, outliers, **settings)


def test_a_statistic_that_does_not_go_with_the_model_is_not_dropped():
    flow = tfbnood.models.RealNVP((8, 8, 1), channels=4, blocks=1)
    with pytest.raises(StatisticError, match="reconstruct"):
        evaluate(flow, INLIERS, OUTLIERS, statistics=["log_prob", "reconstruction"])


def test_inliers_of_another_shape_and_unknown_lookups_are_said(detector, mixed, tmp_path):
    with pytest.raises(DataError, match="inliers must have"):
        evaluate(detector, np.zeros((4, 28, 28, 1)), OUTLIERS)
    with pytest.raises(DataError, match=r"Received: \('mnist', 'test_brightness', 1.0\)"):
        mixed.auroc("mnist", "test_brightness")
    with pytest.raises(DataError, match=r"\.json, \.md or \.png.*result\.pdf"):
        mixed.save(tmp_path / "result.pdf")


def test_evaluate_is_public():
    assert tfbnood.evaluate is evaluate
    assert Evaluation.__module__.startswith("tfbnood.")
