"""What `tfbnood reproduce near` compares: images, near outliers, and the basis of detectors. Data, not code."""

import dataclasses

__all__ = ["CASES", "SETUPS", "Case", "Setup"]


@dataclasses.dataclass(frozen=True)
class Case:
    """In-distribution images and what is to be distinguished from them.

    Attributes:
        data: in-distribution data set.
        outliers: names as for `tfbnood evaluate`, and `tinyimagenet_other`: Tiny ImageNet without the classes that also
            occur in CIFAR-10.
        left_out: classes of `data` that are outliers; the others are in-distribution.
        detector: of `savedmodels/`, the default for these images, if there is one.
        photographs: True for pictures at their original size, shown in the second table.
        setups: names of `SETUPS`.
    """

    data: str
    outliers: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()
    detector: str | None = None
    photographs: bool = False
    setups: tuple[str, ...] = ("lite0_128", "lite0_224", "classifier")

    def seeds(self, setup: str) -> range:
        """The seed of the reference images."""
        return range(1 if self.left_out else SETUPS[setup].seeds)

    @property
    def name(self) -> str:
        classes = "".join(f"_{label}" for label in self.left_out)
        return f"{self.data}{'_without' if classes else ''}{classes}"


@dataclasses.dataclass(frozen=True)
class Setup:
    """The basis of a detector.

    Attributes:
        title: in the tables.
        network: a name of `tfbnood.networks.load`, or "classifier" for a small one trained here on labels; None for
            the shipped detector of the case, or for pixels alone.
        size: of the images inside the network.
        reference: maximum number of images to fit it to.
        n: maximum number of images per set, for a slow network; None leaves it to the call.
        seeds: repetitions with other reference images, if no classes are left out.
        local: measure `bn_local` as well.
        batches: measure whole batches as well, for sets other than left-out classes.
    """

    title: str
    network: str | None = None
    size: int | None = None
    reference: int = 2000
    n: int | None = None
    seeds: int = 1
    local: bool = False
    batches: bool = False


# In the order in which they are measured.
SETUPS: dict[str, Setup] = {
    "shipped": Setup("shipped detector", reference=0),
    "pixels": Setup("pixels alone", reference=2000),
    "lite0_128": Setup(
        "EfficientNet-Lite0, 128 px", "efficientnet-lite0", 128, seeds=2, batches=True
    ),
    "photographs_128": Setup(
        "EfficientNet-Lite0, 128 px", "efficientnet-lite0", 128, seeds=2, local=True
    ),
    "classifier": Setup("small classifier, trained here on labels", "classifier"),
    "photographs_224": Setup("EfficientNet-Lite0, 224 px", "efficientnet-lite0", 224, local=True),
    "lite0_224": Setup("EfficientNet-Lite0, 224 px", "efficientnet-lite0", 224, 1000, 500),
}

# Slow setups are measured where they matter most; garments of 28 pixels are not enlarged eightfold.
_LEFT_OUT = ("lite0_128", "lite0_224", "classifier")
_PHOTOGRAPHS = ("pixels", "photographs_128", "photographs_224")

# Chosen before anything was measured: halves of the classes as in tools/research/held_out_classes.py, CIFAR-10's
# vehicles and its animals, and of the scenes those of ../shared/docs/networks.md and each of two more pairs.
CASES: tuple[Case, ...] = (
    Case(
        "cifar10",
        ("lsun", "svhn", "tinyimagenet", "tinyimagenet_other", "rotation"),
        detector="cifar10_realnvp",
        setups=("shipped", *_LEFT_OUT),
    ),
    Case("cifar10", left_out=(5, 6, 7, 8, 9), setups=_LEFT_OUT),
    Case("cifar10", left_out=(1, 3, 5, 7, 9), setups=_LEFT_OUT),
    Case("cifar10", left_out=(0, 1, 8, 9), setups=("lite0_128", "classifier")),
    Case("cifar10", left_out=(2, 3, 4, 5, 6, 7), setups=("lite0_128", "classifier")),
    Case(
        "fashion_mnist",
        ("mnist", "kmnist", "omniglot", "rotation"),
        detector="fashion_mnist_vae",
        setups=("shipped", "lite0_128", "classifier"),
    ),
    Case("fashion_mnist", left_out=(5, 6, 7, 8, 9), setups=("lite0_128",)),
    Case("fashion_mnist", left_out=(1, 3, 5, 7, 9), setups=("lite0_128",)),
    Case("scenes128", ("flowers128",), photographs=True, setups=_PHOTOGRAPHS),
    Case("scenes128", left_out=(4, 5), photographs=True, setups=_PHOTOGRAPHS),
    Case("scenes128", left_out=(0, 1), photographs=True, setups=_PHOTOGRAPHS),
    Case("scenes128", left_out=(2, 3), photographs=True, setups=_PHOTOGRAPHS),
    Case("screw", ("defects",), photographs=True, setups=_PHOTOGRAPHS),
)
