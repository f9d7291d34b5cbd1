"""PixelCNN++ (Salimans et al. 2017) with batch normalisation after every shifted convolution.

Two streams run side by side: "above" sees the rows above a pixel, "left" these and the pixels to its left. Every
convolution looks up by at most one row, so that a strip of rows needs only one row of each layer from the strip
above it: this makes sampling cheap.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfbnood.errors import DataError
from tfbnood.models.base import LikelihoodModel
from tfbnood.models.layers import BatchNormalization
from tfbnood.models.logistic_mixture import (
    discretized_logistic_mixture_log_prob,
    parameter_count,
    sample_discretized_logistic_mixture,
    scale_pixels,
)
from tfbnood.models.noise import Noise, scoring_noise

__all__ = ["GatedBlock", "PixelCNN", "ShiftedConv2D"]

RESOLUTIONS = 3
STRIP = 2 ** (RESOLUTIONS - 1)  # rows that are one row at the lowest resolution
ABOVE_KERNEL, LEFT_KERNEL = (2, 3), (2, 2)


@dataclasses.dataclass
class _Context:
    """Shared by all layers in one pass through the network.

    Attributes:
        training: batch normalisation's choice of moments.
        noise: of dropout.
        rows_above: the last row that each layer saw of the strip above, in the order of use; None at the top of an
            image, with zeros above.
        last_rows: the same for the strip below, collected during the pass.
    """

    training: bool
    noise: Noise
    rows_above: Iterator[tf.Tensor] | None = None
    last_rows: list[tf.Tensor] = dataclasses.field(default_factory=list)

    def row_above(self, features: tf.Tensor) -> tf.Tensor | None:
        self.last_rows.append(features[:, -1:])
        return None if self.rows_above is None else next(self.rows_above)


@keras.saving.register_keras_serializable(package="tfbnood")
class PixelCNN(LikelihoodModel):
    """An autoregressive model: every pixel has a mixture of discretised logistics given the pixels before it.

    `log p(x) = Σᵢ log p(xᵢ | x₁, …, xᵢ₋₁)` in raster order, the exact likelihood of the discrete image in evaluation
    mode. In training mode (`training=True`) the moments of the batch see the later pixels too, so the conditionals
    are not strictly causal and the value is a score, not a normalised likelihood.

    A sample of temperature T is drawn with the mixture logits divided by T; means and scales of the logistics stay.

    Args:
        image_shape: `(height, width, channels)`; sides divisible by 4.
        filters: channels of both streams.
        blocks: gated residual blocks per stage; stages on the way up, except the first, have one more.
        mixtures: logistics per pixel. Defaults to 10.
        dropout: share of whole channels dropped in each block, in steps of `fit` only. Defaults to 0.5.
        seed: of the initial weights and of dropout.

    Example:
        >>> model = PixelCNN(image_shape=(8, 8, 1), filters=8, blocks=1)
        >>> model.log_prob(np.zeros((5, 8, 8, 1))).shape
        TensorShape([5])

    Reference: PixelCNN++, arXiv:1701.05517.
    """

    preset_family = "pixelcnn"
    side_divisor = STRIP

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        *,
        filters: int = 80,
        blocks: int = 5,
        mixtures: int = 10,
        dropout: float = 0.5,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(image_shape, seed=seed, **kwargs)
        if not 0 <= dropout < 1:
            raise DataError(f"dropout must lie in [0, 1). Received: dropout={dropout}")
        self.filters = filters
        self.blocks = blocks
        self.mixtures = mixtures
        self.dropout = dropout
        seeds, indices = itertools.count(100_003 * seed), itertools.count()

        def convolution(kernel: tuple[int, int], **options: Any) -> ShiftedConv2D:
            return ShiftedConv2D(filters, kernel, seed=next(seeds), **options)

        def both_streams(**options: Any) -> list[ShiftedConv2D]:
            return [convolution(kernel, **options) for kernel in (ABOVE_KERNEL, LEFT_KERNEL)]

        def gated_blocks(skips: tuple[bool, bool], pairs: int) -> list[GatedBlock]:
            return [
                GatedBlock(filters, kernel, skip, dropout, next(indices), seeds)
                for _ in range(pairs)
                for kernel, skip in zip((ABOVE_KERNEL, LEFT_KERNEL), skips, strict=True)
            ]

        self.above_input = convolution(ABOVE_KERNEL)
        self.row_input = convolution((1, 3))
        self.left_input = convolution((2, 1))
        # Flat lists, alternating above and left: Keras does not save layers in lists of lists.
        self.down_blocks = gated_blocks((False, True), RESOLUTIONS * blocks)
        self.shrink = both_streams(stride=2) + both_streams(stride=2)
        self.up_blocks = gated_blocks((True, True), RESOLUTIONS * (blocks + 1) - 1)
        self.grow = both_streams(transposed=True) + both_streams(transposed=True)
        self.parameter_head = _make_pointwise(parameter_count(self.image_shape[2], mixtures), seeds)
        self._draw_pixel = tf.function(self._fill_in, autograph=False, reduce_retracing=True)
        self.build()

    def _takes_precision(self, layer: keras.layers.Layer) -> bool:
        # Convolutions only: ELUs and sigmoids of bfloat16 numbers take a CPU three times as long.
        return isinstance(layer, ShiftedConv2D | keras.layers.Dense)

    def _log_prob(self, images: tf.Tensor, training: bool, noise: Noise) -> tf.Tensor:
        parameters = self._parameters(images, _Context(training, noise))
        log_probs = discretized_logistic_mixture_log_prob(images, parameters)
        return tf.reduce_sum(log_probs, axis=(1, 2))

    def _parameters(self, images: tf.Tensor, context: _Context) -> tf.Tensor:
        """Parameters of every pixel's mixture, `[n, height, width, parameters]`."""
        down, shrink = iter(self.down_blocks), iter(self.shrink)
        up, grow = iter(self.up_blocks), iter(self.grow)
        # The channel of ones distinguishes an image's black from the zeros around it.
        inputs = tf.concat((scale_pixels(images), tf.ones_like(images[..., :1])), axis=-1)
        above = _shift_down(self.above_input(inputs, context=context), context)
        left = _shift_down(self.row_input(inputs, context=context), context)
        left += _shift_right(self.left_input(inputs, context=context))
        aboves, lefts = [above], [left]
        for stage in range(RESOLUTIONS):
            if stage > 0:
                aboves.append(next(shrink)(aboves[-1], context=context))
                lefts.append(next(shrink)(lefts[-1], context=context))
            for _ in range(self.blocks):
                aboves.append(next(down)(aboves[-1], context=context))
                lefts.append(next(down)(lefts[-1], context=context, skip=aboves[-1]))
        above, left = aboves.pop(), lefts.pop()
        for stage in range(RESOLUTIONS):
            if stage > 0:
                above, left = next(grow)(above, context=context), next(grow)(left, context=context)
            for _ in range(self.blocks if stage == 0 else self.blocks + 1):
                above = next(up)(above, context=context, skip=aboves.pop())
                both = tf.concat((above, lefts.pop()), axis=-1)
                left = next(up)(left, context=context, skip=both)
        # Mixtures are float32 whatever the precision of the streams.
        return tf.cast(self.parameter_head(tf.nn.elu(left)), tf.float32)

    def _sample(self, count: int, temperature: float, seed: tuple[int, int]) -> tf.Tensor:
        height, width, channels = self.image_shape
        black = tf.zeros((count, STRIP, width, channels))
        # A pass for the shapes only: there are zeros above the first strip.
        shapes = _Context(False, scoring_noise(0))
        self._parameters(black, shapes)
        rows_above = [tf.zeros_like(row) for row in shapes.last_rows]
        strips = []
        for top in range(0, height, STRIP):
            strip = black
            # One step more than pixels: it draws nothing, sees the whole strip and passes on its last rows.
            for pixel in range(STRIP * width + 1):
                strip, last_rows = self._draw_pixel(
                    strip,
                    rows_above,
                    # Tensors: a Python number would trace a new graph for every value.
                    pixel=tf.constant(pixel),
                    temperature=tf.constant(temperature, tf.float32),
                    seed=tf.random.experimental.stateless_fold_in(seed, top),
                )
            strips.append(strip)
            rows_above = last_rows
        return tf.concat(strips, axis=1)

    def _fill_in(self, strip, rows_above, pixel, temperature, seed):
        """Fills in one pixel of a strip of rows; returns the strip and the last row of each layer."""
        context = _Context(False, scoring_noise(0), rows_above=iter(rows_above))
        parameters = self._parameters(strip, context)
        pixels, channels = strip.shape[1] * strip.shape[2], strip.shape[3]
        position = tf.one_hot(pixel, pixels)
        flat = tf.reshape(parameters, (-1, pixels, parameters.shape[-1]))
        drawn = sample_discretized_logistic_mixture(
            tf.einsum("npk,p->nk", flat, position),
            channels,
            temperature=temperature,
            seed=tf.random.experimental.stateless_fold_in(seed, pixel),
        )
        here = tf.reshape(position, (1, *strip.shape[1:3], 1))
        return strip + here * drawn[:, None, None], context.last_rows

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "blocks": self.blocks,
            "mixtures": self.mixtures,
            "dropout": self.dropout,
        }


