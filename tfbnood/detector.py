"""Detector = model + statistic + calibration. It stores and delegates; other modules do the work."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.progress import showing
from tfbnood._core.stream import ImageStream, as_chunks, sample_images
from tfbnood.calibration.batch_tests import check_batch_test, default_batch_test
from tfbnood.calibration.clusters import check_count, find_clusters
from tfbnood.calibration.conformal import Calibration, benjamini_hochberg
from tfbnood.calibration.passes import (
    alarm_levels,
    calibrate_with_changes,
    outputs,
    request_size,
    thresholds,
)
from tfbnood.calibration.whole_batch import assess_batch, check_forgiving
from tfbnood.data.changes import mix_changes
from tfbnood.data.own import share_for_calibration
from tfbnood.detection import BatchTest, Detection, Watch, order_evidence
from tfbnood.errors import DataError, NotCalibratedError
from tfbnood.estimator import Estimator
from tfbnood.networks.network import as_model
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.scoring.frozen import freeze
from tfbnood.statistics.base import EvidenceStatistic, Statistic

if TYPE_CHECKING:
    from tfbnood._core.images import Images
    from tfbnood.estimator import Model

__all__ = ["BatchTest", "Detection", "Detector"]

# Seed of the tolerated changes in the fit; the calibration uses 1, so that the draws differ.
_CHANGE_SEED = 0
_ASSUMED = {
    "image": "every image on its own",
    "batch": "homogeneous batch: the images of a request come from one distribution",
    "within": "every image on its own, among calibration images of its cluster",
}


class Detector(Estimator):
    """Finds images that do not belong to the distribution of the reference images.

    `images` may be arrays, lists of arrays or of Pillow images, `tf.data.Dataset`s and generators of images or
    batches; values in 0–255. Data sets and generators are read chunk by chunk, in constant memory, while earlier
    chunks are scored. For a statistic of scope "batch" every 64 of their images form one request.

    Args:
        model: any Keras network, preferably one with `BatchNormalization` layers: a classifier or an encoder; a
            `tfbnood.networks.Network` also sets its size and features. Or any Keras model with
            `log_prob(images, training=…)` → nats `[n]` of images in 0–255; a list of them for the statistic `waic`;
            None for the pixel statistics.
        statistic: a name or a `Statistic`; a fitted one is used as it is if there is no reference. Defaults to "auto":
            `ensemble` for single images and streams, and a test of its p-values for whole batches; docs/statistics.md
            explains when to use another.
        reference: in-distribution images, e.g. the training images; from a data set or generator, a random sample of at
            most 10,000 images and 1 GB is used. Without a reference call `fit`.
        preprocess: for a plain Keras network without built-in preprocessing: a function from float32 pixels in 0–255 to
            its input, such as `keras.layers.Rescaling(1 / 255)` or `keras.applications.resnet.preprocess_input`.
        tolerate: names of `tfbnood.data.CHANGES` that must not raise alarms, such as `("jpeg", "resize")`. Half of the
            reference images are changed in these ways before the statistic is fitted, and `calibrate` takes the largest
            p-value over clean and changed images: no kind raises more alarms than the false-alarm rate allows.
        progress: show a bar, here and in all methods: True at once, False never. Defaults to a bar after two seconds,
            on a terminal or in a notebook: "auto" trains small networks, which takes minutes for many images.
        **config: settings of a statistic given by name, e.g. `r1=0.0`.

    The detector keeps the model's current weights; after further training, make a new detector.

    It follows scikit-learn's estimators (`fit`, `score_samples`, `decision_function`, `get_params`) and can be the
    last step of a `Pipeline`. `tfbnood.outlier_detector.OutlierDetector` also has their `predict`, which gives ±1.

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
        model: "Model",
        statistic: str | Statistic = "auto",
        *,
        reference: "Images | None" = None,
        preprocess: Callable[[Any], Any] | None = None,
        tolerate: Sequence[str] = (),
        progress: bool | None = None,
        **config: Any,
    ):
        self.about = {}
        self._set(model, statistic, preprocess=preprocess, tolerate=tolerate, **config)
        if reference is not None:
            shape = getattr(model, "image_shape", None)
            self._fit(sample_images(reference, shape, name="reference"), progress)
        elif self._is_fitted:
            self.model = as_model(model, self.image_shape, preprocess=preprocess)

    def fit(
        self,
        images: "Images",
        y: Any = None,
        *,
        calibration: "Images | None" = None,
        clusters: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> "Detector":
        """Fits the statistic to most of the images and calibrates on the others.

        A random quarter of the images, but at most 200, or a tenth if that is more, is held out for calibration: 150 of
        600. The default false-alarm rate is then 0.02; with 299 or more calibration images it is 0.01. From a data set
        or generator, a random sample of at most 10,000 images and 1 GB is used.

        The model must not have been trained on the held-out images: it would know them, and alarms would be too
        frequent. If it was trained on `images`, pass other images as `calibration`.

        Args:
            images: in-distribution.
            y: ignored; scikit-learn passes it.
            calibration: held-out in-distribution images; then none are taken from `images`.
            clusters: as for `calibrate`.
            seed: of the choice of images.
            progress: as for the class.

        Example:
            >>> detector = tfbnood.Detector(None, "pixel_pca").fit(x.train[:600])
            >>> detector.calibration
            <Calibration: 150 scores, false-alarm rates from 0.0066>
        """
        shape = getattr(self._given["model"], "image_shape", None)
        reference = sample_images(images, shape, seed=seed)
        held_out: np.ndarray | ImageStream
        if calibration is None:
            count = share_for_calibration(len(reference))
            if count < 2:
                raise DataError(
                    "images must be at least 8, of which 2 are held out; or pass calibration=held_out_images. "
                    f"Received: {len(reference)} images"
                )
            order = np.random.RandomState(seed).permutation(len(reference))
            held_out = reference[np.sort(order[:count])]
            reference = reference[np.sort(order[count:])]
        else:
            held_out = as_chunks(calibration, reference.shape[1:], name="calibration")
        check_count(clusters)
        self._fit(reference, progress)
        return self._calibrate(held_out, progress, clusters)

    def calibrate(
        self,
        images: "Images",
        *,
        group_sizes: tuple[int, ...] | None = None,
        clusters: int | None = None,
        reference: "Images | None" = None,
        progress: bool | None = None,
    ) -> "Detector":
        """Learns the scores of held-out in-distribution images, on which the model was not trained.

        Args:
            images: the smallest possible false-alarm rate is 1/(n + 1) for n images. A statistic of scope "batch" uses
                a random sample of at most 10,000 images and 1 GB of a data set or generator.
            group_sizes: request sizes that a batch statistic is calibrated for. Defaults to 1, 2, 4, … 64.
            clusters: number of clusters to find in the reference images, without labels. P-values are then computed
                within each image's cluster: the false-alarm rate holds in every cluster, and `test_batch` ignores a
                change of their shares. Needs that many times more images; 10 is a good start. Defaults to none.
            reference: images to find clusters in, for a loaded detector. Defaults to those it was fitted to.
            progress: as for the class.

        Example:
            >>> detector = tfbnood.Detector(None, "pixel_pca", reference=x.train)
            >>> len(detector.calibrate(x.calibration).p_values(x.test))
            397
        """
        read = as_chunks if self.statistic.scope == "image" else sample_images
        held_out = read(images, self.image_shape, name="held-out images")
        self._check_model()
        if reference is not None:
            reference = sample_images(reference, self.image_shape, name="reference")
        return self._calibrate(held_out, progress, clusters, reference, group_sizes)

    def score(self, images: "Images", y: Any = None, *, progress: bool | None = None) -> np.ndarray:
        """Scores, float64 `[n]`; higher means more out-of-distribution. `y` is ignored; scikit-learn passes it.

        Example:
            >>> bool(detector.score(255 - x.test).min() > detector.score(x.test).max())
            True
        """
        read = as_chunks(images, self.image_shape)
        return outputs(self.statistic, read, progress=progress)["score"]

    def score_samples(self, images: "Images", *, progress: bool | None = None) -> np.ndarray:
        """`−score`, `[n]`: scikit-learn's sign, in which lower means more out-of-distribution.

        Example:
            >>> bool((detector.score_samples(x.test) == -detector.score(x.test)).all())
            True
        """
        return -self.score(images, progress=progress)

    def decision_function(
        self, images: "Images", *, fpr: float | None = None, progress: bool | None = None
    ) -> np.ndarray:
        """The alarm threshold minus the image's score, `[n]`: negative for an alarm, as in scikit-learn.

        `decision < 0` is `predict(images, fpr=fpr).is_ood`.

        Example:
            >>> bool((detector.decision_function(255 - x.test) < 0).all())
            True
        """
        calibration = self._calibrated("decision_function()")
        read = as_chunks(images, self.image_shape)
        size, within = request_size(read), calibration.within
        begin = thresholds(calibration, size, alarm_levels(calibration, size, fpr)[0])
        found = outputs(self.statistic, read, within=within, progress=progress)
        return begin[found.get("cluster", 0)] - found["score"]

    def p_values(self, images: "Images", *, progress: bool | None = None) -> np.ndarray:
        """Conformal p-values, `[n]`: small if out-of-distribution, uniformly distributed if in-distribution.

        Example:
            >>> detector.p_values(255 - x.test[:2]).round(4).tolist()  # 1/301, after 300 calibration images
            [0.0033, 0.0033]
        """
        calibration = self._calibrated("p_values()")
        read = as_chunks(images, self.image_shape)
        null = calibration.null_of_images(request_size(read))
        found = outputs(self.statistic, read, null, within=calibration.within, progress=progress)
        return found["p_value"]

    def rank(self, images: "Images", *, progress: bool | None = None) -> np.ndarray:
        """The paper's T: how many of the N calibration scores lie at or below each image's, integers in [0, N].

        The paper ranks among training images, which the model was fitted to; these are held out.

        Example:
            >>> detector.rank(255 - x.test[:2]).tolist()
            [300, 300]
        """
        calibration = self._calibrated("rank()")
        scores = self.score(images, progress=progress)
        return np.searchsorted(calibration.null_of_images(len(scores)), scores, side="right")

    def predict(
        self,
        images: "Images",
        *,
        fpr: float | None = None,
        confidence: float | None = None,
        fdr: float | None = None,
        progress: bool | None = None,
    ) -> Detection:
        """Decides which images are out-of-distribution.

        Args:
            images: any number.
            fpr: false-alarm rate among in-distribution images, on average over calibration sets; after a calibration
                within clusters, the rate in each of them. Defaults to 0.01, or to 0.02, 0.05, … with fewer than 299
                calibration images, unless `fdr` is given.
            confidence: if given, the rate of this very detector is at most `fpr` with this confidence, such as 0.95,
                over the draw of the calibration images (`tfbnood.calibration.certificates`). Raises fewer alarms, and a
                rate of 0.01 needs 299 calibration images.
            fdr: share of false alarms among the alarms, by Benjamini–Hochberg.
            progress: as for the class.

        Example:
            >>> print(detector.predict(255 - x.test[:4], fpr=0.05))
            4 of 4 images out-of-distribution by pixel_pca (false-alarm rate 0.05; every image on its own)
            >>> detector.predict(255 - x.test[:4], fpr=0.05, confidence=0.95).rule
            'false-alarm rate at most 0.05 with 95 % confidence'
        """
        calibration = self._calibrated("predict()")
        if fdr is not None and (fpr is not None or confidence is not None):
            raise DataError(
                "give fpr or fdr, not both; confidence goes with fpr. "
                f"Received: fpr={fpr}, confidence={confidence}, fdr={fdr}"
            )
        read = as_chunks(images, self.image_shape)
        size = request_size(read)
        null = calibration.null_of_images(size)
        if fdr is not None:
            levels, rule = np.zeros(1), f"false-discovery rate {fdr:g}"
        else:  # Fail before the work, not after it.
            levels, rule = alarm_levels(calibration, size, fpr, confidence=confidence)
        watch = Watch()
        found = outputs(
            self.statistic,
            read,
            null,
            within=calibration.within,
            log_prob=self._log_prob(),
            watch=watch.add,
            progress=progress,
        )
        p_values, cluster = found["p_value"], found.get("cluster")
        rows = np.arange(len(p_values))
        alarms = p_values <= levels[0 if cluster is None or fdr is not None else cluster]
        return Detection(
            score=found["score"],
            p_value=p_values,
            is_ood=alarms if fdr is None else benjamini_hochberg(p_values, fdr),
            bits_per_dim=found.get("bits_per_dim"),
            statistic=self.statistic.name,
            assumed=_ASSUMED["within" if cluster is not None else self.statistic.scope],
            rule=rule,
            group_size=calibration.group_size(size),
            rows=rows,
            pictures=None if watch.pictures is None else watch.pictures.within(rows),
            cluster=cluster,
        )

    def explain(self, images: "Images", *, progress: bool | None = None) -> np.ndarray:
        """Where images are unusual: heat maps, float32 `[n, height, width]`, by `tfbnood.statistics.where.explain`.

        Example:
            >>> detector.explain(255 - x.test[:2]).shape
            (2, 8, 8)
        """
        from tfbnood.statistics.where import explain

        _ = self.image_shape  # Refuses a detector that is not fitted.
        return explain(self.statistic, images, progress=progress)  # type: ignore[arg-type]

    def test_batch(
        self,
        images: "Images",
        *,
        method: str | None = None,
        forgive_mix: bool | None = None,
        progress: bool | None = None,
    ) -> BatchTest:
        """Tests whether the whole batch is in-distribution: one p-value, and the images that speak against it.

        Args:
            images: the batch.
            method: for a statistic of scope "image", one of `tfbnood.batch_tests.BATCH_TESTS`. Defaults to
                "higher_criticism", which finds most, and for fewer than 10 images to "simes", which is also robust to
                single-class batches. A statistic of scope "batch" has "mean", the mean score.
            forgive_mix: ignore that the shares of the clusters differ from those among the calibration images.
                Defaults to True after `calibrate(…, clusters=…)`, which it needs, and to False otherwise.
            progress: as for the class.

        Example:
            >>> half = np.concatenate([x.test[:16], 255 - x.test[:16]])
            >>> detector.test_batch(half).p_value < 0.01, detector.test_batch(half).evidence[0].row >= 16
            (True, True)
        """
        calibration = self._calibrated("test_batch()")
        forgiving = check_forgiving(calibration, forgive_mix)
        if method is not None:
            check_batch_test(method, self.statistic.scope)
        read = as_chunks(images, self.image_shape)
        within = calibration.within if forgiving else None
        found = outputs(self.statistic, read, within=within, progress=progress)
        scores, scope = found["score"], self.statistic.scope
        method = method or default_batch_test(scope, len(scores))
        p_value, p_values, contribution = assess_batch(
            self.statistic, read, scores, found.get("cluster"), calibration, method
        )
        return BatchTest(
            p_value=p_value,
            score=float(scores.mean()),
            statistic=self.statistic.name,
            method=method,
            assumed=_ASSUMED["within" if forgiving else scope],
            group_size=calibration.group_size(len(scores)),
            evidence=order_evidence(p_values, contribution),
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
        fpr: float | None = None,
        confidence: float | None = None,
        held_out: "Images | None" = None,
        embed: "Images | None" = None,
        progress: bool | None = None,
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
            confidence=confidence,
            held_out=held_out,
            embed=embed,
            progress=progress,  # type: ignore[arg-type]
        )

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Detector":
        """Reads what `save` wrote. Register your own models with Keras first.

        Example:
            >>> detector.save(folder / "detector")
            >>> again = tfbnood.Detector.load(folder / "detector")
            >>> bool((again.p_values(x.test) == detector.p_values(x.test)).all())
            True
        """
        from tfbnood import saving

        parts = saving.load(folder)
        detector = cls(
            parts.model,
            parts.statistic.name,
            tolerate=parts.tolerate,
            **parts.statistic.get_config(),
        )
        detector.model, detector.statistic = parts.model, parts.statistic
        detector.calibration, detector.about = parts.calibration, parts.about
        return detector

    def _fit(self, images: np.ndarray, progress: bool | None) -> None:
        self._set(**self._given)
        shape = images.shape[1:]
        self.model = as_model(self._given["model"], shape, preprocess=self._given["preprocess"])
        self.reference = images
        if self.tolerate:
            images = mix_changes(images, self.tolerate, seed=_CHANGE_SEED)
        self.statistic = self.statistic.fit(self.model, images, progress=progress)

    def _calibrate(
        self,
        held_out: np.ndarray | ImageStream,
        progress: bool | None,
        clusters: int | None,
        reference: np.ndarray | None = None,
        group_sizes: tuple[int, ...] | None = None,
    ) -> "Detector":
        images = self.reference if reference is None else reference
        with showing(progress):
            within = find_clusters(self.statistic, images, clusters)
            self.calibration = calibrate_with_changes(
                self.statistic, held_out, self.tolerate, group_sizes=group_sizes, clusters=within
            )
        return self

    def _check_model(self) -> None:
        if isinstance(self.statistic, EvidenceStatistic):
            self.statistic.check_unchanged()

    def _calibrated(self, method: str) -> Calibration:
        _ = self.image_shape  # Refuses a detector that is not fitted.
        if self.calibration is None:
            raise NotCalibratedError(
                f"call calibrate() with held-out in-distribution images before {method}"
            )
        return self.calibration

    def _log_prob(self) -> Callable[..., Any] | None:
        """Log-likelihoods under the model, if it has any; compiled once."""
        if isinstance(self.model, Likelihood) and self._compiled_log_prob is None:
            self._compiled_log_prob = compile_log_prob(self.model, self.image_shape)
        return self._compiled_log_prob
