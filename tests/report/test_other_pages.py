"""The pages about an evaluation and about a detector."""

import re

import numpy as np
import pytest

from tfbnood.errors import DataError
from tfbnood.evaluation.result import Evaluation, Row
from tfbnood.metrics import auroc, estimates
from tfbnood.report import RocCurve, detector_page, evaluation_page, possible_rates
from tfbnood.report.charts import histogram_svg, roc_svg

SIZES = ("desktop", "phone")


@pytest.fixture(scope="module")
def curves():
    random = np.random.default_rng(2)
    is_ood = np.repeat([0, 1], (120, 400))
    return [
        RocCurve(name, statistic, is_ood, random.normal(shift * is_ood))
        for name, statistic, shift in [
            ("flowers <b>", "ensemble", 2.0),
            ("flowers <b>", "log_prob", -0.3),
            ("screws", "ensemble", 1.0),
            ("screws", "log_prob", 0.2),
        ]
    ]


@pytest.fixture(scope="module")
def result(curves):
    rows = [
        Row(one.set, 1.0, one.statistic, 120, 400, **estimates(one.is_ood, one.scores))
        for one in curves
    ]
    about = {
        one.statistic: {"name": one.statistic, "scope": "image", "config": {}} for one in curves
    }
    known = {"model": "Network", "image_shape": (8, 8, 1), "versions": {"keras": "3.10"}}
    return Evaluation(tuple(rows), (), about, None, 0, "the detector's", known)


@pytest.fixture(scope="module")
def evaluation(result, curves, examples):
    return evaluation_page(result, curves=curves, misses=examples, false_alarms=examples[:1])


@pytest.fixture(scope="module")
def detector_html(examples):
    scores = np.random.default_rng(0).gamma(3, size=400)
    return detector_page(
        {"data": "digits & more", "limits": ["none known"]},
        scores,
        typical=examples[:1],
        untypical=examples,
        commands=[("Score a folder", "tfbnood score here 'my photos' --out <file>.html")],
        notes=["Made for a test."],
        title="digits <3",
    )


def areas(page):
    """Under every ROC curve of a page, by the points that are drawn."""
    found = []
    for points in re.findall(r'<polyline class="curve[^"]*" points="([^"]*)"', page):
        x, y = np.array([pair.split(",") for pair in points.split()], float).T
        heights, widths = (278 - y) / 270, np.diff(x - 40) / 270
        found.append(np.sum(widths * (heights[1:] + heights[:-1]) / 2))
    return found


def test_the_area_under_a_drawn_curve_is_the_auroc(evaluation, curves):
    expected = [auroc(one.is_ood, one.scores) for one in curves]
    np.testing.assert_allclose(areas(evaluation), expected, atol=0.003)


def test_ties_are_drawn_as_slopes():
    (area,) = areas(roc_svg({"flat": ([0, 0, 1, 1], [1.0, 1.0, 1.0, 1.0])}, label="ROC"))
    assert area == 0.5


def test_the_headline_names_the_best_statistic_and_the_hardest_set(evaluation, result):
    means = {
        label: np.mean([row.auroc.value for row in result.rows if row.statistic == label])
        for label in result.statistics
    }
    (text,) = re.findall(r"<h1>(.*?)</h1>", evaluation, re.DOTALL)
    assert max(means, key=means.get) == "ensemble"
    assert text.startswith(f"ensemble reaches a mean AUROC of {means['ensemble']:.3f}<small>")
    assert f"hardest: screws, {result.auroc('screws', 'ensemble'):.3f}" in text


