"""Building blocks shared by the models. Each takes `training` explicitly and passes it to its batch normalisation."""

import keras
import tensorflow as tf

__all__ = ["BatchNormalization", "ResidualBlock", "WeightNormConv2D"]


@keras.saving.register_keras_serializable(package="tfbnood")
class BatchNormalization(keras.layers.BatchNormalization):
    """Keras' batch normalisation with this package's defaults.

    `training=True` normalises with the moments of the batch, `training=False` with the moving moments.
    Variances are biased (1/n) in both, as in Keras; the paper's appendix writes 1/(n−1).

    Args:
        momentum: of the moving moments. Defaults to 0.9, so that they are usable after a short training.
        epsilon: Defaults to 1e-5. Keras' own 1e-3 damps channels of low variance, the very effect that reveals
            out-of-distribution batches.
    """

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs):
        super().__init__(momentum=momentum, epsilon=epsilon, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """In training mode uses TensorFlow's fused kernel, which Keras does not; moments are always float32."""
        fits = (
            len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and mask is None
            and self.scale
            and self.center
            and self.variable_dtype == "float32"
            and inputs.dtype in (tf.float32, tf.bfloat16)
            and not self.synchronized
        )
        if not (training and self.trainable and fits):
            return super().call(inputs, training=training, mask=mask)
        nothing = tf.constant([], tf.float32)
        normal = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=self.gamma,
            offset=self.beta,
            mean=nothing,
            variance=nothing,
            epsilon=self.epsilon,
            is_training=True,
        )
        # The kernel normalises with the biased variance and returns the unbiased one.
        values = tf.cast(tf.reduce_prod(tf.shape(inputs)[:3]), tf.float32)
        variance = normal.batch_variance * (values - 1) / values
        for moving, own in (
            (self.moving_mean, normal.batch_mean),
            (self.moving_variance, variance),
        ):
            moving.assign(moving * self.momentum + own * (1 - self.momentum))
        return normal.y


@keras.saving.register_keras_serializable(package="tfbnood")
class WeightNormConv2D(keras.layers.Layer):
    """A same-padded convolution with weight normalisation (Salimans & Kingma 2016).

    The kernel is `gain · direction / ‖direction‖`, with one norm per output channel.

    Args:
        filters: number of output channels.
        kernel_size: side of the kernel.
        use_bias: Defaults to True.
        zero_gain: start with a gain of 0, so that the layer's first output is its bias, 0. Defaults to False.
        seed: of the initial direction.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        *,
        use_bias: bool = True,
        zero_gain: bool = False,
        seed: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.use_bias = use_bias
        self.zero_gain = zero_gain
        self.seed = seed

    def build(self, input_shape):
        self.direction = self.add_weight(
            name="direction",
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=keras.initializers.HeNormal(seed=self.seed),
            autocast=False,
        )
        self.gain = self.add_weight(
            name="gain",
            shape=(self.filters,),
            initializer="zeros" if self.zero_gain else "ones",
            autocast=False,
        )
        self.bias = (
            self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")
            if self.use_bias
            else None
        )

    def call(self, inputs):
        # The norm is float32 whatever the layer's precision: squares of small weights need its digits.
        kernel = self.gain * tf.math.l2_normalize(self.direction, axis=(0, 1, 2))
        kernel = tf.cast(kernel, inputs.dtype)
        outputs = tf.nn.conv2d(inputs, kernel, strides=1, padding="SAME")
        return outputs if self.bias is None else outputs + self.bias

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "use_bias": self.use_bias,
            "zero_gain": self.zero_gain,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable(package="tfbnood")
class ResidualBlock(keras.layers.Layer):
    """`x + conv(relu(bn(conv(relu(bn(x))))))` with weight-normalised 3×3 convolutions.

    Args:
        channels: of the input and the output.
        seeds: of the two convolutions' initial weights.
    """

    def __init__(self, channels: int, *, seeds: tuple[int, int] = (0, 1), **kwargs):
        super().__init__(**kwargs)
        self.channels = channels
        self.seeds = tuple(seeds)
        self.first_norm = BatchNormalization()
        self.first_conv = WeightNormConv2D(channels, 3, use_bias=False, seed=seeds[0])
        self.second_norm = BatchNormalization()
        self.second_conv = WeightNormConv2D(channels, 3, seed=seeds[1])

    def build(self, input_shape):
        for layer in (self.first_norm, self.first_conv, self.second_norm, self.second_conv):
            layer.build(input_shape)

    def call(self, inputs, training=False):
        hidden = self.first_conv(tf.nn.relu(self.first_norm(inputs, training=training)))
        hidden = self.second_conv(tf.nn.relu(self.second_norm(hidden, training=training)))
        return inputs + hidden

    def get_config(self):
        return {**super().get_config(), "channels": self.channels, "seeds": list(self.seeds)}
