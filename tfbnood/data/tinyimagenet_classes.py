"""The classes of Tiny ImageNet that also occur in CIFAR-10, and thus are not outliers for a model of CIFAR-10.

A label of `tinyimagenet.npz` is the index of its class among the 200 WordNet ids of Stanford CS231n's Tiny ImageNet,
sorted. The list is that of `sets/words200.txt` in github.com/rmccorm4/Tiny-Imagenet-200; some copies of `wnids.txt`
hold 202 ids (with gorilla, n02480855, and groom, n10148035), which shifts every label from 55 on.

The rule: a class is of CIFAR-10's kind when a person who knows only CIFAR-10's ten names would have to give its images
one of them. Every cat, dog, frog and bird counts, of any breed or species; lions and salamanders do not. Vehicles
follow CIFAR-10's own definition: "automobile" is sedans, SUVs and the like, here vans for people as well; "truck" is
big trucks only. Every boat is a "ship", as in CIFAR-10. Airplane, deer and horse have no class here. The rule judges
classes, not images: a few images of other classes show a parked car or a rider, and a few of these show neither.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tfbnood.errors import DataError

__all__ = ["BORDERLINE", "CIFAR10_KINDS", "CLASSES", "without_cifar10_kinds"]

CLASSES = 200

# By label: (class of Tiny ImageNet, class of CIFAR-10). They are 327 of the 3,000 images.
CIFAR10_KINDS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        2: ("bullfrog", "frog"),  # n01641577
        3: ("tailed frog", "frog"),  # n01644900
        11: ("goose", "bird"),  # n01855672
        20: ("black stork", "bird"),  # n02002724
        21: ("king penguin", "bird"),  # n02056570
        22: ("albatross", "bird"),  # n02058221
        24: ("Chihuahua", "dog"),  # n02085620
        25: ("Yorkshire terrier", "dog"),  # n02094433
        26: ("golden retriever", "dog"),  # n02099601
        27: ("Labrador retriever", "dog"),  # n02099712
        28: ("German shepherd", "dog"),  # n02106662
        29: ("standard poodle", "dog"),  # n02113799
        30: ("tabby", "cat"),  # n02123045
        31: ("Persian cat", "cat"),  # n02123394
        32: ("Egyptian cat", "cat"),  # n02124075
        70: ("beach wagon", "automobile"),  # n02814533
        94: ("convertible", "automobile"),  # n03100240
        108: ("gondola", "ship"),  # n03447447
        115: ("lifeboat", "ship"),  # n03662601
        116: ("limousine", "automobile"),  # n03670208
        121: ("moving van", "truck"),  # n03796401
        133: ("police van", "automobile"),  # n03977966
        153: ("sports car", "automobile"),  # n04285008
    }
)

# By label: (class of Tiny ImageNet, the class of CIFAR-10 it is near, why it is not of that kind).
BORDERLINE: Mapping[int, tuple[str, str, str]] = MappingProxyType(
    {
        1: ("European fire salamander", "frog", "an amphibian, but no frog"),  # n01629819
        33: ("cougar", "cat", "a wild cat; CIFAR-10 has house cats"),  # n02125311
        34: ("lion", "cat", "a wild cat; CIFAR-10 has house cats"),  # n02129165
        49: ("ox", "horse", "a hoofed animal of like build"),  # n02403003
        50: ("bison", "horse", "a hoofed animal of like build"),  # n02410509
        51: ("bighorn", "deer", "a horned sheep of like build"),  # n02415577
        52: ("gazelle", "deer", "an antelope: looks like a deer, but is not one"),  # n02423022
        53: ("Arabian camel", "horse", "a hoofed animal of like build, often ridden"),  # n02437312
        81: ("bullet train", "truck", "a big vehicle, but on rails"),  # n02917067
        103: ("freight car", "truck", "a big vehicle, but on rails"),  # n03393912
        107: ("go-kart", "automobile", "four wheels and a driver, but no car body"),  # n03444034
        137: ("projectile", "airplane", "a missile, at times on or beside a plane"),  # n04008634
        145: ("school bus", "truck", "as big as a truck; CIFAR-10 has no buses"),  # n04146614
        164: ("tractor", "truck", "a big vehicle, but for farming"),  # n04465501
        166: ("trolleybus", "truck", "as big as a truck; CIFAR-10 has no buses"),  # n04487081
    }
)


def without_cifar10_kinds(labels: Any, *, drop_borderline: bool = False) -> np.ndarray:
    """Marks the images of Tiny ImageNet that are outliers for a model of CIFAR-10.

    Args:
        labels: integers `[n]` in 0–199, as in `tinyimagenet.npz`.
        drop_borderline: drop the classes of `BORDERLINE` as well. Defaults to False.

    Returns:
        bool `[n]`, True for images to keep.

    Raises:
        DataError: labels that are not integers `[n]` in 0–199.

    Example:
        >>> without_cifar10_kinds([0, 26, 52])  # goldfish, golden retriever, gazelle
        array([ True, False,  True])
        >>> without_cifar10_kinds([0, 26, 52], drop_borderline=True)
        array([ True, False, False])
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        raise DataError(
            "labels must be integers [n], those of tinyimagenet.npz. "
            f"Received: {labels.dtype} of shape {labels.shape}"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise DataError(
            f"labels must be in 0–{CLASSES - 1}, indexes into the sorted WordNet ids of Tiny "
            f"ImageNet. Received: {labels.min()}–{labels.max()}"
        )
    dropped = [*CIFAR10_KINDS, *(BORDERLINE if drop_borderline else ())]
    return ~np.isin(labels, dropped)
