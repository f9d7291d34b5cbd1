"""The paper's own numbers, as printed. Every one is marked as the paper's wherever it is shown.

Song, Song, Ermon (2019), "Unsupervised Out-of-Distribution Detection with Batch Normalization", arXiv:1910.09115:
Tables 1 and 2, and the appendix's tables of r2 (here `TABLE3`) and of generated samples (`TABLE4`). "ImageNet" is
32×32 ImageNet there and Tiny ImageNet here.
"""

from types import MappingProxyType

__all__ = ["SLIPS", "TABLE1", "TABLE2", "TABLE3", "TABLE4"]

# Bits per dimension in evaluation and in training mode, by study and set.
TABLE1 = MappingProxyType(
    {
        "fashion_mnist_realnvp": {"fashion_mnist": (2.92, 2.94), "mnist": (1.74, 9.47)},
        "cifar10_realnvp": {"cifar10": (3.48, 3.51), "svhn": (2.44, 11.10)},
        "fashion_mnist_vae": {"fashion_mnist": (3.19, 3.20), "mnist": (1.97, 8.50)},
        "cifar10_pixelcnn": {"cifar10": (3.21, 3.33), "svhn": (2.16, 4.04)},
    }
)

# (AUROC, average precision) of log p, T_perm, WAIC and Δ, by study and set.
_METHODS = ("log_prob", "t_perm", "waic", "bn_delta")


def _by_method(*values: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return dict(zip(_METHODS, values, strict=True))


TABLE2 = MappingProxyType(
    {
        "fashion_mnist_realnvp": {
            "rotation": _by_method((0.76, 0.78), (0.64, 0.68), (0.99, 0.99), (0.99, 0.99)),
            "mnist": _by_method((0.10, 0.32), (0.78, 0.71), (0.24, 0.38), (1.00, 1.00)),
            "omniglot": _by_method((0.05, 0.06), (0.86, 0.80), (0.97, 0.95), (1.00, 1.00)),
            "kmnist": _by_method((0.47, 0.46), (0.45, 0.45), (0.63, 0.65), (1.00, 1.00)),
        },
        "fashion_mnist_vae": {
            "rotation": _by_method((0.73, 0.72), (0.61, 0.64), (0.94, 0.95), (0.97, 0.98)),
            "mnist": _by_method((0.13, 0.33), (0.73, 0.68), (0.56, 0.64), (1.00, 1.00)),
            "omniglot": _by_method((0.00, 0.06), (0.99, 0.96), (0.90, 0.83), (1.00, 1.00)),
            "kmnist": _by_method((0.55, 0.54), (0.50, 0.50), (0.84, 0.87), (1.00, 1.00)),
        },
        "cifar10_realnvp": {
            "rotation": _by_method((0.87, 0.87), (0.79, 0.79), (0.99, 0.98), (1.00, 1.00)),
            "svhn": _by_method((0.07, 0.52), (0.86, 0.82), (0.16, 0.55), (1.00, 1.00)),
            "tinyimagenet": _by_method((0.51, 0.52), (0.50, 0.51), (0.58, 0.59), (0.98, 0.97)),
            "lsun": _by_method((0.70, 0.39), (0.58, 0.56), (0.60, 0.28), (0.99, 0.98)),
        },
        "cifar10_pixelcnn": {
            "rotation": _by_method((0.77, 0.75), (0.67, 0.63), (0.90, 0.85), (0.99, 0.99)),
            "svhn": _by_method((0.10, 0.32), (0.86, 0.77), (0.09, 0.53), (0.99, 0.99)),
            "tinyimagenet": _by_method((0.51, 0.51), (0.49, 0.50), (0.66, 0.69), (0.89, 0.87)),
            "lsun": _by_method((0.72, 0.69), (0.60, 0.58), (0.78, 0.74), (0.98, 0.97)),
        },
    }
)

# AUROC with r1 → 0, by study and set, for r2 = .15, .3, .5 and .9.
TABLE3 = MappingProxyType(
    {
        "fashion_mnist_realnvp": {
            "rotation": (0.93, 0.91, 0.98, 0.99),
            "mnist": (0.92, 1.00, 1.00, 1.00),
            "omniglot": (0.96, 0.95, 1.00, 1.00),
            "kmnist": (0.86, 1.00, 1.00, 1.00),
        },
        "fashion_mnist_vae": {
            "rotation": (0.88, 0.94, 0.94, 0.97),
            "mnist": (0.86, 0.99, 0.56, 1.00),
            "omniglot": (0.93, 0.98, 0.90, 1.00),
            "kmnist": (0.85, 0.99, 0.84, 1.00),
        },
        "cifar10_realnvp": {
            "rotation": (1.00, 1.00, 1.00, 1.00),
            "svhn": (0.92, 1.00, 1.00, 1.00),
            "tinyimagenet": (0.74, 0.92, 0.98, 0.98),
            "lsun": (0.77, 0.98, 1.00, 0.99),
        },
        "cifar10_pixelcnn": {
            "rotation": (0.87, 0.97, 1.00, 0.99),
            "svhn": (0.76, 0.95, 1.00, 0.99),
            "tinyimagenet": (0.62, 0.74, 0.87, 0.89),
            "lsun": (0.72, 0.80, 0.98, 0.98),
        },
    }
)

# Bits per dimension in both modes, under a RealNVP of CIFAR-10, of samples of a RealNVP of SVHN, by temperature.
TABLE4 = MappingProxyType({0.7: (1.51, 317.0), 1.0: (2.88, 328.0), 1.3: (5.43, 16.0)})

SLIPS = (
    "Table 1 prints 8.56 as the difference of SVHN's 11.10 and 2.44, which is 8.66.",
    "The VAE's column r2 = 0.5 of Table 3 equals its WAIC column of Table 2 on three sets: a copy, most likely.",
    "Average precision depends on the share of outliers, which the paper does not give; ours are at equal numbers.",
)
