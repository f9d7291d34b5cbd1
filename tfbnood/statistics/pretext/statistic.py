"""Small networks that learn to tell what was done to an image: where they doubt that nothing was, the image is odd."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.data.pseudo import ALL_KINDS, KINDS
from tfbnood.errors import StatisticError
from tfbnood.scoring.compiled import compile_rows
from tfbnood.scoring.evidence import Evidence
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.pretext.network import STRIDES, scaled, train_network, widths

__all__ = ["Pretext"]

_FEATURES_OF = 4000  # reference images, at most, whose features are taken


class Pretext(EvidenceStatistic):
    """−log of the probability that nothing was done to an image, by networks that know what can be.

    The networks, of six convolutions with batch normalisation, are trained while the statistic is fitted, on the
    reference images and on pseudo-outliers made of them (`tfbnood.pseudo`): they tell which of the kinds they see.
    Neither labels nor outliers are needed. What they learn for that, such as what is up and which parts belong
    together, likelihoods and pixels do not know. `ensemble` also asks how far the networks' features, the means of the
    last convolution's channels, are from those of reference images: squared Mahalanobis distance, averaged.

    Args:
        steps: of training, at most; few reference images have one for four of them, or 100. Defaults to 2,000.
        width: channels of the first two convolutions; the next have twice and four times as many. Defaults to 24.
        kinds: of pseudo-outliers, for one network. Defaults to two networks, whose scores are averaged: one learns
            `tfbnood.pseudo.KINDS`, the other, with fewer images of each, `ALL_KINDS`.
        seed: of the networks' start, of the images and of what is done to them.

    Example:
        >>> statistic = tfbnood.statistics.get("pretext", steps=50).fit(None, x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Deep anomaly detection using geometric transformations (Golan, El-Yaniv 2018), arXiv:1805.10917.
    """

    name = "pretext"
    need = "pixels"
    one_sided = 4 / 3  # chosen on pseudo-outliers: tools/research
    large = ("weights_", "scales_")
    needs_model = False

    def __init__(
        self,
        *,
        steps: int = 2000,
        width: int = 24,
        kinds: Sequence[str] | None = None,
        seed: int = 0,
    ):
        if unknown := set(kinds or ()) - set(ALL_KINDS):
            raise StatisticError(
                f"kinds must be of {', '.join(ALL_KINDS)}. Received: {', '.join(sorted(unknown))}"
            )
        if min(steps, width) < 1:
            raise StatisticError(
                f"steps and width must be at least 1. Received: steps={steps}, width={width}"
            )
        self.steps = steps
        self.width = width
        self.kinds = kinds
        self.seed = seed

    @property
    def _lessons(self) -> tuple[Sequence[str], ...]:
        """The kinds that each network learns."""
        return (self.kinds,) if self.kinds else (KINDS, ALL_KINDS)

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        layers = [
            layer
            for kinds in self._lessons
            for layer in train_network(reference, kinds, self.steps, self.width, self.seed)
        ]
        # Bytes: what they round off is far below the networks' own doubts, and detectors are to be small.
        kernels, scales = zip(*(as_bytes(kernel) for kernel, _ in layers), strict=True)
        self.weights_ = np.concatenate([kernel.ravel() for kernel in kernels])
        parts = [
            part for scale, (_, bias) in zip(scales, layers, strict=True) for part in (scale, bias)
        ]
        self.scales_ = np.concatenate(parts).astype(np.float32)
        self._restore(model)
        self._fit_features(sample_of(reference, _FEATURES_OF, self.seed))

    def _fit_features(self, images: np.ndarray) -> None:
        """Where the features of in-distribution images lie."""
        self.prepare()
        features_of = compile_rows(
            lambda batch: tf.stack([one for one, _ in self._outputs(batch)], axis=1),
            self.image_shape_,
        )
        features = features_of(images, "pretext of reference images")
        centres, whitening = zip(*map(_whitening, features.transpose(1, 0, 2)), strict=True)
        self.centres_ = np.stack(centres).astype(np.float32)
        self.whitening_ = np.stack(whitening).astype(np.float32)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return _doubt(self._outputs(evidence.images))

    def tensor_columns(self, evidence: Evidence) -> tf.Tensor:
        """The score, and how far the features are from those of reference images: `[n, 2]`."""
        outputs = self._outputs(evidence.images)
        columns = [_doubt(outputs)]
        if hasattr(self, "centres_"):  # not where it was saved before they were kept
            columns.append(self._distance([features for features, _ in outputs]))
        return tf.stack(columns, axis=1)

    def _outputs(self, images: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """By network its features, the means of the last convolution's channels, and the kinds' log probabilities."""
        kernels, scales = _Reader(self._large("weights_")), _Reader(self._large("scales_"))
        images = scaled(images)
        outputs = []
        for kinds in self._lessons:
            hidden, before = images, self.image_shape_[-1]
            for width, stride in zip(widths(self.width), STRIDES, strict=True):
                hidden = tf.nn.conv2d(hidden, kernels.take(3, 3, before, width), stride, "SAME")
                hidden = tf.nn.relu(hidden * scales.take(width) + scales.take(width))
                before = width
            features, classes = tf.reduce_mean(hidden, axis=(1, 2)), 1 + len(kinds)
            logits = tf.matmul(features, kernels.take(before, classes))
            logits = logits * scales.take(classes) + scales.take(classes)
            outputs.append((features, tf.nn.log_softmax(logits)))
        return outputs

    def _distance(self, features: list[tf.Tensor]) -> tf.Tensor:
        """Squared Mahalanobis distance, the mean over the networks."""
        white = tf.matmul(tf.stack(features) - self.centres_[:, None], self.whitening_)
        return tf.reduce_sum(tf.square(white), axis=(0, 2)) / len(features)


def _doubt(outputs: list[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
    """−log of the probability that nothing was done, the mean over the networks."""
    return -tf.add_n([logs[:, 0] for _, logs in outputs]) / len(outputs)


def _whitening(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre `[d]`, and a matrix `[d, d]` that makes of distances from it those of Mahalanobis (Ledoit–Wolf)."""
    from sklearn.covariance import LedoitWolf

    centre = features.mean(axis=0)
    # A feature that is the same in all reference images must not divide by nothing, nor one that others foretell.
    scale = np.maximum(features.std(axis=0), 1e-3)
    covariance = LedoitWolf().fit((features - centre) / scale).covariance_
    root = np.linalg.cholesky(covariance + 1e-3 * np.eye(len(centre)))
    return centre, np.linalg.inv(root).T / scale[:, None]


def as_bytes(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 values, and by output channel what to multiply them with."""
    largest = np.abs(kernel).max(axis=tuple(range(kernel.ndim - 1)))
    scale = np.maximum(largest, 1e-30) / 127
    return np.rint(kernel / scale).astype(np.int8), scale


class _Reader:
    """Takes arrays from a vector, one after another."""

    def __init__(self, flat: tf.Tensor):
        self._flat = flat

    def take(self, *shape: int) -> tf.Tensor:
        count = int(np.prod(shape))
        taken, self._flat = self._flat[:count], self._flat[count:]
        return tf.reshape(taken, shape)
