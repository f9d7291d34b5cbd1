"""Callbacks for `model.fit`."""

import copy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood._core.images import as_images
from tfbnood._core.sampling import take
from tfbnood._core.stream import sample_images
from tfbnood.errors import DataError, StatisticError
from tfbnood.evaluation.protocol import checked_outliers
from tfbnood.metrics import auroc
from tfbnood.networks.network import as_model
from tfbnood.statistics.base import EvidenceStatistic, Statistic
from tfbnood.statistics.registry import get

if TYPE_CHECKING:
    from tfbnood._core.images import Images

__all__ = ["OodEvaluation"]


class OodEvaluation(keras.callbacks.Callback):
    """Adds `ood_auroc_<set>` to Keras' logs, to show whether longer training improves detection.

    Following the paper's protocol, inliers are scored as one pool and every set of outliers as another. The values
    are in the history and reach callbacks later in the list: TensorBoard, EarlyStopping, ModelCheckpoint. Epochs
    without an evaluation repeat the last value, which EarlyStopping counts as no progress: choose its patience as a
    multiple of `every`. The training's variables and random streams are not touched.

    The model may be any Keras network that takes images in 0–255, such as a classifier; see `Detector`.

    Cost: every evaluation fits the statistic to the current weights. With "auto" that compiles the model again, as
    the first use of a detector does, and runs it over up to 11,000 reference images and over the sets. For large
    models raise `every`, pass fewer reference images, or choose `"bn_delta"`, which is compiled once per training
    and runs over the sets only; it detects outliers that come together, not single ones in a stream.

    Args:
        inliers: held-out in-distribution images, `[m, height, width, channels]` in 0–255. All are scored, up to `n`.
        outliers: out-of-distribution images by name.
        reference: in-distribution images to fit the statistic to, such as the training images; not the inliers, which
            would then score too low.
        every: epochs between evaluations; the first epoch always has one. Defaults to 1.
        statistic: a name or a `Statistic`. Defaults to "auto", which here means `ensemble` with `pretext=False`: every
            evaluation would train the networks of `pretext` again.
        n: maximum number of images per set, chosen at random. Defaults to 256.
        seed: of the random choices.

    Raises:
        DataError: if images, their shapes or a number are invalid.
        StatisticError: if no statistic has that name, or, when training starts, if the statistic cannot use the model.

    Example:
        >>> import keras
        >>> sets = {"inverted": 255 - x.test}
        >>> ood = tfbnood.callbacks.OodEvaluation(x.test, sets, reference=x.train[:64], n=64)
        >>> stop = keras.callbacks.EarlyStopping("ood_auroc_inverted", mode="max", patience=3)
        >>> flow = tfbnood.models.RealNVP((8, 8, 1), channels=2, blocks=0, scales=1)
        >>> flow.compile(run_eagerly=True)  # only here: for one step, compiling takes longer
        >>> history = flow.fit(x.train[:64], callbacks=[ood, stop], verbose=0)
        >>> sorted(history.history)
        ['bits_per_dim', 'loss', 'ood_auroc_inverted']
    """

    def __init__(
        self,
        inliers: "Images",
        outliers: "Mapping[str, Images]",
        *,
        reference: "Images",
        every: int = 1,
        statistic: str | Statistic = "auto",
        n: int = 256,
        seed: int = 0,
    ):
        super().__init__()
        check_integer("every", every, least=1)
        check_integer("n", n, least=1)
        check_integer("seed", seed, least=0)
        inliers = sample_images(inliers, most=n, seed=seed, name="inliers")
        self.every = every
        self.statistic = get("ensemble", pretext=False) if statistic == "auto" else get(statistic)
        self.reference = sample_images(reference, inliers.shape[1:], seed=seed, name="reference")
        if len(self.reference) < self.statistic.minimum_reference:
            raise DataError(
                f"reference must hold at least {self.statistic.minimum_reference} images for statistic="
                f"{self.statistic.name!r}. Received: {len(self.reference)}"
            )
        self.inliers = take(inliers, n, seed)
        sets = checked_outliers(outliers, inliers.shape[1:], most=n, seed=seed)
        self.outliers = {name: take(images, n, seed) for name, images in sets.items()}
        self._fitted: Statistic | None = None
        self._last: dict[str, float] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._last, self._fitted = {}, None
        # Fail now, not after an epoch.
        as_images(self.inliers[:1], getattr(self.model, "image_shape", None), name="inliers")
        try:
            self.statistic._check_model(as_model(self.model, self.inliers.shape[1:]))
        except StatisticError as error:
            raise StatisticError(
                f"statistic must be one that can use the model being trained. "
                f"Received: statistic={self.statistic.name!r} ({error})"
            ) from error

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._last or (epoch + 1) % self.every == 0:
            self._last = self._evaluate()
        if logs is not None:
            logs.update(self._last)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._fitted = None  # Compiled functions hold the model and cannot be copied.

    def _fit(self) -> Statistic:
        # No bar: it would disturb that of Keras.
        return copy.copy(self.statistic).fit(self.model, self.reference, progress=False)

    def _evaluate(self) -> dict[str, float]:
        try:
            with np.errstate(invalid="ignore"):  # inf − inf; the statistic reports it itself
                statistic = self._update_statistic()
                inliers = statistic.score(self.inliers, progress=False)
                return {
                    f"ood_auroc_{name}": _auroc(inliers, statistic.score(images, progress=False))
                    for name, images in self.outliers.items()
                }
        except StatisticError as error:
            # Early weights may give infinite likelihoods: no reason to end the training.
            warnings.warn(f"no out-of-distribution AUROC in this epoch: {error}", stacklevel=2)
            return {f"ood_auroc_{name}": float("nan") for name in self.outliers}

    def _update_statistic(self) -> Statistic:
        """The statistic fitted to the current weights.

        One that learned nothing from them and reads the live variables is kept: a new one would be traced again in
        every epoch.
        """
        if self._fitted is None or self.statistic.needs_model:
            fitted = self._fit()
            frozen = isinstance(fitted, EvidenceStatistic)  # to the weights that it was fitted to
            if self._fitted is None or frozen or not _have_same_state(self._fitted, fitted):
                self._fitted = fitted
        return self._fitted


def _auroc(inliers: np.ndarray, outliers: np.ndarray) -> float:
    is_ood = np.arange(len(inliers) + len(outliers)) >= len(inliers)
    return auroc(is_ood, np.concatenate([inliers, outliers]))


def _have_same_state(one: Statistic, other: Statistic) -> bool:
    first, second = one.get_state(), other.get_state()
    return first.keys() == second.keys() and all(
        np.array_equal(first[key], second[key]) for key in first
    )
