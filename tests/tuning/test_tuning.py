"""A search can be stopped anyhow and resumes to the same trials; failures are shown; no test image is looked at."""

import dataclasses
import functools
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import keras
import keras_tuner
import numpy as np
import pytest
from brought import PlainModel, trained_brought_model
from faults import fill, make_read_only, mounted
from toys import EagerToy as Toy

from tfbnood import tuning
from tfbnood._core.files import write_json
from tfbnood._core.presets import PRESETS
from tfbnood.cli import parser as cli
from tfbnood.data import Dataset, load
from tfbnood.data.pools import mix
from tfbnood.data.pseudo import pseudo_outliers
from tfbnood.errors import DataError, StatisticError, TfbnoodError
from tfbnood.metrics import auroc
from tfbnood.models import registry
from tfbnood.saving import load_model
from tfbnood.statistics.registry import get
from tfbnood.tuning import run as tuning_run
from tfbnood.tuning import search as tuning_search
from tfbnood.tuning import trials as tuning_trials
from tfbnood.tuning.choose import choose_statistic, judged
from tfbnood.tuning.run import _preset_for, ranking_table, split, tune
from tfbnood.tuning.trials import HyperModel

REAL = {"model": "vae", "preset": "tiny", "trials": 2, "epochs": 2, "seed": 4}


@pytest.fixture(scope="module")
def digits():
    """Nothing but training images: a search that asks for others fails."""
    whole = load("digits")
    return Dataset("digits", "scikit-learn", {"train": whole.train[:300]})


@pytest.fixture
def toy(monkeypatch, digits, tmp_path):
    """A search over quick models into `tmp_path`."""
    monkeypatch.setitem(registry.MODELS, "vae", Toy)
    defaults = {"model": "vae", "preset": "tiny", "trials": 3, "epochs": 2, "progress": False}

    def search(name="search", **changes):
        return tune(digits, out=tmp_path / name, **{**defaults, **changes})

    return search


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The digits, fewer of them, as a data set that commands find by name."""
    folder, whole = tmp_path_factory.mktemp("data"), load("digits")
    for part in ("train", "test"):
        np.savez(folder / f"few_{part}.npz", images=getattr(whole, part)[:300])
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory, data_dir):
    """A real search that was never stopped."""
    out = tmp_path_factory.mktemp("real") / "search"
    found = tune(load("few", data_dir=data_dir), out=out, progress=False, **REAL)
    return SimpleNamespace(out=out, found=found)


def command(out, data_dir, **changes):
    settings = {"data": "few", **REAL, "data-dir": data_dir, "out": out, **changes}
    return ["tune", *(str(w) for key, value in settings.items() for w in (f"--{key}", value))]


def contents(out):
    return json.loads((out / "tuning.json").read_text())


def results(trials):
    """Everything but how long it took."""
    return [dataclasses.replace(trial, seconds=0) for trial in trials]


def test_a_real_search_on_the_digits_finds_a_better_and_a_worse_model(real):
    values = [trial.value for trial in real.found.trials]
    assert len(set(values)) == 2
    assert all(0 < value < 10 for value in values)
    assert real.found.best.value == min(values)
    assert real.found.finished
    written = contents(real.out)
    assert written["best"] == real.found.best.number
    assert [one["value"] for one in written["trials"]] == values
    assert {one["status"] for one in written["trials"]} == {"completed"}
    assert written["settings"]["seed"] == 4
    assert {"keras-tuner", "keras", "tfbnood"} <= written["versions"].keys()
    assert "cores" in written["machine"]
    names = {str(path.relative_to(real.out)) for path in real.out.rglob("*.*")}
    kept = f"trials/{real.found.best.number:04d}.keras"
    assert names == {"tuning.json", "best/model.keras", "best/run.json", kept}


def test_the_best_model_has_the_value_and_the_sizes_that_are_said(real, data_dir):
    model = load_model(real.out / "best" / "model.keras")
    best = real.found.best
    train, validation = split(load("few", data_dir=data_dir).train, seed=REAL["seed"])
    nats = -np.mean(model.log_prob(validation))
    assert best.value == pytest.approx(nats / (64 * math.log(2)), rel=1e-5)
    assert best.hyperparameters["channels"] == model.channels
    assert best.hyperparameters["latents"] == model.latents
    run = json.loads((real.out / "best" / "run.json").read_text())
    assert run["steps"] == 2 * (len(train) // best.hyperparameters["batch_size"])
    assert run["preset"] == "tiny (tuned)"
    assert run["learning_rate"] == best.hyperparameters["learning_rate"]


def test_calibrate_takes_the_best_model(real, data_dir, tmp_path, capsys):
    words = ["calibrate", real.out / "best", "--statistic", "log_prob", "--data-dir", data_dir]
    assert cli.main([str(word) for word in (*words, "--out", tmp_path / "detector")]) == 0
    about = json.loads((tmp_path / "detector" / "detector.json").read_text())["about"]
    assert about["runs"][0]["train_images"] == 216
    assert about["runs"][0]["result"]["val_bits_per_dim"] == real.found.best.value


# A trial takes two seconds here; the second one waits in its steps, for the kill of a test on a busy machine.
SLOWED = """
import sys, time
from tfbnood._core.quiet import quiet_tensorflow
from tfbnood.cli import main
with quiet_tensorflow():
    from tfbnood.tuning import trials

