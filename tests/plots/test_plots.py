"""Pictures: the numbers in their axes are those that were given, against NumPy and scikit-learn, not pixels."""

import doctest
import pickle
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

import tfbnood
from tfbnood import plots
from tfbnood.errors import DataError
from tfbnood.metrics import estimates
from tfbnood.plots import style

RANDOM = np.random.default_rng(0)
BITS = {
    "evaluation": {"digits": RANDOM.normal(3, 0.1, 300), "photos": RANDOM.normal(4, 0.3, 200)},
    "training": {"digits": RANDOM.normal(3, 0.1, 300), "photos": RANDOM.normal(5, 0.3, 200)},
}
IS_OOD = np.r_[np.zeros(80, int), np.ones(40, int)]
SCORES = {
    "good": RANDOM.normal(size=120) + 1.5 * IS_OOD,
    "ties": np.round(RANDOM.normal(size=120) + IS_OOD),
    "wrong": RANDOM.normal(size=120) - IS_OOD,
}
IMAGES = np.full((3, 4, 4, 1), 9, np.uint8)
CURVES = {"roc": plots.roc, "precision_recall": plots.precision_recall}


def lines_of(axes):
    return {line.get_label().split(":")[0]: line for line in axes.get_lines()}


def outlines_of(axes):
    """Heights and edges of labelled histograms by what is before the colon."""
    return {
        patch.get_label().split(":")[0]: patch.get_data()
        for patch in axes.patches
        if patch.get_label()
    }


def limits_of(band):
    """Low and high of a filled band at its places; matplotlib stores low forwards, then high backwards."""
    data = band.get_paths()[0].vertices
    places = np.unique(data[:, 0])
    rows = [data[data[:, 0] == place, 1] for place in places]
    return places, np.array([row.min() for row in rows]), np.array([row.max() for row in rows])


def legend_texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_likelihoods_count_every_image_in_common_bins():
    figure = plots.likelihoods(BITS)
    assert [axes.get_title() for axes in figure.axes] == ["evaluation mode", "training mode"]
    edges = []
    for axes, sets in zip(figure.axes, BITS.values(), strict=True):
        outlines = outlines_of(axes)
        assert {name: data.values.sum() for name, data in outlines.items()} == {
            "digits": 300,
            "photos": 200,
        }
        edges += [data.edges for data in outlines.values()]
        for name, data in outlines.items():
            inner = slice(1, -1)
            expected, _ = np.histogram(sets[name], data.edges)
            np.testing.assert_array_equal(data.values[inner], expected[inner])
    assert all(np.array_equal(one, edges[0]) for one in edges)
    assert figure.axes[0].get_ylabel() == "images per bin"
    assert f"photos: 200 images, mean {BITS['training']['photos'].mean():.2f}" in legend_texts(
        figure.axes[1]
    )


def test_far_tails_do_not_stretch_the_axis_and_are_said_on_it():
    bits = np.r_[np.linspace(2, 3, 997), 50, -60, 70]
    (axes,) = plots.likelihoods({"evaluation": {"digits": bits}}, bins=10).axes
    data = outlines_of(axes)["digits"]
    low, high = np.percentile(bits, (0.5, 99.5))
    np.testing.assert_allclose(data.edges, np.linspace(low, high, 11))
    beyond = ((bits < low) | (bits > high)).sum()
    assert axes.get_xlabel() == f"bits per dimension (outermost bins: also {beyond} beyond)"
    assert data.values.sum() == 1000
    (axes,) = plots.likelihoods({"evaluation": [2.0, 2.0, 2.0]}).axes
    assert axes.get_xlabel() == "bits per dimension"
    assert outlines_of(axes)["all"].values.sum() == 3


def test_a_set_has_one_colour_in_both_modes_and_no_other_set_has_it():
    bits = {"evaluation": BITS["evaluation"], "training": {"photos": [5.0], "digits": [3.0]}}
    looks = {
        (patch.get_label().split(":")[0], patch.get_edgecolor(), patch.get_linestyle())
        for axes in plots.likelihoods(bits).axes
        for patch in axes.patches
        if patch.get_label()
    }
    assert len(looks) == 2
    assert len({colour for _, colour, _ in looks}) == len({dashes for *_, dashes in looks}) == 2


