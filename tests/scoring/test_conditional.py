import numpy as np
import pytest
from brought import trained_brought_model

from tfbnood.errors import StatisticError
from tfbnood.models import RealNVP
from tfbnood.scoring.conditional import ConditionalLogProb, companion_groups, frozen_log_prob
from tfbnood.scoring.moments import batch_normalizations


@pytest.fixture(scope="module")
def model(digits):
    return trained_brought_model(digits.train)


@pytest.fixture(scope="module")
def conditional(model, digits):
    return ConditionalLogProb(model, digits.train, batch_size=16)


def test_ratio_0_is_evaluation_mode(conditional, model, digits):
    images = digits.test[:37]
    expected = frozen_log_prob(model)(images, False)
    np.testing.assert_allclose(conditional(images, ratio=0.0), expected, rtol=1e-5)


def test_ratio_1_is_training_mode(conditional, model, digits):
    images = digits.test[:16]
    expected = frozen_log_prob(model)(images, True)
    np.testing.assert_allclose(conditional(images, ratio=1.0), expected, rtol=1e-5)


def test_a_ratio_between_is_a_batch_with_reference_images(model, digits):
    images, reference = digits.test[:4], digits.train[:16]
    values = ConditionalLogProb(model, reference, batch_size=16)(
        images, ratio=0.25, draws=3, seed=5
    )
    # Independent of the code under test: batches by hand, from the documented random stream.
    random, total = np.random.RandomState([5, 4]), np.zeros(4)
    for _ in range(3):
        others = random.choice(16, 12, replace=False)
        order = random.permutation(4)
        pixels = np.concatenate([images[order], reference[others]]) / 64.0
        above = np.pad(pixels[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)))
        normal = (above - above.mean()) / np.sqrt(above.var() + 1e-5)
        padded = np.pad(normal[..., 0], ((0, 0), (1, 1), (1, 1)))
        kernel = model.conv.kernel.numpy()[..., 0, 0]
        predicted = sum(
            kernel[i, j] * padded[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)
        )
        log_prob = -0.5 * (pixels[..., 0] - predicted) ** 2 - np.log(64) - 0.9189
        total[order] += log_prob.sum(axis=(1, 2))[:4]
    np.testing.assert_allclose(values, total / 3, rtol=1e-4)


def test_same_seed_same_numbers_and_another_seed_others(conditional, digits):
    images = digits.test[:20]
    first, again, other = (conditional(images, ratio=0.5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_draws_average_away_the_choice_of_companions(conditional, digits):
    images = digits.test[:40]

    def spread(draws):
        values = [conditional(images, ratio=0.5, draws=draws, seed=seed) for seed in range(6)]
        return np.std(values, axis=0).mean()

    assert spread(8) < 0.6 * spread(1)


def test_all_ratios_share_one_compilation_and_change_no_variable(digits):
    model = trained_brought_model(digits.train)
    conditional = ConditionalLogProb(model, digits.train, batch_size=16)
    before = [variable.numpy() for variable in model.variables]
    for ratio in (0.0, 0.01, 0.1, 0.5, 0.9, 1.0):
        for count in (1, 5, 40):
            assert conditional(digits.test[:count], ratio=ratio).shape == (count,)
    assert conditional._log_prob.experimental_get_tracing_count() == 2  # one a mode
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


@pytest.mark.parametrize(("count", "size"), [(10, 3), (9, 3), (3, 3), (4, 3), (100, 58), (60, 58)])
def test_groups_have_one_size_and_hold_every_image(count, size):
    groups = list(companion_groups(count, size, np.random.RandomState(0)))
    assert {len(group) for group in groups} == {size}
    assert set(np.concatenate(groups)) == set(range(count))
    assert len(groups) == -(-count // size)
    for group in groups:
        assert len(set(group)) == size  # enough others: nobody is its own companion


def test_fewer_images_than_a_group_are_repeated():
    (group,) = companion_groups(2, 5, np.random.RandomState(0))
    assert len(group) == 5
    assert set(group) == {0, 1}
    (alone,) = companion_groups(1, 3, np.random.RandomState(0))
    np.testing.assert_array_equal(alone, [0, 0, 0])


def test_batch_normalisations_are_found_however_deep(model):
    assert batch_normalizations(model) == [model.norm]
    flow = RealNVP((4, 4, 1), channels=2, blocks=1)
    # An input and an output normalisation and two a block, in each of ten networks.
    assert len(batch_normalizations(flow)) == 10 * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 1.5}, r"ratio must lie in \[0, 1\]. Received: ratio=1.5"),
        ({"ratio": 0.5, "draws": 0}, "draws must be at least 1. Received: draws=0"),
    ],
)
def test_arguments_out_of_range_are_refused(conditional, digits, arguments, message):
    with pytest.raises(StatisticError, match=message):
        conditional(digits.test[:4], **arguments)


def test_a_reference_smaller_than_the_batch_is_refused(model, digits):
    with pytest.raises(StatisticError, match=r"at least batch_size=64 images. Received: 10"):
        ConditionalLogProb(model, digits.train[:10])
