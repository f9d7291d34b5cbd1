"""Pages have the tables of the result files, and what docs/benchmarks.md concludes is in them."""

import json
import runpy

import pytest
from pages import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "bench" / "tables.py"))
COUNTS = ["1000", "2000", "4000", "8000", "16000"]


def result(name):
    return json.loads((ROOT / "results" / f"bench_{name}.json").read_text("utf-8"))


def test_pages_have_every_table_as_the_result_files_have_it():
    pages = [page.read_text("utf-8") for page in TOOL["PAGES"]]
    assert [TOOL["renewed"](page) for page in pages] == pages
    for name in TOOL["TABLES"]:
        assert "".join(pages).count(f"<!-- table: {name} -->\n\n| ") == 1


@pytest.mark.parametrize("name", ["growth", "one_by_one", "startup"])
def test_a_result_file_states_where_it_comes_from(name):
    found = result(name)
    assert found["command"].startswith(f"python tools/bench/{name}.py")
    assert found["machine"]["cores"] > 0
    assert "tensorflow" in found["versions"]


def test_an_image_costs_the_same_among_1000_and_16000_in_bounded_memory():
    ours = [row for row in result("growth")["methods"].values() if row["library"] == "tfbnood"]
    assert len(ours) == 3
    for row in ours:
        assert list(row["by_count"]) == COUNTS
        assert row["score_cost_grows_by"] < 1.3
        assert row["by_count"]["16000"]["peak_MB"] < 1.05 * row["by_count"]["8000"]["peak_MB"]


@pytest.mark.parametrize("name", ["LocalOutlierFactor", "OneClassSVM", "MMDDrift"])
def test_comparing_all_with_all_costs_more_the_more_there_are(name):
    row = result("growth")["methods"][name]
    counts = [int(count) for count in row["by_count"]]
    # Twice the images, 1.5 times the cost of each at least.
    doublings = (counts[-1] // counts[0]).bit_length() - 1
    assert row["score_cost_grows_by"] > 1.5**doublings


def test_loops_over_single_images_cost_many_times_as_much():
    for ways in result("one_by_one")["scores"].values():
        assert ways["Keras, eager, one per call"]["cpu_to_predict"] > 10
        for way, row in ways.items():
            if way != "`predict`":
                assert row["cpu_to_predict"] > 1


def test_help_and_import_need_no_tensorflow():
    rows = result("startup")["rows"]
    for row in ("`tfbnood --help`", "`import tfbnood`"):
        assert rows[row]["cpu_seconds"] < rows["`import tensorflow`"]["cpu_seconds"] / 3