def test_forty_curves_can_be_told_apart_and_none_looks_like_chance():
    looks = {tuple(style.line(index).values()) for index in range(40)}
    assert len(looks) == 40
    assert len({style.line(index)["color"] for index in range(8)}) == 8
    assert all(dashes != style.CHANCE["linestyle"] for _, dashes in looks)


def test_bits_against_share_are_curves_and_bands_of_what_was_given():
    shares, bits = [0.0, 0.5, 1.0], {"digits": [2.0, 2.1, 2.2], "photos": [3.0, 4.0, 6.0]}
    bands = {"photos": ([2.5, 3.5, 5.0], [3.5, 4.5, 7.0])}
    (axes,) = plots.bits_against_share(shares, bits, bands=bands, title="mine").axes
    for name, line in lines_of(axes).items():
        np.testing.assert_array_equal(line.get_data(), [shares, bits[name]])
    (band,) = axes.collections
    np.testing.assert_array_equal(limits_of(band), [shares, *bands["photos"]])
    np.testing.assert_array_equal(band.get_facecolor()[0, :3], to_rgba(style.line(1)["color"])[:3])
    assert axes.get_title() == "mine"
    assert axes.get_xlabel() == "share r of test images in the batch"
    assert axes.get_ylabel() == "mean bits per dimension"
    assert len({line.get_marker() for line in axes.get_lines()}) == 2


def test_roc_curves_are_those_of_scikit_learn():
    (axes,) = plots.roc(IS_OOD, SCORES).axes
    lines = lines_of(axes)
    for name, scores in SCORES.items():
        false_alarms, found, _ = roc_curve(IS_OOD, scores, drop_intermediate=False)
        np.testing.assert_allclose(lines[name].get_data(), [false_alarms, found])
        assert f"AUROC {roc_auc_score(IS_OOD, scores):.3f} ±" in lines[name].get_label()
    np.testing.assert_array_equal(lines["chance"].get_data(), [[0, 1], [0, 1]])
    assert len({line.get_color() for line in lines.values()}) == 4
    assert legend_texts(axes) == [line.get_label() for line in lines.values()]
    assert "share of inliers" in axes.get_xlabel()
    assert "share of outliers" in axes.get_ylabel()


def test_precision_recall_curves_are_those_of_scikit_learn_and_chance_is_the_share_of_outliers():
    (axes,) = plots.precision_recall(IS_OOD.astype(bool), SCORES).axes
    lines = lines_of(axes)
    for name, scores in SCORES.items():
        precision, recall, _ = precision_recall_curve(IS_OOD, scores)
        np.testing.assert_allclose(lines[name].get_data(), [recall[::-1], precision[::-1]])
        assert f"AP {average_precision_score(IS_OOD, scores):.3f} ±" in lines[name].get_label()
        # Drawn as the steps of which average precision is the area.
        assert lines[name].get_drawstyle() == "steps-pre"
    np.testing.assert_allclose(lines["chance"].get_ydata(), 1 / 3)
    assert lines["chance"].get_label() == "chance: 0.333"
    assert "recall" in axes.get_xlabel()
    assert "precision" in axes.get_ylabel()


