"""Tables of scores on a terminal."""

import types

import numpy as np

from tfbnood.cli.listing import print_listing


def scored(count, flagged, bits=None):
    p_values = np.linspace(0.001, 1, count)
    return types.SimpleNamespace(
        score=-p_values,
        p_value=p_values,
        is_ood=np.arange(count) < flagged,
        bits_per_dim=None if bits is None else np.full(count, bits),
    )


def table(capsys, found, top=None):
    names = [f"{index}.png" for index in range(len(found.score))]
    print_listing(names, found, "table", about={}, sentences=["the end"], top=top)
    return capsys.readouterr().out.splitlines()


def test_a_table_has_the_flagged_images_and_at_least_ten(capsys):
    lines = table(capsys, scored(100, 3))
    assert [line.split()[0] for line in lines[1:-1]] == [f"{index}.png" for index in range(10)]
    assert [line.endswith("flagged") for line in lines[1:-1]] == [True] * 3 + [False] * 7
    assert len(table(capsys, scored(100, 25))) == 1 + 25 + 1


def test_a_folder_full_of_alarms_does_not_fill_the_terminal(capsys):
    lines = table(capsys, scored(5000, 4000))
    assert len(lines) == 1 + 40 + 2
    assert lines[-2] == "… and 3960 more flagged: --top 4000 or --out FILE.csv lists them"
    assert len(table(capsys, scored(5000, 4000), top=4000)) == 1 + 4000 + 1


def test_top_is_what_was_asked_for(capsys):
    lines = table(capsys, scored(100, 5), top=3)
    assert [line.split()[0] for line in lines[1:4]] == ["0.png", "1.png", "2.png"]
    assert lines[4].startswith("… and 2 more flagged")
    assert table(capsys, scored(100, 5), top=0) == ["the end"]


def test_bits_are_a_column_where_there_are_likelihoods(capsys):
    assert "bits" in table(capsys, scored(10, 1, bits=2.5))[0]
    without = scored(10, 1)
    assert "bits" not in table(capsys, without)[0]
    del without.bits_per_dim  # as in the answer of an export
    assert "bits" not in table(capsys, without)[0]
