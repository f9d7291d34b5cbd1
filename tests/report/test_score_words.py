"""What the page of scores says before its script runs, and what it refuses."""

import json
import re

import numpy as np
import pytest

from tfbnood.calibration.conformal import benjamini_hochberg
from tfbnood.errors import DataError
from tfbnood.report import most_suspicious, score_page
from tfbnood.report.score import rate_steps
from tfbnood.report.words import by_chance, percent

IMAGES = np.zeros((4, 8, 8, 1), np.uint8)
NAMES = ["a", "b", "c", "d"]
SCORES = np.array([1.0, 4.0, 2.0, 3.0])
P_VALUES = np.array([0.5, 0.01, 0.03, 0.01])


def page_of(**changed):
    options = {
        "names": NAMES,
        "images": IMAGES,
        "scores": SCORES,
        "p_values": P_VALUES,
        "calibration_images": 99,
        **changed,
    }
    return score_page(**options)


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="scored">(.*?)</script>', page)
    return json.loads(text)


def headline(page):
    (text,) = re.findall(r"<h1>(.*?)</h1>", page, re.DOTALL)
    return re.sub(r"<[^>]*>", "", text).replace("\u00a0", " ")


def test_the_headline_has_both_numbers():
    assert headline(page_of(fpr=0.03)) == (
        "3 of 4 images look out of place at a false-alarm rate of 3 %; about 0.1 would by chance"
    )


def test_of_equal_p_values_the_highest_score_comes_first():
    assert most_suspicious(P_VALUES, SCORES).tolist() == [1, 3, 2, 0]
    assert most_suspicious(P_VALUES, SCORES, 2).tolist() == [1, 3]
    assert data_of(page_of())["names"] == ["b", "d", "c", "a"]


@pytest.mark.parametrize("calibration", [1, 5, 30, 100, 300, 1000, 12345])
def test_the_slider_goes_from_the_smallest_possible_rate_to_one_half(calibration):
    start = max(0.01, 1 / (calibration + 1))
    rates = rate_steps(calibration, start)
    assert rates[0] == 1 / (calibration + 1)
    assert rates[-1] == 0.5
    assert start in rates
    assert rates == sorted(set(rates))
    # About even in the logarithm: no step is more than half as much again.
    assert max(np.diff(np.log(rates)), default=0) <= np.log(1.5)


def test_chance_counts_only_p_values_that_exist():
    calibration, rate = 150, 0.01
    possible = np.arange(1, calibration + 2) / (calibration + 1)
    assert by_chance(1000, rate, calibration) == pytest.approx(1000 * np.mean(possible <= rate))
    assert by_chance(1000, 0.07, 99) == pytest.approx(70)  # 0.07 · 100 is below 7 by rounding


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.05, 0.01, 0.1])
def test_rounded_p_values_are_flagged_as_the_exact_ones(dtype, rate):
    exact = np.arange(1, 101) / 100
    images, names = np.zeros((100, 2, 2, 1), np.uint8), list(map(str, range(100)))
    page = score_page(names, images, -exact, exact.astype(dtype), calibration_images=99, fpr=rate)
    assert np.sum(np.array(data_of(page)["p"]) <= rate) == np.sum(exact <= rate)


def test_a_false_discovery_rate_starts_at_what_benjamini_and_hochberg_flag():
    flagged = int(benjamini_hochberg(P_VALUES, 0.1).sum())
    page = page_of(fdr=0.1)
    assert headline(page).startswith(
        f"{flagged} of 4 images look out of place at a false-discovery rate of 10 %"
    )
    data = data_of(page)
    assert np.sum(np.array(data["p"]) <= data["rates"][data["start"]]) == flagged


def test_a_false_discovery_rate_that_flags_nothing_starts_below_every_p_value():
    page = page_of(p_values=np.full(4, 0.6), fdr=0.1)
    assert headline(page).startswith("None of 4 images looks out of place")
    data = data_of(page)
    assert data["rates"][data["start"]] < 0.6


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (0.001, "Taken together, the 4 images look different from the reference images."),
        (0.04, "Taken together, the 4 images may differ from the reference images."),
        (0.3, "Taken together, the 4 images look like the reference images."),
    ],
)
def test_the_test_of_all_images_is_in_words(p_value, words):
    page = page_of(batch_p_value=p_value, batch_words="Simes <test>")
    assert words in page
    assert "look as strange (Simes &lt;test&gt;)." in page


def test_only_the_most_suspicious_images_have_details():
    page = page_of(where={row: np.eye(3) for row in range(4)}, detailed=2)
    assert re.findall(r'id="(detail-\d+)"', page) == ["detail-0", "detail-1"]
    (text,) = re.findall(r'id="detail-0">(.*?)</script>', page)
    assert set(json.loads(text)) == {"picture", "where"}


def test_images_are_read_one_at_a_time():
    alive, most = set(), [0]

    class Counted(np.ndarray):
        def __array_finalize__(self, parent):
            alive.add(id(self))

        def __del__(self):
            alive.discard(id(self))

    def image(row):
        most[0] = max(most[0], len(alive))
        return np.zeros((8, 8, 1), np.uint8).view(Counted)

    count = 1000
    score_page(
        list(map(str, range(count))),
        image,
        np.arange(float(count)),
        np.full(count, 0.5),
        calibration_images=99,
        detailed=0,
    )
    assert most[0] < count / 2  # a sample and a chunk, never all


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": [1.0]}, "scores must be as many as names, 4. Received: 1 values"),
        ({"p_values": [0.1] * 3}, "p_values must be as many as names, 4. Received: 3 values"),
        ({"p_values": [0.1, 0.2, 0.3, 1.5]}, r"p_values must lie in \[0, 1\]. Received: .* to 1.5"),
        ({"scores": [1.0, 2.0, np.nan, 3.0]}, "scores must be finite"),
        ({"fpr": 0.001}, r"fpr must be at least .* = 0.01, .* Received: fpr=0.001"),
        ({"fpr": 1.0}, r"fpr must lie in \(0, 1\). Received: fpr=1.0"),
        ({"fdr": 0.0}, r"fdr must lie in \(0, 1\). Received: fdr=0.0"),
        ({"calibration_images": 0}, "calibration_images must be an integer of at least 1"),
        ({"detailed": -1}, "detailed must be an integer of at least 0"),
        ({"images": IMAGES[:2]}, r"images must be an array \[4, height, width, channels\]"),
    ],
)
def test_what_does_not_fit_is_refused(changed, message):
    with pytest.raises(DataError, match=message):
        page_of(**changed)


def test_per_cent_has_three_digits():
    assert [
        percent(rate).replace("\u00a0", " ") for rate in (0.5, 0.125, 0.01, 1 / 301, 1 / 10_001)
    ] == [
        "50 %",
        "12.5 %",
        "1 %",
        "0.332 %",
        "0.01 %",
    ]
