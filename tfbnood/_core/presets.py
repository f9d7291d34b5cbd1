"""Model sizes as frozen data.

Without TensorFlow, so that the shell knows them at once. `paper-*` are the paper's, for accelerators; `cpu-*` train
on two cores; `tiny` is for 8×8 images.
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
    """Sizes of a PixelCNN++: `filters`, gated `blocks` a stage, `mixtures` of logistics, `dropout` in training."""

    filters: int
    blocks: int
    mixtures: int = 10
    dropout: float = 0.5


Config = RealNVPConfig | VAEConfig | PixelCNNConfig


@dataclasses.dataclass(frozen=True)
class Preset:
    """A configuration and the image shape it was made for."""

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
                "cpu-grey": Preset(GREY, PixelCNNConfig(filters=24, blocks=1)),
                # Narrow, and trained for an epoch or two: with the paper's dropout of 0.5 it starts more slowly.
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
"""By model, the sizes that are searched, as multiples of the preset's; the others stay as they are."""


def preset(model: str, name: str) -> Preset:
    """Looks up a preset, e.g. `preset("realnvp", "cpu-grey")`."""
    if name not in PRESETS[model]:
        raise TfbnoodError(f"preset must be one of {', '.join(PRESETS[model])}. Received: {name!r}")
    return PRESETS[model][name]