def height_at(kind, scores, place):
    """The height of a curve at a place, one threshold at a time."""
    points = []
    for threshold in np.r_[np.inf, np.unique(scores)[::-1]]:
        alarm = scores >= threshold
        found = alarm[IS_OOD == 1].mean()
        precision = IS_OOD[alarm].mean() if alarm.any() else 1.0
        points.append((alarm[IS_OOD == 0].mean(), found) if kind == "roc" else (found, precision))
    if kind == "precision_recall":
        return next(height for recall, height in points if recall > place - 1e-9)
    before = max(point for point in points if point[0] <= place)
    after = min((point for point in points if point[0] > place), default=before)
    if before[0] == after[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (place - before[0]) / (after[0] - before[0])


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("name", ["good", "ties"])
def test_a_band_holds_its_curve(kind, name):
    (axes,) = CURVES[kind](IS_OOD, SCORES[name]).axes
    places, low, high = limits_of(axes.collections[0])
    assert len(places) == 200
    for place, below, above in zip(places, low, high, strict=True):
        assert below - 1e-9 <= height_at(kind, SCORES[name], place) <= above + 1e-9
    assert 0.05 < (high - low)[places > 0.3].max() < 0.5
    assert low.min() >= 0
    assert high.max() <= 1


@pytest.mark.parametrize("kind", CURVES)
def test_a_band_is_that_of_a_bootstrap_by_hand(kind):
    scores = SCORES["good"]
    (axes,) = CURVES[kind](IS_OOD, scores).axes
    places, low, high = limits_of(axes.collections[0])
    middle = np.abs(places - 0.7).argmin()
    random = np.random.RandomState(1)
    found = []
    for _ in range(200):
        inliers, outliers = random.choice(scores[:80], 80), random.choice(scores[80:], 40)
        found.append(height_at(kind, np.r_[inliers, outliers], places[middle]))
    expected = np.percentile(found, (2.5, 97.5))
    np.testing.assert_allclose([low[middle], high[middle]], expected, atol=0.06)


@pytest.mark.parametrize("kind", CURVES)
def test_bands_depend_on_the_seed_alone(kind):
    one, again, other = (
        limits_of(CURVES[kind](IS_OOD, SCORES["good"], seed=seed).axes[0].collections[0])
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_the_legend_has_the_interval_of_metrics():
    (axes,) = plots.roc(IS_OOD, SCORES["good"], seed=5).axes
    expected = estimates(IS_OOD, SCORES["good"], seed=5)["auroc"]
    assert axes.get_lines()[0].get_label() == f"scores: AUROC {expected}"


def test_conformal_p_values_of_in_distribution_images_fill_every_bin_alike():
    (axes,) = plots.p_values(np.arange(1, 101) / 100).axes
    np.testing.assert_allclose(outlines_of(axes)["all"].values, 0.05, rtol=1e-12)
    (axes,) = plots.p_values([0.0, 0.05, 0.1], bins=20).axes
    np.testing.assert_allclose(outlines_of(axes)["all"].values[:3], [2 / 3, 1 / 3, 0])


def test_p_values_are_shares_of_images_against_the_uniform_level():
    values = {"digits": RANDOM.uniform(size=41), "photos": np.array([0.01, 0.02, 0.06, 1.0])}
    (axes,) = plots.p_values(values, bins=10).axes
    outlines = outlines_of(axes)
    for name, data in outlines.items():
        expected, edges = np.histogram(values[name], 10, (0, 1))
        np.testing.assert_allclose(data.values, expected / len(values[name]))
        np.testing.assert_allclose(data.edges, edges)
        assert data.values.sum() == pytest.approx(1)
    (level,) = axes.get_lines()
    assert list(level.get_ydata()) == [0.1, 0.1]
    assert legend_texts(axes) == ["digits: 41 images", "photos: 4 images", "uniform: 0.1 per bin"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("p-value", "share of images")
    (axes,) = plots.p_values([0.5, 0.7]).axes
    assert list(axes.get_lines()[0].get_ydata()) == [0.05, 0.05]


@pytest.mark.parametrize("channels", [1, 3])
def test_extremes_are_the_images_in_the_order_of_their_scores(channels):
    images = RANDOM.integers(0, 256, (7, 4, 6, channels)).astype(np.uint8)
    scores = np.array([3.0, -1.0, 2.0, 9.0, 0.5, 2.5, 1.0])
    figure = plots.extremes(images, scores, count=3, names=list("abcdefg"))
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    expected = [3, 0, 5, 1, 4, 6]  # most first, then least first
    for image, index in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(image, images[index].squeeze())
    assert [axes.get_title() for axes in figure.axes] == [
        f"{'abcdefg'[index]}\n{scores[index]:.3f}" for index in expected
    ]
    assert figure.axes[0].images[0].get_clim() == (0, 255)
    assert figure.axes[0].images[0].get_cmap().name == "gray"
    assert [figure.axes[row].get_ylabel() for row in (0, 3)] == ["highest scores", "lowest scores"]


def test_extremes_of_few_images_are_all_of_them(digits):
    figure = plots.extremes(digits.test[:3], [1.0, 1.0, 2.0])
    assert [axes.get_title() for axes in figure.axes] == [
        f"{score}.000" for score in (2, 1, 1, 1, 1, 2)
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gallery_has_the_images_row_by_row_and_frames_around_flagged_ones(channels):
    images = RANDOM.integers(0, 256, (5, 4, 6, channels)).astype(np.uint8)
    flagged = np.array([False, True, False, False, True])
    (axes,) = plots.gallery(images, flagged, names=list("abcde"), columns=2).axes
    for image, drawn in zip(images, axes.images, strict=True):
        np.testing.assert_array_equal(np.asarray(drawn.get_array()), image.squeeze())
        assert drawn.get_clim() == (0, 255)
    left, right, bottom, top = np.transpose([drawn.get_extent() for drawn in axes.images])
    np.testing.assert_allclose((right - left) / (top - bottom), 6 / 4)
    assert [len(set(left[rows])) for rows in ([0, 2, 4], [1, 3])] == [1, 1]
    assert top[0] == top[1] > top[2] == top[3] > top[4]
    frames = [frame.get_xy() for frame in axes.patches]
    np.testing.assert_allclose(frames, np.transpose([left, bottom])[flagged])
    assert [text.get_text() for text in axes.texts] == list("abcde")
    assert list(plots.gallery(images).axes[0].patches) == []


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([154.84, 0.1742, -1.873], ["154.8", "0.2", "-1.9"]),
        ([0.0123, 0.001, 0.0], ["0.01230", "0.00100", "0.00000"]),
        ([123456.0, 1.0, 0.4], ["123456", "1", "0"]),
        ([2e7, 1.0, 0.0], ["2e+07", "1", "0"]),
        ([0.0, 0.0, 0.0], ["0", "0", "0"]),
    ],
    ids=str,
)
def test_scores_beside_each_other_have_as_many_decimals(scores, said):
    titles = [axes.get_title() for axes in plots.extremes(IMAGES, scores).axes]
    assert sorted(set(titles)) == sorted(set(said))


def test_contamination_is_the_plot_of_the_evaluation(digits):
    sets = {"inverted": 255 - digits.test}
    result = tfbnood.evaluate(
        None, digits.test, sets, statistics="pixel_pca", contamination=(1.0, 0.2)
    )
    (axes,) = plots.contamination(result).axes
    shares, values = lines_of(axes)["pixel_pca"].get_data()
    assert list(values) == [result.auroc("inverted", "pixel_pca", share) for share in shares]
    with pytest.raises(DataError, match=r"evaluation must be what .*Received: dict"):
        plots.contamination({})


def test_deltas_are_medians_and_the_middle_of_every_kind_against_the_share():
    deltas = {
        1.0: {"digits": RANDOM.exponential(1, 90), "photos": RANDOM.exponential(50, 90)},
        0.2: {"digits": RANDOM.exponential(5, 90), "photos": RANDOM.exponential(9, 30)},
        0.05: {"digits": RANDOM.exponential(2, 90)},
    }
    (axes,) = plots.delta_against_contamination(deltas).axes
    for name, line, band in zip(
        ("digits", "photos"), axes.get_lines(), axes.collections, strict=True
    ):
        shares = [share for share in (0.05, 0.2, 1.0) if name in deltas[share]]
        expected = [np.quantile(deltas[share][name], (0.1, 0.5, 0.9)) for share in shares]
        low, middle, high = np.transpose(expected)
        assert line.get_label() == name
        np.testing.assert_allclose(line.get_data(), [shares, middle])
        np.testing.assert_allclose(limits_of(band), [shares, low, high])
    assert axes.get_yscale() == axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.05", "0.2", "1"]
    assert axes.get_xlabel() == "share of outliers in the pool"
    assert axes.get_ylabel() == "Δ in nats: median, middle 80 %"
    assert axes.get_title() == "Δ against contamination"
    assert legend_texts(axes) == ["digits", "photos"]


def test_pyplot_is_not_needed_and_a_notebook_has_one_picture():
    code = (
        "import sys, tfbnood\n"
        "figure = tfbnood.plots.p_values([0.2, 0.7])\n"
        "assert figure._repr_png_().startswith(b'\\x89PNG')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_figure_can_be_sent_to_another_process():
    figure = pickle.loads(pickle.dumps(plots.p_values([0.2, 0.7])))
    assert figure.axes[0].get_xlabel() == "p-value"
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: plots.likelihoods({}), "bits must be a dict of at least one mode. Received: {}"),
        (lambda: plots.likelihoods({"a": {}}), r"bits\['a'\] must hold at least one .*empty dict"),
        (lambda: plots.likelihoods({"a": {"b": [np.nan]}}), r"bits\['a'\]\['b'\] must be finite"),
        (lambda: plots.likelihoods(BITS, bins=0), "bins must be at least 1. Received: bins=0"),
        (lambda: plots.bits_against_share([0.5], {"a": [1, 2]}), r"as many as shares, 1.* 2"),
        (lambda: plots.bits_against_share([1.5], {"a": [1]}), r"shares must lie in \[0, 1\]"),
        (
            lambda: plots.bits_against_share([1], {"a": [1]}, bands={"b": ([1], [1])}),
            r"bands must have only sets in bits, \['a'\]. Received: \['b'\]",
        ),
        (
            lambda: plots.bits_against_share([1], {"a": [1]}, bands={"a": ([1], [1, 2])}),
            r"bands\['a'\] must be as many",
        ),
        (lambda: plots.roc([0, 1], [0.5]), "one length"),
        (lambda: plots.roc([0, 0], [0.5, 0.5]), "both 0"),
        (lambda: plots.roc([0, 1], {"a": [0.5, np.inf]}), r"scores\['a'\] must be finite"),
        (lambda: plots.precision_recall([0, 1], {}), "scores must hold at least one"),
        (lambda: plots.delta_against_contamination({}), "a dict of at least one share"),
        (
            lambda: plots.delta_against_contamination({0.0: {"a": [1]}}),
            r"shares must lie in \(0, 1\]. Received: \[0.0\]",
        ),
        (
            lambda: plots.delta_against_contamination({1: {"a": [np.nan]}}),
            r"deltas\[1\]\['a'\] must be finite",
        ),
        (lambda: plots.p_values([0.1, 1.2]), r"in \[0, 1\]. Received: values from 0.1 to 1.2"),
        (lambda: plots.p_values([]), r"at least one number. Received: shape=\(0,\)"),
        (lambda: plots.p_values(["x"]), "vector of numbers. Received: list"),
        (lambda: plots.extremes(IMAGES, [1.0]), "scores must be as many as images, 3"),
        (lambda: plots.extremes(IMAGES, [1, 2, 3], names="ab"), "names must be as many"),
        (lambda: plots.extremes(IMAGES, [1, 2, 3], count=0), "count=0"),
        (lambda: plots.extremes(IMAGES[0], [1, 2, 3]), "four axes"),
        (lambda: plots.gallery(IMAGES, [True]), "flagged must be as many as images, 3"),
        (lambda: plots.gallery(IMAGES, [0, 1, 2]), "flagged must be booleans. Received: int64"),
        (lambda: plots.gallery(IMAGES, names="ab"), "names must be as many"),
        (lambda: plots.gallery(IMAGES, columns=0), "columns=0"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(draw, said):
    with pytest.raises(DataError, match=said) as raised:
        draw()
    assert "\n" not in str(raised.value)


def test_the_examples_run():
    for module in {getattr(plots, name).__module__ for name in plots.__all__}:
        result = doctest.testmod(sys.modules[module], extraglobs={"tfbnood": tfbnood})
        assert result.attempted > 0
        assert result.failed == 0


def test_every_plot_is_public_and_documented():
    assert tfbnood.plots is plots
    for name in plots.__all__:
        text = getattr(plots, name).__doc__
        assert all(part in text for part in ("Args:", "Returns:", "Example:", ">>>")), name
