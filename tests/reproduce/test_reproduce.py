"""`tfbnood reproduce`: the whole run at its smallest scale, and what is committed under results/."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tfbnood.cli import parser as cli
from tfbnood.errors import TfbnoodError
from tfbnood.metrics import auroc
from tfbnood.reproduce import figures as paper_figures
from tfbnood.reproduce import paper
from tfbnood.reproduce import tables as paper_tables
from tfbnood.reproduce.run import read_studies, reproduce
from tfbnood.reproduce.stages import is_of
from tfbnood.reproduce.studies import NEEDS, SCALES

STUDY = dataclasses.replace(
    SCALES["tiny"][0],
    steps=40,
    waic_steps=20,
    background=20,
    generator=dataclasses.replace(SCALES["tiny"][0].generator, steps=20, samples=32),
)
RESULTS = Path(__file__).resolve().parents[2] / "results" / "paper"
OPTIONS = {"scale": "tiny", "n": 60, "batches": 3, "seeds": 2}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A run of everything on the digits, with even less training than the smallest scale."""
    out = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "tiny", (STUDY,))
        sections = reproduce("all", out, **OPTIONS)
    return out, sections


def results(out, what):
    return read_studies(out / f"{what}.json")["digits_vae"]


def test_every_table_and_figure_has_json_markdown_and_its_picture(everything):
    out, _ = everything
    for what in NEEDS:
        content = json.loads((out / f"{what}.json").read_text())
        assert content["scale"] == "tiny"
        assert content["machine"]["cores"] >= 1
        assert (out / f"{what}.md").read_text().startswith("# tfbnood")
        if what.startswith("figure") or what == "beyond":
            assert (out / f"{what}.png").read_bytes().startswith(b"\x89PNG")


def test_every_number_is_in_one_file(everything):
    out, _ = everything
    named = set()
    for what in NEEDS:
        for study in json.loads((out / f"{what}.json").read_text())["studies"].values():
            assert set(study) == {"settings", "stages"}
            named |= set(study["stages"].values())
    assert named == {f"stages/{path.name}" for path in (out / "stages").iterdir()}
    table, figure = (
        json.loads((out / f"{what}.json").read_text()) for what in ("table1", "figure1")
    )
    assert table["studies"] == figure["studies"]


@pytest.mark.parametrize("what", NEEDS)
def test_what_is_committed_can_be_read(what):
    studies = read_studies(RESULTS / f"{what}.json")
    assert all(set(study) & set(NEEDS[what]) for study in studies.values())
    assert len(studies) >= (what != "figure2")


def test_what_is_committed_counts_as_finished_or_is_of_earlier_trainings_as_a_whole(
    tmp_path, capsys
):
    out = shutil.copytree(RESULTS, tmp_path / "paper")
    files = {
        (study, stage): out
        / "stages"
        / f"{study.name}_{stage}{'_5' if stage == 'waic' else ''}.json"
        for study in SCALES["cpu"]
        for stage in ("training", *study.stages)
    }
    ours = [
        path.is_file() and is_of(path, study.settings_of(stage))
        for (study, stage), path in files.items()
    ]
    assert len(set(ours)) == 1  # Tables of several trainings would not fit together.
    if not ours[0]:
        reproduce("table1", out, scale="cpu", n=1000, batches=100, finished=True)
        assert read_studies(out / "table1.json") == {}
        return
    # Whatever is measured again would fail: there is no such folder of data.
    found = reproduce("all", out, scale="cpu", n=1000, batches=100, data_dir=str(tmp_path / "no"))
    said = capsys.readouterr().err
    assert "…" not in said
    stages = sum(1 + len(study.stages) for study in SCALES["cpu"])
    assert f"[{stages}/{stages}]" in said
    assert len(found) == 11
    for path in (RESULTS / "stages").iterdir():
        assert (out / "stages" / path.name).read_bytes() == path.read_bytes()


def test_all_is_one_page_in_markdown_and_html(everything):
    out, sections = everything
    markdown, page = (out / "index.md").read_text(), (out / "index.html").read_text()
    for section in sections:
        assert f"## {section.title}" in markdown
        assert f">{section.title}</h2>" in page
    assert page.count("data:image/png;base64,") == 6
    assert "to see that everything runs, not to compare" in page
    for slip in paper.SLIPS:
        assert slip in markdown


def test_table_1_is_the_mean_of_the_images_bits(everything):
    out, _ = everything
    bits = results(out, "table1")["bits"]
    table = paper_tables.make_table1({"digits_vae": {"bits": bits}}).tables[0][1]
    assert [line[1] for line in table[1:]] == ["digits", "rotation", "inverted"]
    evaluation, training = (np.mean(bits[mode]["inverted"]) for mode in ("evaluation", "training"))
    expected = [f"{evaluation:.2f}", f"{training:.2f}", f"{training - evaluation:+.2f}", "", ""]
    assert table[3][2:] == expected