batches, begun = trials.batches, []

def slowed(*args, first_step):
    begun.extend(["trial"] * (first_step == 0))
    for batch in batches(*args, first_step=first_step):
        time.sleep(10 if len(begun) == 2 else 0)
        yield batch

trials.batches = slowed
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_search_resumes_to_the_same_trials(real, data_dir, tmp_path, capsys):
    out = tmp_path / "search"
    line = [sys.executable, "-c", SLOWED, *command(out, data_dir)]
    # With nothing said of logs: TensorFlow's must not bury ours.
    environment = {key: value for key, value in os.environ.items() if "TF_CPP" not in key}
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        first = process.stderr.readline()
        time.sleep(1)  # into the second trial
        process.kill()
    assert first.startswith("trial 1/2: val_bits_per_dim ")
    assert process.returncode == -signal.SIGKILL
    assert len(contents(out)["trials"]) == 1
    assert not contents(out)["finished"]
    # As left by a kill in the middle of a save.
    (out / "trials" / ".partial-1-0002.keras").write_bytes(b"half")

    assert cli.main(command(out, data_dir)) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[0] == "resuming after 1 of 2 trials"
    assert re.fullmatch(
        r"trial 2/2: val_bits_per_dim \d\S* \(best \S+, trial \d\); \d+ s", lines[1]
    )
    assert f"tfbnood calibrate {out}/best --out DETECTOR" in captured.out.splitlines()[-1]
    again = [tuning.Trial(**one) for one in contents(out)["trials"]]
    assert results(again) == results(real.found.trials)
    assert list(out.rglob(".partial*")) == []


