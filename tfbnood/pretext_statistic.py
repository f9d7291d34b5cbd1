"""A small network that learns to tell what was done to an image: where it doubts that nothing was, the image is odd."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfbnood.errors import StatisticError
from tfbnood.evidence import Evidence, EvidenceStatistic
from tfbnood.pseudo import KINDS, pseudo_outliers
from tfbnood.statistics import register

__all__ = ["Pretext"]

_STRIDES = (1, 1, 2, 1, 2, 1)
_IMAGES = 16  # a step; every one of them is there untouched and once for every kind
_PASSES = 4  # over the reference images, at most: more of a small set would be learned by heart
_LEAST = 100  # steps, however few the images: with less it has learned nothing


@register
class Pretext(EvidenceStatistic):
    """−log of the probability that nothing was done to an image, by a network that knows what can be.

    The network, six convolutions with batch normalisation, is trained while the statistic is fitted, on the reference
    images and on pseudo-outliers made of them (`tfbnood.pseudo`): it tells which of the kinds it sees. Neither labels
    nor outliers are needed. What it learns for that, such as what is up and which parts belong together, likelihoods
    and pixels do not know.

    Args:
        steps: of training, at most; few reference images have four passes over them, or 100 steps. Defaults to 2,000.
        width: channels of the first two convolutions; the next have twice and four times as many. Defaults to 24.
        kinds: of pseudo-outliers. Defaults to all; fewer are for measuring how it does on those it does not know.
        seed: of the network's start, of the images and of what is done to them.

    Example:
        >>> statistic = tfbnood.statistics.get("pretext", steps=50).fit(None, x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Deep anomaly detection using geometric transformations (Golan, El-Yaniv 2018), arXiv:1805.10917.
    """

    name = "pretext"
    need = "pixels"
    one_sided = True
    large = ("weights_",)
    needs_model = False

    def __init__(
        self,
        *,
        steps: int = 2000,
        width: int = 24,
        kinds: Sequence[str] | None = None,
        seed: int = 0,
    ):
        if unknown := set(kinds or ()) - set(KINDS):
            raise StatisticError(
                f"kinds must be of {', '.join(KINDS)}. Received: {', '.join(sorted(unknown))}"
            )
        if min(steps, width) < 1:
            raise StatisticError(
                f"steps and width must be at least 1. Received: steps={steps}, width={width}"
            )
        self.steps = steps
        self.width = width
        self.kinds = kinds
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        kinds = self.kinds or KINDS
        network = _network(reference.shape[1:], self.width, 1 + len(kinds), self.seed)
        steps = min(self.steps, max(_LEAST, -(-_PASSES * len(reference) // _IMAGES)))
        train = _training_step(network, steps)
        labels = tf.repeat(tf.range(1 + len(kinds)), _IMAGES)
        random = np.random.RandomState(self.seed)
        hidden = None if self._progress else True  # None: on anything but a terminal
        for _ in tqdm(range(steps), f"training {self.name}", unit="step", disable=hidden):
            images = reference[random.randint(len(reference), size=_IMAGES)]
            spoiled = pseudo_outliers(images, seed=random.randint(2**31), kinds=kinds)
            train(tf.constant(np.concatenate([images, *spoiled.values()])), labels)
        # Half precision: what it rounds off is far below the network's own doubts.
        self.weights_ = _folded(network).astype(np.float16)
        self._restore(model)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        flat = self._large("weights_")
        # One row more, dropped below: in an export, TensorFlow's fused convolution fails on an empty request.
        hidden = tf.pad(_scaled(evidence.images), [[0, 1], [0, 0], [0, 0], [0, 0]])
        inputs = self.image_shape_[-1]
        for outputs, stride in zip(_widths(self.width), _STRIDES, strict=True):
            kernel, flat = _take(flat, (3, 3, inputs, outputs))
            bias, flat = _take(flat, (outputs,))
            hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, stride, "SAME") + bias)
            inputs = outputs
        classes = 1 + len(self.kinds or KINDS)
        kernel, flat = _take(flat, (inputs, classes))
        bias, flat = _take(flat, (classes,))
        logits = tf.matmul(tf.reduce_mean(hidden, axis=(1, 2)), kernel) + bias
        return -tf.nn.log_softmax(logits)[:-1, 0]


def _widths(width: int) -> tuple[int, ...]:
    return (width, width, 2 * width, 2 * width, 4 * width, 4 * width)


def _scaled(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images, tf.float32) / 127.5 - 1


def _network(shape: tuple[int, ...], width: int, classes: int, seed: int) -> keras.Model:
    network = keras.Sequential([keras.Input(shape)])
    for index, (outputs, stride) in enumerate(zip(_widths(width), _STRIDES, strict=True)):
        start = keras.initializers.GlorotUniform(seed=seed + index)
        network.add(
            keras.layers.Conv2D(
                outputs, 3, stride, "same", use_bias=False, kernel_initializer=start
            )
        )
        network.add(keras.layers.BatchNormalization(momentum=0.9))
        network.add(keras.layers.ReLU())
    network.add(keras.layers.GlobalAveragePooling2D())
    start = keras.initializers.GlorotUniform(seed=seed + len(_STRIDES))
    network.add(keras.layers.Dense(classes, kernel_initializer=start))
    return network


def _training_step(network: keras.Model, steps: int) -> Any:
    """Compiles `(images, labels) → None`, one step of Adam with a rate that falls as a cosine does."""
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps))
    optimizer.build(network.trainable_variables)

    @tf.function(autograph=False)
    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = network(_scaled(images), training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    return step


def _folded(network: keras.Model) -> np.ndarray:
    """All weights in one vector, the batch normalisations as part of the convolutions before them."""
    parts = []
    layers = iter(network.layers)
    for layer in layers:
        if isinstance(layer, keras.layers.Conv2D):
            (kernel,) = layer.get_weights()
            norm = next(layers)
            gamma, beta, mean, variance = norm.get_weights()
            scale = gamma / np.sqrt(variance + norm.epsilon)
            parts += [kernel * scale, beta - mean * scale]
        else:
            parts += layer.get_weights()
    return np.concatenate([part.ravel() for part in parts])


def _take(flat: tf.Tensor, shape: tuple[int, ...]) -> tuple[tf.Tensor, tf.Tensor]:
    """The next weights, and those after them."""
    count = int(np.prod(shape))
    return tf.reshape(flat[:count], shape), flat[count:]
