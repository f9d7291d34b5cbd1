"""What is trained and measured at which scale, and which stages each table and figure needs: data, not code."""

import dataclasses
from typing import Any

__all__ = [
    "CONTAMINATIONS",
    "NEEDS",
    "SCALES",
    "SHARES",
    "WAIC_MODELS",
    "WHAT",
    "Generator",
    "Study",
]

CONTAMINATIONS = (1.0, 0.2, 0.05)
SHARES = (0.0, 0.15, 0.3, 0.5, 0.9, 1.0)  # r of Table 3 and Figure 3
WAIC_MODELS = 5  # as in Choi et al.
# The paper's sets, with nearest-neighbour rotations, as the paper's most likely are; and the same angles, bilinear.
GREY = ("rotation", "mnist", "omniglot", "kmnist", "rotation-bilinear")
COLOUR = ("rotation", "svhn", "tinyimagenet", "lsun", "rotation-bilinear")


@dataclasses.dataclass(frozen=True)
class Generator:
    """A model of another data set whose samples should fool a study's model.

    Attributes:
        data: the data set it is trained on.
        steps: of its training; model and preset are the study's.
        temperatures: to sample at.
        fooling: the temperature that Figures 4 and 5 show.
        samples: number of samples at each temperature.
    """

    data: str
    steps: int
    temperatures: tuple[float, ...]
    fooling: float
    samples: int = 256


@dataclasses.dataclass(frozen=True)
class Study:
    """A model on a data set, and the sets it should distinguish from it.

    Attributes:
        data: in-distribution data set.
        outliers: names as for `tfbnood evaluate`.
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: its size.
        steps: of training.
        stages: what to measure, in this order.
        delta_shares: shares of outliers at which Δ with mixed samples is measured, which takes long.
        n: maximum number of images per set, for a slow model; None leaves it to the call.
        background: steps of the background model of the stage `ratio`.
        generator: of the stage `fooled`.
        waic_steps: of each model of the stage `waic`, none of which is the study's own.
        precision: of the training of all these models; every model scores in float32.
    """

    data: str
    outliers: tuple[str, ...]
    model: str
    preset: str
    steps: int
    stages: tuple[str, ...]
    delta_shares: tuple[float, ...] = (1.0,)
    n: int | None = None
    background: int = 0
    generator: Generator | None = None
    waic_steps: int = 2000
    precision: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.data}_{self.model}"

    def settings_of(self, stage: str, waic_models: int = WAIC_MODELS) -> dict[str, Any]:
        """What the result of a stage depends on besides the call's own settings; JSON-safe."""
        settings: dict[str, Any] = {
            key: getattr(self, key) for key in ("data", "model", "preset", "steps", "precision")
        }
        if stage not in ("training", "speed"):
            settings |= {"outliers": list(self.outliers), "n": self.n}
        if stage == "deltas":
            settings["delta_shares"] = list(self.delta_shares)
        if stage == "waic":
            del settings["steps"]  # The study's own model is not among them.
            settings |= {"waic_models": waic_models, "waic_steps": self.waic_steps}
        if stage == "ratio":
            settings["background"] = self.background
        if stage == "fooled" and self.generator:
            generator = dataclasses.asdict(self.generator)
            settings["generator"] = {**generator, "temperatures": list(generator["temperatures"])}
        return settings


_BATCHES = ("batches", "batch_means", "mmd")

# Stages by purpose. Tables and figures are views of the same stages, so that nothing is measured twice.
NEEDS: dict[str, tuple[str, ...]] = {
    "table1": ("bits",),
    "table2": ("ensemble", "statistics", "deltas", "waic"),
    "table3": ("shares",),
    "table4": ("fooled",),
    "figure1": ("bits",),
    "figure2": (),
    "figure3": ("shares",),
    "figure4": ("fooled",),
    "figure5": ("fooled",),
    "beyond": ("ensemble", "statistics", *_BATCHES, "deltas", "speed", "draws", "ratio"),
}
# `near` has its own cases, in near_cases.
WHAT = (*NEEDS, "near", "all")

_PAPER = ("bits", "ensemble", "statistics", "deltas", "shares", "waic")
_FIRST = (*_PAPER, *_BATCHES, "speed", "draws", "ratio")
_COLOUR = (*_PAPER, *_BATCHES, "speed", "fooled")
_FOOLED_GREY = ("ensemble", "statistics", "deltas", "speed", "fooled")
_FAST = "mixed_bfloat16"

SCALES: dict[str, tuple[Study, ...]] = {
    "tiny": (
        Study(
            "digits",
            ("rotation", "inverted"),
            "vae",
            "tiny",
            120,
            (*_FIRST, "fooled"),
            CONTAMINATIONS[:2],
            background=60,
            generator=Generator("photos", 60, (0.7, 1.0, 1.3), 1.0, 64),
            waic_steps=60,
        ),
    ),
    "cpu": (
        Study(
            "fashion_mnist",
            GREY,
            "realnvp",
            "cpu-grey",
            15_000,
            _FIRST,
            CONTAMINATIONS[:2],
            background=600,
            precision=_FAST,
        ),
        Study(
            "fashion_mnist",
            GREY,
            "vae",
            "cpu-grey",
            10_000,
            (*_PAPER, "speed"),
            precision=_FAST,
        ),
        Study(
            "fashion_mnist",
            GREY,
            "pixelcnn",
            "cpu-grey",
            3000,
            _FOOLED_GREY,
            n=500,
            generator=Generator("mnist", 300, (1.17,), 1.17, 64),
            waic_steps=800,
            precision=_FAST,
        ),
        Study(
            "cifar10",
            COLOUR,
            "realnvp",
            "cpu-colour",
            15_000,
            _COLOUR,
            generator=Generator("svhn", 800, (0.7, 1.0, 1.1, 1.3), 1.1),
            precision=_FAST,
        ),
        Study(
            "cifar10",
            COLOUR,
            "pixelcnn",
            "cpu-colour",
            3000,
            (*_PAPER, "speed"),
            n=500,
            waic_steps=800,
            precision=_FAST,
        ),
    ),
    "paper": (
        Study(
            "fashion_mnist",
            GREY,
            "realnvp",
            "paper-grey",
            100_000,
            _FIRST,
            CONTAMINATIONS[:2],
            background=50_000,
            waic_steps=100_000,
        ),
        Study(
            "fashion_mnist",
            GREY,
            "vae",
            "paper-grey",
            100_000,
            (*_PAPER, "speed"),
            waic_steps=100_000,
        ),
        Study(
            "fashion_mnist",
            GREY,
            "pixelcnn",
            "paper-grey",
            100_000,
            _FOOLED_GREY,
            generator=Generator("mnist", 100_000, (1.17,), 1.17, 1000),
            waic_steps=100_000,
        ),
        Study(
            "cifar10",
            COLOUR,
            "realnvp",
            "paper-colour",
            100_000,
            _COLOUR,
            generator=Generator("svhn", 100_000, (0.7, 1.0, 1.1, 1.3), 1.1, 1000),
            waic_steps=100_000,
        ),
        Study(
            "cifar10",
            COLOUR,
            "pixelcnn",
            "paper-colour",
            100_000,
            (*_PAPER, "speed"),
            waic_steps=100_000,
        ),
    ),
}
