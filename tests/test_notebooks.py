"""The notebooks run from top to bottom, and show what is committed."""

import base64
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import tfbnood
from tfbnood.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools" / "run_notebooks.py")
tool = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tool)

NAMES = [
    "01_quickstart",
    "02_train_and_evaluate",
    "03_reproduce_the_paper",
    "04_mixed_streams",
    "05_bring_your_own_model",
    "06_serve",
    "07_monitor_a_stream",
]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()


def small_notebook():
    """In order in every way, without a run."""
    picture = new_output("display_data", {"image/png": PNG, "text/plain": "<Figure>"})
    cells = [
        new_markdown_cell(f"# Title\n\n{tool.badge('01_small')}\n\n[more]({tool.URL}/blob/main/x)"),
        new_code_cell(tool.INSTALL.rstrip(), execution_count=1),
        new_code_cell('os.environ.get("TFBNOOD_NOTEBOOK_DATA")', execution_count=2),
        new_code_cell("plot()", execution_count=3, outputs=[picture]),
    ]
    notebook = new_notebook(cells=cells)
    notebook.metadata["tfbnood"] = {"sources_sha256": tool.sources_sha256(notebook)}
    return notebook


def _badge_of_another_notebook(notebook):
    notebook.cells[0].source = notebook.cells[0].source.replace("01_small", "02_other")


def _no_install(notebook):
    notebook.cells[1].source = "pass"


def _no_data_cell(notebook):
    notebook.cells[2].source = 'data = load("mnist")'


def _link_elsewhere(notebook):
    notebook.cells[0].source += "\n\nhttps://github.com/someone/else"


def _tampered_code(notebook):
    notebook.cells[3].source = "plot(better=True)"


def _never_hashed(notebook):
    del notebook.metadata["tfbnood"]


def _not_run(notebook):
    notebook.cells[3].execution_count = None


def _run_out_of_order(notebook):
    notebook.cells[2].execution_count = 5


def _error(notebook):
    notebook.cells[2].outputs = [new_output("error", ename="KeyError", evalue="'x'", traceback=[])]


def _warning(notebook):
    notebook.cells[2].outputs = [new_output("stream", name="stderr", text="UserWarning: odd")]


def _no_picture(notebook):
    notebook.cells[3].outputs = []


def _broken_picture(notebook):
    notebook.cells[3].outputs[0].data["image/png"] = base64.b64encode(b"GIF89a").decode()


def _too_large(notebook):
    notebook.cells[3].outputs[0].data["image/png"] += "A" * 600_000


BROKEN = {
    _badge_of_another_notebook: "the badge",
    _no_install: "installs the package",
    _no_data_cell: "TFBNOOD_NOTEBOOK_DATA",
    _link_elsewhere: "someone/else",
    _tampered_code: "code has changed",
    _never_hashed: "code has changed",
    _not_run: r"\[1, 2, None\]",
    _run_out_of_order: r"\[1, 5, 3\]",
    _error: "KeyError",
    _warning: "UserWarning: odd",
    _no_picture: "at least one picture",
    _broken_picture: "no PNG",
    _too_large: "at most 600000 bytes",
}


def test_there_are_seven_notebooks():
    assert [path.stem for path in tool.notebooks()] == NAMES


@pytest.mark.parametrize("path", tool.notebooks(), ids=lambda path: path.stem)
def test_committed_outputs_are_in_order(path):
    notebook = tool.read(path)
    nbformat.validate(notebook)
    assert tool.problems(notebook, path.stem) == []
    assert path.stat().st_size <= tool.MOST_BYTES


def test_all_are_kept_with_garments_except_for_the_paper():
    with_garments = [
        path.stem
        for path in tool.notebooks()
        if any("fashion_mnist: " in line for cell in tool.shown(tool.read(path)) for line in cell)
    ]
    assert with_garments == [name for name in NAMES if name != "03_reproduce_the_paper"]
    assert with_garments == [name for name in NAMES if tool.data_of(name) == "fashion_mnist"]


def test_a_notebook_in_order_has_no_problems():
    assert tool.problems(small_notebook(), "01_small") == []


@pytest.mark.parametrize(("spoil", "said"), BROKEN.items(), ids=[one.__name__ for one in BROKEN])
def test_the_check_says_what_is_wrong(spoil, said):
    notebook = small_notebook()
    spoil(notebook)
    assert re.search(said, "; ".join(tool.problems(notebook, "01_small")))


def test_prose_can_be_mended_without_another_run():
    notebook = small_notebook()
    notebook.cells[0].source += "\n\nOne sentence more."
    assert tool.problems(notebook, "01_small") == []