# Hyperband continues a model in its 4th trial; the 4th is the first that BayesianOptimization does not draw.
@pytest.mark.parametrize(("method", "trials"), [("random", 3), ("hyperband", 4), ("bayesian", 5)])
def test_an_interrupted_search_is_the_uninterrupted_one(toy, method, trials, monkeypatch):
    options = {"method": method, "trials": trials, "epochs": 3, "seed": 1}
    whole = toy("whole", **options)
    numbers = [trial.number for trial in whole.trials]
    assert numbers == [*range(1, trials + 1)]
    run_trial, asked = tuning_search.run_trial, []

    def interrupted(study, number, *args, **kwargs):
        asked.append(number)
        if number in (2, trials) and asked.count(number) == 1:
            raise KeyboardInterrupt
        return run_trial(study, number, *args, **kwargs)

    monkeypatch.setattr(tuning_search, "run_trial", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            toy("stopped", **options)
    stopped = toy("stopped", **options)
    assert asked == sorted([*numbers, 2, trials])  # none lost, none run twice to the end
    assert results(stopped.trials) == results(whole.trials)
    weights = [
        load_model(one.folder / "best/model.keras").get_weights() for one in (whole, stopped)
    ]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_seed_is_another_search(toy):
    # 0 is no seed at all for keras-tuner.
    searches = [
        toy(name, seed=seed, trials=2).trials for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    values = [[trial.hyperparameters for trial in trials] for trials in searches]
    assert results(searches[0]) == results(searches[1])
    assert all(one != other for one in values[0] for other in values[2])


def test_hyperband_continues_the_best_of_the_models_it_trained_shortly(toy, monkeypatch):
    steps = []
    batches = tuning_trials.batches
    monkeypatch.setattr(
        tuning_trials,
        "batches",
        lambda *args, first_step: steps.append(first_step) or batches(*args, first_step=first_step),
    )
    found = toy(method="hyperband", trials=4, epochs=3)
    first, promoted = found.trials[:3], found.trials[3]
    assert [trial.epochs for trial in found.trials] == [1, 1, 1, 3]
    assert promoted.continues == min(first, key=lambda trial: trial.value).number
    assert promoted.hyperparameters == first[promoted.continues - 1].hyperparameters
    per_epoch = 240 // promoted.hyperparameters["batch_size"]
    assert steps == [0, 0, 0, per_epoch, 2 * per_epoch]


def test_time_over_stops_within_a_trial_and_the_same_call_resumes(toy, monkeypatch, tmp_path):
    whole = toy("whole", epochs=3)
    answers = iter([False, False, False, False, True])  # once before a trial, then after epochs
    monkeypatch.setattr(tuning_search.Search, "out_of_time", lambda search: next(answers))
    stopped = toy("stopped", epochs=3, max_minutes=9)
    assert (len(stopped.trials), stopped.finished) == (1, False)
    assert (tmp_path / "stopped" / "best" / "model.keras").exists()
    half = keras.models.load_model(tmp_path / "stopped" / "trials" / "0002.keras")
    size = whole.trials[1].hyperparameters["batch_size"]
    assert int(half.optimizer.iterations) == 240 // size
    monkeypatch.undo()
    monkeypatch.setitem(registry.MODELS, "vae", Toy)
    assert results(toy("stopped", epochs=3).trials) == results(whole.trials)


def test_a_limit_that_is_over_at_once_still_leaves_a_model(toy, tmp_path):
    found = toy(max_minutes=1e-9)
    assert (len(found.trials), found.finished) == (1, False)
    assert (tmp_path / "search" / "best" / "run.json").exists()


def test_a_failed_trial_is_counted_shown_and_not_the_end(toy, monkeypatch, capsys):
    network, made = HyperModel.network, itertools.count(1)

    def failing(self, hp):
        if next(made) == 2:
            raise ValueError("no such size\nand more")
        return network(self, hp)

    monkeypatch.setattr(HyperModel, "network", failing)
    found = toy(progress=True)
    assert [trial.status for trial in found.trials] == ["completed", "failed", "completed"]
    failed = found.trials[1]
    assert (failed.value, failed.error) == (None, "ValueError: no such size")
    assert found.ranked[-1] == failed
    assert contents(found.folder)["trials"][1]["error"] == failed.error
    line = capsys.readouterr().err.splitlines()[1]
    assert line.startswith("trial 2/3: failed: ValueError: no such size (best ")
    assert re.search(r"; \d+ s; about \d+ s left$", line)
    assert str(found).splitlines()[-1].endswith("ValueError: no such size")


def test_the_command_counts_failed_trials(toy, data_dir, tmp_path, monkeypatch, capsys):
    network, made = HyperModel.network, itertools.count(1)

    def failing(self, hp):
        if next(made) == 1:
            raise ValueError("no such size")
        return network(self, hp)

    monkeypatch.setattr(HyperModel, "network", failing)
    assert cli.main(command(tmp_path / "search", data_dir)) == 0
    table, failed, best = capsys.readouterr().out.strip().split("\n\n")
    assert table.splitlines()[-1].split()[:2] == ["1", "failed"]
    assert failed == "1 of 2 trials failed"
    assert best.startswith("best: trial 2; ")


def test_a_search_whose_trials_all_diverge_is_an_error(toy, monkeypatch, capsys):
    monkeypatch.setattr(tuning_trials, "_LEARNING_RATES", (1e25, 1e26))
    with pytest.raises(TfbnoodError, match="all 4 trials failed; the last one: the loss became "):
        toy(trials=4)


def test_files_that_cannot_be_written_are_not_a_failed_trial(toy, monkeypatch, tmp_path):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Toy, "save", full)
    with pytest.raises(TfbnoodError, match=r"0001.keras cannot be written \(No space left"):
        toy()
    assert contents(tmp_path / "search")["trials"] == []


def test_the_objective_pseudo_auroc_is_the_mean_over_kinds(toy, digits):
    found = toy(objective="pseudo_auroc", statistic="log_prob", trials=2)
    assert found.best.value == max(trial.value for trial in found.trials)
    model = load_model(found.folder / "best" / "model.keras")
    _, validation = split(digits.train, seed=0)
    order = np.random.RandomState(0).permutation(60)
    inliers, others = validation[np.sort(order[:30])], validation[np.sort(order[30:])]
    low = model.bits_per_dim(inliers)[:, None]
    expected = [
        np.mean((low < high) + 0.5 * (low == high))
        for high in map(model.bits_per_dim, pseudo_outliers(others, seed=0).values())
    ]
    assert found.best.value == pytest.approx(np.mean(expected), abs=1e-3)
    assert contents(found.folder)["settings"]["statistic"] == ["log_prob", {}]


def test_the_split_is_disjoint_and_complete(digits):
    train, validation = split(digits.train, seed=3)
    assert len(validation) == 60
    both = np.concatenate([train, validation]).reshape(300, -1)
    np.testing.assert_array_equal(
        np.sort(both.view("V64").ravel()),
        np.sort(digits.train.reshape(300, -1).view("V64").ravel()),
    )
    assert len(split(np.zeros((9000, 1, 1, 1), np.uint8), seed=0)[1]) == 1000
    with pytest.raises(DataError, match=r"at least 20 images\. Received: 19"):
        split(digits.train[:19], seed=0)


@pytest.mark.parametrize("model", PRESETS)
def test_the_space_of_every_preset_has_it_in_the_middle(model):
    for name, preset in PRESETS[model].items():
        hp = keras_tuner.HyperParameters()
        HyperModel(model, name).declare_hyperparameters(hp)
        assert [one.name for one in hp.space][-2:] == ["learning_rate", "batch_size"]
        for field in tuning.SEARCHED[model]:
            assert hp.get(field) == getattr(preset.config, field)
        choices = {one.name: one.values for one in hp.space}
        assert max(choices.get("dropout", [0])) < 1
    hp.values.update({one.name: one.values[0] for one in hp.space[:-2]})
    network = HyperModel(model, "tiny").network(hp)
    size = next(iter(tuning.SEARCHED[model]))
    assert getattr(network, size) == hp.get(size) == getattr(preset.config, size) // 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning:keras_tuner")
def test_keras_tuners_own_tuners_take_the_hypermodel(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(registry.MODELS, "vae", Toy)
    objective = keras_tuner.Objective("val_bits_per_dim", "min")
    tuner = keras_tuner.RandomSearch(
        HyperModel("vae", "tiny"), objective, max_trials=1, seed=1, directory=tmp_path
    )
    images = digits.train
    tuner.search(images[:200], validation_data=(images[200:],), epochs=2, verbose=0)
    (trial,) = tuner.oracle.get_best_trials()
    assert trial.status == "COMPLETED", trial.message
    assert 0 < trial.score < 20


@pytest.fixture(scope="module")
def brought():
    whole = load("digits")
    return SimpleNamespace(
        model=trained_brought_model(whole.train), train=whole.train, images=whole.calibration
    )


def test_choosing_a_statistic_ranks_and_leaves_every_variable_bit_identical(brought):
    before = [variable.numpy() for variable in brought.model.variables]
    candidates = [
        "log_prob",
        ("bn_delta", {"mixing": "moments", "r1": 0.0, "r2": 1.0, "batch_size": 32}),
        (
            "bn_delta",
            {"mixing": "moments", "r1": 0.1, "r2": 0.9, "batch_size": 16, "draws": (1, 2)},
        ),
    ]
    options = {"reference": brought.train, "candidates": candidates}
    found = choose_statistic(brought.model, brought.images, **options)
    for variable, value in zip(brought.model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    means = [one.mean_auroc for one in found]
    assert means == sorted(means, reverse=True)
    assert {(one.name, str(one.settings)) for one in found} == {
        ("log_prob", "{}"),
        *((name, str(settings)) for name, settings in candidates[1:]),
    }
    for one in found:
        assert one.mean_auroc == pytest.approx(np.mean(list(one.aurocs.values())))
    assert found == choose_statistic(brought.model, brought.images, **options)


@pytest.mark.parametrize("contamination", [0.2, 1.0])
def test_batch_statistics_are_judged_on_pools_of_the_share(brought, contamination):
    settings = {"mixing": "moments", "batch_size": 32}
    (found,) = choose_statistic(
        brought.model,
        brought.images,
        reference=brought.train,
        candidates=[("bn_delta", settings)],
        contamination=contamination,
        seed=2,
    )
    order = np.random.RandomState(2).permutation(300)
    inliers, others = (brought.images[np.sort(rows)] for rows in (order[:150], order[150:]))
    flipped = pseudo_outliers(others, seed=2)["flip"]
    statistic = get("bn_delta", **settings).fit(brought.model, brought.train)
    if contamination == 1:
        is_ood = np.arange(300) >= 150
        scores = np.concatenate([statistic.score(inliers), statistic.score(flipped)])
    else:
        pool, is_ood = mix(inliers, flipped, 0.2, seed=2)
        scores = statistic.score(pool)
    assert found.scope == "batch"
    assert found.aurocs["flip"] == pytest.approx(auroc(is_ood, scores))


def test_a_statistic_that_does_not_go_with_the_model_is_shown_last_with_the_reason(brought):
    found = choose_statistic(
        PlainModel(),
        brought.images,
        reference=brought.train[:100],
        candidates=["bn_delta", "pixel_pca"],
    )
    assert [one.name for one in found] == ["pixel_pca", "bn_delta"]
    assert "must have keras.layers.BatchNormalization layers" in found[1].error
    title, first, last = ranking_table(found).splitlines()
    assert title.split()[:2] == ["statistic", "mean"]
    assert first.split()[1] == f"{found[0].mean_auroc:.3f}"
    assert last.startswith("bn_delta")
    assert found[1].error in last


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"candidates": ["magic"]}, StatisticError, "statistic must be auto or one of"),
        ({"candidates": []}, StatisticError, "must hold at least one"),
        ({"candidates": ["bn_delta"]}, StatisticError, "no candidate works; bn_delta: "),
        ({"contamination": 0.0}, DataError, r"must lie in \(0, 1\]"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_from_is_said(brought, changes, error, message):
    with pytest.raises(error, match=message):
        choose_statistic(PlainModel(), brought.images, reference=brought.train, **changes)


def test_the_default_candidates_are_statistics_with_settings_they_take():
    made = [get(name, **settings) for name, settings in tuning.CANDIDATES]
    settings = [one.get_config() for one in made if one.name == "bn_delta"]
    for name in ("r1", "r2", "batch_size", "mixing"):
        assert len({config[name] for config in settings}) > 1


def test_the_command_ranks_and_names_the_next_one(toy, data_dir, tmp_path, capsys, monkeypatch):
    candidates = ["pixel_pca", ("bn_delta", {"mixing": "moments", "r1": 0.0})]
    monkeypatch.setattr(
        tuning_run, "choose_statistic", functools.partial(choose_statistic, candidates=candidates)
    )
    out = tmp_path / "search"
    words = [*command(out, data_dir), "--max-minutes", "1e-9", "--choose-statistic"]
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    trials, statistics, time_over, last = captured.out.strip().split("\n\n")
    assert trials.splitlines()[0].split()[:2] == ["trial", "val_bits_per_dim"]
    assert statistics.splitlines()[0].split()[:2] == ["statistic", "mean"]
    assert time_over == (
        "Time limit reached after 1 of 2 trials; run the same command again to resume."
    )
    assert f"tfbnood calibrate {out}/best --out DETECTOR --statistic " in last
    ranked = json.loads((out / "statistics.json").read_text())
    assert {one["name"] for one in ranked} == {"pixel_pca", "bn_delta"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 0}, "--trials must be at least 1. Received: 0"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"seed": -1}, "--seed must be in [0, 2147483647]"),
        ({"max-minutes": 0}, "--max-minutes must be positive"),
        ({"statistic": "magic"}, "--statistic must be auto or one of"),
        ({"data": "no_such_data"}, "no_such_data"),
    ],
    ids=str,
)
def test_mistakes_are_one_line_and_exit_code_2(data_dir, tmp_path, capsys, changes, message):
    assert cli.main(command(tmp_path / "search", data_dir, **changes)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert message in line
    assert not (tmp_path / "search").exists()


def test_a_folder_of_something_else_is_refused(toy, tmp_path):
    toy("a", trials=1)
    with pytest.raises(
        TfbnoodError, match=r"same settings\. Received: .*a, with trials=1 instead of 2$"
    ):
        toy("a", trials=2)
    with pytest.raises(
        TfbnoodError, match="objective='val_bits_per_dim' instead of 'pseudo_auroc', stat"
    ):
        toy("a", trials=1, objective="pseudo_auroc")
    write_json(tmp_path / "b" / "other.json", {})
    with pytest.raises(TfbnoodError, match="out must be a new or empty folder"):
        toy("b")
    with pytest.raises(TfbnoodError, match="which is a file"):
        toy("b/other.json")
    written = contents(tmp_path / "a")
    for damage in ('{"settings"', {**written, "trials": [{}]}, {**written, "trials": 7}, []):
        text = damage if isinstance(damage, str) else json.dumps(damage)
        (tmp_path / "a" / "tuning.json").write_text(text)
        with pytest.raises(TfbnoodError, match=r"is not readable .* remove the folder"):
            toy("a", trials=1)


def test_a_second_search_in_the_folder_is_refused(toy, tmp_path, monkeypatch):
    run_trial, messages = tuning_search.run_trial, []

    def with_a_second_one(*args, **kwargs):
        with pytest.raises(
            TfbnoodError, match="search is in use: another process works on this"
        ) as one:
            toy()
        messages.append(str(one.value))
        return run_trial(*args, **kwargs)

    monkeypatch.setattr(tuning_search, "run_trial", with_a_second_one)
    assert toy(trials=2).finished
    assert len(messages) == 2
    assert {path.name for path in (tmp_path / "search").iterdir()} == {
        "best",
        "trials",
        "tuning.json",
    }


def test_a_full_disk_is_one_line_and_the_search_resumes(toy, data_dir, tmp_path, capsys):
    whole = toy("whole")
    with mounted(tmp_path / "disk", "size=1m") as disk:
        size = (whole.folder / "best" / "model.keras").stat().st_size
        fill(disk, leave=3 * size)
        assert cli.main(command(disk / "search", data_dir)) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert re.fullmatch(r"tfbnood: \S+ cannot be written \(No space left on device\)", line)
        assert list(disk.rglob(".partial-*")) == []
        fill(disk)
        assert cli.main(command(disk / "search", data_dir)) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.endswith("cannot be written (No space left on device)")
        (disk / "filling").unlink()
        assert cli.main(command(disk / "search", data_dir)) == 0
        make_read_only(disk)
        assert cli.main(command(disk / "search", data_dir)) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert str(disk / "search") in line


def test_arguments_that_only_python_can_get_wrong(toy):
    with pytest.raises(TfbnoodError, match="method must be one of random, hyperband, bayesian"):
        toy(method="grid")
    with pytest.raises(TfbnoodError, match="objective must be one of"):
        toy(objective="loss")
    with pytest.raises(TfbnoodError, match="model must be one of realnvp, vae, pixelcnn"):
        toy(model="gan")
    with pytest.raises(TfbnoodError, match="preset must be one of"):
        toy(preset="huge")


def test_the_choices_of_the_command_are_those_of_the_module():
    # Written out in cli/tune.py, so that --help need not import TensorFlow.
    parser = cli.make_parser()._subparsers._group_actions[0].choices["tune"]
    choices = {action.dest: action.choices for action in parser._actions}
    assert choices["method"] == tuning.METHODS
    assert choices["objective"] == tuple(tuning.OBJECTIVES)


@pytest.mark.parametrize(
    ("shape", "preset"),
    [((8, 8, 1), "tiny"), ((28, 28, 1), "cpu-grey"), ((8, 8, 3), "cpu-colour")],
    ids=str,
)
def test_the_default_preset_is_one_for_such_images(shape, preset):
    assert _preset_for(*shape) == preset


def test_nothing_is_judged_on_the_pseudo_outliers_that_it_was_trained_on():
    for name, settings in tuning.CANDIDATES:
        assert getattr(judged(name, **settings), "pretext", False) is False
    own = get("ensemble", components=3)
    assert (judged(own).pretext, judged(own).components) == (False, 3)
    assert own.pretext  # as it was
    assert not judged("auto").pretext
    with pytest.raises(StatisticError, match="pretext is trained on pseudo-outliers"):
        judged("pretext")


def large(side, channels=3):
    images = np.zeros((20, side, side, channels), np.uint8)
    return Dataset("large", "made here", {"train": images})


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("preset", [None, "cpu-colour"])
def test_images_far_too_large_are_refused_before_anything_is_made(model, preset, tmp_path):
    with pytest.raises(
        TfbnoodError,
        match=r"^dataset must keep to 4 times the 32×32 .* cpu-colour .* or pass any_size=True\. Received: 96×96 pix",
    ):
        tune(large(96), model=model, preset=preset, out=tmp_path / "search")
    assert list(tmp_path.iterdir()) == []


def test_images_too_large_are_searched_on_with_one_warning(monkeypatch, tmp_path):
    monkeypatch.setitem(registry.MODELS, "vae", Toy)
    options = {"model": "vae", "trials": 1, "epochs": 1, "progress": False}
    # Not pytest.warns, which would also make errors of what pyproject.toml ignores.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        tune(large(48), out=tmp_path / "search", **options)
    (warning,) = warned
    assert re.match(r"dataset should keep to the 32×32 .* 2\.2 times", str(warning.message))
    assert warning.filename == __file__


def test_any_size_is_in_the_command_of_the_search_where_it_is_needed(monkeypatch, tmp_path):
    monkeypatch.setitem(registry.MODELS, "vae", Toy)
    options = {"model": "vae", "trials": 1, "epochs": 1, "progress": False, "any_size": True}
    for side, needed in ((48, False), (96, True)):
        out = tmp_path / str(side)
        tune(large(side), out=out, **options)
        about = json.loads((out / "tuning.json").read_text())
        assert ("--any-size" in about["command"].split()) is needed
        assert "any_size" not in about["settings"]
