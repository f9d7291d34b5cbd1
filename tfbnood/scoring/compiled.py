"""One compiled function for all uses: any number of images in, scores and likelihoods out, in one pass.

Rows are independent here, so that nothing is padded: the batch axis is `None`, and one trace serves any number of
images.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood._core.units import bits_per_dim
from tfbnood.protocols import Likelihood
from tfbnood.scoring.evidence import Evidence, Need, gather, widest

__all__ = ["CHUNK", "Scorer", "compile_log_prob", "compile_rows", "in_chunks", "p_values"]

# Images per pass: the batch size of the models; memory grows with it.
CHUNK = 64


class Scorer:
    """Images → score, p-value, log p and bits per dimension: what `Detector`, `evaluate` and an export all call.

    Args:
        model: the model behind the scores; None if pixels suffice.
        need: what `tensor_score` uses of an `Evidence`.
        tensor_score: evidence → scores, `[n]`, or `[n, k]` of several statistics.
        image_shape: `(height, width, channels)`.
        likelihood: also return log p, even if the scores do not need it.
        assign: evidence → the cluster of every image, int32 `[n]`; becomes `cluster` of the outputs.
    """

    def __init__(
        self,
        model: Any,
        need: Need,
        tensor_score: Callable[[Evidence], tf.Tensor],
        image_shape: Sequence[int],
        *,
        likelihood: bool,
        assign: Callable[[Evidence], tf.Tensor] | None = None,
    ):
        self._assign = assign
        self._model = model
        self._need = widest(need, "log_prob") if likelihood else need
        self._tensor_score = tensor_score
        self._image_shape = tuple(image_shape)
        images = tf.TensorSpec((None, *image_shape), tf.uint8, name="images")
        null = tf.TensorSpec((None,), tf.float64, name="null")
        # One trace, shared by the signatures of an export.
        self.outputs = tf.function(self._outputs, input_signature=[images, null], autograph=False)

    def __call__(
        self,
        images: np.ndarray,
        null: np.ndarray | None = None,
        *,
        description: str = "",
        progress: bool | None = None,
    ) -> dict[str, np.ndarray]:
        """Scores any number of checked images, in constant memory.

        Args:
            images: uint8 `[n, height, width, channels]`.
            null: sorted calibration scores, for p-values.
            description: for the progress bar.
            progress: show a bar on a terminal.
        """
        scores = tf.constant([] if null is None else null, tf.float64)
        found = map_batches(
            lambda batch: self.outputs(batch, scores),
            images,
            batch_size=CHUNK,
            complete=False,
            description=description,
            progress=progress,
        )
        if null is None:
            del found["p_value"]
        return {**found, "score": found["score"].astype(np.float64)}

    def _outputs(self, images: tf.Tensor, null: tf.Tensor) -> dict[str, tf.Tensor]:
        evidence = gather(self._model, self._need, images)
        score = self._tensor_score(evidence)
        found = {"score": score, "p_value": p_values(score, null)}
        if self._assign is not None:
            found["cluster"] = self._assign(evidence)
        if evidence.log_prob is not None:
            found["log_prob"] = evidence.log_prob
            found["bits_per_dim"] = bits_per_dim(evidence.log_prob, self._image_shape)
        return found


def compile_rows(function: Callable, image_shape: Sequence[int]) -> Callable[..., Any]:
    """Compiles `images → rows` for any number of images; the result maps arrays to arrays.

    Args:
        function: uint8 images `[n, height, width, channels]` → a tensor `[n, …]` or a dict of them; rows are
            independent.
        image_shape: `(height, width, channels)`.
    """
    images = tf.TensorSpec((None, *image_shape), tf.uint8, name="images")
    compiled = tf.function(function, input_signature=[images], autograph=False)

    def rows(images: np.ndarray, description: str = "", progress: bool | None = None) -> Any:
        return map_batches(
            compiled,
            images,
            batch_size=CHUNK,
            complete=False,
            description=description,
            progress=progress,
        )

    return rows


def compile_log_prob(model: Likelihood, image_shape: Sequence[int]) -> Callable[..., Any]:
    """Log-likelihoods in evaluation mode of any number of images: arrays in, nats `[n]` out."""
    return compile_rows(lambda images: gather(model, "log_prob", images).log_prob, image_shape)


def in_chunks(
    function: Callable, tensors: Sequence[tf.Tensor], dtypes: dict[str, tf.DType]
) -> dict[str, tf.Tensor]:
    """Applies a function to chunks of rows inside a graph, so that memory does not grow with the request.

    Args:
        function: tensors `[m, …]`, m ≤ `CHUNK` → a dict of vectors `[m]`; never called without rows.
        tensors: `[n, …]` each.
        dtypes: of the vectors.
    """
    count = tf.shape(tensors[0])[0]
    found = {
        name: tf.TensorArray(
            dtype, 0, dynamic_size=True, infer_shape=False, element_shape=tf.TensorShape([None])
        )
        for name, dtype in dtypes.items()
    }

    def body(index, found):
        rows = function(*(one[index * CHUNK : (index + 1) * CHUNK] for one in tensors))
        return index + 1, {name: array.write(index, rows[name]) for name, array in found.items()}

    _, found = tf.while_loop(
        lambda index, _: index * CHUNK < count, body, (0, found), parallel_iterations=1
    )
    return {name: array.concat() for name, array in found.items()}


def p_values(scores: tf.Tensor, null: tf.Tensor) -> tf.Tensor:
    """Conformal p-values, `(1 + #{null ≥ score}) / (n + 1)`, float64, of sorted calibration scores."""
    count = tf.shape(null)[0]
    below = tf.searchsorted(null, tf.reshape(tf.cast(scores, null.dtype), [-1]), side="left")
    at_least = tf.reshape(count - below, tf.shape(scores))
    return tf.cast(1 + at_least, tf.float64) / tf.cast(1 + count, tf.float64)
