"""Log-likelihoods of images among companions: S_{b,r}, the paper's conditional statistic, and its cheaper twin.

The paper mixes *samples*: a batch of b holds `b1 = round(r·b)` test images, completed by `b − b1` reference images, and
is scored with the moments of the batch. Mixing *moments* instead, a batch of test images alone is scored with moments
as if moving ones made up the rest. In both r = 0 is evaluation mode and r = 1 training mode.

Both are composed inside a `tf.function`: test images, reference images, ratio, draws and seed go in, S_{b,r} comes out.
One trace of the model serves both, all ratios and all sizes, also inside an export; memory does not grow with the
number of images. The model's own noise (dequantisation) is the same in every pass: otherwise the difference of two
ratios would be mostly noise.
"""

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.progress import bar
from tfbnood.errors import StatisticError
from tfbnood.scoring.frozen import frozen_log_prob
from tfbnood.scoring.moments import log_prob_with_mixed_moments

__all__ = [
    "ConditionalLogProb",
    "MixedMomentsLogProb",
    "companion_groups",
    "frozen_log_prob",
    "group_size",
]


class _Conditional(abc.ABC):
    """S_{b,r} of any number of images; subclasses define the batches."""

    def __init__(self, model: Any, batch_size: int, least: int):
        if batch_size < least:
            raise StatisticError(
                f"batch_size must be at least {least}. Received: batch_size={batch_size}"
            )
        self.model = model
        self.batch_size = batch_size
        self._compiled: Any = None

    def __call__(
        self,
        images: np.ndarray,
        *,
        ratio: float,
        draws: int = 1,
        seed: int = 0,
        progress: bool | None = None,
    ) -> np.ndarray:
        """Returns S_{b,r} for every image, float64 `[n]`.

        Args:
            images: the test images, uint8 `[n, height, width, channels]`; they are each other's companions.
            ratio: r in [0, 1].
            draws: how often the images are shuffled into new batches.
            seed: of groups and reference images.
            progress: show a bar on a terminal, by draw.
        """
        if not 0 <= ratio <= 1:
            raise StatisticError(f"ratio must lie in [0, 1]. Received: ratio={ratio}")
        if draws < 1:
            raise StatisticError(f"draws must be at least 1. Received: draws={draws}")
        if self._compiled is None:
            self._compiled = tf.function(
                self._sums, input_signature=_signature(images.shape[1:]), autograph=False
            )
        total, times = np.zeros(len(images)), np.zeros(len(images))
        # One draw per call, to show progress and to allow an interruption.
        for draw in bar(range(draws), f"ratio {ratio:g}", unit="draw", progress=progress):
            found = self._compiled(images, ratio, draw, 1, seed)
            total += found[0].numpy()
            times += found[1].numpy()
        return total / times

    def tensor(self, images: tf.Tensor, ratio: Any, draws: Any, seed: Any) -> tf.Tensor:
        """S_{b,r} inside a graph, float64 `[n]`; n may be 0."""
        total, times = self._sums(images, tf.cast(ratio, tf.float32), 0, draws, seed)
        return total / tf.maximum(times, 1)

    @abc.abstractmethod
    def _sums(self, images, ratio, first_draw, draws, seed) -> tuple[tf.Tensor, tf.Tensor]:
        """For every image, the sum of its log-likelihoods over the draws, and their number."""

    def _over_groups(self, images, groups, log_prob_of) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums `log_prob_of(batch, index)` over the images of each group, `[g, size]` indices."""
        zeros = tf.zeros([tf.shape(images)[0]], tf.float64)

        def add(index, total, times):
            rows = groups[index]
            values = tf.cast(log_prob_of(tf.gather(images, rows), index), tf.float64)
            total = tf.tensor_scatter_nd_add(total, rows[:, None], values)
            return (
                index + 1,
                total,
                tf.tensor_scatter_nd_add(times, rows[:, None], tf.ones_like(values)),
            )

        count = tf.shape(groups)[0]
        _, total, times = tf.while_loop(
            lambda index, *_: index < count, add, (0, zeros, zeros), parallel_iterations=1
        )
        return total, times

    def _log_prob(self, batch: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
        count = tf.shape(batch)[0]
        return log_prob_with_mixed_moments(self.model)(
            batch, tf.fill([count], 1 / tf.cast(count, tf.float32)), ratio
        )


class ConditionalLogProb(_Conditional):
    """S_{b,r}(x): the mean log-likelihood of each test image over random mixed batches.

    Args:
        model: a Keras model with batch normalisation and `log_prob(images, training=…)` → nats `[n]`.
        reference: in-distribution images, uint8 `[m, height, width, channels]`, m ≥ b.
        batch_size: b. Defaults to 64, the paper's.

    Example:
        >>> conditional = ConditionalLogProb(model, x.train)
        >>> low, high = (conditional(x.test[:64], ratio=ratio, seed=0) for ratio in (0.1, 0.9))
        >>> np.abs(low - high).shape
        (64,)
    """

    def __init__(self, model: Any, reference: np.ndarray, *, batch_size: int = 64):
        super().__init__(model, batch_size, least=2)
        if len(reference) < batch_size:
            raise StatisticError(
                f"reference must hold at least batch_size={batch_size} images. Received: {len(reference)}"
            )
        self.reference = reference
        # A variable, so that an export stores the images once, however many functions read them.
        self.bank = tf.Variable(reference, trainable=False)

    def _sums(self, images, ratio, first_draw, draws, seed):
        evaluation = tf.equal(ratio, 0.0)
        size = tf.where(evaluation, self.batch_size, group_size(ratio, self.batch_size))
        groups = companion_groups(tf.shape(images)[0], size, draws, seed, first_draw)
        # The same reference images for all groups of a draw: what they add to all images alike does not affect the
        # comparison of images.
        others = _shuffle(len(self.reference), draws, (seed, -1), first_draw)
        others = others[:, : self.batch_size - size]
        per_draw = tf.shape(groups)[1]
        moments = tf.where(evaluation, 0.0, 1.0)

        def log_prob_of(batch, index):
            companions = tf.gather(self.bank, others[index // per_draw])
            return self._log_prob(tf.concat([batch, companions], axis=0), moments)[:size]

        return self._over_groups(images, tf.reshape(groups, (-1, size)), log_prob_of)


class MixedMomentsLogProb(_Conditional):
    """S_{b,r}(x) with mixed moments: one pass per image and draw, without reference images and their noise.

    Fewer than b images form one group.

    Args:
        model: a Keras model with batch normalisation and `log_prob(images, training=…)` → nats `[n]`.
        batch_size: b, the images whose moments are taken together. Defaults to 64.

    Example:
        >>> mixed = MixedMomentsLogProb(model)
        >>> low, high = (mixed(x.test[:64], ratio=ratio) for ratio in (0.0, 0.9))
        >>> np.abs(low - high).shape
        (64,)
    """

    def __init__(self, model: Any, *, batch_size: int = 64):
        super().__init__(model, batch_size, least=1)
        self._compiled_of_groups: Any = None

    def of_groups(self, images: np.ndarray, groups: np.ndarray, *, ratio: float) -> np.ndarray:
        """Returns S_{b,r} over given groups of companions, indices `[g, size]`; an image in several gets their mean."""
        if self._compiled_of_groups is None:
            images_spec, ratio_spec, *_ = _signature(images.shape[1:])
            self._compiled_of_groups = tf.function(
                self._sums_of_groups,
                input_signature=[images_spec, tf.TensorSpec((None, None), tf.int32), ratio_spec],
                autograph=False,
            )
        total, times = self._compiled_of_groups(images, groups.astype(np.int32), ratio)
        return total.numpy() / times.numpy()

    def _sums(self, images, ratio, first_draw, draws, seed):
        count = tf.shape(images)[0]
        size = tf.maximum(tf.minimum(self.batch_size, count), 1)
        groups = companion_groups(count, size, draws, seed, first_draw)
        return self._sums_of_groups(images, tf.reshape(groups, (-1, size)), ratio)

    def _sums_of_groups(self, images, groups, ratio):
        return self._over_groups(images, groups, lambda batch, _: self._log_prob(batch, ratio))


def group_size(ratio: Any, batch_size: int) -> tf.Tensor:
    """The number of test images in a batch: `max(1, round(r·b))`.

    Example:
        >>> [int(group_size(ratio, 64)) for ratio in (0.001, 0.1, 0.9)]
        [1, 6, 58]
    """
    wanted = tf.round(tf.cast(ratio, tf.float32) * batch_size)
    return tf.maximum(tf.cast(wanted, tf.int32), 1)


def companion_groups(
    count: Any, size: Any, draws: Any = 1, seed: Any = 0, first_draw: Any = 0
) -> tf.Tensor:
    """Shuffles `count` images into groups of exactly `size`, as indices `[draws, groups, size]`.

    Images of the first groups of a draw, which are as random as any, complete the last group. If there are fewer
    images than `size`, they are repeated.

    Example:
        >>> groups = companion_groups(5, 2, draws=1, seed=0)
        >>> groups.shape, np.unique(groups).tolist()
        (TensorShape([1, 3, 2]), [0, 1, 2, 3, 4])
    """
    order = _shuffle(count, draws, (seed, -2), first_draw)
    groups = -(-count // size)
    places = tf.range(groups * size) % tf.maximum(count, 1)
    return tf.reshape(tf.gather(order, places, axis=1), (draws, groups, size))


def _shuffle(count: Any, draws: Any, seed: tuple[Any, int], first_draw: Any) -> tf.Tensor:
    """A permutation of `count` for every draw, `[draws, count]`, each a function of only the seed and the draw."""

    def order(draw):
        own = tf.random.experimental.stateless_fold_in(tf.cast(tf.stack(seed), tf.int64), draw)
        return tf.argsort(tf.random.stateless_uniform([count], own), stable=True)

    draws = first_draw + tf.range(draws)
    return tf.map_fn(order, draws, fn_output_signature=tf.TensorSpec((None,), tf.int32))


def _signature(image_shape: tuple[int, ...]) -> list[tf.TensorSpec]:
    whole = tf.TensorSpec((), tf.int32)
    ratio = tf.TensorSpec((), tf.float32)
    return [tf.TensorSpec((None, *image_shape), tf.uint8), ratio, whole, whole, whole]
