"""Several statistics of single images as one: their joint in-distribution density, and how high they are."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import shuffled_halves
from tfbnood.errors import StatisticError
from tfbnood.protocols import FeatureExtractor, Likelihood
from tfbnood.scoring.compiled import compile_rows
from tfbnood.scoring.evidence import Evidence, gather, widest
from tfbnood.scoring.rules import batch_normalizations
from tfbnood.statistics import registry
from tfbnood.statistics.base import EvidenceStatistic, Statistic
from tfbnood.statistics.normal_scores import normal_scores, tables

__all__ = ["Ensemble"]

_WEIGHT, _NETWORK_WEIGHT = 1.5, 3.0


class Ensemble(EvidenceStatistic):
    """One score from several statistics, in one pass.

    Each member's value becomes a normal score g, by its rank among reference images; beyond the last of them g grows
    with the logarithm of the distance. A Gaussian mixture p(g) over the joint scores detects unusual combinations, as
    in density of states estimation. The density alone would ignore that high scores mean out-of-distribution. So the
    scores of `bn_moments` and, with a third more weight, of `pretext` are added: `−log p(g) + weight · Σ g`, summed
    over those members, or over all if there are none. The others are not added: a likelihood, or a distance of pixels,
    is as often too low as too high. `pretext` contributes two values: its score, and the distance of its features,
    which is part of the density only.

    Members are fitted to one half of the reference images and the mixture to the other: an image is nearer to itself
    than any new image.

    For a network without likelihoods the members are `features` and `bn_moments`, fitted to three quarters of the
    reference images.

    Args:
        members: statistics in TensorFlow operations, by name or as `(name, settings)`. Defaults to those that the model
            allows of `log_prob`, `complexity`, `bn_moments` over the whole image and over quarters, `pixel_pca`,
            `pixel_knn`, and `pretext`; for a network to `features` and, if it has batch normalisation, `bn_moments`.
        pretext: False leaves out that member, whose networks take minutes to train on many images.
        complexity: False leaves out that member, whose PNG files prevent an ONNX export.
        counts: weights of the members in the sum, in their order; a member with 0 is part of the density only. Defaults
            to 1 for `features`, `bn_moments` and `bn_local`, 4/3 for `pretext`, and 0 for others.
        components: of the mixture. Defaults to 10.
        weight: of the sum of normal scores. Defaults to 1.5, and to 3 for a network. Like `components` and `counts`, it
            was chosen on pseudo-outliers, for networks also on held-out classes (tools/research).
        reference_images: maximum number of images the mixture is fitted to. Defaults to 3,000.
        seed: of the halves and of the mixture's start.

    Example:
        >>> digits = tfbnood.data.load("digits")
        >>> statistic = tfbnood.statistics.get("ensemble", members=["pixel_pca", "pixel_knn"])
        >>> scores = statistic.fit(None, digits.train).score(digits.test)
        >>> bool(statistic.score(255 - digits.test).min() > scores.mean())
        True

    Reference: Density of States Estimation for Out-of-Distribution Detection (Morningstar et al. 2021),
    arXiv:2006.09273.
    """

    name = "ensemble"
    takes = (Likelihood, FeatureExtractor)
    minimum_reference = 20

    def __init__(
        self,
        *,
        members: Sequence[str | Sequence] | None = None,
        pretext: bool = True,
        complexity: bool = True,
        counts: Sequence[float] | None = None,
        components: int = 10,
        weight: float | None = None,
        reference_images: int = 3000,
        seed: int = 0,
    ):
        if components < 1:
            raise StatisticError(
                f"components must be at least 1. Received: components={components}"
            )
        self.members = members
        self.pretext = pretext
        self.complexity = complexity
        self.counts = None if counts is None else tuple(counts)
        self.components = components
        self.weight = weight
        self.reference_images = reference_images
        self.seed = seed
        self._taken: dict[str, EvidenceStatistic] = {}
        for one in members or ():
            _make_member(one)  # Fail now, not at fit time.

    def take(self, member: EvidenceStatistic) -> "Ensemble":
        """Uses a member that is already fitted, to the first of the `shuffled_halves`, instead of its own.

        For `pretext`, whose networks need no model and take minutes: those of one data set serve all its models.
        """
        if member.needs_model or not hasattr(member, "image_shape_"):
            raise StatisticError(
                f"member must need no model and be already fitted. Received: {member.name}"
            )
        self._taken[member.name] = member
        return self

    def _check_model(self, model: Any) -> None:
        if model is not None:  # Pixels alone suffice.
            super()._check_model(model)
        for member in self._make_members(model):
            member._check_model(model)

    def _make_members(self, model: Any) -> list[EvidenceStatistic]:
        """The members that suit a model, not fitted yet, except for given ones."""
        names = self.members or _choose_members(model, self.pretext, self.complexity)
        members = [_make_member(one) for one in names]
        if self.counts is not None and len(self.counts) != len(members):
            raise StatisticError(
                f"counts must be one number for each of {', '.join(one.name for one in members)}. "
                f"Received: counts={self.counts}"
            )
        return [self._taken.get(member.name, member) for member in members]

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        from sklearn.mixture import GaussianMixture

        if isinstance(model, FeatureExtractor) and not batch_normalizations(model):
            warnings.warn(
                "the network has no BatchNormalization layers: the detector uses only its features",
                stacklevel=4,
            )
        self._members = self._make_members(model)
        known, new = self._parts(model, reference)
        for member in self._members:
            if member.name not in self._taken:
                member.fit(model, known)
        self._restore(model)
        images = new[: self.reference_images]
        columns = self.columns(images)
        if not np.isfinite(columns).all():
            raise StatisticError(
                "reference images must have finite scores for ensemble: the model's log_prob must be finite. "
                f"Received: {(~np.isfinite(columns)).any(axis=1).sum()} of {len(images)} images without them"
            )
        self.values_, self.slopes_ = tables(columns)
        points = self._normal_scores(tf.constant(columns, tf.float32))
        mixture = GaussianMixture(
            min(self.components, max(1, len(images) // 50)),
            reg_covar=1e-2,  # Ties leave some members few values; no component may shrink onto one.
            random_state=self.seed,
        ).fit(points.numpy())
        self.log_weights_ = np.log(mixture.weights_).astype(np.float32)
        self.means_ = mixture.means_.astype(np.float32)
        self.precisions_cholesky_ = mixture.precisions_cholesky_.astype(np.float32)

    def _parts(self, model: Any, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images for the members and for the mixture."""
        if not isinstance(model, FeatureExtractor):
            return shuffled_halves(reference, self.seed)
        # The joint density of two or three members needs few images; the members profit from all others.
        order = np.random.RandomState(self.seed).permutation(len(reference))
        cut = len(reference) * 3 // 4
        return reference[order[:cut]], reference[order[cut:]]

    def _restore(self, model: Any) -> None:
        self.need = widest(*(member.need for member in self._members))
        self._weight = self.weight
        if self.weight is None:
            self._weight = _NETWORK_WEIGHT if isinstance(model, FeatureExtractor) else _WEIGHT
        super()._restore(model)

    @property
    def variables(self) -> list[tf.Variable]:
        return [variable for member in self._members for variable in member.variables]

    def member(self, name: str) -> EvidenceStatistic:
        """The first fitted member of this name, to use it alone."""
        for one in self._members:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self._members)
        raise StatisticError(f"name must be one of {names}. Received: {name!r}")

    def columns(self, images: np.ndarray) -> np.ndarray:
        """The members' values for checked images, float64 `[n, columns]`; most have one, their score."""
        self.prepare()
        columns_of = compile_rows(
            lambda batch: tf.concat(self._by_member(gather(self._model, self.need, batch)), axis=1),
            self.image_shape_,
        )
        return columns_of(images, ", ".join(member.name for member in self._members)).astype(
            np.float64
        )

    def explain_members(self, images: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Each member's normal scores for checked images, `[n, members]`, and the members' names."""
        self.prepare()

        def first_columns(batch: tf.Tensor) -> tf.Tensor:
            columns = self._by_member(gather(self._model, self.need, batch))
            points = self._normal_scores(tf.concat(columns, axis=1))
            starts = np.cumsum([0, *(own.shape[1] for own in columns[:-1])])
            return tf.gather(points, starts, axis=1)

        names = [
            f"{one.name}, by quarters" if getattr(one, "grid", 1) == 2 else one.name
            for one in self._members
        ]
        return names, compile_rows(first_columns, self.image_shape_)(images)

    def _fitted_names(self) -> tuple[str, ...]:
        return ("values_", "slopes_", "log_weights_", "means_", "precisions_cholesky_")

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        columns = self._by_member(evidence)
        points = self._normal_scores(tf.concat(columns, axis=1))
        by_member = self.counts or [member.one_sided for member in self._members]
        counts = np.concatenate(
            [
                [count] + [0.0] * (own.shape[1] - 1)
                for count, own in zip(by_member, columns, strict=True)
            ]
        ).astype(np.float32)
        if not counts.any():
            counts = np.ones_like(counts)
        return self._weight * tf.linalg.matvec(points, counts) - self._log_density(points)

    def _by_member(self, evidence: Evidence) -> list[tf.Tensor]:
        """The columns of each."""
        return [member.tensor_columns(evidence) for member in self._members]

    def _normal_scores(self, scores: tf.Tensor) -> tf.Tensor:
        return normal_scores(scores, self.values_, self.slopes_)

    def _log_density(self, points: tf.Tensor) -> tf.Tensor:
        """Log density of the mixture up to a constant, `[n]`."""
        centred = points[:, None, :] - self.means_
        standard = tf.einsum("nkd,kde->nke", centred, self.precisions_cholesky_)
        diagonals = tf.linalg.diag_part(self.precisions_cholesky_)
        log_volumes = tf.reduce_sum(tf.math.log(diagonals), axis=1)
        exponents = -0.5 * tf.reduce_sum(tf.square(standard), axis=2)
        return tf.reduce_logsumexp(self.log_weights_ + log_volumes + exponents, axis=1)

    def get_state(self) -> dict[str, np.ndarray]:
        state = super().get_state()
        for index, member in enumerate(self._members):
            state |= {f"{index}.{key}": value for key, value in member.get_state().items()}
        return state

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        self._check_model(model)
        self._members = self._make_members(model)
        own: dict[str, np.ndarray] = {}
        by_member: list[dict[str, np.ndarray]] = [{} for _ in self._members]
        parts = {str(index): part for index, part in enumerate(by_member)}
        for key, value in state.items():
            index, _, name = key.rpartition(".")
            if index and index not in parts:
                raise StatisticError(f"{self.name} has no {key[:80]!r}")
            (parts[index] if index else own)[name] = value
        super().set_state(model, own)
        for member, part in zip(self._members, by_member, strict=True):
            member.set_state(model, part)


def _choose_members(model: Any, pretext: bool, complexity: bool) -> list[Sequence]:
    """The statistics that a model allows."""
    if isinstance(model, FeatureExtractor):
        if batch_normalizations(model):
            return [("features", {}), ("bn_moments", {"grid": 1})]
        return [("features", {})]
    members: list[Sequence] = [("pixel_pca", {}), ("pixel_knn", {})]
    if isinstance(model, Likelihood):
        members += [("log_prob", {})]
        if complexity:
            members += [("complexity", {})]
        if batch_normalizations(model):
            members += [("bn_moments", {"grid": 1}), ("bn_moments", {"grid": 2})]
    if pretext:
        members += [("pretext", {})]
    return members


def _make_member(description: str | Sequence) -> EvidenceStatistic:
    name, settings = (description, {}) if isinstance(description, str) else tuple(description)
    member: Statistic = registry.get(name, **settings)
    if not isinstance(member, EvidenceStatistic) or isinstance(member, Ensemble):
        raise StatisticError(
            f"members must be statistics of single images in TensorFlow operations. Received: {name!r}"
        )
    return member
