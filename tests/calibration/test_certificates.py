"""Certified rates against SciPy's Beta distribution and by simulation."""

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from tfbnood.calibration.certificates import (
    certified_rank,
    certified_rate,
    certified_threshold,
    images_to_certify,
    smallest_certified_rate,
)
from tfbnood.calibration.conformal import conformal_p_values
from tfbnood.errors import DataError

SIZES, RATES, CONFIDENCES = (
    (1, 10, 59, 60, 299, 300, 1000, 5000),
    (0.01, 0.05, 0.5),
    (0.5, 0.9, 0.95, 0.99),
)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("fpr", RATES)
@pytest.mark.parametrize("n", SIZES)
def test_the_rank_is_the_largest_that_the_beta_distribution_allows(n, fpr, confidence):
    ranks = np.arange(1, n + 1)
    allowed = ranks[beta.cdf(fpr, ranks, n - ranks + 1) >= confidence - 1e-12]
    if len(allowed):
        assert certified_rank(n, fpr, confidence) == allowed.max()
        assert n >= images_to_certify(fpr, confidence)
        assert fpr >= smallest_certified_rate(n, confidence) * (1 - 1e-12)
    else:
        with pytest.raises(DataError, match="calibrate on at least"):
            certified_rank(n, fpr, confidence)
        assert n < images_to_certify(fpr, confidence)
        assert fpr < smallest_certified_rate(n, confidence)


def test_what_the_documents_state_of_1000_images():
    assert certified_rank(1000, 0.05) == 39
    assert certified_rank(1000, 0.01) == 5
    assert certified_rate(1000, 50) == pytest.approx(0.062, abs=5e-4)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "fpr"), [(100, 0.05), (400, 0.02)])
def test_the_promise_is_kept_in_as_many_calibrations_as_stated(n, fpr, ties):
    # Scores uniform in [0, 1], or rounded up to 1/200: the true rate of a threshold is known.
    rng = np.random.default_rng(n)
    kept = 0
    for _ in range(2000):
        null = rng.random(n)
        if ties:
            null = np.ceil(null * 200) / 200
        kept += 1 - certified_threshold(null, fpr, 0.9) <= fpr + 1e-12
    assert binomtest(kept, 2000, 0.9, "less").pvalue > 1e-3
    exact = beta.cdf(fpr, certified_rank(n, fpr, 0.9), n - certified_rank(n, fpr, 0.9) + 1)
    if not ties:
        assert kept / 2000 == pytest.approx(exact, abs=0.03)


def test_the_threshold_is_a_p_value_of_rank_by_n_plus_1():
    rng = np.random.default_rng(0)
    null, scores = rng.normal(size=500).round(1), rng.normal(size=2000).round(1)
    rank = certified_rank(500, 0.05)
    above = scores > certified_threshold(null, 0.05)
    np.testing.assert_array_equal(above, conformal_p_values(scores, null) <= rank / 501)
    assert certified_threshold(null, 0.05) == np.sort(null)[-rank]


@pytest.mark.parametrize("n", [1, 7, 59, 1000])
def test_the_smallest_rate_is_certified_by_the_largest_score(n):
    least = smallest_certified_rate(n)
    assert certified_rate(n, 1) == pytest.approx(least, rel=1e-9)
    assert certified_rank(n, least) == 1
    with pytest.raises(DataError):
        certified_rank(n, 0.99 * least)


@pytest.mark.parametrize("fpr", [0.001, 0.01, 0.05, 0.3])
def test_so_many_images_are_enough_and_one_less_is_not(fpr):
    needed = images_to_certify(fpr)
    assert certified_rank(needed, fpr) >= 1
    with pytest.raises(
        DataError, match=f"calibrate on at least {needed} images. Received: fpr={fpr}"
    ):
        certified_rank(needed - 1, fpr)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: certified_rank(0, 0.05), "n must be an integer of at least 1"),
        (lambda: certified_rank(10.5, 0.05), "n must be an integer"),
        (lambda: certified_rank(100, 0.0), r"fpr must lie in \(0, 1\)"),
        (lambda: certified_rank(100, "5 %"), r"fpr must lie in \(0, 1\)"),
        (lambda: certified_rank(100, 0.05, 1.0), r"confidence must lie in \(0, 1\)"),
        (lambda: certified_rate(10, 11), "rank must be at most n"),
        (
            lambda: certified_threshold(np.zeros((2, 2)), 0.05),
            r"null must be finite scores of shape \[n\]",
        ),
        (lambda: certified_threshold(np.array([1.0, np.nan]), 0.05), "null must be finite"),
        (lambda: certified_threshold(np.empty(0), 0.05), "fpr must be at least"),
    ],
)
def test_what_cannot_be_certified_is_refused(call, message):
    with pytest.raises(DataError, match=f"{message}.*Received"):
        call()
