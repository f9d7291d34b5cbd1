"""Model sizes as frozen data.

Without TensorFlow, so that the command line starts quickly. `paper-*` are the paper's, for accelerators; `cpu-*`
train on two cores; `tiny` is for 8×8 images. `check_size` compares images with the sizes a preset is meant for.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tfbnood.errors import TfbnoodError

__all__ = [
    "PRESETS",
    "SEARCHED",
    "PixelCNNConfig",
    "Preset",
    "RealNVPConfig",
    "VAEConfig",
    "check_size",
    "default_preset",
    "is_too_large",
    "preset",
]

GREY, COLOUR, SMALL = (28, 28, 1), (32, 32, 3), (8, 8, 1)


@dataclasses.dataclass(frozen=True)
class RealNVPConfig:
    """Sizes of a RealNVP: `channels` and `blocks` of each conditioner at the first scale, number of `scales`."""

    channels: int
    blocks: int
    scales: int = 2


@dataclasses.dataclass(frozen=True)
class VAEConfig:
    """Sizes of a VAE: first-layer `channels`, number of `latents`, channels of the `bottleneck` and of the `head`."""

    channels: int
    latents: int
    bottleneck: int
    head: int


@dataclasses.dataclass(frozen=True)
class PixelCNNConfig:
    """Sizes of a PixelCNN++: `filters`, gated `blocks` per stage, `mixtures` of logistics, `dropout` in training."""

    filters: int
    blocks: int
    mixtures: int = 10
    dropout: float = 0.5


Config = RealNVPConfig | VAEConfig | PixelCNNConfig


@dataclasses.dataclass(frozen=True)
class Preset:
    """A configuration and the image shape it was designed for."""

    image_shape: tuple[int, int, int]
    config: Config


PRESETS: Mapping[str, Mapping[str, Preset]] = MappingProxyType(
    {
        "realnvp": MappingProxyType(
            {
                "paper-grey": Preset(GREY, RealNVPConfig(channels=32, blocks=4)),
                "paper-colour": Preset(COLOUR, RealNVPConfig(channels=64, blocks=8)),
                "cpu-grey": Preset(GREY, RealNVPConfig(channels=16, blocks=2)),
                "cpu-colour": Preset(COLOUR, RealNVPConfig(channels=16, blocks=2)),
                "tiny": Preset(SMALL, RealNVPConfig(channels=24, blocks=2)),
            }
        ),
        # The paper's layer widths grow with the image's channels: 32c, 64c.
        "vae": MappingProxyType(
            {
                "paper-grey": Preset(
                    GREY, VAEConfig(channels=32, latents=64, bottleneck=256, head=256)
                ),
                "paper-colour": Preset(
                    COLOUR, VAEConfig(channels=96, latents=64, bottleneck=256, head=256)
                ),
                "cpu-grey": Preset(
                    GREY, VAEConfig(channels=16, latents=32, bottleneck=128, head=64)
                ),
                "cpu-colour": Preset(
                    COLOUR, VAEConfig(channels=24, latents=64, bottleneck=128, head=64)
                ),
                "tiny": Preset(SMALL, VAEConfig(channels=16, latents=16, bottleneck=64, head=32)),
            }
        ),
        "pixelcnn": MappingProxyType(
            {
                "paper-grey": Preset(GREY, PixelCNNConfig(filters=80, blocks=5)),
                "paper-colour": Preset(COLOUR, PixelCNNConfig(filters=80, blocks=5)),
                # Narrow, and trained for a few epochs: the paper's dropout of 0.5 would slow them down.
                "cpu-grey": Preset(GREY, PixelCNNConfig(filters=24, blocks=1, dropout=0.1)),
                "cpu-colour": Preset(COLOUR, PixelCNNConfig(filters=32, blocks=1, dropout=0.1)),
                "tiny": Preset(
                    SMALL, PixelCNNConfig(filters=12, blocks=1, mixtures=5, dropout=0.2)
                ),
            }
        ),
    }
)


SEARCHED: Mapping[str, Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "realnvp": MappingProxyType({"channels": (0.5, 0.75, 1, 1.5), "blocks": (0.5, 1, 2)}),
        "vae": MappingProxyType(
            {"channels": (0.5, 0.75, 1, 1.5), "latents": (0.5, 1, 2), "bottleneck": (0.5, 1, 2)}
        ),
        "pixelcnn": MappingProxyType(
            {"filters": (0.5, 0.75, 1, 1.5), "blocks": (1, 2), "dropout": (0, 0.5, 1)}
        ),
    }
)
"""By model, the sizes that a search varies, as multiples of the preset's; other sizes stay fixed."""


