"""Large arrays are kept as bytes, which changes no score that matters, and older files still load."""

import numpy as np
import pytest

from tfbnood import statistics
from tfbnood.errors import StatisticError
from tfbnood.statistics import base
from tfbnood.statistics.rounding import as_bytes


def test_bytes_are_off_by_half_a_step_at_most():
    kernel = np.random.RandomState(0).normal(size=(3, 3, 4, 5)) * [1e-3, 1, 50, 0, 2]
    values, factor = as_bytes(kernel, axis=(0, 1, 2))
    assert values.dtype == np.int8
    assert factor.dtype == np.float32
    assert factor.shape == (1, 1, 1, 5)
    assert (np.abs(values * factor - kernel) <= 0.5001 * factor).all()
    largest = np.abs(kernel).max(axis=(0, 1, 2))
    np.testing.assert_allclose(factor.ravel()[:3], largest[:3] / 127, rtol=1e-6)


def fit(name, model, digits):
    return statistics.get(name).fit(None if name.startswith("pixel") else model, digits.train)


@pytest.mark.parametrize("name", ["pixel_pca", "pixel_knn", "bn_moments", "bn_shift"])
def test_bytes_hardly_change_the_scores(name, brought_model, digits, monkeypatch):
    images = np.concatenate([digits.test[:60], 255 - digits.test[:60]])
    exact = fit(name, brought_model, digits)
    monkeypatch.setattr(base, "_LARGE", 0)
    rounded = fit(name, brought_model, digits)
    assert exact.components_.dtype == np.float16
    assert rounded.components_.dtype == np.int8
    np.testing.assert_allclose(rounded.score(images), exact.score(images), rtol=0.05)


@pytest.mark.parametrize("name", ["pixel_pca", "pixel_knn", "bn_moments", "bn_shift"])
def test_a_state_in_half_precision_is_still_read(name, brought_model, digits):
    statistic = fit(name, brought_model, digits)
    state = {key: value for key, value in statistic.get_state().items() if "factor" not in key}
    halves = {"components_", "known_inside_", "known_outside_"} & state.keys()
    older = statistics.get(name)
    older.set_state(
        None if name.startswith("pixel") else brought_model,
        state | {key: state[key].astype(np.float16) for key in halves},
    )
    images = digits.test[:30]
    np.testing.assert_allclose(older.score(images), statistic.score(images), rtol=0.01)


def test_bytes_without_their_factors_are_refused(digits, monkeypatch):
    monkeypatch.setattr(base, "_LARGE", 0)
    state = fit("pixel_knn", None, digits).get_state()
    for key in ("components_factor_", "known_inside_factor_"):
        less = {one: value for one, value in state.items() if one != key}
        with pytest.raises(StatisticError, match=f"pixel_knn lacks '{key}'"):
            statistics.get("pixel_knn").set_state(None, less)
