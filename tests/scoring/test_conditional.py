import numpy as np
import pytest
import tensorflow as tf
from brought import trained_brought_model

from tfbnood.errors import StatisticError
from tfbnood.models import RealNVP
from tfbnood.scoring.conditional import (
    ConditionalLogProb,
    MixedMomentsLogProb,
    companion_groups,
    frozen_log_prob,
)
from tfbnood.scoring.rules import batch_normalizations


@pytest.fixture(scope="module")
def model(digits):
    return trained_brought_model(digits.train)


@pytest.fixture(scope="module")
def conditional(model, digits):
    return ConditionalLogProb(model, digits.train, batch_size=16)


def shuffled(count, seed, draw):
    """The documented order of `count` images in a draw."""
    own = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int64), draw)
    return np.argsort(tf.random.stateless_uniform([count], own), kind="stable")


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["samples", "moments"])
def test_python_and_a_graph_have_the_same_batches_and_numbers(model, digits, kind, ratio):
    conditional = (
        ConditionalLogProb(model, digits.train, batch_size=16)
        if kind == "samples"
        else MixedMomentsLogProb(model, batch_size=16)
    )
    images = digits.test[:21]
    inside = tf.function(lambda images: conditional.tensor(images, ratio, 3, 7), autograph=False)(
        images
    )
    np.testing.assert_allclose(inside, conditional(images, ratio=ratio, draws=3, seed=7), rtol=1e-5)


def test_a_batch_is_composed_of_groups_and_companions_as_the_paper_says(model, digits):
    # 21 images at ratio 0.5 of 8: groups of 4, the last completed from the front; every row by hand.
    images, reference = digits.test[:21], digits.train[:30]
    found = ConditionalLogProb(model, reference, batch_size=8)(images, ratio=0.5, draws=2, seed=3)
    total, times = np.zeros(21), np.zeros(21)
    for draw in range(2):
        order = shuffled(21, (3, -2), draw)
        others = reference[shuffled(30, (3, -1), draw)[:4]]
        for start in range(0, 21, 4):
            group = order[np.arange(start, start + 4) % 21]
            values = frozen_log_prob(model)(np.concatenate([images[group], others]), True)[:4]
            total[group] += values
            times[group] += 1
    assert times.sum() == 2 * 24
    np.testing.assert_allclose(found, total / times, rtol=1e-5)


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
    # Independent of the code under test: batches by hand, from TensorFlow's random stream of the seed and the draw.
    total = np.zeros(4)
    for draw in range(3):
        others, order = shuffled(16, (5, -1), draw)[:12], shuffled(4, (5, -2), draw)
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
    assert conditional._compiled.experimental_get_tracing_count() == 1
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


@pytest.mark.parametrize(("count", "size"), [(10, 3), (9, 3), (3, 3), (4, 3), (100, 58), (60, 58)])
def test_groups_have_one_size_and_hold_every_image(count, size):
    draws = companion_groups(count, size, draws=3, seed=0).numpy()
    assert draws.shape == (3, -(-count // size), size)
    for groups in draws:
        assert set(groups.ravel()) == set(range(count))
        for group in groups:
            assert len(set(group)) == size  # enough others: nobody is its own companion
    assert (draws[0] != draws[1]).any()


def test_fewer_images_than_a_group_are_repeated():
    ((group,),) = companion_groups(2, 5).numpy()
    assert len(group) == 5
    assert set(group) == {0, 1}
    np.testing.assert_array_equal(companion_groups(1, 3), [[[0, 0, 0]]])
    assert companion_groups(0, 3).shape == (1, 0, 3)


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
