"""A calibrated detector as a SavedModel version that TF Serving loads: `BASE/<next integer>/`.

Signatures, every output of shape `[n]`:

- `serving_default` (`images` float32) and `uint8` (`images` uint8) → `score`, `p_value`, `is_ood`, `bits_per_dim`,
  `valid`: every row on its own, so that the answer is the same alone, padded, or merged with other clients' rows;
- `encoded` (`image_bytes`, PNG or JPEG) → the same;
- `log_prob` (`images`) → `log_prob`, `bits_per_dim`, `valid`, in evaluation mode;
- `score_batch` (`images`) → `delta`, `p_value`, `is_ood`, `batch_p_value`, `valid`: the paper's Δ with the request as
  the test set; needs server-side batching to be off.

A bad row is no error, which would fail the rows of others: it has `valid` False, `is_ood` True and a p-value of 0.
"""

import hashlib
import json
import math
import os
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood.calibration.conformal import calibrate, check_false_alarm_rate
from tfbnood.scoring.conditional import frozen_log_prob
from tfbnood.detector import Detector
from tfbnood.errors import NotCalibratedError, StatisticError
from tfbnood.scoring.evidence import EvidenceStatistic, gatherer
from tfbnood._core.files import write_json
from tfbnood._core.images import as_images
from tfbnood.scoring.moments import batch_normalizations, log_prob_with_mixed_moments
from tfbnood._core.provenance import versions
from tfbnood.data.readers import decode_image
from tfbnood.export.warmup import write_warmup

__all__ = ["export"]

FORMAT = 1
GROUP_SIZES = (1, 4, 16, 64)


def export(
    detector: Detector,
    base: str | os.PathLike,
    *,
    fpr: float = 0.01,
    held_out: Any = None,
    embed: Any = None,
    progress: bool = False,
) -> pathlib.Path:
    """Writes the next version of a model base, atomically, and returns its folder.

    Args:
        detector: calibrated, with a statistic of single images in TensorFlow operations, such as "auto".
        base: the model base, e.g. `savedmodels/fashion`; made if it is not there.
        fpr: false-alarm rate behind `is_ood`.
        held_out: in-distribution images that neither model nor statistic has seen, to calibrate `score_batch` on;
            without them, or without batch normalisation, that signature is left out.
        embed: reference images to put into the model, so that `score_batch` mixes samples as the paper does. Defaults
            to none, and mixed moments: then no image is inside the export.
        progress: show a bar on a terminal.
    """
    calibration, scorer = detector.calibration, detector.statistic
    if calibration is None:
        raise NotCalibratedError(
            "call calibrate() with held-out in-distribution images before export()"
        )
    if not isinstance(scorer, EvidenceStatistic):
        raise StatisticError(
            'the statistic must score single images in TensorFlow operations to be exported, as "auto" does. '
            f"Received: {scorer.name}"
        )
    null = calibration.null_of_images(1)
    check_false_alarm_rate(fpr, null)
    delta = None
    if held_out is not None and batch_normalizations(detector.model):
        bank = None if embed is None else as_images(embed, detector.image_shape, name="embed")
        delta = _BatchDelta(detector.model, detector.image_shape, bank)
        images = as_images(held_out, detector.image_shape, name="held_out")
        delta.calibrate(images, progress)
    served = _Served(detector.model, scorer, null, fpr, delta)
    base = pathlib.Path(base)
    base.mkdir(parents=True, exist_ok=True)
    _remove_rests(base)
    temporary = base / f".partial-{os.getpid()}"
    try:
        tf.saved_model.save(served, str(temporary), signatures=served.signatures())
        _write_extras(temporary, base.name, _about(detector, null, fpr, delta))
        version = base / str(_next_version(base))
        os.rename(temporary, version)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return version


