import numpy as np

from tfbnood.models.noise import scoring_noise, training_noise


def test_scoring_noise_is_one_draw_for_all_rows_and_a_function_of_the_seed():
    first, again, other = (scoring_noise(seed).uniform(5, (4, 3)).numpy() for seed in (1, 1, 2))
    assert first.shape == (1, 4, 3)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_training_noise_differs_by_row_step_and_purpose():
    noise = training_noise(0, step=7)
    drawn = noise.normal(5, (4,)).numpy()
    assert drawn.shape == (5, 4)
    assert len(np.unique(drawn)) == 20
    np.testing.assert_array_equal(drawn, training_noise(0, step=7).normal(5, (4,)))
    for other in (training_noise(0, step=8), training_noise(1, step=7), noise.fold(1)):
        assert (other.normal(5, (4,)).numpy() != drawn).all()
    assert noise.fold(1).fresh


def test_a_training_step_never_has_the_noise_of_a_score():
    score = scoring_noise(0).uniform(1, (64,)).numpy()
    assert (training_noise(0, step=0).uniform(1, (64,)).numpy() != score).all()
