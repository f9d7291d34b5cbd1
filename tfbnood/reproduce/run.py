"""`tfbnood reproduce WHAT`: trains, measures stage by stage, and writes JSON, Markdown and a picture."""

import dataclasses
import functools
import json
import pathlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfbnood._core.files import atomic_path, write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.errors import TfbnoodError
from tfbnood.plots.style import write_figure
from tfbnood.reproduce import beyond, figures, near, tables
from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.measure import MEASURES
from tfbnood.reproduce.near_cases import CASES
from tfbnood.reproduce.page import Section, page_as_html, page_as_markdown
from tfbnood.reproduce.stages import Stages, is_of
from tfbnood.reproduce.studies import NEEDS, SCALES, WAIC_MODELS, WHAT, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WHAT", "read_studies", "reproduce"]

_FIGURE_TITLES = {
    "figure1": "Figure 1: likelihoods of outliers, and a mis-specified model",
    "figure2": "Figure 2: the two-dimensional example",
    "figure3": "Figure 3: likelihoods against the share of test images",
    "figure4": "Figure 4: T_perm can be fooled",
    "figure5": "Figure 5: what fools it",
}
_PICTURES: Mapping[str, Callable[[tables.Studies], "Figure"]] = MappingProxyType(
    {
        "figure1": figures.draw_figure1,
        "figure2": figures.draw_figure2,
        "figure3": figures.draw_figure3,
        "figure4": figures.draw_figure4,
        "figure5": figures.draw_figure5,
        "beyond": beyond.draw_shares,
    }
)
_TABLES: Mapping[str, Callable[[tables.Studies], Section]] = MappingProxyType(
    {
        "table1": tables.make_table1,
        "table2": tables.make_table2,
        "table3": tables.make_table3,
        "table4": tables.make_table4,
        "beyond": beyond.make_section,
    }
)
_DIFFERENCES = {
    "tiny": "Models of minutes on scikit-learn's 8×8 digits: to see that everything runs, not to compare.",
    "cpu": "Ours are small models, trained for up to two hours on one core; the paper's are of full size. "
    "Tiny ImageNet stands for 32×32 ImageNet. WAIC uses separate models, trained for fewer steps. CIFAR-10 may be a "
    "part of it, as the table of trainings says. The paper does not say how it rotates: `rotation` takes nearest "
    "neighbours, the default of Pillow and torchvision, and is compared with it; `rotation-bilinear` has the same "
    "angles. PixelCNN++ finds rotated photographs less well than the paper's: batches of test images lose bits, "
    "too, most of it in layers next to the pixels (docs/method.md).",
    "paper": "The paper's sizes; the number of training steps is ours, as the paper does not give it. Tiny ImageNet "
    "stands for 32×32 ImageNet.",
}


def reproduce(
    what: str,
    out: str | pathlib.Path,
    *,
    scale: str = "cpu",
    n: int = 1000,
    batches: int = 100,
    seeds: int = WAIC_MODELS,
    steps: int | None = None,
    waic_steps: int | None = None,
    precision: str | None = None,
    data_dir: str | None = None,
    runs: str | pathlib.Path | None = None,
    only: str | None = None,
    finished: bool = False,
) -> list[Section]:
    """Makes one table or figure of the paper, `beyond`, or `all`, in a folder.

    Writes `WHAT.json`, `WHAT.md` and, if there is a picture, `WHAT.png`; for `all` also `index.md` and `index.html`.
    Numbers are in `stages/`, once for all tables and figures; `WHAT.json` lists those files and how they were made.

    Args:
        what: one of `WHAT`.
        out: the folder. The same call again resumes after a kill; tables and figures in the same folder share stages.
        scale: `tiny`, `cpu` or `paper`.
        n: maximum number of images per set.
        batches: batches per kind for the whole-batch tests.
        seeds: independently trained models for WAIC; 1 leaves it out. Defaults to 5.
        steps: of the studies' own models, instead of those in `SCALES`; with `only`, of that one.
        waic_steps: of the WAIC models, likewise.
        precision: of all training runs, likewise.
        data_dir: as for `tfbnood.data.load`.
        runs: folder of training runs, new or existing. Defaults to `out/runs`.
        only: name of one study, such as `cifar10_realnvp`; the files then cover the finished stages.
        finished: run nothing, and write the files of the finished stages.

    Returns:
        The sections of the page.
    """
    for name, value, allowed in (("what", what, WHAT), ("scale", scale, tuple(SCALES))):
        if value not in allowed:
            raise TfbnoodError(
                f"{name} must be one of {', '.join(allowed)}. Received: {name}={value!r}"
            )
    if what == "near":
        return _reproduce_near(pathlib.Path(out), n, data_dir, only, finished)
    names = [study.name for study in SCALES[scale]]
    if only is not None and only not in names:
        raise TfbnoodError(f"only must be one of {', '.join(names)}. Received: only={only!r}")
    counts = {"n": n, "batches": batches, "seeds": seeds, "steps": steps, "waic_steps": waic_steps}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise TfbnoodError(f"{name} must be at least 1. Received: {name}={count}")
    given = {"steps": steps, "waic_steps": waic_steps, "precision": precision}
    own: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    studies = [
        dataclasses.replace(study, **own) if only in (None, study.name) else study
        for study in SCALES[scale]
    ]
    out = pathlib.Path(out)
    wanted = tuple(NEEDS) if what == "all" else (what,)
    needed = {stage for one in wanted for stage in NEEDS[one]}
    todo = {
        study: [
            stage
            for stage in ("training", *study.stages)
            if stage in needed or (stage == "training" and needed & set(study.stages))
        ]
        for study in studies
        if only in (None, study.name) and not finished
    }
    settings = {"scale": scale, "n": n, "batches": batches}
    stages = Stages(out, settings, sum(map(len, todo.values())))
    runs = pathlib.Path(runs or out / "runs")
    for study, its_stages in todo.items():
        # One study's model and data in memory at a time.
        context = StudyContext(study, runs, n, batches, seeds, data_dir)
        for stage in its_stages:
            measure = functools.partial(MEASURES[stage], context)
            name = _stage_name(study.name, stage, seeds)
            stages.run(name, measure, study.settings_of(stage, seeds))
    about = {
        "command": shlex.join(["tfbnood", *sys.argv[1:]]),
        **settings,
        "seeds": seeds,
        "versions": versions(),
        "machine": machine(),
    }
    found = {study.name: _finished(out, study, seeds) for study in studies}
    sections = [_write(one, out, about, found) for one in wanted]
    if what == "all":
        sections = [_introduction(about, found), *sections]
        title = "Unsupervised Out-of-Distribution Detection with Batch Normalization, reproduced"
        _write_text(out / "index.md", page_as_markdown(title, sections))
        _write_text(out / "index.html", page_as_html(title, sections, out))
    return sections


