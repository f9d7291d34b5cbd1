"""The rival drift test is what its formula says, and keeps its level."""

import numpy as np

from tfbnood.data import load
from tfbnood.reproduce.mmd import mmd, mmd_p_value


def test_mmd_is_uniform_under_the_null_and_finds_a_shift():
    digits = load("digits")
    random = np.random.RandomState(0)

    def p_value(batch):
        return mmd_p_value(batch, digits.train[:150], permutations=49)

    fresh = [p_value(digits.test[random.permutation(397)[:32]]) for _ in range(40)]
    assert np.mean(np.array(fresh) <= 0.2) < 0.45
    assert p_value(255 - digits.test[:32]) == 1 / 50


def test_mmd_is_the_mean_of_kernels():
    random = np.random.RandomState(0)
    kernel = random.uniform(size=(7, 7))
    kernel = kernel + kernel.T
    np.fill_diagonal(kernel, 0)
    is_test = np.array([1, 1, 1, 0, 0, 0, 0], bool)
    within = np.mean([kernel[i, j] for i in range(3) for j in range(3) if i != j])
    others = np.mean([kernel[i, j] for i in range(3, 7) for j in range(3, 7) if i != j])
    between = kernel[:3, 3:].mean()
    found = mmd(kernel, np.stack([is_test, ~is_test]))
    np.testing.assert_allclose(found, within + others - 2 * between)
