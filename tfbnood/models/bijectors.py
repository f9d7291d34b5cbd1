"""The pieces of a RealNVP as TFP bijectors: `forward` generates (latent → image), `inverse` encodes (image → latent).

TFP asks a bijector for its value and its log-determinant separately, which runs every conditioner network twice.
Each bijector here has one primitive per direction that computes both in a single pass, `forward_and_log_det` and
`inverse_and_log_det`; TFP's methods build on them. `training` reaches every
conditioner as an explicit argument: `tfb.Chain` would drop it silently.

Events are images, `[height, width, channels]`; log-determinants have the batch shape `[n]`.
"""

import abc
from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow_probability import bijectors as tfb

__all__ = [
    "ChannelCoupling",
    "CheckerboardCoupling",
    "Composition",
    "Inverted",
    "PartialBijector",
    "PixelLogit",
    "SinglePassBijector",
    "Squeeze",
]

# (log_scale, shift) of the transformed variables, from the variables that stay as they are.
Conditioner = Callable[..., tuple[tf.Tensor, tf.Tensor]]


class SinglePassBijector(tfb.Bijector):
    """A bijector on images whose value and log-determinant come from one pass."""

    def __init__(self, name: str, parameters: dict):
        super().__init__(
            forward_min_event_ndims=3,
            inverse_min_event_ndims=3,
            validate_args=False,
            parameters=parameters,
            name=name,
        )

    @abc.abstractmethod
    def forward_and_log_det(self, x: tf.Tensor, training: bool = False):
        """Returns `y = f(x)` and `log |det df/dx|`, shape `[n]`."""

    @abc.abstractmethod
    def inverse_and_log_det(self, y: tf.Tensor, training: bool = False):
        """Returns `x = f⁻¹(y)` and `log |det df⁻¹/dy|`, shape `[n]`."""

    def _forward(self, x, training=False):
        return self.forward_and_log_det(x, training)[0]

    def _inverse(self, y, training=False):
        return self.inverse_and_log_det(y, training)[0]

    def _forward_log_det_jacobian(self, x, training=False):
        return self.forward_and_log_det(x, training)[1]

    def _inverse_log_det_jacobian(self, y, training=False):
        return self.inverse_and_log_det(y, training)[1]


class Composition(SinglePassBijector):
    """Composes bijectors like `tfb.Chain`: `forward` applies the last one first.

    Read as a list from image to latent: `inverse` applies it from left to right.
    """

    def __init__(self, bijectors: Sequence[SinglePassBijector], name: str = "composition"):
        self.bijectors = list(bijectors)
        super().__init__(name, {"bijectors": bijectors})

    def forward_and_log_det(self, x, training=False):
        total = tf.zeros(tf.shape(x)[:1], x.dtype)
        for bijector in reversed(self.bijectors):
            x, log_det = bijector.forward_and_log_det(x, training)
            total += log_det
        return x, total

    def inverse_and_log_det(self, y, training=False):
        total = tf.zeros(tf.shape(y)[:1], y.dtype)
        for bijector in self.bijectors:
            y, log_det = bijector.inverse_and_log_det(y, training)
            total += log_det
        return y, total

    def _forward_event_shape(self, shape):
        for bijector in reversed(self.bijectors):
            shape = bijector.forward_event_shape(shape)
        return shape

    def _inverse_event_shape(self, shape):
        for bijector in self.bijectors:
            shape = bijector.inverse_event_shape(shape)
        return shape

    def _forward_event_shape_tensor(self, shape):
        for bijector in reversed(self.bijectors):
            shape = bijector.forward_event_shape_tensor(shape)
        return shape

    def _inverse_event_shape_tensor(self, shape):
        for bijector in self.bijectors:
            shape = bijector.inverse_event_shape_tensor(shape)
        return shape