def _reproduce_near(
    out: pathlib.Path, n: int, data_dir: str | None, only: str | None, finished: bool
) -> list[Section]:
    """Measures what is not finished, and writes `near.md`, `near.html` and `near.json`."""
    names = [case.name for case in CASES]
    if only is not None and only not in names:
        raise TfbnoodError(f"only must be one of {', '.join(names)}. Received: only={only!r}")
    if not finished:
        near.run_stages(out, n, data_dir, only)
    found = near.read_stages(out)
    sections = near.make_sections(found)
    command = shlex.join(["tfbnood", *sys.argv[1:]])
    about = {"command": command, "n": n, "versions": versions(), "machine": machine()}
    stages = {f"{case}_{name}": len(results) for (case, name), results in found.items()}
    write_json(out / "near.json", {"what": "near", **about, "stages": stages})
    sections.append(Section("Made by", [f"`{command}`, at most {n} images of a set."]))
    _write_text(out / "near.md", page_as_markdown("Near outliers", sections))
    _write_text(out / "near.html", page_as_html("Near outliers", sections, out))
    return sections


def read_studies(path: str | pathlib.Path) -> dict[str, dict[str, Any]]:
    """By study, its settings and the results of its stages, as a `WHAT.json` of `reproduce` names them."""
    path = pathlib.Path(path)
    studies = json.loads(path.read_text())["studies"]
    return {
        name: {
            "settings": study["settings"],
            **{stage: _result(path.parent / file) for stage, file in study["stages"].items()},
        }
        for name, study in studies.items()
    }


def _result(path: pathlib.Path) -> Any:
    return json.loads(path.read_text())["result"]


def _stage_name(study: str, stage: str, seeds: int) -> str:
    # Another number of models is another result; everything else has one model.
    return f"{study}_{stage}" + (f"_{seeds}" if stage == "waic" else "")


def _finished(out: pathlib.Path, study: Study, seeds: int) -> dict[str, Any]:
    """Results of a study's finished stages, from this call or another with the same training."""
    found = {}
    for stage in ("training", *study.stages):
        path = out / "stages" / f"{_stage_name(study.name, stage, seeds)}.json"
        if path.is_file() and is_of(path, study.settings_of(stage, seeds)):
            found[stage] = _result(path)
    return {"settings": dataclasses.asdict(study), **found} if found else {}


def _write(
    what: str, out: pathlib.Path, about: dict[str, Any], found: dict[str, dict[str, Any]]
) -> Section:
    """Writes the files of one table or figure and returns its section."""
    keep = {"settings", "training", *NEEDS[what]}
    studies = {
        name: {key: value for key, value in study.items() if key in keep}
        for name, study in found.items()
        if set(study) & set(NEEDS[what])
    }
    files = {
        name: {
            "settings": study["settings"],
            "stages": {
                stage: f"stages/{_stage_name(name, stage, about['seeds'])}.json"
                for stage in study
                if stage != "settings"
            },
        }
        for name, study in studies.items()
    }
    write_json(out / f"{what}.json", {"what": what, **about, "studies": files})
    section = Section(_FIGURE_TITLES.get(what, what))
    if what in _TABLES:
        section = _TABLES[what](studies)
    if what in _PICTURES and (studies or not NEEDS[what]):
        write_figure(out / f"{what}.png", _PICTURES[what](studies))
        section = dataclasses.replace(section, picture=f"{what}.png")
    source = f"`{about['command']}`, scale {about['scale']}, at most {about['n']} images of a set."
    _write_text(
        out / f"{what}.md", page_as_markdown("tfbnood", [section, Section("Made by", [source])])
    )
    return section


def _introduction(about: dict[str, Any], found: dict[str, dict[str, Any]]) -> Section:
    text: Sequence[str] = (
        f"Made by {about['command']} with at most {about['n']} images of a set. Numbers marked as the paper's are from "
        "Song, Song and Ermon (2019), arXiv:1910.09115; all others were measured here.",
        _DIFFERENCES[about["scale"]],
    )
    table = tables.make_training_table(found)
    return Section("What was trained", text, [("Trainings", table)])


def _write_text(path: pathlib.Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)