def preset(model: str, name: str) -> Preset:
    """Looks up a preset, e.g. `preset("realnvp", "cpu-grey")`."""
    if name not in PRESETS[model]:
        raise TfbnoodError(f"preset must be one of {', '.join(PRESETS[model])}. Received: {name!r}")
    return PRESETS[model][name]


def default_preset(height: int, width: int, channels: int) -> str:
    """The preset that trains such images on two cores.

    Example:
        >>> default_preset(32, 32, 3)
        'cpu-colour'
    """
    if channels == 3:
        return "cpu-colour"
    return "tiny" if max(height, width) <= 16 else "cpu-grey"


# In multiples of the preset's pixels. The first allows 32×32 instead of 28×28, the second 64×64 instead of 32×32.
_WARN_ABOVE, _REFUSE_ABOVE = 1.5, 4.0


def check_size(
    model: str,
    name: str,
    image_shape: tuple[int, int, int],
    *,
    argument: str = "image_shape",
    refuse: bool = True,
) -> str | None:
    """Compares the pixels of an image, height · width, with those that a preset is meant for.

    Up to 1.5 times as many are fine. More cause a warning, and more than 4 times as many are refused. The presets
    `paper-*` accept any size, which is reasonable on an accelerator.

    Args:
        model: `realnvp`, `vae` or `pixelcnn`.
        name: of the preset.
        image_shape: `(height, width, channels)`.
        argument: the user's name for the images, for the text.
        refuse: False only warns, even above 4 times.

    Returns:
        The text of a warning, or None.

    Raises:
        TfbnoodError: the images are too large.

    Example:
        >>> check_size("vae", "cpu-grey", (32, 32, 3)) is None
        True
        >>> check_size("vae", "cpu-colour", (48, 48, 3)).split(":")[0]
        'image_shape should keep to the 32×32 pixels that the preset cpu-colour is meant for'
    """
    times = _times_the_pixels(model, name, image_shape)
    if times <= _WARN_ABOVE:
        return None
    height, width, _ = _meant_for(model, name)
    size = f"the {height}×{width} pixels that the preset {name} is meant for"
    # CPU seconds per step of 64 images with cpu-colour at sides of 32, 48 and 64 pixels: realnvp 0.63, 1.38, 2.40; vae
    # 0.99, 2.23, 3.97 (96: 9.07); pixelcnn 1.84, 4.09, 7.27. All three are proportional to the pixels, within 10 %.
    cost = f"a training step takes about {round(times, 1):g} times as long"
    cure = (
        f"resize the images to {height}×{width}, or use a network, which takes any size and needs no training, as in "
        '`tfbnood.Detector(tfbnood.networks.load("efficientnet-lite0"), reference=images)`'
    )
    received = f"Received: {image_shape[0]}×{image_shape[1]} pixels"
    if refuse and is_too_large(model, name, image_shape):
        raise TfbnoodError(
            f"{argument} must keep to {_REFUSE_ABOVE:g} times {size}: {cost}; {cure}, or pass any_size=True. {received}"
        )
    return f"{argument} should keep to {size}: {cost}; {cure}. {received}"


def is_too_large(model: str, name: str, image_shape: tuple[int, int, int]) -> bool:
    """True for images that `check_size` refuses.

    Example:
        >>> is_too_large("vae", "cpu-colour", (64, 64, 3)), is_too_large("vae", "cpu-colour", (96, 96, 3))
        (False, True)
    """
    on_cpu = not name.startswith("paper-")
    return on_cpu and _times_the_pixels(model, name, image_shape) > _REFUSE_ABOVE


def _times_the_pixels(model: str, name: str, image_shape: tuple[int, int, int]) -> float:
    return _pixels(image_shape) / _pixels(_meant_for(model, name))


def _meant_for(model: str, name: str) -> tuple[int, int, int]:
    # `tiny` was designed for 8×8, but a step at 28×28 takes at most a CPU second: no reason to warn.
    return max(preset(model, name).image_shape, GREY, key=_pixels)


def _pixels(image_shape: tuple[int, int, int]) -> int:
    return image_shape[0] * image_shape[1]
