"""docs/guarantees.md states what results/monitor.json has, and what is promised was kept."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location(
    "monitor_tables", ROOT / "tools" / "bench" / "monitor_tables.py"
)
tables = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tables)


@pytest.fixture(scope="module")
def measured():
    return json.loads((ROOT / "results" / "monitor.json").read_text("utf-8"))


def test_the_page_has_the_tables_of_the_results(measured):
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    for table in tables.tables(measured):
        assert table.count("\n") > 2
        assert table in page


@pytest.mark.parametrize("detector", tables.SETS)
def test_no_promise_was_broken_on_streams_that_are_exchangeable(detector, measured):
    for kind in tables.PROMISED:
        found = measured["parts"][f"{detector}/{kind}"]
        assert len(found) == 3
        for share in found.values():
            assert share["of"] == 1000
            assert share["high"] <= share["promised"]


def test_streams_were_simulated_as_a_monitor_watches_them(measured):
    assert measured["parts"]["simulation, difference from a monitor"]["relative"] < 1e-9


def test_the_bets_find_outliers_sooner_than_a_simple_jumper(measured):
    ours, jumper = (measured["parts"][name] for name in ("anchors", "anchors, simple jumper"))
    for share in ("1", "0.25"):
        assert (
            ours[share]["monitor"]["median"] * 2
            < jumper[share]["CUSUM at the run length"]["median"]
        )
    for share in ("0.1", "0.05"):
        assert ours[share]["monitor"]["found"] > 0.9
        assert jumper[share]["CUSUM at the run length"]["found"] < 0.5
