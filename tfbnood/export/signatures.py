"""The functions behind an export's signatures."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.units import bits_per_dim
from tfbnood.calibration.mondrian import Mondrian
from tfbnood.data.formats import decode_image
from tfbnood.export.batch_score import BatchScore
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import in_chunks
from tfbnood.scoring.evidence import gather, widest
from tfbnood.statistics.base import EvidenceStatistic

__all__ = ["Served"]

_SCORES = {
    "score": tf.float32,
    "p_value": tf.float32,
    "is_ood": tf.bool,
    "valid": tf.bool,
}
_LIKELIHOODS = {"log_prob": tf.float32, "bits_per_dim": tf.float32, "valid": tf.bool}


class Served(tf.Module):
    """The functions behind the signatures, and every variable they read.

    Rows are scored in chunks inside the graph, so that the memory of a server does not grow with a request.

    Args:
        model: frozen.
        statistic: fitted.
        null: sorted calibration scores.
        fpr: false-alarm rate.
        batch_score: behind `score_batch`, if there is one.
        within: calibration scores by cluster, for p-values within an image's cluster.
        certified_levels: p-values up to which `is_ood_certified` raises an alarm, by cluster or one for all.

    Attributes:
        outputs: of a row-wise signature, name → type; `bits_per_dim` only for a model with likelihoods.
    """

    def __init__(
        self,
        model: Any,
        statistic: EvidenceStatistic,
        null: np.ndarray,
        fpr: float,
        batch_score: BatchScore | None,
        *,
        within: Mondrian | None = None,
        certified_levels: np.ndarray | None = None,
    ):
        super().__init__(name="tfbnood")
        self.image_shape = statistic.image_shape_
        self.fpr = fpr
        self.has_likelihood = isinstance(model, Likelihood)
        # The trace that the scores use as well. Bound, not stored as a model: TensorFlow would save all it finds.
        self._gather = functools.partial(gather, model, widest(statistic.need, "log_prob"))
        self._within = within
        assign = None if within is None else within.clusters.tensor_assign
        self._scorer = statistic.scorer(likelihood=self.has_likelihood, assign=assign)
        self._null = null
        self._certified_levels = certified_levels
        self.outputs = dict(_SCORES)
        if self.has_likelihood:
            self.outputs["bits_per_dim"] = tf.float32
        if within is not None:
            self.outputs["cluster"] = tf.int32
        if certified_levels is not None:
            self.outputs["is_ood_certified"] = tf.bool
        # TensorFlow saves the variables it finds in a module, but does not look into Keras' containers.
        self._model_variables = [variable.value for variable in getattr(model, "variables", [])]
        self._statistic_variables = statistic.variables
        self._batch_score = batch_score
        self._batch_variables = [] if batch_score is None else batch_score.variables

    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature."""
        floats = tf.TensorSpec((None, *self.image_shape), tf.float32, name="images")
        integers = tf.TensorSpec((None, *self.image_shape), tf.uint8, name="images")
        encoded = tf.TensorSpec((None,), tf.string, name="image_bytes")
        # Traced once for all three: each trace adds to the file.
        checked = [integers, tf.TensorSpec((None,), tf.bool)]
        score = tf.function(self.score, input_signature=checked, autograph=False)

        def by_chunk(function, dtypes):
            return lambda **inputs: in_chunks(function, list(inputs.values()), dtypes)

        scores = self.outputs
        functions = {
            "serving_default": (
                by_chunk(lambda images: score(*self.checked(images)), scores),
                floats,
            ),
            "uint8": (by_chunk(lambda images: score(*self.checked(images)), scores), integers),
            "encoded": (by_chunk(lambda files: score(*self.decoded(files)), scores), encoded),
        }
        if self.has_likelihood:
            log_prob = by_chunk(lambda images: self.log_prob(*self.checked(images)), _LIKELIHOODS)
            functions["log_prob"] = (log_prob, floats)
        if (batch_score := self._batch_score) is not None:
            functions["score_batch"] = (
                lambda images: batch_score.outputs(*self.checked(images), self.fpr),
                floats,
            )
        return {
            name: tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec})
            for name, (function, spec) in functions.items()
        }

    def checked(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Images as uint8, and which rows `as_images` would accept."""
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
        """Images from files' bytes; a file that is not an image becomes a black, invalid one."""
        count = tf.shape(image_bytes)[0]

        # In a graph, only a data set can continue after a file that cannot be decoded: it skips it.
        files = tf.data.Dataset.from_tensor_slices((tf.range(count), image_bytes))
        decoded = files.map(
            lambda row, file: (row, decode_image(file, self.image_shape))
        ).ignore_errors()
        # One extra row, so that there is a batch even if no file can be decoded.
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
        found = self._scorer.outputs(images, tf.constant(self._null, tf.float64))
        p_value = found["p_value"]
        if self._within is not None:
            p_value = self._within.tensor_p_values(found["score"], found["cluster"])

        answer = {
            "score": tf.where(valid, found["score"], tf.constant(self._null[-1], tf.float32)),
            "p_value": tf.cast(tf.where(valid, p_value, 0.0), tf.float32),
            "is_ood": (p_value <= self.fpr) | ~valid,
            "valid": valid,
        }
        if self.has_likelihood:
            answer["bits_per_dim"] = tf.where(valid, found["bits_per_dim"], 0.0)
        if self._within is not None:
            answer["cluster"] = tf.where(valid, found["cluster"], -1)
        if self._certified_levels is not None:
            cluster = found.get("cluster", tf.zeros_like(valid, tf.int32))
            level = tf.gather(tf.constant(self._certified_levels, tf.float64), cluster)
            answer["is_ood_certified"] = (p_value <= level) | ~valid
        return answer

    def log_prob(self, images: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
        """Log-likelihoods in nats."""
        log_prob = self._gather(images).log_prob
        return {
            "log_prob": tf.where(valid, log_prob, 0.0),
            "bits_per_dim": tf.where(valid, bits_per_dim(log_prob, self.image_shape), 0.0),
            "valid": valid,
        }
