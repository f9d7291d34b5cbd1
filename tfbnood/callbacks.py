"""Callbacks for `model.fit`."""

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood._core.images import as_images
from tfbnood._core.sampling import halves, take
from tfbnood.errors import StatisticError
from tfbnood.evaluation.protocol import checked_outliers
from tfbnood.metrics import auroc
from tfbnood.statistics.base import EvidenceStatistic, Statistic
from tfbnood.statistics.registry import get

__all__ = ["OodEvaluation"]


class OodEvaluation(keras.callbacks.Callback):
    """Puts `ood_auroc_<set>` into Keras' logs, so that one sees whether a longer training detects better.

    Inliers are scored as one pool and every set of outliers as another, the paper's protocol. The history has the
    values, and so do callbacks that come after this one in the list: TensorBoard, EarlyStopping, ModelCheckpoint.
    Epochs in between repeat the last value, which EarlyStopping counts as no progress: choose its patience in
    multiples of `every`. No variable and no random stream of the training is touched.

    Args:
        inliers: held-out in-distribution images, `[m, height, width, channels]` in 0–255.
        outliers: out-of-distribution images by name.
        every: epochs from one evaluation to the next; the first epoch always has one. Defaults to 1.
        statistic: a name or a `Statistic`. Defaults to "bn_delta". For "ensemble" give
            `statistics.get("ensemble", pretext=False)`, or every evaluation trains its network again.
        n: images of a set, at most; chosen at random. Defaults to 256.
        reference: in-distribution images to fit the statistic to. Defaults to a random half of the inliers, which
            is left out of the test.
        seed: of the random choices.

    Example:
        >>> import keras
        >>> ood = tfbnood.callbacks.OodEvaluation(x.test, {"inverted": 255 - x.test}, n=64)
        >>> stop = keras.callbacks.EarlyStopping("ood_auroc_inverted", mode="max", patience=3)
        >>> history = model.fit(x.train[:64], callbacks=[ood, stop], verbose=0)
        >>> sorted(history.history)
        ['bits_per_dim', 'loss', 'ood_auroc_inverted']
    """

    def __init__(
        self,
        inliers: Any,
        outliers: Mapping[str, Any],
        *,
        every: int = 1,
        statistic: str | Statistic = "bn_delta",
        n: int = 256,
        reference: Any = None,
        seed: int = 0,
    ):
        super().__init__()
        check_integer("every", every, least=1)
        check_integer("n", n, least=1)
        check_integer("seed", seed, least=0)
        inliers = as_images(inliers, name="inliers")
        if reference is None:
            reference, inliers = halves(inliers, seed)
        self.every = every
        self.statistic = get(statistic)
        self.reference = as_images(reference, inliers.shape[1:], name="reference")
        self.inliers = take(inliers, n, seed)
        self.outliers = {
            name: take(images, n, seed)
            for name, images in checked_outliers(outliers, inliers.shape[1:]).items()
        }
        self._fitted: Statistic | None = None
        self._last: dict[str, float] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._last = {}
        self._fitted = (
            self._fit()
        )  # A statistic that does not go with the model is said before the training.

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._last or (epoch + 1) % self.every == 0:
            self._last = self._evaluate()
        if logs is not None:
            logs.update(self._last)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._fitted = None  # Compiled functions hold the model, and cannot be copied.

    def _fit(self) -> Statistic:
        return copy.copy(self.statistic).fit(self.model, self.reference)

    def _evaluate(self) -> dict[str, float]:
        statistic = self._up_to_date()
        try:
            with np.errstate(invalid="ignore"):  # inf − inf; the statistic says so itself
                inliers = statistic.score(self.inliers)
                return {
                    f"ood_auroc_{name}": _auroc(inliers, statistic.score(images))
                    for name, images in self.outliers.items()
                }
        except StatisticError as error:
            # Early weights may give outliers no finite likelihood: that is no reason to end a training.
            warnings.warn(f"no out-of-distribution AUROC in this epoch: {error}", stacklevel=2)
            return {f"ood_auroc_{name}": float("nan") for name in self.outliers}

    def _up_to_date(self) -> Statistic:
        """The statistic fitted to the present weights.

        One that learned nothing from them and reads the present variables is kept: a new one would be traced again in
        every epoch.
        """
        if self._fitted is None or self.statistic.needs_model:
            fitted = self._fit()
            frozen = isinstance(fitted, EvidenceStatistic)  # to the weights that it was fitted to
            if self._fitted is None or frozen or not _same_state(self._fitted, fitted):
                self._fitted = fitted
        return self._fitted


def _auroc(inliers: np.ndarray, outliers: np.ndarray) -> float:
    is_ood = np.arange(len(inliers) + len(outliers)) >= len(inliers)
    return auroc(is_ood, np.concatenate([inliers, outliers]))


def _same_state(one: Statistic, other: Statistic) -> bool:
    first, second = one.get_state(), other.get_state()
    return first.keys() == second.keys() and all(
        np.array_equal(first[key], second[key]) for key in first
    )
