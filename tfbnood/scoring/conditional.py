"""Log-likelihoods of images among companions: S_{b,r}, the paper's conditional statistic, and its cheaper twin.

The paper mixes *samples*: a batch of b holds `b1 = round(r·b)` test images, completed by `b − b1` reference images, and
is scored with the moments of the batch. `MixedMomentsLogProb` mixes *moments*: a batch of test images alone is scored
with moments as if moving ones made up the rest. In both r = 0 is evaluation mode and r = 1 training mode.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfbnood._core.batching import map_batches
from tfbnood.errors import StatisticError
from tfbnood.scoring.moments import log_prob_with_mixed_moments, once_a_model

__all__ = ["ConditionalLogProb", "MixedMomentsLogProb", "companion_groups", "frozen_log_prob"]


@once_a_model
def frozen_log_prob(model: Any, images: tf.Tensor, training: bool) -> tf.Tensor:
    """Compiles `model.log_prob` as `(images, training) → [n]` in which no variable changes.

    Works for any model with `log_prob(images, training=…)`: updates of moving moments are caught and dropped.

    Example:
        >>> log_prob = frozen_log_prob(model)
        >>> log_prob(x.test[:64], True).shape
        TensorShape([64])
    """
    with keras.StatelessScope():
        return model.log_prob(images, training=training)


class ConditionalLogProb:
    """S_{b,r}(x): the mean log-likelihood of each test image over random mixed batches.

    Every pass is one batch of b images, so that all ratios share one compilation; memory does not grow with the
    number of images. The model's own noise (dequantisation) is the same in every pass: otherwise the difference of
    two ratios would be mostly noise.

    Args:
        model: any model with `log_prob(images, training=…)` → nats `[n]`.
        reference: in-distribution images, uint8 `[m, height, width, channels]`, m ≥ b.
        batch_size: b. Defaults to 64, the paper's.

    Example:
        >>> conditional = ConditionalLogProb(model, x.train)
        >>> low, high = (conditional(x.test[:64], ratio=ratio, seed=0) for ratio in (0.1, 0.9))
        >>> np.abs(low - high).shape
        (64,)
    """

    def __init__(self, model: Any, reference: np.ndarray, *, batch_size: int = 64):
        if batch_size < 2:
            raise StatisticError(
                f"batch_size must be at least 2. Received: batch_size={batch_size}"
            )
        if len(reference) < batch_size:
            raise StatisticError(
                f"reference must hold at least batch_size={batch_size} images. Received: {len(reference)}"
            )
        self.reference = reference
        self.batch_size = batch_size
        self._log_prob = frozen_log_prob(model)

    def __call__(
        self,
        images: np.ndarray,
        *,
        ratio: float,
        draws: int = 1,
        seed: int = 0,
        progress: bool = False,
    ) -> np.ndarray:
        """Returns S_{b,r} for every image, float64 `[n]`.

        Args:
            images: the test images, uint8 `[n, height, width, channels]`; they are each other's companions.
            ratio: r in [0, 1].
            draws: how often the images are shuffled into new batches. Evaluation mode needs none.
            seed: of groups and reference images.
            progress: show a bar on a terminal.
        """
        _check(ratio, draws)
        description = f"ratio {ratio:g}"
        if ratio == 0:
            return map_batches(
                lambda batch: self._log_prob(batch, False),
                images,
                batch_size=self.batch_size,
                description=description,
                progress=progress,
            ).astype(np.float64)

        size = max(1, round(ratio * self.batch_size))
        total, count = np.zeros(len(images)), np.zeros(len(images))
        random = np.random.RandomState([seed, size])
        passes = draws * -(-len(images) // size)
        with tqdm(
            total=passes, desc=description, unit="batch", disable=None if progress else True
        ) as bar:
            for _ in range(draws):
                # One choice of reference images for all groups of a draw: what it adds to every image alike does
                # not blur the comparison of images.
                others = random.choice(len(self.reference), self.batch_size - size, replace=False)
                for group in companion_groups(len(images), size, random):
                    batch = np.concatenate([images[group], self.reference[others]])
                    values = np.asarray(self._log_prob(batch, True))[:size]
                    np.add.at(total, group, values)
                    np.add.at(count, group, 1)
                    bar.update()
        return total / count


class MixedMomentsLogProb:
    """S_{b,r}(x) with mixed moments: one pass an image and draw, no reference images, no noise from choosing them.

    Requests of fewer than b images count by themselves: rows that complete the pass have no weight in its moments.

    Args:
        model: any Keras model with batch normalisation and `log_prob(images, training=…)` → nats `[n]`.
        batch_size: b, the images whose moments are taken together. Defaults to 64.

    Example:
        >>> mixed = MixedMomentsLogProb(model)
        >>> low, high = (mixed(x.test[:64], ratio=ratio) for ratio in (0.0, 0.9))
        >>> np.abs(low - high).shape
        (64,)
    """

    def __init__(self, model: Any, *, batch_size: int = 64):
        if batch_size < 1:
            raise StatisticError(
                f"batch_size must be at least 1. Received: batch_size={batch_size}"
            )
        self.batch_size = batch_size
        self._log_prob = log_prob_with_mixed_moments(model)

    def __call__(
        self,
        images: np.ndarray,
        *,
        ratio: float,
        draws: int = 1,
        seed: int = 0,
        progress: bool = False,
    ) -> np.ndarray:
        """Returns S_{b,r} for every image, float64 `[n]`; arguments are those of `ConditionalLogProb`."""
        _check(ratio, draws)
        size = min(self.batch_size, len(images))
        # Every image is in every draw when there is one batch only, and companions do not matter at ratio 0.
        draws = 1 if size == len(images) or ratio == 0 else draws
        random = np.random.RandomState([seed, size])
        groups = [
            group for _ in range(draws) for group in companion_groups(len(images), size, random)
        ]
        return self.of_groups(images, groups, ratio=ratio, progress=progress)

    def of_groups(
        self,
        images: np.ndarray,
        groups: Sequence[np.ndarray],
        *,
        ratio: float,
        progress: bool = False,
    ) -> np.ndarray:
        """Returns S_{b,r} over given groups of companions, as indices of at most `batch_size` images each.

        An image of several groups has their mean.
        """
        total, count = np.zeros(len(images)), np.zeros(len(images))
        for group in tqdm(
            groups, desc=f"ratio {ratio:g}", unit="batch", disable=None if progress else True
        ):
            weights = np.zeros(self.batch_size, np.float32)
            weights[: len(group)] = 1 / len(group)
            batch = images[np.resize(group, self.batch_size)]
            values = self._log_prob(batch, weights, tf.constant(ratio, tf.float32))
            np.add.at(total, group, np.asarray(values)[: len(group)])
            np.add.at(count, group, 1)
        return total / count


def _check(ratio: float, draws: int) -> None:
    if not 0 <= ratio <= 1:
        raise StatisticError(f"ratio must lie in [0, 1]. Received: ratio={ratio}")
    if draws < 1:
        raise StatisticError(f"draws must be at least 1. Received: draws={draws}")


def companion_groups(count: int, size: int, random: np.random.RandomState) -> Iterator[np.ndarray]:
    """Shuffles `count` images into groups of exactly `size`, as indices.

    The last group is completed by images of other groups, drawn without repetition where there are enough. Fewer
    images than `size` in all are repeated.

    Example:
        >>> groups = list(companion_groups(5, 2, np.random.RandomState(0)))
        >>> [len(group) for group in groups], np.unique(groups).tolist()
        ([2, 2, 2], [0, 1, 2, 3, 4])
    """
    order = random.permutation(count)
    for start in range(0, count, size):
        group = order[start : start + size]
        missing = size - len(group)
        if missing:
            others = np.setdiff1d(order, group)
            pool, replace = (others, len(others) < missing) if len(others) else (group, True)
            group = np.concatenate([group, random.choice(pool, missing, replace=replace)])
        yield group
