"""Published figures for CIFAR-10 as the in-distribution, without labels: to show beside ours, not to rank.

No set is exactly ours. Our data folder has half of CIFAR-10's training images; our LSUN has only bedrooms, and our Tiny
ImageNet is from the validation images, both resized with an antialiased bicubic filter. The note of each row describes
theirs. How "FIX" is made was read in `datasets/*_fix_preprocess.py` of github.com/alinlab/CSI.

Every figure was read in the text that `source` names, a later paper's comparison: Rot, Rot+Trans and GOAD are others'
runs of these methods. The read-me of CSI's authors prints 82.5 and 89.3 on CIFAR-100 for Rot+Trans and CSI; the table
prints 82.3 and 89.2.
"""

import dataclasses

__all__ = ["PUBLISHED", "Published"]


@dataclasses.dataclass(frozen=True)
class Published:
    """A published AUROC.

    Attributes:
        method: its name, as its authors write it.
        source: the authors of the method or figure, and the text it was read in.
        set: the outliers, by the authors' names.
        auroc: between 0 and 1.
        note: what differs from our sets and our training.

    Example:
        >>> near = [one for one in PUBLISHED if one.set == "CIFAR-100"]
        >>> [one.method for one in near if one.auroc > 0.9]
        ['UniCon-HA', 'SSD']
    """

    method: str
    source: str
    set: str
    auroc: float
    note: str


_SETS = {
    "SVHN": "the digits as distributed; ours are cut anew from the full-number pictures",
    "LSUN": "LSUN (resize), ten scenes with artefacts of resizing; ours: bedrooms only, antialiased",
    "ImageNet": "Tiny ImageNet (resize) with artefacts of resizing; ours: antialiased",
    "LSUN (FIX)": "ten scenes, centre crop, antialiased bilinear; ours: bedrooms only, bicubic, no crop",
    "ImageNet (FIX)": "26 classes of ImageNet-30, four like CIFAR-10's left out, antialiased bilinear; "
    "ours: 200 classes of Tiny ImageNet, bicubic",
    "CIFAR-100": "not in our data folder",
    "Interp.": "linear interpolations of images of CIFAR-10; not in our data folder",
}
_UNICON = "read in Wang et al. 2023, arXiv:2308.10155, Table 2(a)"
_DIFFPATH = "read in Heng et al. 2024, arXiv:2405.11881, Table 3"
_TACK = "Tack et al. 2020, arXiv:2007.08176"
_SEHWAG = "Sehwag et al. 2021, arXiv:2103.12051; read in Xue et al. 2022, arXiv:2212.12720, Table 3"
_SERRA = f"Serrà et al. 2020, arXiv:1909.11480; {_DIFFPATH}"
# Another text prints 0.97 and 0.57 for DoSE: "Inference, Fast and Slow: Reinterpreting VAEs for OOD Detection".
_MORNINGSTAR = f"Morningstar et al. 2021, arXiv:2006.09273; {_DIFFPATH}"

# ResNet-18, mean of five runs, in the order of _SETS.
_RESNET18 = (
    ("Rot", "Hendrycks et al. 2019", (0.976, 0.892, 0.905, 0.777, 0.832, 0.790, 0.640)),
    ("Rot+Trans", "Hendrycks et al. 2019", (0.978, 0.928, 0.942, 0.816, 0.867, 0.823, 0.681)),
    ("GOAD", "Bergman & Hoshen 2020", (0.963, 0.893, 0.918, 0.788, 0.833, 0.772, 0.594)),
    ("CSI", _TACK, (0.998, 0.975, 0.976, 0.903, 0.933, 0.892, 0.793)),
    ("UniCon-HA", "Wang et al. 2023", (0.995, 0.985, 0.983, 0.933, 0.978, 0.903, 0.807)),
)
_TRAINED = "ResNet-18 trained on CIFAR-10 without labels"

# (method, source, set, AUROC, what it is computed with).
_SINGLE = (
    ("SSD", _SEHWAG, "CIFAR-100", 0.9063, "contrastive features"),
    ("input complexity", _SERRA, "SVHN", 0.950, "Glow"),
    ("input complexity", _SERRA, "CIFAR-100", 0.736, "Glow"),
    ("DoSE", _MORNINGSTAR, "SVHN", 0.955, "Glow"),
    ("DoSE", _MORNINGSTAR, "CIFAR-100", 0.571, "Glow"),
    ("WAIC", _MORNINGSTAR, "SVHN", 0.143, "Glow"),
    ("WAIC", _MORNINGSTAR, "CIFAR-100", 0.532, "Glow"),
    ("typicality test", _MORNINGSTAR, "SVHN", 0.870, "Glow"),
    ("typicality test", _MORNINGSTAR, "CIFAR-100", 0.548, "Glow"),
)

PUBLISHED: tuple[Published, ...] = (
    *(
        Published(method, f"{source}; {_UNICON}", name, auroc, f"{_TRAINED}; {_SETS[name]}")
        for method, source, values in _RESNET18
        for name, auroc in zip(_SETS, values, strict=True)
    ),
    *(
        Published(method, source, name, auroc, f"{model}; {_SETS[name]}")
        for method, source, name, auroc, model in _SINGLE
    ),
)