def test_the_check_of_the_command_line_fails_on_a_tampered_cell(tmp_path, monkeypatch, capsys):
    notebook = small_notebook()
    nbformat.write(notebook, tmp_path / "01_small.ipynb")
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run_notebooks", "--check"])
    assert tool.main() == 0
    _tampered_code(notebook)
    nbformat.write(notebook, tmp_path / "01_small.ipynb")
    assert tool.main() == 1
    assert "01_small: code has changed" in capsys.readouterr().out


def test_badge_and_install_cell_come_from_one_address(monkeypatch):
    text = (ROOT / "tools" / "run_notebooks.py").read_text(encoding="utf-8")
    assert text.count("github.com/tfbnood") == 1
    monkeypatch.setattr(tool, "INSTALL", "installs another")
    notebook = small_notebook()
    _badge_of_another_notebook(notebook)
    renewed = tool.with_common_cells(notebook, "01_small")
    assert tool.badge("01_small") in renewed.cells[0].source
    assert renewed.cells[1].source == "installs another"


def test_readme_has_the_badge_of_every_notebook():
    readme = (ROOT / "colab" / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if tool.badge(name) not in readme] == []


def test_pictures_are_written_as_files_named_by_notebook_and_cell(tmp_path):
    nbformat.write(small_notebook(), tmp_path / "01_small.ipynb")
    tool.write_pictures(tmp_path / "01_small.ipynb", tmp_path / "pictures")
    (picture,) = (tmp_path / "pictures").iterdir()
    assert picture.name == "01_small-3-0.png"
    assert picture.read_bytes() == base64.b64decode(PNG)


def test_logs_are_dropped_and_warnings_are_kept():
    said = (
        "I0000 00:00:1794854177.134171   12462 cudart_stub.cc:31] Could not find cuda drivers\n"
        "[1/2] digits_vae_training took 5 s; about 0 min left\n"
        "UserWarning: odd\n"
    )
    streams = [
        new_output("stream", name="stdout", text="one\n"),
        new_output(
            "stream", name="stdout", text="INFO:tensorflow:Assets written to: /tmp/x\ntwo\n"
        ),
        new_output("stream", name="stderr", text=said),
    ]
    notebook = new_notebook(cells=[new_code_cell("work()", outputs=streams)])
    outputs = tool.cleaned(notebook).cells[0].outputs
    assert [(output.name, output.text) for output in outputs] == [
        ("stdout", "one\ntwo\n"),
        ("stderr", "UserWarning: odd\n"),
    ]


def test_masks_hide_last_digits_and_nothing_else():
    one = "rotated  0.943 ±0.012   −1.5e-07\n----  12 of 397 images (5%)"
    other = "rotated  1.0 ±0.1  2\n------  9 of 1,024 images (12%)"
    assert tool.masked(one) == tool.masked(other) == "rotated # # # # of # images (#)"
    assert tool.masked(one) != tool.masked(one.replace("rotated", "inverted"))


def test_a_run_stops_at_an_error_and_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "01_small.ipynb"
    cells = [new_markdown_cell("# Title"), new_code_cell(""), new_code_cell("1 / 0")]
    nbformat.write(new_notebook(cells=cells), path)
    before = path.read_bytes()
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        tool.run(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_run_is_in_a_folder_of_its_own_with_the_digits_and_leaves_its_argument_alone():
    code = "import os\nprint(os.environ['TFBNOOD_NOTEBOOK_DATA'], os.listdir())"
    notebook = new_notebook(cells=[new_code_cell(code)])
    done = tool.executed(notebook)
    assert re.fullmatch(r"digits \[.*\]\n", done.cells[0].outputs[0].text)
    assert "README.md" not in done.cells[0].outputs[0].text
    assert done.metadata["tfbnood"]["sources_sha256"] == tool.sources_sha256(notebook)
    assert notebook.cells[0].outputs == []


def test_the_tool_runs_as_a_script():
    command = [sys.executable, str(ROOT / "tools" / "run_notebooks.py"), "--check", "no_such"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "NAME must be one of 01_quickstart" in run.stderr
    assert "Received: no_such" in run.stderr


@pytest.mark.parametrize("path", tool.notebooks(), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_committed(path):
    data = tool.data_of(path.stem)
    try:
        tfbnood.data.load(data)
    except DataError as error:
        pytest.skip(str(error))
    committed = tool.read(path)
    ran = tool.executed(committed, data)
    assert tool.problems(ran, path.stem) == []
    assert json.dumps(tool.shown(ran), indent=1) == json.dumps(tool.shown(committed), indent=1)
