"""Detector = model + statistic + calibration. It only stores and calls: the work is in the modules before it."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood import statistics
from tfbnood._core.images import as_images
from tfbnood._core.units import bits_per_dim
from tfbnood.calibration.batch_tests import batch_p_value, check_batch_test, default_batch_test
from tfbnood.calibration.conformal import (
    Calibration,
    benjamini_hochberg,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
    highest,
)
from tfbnood.data.changes import change, check_changes, mix_changes
from tfbnood.errors import DataError, NotCalibratedError
from tfbnood.networks.network import as_model
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.scoring.frozen import freeze
from tfbnood.statistics.base import EvidenceStatistic, Statistic

__all__ = ["BatchTest", "Detection", "Detector"]

# Of the changes that a detector tolerates: other draws for the fit than for the calibration.
_CHANGE_SEED = 0
_ASSUMED = {
    "image": "every image on its own",
    "batch": "homogeneous batch: the images of a request come from one distribution",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Detection:
    """What `Detector.predict` found, one entry an image.

    Attributes:
        score: higher means more out-of-distribution.
        p_value: share of in-distribution images that would score as high.
        is_ood: the decision.
        bits_per_dim: in evaluation mode; None when the detector has no likelihood model.
        statistic: name of the statistic.
        assumed: what the p-values rest on.
        rule: how p-values became decisions.
        group_size: size of the calibration requests that were compared with.
    """

    score: np.ndarray
    p_value: np.ndarray
    is_ood: np.ndarray
    bits_per_dim: np.ndarray | None
    statistic: str
    assumed: str
    rule: str
    group_size: int

    def __len__(self) -> int:
        return len(self.score)

    def __str__(self) -> str:
        return (
            f"{int(self.is_ood.sum())} of {len(self)} images out-of-distribution by {self.statistic} "
            f"({self.rule}; {self.assumed})"
        )


@dataclasses.dataclass(frozen=True)
class BatchTest:
    """What `Detector.test_batch` found for the whole batch.

    Attributes:
        p_value: share of in-distribution batches that would look as strange.
        score: mean score of the images.
        statistic: name of the statistic.
        method: how the scores of the images became one p-value.
        assumed: what the p-value rests on.
        group_size: size of the calibration requests that were compared with.
    """

    p_value: float
    score: float
    statistic: str
    method: str
    assumed: str
    group_size: int

    def __str__(self) -> str:
        return (
            f"p = {self.p_value:.3g}, the share of in-distribution batches that look as strange, by {self.method} "
            f"of {self.statistic} ({self.assumed})"
        )


class Detector:
    """Tells which images do not belong to the distribution of the reference images.

    Args:
        model: any Keras network, best one with `BatchNormalization` layers: a classifier or an encoder; a
            `tfbnood.networks.Network` says more of its size and features. Or any Keras model with
            `log_prob(images, training=…)` → nats `[n]` of images in 0–255; a list of them for the statistic `waic`;
            None for the pixel statistics.
        statistic: a name or a `Statistic`. Defaults to "auto": `ensemble` for single images and streams, and for whole
            batches a test over its p-values; docs/statistics.md says when to use another.
        reference: in-distribution images, e.g. the training images.
        preprocess: for a plain Keras network that does not have it inside: pixels in 0–255, float32 → what it takes,
            such as `keras.layers.Rescaling(1 / 255)` or `keras.applications.resnet.preprocess_input`.
        tolerate: names of `tfbnood.data.CHANGES` that are no reason for an alarm, such as `("jpeg", "resize")`. The
            statistic is fitted to reference images of which half are changed so, and `calibrate` takes the largest
            p-value over clean and changed images: each kind raises no more alarms than the false-alarm rate allows.
        progress: show a bar on a terminal: "auto" trains small networks of its own, for some minutes on many images.
        **config: settings of a statistic given by name, e.g. `r1=0.0`.

    The detector keeps to the weights that the model has now: training it further calls for a new one.

    Attributes:
        tolerate: the changes that raise no more alarms than the rate allows.
        about: where the model comes from, as JSON-safe values; saved with the detector and shown in results.

    Example:
        >>> detector = tfbnood.Detector(model, reference=x.train[:100]).calibrate(x.calibration)
        >>> detector.predict(255 - x.test[:4], fpr=0.05).is_ood
        array([ True,  True,  True,  True])
    """

    def __init__(
        self,
        model: Any,
        statistic: str | Statistic = "auto",
        *,
        reference: Any,
        preprocess: Callable[[Any], Any] | None = None,
        tolerate: Sequence[str] = (),
        progress: bool = False,
        **config: Any,
    ):
        self.tolerate = check_changes(tolerate)
        chosen = statistics.get(statistic, **config)
        images = as_images(reference, getattr(model, "image_shape", None), name="reference")
        self.model = as_model(model, images.shape[1:], preprocess=preprocess)
        self.reference: np.ndarray | None = images
        if self.tolerate:
            images = mix_changes(images, self.tolerate, seed=_CHANGE_SEED)
        self.statistic = chosen.fit(self.model, images, progress=progress)
        self.about: dict[str, Any] = {}
        self.calibration: Calibration | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`(height, width, channels)` of the images it takes."""
        return self.statistic.image_shape_

    def calibrate(
        self, images: Any, *, group_sizes: tuple[int, ...] | None = None, progress: bool = False
    ) -> "Detector":
        """Learns the scores of held-out in-distribution images: not those that the model was trained on.

        Args:
            images: `[n, height, width, channels]` in 0–255; n bounds the smallest false-alarm rate, 1/(n + 1).
            group_sizes: request sizes that a batch statistic is calibrated for. Defaults to 1, 2, 4, … 64.
            progress: show a bar on a terminal.

        Example:
            >>> detector = tfbnood.Detector(None, "pixel_pca", reference=x.train)
            >>> len(detector.calibrate(x.calibration).p_values(x.test))
            397
        """
        images = as_images(images, self.image_shape, name="held-out images")
        self._check_model()
        found = [
            calibrate(self.statistic, changed, group_sizes=group_sizes, progress=progress)
            for changed in (
                images,
                *(change(images, kind, seed=_CHANGE_SEED + 1) for kind in self.tolerate),
            )
        ]
        self.calibration = highest(found)
        return self

    def score(self, images: Any, *, progress: bool = False) -> np.ndarray:
        """Scores, float64 `[n]`; higher means more out-of-distribution.

        Example:
            >>> bool(detector.score(255 - x.test).min() > detector.score(x.test).max())
            True
        """
        return self._outputs(as_images(images, self.image_shape), progress=progress)["score"]

    def p_values(self, images: Any, *, progress: bool = False) -> np.ndarray:
        """Conformal p-values, `[n]`: small means out-of-distribution, uniform in-distribution.

        Example:
            >>> detector.p_values(255 - x.test[:2]).round(4).tolist()  # 1/301, after 300 calibration images
            [0.0033, 0.0033]
        """
        calibration = self._calibrated("p_values()")
        images = as_images(images, self.image_shape)
        null = calibration.null_of_images(len(images))
        return self._outputs(images, null, progress=progress)["p_value"]

    def rank(self, images: Any, *, progress: bool = False) -> np.ndarray:
        """The paper's T: how many of the N calibration scores lie at or below each image's, integers in [0, N].

        The paper ranks among training images, which the model has fitted; these are held out.

        Example:
            >>> detector.rank(255 - x.test[:2]).tolist()
            [300, 300]
        """
        calibration = self._calibrated("rank()")
        scores = self.score(images, progress=progress)
        return np.searchsorted(calibration.null_of_images(len(scores)), scores, side="right")

    def predict(
        self,
        images: Any,
        *,
        fpr: float | None = None,
        fdr: float | None = None,
        progress: bool = False,
    ) -> Detection:
        """Decides which images are out-of-distribution.

        Args:
            images: `[n, height, width, channels]` in 0–255.
            fpr: false-alarm rate among in-distribution images. Defaults to 0.01 unless `fdr` is given.
            fdr: share of false alarms among the alarms, by Benjamini–Hochberg.
            progress: show a bar on a terminal.

        Example:
            >>> print(detector.predict(255 - x.test[:4], fpr=0.05))
            4 of 4 images out-of-distribution by pixel_pca (false-alarm rate 0.05; every image on its own)
        """
        calibration = self._calibrated("predict()")
        if fpr is not None and fdr is not None:
            raise DataError(f"give fpr or fdr, not both. Received: fpr={fpr}, fdr={fdr}")
        images = as_images(images, self.image_shape)
        null = calibration.null_of_images(len(images))
        level = 0.01 if fpr is None else fpr
        if fdr is None:
            check_false_alarm_rate(level, null)  # before the work, not after
        found = self._outputs(images, null, likelihood=True, progress=progress)
        p_values = found["p_value"]
        return Detection(
            score=found["score"],
            p_value=p_values,
            is_ood=p_values <= level if fdr is None else benjamini_hochberg(p_values, fdr),
            bits_per_dim=found.get("bits_per_dim"),
            statistic=self.statistic.name,
            assumed=_ASSUMED[self.statistic.scope],
            rule=f"false-alarm rate {level:g}" if fdr is None else f"false-discovery rate {fdr:g}",
            group_size=calibration.group_size(len(images)),
        )

    def test_batch(
        self, images: Any, *, method: str | None = None, progress: bool = False
    ) -> BatchTest:
        """One p-value for "this whole batch is in-distribution".

        Args:
            images: the batch, `[n, height, width, channels]` in 0–255.
            method: for a statistic of scope "image" one of `tfbnood.batch_tests.BATCH_TESTS`. Defaults to
                "higher_criticism", which finds most, and for fewer than 10 images to "simes", which also hardly minds
                a batch of one class only. A statistic of scope "batch" has "mean", the mean score.
            progress: show a bar on a terminal.

        Example:
            >>> half = np.concatenate([x.test[:16], 255 - x.test[:16]])
            >>> detector.test_batch(half).p_value < 0.01
            True
        """
        calibration = self._calibrated("test_batch()")
        alone = self.statistic.scope == "image"
        if method is not None:
            check_batch_test(method, self.statistic.scope)
        scores = self.score(images, progress=progress)
        method = method or default_batch_test(self.statistic.scope, len(scores))
        if alone:
            p_value = batch_p_value(scores, calibration.null_of_images(1), method)
        else:
            null = calibration.null_of_batches(len(scores))
            p_value = float(conformal_p_values(scores.mean(), null))
        return BatchTest(
            p_value=p_value,
            score=float(scores.mean()),
            statistic=self.statistic.name,
            method=method,
            assumed=_ASSUMED[self.statistic.scope],
            group_size=calibration.group_size(len(scores)),
        )

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the detector as a folder: Keras weights, JSON and arrays, no pickle; atomically.

        Example:
            >>> detector.save(folder / "detector")
            >>> sorted(path.name for path in (folder / "detector").iterdir())
            ['arrays.npz', 'detector.json', 'model.keras']
        """
        from tfbnood import saving

        self._check_model()
        saving.save(
            folder,
            model=self.model,
            statistic=self.statistic,
            calibration=self.calibration,
            tolerate=self.tolerate,
            about=self.about,
        )

    def export(
        self,
        base: str | os.PathLike,
        *,
        fpr: float = 0.01,
        held_out: Any = None,
        embed: Any = None,
        progress: bool = False,
    ) -> pathlib.Path:
        """Writes `BASE/<next integer>` for TF Serving; see `tfbnood.export.write`.

        Example:
            >>> pixels = tfbnood.Detector(None, "pixel_pca", reference=x.train).calibrate(x.calibration)
            >>> pixels.export(folder / "digits", fpr=0.05).name
            '1'
        """
        from tfbnood.export.write import export

        self._check_model()
        return export(
            base,
            model=freeze(self.model),
            statistic=self.statistic,
            calibration=self.calibration,
            about=self.about,
            tolerate=self.tolerate,
            fpr=fpr,
            held_out=held_out,
            embed=embed,
            progress=progress,
        )

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Detector":
        """Reads what `save` wrote. Models of your own must be registered with Keras before.

        Example:
            >>> detector.save(folder / "detector")
            >>> again = tfbnood.Detector.load(folder / "detector")
            >>> bool((again.p_values(x.test) == detector.p_values(x.test)).all())
            True
        """
        from tfbnood import saving

        parts = saving.load(folder)
        detector = cls.__new__(cls)
        detector.model = parts.model
        detector.statistic = parts.statistic
        detector.calibration = parts.calibration
        detector.tolerate = parts.tolerate
        detector.about = parts.about
        detector.reference = None
        return detector

    def _check_model(self) -> None:
        if isinstance(self.statistic, EvidenceStatistic):
            self.statistic.check_unchanged()

    def _calibrated(self, method: str) -> Calibration:
        if self.calibration is None:
            raise NotCalibratedError(
                f"call calibrate() with held-out in-distribution images before {method}"
            )
        return self.calibration

    def _outputs(
        self,
        images: np.ndarray,
        null: np.ndarray | None = None,
        *,
        likelihood: bool = False,
        progress: bool | None = None,
    ) -> dict[str, np.ndarray]:
        """`score`, with a null `p_value`, and on request, where there is a likelihood, `bits_per_dim`."""
        likelihood = likelihood and isinstance(self.model, Likelihood)
        statistic = self.statistic
        if isinstance(statistic, EvidenceStatistic):
            score = statistic.scorer(likelihood=likelihood)
            found = score(images, null, description=statistic.name, progress=progress)
            return {**found, "score": statistic.checked(found["score"])}
        found = {"score": statistic.score(images, progress=progress)}
        if null is not None:
            found["p_value"] = conformal_p_values(found["score"], null)
        if likelihood:
            if not hasattr(self, "_log_prob"):
                self._log_prob = compile_log_prob(self.model, self.image_shape)
            log_prob = self._log_prob(images, "log p", progress)
            found["bits_per_dim"] = bits_per_dim(log_prob, self.image_shape)
        return found