class GatedBlock(keras.layers.Layer):
    """`x + a · σ(b)` with `a, b = conv(dropout(f(conv(f(x)) + W f(skip))))` and `f` the concatenated ELU.

    Args:
        filters: channels of input and output.
        kernel: (2, 3) for the stream above, (2, 2) for the stream to the left.
        skip: whether a second input comes with each call.
        dropout: share of the channels dropped in a step of `fit`.
        index: distinguishes this block's dropout from that of the others.
        seeds: of the initial weights, one per layer.
    """

    def __init__(self, filters, kernel, skip, dropout, index, seeds):
        super().__init__()
        self.dropout = dropout
        self.index = index
        self.first_conv = ShiftedConv2D(filters, kernel, seed=next(seeds))
        self.skip_weights = _make_pointwise(filters, seeds) if skip else None
        self.second_conv = ShiftedConv2D(2 * filters, kernel, seed=next(seeds))

    def call(self, inputs, context, skip=None):
        hidden = self.first_conv(_concat_elu(inputs), context=context)
        if skip is not None:
            hidden += tf.cast(self.skip_weights(_concat_elu(skip)), hidden.dtype)
        hidden = _concat_elu(hidden)
        # Not `context.training`: scoring with the moments of the batch must not drop anything.
        if context.noise.fresh and self.dropout > 0:
            hidden = tf.nn.experimental.stateless_dropout(
                hidden,
                self.dropout,
                seed=context.noise.fold(self.index).seed,
                noise_shape=(tf.shape(hidden)[0], 1, 1, hidden.shape[-1]),
            )
        value, gate = tf.split(self.second_conv(hidden, context=context), 2, axis=-1)
        return inputs + value * tf.sigmoid(gate)