def test_table_2_puts_the_papers_values_beside_ours(everything):
    out, _ = everything
    found = results(out, "table2")
    renamed = json.loads(json.dumps(found).replace('"inverted"', '"mnist"'))
    tables = paper_tables.make_table2({"fashion_mnist_realnvp": renamed}).tables
    header, *lines = tables[0][1]
    assert header[2:4] == ["log p (ours)", "log p (paper's)"]
    line = next(line for line in lines if line[1] == "mnist")
    ours = dict(zip(header, line, strict=True))
    assert ours["log p (paper's)"] == "0.10 / 0.32"
    assert ours["Δ (paper's)"] == "1.00 / 1.00"
    row = next(
        row
        for row in found["statistics"]["rows"]
        if (row["set"], row["contamination"], row["statistic"]) == ("inverted", 1.0, "log_prob")
    )
    assert ours["log p (ours)"].startswith(f"{row['auroc']['value']:.3f} / ")
    assert re.fullmatch(r"0\.\d{3} / 0\.\d{3}|1\.000 / 1\.000", ours["WAIC (ours)"])
    by_share = tables[1][1]
    assert {line[1] for line in by_share[1:]} == {"100%", "20%", "5%"}
    assert {"ensemble", "pretext", "waic", "bn_delta(samples)"} <= set(by_share[0])
    assert "bn_delta(moments)" in by_share[0]


def test_what_was_not_measured_is_said_so(everything):
    out, _ = everything
    found = {"statistics": results(out, "table2")["statistics"], "waic": None}
    table = paper_tables.make_table2({"digits_vae": found}).tables[0][1]
    assert table[1][table[0].index("WAIC (ours)")] == "not measured"
    assert table[1][table[0].index("Δ (ours)")] == "not measured"


def test_table_3_and_figure_3_agree_with_both_modes(everything):
    out, _ = everything
    shares, bits = results(out, "table3")["shares"], results(out, "table1")["bits"]
    assert shares["shares"][0] == 0
    assert shares["shares"][-1] == 1
    np.testing.assert_allclose(
        shares["bits"]["inverted"][0], np.mean(bits["evaluation"]["inverted"]), rtol=1e-4
    )
    figure = paper_figures.draw_figure3({"digits_vae": {"shares": shares}})
    drawn = {curve.get_label(): curve for curve in figure.axes[0].get_lines()}
    np.testing.assert_allclose(drawn["rotation"].get_ydata(), shares["bits"]["rotation"])
    assert shares["metrics"]["inverted"]["auroc"][0] == 0.5  # r2 = 0: there is no difference.


def test_table_4_and_figures_4_and_5_are_of_the_same_samples(everything):
    out, _ = everything
    fooled = results(out, "table4")["fooled"]
    assert set(fooled["means"]) == {"0.7", "1.0", "1.3"}
    np.testing.assert_allclose(
        np.mean(fooled["bits"]["samples"]), fooled["means"]["1.0"][0], rtol=1e-4
    )
    study = {"digits_vae": {"fooled": fooled}}
    figure = paper_figures.draw_figure4(study)
    scores = np.concatenate([fooled["t_perm"]["digits"], fooled["t_perm"]["samples"]])
    area = auroc(np.arange(len(scores)) >= 60, scores)
    labels = [curve.get_label() for curve in figure.axes[0].get_lines()]
    assert labels[0] == f"samples at T = 1: AUROC {area:.2f}"
    figure = paper_figures.draw_figure5(study)
    assert len(figure.axes) == 8  # samples alone: real images are not always ours to pass on
    middle = np.median(fooled["bits"]["digits"])
    best = min(fooled["bits"]["samples"], key=lambda value: abs(value - middle))
    assert figure.axes[0].get_xlabel() == f"{best:.2f}"
    assert figure.subfigs[0].get_suptitle().endswith(f"its real images have {middle:.2f}")


def test_figures_1_and_2_draw_the_examples_of_the_text(everything):
    out, _ = everything
    left, right = paper_figures.draw_figure1({"digits_vae": results(out, "figure1")}).axes
    assert [one.get_label() for one in left.patches] == ["digits", "rotation", "inverted"]
    for stairs in left.patches:
        np.testing.assert_allclose(stairs.get_data().values.sum(), 1)
    mixture, gaussian = (right.get_lines()[index].get_ydata() for index in (0, 1))
    x = right.get_lines()[0].get_xdata()
    assert x[gaussian.argmax()] == 0
    assert mixture[gaussian.argmax()] < 1e-9
    np.testing.assert_allclose(np.trapezoid(mixture, x), 1, rtol=1e-6)
    _, latent = paper_figures.draw_figure2({}).axes
    for stairs in latent.patches:
        values, edges, _ = stairs.get_data()
        np.testing.assert_allclose((values * np.diff(edges)).sum(), 1)