@pytest.mark.parametrize("size", SIZES)
def test_the_table_sorts_by_a_click(open_page, evaluation, result, size):
    browser = open_page(evaluation, size=size)

    def column(index):
        script = "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[arguments[0]].textContent)"
        return browser.execute_script(script, index)

    before = column(1)
    buttons = browser.find_elements("css selector", "th button")
    values = sorted((row.auroc.value for row in result.rows), reverse=True)
    for order in (values, values[::-1]):
        browser.execute_script("arguments[0].click()", buttons[3])
        assert [cell.split()[0] for cell in column(3)] == [f"{value:.3f}" for value in order]
    heading = browser.find_elements("css selector", "th")[3]
    assert heading.get_attribute("aria-sort") == "ascending"
    browser.execute_script("arguments[0].click()", buttons[0])
    assert column(0) == ["flowers <b>", "flowers <b>", "screws", "screws"]
    assert sorted(column(1)) == sorted(before)
    assert heading.get_attribute("aria-sort") is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["evaluation", "detector_html"])
def test_pages_fit_the_window_and_show_their_pictures(open_page, request, which, size):
    browser = open_page(request.getfixturevalue(which), size=size)
    width, window, broken, pictures = browser.execute_script(
        "return Promise.all([...document.images].map((one) => one.decode())).then(() => "
        "[document.documentElement.scrollWidth, innerWidth, "
        "[...document.images].filter((one) => !one.naturalWidth).length, document.images.length])"
    )
    assert width <= window
    assert broken == 0
    assert pictures == 4


def test_an_evaluation_of_one_row_and_without_pictures_is_a_page(open_page, result):
    single = Evaluation(
        result.rows[:1], (), {"ensemble": result.statistics["ensemble"]}, None, 0, "", {}
    )
    browser = open_page(evaluation_page(single))
    assert (
        "ensemble separates flowers <b> from inliers with an AUROC of"
        in browser.find_element("css selector", "h1").text
    )


def test_true_rates_lie_where_simulated_ones_do():
    random = np.random.default_rng(0)
    # Uniform scores: the true rate of a threshold t is 1 − t.
    simulated = {rate: [] for rate in (0.1, 0.05)}
    for _ in range(2000):
        for rate, threshold, _, _ in possible_rates(random.random(99)):
            if rate in simulated:
                simulated[rate].append(1 - threshold)
    limits = {rate: (low, high) for rate, _, low, high in possible_rates(np.arange(99.0))}
    for rate, found in simulated.items():
        assert np.mean(found) == pytest.approx(rate, rel=0.05)
        np.testing.assert_allclose(np.percentile(found, (2.5, 97.5)), limits[rate], rtol=0.1)


@pytest.mark.parametrize("count", [1, 9, 99, 400])
def test_thresholds_flag_what_p_values_flag(count):
    random = np.random.default_rng(1)
    null, scores = random.normal(size=count), random.normal(size=1000)
    p_values = (1 + (null[:, None] >= scores).sum(axis=0)) / (count + 1)
    rates = possible_rates(null)
    assert rates[-1][0] == 1 / (count + 1)
    for rate, threshold, low, high in rates:
        np.testing.assert_array_equal(scores > threshold, p_values <= rate + 1e-12)
        assert 0 <= low < high <= 1


def test_the_detector_s_page_says_which_rates_are_possible(detector_html):
    text = re.sub(r"<[^>]*>", "", detector_html.partition("</style>")[2]).replace("\u00a0", " ")
    assert "With 400 calibration images the smallest rate is 1/401 = 0.249 %." in text
    assert "A rate of 0.2 % needs at least 499 calibration images." in text
    assert "tfbnood score here &#x27;my photos&#x27; --out &lt;file&gt;.html" in text
    assert "digits &lt;3" in text


def test_a_histogram_counts_as_numpy_does():
    values = np.random.default_rng(0).normal(size=300)
    chart = histogram_svg(values, label="Scores")
    counts = [int(count) for count in re.findall(r": (\d+)</title>", chart)]
    np.testing.assert_array_equal(counts, np.histogram(values, len(counts))[0])


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0], [0.0, 1e-9], [-1e6, 1e6]])
def test_a_histogram_of_few_or_equal_values_is_drawn(values):
    chart = histogram_svg(values, [(values[0], "1 %")], label="Scores")
    assert "nan" not in chart
    assert chart.count("<rect") >= 5


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match="calibration_scores must be finite"):
        detector_page({}, [1.0, np.inf])
