"""`tfbnood reproduce`: stages that resume, the rival drift test, and the whole run at its smallest scale."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tfbnood._core.tables import as_html, as_markdown
from tfbnood.cli import parser as cli
from tfbnood.data.sets import load
from tfbnood.errors import TfbnoodError
from tfbnood.metrics import auroc
from tfbnood.reproduce import figures as paper_figures
from tfbnood.reproduce import paper
from tfbnood.reproduce import tables as paper_tables
from tfbnood.reproduce.kept import kept
from tfbnood.reproduce.mmd import mmd, mmd_p_value
from tfbnood.reproduce.page import Section, page_as_html, page_as_markdown
from tfbnood.reproduce.run import read_studies, reproduce
from tfbnood.reproduce.stages import Stages
from tfbnood.reproduce.studies import NEEDS, SCALES
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.pretext.statistic import Pretext


def test_a_finished_stage_is_not_run_again(tmp_path, capsys):
    calls = []

    def work():
        calls.append(1)
        return {"value": len(calls)}

    for _ in range(2):
        stages = Stages(tmp_path, {"n": 3}, total=2)
        assert stages.run("one", work) == {"value": 1}
    assert len(calls) == 1
    assert "[1/2] one took" in capsys.readouterr().err


def test_a_stage_that_fails_leaves_the_finished_ones(tmp_path):
    def fail():
        raise KeyboardInterrupt

    stages = Stages(tmp_path, {}, total=2)
    stages.run("one", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        stages.run("two", fail)
    (tmp_path / "stages" / ".partial-1-two.json").write_text("{")  # as a kill would leave
    again = Stages(tmp_path, {}, total=2)
    assert again.run("one", fail) == 1
    assert again.run("two", lambda: 2) == 2


def test_other_settings_need_another_folder(tmp_path):
    Stages(tmp_path, {"n": 3}, total=1)
    with pytest.raises(TfbnoodError, match="out must be a new folder"):
        Stages(tmp_path, {"n": 4}, total=1)


def test_mmd_is_uniform_under_the_null_and_finds_a_shift():
    digits = load("digits")
    random = np.random.RandomState(0)

    def p_value(batch):
        return mmd_p_value(batch, digits.train[:150], permutations=49)

    fresh = [p_value(digits.test[random.permutation(397)[:32]]) for _ in range(40)]
    assert np.mean(np.array(fresh) <= 0.2) < 0.45
    assert p_value(255 - digits.test[:32]) == 1 / 50


def test_mmd_is_the_mean_of_kernels():
    random = np.random.RandomState(0)
    kernel = random.uniform(size=(7, 7))
    kernel = kernel + kernel.T
    np.fill_diagonal(kernel, 0)
    is_test = np.array([1, 1, 1, 0, 0, 0, 0], bool)
    within = np.mean([kernel[i, j] for i in range(3) for j in range(3) if i != j])
    others = np.mean([kernel[i, j] for i in range(3, 7) for j in range(3, 7) if i != j])
    between = kernel[:3, 3:].mean()
    found = mmd(kernel, np.stack([is_test, ~is_test]))
    np.testing.assert_allclose(found, within + others - 2 * between)


STUDY = dataclasses.replace(
    SCALES["tiny"][0],
    steps=40,
    background=20,
    generator=dataclasses.replace(SCALES["tiny"][0].generator, steps=20, samples=32),
)
RESULTS = Path(__file__).resolve().parents[2] / "results" / "paper"
OPTIONS = {"scale": "tiny", "n": 60, "batches": 3}


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


def test_all_is_one_page_in_markdown_and_html(everything):
    out, sections = everything
    markdown, page = (out / "index.md").read_text(), (out / "index.html").read_text()
    for section in sections:
        assert f"## {section.title}" in markdown
        assert f"<h2>{section.title}</h2>" in page
    assert page.count("data:image/png;base64,") == 6
    assert "to see that everything runs, not to compare" in page
    for slip in paper.SLIPS:
        assert slip in markdown


def test_table_1_is_the_mean_of_the_images_bits(everything):
    out, _ = everything
    bits = results(out, "table1")["bits"]
    table = paper_tables.table1({"digits_vae": {"bits": bits}}).tables[0][1]
    assert [line[1] for line in table[1:]] == ["digits", "rotation", "inverted"]
    evaluation, training = (np.mean(bits[mode]["inverted"]) for mode in ("evaluation", "training"))
    expected = [f"{evaluation:.2f}", f"{training:.2f}", f"{training - evaluation:+.2f}", "", ""]
    assert table[3][2:] == expected


def test_table_2_puts_the_papers_values_beside_ours(everything):
    out, _ = everything
    found = results(out, "table2")
    renamed = json.loads(json.dumps(found).replace('"inverted"', '"mnist"'))
    tables = paper_tables.table2({"fashion_mnist_realnvp": renamed}).tables
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
    table = paper_tables.table2({"digits_vae": found}).tables[0][1]
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
    figure = paper_figures.figure3({"digits_vae": {"shares": shares}})
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
    figure = paper_figures.figure4(study)
    scores = np.concatenate([fooled["t_perm"]["digits"], fooled["t_perm"]["samples"]])
    area = auroc(np.arange(len(scores)) >= 60, scores)
    labels = [curve.get_label() for curve in figure.axes[0].get_lines()]
    assert labels[0] == f"samples at T = 1: AUROC {area:.2f}"
    figure = paper_figures.figure5(study)
    assert len(figure.axes) == 8  # samples alone: real images are not always ours to pass on
    middle = np.median(fooled["bits"]["digits"])
    best = min(fooled["bits"]["samples"], key=lambda value: abs(value - middle))
    assert figure.axes[0].get_xlabel() == f"{best:.2f}"
    assert figure.subfigs[0].get_suptitle().endswith(f"(real images: {middle:.2f})")


def test_figures_1_and_2_draw_the_examples_of_the_text(everything):
    out, _ = everything
    left, right = paper_figures.figure1({"digits_vae": results(out, "figure1")}).axes
    assert [one.get_label() for one in left.patches] == ["digits", "rotation", "inverted"]
    for stairs in left.patches:
        np.testing.assert_allclose(stairs.get_data().values.sum(), 1)
    mixture, gaussian = (right.get_lines()[index].get_ydata() for index in (0, 1))
    x = right.get_lines()[0].get_xdata()
    assert x[gaussian.argmax()] == 0
    assert mixture[gaussian.argmax()] < 1e-9
    np.testing.assert_allclose(np.trapezoid(mixture, x), 1, rtol=1e-6)
    _, latent = paper_figures.figure2({}).axes
    for stairs in latent.patches:
        values, edges, _ = stairs.get_data()
        np.testing.assert_allclose((values * np.diff(edges)).sum(), 1)


def test_beyond_has_every_stage(everything):
    out, _ = everything
    study = results(out, "beyond")
    assert study["speed"]["ratio"] > 1
    assert set(study["mmd"]["MMD on pixels"]) == {"fresh", "rotation", "inverted"}
    text = (out / "beyond.md").read_text()
    assert {"mean of bn_delta", "mean of typicality"} <= set(study["batch_means"])
    for test in ("MMD on pixels", "simes of ensemble", "mean of bn_delta"):
        assert f"| {test} |" in text
    assert "Mixing moments instead of samples" in text
    for stage in ("ensemble", "statistics"):
        assert {row["contamination"] for row in study[stage]["rows"]} == {1.0, 0.2, 0.05}
    assert "likelihood_ratio" in study["ratio"]["statistics"]


def test_it_goes_on_with_what_is_there(everything, capsys, monkeypatch):
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
    reproduce("table2", out, seeds=1, **OPTIONS)
    assert results(out, "table2")["waic"] is None
    reproduce("table2", out, **OPTIONS)
    assert results(out, "table2")["waic"]["rows"]


def test_a_training_with_other_settings_is_not_taken_for_it(everything, tmp_path, monkeypatch):
    out, _ = everything
    monkeypatch.setitem(SCALES, "tiny", (dataclasses.replace(STUDY, steps=31),))
    with pytest.raises(TfbnoodError, match=r"must be a training with .*another steps"):
        reproduce("table1", tmp_path, runs=out / "runs", **OPTIONS)


def test_a_shipped_training_is_not_made_again(tmp_path, monkeypatch):
    asked = []

    def shipped(name, training):
        asked.append((name, training))
        raise KeyboardInterrupt

    monkeypatch.setattr("tfbnood.reproduce.work.trained_model", shipped)
    with pytest.raises(KeyboardInterrupt):
        reproduce("table1", tmp_path, **OPTIONS)
    wanted = {"data": "digits", "model": "vae", "preset": "tiny", "steps": 120, "seed": 0}
    assert asked == [("digits_vae", {**wanted, "mutation": 0.0})]


def test_the_papers_numbers_fit_its_studies():
    studies = {study.name: study for study in SCALES["paper"]}
    for table in (paper.TABLE2, paper.TABLE3):
        for name, sets in table.items():
            assert list(sets) == list(studies[name].outliers)
    assert list(studies) == [study.name for study in SCALES["cpu"]]
    difference = {name: [b - a for a, b in sets.values()] for name, sets in paper.TABLE1.items()}
    assert all(inliers < 0.2 and outliers > 1 for inliers, outliers in difference.values())
    assert abs(difference["cifar10_realnvp"][1] - 8.66) < 1e-9  # not the 8.56 that is printed


def test_every_stage_is_needed_by_something():
    needed = {stage for stages in NEEDS.values() for stage in stages}
    for studies in SCALES.values():
        assert {stage for study in studies for stage in study.stages} == needed


def test_pages_escape_what_they_show(tmp_path):
    section = Section("a < b", ["x & y"], [("p | q", [["<i>", "a|b"], ["1", "2"]])], "none.png")
    page = page_as_html("t", [section], tmp_path)
    assert "<h2>a &lt; b</h2>" in page
    assert "<th>&lt;i&gt;</th>" in page
    assert "<img" not in page  # The file is not there.
    assert "a\\|b" in page_as_markdown("t", [section])
    assert (
        as_html([["x"], ["&"]]) == "<table>\n<tr><th>x</th></tr>\n<tr><td>&amp;</td></tr>\n</table>"
    )
    assert as_markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


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


def test_a_kept_statistic_is_fitted_once_for_its_settings_and_images(tmp_path, monkeypatch):
    images = load("digits").train[:100]
    first = kept(Pretext(steps=2, width=4), images, tmp_path)
    kept(Pretext(steps=2, width=4, seed=1), images, tmp_path)
    kept(Pretext(steps=2, width=4), images[1:], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.setattr(
        "tfbnood.statistics.pretext.statistic.train_network", None
    )  # Training again would fail.
    again = kept(Pretext(steps=2, width=4), images, tmp_path)
    np.testing.assert_array_equal(again.score(images), first.score(images))
    expected = first.tensor_columns(gather(None, "pixels", images))
    np.testing.assert_array_equal(again.tensor_columns(gather(None, "pixels", images)), expected)
