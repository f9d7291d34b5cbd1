"""Runs the notebooks under colab/ and writes them back with their outputs, or only checks them.

    tools/run_notebooks [NAME …]             # runs and writes in place; all when no name is given
    tools/run_notebooks --check [NAME …]     # runs nothing: are the outputs those of the sources?
    tools/run_notebooks --pictures FOLDER    # runs nothing: writes the pictures as files, to be looked at

A run also renews what is the same in all notebooks: the badge and the cell that installs the package.
"""

import argparse
import base64
import copy
import hashlib
import os
import pathlib
import re
import resource
import sys
import tempfile
import time
from typing import Any

import nbclient
import nbformat

from tfbnood._core.files import atomic_path

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "colab"
# The one place that knows where the repository lives.
URL = "https://github.com/tfbnood/tfbnood"
BRANCH = "main"
INSTALL = f"""import importlib.util

if importlib.util.find_spec("tfbnood") is None:
    %pip install -q "tfbnood[networks] @ git+{URL}"
"""
DATA_VARIABLE = "TFBNOOD_NOTEBOOK_DATA"
# The paper at the scale of real images takes four data sets and far more time.
DATA = {"03_reproduce_the_paper": "digits"}
MOST_BYTES = 600_000
_BADGE = re.compile(r"^\[!\[Open In Colab\].*$", re.MULTILINE)
# What is said while something runs: it has times and places in it, and is no result.
_LOG = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:"  # TensorFlow's C++ log, in three forms
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: "
    r"|WARNING: All log messages before absl|To enable the following instructions"
    r"|Matplotlib is building the font cache"
    r"|\[\d+/\d+\] \w"  # stages of `reproduce`
    r"|step \d+/\d+: "  # training
    r"|tfbnood serve: "
    r"|$"
)
# TensorFlow's Python log; in a notebook it also goes to standard output.
_INFO = re.compile(r"INFO:tensorflow:")
_NUMBER = re.compile(r"[+\-−±]?\d[\d.,]*(?:e[+-]?\d+)?%?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 01_quickstart")
    parser.add_argument("--check", action="store_true", help="run nothing, look at what is there")
    parser.add_argument("--pictures", metavar="FOLDER", type=pathlib.Path)
    arguments = parser.parse_args()
    known = {path.stem: path for path in notebooks()}
    for name in arguments.names:
        if name not in known:
            parser.error(f"NAME must be one of {', '.join(known)}. Received: {name}")
    failed = 0
    for name in arguments.names or known:
        if arguments.pictures:
            write_pictures(known[name], arguments.pictures)
            continue
        if not arguments.check:
            run(known[name])
        found = problems(read(known[name]), name)
        failed += bool(found)
        print(f"{name}: {'; '.join(found) or 'ok'}", flush=True)
    return int(failed > 0)


def notebooks() -> list[pathlib.Path]:
    """The notebooks, in the order of their numbers."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def read(path: pathlib.Path) -> Any:
    """A notebook as nbformat has it."""
    return nbformat.read(path, as_version=4)


def run(path: pathlib.Path) -> None:
    """Executes a notebook and replaces it; one with an error stays as it was."""
    began, used = time.monotonic(), _seconds_of_children()
    done = executed(with_common_cells(read(path), path.stem), data_of(path.stem))
    nbformat.validate(done)
    with atomic_path(path) as temporary:
        temporary.write_text(nbformat.writes(done) + "\n", encoding="utf-8")
    seconds, cpu = time.monotonic() - began, _seconds_of_children() - used
    print(f"{path.stem}: {seconds:.0f} s, {cpu:.0f} s of CPU, {path.stat().st_size / 1e3:.0f} kB")


def with_common_cells(notebook: Any, name: str) -> Any:
    """A copy with the badge and the first code cell made from `URL`."""
    notebook = copy.deepcopy(notebook)
    title = notebook.cells[0]
    title.source = _BADGE.sub(lambda _: badge(name), title.source)
    _code_cells(notebook)[0].source = INSTALL.rstrip()
    return notebook


def data_of(name: str) -> str:
    """The data set that a notebook is run on."""
    return DATA.get(name, "fashion_mnist")


def executed(notebook: Any, data: str = "digits") -> Any:
    """A copy with the outputs of a run from top to bottom in a folder of its own, without logs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    notebook = copy.deepcopy(notebook)
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            # Bars have other lengths in every run.
            "TQDM_DISABLE": "1",
            DATA_VARIABLE: data,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "IPYTHONDIR": str(pathlib.Path(folder) / ".ipython"),  # No one's own settings.
        }
        # The kernel would believe itself inside pytest, and treat standard error differently.
        environment.pop("PYTEST_CURRENT_TEST", None)
        nbclient.NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=3600,
            startup_timeout=600,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        ).execute(env=environment)
    notebook = cleaned(notebook)
    notebook.metadata["tfbnood"] = {"sources_sha256": sources_sha256(notebook)}
    return notebook