def test_beyond_has_every_stage(everything):
    out, _ = everything
    study = results(out, "beyond")
    # Which one is faster the committed results say: here the machine may be busy.
    rates = study["speed"]["images_a_second"]
    assert study["speed"]["ratio"] == pytest.approx(rates["moments"] / rates["samples"])
    assert rates["samples"] > 0
    assert set(study["mmd"]["MMD on pixels"]) == {"fresh", "rotation", "inverted"}
    text = (out / "beyond.md").read_text()
    assert {"mean of bn_delta", "mean of typicality"} <= set(study["batch_means"])
    for test in ("MMD on pixels", "simes of ensemble", "mean of bn_delta"):
        assert f"| {test} |" in text
    assert "Mixing moments instead of samples" in text
    for stage in ("ensemble", "statistics"):
        assert {row["contamination"] for row in study[stage]["rows"]} == {1.0, 0.2, 0.05}
    assert "likelihood_ratio" in study["ratio"]["statistics"]


def test_it_resumes_with_what_is_there(everything, capsys, monkeypatch):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (STUDY,))
    before = (out / "index.md").read_text()
    reproduce("all", out, **OPTIONS)
    reproduce("table3", out, **OPTIONS)
    assert "…" not in capsys.readouterr().err  # nothing was started
    assert (out / "index.md").read_text() == before


def test_finished_stages_make_files_without_running_others(everything, tmp_path, monkeypatch):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (STUDY,))
    (tmp_path / "stages").mkdir()
    shutil.copy(out / "stages" / "digits_vae_bits.json", tmp_path / "stages")
    sections = reproduce("all", tmp_path, finished=True, **OPTIONS)
    assert len(sections) == 11
    assert (tmp_path / "figure1.png").is_file()
    assert not (tmp_path / "figure3.png").exists()
    assert not (tmp_path / "runs").exists()


def test_other_numbers_of_seeds_are_other_results(everything, monkeypatch):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (STUDY,))
    reproduce("table2", out, **{**OPTIONS, "seeds": 1})
    assert results(out, "table2")["waic"] is None
    reproduce("table2", out, **OPTIONS)
    assert results(out, "table2")["waic"]["rows"]


def test_waic_is_of_models_of_its_own_and_of_one_length(everything):
    out, _ = everything
    runs = {path.name: json.loads((path / "run.json").read_text()) for path in _runs(out)}
    members = {name: run for name, run in runs.items() if name.startswith("digits_vae_waic_")}
    assert {run["seed"] for run in members.values()} == {1, 2}
    assert {run["steps"] for run in members.values()} == {20}
    assert runs["digits_vae"]["steps"] == 40
    assert "WAIC uses separate models, all trained equally long" in (out / "table2.md").read_text()
    stage = json.loads((out / "stages" / "digits_vae_waic_2.json").read_text())
    assert stage["settings"]["waic_steps"] == 20


def _runs(out):
    return [path for path in (out / "runs").iterdir() if (path / "run.json").is_file()]


def test_steps_and_precision_may_be_others_and_are_other_results(everything, monkeypatch, capsys):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (STUDY,))
    before = (out / "table1.md").read_text()
    reproduce("table1", out, finished=True, steps=41, **OPTIONS)
    assert read_studies(out / "table1.json") == {}
    reproduce("table1", out, finished=True, precision="mixed_bfloat16", **OPTIONS)
    assert read_studies(out / "table1.json") == {}
    reproduce("table1", out, finished=True, **OPTIONS)
    assert results(out, "table1")["settings"]["steps"] == 40
    assert (out / "table1.md").read_text() == before
    with pytest.raises(
        TfbnoodError, match=r"waic_steps must be at least 1. Received: waic_steps=0"
    ):
        reproduce("table2", out, waic_steps=0, **OPTIONS)


def test_a_training_with_other_settings_is_not_taken_for_it(everything, tmp_path, monkeypatch):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (dataclasses.replace(STUDY, steps=31),))
    with pytest.raises(TfbnoodError, match=r"must be a training run with .*another steps"):
        reproduce("table1", tmp_path, runs=out / "runs", **OPTIONS)


def test_a_shipped_training_is_not_made_again(tmp_path, monkeypatch):
    asked = []

    def shipped(name, training):
        asked.append((name, training))
        raise KeyboardInterrupt

    monkeypatch.setattr("tfbnood.reproduce.reuse.trained_model", shipped)
    with pytest.raises(KeyboardInterrupt):
        reproduce("table1", tmp_path, **OPTIONS)
    wanted = {"data": "digits", "model": "vae", "preset": "tiny", "steps": 120, "seed": 0}
    assert asked == [("digits_vae", {**wanted, "mutation": 0.0, "precision": "float32"})]


def test_wrong_arguments_are_one_line(tmp_path, capsys):
    with pytest.raises(TfbnoodError, match="scale must be one of tiny, cpu, paper"):
        reproduce("table1", tmp_path, scale="huge")
    with pytest.raises(TfbnoodError, match="seeds must be at least 1"):
        reproduce("table1", tmp_path, seeds=0)
    arguments = ["reproduce", "beyond", "--out", str(tmp_path), "--only", "mnist_vae"]
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfbnood: --only must be one of fashion_mnist_realnvp")
    assert error.count("\n") == 1
