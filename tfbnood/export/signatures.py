"""The functions behind an export's signatures."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood.data.formats import decode_image
from tfbnood.export.batch_delta import BatchDelta
from tfbnood.scoring.evidence import gatherer
from tfbnood.statistics.base import EvidenceStatistic

__all__ = []


class Served(tf.Module):
    """The functions behind the signatures, and every variable they read."""

    def __init__(
        self,
        model: Any,
        statistic: EvidenceStatistic,
        null: np.ndarray,
        fpr: float,
        delta: "BatchDelta | None",
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


def _conformal(scores: tf.Tensor, null: tf.Tensor) -> tf.Tensor:
    """P = (1 + #{null ≥ score}) / (n + 1)."""
    count = tf.shape(null)[0]
    at_least = count - tf.searchsorted(null, scores, side="left")
    return tf.cast(1 + at_least, tf.float32) / tf.cast(1 + count, tf.float32)
