"""Small networks that learn what was done to an image: if they doubt that nothing was, the image is odd."""

import functools
import math
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
from tfbnood.statistics.pretext.network import Layer, layers_of, run_network, train_network
from tfbnood.statistics.rounding import as_bytes

__all__ = ["Pretext"]

_FEATURES_OF = 4000  # maximum reference images whose features are used
_PARTS = ("kernel", "scale", "bias")  # of a layer; version 0.1.0 had scale and bias in this order


class Pretext(EvidenceStatistic):
    """−log of the probability that nothing was done to an image, by networks that know the possible changes.

    The networks, of six convolutions with batch normalisation, are trained while the statistic is fitted, on the
    reference images and on pseudo-outliers made from them (`tfbnood.pseudo`), to distinguish the kinds. Neither labels
    nor outliers are needed. The networks learn what likelihoods and pixels do not capture, such as which way is up and
    which parts belong together. `ensemble` also uses the distance of the networks' features, the means of the last
    convolution's channels, from those of reference images: squared Mahalanobis distance, averaged.

    Args:
        steps: maximum steps of training; with few reference images one step per four of them, but at least 100.
            Defaults to 2,000.
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
                f"kinds must be some of {', '.join(ALL_KINDS)}. Received: {', '.join(sorted(unknown))}"
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
        for index, kinds in enumerate(self._lessons):
            trained = train_network(reference, kinds, self.steps, self.width, self.seed)
            for layer, weights in trained.items():
                # Bytes keep detectors small; their rounding errors are far below the networks' own uncertainty.
                kernel, scale = as_bytes(weights.kernel, axis=tuple(range(weights.kernel.ndim - 1)))
                setattr(self, _name("kernel", index, layer), kernel)
                setattr(self, _name("scale", index, layer), scale.ravel())
                setattr(self, _name("bias", index, layer), weights.bias.astype(np.float32))
        self._restore(model)
        self._fit_features(sample_of(reference, _FEATURES_OF, self.seed))

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        shapes = self._shapes(channels=int(state["image_shape_"][-1]))
        if "weights_" in state:
            state = _named(state, shapes)
        others = state.keys() - shapes.keys() - {"image_shape_", "centres_", "whitening_"}
        if others:
            raise StatisticError(f"{self.name} has no {min(others)[:80]!r}")
        for name, shape in shapes.items():
            if name not in state or state[name].shape != shape:
                raise StatisticError(f"{self.name} must have {name} of shape {shape}")
        super().set_state(model, state)

    @property
    def variables(self) -> list[tf.Variable]:
        shapes = self._shapes(self.image_shape_[-1])
        return [self._variable(name) for name in shapes if name.startswith("kernel_")]

    def _networks(self, channels: int) -> list[list[Layer]]:
        """The layers of each network."""
        return [layers_of(channels, self.width, 1 + len(kinds)) for kinds in self._lessons]

    def _shapes(self, channels: int) -> dict[str, tuple[int, ...]]:
        """The fitted arrays of the networks: by layer a kernel in bytes, what to multiply it by, and a bias."""
        return {
            _name(part, index, layer.name): layer.shape if part == "kernel" else layer.shape[-1:]
            for index, layers in enumerate(self._networks(channels))
            for layer in layers
            for part in _PARTS
        }

    def _fit_features(self, images: np.ndarray) -> None:
        """Learns where the features of in-distribution images lie."""
        self.prepare()
        features_of = compile_rows(
            lambda batch: tf.stack([one for one, _ in self._outputs(batch)], axis=1),
            self.image_shape_,
        )
        features = features_of(images, "pretext of reference images")
        centres, whitening = zip(*map(_compute_whitening, features.transpose(1, 0, 2)), strict=True)
        self.centres_ = np.stack(centres).astype(np.float32)
        self.whitening_ = np.stack(whitening).astype(np.float32)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return _compute_doubt(self._outputs(evidence.images))

    def tensor_columns(self, evidence: Evidence) -> tf.Tensor:
        """The score, and the distance of the features from those of reference images: `[n, 2]`."""
        outputs = self._outputs(evidence.images)
        columns = [_compute_doubt(outputs)]
        if hasattr(self, "centres_"):  # absent in files of versions that did not store them
            columns.append(self._distance([features for features, _ in outputs]))
        return tf.stack(columns, axis=1)

    def _outputs(self, images: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """By network its features, the means of the last convolution's channels, and the kinds' log probabilities."""

        def weights(index: int, layer: str) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scale, bias = (getattr(self, _name(part, index, layer)) for part in ("scale", "bias"))
            return self._large(_name("kernel", index, layer)), scale, bias

        return [
            run_network(layers, images, functools.partial(weights, index))
            for index, layers in enumerate(self._networks(self.image_shape_[-1]))
        ]

    def _distance(self, features: list[tf.Tensor]) -> tf.Tensor:
        """Squared Mahalanobis distance, the mean over the networks."""
        white = tf.matmul(tf.stack(features) - self.centres_[:, None], self.whitening_)
        return tf.reduce_sum(tf.square(white), axis=(0, 2)) / len(features)


def _compute_doubt(outputs: list[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
    """−log of the probability that nothing was done, the mean over the networks."""
    return -tf.add_n([logs[:, 0] for _, logs in outputs]) / len(outputs)


def _compute_whitening(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre `[d]`, and a matrix `[d, d]` that turns distances from it into Mahalanobis distances (Ledoit–Wolf)."""
    from sklearn.covariance import LedoitWolf

    centre = features.mean(axis=0)
    # Guard against constant and collinear features.
    scale = np.maximum(features.std(axis=0), 1e-3)
    covariance = LedoitWolf().fit((features - centre) / scale).covariance_
    root = np.linalg.cholesky(covariance + 1e-3 * np.eye(len(centre)))
    return centre, np.linalg.inv(root).T / scale[:, None]


def _name(part: str, network: int, layer: str) -> str:
    """The attribute that holds a part of a layer."""
    return f"{part}_{network}_{layer}_"


def _named(
    state: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The state of version 0.1.0, which had all kernels in one vector and all scales and biases in another."""
    named = {key: value for key, value in state.items() if key not in ("weights_", "scales_")}
    for flat, parts in (("weights_", ("kernel",)), ("scales_", ("scale", "bias"))):
        names = [name for name in shapes if name.startswith(parts)]
        ends = np.cumsum([math.prod(shapes[name]) for name in names])
        if state[flat].shape != (ends[-1],):
            raise StatisticError(f"pretext must have {flat} of shape ({ends[-1]},)")
        for name, values in zip(names, np.split(state[flat], ends[:-1]), strict=True):
            named[name] = values.reshape(shapes[name])
    return named