class Inverted(SinglePassBijector):
    """A bijector in the opposite direction.

    Args:
        inner: the bijector whose `inverse` becomes `forward`.
    """

    def __init__(self, inner: SinglePassBijector, name: str = "inverted"):
        self.inner = inner
        super().__init__(name, {"inner": inner})

    def forward_and_log_det(self, x, training=False):
        return self.inner.inverse_and_log_det(x, training)

    def inverse_and_log_det(self, y, training=False):
        return self.inner.forward_and_log_det(y, training)

    def _forward_event_shape(self, shape):
        return self.inner.inverse_event_shape(shape)

    def _inverse_event_shape(self, shape):
        return self.inner.forward_event_shape(shape)

    def _forward_event_shape_tensor(self, shape):
        return self.inner.inverse_event_shape_tensor(shape)

    def _inverse_event_shape_tensor(self, shape):
        return self.inner.forward_event_shape_tensor(shape)


class PixelLogit(SinglePassBijector):
    """Pixels in [0, 256) as logits: `logit(½ + constraint · (x/256 − ½))`; the constraint keeps them finite.

    Args:
        constraint: the share of (0, 1) that pixels span. Defaults to 0.9 (Dinh et al. 2017).
    """

    def __init__(self, constraint: float = 0.9, name: str = "pixel_logit"):
        self.constraint = constraint
        super().__init__(name, {"constraint": constraint})

    def forward_and_log_det(self, x, training=False):
        pixels = 256.0 * (0.5 + (tf.sigmoid(x) - 0.5) / self.constraint)
        return pixels, -self._log_slope(x)

    def inverse_and_log_det(self, y, training=False):
        share = 0.5 + self.constraint * (y / 256.0 - 0.5)
        logits = tf.math.log(share) - tf.math.log1p(-share)
        return logits, self._log_slope(logits)

    def _log_slope(self, logits):
        # d logit(p)/dp = 1 / (p(1−p)), and −log p(1−p) = softplus(l) + softplus(−l).
        slope = tf.nn.softplus(logits) + tf.nn.softplus(-logits)
        return _sum_event(slope + tf.math.log(self.constraint / 256.0))


