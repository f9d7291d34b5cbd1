"""A Keras network with its input size and preprocessing: from images in 0–255 to features."""

import weakref
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfbnood.errors import StatisticError
from tfbnood.networks.preprocessing import Preprocess, from_saved, to_saved
from tfbnood.protocols import FeatureExtractor, Likelihood

__all__ = ["RESIZING", "Network", "as_model"]

RESIZING = "bicubic, antialiased where it shrinks"
# Layers after the features of a classifier that change nothing, or only the output of the last Dense.
_BEHIND_DENSE = (keras.layers.Activation, keras.layers.Dropout, keras.layers.Softmax)


@keras.saving.register_keras_serializable(package="tfbnood")
class Network(keras.Model):
    """Any Keras network as the basis of a detector: `features(images)`, and its batch normalisations.

    Images are resized once, in the graph, to the network's size (bicubic, antialiased if it shrinks). Grey ones get
    three equal channels if the network expects colour. Then `preprocess` converts them from 0–255 to the range that the
    network was trained on. Of common filters, bicubic was best on held-out classes of CIFAR-10 (tools/research).

    Features are the outputs of `layers`, averaged over places; each of several layers is scaled to unit length. By
    default they are the inputs of the last Dense of a Functional or Sequential classifier, and otherwise the network's
    outputs.

    Args:
        network: a Functional, Sequential or subclassed `keras.Model` with one image input, channels last.
        size: `(height, width)` to run it at. Defaults to the input size that it was built for, and to the images' own
            size if it accepts any.
        preprocess: a Keras layer or a function from float32 pixels in 0–255 to the network's input. Defaults to none,
            for a network with built-in preprocessing.
        layers: names of layers of a Functional or Sequential network whose outputs are the features.

    Example:
        >>> import keras
        >>> classifier = keras.Sequential(
        ...     [
        ...         keras.Input((16, 16, 1)),
        ...         keras.layers.Conv2D(4, 3),
        ...         keras.layers.BatchNormalization(),
        ...         keras.layers.GlobalAveragePooling2D(),
        ...         keras.layers.Dense(10, activation="softmax"),
        ...     ]
        ... )
        >>> network = tfbnood.networks.Network(classifier, preprocess=keras.layers.Rescaling(1 / 255))
        >>> network.features(tfbnood.data.load("digits").test[:5]).shape
        TensorShape([5, 4])
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        size: Sequence[int] | None = None,
        preprocess: Preprocess | None = None,
        layers: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        _check_network(network)
        super().__init__(**{"name": network.name, **kwargs})
        self.network = network
        self.preprocess = preprocess
        self.feature_layers = None if layers is None else list(layers)
        height, width, channels = _input_shape(network)
        self.channels = channels
        self.size = _check_size(size, (height, width))
        if self.feature_layers is not None:
            _feature_tensors(network, self.feature_layers)  # Fail now, not at fit time.

    def prepare(self, image_shape: Sequence[int]) -> "Network":
        """Runs one image, so that every variable exists and an unsuitable network fails here."""
        channels = image_shape[-1]
        if self.channels is not None and channels not in (1, self.channels):
            raise StatisticError(
                f"images must have {self.channels} channels for this network, or 1. "
                f"Received: shape={tuple(image_shape)}"
            )
        try:
            # Traced: TensorFlow 2.20 runs a kernel that is larger than its map, and fails only in graphs.
            image = tf.zeros((1, *image_shape), tf.uint8)
            run = tf.function(self.features, autograph=False).get_concrete_function(image)
            features = run(image)
        except StatisticError:
            raise
        except Exception as error:  # A user's network may raise anything.
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise StatisticError(
                f"model must accept images of shape {tuple(image_shape)} at size {self.size or 'as they are'}; set "
                "size= and preprocess= of tfbnood.networks.Network. "
                f"Received: {self.network.name}, which fails: {reason}"
            ) from error
        if len(features.shape) != 2:
            raise StatisticError(
                f"features must be vectors or maps. Received: shape={features.shape}"
            )
        return self

    def features(self, images: Any, training: bool = False) -> tf.Tensor:
        """Features, float32 `[n, f]`, of images `[n, height, width, channels]` in 0–255."""
        return self(tf.convert_to_tensor(images), training=training)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The same; what Keras calls."""
        pixels = tf.cast(images, tf.float32)
        if self.size is not None and tuple(images.shape[1:3]) != self.size:
            pixels = tf.image.resize(pixels, self.size, method="bicubic", antialias=True)
            pixels = tf.clip_by_value(pixels, 0.0, 255.0)  # Edges overshoot.
        if self.channels == 3 and images.shape[-1] == 1:
            pixels = tf.repeat(pixels, 3, axis=-1)
        if self.preprocess is not None:
            pixels = self.preprocess(pixels)
        outputs = _make_extractor(self.network, self.feature_layers)(pixels, training=training)
        pooled = [_pool(one) for one in tf.nest.flatten(outputs)]
        if len(pooled) == 1:
            return pooled[0]
        return tf.concat([tf.math.l2_normalize(one, axis=1) for one in pooled], axis=1)

    def get_config(self) -> dict[str, Any]:
        return {
            "network": keras.saving.serialize_keras_object(self.network),
            "size": None if self.size is None else list(self.size),
            "preprocess": to_saved(self.preprocess),
            "layers": self.feature_layers,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Network":
        config = dict(config)
        network = keras.saving.deserialize_keras_object(config.pop("network"))
        return cls(network, preprocess=from_saved(config.pop("preprocess")), **config)


_known: weakref.WeakKeyDictionary[Any, "weakref.ref[Network]"] = weakref.WeakKeyDictionary()


def as_model(
    model: Any, image_shape: Sequence[int], *, preprocess: Preprocess | None = None
) -> Any:
    """Turns a plain Keras model into a `Network` that has run on an image; returns anything else as it is.

    Args:
        model: whatever a user passes as a model.
        image_shape: `(height, width, channels)` of the images.
        preprocess: as for `Network`; not for a model that already has it.
    """
    is_plain = isinstance(model, keras.Model) and not isinstance(
        model, Likelihood | FeatureExtractor
    )
    if preprocess is not None and not is_plain:
        raise StatisticError(
            "preprocess needs a plain Keras model; a tfbnood.networks.Network has its own, and a likelihood model "
            f"takes pixels in 0–255. Received: preprocess for {type(model).__name__}"
        )
    if is_plain:
        # The same wrapper for the same model, so that its statistics share one pass.
        known = _known[model]() if model in _known else None
        if known is None or known.preprocess is not preprocess:
            known = Network(model, preprocess=preprocess)
            _known[model] = weakref.ref(known)
        model = known
    return model.prepare(image_shape) if isinstance(model, Network) else model


def _check_network(network: Any) -> None:
    if not isinstance(network, keras.Model):
        raise StatisticError(
            f"network must be a keras.Model. Received: {type(network).__module__}.{type(network).__name__}"
        )
    if isinstance(network, Network):
        raise StatisticError("network must be a plain Keras model. Received: a Network")


def _input_shape(network: keras.Model) -> tuple[int | None, int | None, int | None]:
    """Height, width and channels of a network's input; None if it accepts any or does not declare them."""
    shape = getattr(network, "input_shape", None)
    if shape is None:
        return None, None, None
    if not isinstance(shape, tuple) or len(shape) != 4:
        raise StatisticError(
            f"network must have one input of images [n, height, width, channels]. Received: input_shape={shape}"
        )
    if shape[3] not in (1, 3, None):
        raise StatisticError(
            f"network must take 1 or 3 channels, channels last. Received: input_shape={shape}"
        )
    return shape[1:]


def _check_size(
    size: Sequence[int] | None, built: tuple[int | None, int | None]
) -> tuple[int, int] | None:
    known = None if None in built else built
    if size is None:
        return known  # type: ignore[return-value]
    wanted = tuple(int(side) for side in size)
    if len(wanted) != 2 or min(wanted) < 1:
        raise StatisticError(f"size must be (height, width). Received: size={size!r}")
    if known is not None and wanted != known:
        raise StatisticError(
            f"size must be {known}, for which the network was built, or left out. Received: size={size!r}"
        )
    return wanted


def _make_extractor(network: keras.Model, layers: list[str] | None) -> keras.Model:
    """The network up to its features."""
    tensors = _feature_tensors(network, layers)
    return network if tensors is None else keras.Model(network.inputs, tensors)


def _feature_tensors(network: keras.Model, layers: list[str] | None) -> list[Any] | None:
    """The features in the graph of a network; None for its outputs."""
    graph = bool(getattr(network, "inputs", None))  # Functional, or Sequential and built
    if layers is not None:
        if not graph:
            raise StatisticError(
                "layers needs a Functional or Sequential network that is built. "
                f"Received: {type(network).__name__}"
            )
        names = [layer.name for layer in network.layers]
        for name in layers:
            if name not in names:
                raise StatisticError(
                    f"layers must be names of the network's layers, such as {', '.join(names[-3:])}. Received: {name!r}"
                )
        return [network.get_layer(name).output for name in layers]
    if not graph or len(network.outputs) > 1:
        return None
    for layer in reversed(network.layers):
        if isinstance(layer, keras.layers.Dense):
            return [layer.input]
        if not isinstance(layer, _BEHIND_DENSE):
            break
    return None


def _pool(values: tf.Tensor) -> tf.Tensor:
    """Maps and sequences averaged over places, vectors as they are."""
    values = tf.cast(values, tf.float32)
    if len(values.shape) <= 2:
        return values
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape) - 1)))
