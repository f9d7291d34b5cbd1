import collections
import dataclasses

import pytest

from tfbnood.reproduce.near_published import PUBLISHED, Published


def auroc(method, name):
    (found,) = [one.auroc for one in PUBLISHED if (one.method, one.set) == (method, name)]
    return found


def test_every_row_is_a_fraction_with_a_source_and_a_note():
    for one in PUBLISHED:
        assert 0 < one.auroc < 1
        assert "arXiv:" in one.source
        assert " read in " in one.source
        assert one.note


def test_a_method_has_one_figure_per_set():
    assert len({(one.method, one.set) for one in PUBLISHED}) == len(PUBLISHED)
    counts = collections.Counter(one.method for one in PUBLISHED)
    assert counts == {
        **dict.fromkeys(("Rot", "Rot+Trans", "GOAD", "CSI", "UniCon-HA"), 7),
        **dict.fromkeys(("input complexity", "DoSE", "WAIC", "typicality test"), 2),
        "SSD": 1,
    }


def test_figures_are_in_the_column_they_were_printed_in():
    assert [one.auroc for one in PUBLISHED if one.method == "CSI"] == [
        *(0.998, 0.975, 0.976),  # SVHN, LSUN, ImageNet
        *(0.903, 0.933),  # LSUN (FIX), ImageNet (FIX)
        *(0.892, 0.793),  # CIFAR-100, Interp.
    ]
    assert auroc("Rot", "ImageNet (FIX)") == 0.832
    assert auroc("GOAD", "CIFAR-100") == 0.772
    assert auroc("DoSE", "CIFAR-100") == 0.571


def test_sets_without_artefacts_are_harder():
    for method in ("Rot", "Rot+Trans", "GOAD", "CSI", "UniCon-HA"):
        for name in ("LSUN", "ImageNet"):
            assert auroc(method, f"{name} (FIX)") < auroc(method, name)


def test_rows_are_frozen():
    assert all(isinstance(one, Published) for one in PUBLISHED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PUBLISHED[0].auroc = 1.0
