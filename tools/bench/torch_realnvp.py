"""An equal RealNVP in PyTorch, eager, with channels last in memory, its fastest layout on a CPU.

Same couplings, channels, blocks, batch normalisations, weight-normalised convolutions and parameters as
`tfbnood.models.RealNVP`; the weights are those of the start. Needs the extra `bench`.
"""

from typing import Any

import numpy as np

from tfbnood._core.presets import RealNVPConfig

__all__ = ["count_parameters", "log_prob", "make_flow", "to_pixels"]


def make_flow(image_shape: tuple[int, int, int], config: RealNVPConfig) -> Any:
    """The network: logits of pixels → latents and log-determinants."""
    import torch
    from torch import nn
    from torch.nn.functional import relu
    from torch.nn.utils.parametrizations import weight_norm

    torch.manual_seed(0)

    def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> nn.Module:
        return weight_norm(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias))

    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)

    class Block(nn.Module):
        def __init__(self, channels: int):
            super().__init__()
            self.first = nn.Sequential(
                norm(channels), nn.ReLU(), conv(channels, channels, 3, bias=False)
            )
            self.second = nn.Sequential(norm(channels), nn.ReLU(), conv(channels, channels, 3))

        def forward(self, x: Any) -> Any:
            return x + self.second(self.first(x))

    class Coupling(nn.Module):
        """Log-scale and shift from the variables that stay."""

        def __init__(self, inputs: int, outputs: int, channels: int, blocks: int):
            super().__init__()
            self.input_norm = norm(inputs)
            self.input_conv = conv(2 * inputs, channels, 3)
            self.blocks = nn.ModuleList(Block(channels) for _ in range(blocks))
            self.skips = nn.ModuleList(conv(channels, channels, 1) for _ in range(blocks + 1))
            self.output_norm = norm(channels)
            self.output_conv = conv(channels, 2 * outputs, 1)
            self.rescale = nn.Parameter(torch.ones(1, outputs, 1, 1))
            with torch.no_grad():  # The coupling starts as the identity.
                self.output_conv.parametrizations.weight.original0.zero_()
                self.output_conv.bias.zero_()

        def forward(self, x: Any) -> Any:
            x = self.input_norm(x)
            x = self.input_conv(relu(torch.cat((x, -x), 1)))
            total = self.skips[0](x)
            for block, skip in zip(self.blocks, self.skips[1:], strict=True):
                x = block(x)
                total = total + skip(x)
            log_scale, shift = self.output_conv(relu(self.output_norm(total))).chunk(2, 1)
            return self.rescale * torch.tanh(log_scale), shift

    class Flow(nn.Module):
        """One scale and all below it: checkerboards, squeeze, couplings by channel, half split off."""

        def __init__(self, channels: int, width: int, scales: int):
            super().__init__()
            count = 4 if scales == 1 else 3
            self.boards = nn.ModuleList(
                Coupling(channels, channels, width, config.blocks) for _ in range(count)
            )
            half = 2 * channels
            self.by_channel = nn.ModuleList(
                Coupling(half, half, 2 * width, config.blocks) for _ in range(3 * (scales > 1))
            )
            self.rest = Flow(half, 2 * width, scales - 1) if scales > 1 else None

        def forward(self, x: Any) -> Any:
            log_det = 0.0
            rows, columns = torch.arange(x.shape[2]), torch.arange(x.shape[3])
            board = (rows[:, None] + columns) % 2
            for index, coupling in enumerate(self.boards):
                moved = (board + index) % 2
                log_scale, shift = coupling(x * (1 - moved))
                log_scale = log_scale * moved
                x = x * torch.exp(log_scale) + shift * moved
                log_det = log_det + log_scale.sum((1, 2, 3))
            if self.rest is None:
                return x, log_det
            x = nn.functional.pixel_unshuffle(x, 2)
            for index, coupling in enumerate(self.by_channel):
                kept, moved = x.chunk(2, 1) if index % 2 == 0 else x.chunk(2, 1)[::-1]
                log_scale, shift = coupling(kept)
                moved = moved * torch.exp(log_scale) + shift
                x = torch.cat((kept, moved) if index % 2 == 0 else (moved, kept), 1)
                log_det = log_det + log_scale.sum((1, 2, 3))
            first, second = x.chunk(2, 1)
            first, below = self.rest(first)
            x = torch.cat((first, second), 1)
            return nn.functional.pixel_shuffle(x, 2), log_det + below

    return Flow(image_shape[2], config.channels, config.scales).to(
        memory_format=torch.channels_last
    )


def to_pixels(images: np.ndarray) -> Any:
    """Images `[n, height, width, channels]` as PyTorch takes them."""
    import torch

    return torch.tensor(images).permute(0, 3, 1, 2).float()


def log_prob(flow: Any, pixels: Any) -> Any:
    """Log-likelihoods in nats, `[n]`, of pixels in 0–255 with noise on them."""
    import torch
    from torch.nn.functional import softplus

    share = 0.5 + 0.9 * ((pixels + torch.rand_like(pixels)) / 256 - 0.5)
    logits = torch.logit(share).contiguous(memory_format=torch.channels_last)
    slope = softplus(logits) + softplus(-logits) + np.log(0.9 / 256)
    latents, log_det = flow(logits)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(latents).sum((1, 2, 3))
    return prior + log_det + slope.sum((1, 2, 3))


def count_parameters(flow: Any) -> int:
    return sum(one.numel() for one in flow.parameters() if one.requires_grad)
