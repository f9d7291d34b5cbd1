"""How much neighbours resemble each other."""

import numpy as np

from tfbnood.monitor.thinning import autocorrelation, thinning


def autoregressive(rng, size, weight):
    values = rng.normal(size=size)
    for index in range(1, size):
        values[index] = weight * values[index - 1] + np.sqrt(1 - weight**2) * values[index]
    return values


def test_the_autocorrelation_is_the_normalised_sum_of_lagged_products():
    values = np.random.default_rng(0).random(101)
    centred = values - values.mean()
    expected = [(centred[lag:] * centred[:-lag]).sum() / (centred**2).sum() for lag in range(1, 31)]
    np.testing.assert_allclose(autocorrelation(values, 30), expected, atol=1e-12)


def test_independent_values_are_hardly_ever_thinned():
    rng = np.random.default_rng(1)
    for size in (64, 512, 2048):
        assert np.mean([thinning(rng.random(size)) == 1 for _ in range(300)]) > 0.98


def test_correlated_values_are_thinned_until_the_rest_is_small():
    rng = np.random.default_rng(2)
    for weight in (0.5, 0.9, 0.97):
        found = np.median([thinning(autoregressive(rng, 2048, weight)) for _ in range(20)])
        wanted = np.log(0.1) / np.log(weight)
        assert 0.6 * wanted < found < 1.5 * wanted + 1
    assert np.median([thinning(np.repeat(rng.random(200), 10)) for _ in range(20)]) in (9, 10)


def test_the_distance_is_bounded_and_constant_values_are_no_error():
    assert thinning(np.arange(100.0)) <= 25
    assert thinning(np.arange(10_000.0)) == 256
    assert thinning(np.zeros(100)) == 1
    assert thinning(np.zeros(3)) == 1