class Squeeze(SinglePassBijector):
    """`inverse` moves every 2×2 block of pixels into the channels: `[h, w, c]` → `[h/2, w/2, 4c]`.

    Channels are ordered so that either half holds one diagonal of each block: a split into halves is then a
    checkerboard in the image.
    """

    # Positions in a 2×2 block, row-major, in the order of the channels; the order is its own inverse.
    _DIAGONALS_FIRST = (0, 3, 2, 1)

    def __init__(self, name: str = "squeeze"):
        super().__init__(name, {})

    def forward_and_log_det(self, x, training=False):
        blocks = tf.gather(self._by_position(x), self._DIAGONALS_FIRST, axis=3)
        images = tf.nn.depth_to_space(tf.reshape(blocks, tf.shape(x)), 2)
        return images, tf.zeros(tf.shape(x)[:1], x.dtype)

    def inverse_and_log_det(self, y, training=False):
        stacked = tf.nn.space_to_depth(y, 2)
        blocks = tf.gather(self._by_position(stacked), self._DIAGONALS_FIRST, axis=3)
        return tf.reshape(blocks, tf.shape(stacked)), tf.zeros(tf.shape(y)[:1], y.dtype)

    @staticmethod
    def _by_position(stacked):
        _, height, width, channels = stacked.shape
        return tf.reshape(stacked, (-1, height, width, 4, channels // 4))

    def _forward_event_shape(self, shape):
        height, width, channels = shape
        return tf.TensorShape((2 * height, 2 * width, channels // 4))

    def _inverse_event_shape(self, shape):
        height, width, channels = shape
        return tf.TensorShape((height // 2, width // 2, 4 * channels))

    def _forward_event_shape_tensor(self, shape):
        return tf.stack((2 * shape[0], 2 * shape[1], shape[2] // 4))

    def _inverse_event_shape_tensor(self, shape):
        return tf.stack((shape[0] // 2, shape[1] // 2, 4 * shape[2]))


class CheckerboardCoupling(SinglePassBijector):
    """Affine coupling: the pixels of one colour of a checkerboard determine scale and shift of the others.

    `inverse`: `z = x · exp(s) + t` on the transformed pixels, with `(s, t) = conditioner(kept pixels)`.

    Args:
        conditioner: `conditioner(images, training=…)` → `(log_scale, shift)`, both of the images' shape. It receives
            the images with the transformed pixels set to 0.
        parity: 0 keeps the pixels whose row + column is even, 1 the others.
    """

    def __init__(self, conditioner: Conditioner, parity: int, name: str = "checkerboard_coupling"):
        self.conditioner = conditioner
        self.parity = parity
        super().__init__(name, {"conditioner": conditioner, "parity": parity})

    def forward_and_log_det(self, x, training=False):
        log_scale, shift = self._condition(x, training)
        return (x - shift) * tf.exp(-log_scale), -_sum_event(log_scale)

    def inverse_and_log_det(self, y, training=False):
        log_scale, shift = self._condition(y, training)
        return y * tf.exp(log_scale) + shift, _sum_event(log_scale)

    def _condition(self, images, training):
        rows, columns = tf.range(images.shape[1]), tf.range(images.shape[2])
        parity = (rows[:, None] + columns[None, :] + self.parity) % 2
        transformed = tf.cast(parity[None, :, :, None], images.dtype)
        log_scale, shift = self.conditioner(images * (1.0 - transformed), training=training)
        return log_scale * transformed, shift * transformed


class ChannelCoupling(SinglePassBijector):
    """Affine coupling: one half of the channels determines scale and shift of the other half.

    Args:
        conditioner: `conditioner(half, training=…)` → `(log_scale, shift)`, both of the shape of half the channels.
        parity: 0 keeps the first half of the channels, 1 the second.
    """

    def __init__(self, conditioner: Conditioner, parity: int, name: str = "channel_coupling"):
        self.conditioner = conditioner
        self.parity = parity
        super().__init__(name, {"conditioner": conditioner, "parity": parity})

    def forward_and_log_det(self, x, training=False):
        kept, moved = self._halves(x)
        log_scale, shift = self.conditioner(kept, training=training)
        return self._join(kept, (moved - shift) * tf.exp(-log_scale)), -_sum_event(log_scale)

    def inverse_and_log_det(self, y, training=False):
        kept, moved = self._halves(y)
        log_scale, shift = self.conditioner(kept, training=training)
        return self._join(kept, moved * tf.exp(log_scale) + shift), _sum_event(log_scale)

    def _halves(self, images):
        first, second = tf.split(images, 2, axis=-1)
        return (first, second) if self.parity == 0 else (second, first)

    def _join(self, kept, moved):
        return tf.concat((kept, moved) if self.parity == 0 else (moved, kept), axis=-1)


class PartialBijector(SinglePassBijector):
    """Multi-scale split: a bijector on the first half of the channels, the second half left as it is.

    Args:
        inner: a bijector that keeps the event's shape.
    """

    def __init__(self, inner: SinglePassBijector, name: str = "partial_bijector"):
        self.inner = inner
        super().__init__(name, {"inner": inner})

    def forward_and_log_det(self, x, training=False):
        return self._on_first_half(self.inner.forward_and_log_det, x, training)

    def inverse_and_log_det(self, y, training=False):
        return self._on_first_half(self.inner.inverse_and_log_det, y, training)

    @staticmethod
    def _on_first_half(transform, images, training):
        first, second = tf.split(images, 2, axis=-1)
        first, log_det = transform(first, training)
        return tf.concat((first, second), axis=-1), log_det


def _sum_event(values):
    return tf.reduce_sum(values, axis=(1, 2, 3))