def cleaned(notebook: Any) -> Any:
    """A copy without log lines and without what differs between machines."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata = nbformat.from_dict(
        {
            "colab": {"provenance": [], "toc_visible": True},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    for cell in _code_cells(notebook):
        kept: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "stream":
                _keep_stream(kept, output)
            else:
                kept.append(output)
        cell.outputs = kept
    return notebook


def sources_sha256(notebook: Any) -> str:
    """A hash over the code: the prose may be mended without another run."""
    code = "\0".join(cell.source for cell in _code_cells(notebook))
    return hashlib.sha256(code.encode()).hexdigest()


def problems(notebook: Any, name: str) -> list[str]:
    """What is wrong with a notebook and its outputs, as sentences."""
    found = []
    first, code = notebook.cells[0], _code_cells(notebook)
    if first.cell_type != "markdown" or badge(name) not in first.source:
        found.append(f"the first cell must have the badge {badge(name)}")
    if code[0].source != INSTALL.rstrip():
        found.append("the first code cell must be the one that installs the package")
    if not any(DATA_VARIABLE in cell.source for cell in code):
        found.append(f"a data cell must ask {DATA_VARIABLE} which data to use")
    for link in re.findall(r"https://github\.com/[^\s)\"'`]*", _all_sources(notebook)):
        if not link.startswith(URL):
            found.append(f"links to GitHub must start with {URL}. Received: {link}")
    if notebook.metadata.get("tfbnood", {}).get("sources_sha256") != sources_sha256(notebook):
        found.append("code has changed since the outputs were made: tools/run_notebooks " + name)
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"code cells must have been run once, in order. Received: {counts}")
    outputs = [output for cell in code for output in cell.outputs]
    for output in outputs:
        if output.output_type == "error":
            found.append(f"a cell ended in {output.ename}: {output.evalue}")
        elif output.get("name") == "stderr":
            found.append(f"a cell warned: {output.text.strip()[:200]}")
    found += _picture_problems(notebook)
    size = len(nbformat.writes(notebook).encode())
    if size > MOST_BYTES:
        found.append(f"the file must have at most {MOST_BYTES} bytes. Received: {size}")
    return found


def badge(name: str) -> str:
    """The Markdown of the button that opens a notebook in Colab."""
    place = f"{URL.removeprefix('https://github.com/')}/blob/{BRANCH}/colab/{name}.ipynb"
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return f"[![Open In Colab]({image})](https://colab.research.google.com/github/{place})"


def pictures(notebook: Any) -> list[tuple[int, bytes]]:
    """Pictures with the number of the code cell that shows them."""
    return [
        (cell.execution_count, base64.b64decode(output.data["image/png"]))
        for cell in _code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def write_pictures(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the pictures of a notebook as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, (cell, content) in enumerate(pictures(read(path))):
        (folder / f"{path.stem}-{cell}-{index}.png").write_bytes(content)


def shown(notebook: Any) -> list[list[str]]:
    """What each code cell shows, with numbers masked: equal for two runs of the same code on two machines."""
    return [
        [
            f"{kind}: {'' if kind == 'image/png' else masked(content)}"
            for output in cell.outputs
            for kind, content in _contents(output)
        ]
        for cell in _code_cells(notebook)
    ]


def masked(text: str) -> str:
    """Text with `#` for every number and one blank for blanks, lines and rules: columns are as wide as numbers."""
    return " ".join(re.sub(r"-{2,}", " ", _NUMBER.sub("#", text)).split())


def _contents(output: Any) -> list[tuple[str, str]]:
    if output.output_type == "stream":
        return [(output.name, output.text)]
    if output.output_type == "error":
        return [("error", f"{output.ename}: {output.evalue}")]
    return sorted(output.data.items())


def _keep_stream(kept: list[Any], output: Any) -> None:
    """Adds to the stream before, if it is the same one: how output is cut into pieces is chance."""
    lines = [line for line in output.text.splitlines(keepends=True) if not _INFO.match(line)]
    if output.name == "stderr":
        lines = [line for line in lines if not _LOG.match(line)]
    output.text = "".join(lines)
    if not output.text:
        return
    if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
        kept[-1].text += output.text
    else:
        kept.append(output)


def _picture_problems(notebook: Any) -> list[str]:
    found = pictures(notebook)
    if not found:
        return ["there must be at least one picture"]
    return [
        f"the picture of cell {cell} is no PNG"
        for cell, content in found
        if not content.startswith(b"\x89PNG\r\n")
    ]


def _code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _all_sources(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells)


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