class _Served(tf.Module):
    """The functions behind the signatures, and every variable they read."""

    def __init__(
        self,
        model: Any,
        statistic: EvidenceStatistic,
        null: np.ndarray,
        fpr: float,
        delta: "_BatchDelta | None",
    ):
        super().__init__(name="tfbnood")
        self.image_shape = statistic.image_shape_
        self.fpr = fpr
        self.has_likelihood = callable(getattr(model, "log_prob", None))
        self._statistic = statistic
        likelihood_too = self.has_likelihood and statistic.need == "pixels"
        self._gather = gatherer(model, "log_prob" if likelihood_too else statistic.need)
        self._null = tf.constant(null, tf.float32)
        # TensorFlow saves the variables of a module that it finds; Keras' own containers it does not look into.
        self._model_variables = [variable.value for variable in getattr(model, "variables", [])]
        self._statistic_variables = statistic.variables
        self._delta = delta

    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature."""
        floats = tf.TensorSpec((None, *self.image_shape), tf.float32, name="images")
        integers = tf.TensorSpec((None, *self.image_shape), tf.uint8, name="images")
        encoded = tf.TensorSpec((None,), tf.string, name="image_bytes")
        # Traced once for the three of them: each trace is in the file.
        checked = [integers, tf.TensorSpec((None,), tf.bool)]
        score = tf.function(self.score, input_signature=checked, autograph=False)
        functions = {
            "serving_default": (lambda images: score(*self.checked(images)), floats),
            "uint8": (lambda images: score(*self.checked(images)), integers),
            "encoded": (lambda image_bytes: score(*self.decoded(image_bytes)), encoded),
        }
        if self.has_likelihood:
            functions["log_prob"] = (lambda images: self.log_prob(*self.checked(images)), floats)
        if (delta := self._delta) is not None:
            functions["score_batch"] = (
                lambda images: delta.outputs(*self.checked(images), self.fpr),
                floats,
            )
        return {
            name: tf.function(function, autograph=False).get_concrete_function(spec)
            for name, (function, spec) in functions.items()
        }

    def checked(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Images as uint8, and which rows hold what `tfbnood.images.as_images` would take."""
        # The server does not check shapes: `[[5]]` would broadcast to a wrong score.
        images = tf.ensure_shape(images, (None, *self.image_shape))
        values = tf.cast(images, tf.float32)
        axes = [1, 2, 3]
        finite = tf.reduce_all(tf.math.is_finite(values), axis=axes)
        values = tf.where(finite[:, None, None, None], values, 0.0)
        low, high = tf.reduce_min(values, axis=axes), tf.reduce_max(values, axis=axes)
        in_range = (low >= 0) & (high <= 255)
        in_0_to_1 = (high > 0) & (high <= 1)
        valid = finite & in_range & ~in_0_to_1
        values = tf.where(valid[:, None, None, None], values, 0.0)
        return tf.cast(tf.round(values), tf.uint8), valid

    def decoded(self, image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Images from files' bytes; a file that is none is a black image that is not valid."""
        count = tf.shape(image_bytes)[0]

        # A data set is the only way in a graph to go on after a file that cannot be decoded: it leaves those out.
        files = tf.data.Dataset.from_tensor_slices((tf.range(count), image_bytes))
        decoded = files.map(
            lambda row, file: (row, decode_image(file, self.image_shape))
        ).ignore_errors()
        # One row more, so that there is a batch even if no file can be decoded.
        blank = tf.data.Dataset.from_tensors((count, tf.zeros(self.image_shape, tf.uint8)))
        batches = decoded.concatenate(blank).batch(tf.cast(count, tf.int64) + 1)
        rows, images = batches.get_single_element()
        shape = tf.concat([[count + 1], self.image_shape], axis=0)
        images = tf.scatter_nd(rows[:, None], tf.cast(images, tf.int32), shape)[:count]
        valid = tf.scatter_nd(rows[:, None], tf.ones_like(rows), [count + 1])[:count] > 0
        images = tf.ensure_shape(tf.cast(images, tf.uint8), (None, *self.image_shape))
        return images, valid

    def score(self, images: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of a row-wise signature."""
        evidence = self._gather(images)
        score = self._statistic.tensor_score(evidence)
        p_value = _conformal(score, self._null)
        return {
            "score": tf.where(valid, score, self._null[-1]),
            "p_value": tf.where(valid, p_value, 0.0),
            "is_ood": (p_value <= self.fpr) | ~valid,
            "bits_per_dim": self._bits(evidence.log_prob, valid),
            "valid": valid,
        }

    def log_prob(self, images: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
        """Log-likelihoods in nats."""
        log_prob = self._gather(images).log_prob
        return {
            "log_prob": tf.where(valid, log_prob, 0.0),
            "bits_per_dim": self._bits(log_prob, valid),
            "valid": valid,
        }

    def _bits(self, log_prob: Any, valid: tf.Tensor) -> tf.Tensor:
        if log_prob is None:
            return tf.zeros_like(valid, tf.float32)
        return tf.where(valid, -log_prob / (math.prod(self.image_shape) * math.log(2)), 0.0)


class _BatchDelta:
    """Δ of a request, which is one group, with mixed moments or with a bank of reference images.

    Rows that are not valid have no weight in mixed moments, and are reference images among mixed samples.
    No `tf.Module`: TensorFlow would find the functions in it and save each of them once more.
    """

    scope = "batch"  # with `score` all that `calibrate` needs to know of a statistic

    def __init__(self, model: Any, image_shape: tuple[int, int, int], bank: np.ndarray | None):
        self._ratios = (0.1, 0.9)
        self._bank = bank
        self._mixed, self._frozen = log_prob_with_mixed_moments(model), frozen_log_prob(model)
        specs = [tf.TensorSpec((None, *image_shape), tf.uint8), tf.TensorSpec((None,), tf.bool)]
        self._delta = tf.function(self._delta_of, input_signature=specs, autograph=False)

    def score(self, images: np.ndarray) -> np.ndarray:
        """Δ of a request of valid images."""
        return self._delta(images, np.ones(len(images), bool)).numpy().astype(np.float64)

    def calibrate(self, images: np.ndarray, progress: bool) -> None:
        """Learns the nulls of requests of several sizes."""
        self.sizes = tuple(size for size in GROUP_SIZES if 2 * size <= len(images))
        found = calibrate(self, images, group_sizes=self.sizes, progress=progress)
        self._images = _Nulls([found.image_scores[size] for size in self.sizes])
        self._batches = _Nulls([found.batch_scores[size] for size in self.sizes])

    def outputs(self, images: tf.Tensor, valid: tf.Tensor, fpr: float) -> dict[str, tf.Tensor]:
        """The outputs of `score_batch`."""
        delta = self._delta(images, valid)
        weights = tf.cast(valid, tf.float32)
        count = tf.reduce_sum(weights)
        # The largest calibrated size that the request has.
        index = tf.searchsorted(tf.constant(self.sizes, tf.float32), [count], side="right")[0] - 1
        index = tf.maximum(index, 0)
        p_value = _conformal(delta, self._images.of(index))
        mean = tf.reduce_sum(weights * delta) / tf.maximum(count, 1)
        batch_p_value = _conformal(mean[None], self._batches.of(index))[0]
        return {
            "delta": delta,
            "p_value": tf.where(valid, p_value, 0.0),
            "is_ood": (p_value <= fpr) | ~valid,
            "batch_p_value": tf.fill(tf.shape(delta), batch_p_value),
            "valid": valid,
        }

    def _delta_of(self, images: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        mix = self._with_moments if self._bank is None else self._with_samples
        low, high = (mix(images, valid, ratio) for ratio in self._ratios)
        return tf.where(valid, tf.abs(low - high), 0.0)

    def _with_moments(self, images: tf.Tensor, valid: tf.Tensor, ratio: float) -> tf.Tensor:
        weights = tf.cast(valid, tf.float32)
        weights /= tf.maximum(tf.reduce_sum(weights), 1)
        return self._mixed(images, weights, tf.constant(ratio, tf.float32))

    def _with_samples(self, images: tf.Tensor, valid: tf.Tensor, ratio: float) -> tf.Tensor:
        bank, count = tf.constant(self._bank), tf.shape(images)[0]
        size = tf.shape(bank)[0]
        images = tf.where(
            valid[:, None, None, None], images, tf.gather(bank, tf.range(count) % size)
        )
        others = tf.cast(tf.round(tf.cast(count, tf.float32) * (1 / ratio - 1)), tf.int32)
        companions = tf.gather(bank, tf.range(tf.maximum(others, 1)) % size)
        return self._frozen(tf.concat([images, companions], axis=0), True)[:count]


class _Nulls:
    """Sorted calibration scores of several group sizes in one tensor."""

    def __init__(self, scores: list[np.ndarray]):
        self._flat = np.concatenate(scores).astype(np.float32)
        self._ends = np.cumsum([len(one) for one in scores])

    def of(self, index: tf.Tensor) -> tf.Tensor:
        ends = tf.constant([0, *self._ends], tf.int32)
        return tf.constant(self._flat)[ends[index] : ends[index + 1]]


def _conformal(scores: tf.Tensor, null: tf.Tensor) -> tf.Tensor:
    """P = (1 + #{null ≥ score}) / (n + 1)."""
    count = tf.shape(null)[0]
    at_least = count - tf.searchsorted(null, scores, side="left")
    return tf.cast(1 + at_least, tf.float32) / tf.cast(1 + count, tf.float32)


def _about(
    detector: Detector, null: np.ndarray, fpr: float, delta: _BatchDelta | None
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "statistic": detector.statistic.name,
        "config": detector.statistic.get_config(),
        "image_shape": list(detector.image_shape),
        "fpr": fpr,
        "threshold": float(np.quantile(null, 1 - fpr, method="higher")),
        "calibration_images": len(null),
        "batch_group_sizes": None if delta is None else list(delta.sizes),
        "embedded_reference_images": 0
        if delta is None or delta._bank is None
        else len(delta._bank),
        "about": detector.about,
        "versions": versions(),
    }


def _write_extras(folder: pathlib.Path, name: str, about: dict[str, Any]) -> None:
    """A warm-up request, and what the model is, with a hash of every file."""
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    extra = folder / "assets.extra"
    extra.mkdir()
    zeros = np.zeros((1, *about["image_shape"]), np.float32)
    write_warmup(extra / "tf_serving_warmup_requests", name, {"serving_default": {"images": zeros}})
    content = {**about, "sha256": hashes}
    write_json(extra / "detector.json", json.loads(json.dumps(content, default=str)))


def _next_version(base: pathlib.Path) -> int:
    numbers = [int(path.name) for path in base.iterdir() if re.fullmatch(r"\d+", path.name)]
    return max(numbers, default=0) + 1


def _remove_rests(base: pathlib.Path) -> None:
    """Removes what exports have left that were killed; no server loads it, for its name is no number."""
    for path in base.glob(".partial-*"):
        shutil.rmtree(path, ignore_errors=True)