class ShiftedConv2D(keras.layers.Layer):
    """A convolution that looks up but never down, then batch normalisation.

    The kernel ends at the pixel's own row. A kernel of odd width is centred on the pixel's column (only valid in the
    stream above), one of even width ends there.

    Args:
        filters: output channels.
        kernel: height (1 or 2) and width.
        stride: 2 halves the sides. Defaults to 1.
        transposed: double the sides instead. Defaults to False.
        seed: of the initial kernel.
    """

    def __init__(self, filters, kernel, *, stride=1, transposed=False, seed):
        super().__init__()
        self.filters = filters
        self.kernel_size = kernel
        self.stride = stride
        self.transposed = transposed
        self.seed = seed
        self.norm = BatchNormalization()

    def build(self, input_shape):
        channels = (input_shape[-1], self.filters)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, *(reversed(channels) if self.transposed else channels)),
            initializer=keras.initializers.GlorotUniform(seed=self.seed),
        )

    def call(self, inputs, context):
        outputs = self._grow(inputs) if self.transposed else self._convolve(inputs, context)
        return self.norm(outputs, training=context.training)

    def _convolve(self, inputs, context):
        height, width = self.kernel_size
        top, left, right = height - 1, width // 2, (width - 1) // 2
        row = context.row_above(inputs) if top else None
        if row is not None:
            inputs, top = tf.concat((row, inputs), axis=1), 0
        # Padding inside `tf.nn.conv2d` makes its gradients 1.5 times as slow on a CPU.
        padded = tf.pad(inputs, ((0, 0), (top, 0), (left, right), (0, 0)))
        return tf.nn.conv2d(padded, self.kernel, strides=self.stride, padding="VALID")

    def _grow(self, inputs):
        count, (height, width) = tf.shape(inputs)[0], inputs.shape[1:3]
        kernel_height, kernel_width = self.kernel_size
        shape = (count, 2 * height + kernel_height - 2, 2 * width + kernel_width - 2, self.filters)
        outputs = tf.nn.conv2d_transpose(inputs, self.kernel, shape, strides=2, padding="VALID")
        # A kernel of width 3 extends one column beyond the left edge.
        return outputs[:, :, kernel_width - 2 :]


def _make_pointwise(outputs: int, seeds: Iterator[int]) -> keras.layers.Dense:
    """A 1×1 convolution, without batch normalisation."""
    return keras.layers.Dense(
        outputs, kernel_initializer=keras.initializers.GlorotUniform(seed=next(seeds))
    )


def _concat_elu(features: tf.Tensor) -> tf.Tensor:
    return tf.nn.elu(tf.concat((features, -features), axis=-1))


def _shift_down(features: tf.Tensor, context: _Context) -> tf.Tensor:
    row = context.row_above(features)
    row = tf.zeros_like(features[:, :1]) if row is None else row
    return tf.concat((row, features[:, :-1]), axis=1)


def _shift_right(features: tf.Tensor) -> tf.Tensor:
    return tf.pad(features[:, :, :-1], ((0, 0), (0, 0), (1, 0), (0, 0)))
