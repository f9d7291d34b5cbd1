import os

import numpy as np
import pytest

from tfbnood.data.formats import from_npz
from tfbnood.data.tinyimagenet_classes import (
    BORDERLINE,
    CIFAR10_KINDS,
    CLASSES,
    without_cifar10_kinds,
)
from tfbnood.errors import DataError

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FILE = os.path.join(os.environ.get("TFBNOOD_DATA", ""), "tinyimagenet.npz")


def test_every_label_is_one_of_200_and_in_one_list_only():
    labels = [*CIFAR10_KINDS, *BORDERLINE]
    assert len(CIFAR10_KINDS) == 23
    assert len(BORDERLINE) == 15
    assert len(set(labels)) == 38
    assert set(labels) <= set(range(CLASSES))
    assert list(CIFAR10_KINDS) == sorted(CIFAR10_KINDS)
    assert list(BORDERLINE) == sorted(BORDERLINE)


def test_names_are_unique_and_kinds_are_cifar10s():
    rows = [*CIFAR10_KINDS.values(), *BORDERLINE.values()]
    assert len({row[0] for row in rows}) == len(rows)
    assert {row[1] for row in rows} <= set(CIFAR10)
    assert all(reason for _, _, reason in BORDERLINE.values())


def test_the_lists_are_frozen():
    with pytest.raises(TypeError):
        CIFAR10_KINDS[0] = ("goldfish", "ship")
    with pytest.raises(TypeError):
        del BORDERLINE[1]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_the_mask_keeps_all_other_classes(dtype):
    labels = np.arange(CLASSES, dtype=dtype)
    kept = without_cifar10_kinds(labels)
    assert kept.dtype == bool
    assert set(labels[~kept]) == set(CIFAR10_KINDS)
    kept = without_cifar10_kinds(labels, drop_borderline=True)
    assert set(labels[~kept]) == {*CIFAR10_KINDS, *BORDERLINE}
    assert without_cifar10_kinds([]).shape == (0,)


@pytest.mark.parametrize("labels", [[0, 200], [-1, 3]], ids=str)
def test_labels_out_of_range_are_refused(labels):
    with pytest.raises(DataError, match=r"labels must be in 0–199.*Received: "):
        without_cifar10_kinds(labels)


@pytest.mark.parametrize("labels", [[0.0, 1.0], [[1, 2]], 3, [True]], ids=str)
def test_labels_that_are_no_vector_of_integers_are_refused(labels):
    with pytest.raises(DataError, match=r"labels must be integers \[n\].*Received: "):
        without_cifar10_kinds(labels)


@pytest.mark.skipif(not os.path.isfile(FILE), reason="needs tinyimagenet.npz in TFBNOOD_DATA")
def test_a_tenth_of_the_file_is_of_cifar10s_kinds():
    with np.load(FILE, allow_pickle=False) as archive:
        labels = archive["labels"]
    assert len(labels) == len(from_npz(FILE)) == 3000
    counts = np.bincount(labels, minlength=CLASSES)
    assert len(counts) == CLASSES
    assert (
        np.count_nonzero(~without_cifar10_kinds(labels)) == counts[list(CIFAR10_KINDS)].sum() == 327
    )
