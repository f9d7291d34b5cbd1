"""A run can be stopped anyhow and resumed to the very weights of a run that was not."""

import dataclasses
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf
from faults import fill, make_read_only, mounted
from keras_files import differing, state, steps_in

from tfbnood._core.presets import PRESETS
from tfbnood._core.provenance import array_sha256
from tfbnood.cli import main
from tfbnood.data import Dataset
from tfbnood.errors import TfbnoodError, TrainingDivergedError
from tfbnood.training import run as training
from tfbnood.training.run import train
from tfbnood.training.stream import as_tf_data, batches, mutated

HERE = pathlib.Path(__file__).parent
STEPS, EVERY = 60, 10
SETTINGS = {"model": "vae", "preset": "tiny", "batch_size": 16, "seed": 3}


@pytest.fixture(scope="module")
def baseline(digits, tmp_path_factory):
    """The folder of a run that was never stopped."""
    out = tmp_path_factory.mktemp("runs") / "baseline"
    train(digits, steps=STEPS, out=out, checkpoint_every=EVERY, progress=False, **SETTINGS)
    return out


@pytest.fixture
def copy(baseline, tmp_path):
    """A copy of that folder, to be spoilt."""
    return shutil.copytree(baseline, tmp_path / "copy")


def arguments(out) -> list[str]:
    words = "train --data digits --model vae --preset tiny --batch-size 16 --seed 3"
    limits = ["--steps", str(STEPS), "--checkpoint-every", str(EVERY)]
    return [*words.split(), *limits, "--out", str(out)]


def assert_same_state(run, other_run):
    """Bit by bit; the checkpoint has the optimiser as well."""
    for name, least in (("model.keras", 40), ("checkpoint.keras", 100)):
        assert len(state(run / name)) > least
        assert differing(run / name, other_run / name) == []


class Process:
    """`tfbnood train` in a process of its own that is ended as soon as it has written a checkpoint.

    All steps take a second: from then on it waits after each, for this process to notice on a busy machine.
    """

    def __init__(self, out, seconds=0.5):
        checkpoint = out / "checkpoint.keras"
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        command = [sys.executable, str(HERE / "slowed.py"), str(seconds), *arguments(out)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # With nothing said of logs: TensorFlow's must not bury ours.
            env={key: value for key, value in os.environ.items() if "TF_CPP" not in key},
        )
        deadline = time.monotonic() + 300
        while not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self, number) -> tuple[int, str, str]:
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stdout, stderr


def test_killed_then_interrupted_then_finished_gives_the_same_weights(baseline, tmp_path, capsys):
    out = tmp_path / "run"
    code, _, _ = Process(out).end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    first = steps_in(out / "checkpoint.keras")
    assert first in range(EVERY, STEPS, EVERY)
    # As left by a kill in the middle of a save.
    (out / ".partial-1-checkpoint.keras").write_bytes(b"half")

    code, stdout, stderr = Process(out).end(signal.SIGINT)
    assert code == 130
    assert stdout == ""
    *lines, last = stderr.splitlines()
    assert last == "tfbnood: interrupted"
    assert [line for line in lines if not line.startswith("step ")] == []
    assert first < steps_in(out / "checkpoint.keras") < STEPS
    assert not (out / "model.keras").exists()
    assert "result" not in json.loads((out / "run.json").read_text())

    assert main(arguments(out)) == 0
    assert f"step {STEPS}/{STEPS}" in capsys.readouterr().err
    assert_same_state(out, baseline)
    names = {path.name for path in out.iterdir()}
    assert names == {"run.json", "checkpoint.keras", "model.keras", "logs"}
    runs = [json.loads((folder / "run.json").read_text()) for folder in (out, baseline)]
    assert runs[0]["result"] == runs[1]["result"]


def stop_at(step: int, action):
    """A reporter that does something once a step is done."""

    class Stopping(training.Reporter):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if int(self.model.optimizer.iterations) == step:
                action()

    return Stopping


def test_ctrl_c_keeps_the_very_step_and_checkpoints_may_be_elsewhere(
    digits, baseline, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    options = {"out": out, "steps": STEPS, "progress": False, **SETTINGS}
    with monkeypatch.context() as patch:
        patch.setattr(training, "Reporter", stop_at(7, lambda: signal.raise_signal(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            train(digits, **options)
    assert steps_in(out / "checkpoint.keras") == 7
    train(digits, checkpoint_every=EVERY + 3, **options)
    assert steps_in(out / "checkpoint.keras") == STEPS
    assert_same_state(out, baseline)


def test_pixelcnn_with_dropout_resumes_to_the_same_weights(digits, tmp_path, monkeypatch):
    whole, part = tmp_path / "whole", tmp_path / "part"

    class Copying(training.Reporter):
        def on_epoch_begin(self, epoch, logs=None):
            if int(self.model.optimizer.iterations) == 2:
                shutil.copytree(whole, part, dirs_exist_ok=True)

    # Not what is tested here, and half of the time.
    monkeypatch.setattr(training, "_result", lambda *_: {})
    monkeypatch.setattr(training, "Reporter", Copying)
    options = {"model": "pixelcnn", "preset": "tiny", "batch_size": 8, "progress": False}
    network = train(digits, steps=4, checkpoint_every=2, out=whole, **options)
    assert network.dropout > 0
    assert steps_in(part / "checkpoint.keras") == 2
    monkeypatch.undo()
    monkeypatch.setattr(training, "_result", lambda *_: {})
    train(digits, steps=4, checkpoint_every=2, out=part, **options)
    assert_same_state(whole, part)


def test_a_second_ctrl_c_does_not_spoil_the_checkpoint():
    done = []

    def save():
        with training._ctrl_c_waits():
            signal.raise_signal(signal.SIGINT)
            done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        save()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_diverged_run_keeps_the_last_good_checkpoint(digits, tmp_path):
    options = {**SETTINGS, "learning_rate": 1e30, "progress": False}
    with pytest.raises(TrainingDivergedError, match="at step 2"):
        train(digits, steps=5, checkpoint_every=1, out=tmp_path / "run", **options)
    assert steps_in(tmp_path / "run" / "checkpoint.keras") == 1
    kept = state(tmp_path / "run" / "checkpoint.keras")
    assert [name for name in kept if not np.isfinite(kept[name]).all()] == []


def test_run_json_has_all_that_is_needed_to_repeat_it(digits, baseline):
    run = json.loads((baseline / "run.json").read_text())
    expected = {
        "data": "digits",
        "source": "scikit-learn's load_digits",
        "train_images": 1100,
        "train_sha256": array_sha256(digits.train),
        "image_shape": [8, 8, 1],
        "model": "vae",
        "preset": "tiny",
        "steps": STEPS,
        "checkpoint_every": EVERY,
        "batch_size": 16,
        "learning_rate": 0.001,
        "seed": 3,
        "jit": False,
    }
    assert {key: run.get(key) for key in expected} == expected
    assert run["versions"]["python"] == platform.python_version()
    for name in ("tfbnood", "tensorflow", "keras", "numpy"):
        assert run["versions"][name] == importlib.metadata.version(name)
    assert set(run["machine"]) == {"processor", "cores", "system"}
    assert platform.node() not in json.dumps(run["machine"])
    assert 0 < run["seconds"] < 600


def test_the_command_in_run_json_is_the_same_run(baseline, capsys):
    run = json.loads((baseline / "run.json").read_text())
    program, *words = run["command"].split()
    assert program == "tfbnood"
    # The folder's settings agree, or this would be an error; all steps are done, so it is quick.
    assert main(words) == 0
    assert "model.keras" in capsys.readouterr().out
    again = json.loads((baseline / "run.json").read_text())
    assert again["result"] == run["result"]


def test_the_shell_line_is_kept_as_typed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["/bin/tfbnood", "train", "--out", "my runs/1"])
    assert training._command({}, tmp_path) == "tfbnood train --out 'my runs/1'"


def test_model_keras_loads_in_a_new_process_and_scores_as_run_json_says(baseline):
    code = f"""
import keras, tfbnood.models, tfbnood.data
model = keras.models.load_model({str(baseline / "model.keras")!r})
assert "tfbnood.training.run" not in __import__("sys").modules
print("BPD", model.bits_per_dim(tfbnood.data.load("digits").test).mean())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = json.loads((baseline / "run.json").read_text())["result"]
    assert result["split"] == "test"
    assert result["images"] == 397
    value = float(run.stdout.split("BPD")[1])
    assert value == pytest.approx(result["bits_per_dim_evaluation_mode"], rel=1e-5)
    # 8 bits is what knowing nothing costs.
    assert 1 < value < 7.5
    assert 1 < result["bits_per_dim_training_mode"] < 7.5
    assert value != result["bits_per_dim_training_mode"]


def test_the_result_is_of_calibration_images_where_there_is_no_test_set(digits):
    class Network:
        precision = "float32"

        def bits_per_dim(self, images, training=False):
            return images.mean(axis=(1, 2, 3)) + training

    splits = {name: digits.splits[name] for name in ("train", "calibration")}
    result = training._result(Network(), dataclasses.replace(digits, splits=splits))
    mean = digits.calibration.mean()
    assert result == {
        "split": "calibration",
        "images": 300,
        "precision": "float32",
        "bits_per_dim_evaluation_mode": pytest.approx(mean),
        "bits_per_dim_training_mode": pytest.approx(mean + 1),
    }


def test_tensorboard_has_loss_and_bits_per_dim_at_every_checkpoint(baseline):
    found = {}
    for path in (baseline / "logs").iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    assert set(found) == {"loss", "bits_per_dim"}
    assert list(found["loss"]) == list(range(EVERY, STEPS + 1, EVERY))
    losses = np.array(list(found["loss"].values()))
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(
        list(found["bits_per_dim"].values()), losses / (64 * np.log(2)), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "same settings. Received: .*baseline, with seed=3 instead of 4$"),
        ({"batch_size": 32}, "with batch_size=16 instead of 32$"),
        (
            {"jit": True, "model": "realnvp"},
            "with model='vae' instead of 'realnvp', jit=False instead of True$",
        ),
        # The decay of the learning rate depends on them: a run cannot be made longer or shorter.
        ({"steps": STEPS + 1}, "with steps=60 instead of 61$"),
        ({"model": "gan"}, "model must be one of realnvp, vae, pixelcnn. Received: model='gan'"),
        ({"steps": 0}, "steps must be at least 1. Received: steps=0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive and finite"),
        ({"seed": -1}, r"seed must lie in \[0, 2\*\*31\). Received: seed=-1"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_folder_or_the_model_is_refused(digits, baseline, change, message):
    before = {path: path.stat().st_mtime_ns for path in baseline.rglob("*")}
    with pytest.raises(TfbnoodError, match=message) as error:
        train(digits, out=baseline, progress=False, **{"steps": STEPS, **SETTINGS, **change})
    assert "\n" not in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in baseline.rglob("*")} == before


def test_other_images_under_the_same_name_are_refused(digits, baseline):
    splits = {**digits.splits, "train": 255 - digits.train}
    other = dataclasses.replace(digits, splits=splits)
    with pytest.raises(TfbnoodError, match="with train_sha256="):
        train(other, steps=STEPS, out=baseline, progress=False, **SETTINGS)


def test_an_unknown_preset_leaves_no_folder(digits, tmp_path):
    with pytest.raises(TfbnoodError, match="preset must be one of"):
        train(digits, steps=1, out=tmp_path / "run", **{**SETTINGS, "preset": "huge"})
    assert not (tmp_path / "run").exists()


def test_a_foreign_folder_is_left_alone(digits, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TfbnoodError, match="out must be a new or empty folder"):
        train(digits, steps=1, out=tmp_path, **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(TfbnoodError, match="out must be a folder"):
        train(digits, steps=1, out=tmp_path / "thesis.tex", **SETTINGS)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b""])
def test_a_damaged_checkpoint_is_named(digits, copy, damage):
    path = copy / "checkpoint.keras"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        TfbnoodError, match=r"cannot be loaded .* remove it to start again"
    ) as error:
        train(digits, steps=STEPS, out=copy, **SETTINGS)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_run_json_is_named(digits, copy):
    (copy / "run.json").write_text('{"data": ')
    with pytest.raises(TfbnoodError, match=re.escape(f"{copy / 'run.json'} is not readable")):
        train(digits, steps=STEPS, out=copy, **SETTINGS)


def test_a_second_training_in_the_folder_is_refused_and_the_first_is_not_hurt(
    digits, baseline, tmp_path, capsys
):
    out = tmp_path / "run"
    first = Process(out, seconds=0.05)  # which goes to the end
    checkpoint = (out / "checkpoint.keras").stat()
    os.kill(first.process.pid, signal.SIGSTOP)  # so that it cannot be done in the meantime
    try:
        assert main(arguments(out)) == 2
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tfbnood: {out} is in use: another process works on this run; wait")
    assert first.process.wait(timeout=300) == 0
    first.process.communicate()
    assert (out / "checkpoint.keras").stat().st_mtime_ns > checkpoint.st_mtime_ns
    assert_same_state(out, baseline)


def test_a_disk_that_fills_up_is_one_line_and_the_run_resumes(digits, baseline, tmp_path, capsys):
    size = (baseline / "checkpoint.keras").stat().st_size
    with mounted(tmp_path / "disk", f"size={5 * size}") as disk:
        out = disk / "run"
        fill(disk, leave=size + size // 2)  # room for one checkpoint, not for two
        assert main(arguments(out)) == 2
        error = capsys.readouterr().err.splitlines()
        reason = "cannot be written (No space left on device)"
        assert error[-1] == f"tfbnood: {out / 'checkpoint.keras'} {reason}"
        assert [one for one in error[:-1] if not one.startswith("step ")] == []
        assert steps_in(out / "checkpoint.keras") == EVERY
        assert {path.name for path in out.iterdir()} == {"run.json", "checkpoint.keras", "logs"}
        fill(disk)
        assert main(arguments(out)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(reason)
        (disk / "filling").unlink()
        assert main(arguments(out)) == 0
        assert_same_state(out, baseline)


def test_a_read_only_disk_is_one_line(digits, tmp_path, capsys):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        make_read_only(disk)
        with pytest.raises(TfbnoodError, match=r"run cannot be written \(Read-only file system\)"):
            train(digits, steps=1, out=disk / "run", **SETTINGS)
        assert main(arguments(disk / "run")) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(disk / "run") in line


def numbered(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.uint8)[:, None, None, None]


def taken(n: int, count: int, *arguments, **options) -> list[list[int]]:
    stream = batches(numbered(n), *arguments, **options)
    return [batch.ravel().tolist() for batch in itertools.islice(stream, count)]


def test_an_epoch_has_every_image_once_and_the_next_another_order():
    drawn = taken(12, 6, 4, 0)
    epochs = [[*itertools.chain(*drawn[:3])], [*itertools.chain(*drawn[3:])]]
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2
    assert epochs[0] != epochs[1]
    assert epochs[0] != list(range(12))


def test_batches_are_always_whole():
    drawn = taken(11, 7, 4, 0)
    assert {len(batch) for batch in drawn} == {4}
    assert all(len({*drawn[i], *drawn[i + 1]}) == 8 for i in (0, 2, 4))


def test_batches_are_a_function_of_the_seed():
    assert taken(50, 30, 8, 1) == taken(50, 30, 8, 1)
    assert taken(50, 30, 8, 1) != taken(50, 30, 8, 2)


@pytest.mark.parametrize("first_step", [0, 1, 5, 6, 7, 19])
def test_batches_resume_from_any_step(first_step):
    assert (
        taken(50, 25 - first_step, 8, 1, first_step=first_step) == taken(50, 25, 8, 1)[first_step:]
    )


def test_fewer_images_than_a_batch_are_one_batch():
    drawn = taken(5, 3, 64, 0)
    assert [sorted(batch) for batch in drawn] == [list(range(5))] * 3
    run = {"batch_size": 64, "seed": 0, "mutation": 0.0}
    spec = as_tf_data(numbered(5), run, 0).element_spec
    assert spec.shape == (5, 1, 1, 1)


def test_mutation_replaces_that_share_of_values_and_depends_on_the_step_alone():
    images = np.full((40, 10, 10, 1), 100, np.uint8)
    stream = batches(images, 20, 0, mutation=0.3)
    one, two = next(stream), next(stream)
    assert abs((one != 100).mean() - 0.3 * 255 / 256) < 0.04
    assert (one != two).any()
    np.testing.assert_array_equal(two, next(batches(images, 20, 0, first_step=1, mutation=0.3)))
    values = mutated(np.zeros((50, 10, 10, 1), np.uint8), 1.0, seed=0)
    assert abs(values.mean() - 127.5) < 5
    assert values.min() == 0
    assert values.max() == 255


def test_a_mutation_out_of_range_is_refused(digits, tmp_path):
    with pytest.raises(TfbnoodError, match=r"mutation must lie in \[0, 1\). Received: mutation=1"):
        train(digits, model="vae", preset="tiny", steps=1, out=tmp_path / "run", mutation=1)


def squares(*image_shape, count=20):
    """A data set of noise."""
    images = np.random.default_rng(0).integers(0, 256, (count, *image_shape), dtype=np.uint8)
    return Dataset("squares", "made here", {"train": images, "calibration": images[:4]})


@pytest.mark.parametrize("model", PRESETS)
def test_images_far_too_large_are_refused_before_anything_is_made(model, tmp_path):
    with pytest.raises(
        TfbnoodError,
        match=r"^dataset must keep to 4 times the 32×32 .* cpu-colour .* 9 times as long; resize .*"
        r"Detector\(tfbnood\.networks\.load\(.* or pass any_size=True\. Received: 96×96 pixels$",
    ):
        train(squares(96, 96, 3), model=model, preset="cpu-colour", steps=1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_images_too_large_are_trained_on_with_one_warning(tmp_path):
    options = {"model": "vae", "preset": "tiny", "steps": 1, "batch_size": 4, "progress": False}
    # Not pytest.warns, which would also make errors of what pyproject.toml ignores.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        model = train(squares(36, 36, 1), out=tmp_path / "run", **options)
    (warning,) = warned
    assert re.match(r"dataset should keep to the 28×28 .* 1\.7 times", str(warning.message))
    assert warning.filename == __file__
    assert model.image_shape == (36, 36, 1)
    # The same run, now in silence: any_size is no setting of it.
    train(squares(36, 36, 1), out=tmp_path / "run", any_size=True, **options)


def test_any_size_takes_images_of_any_size_and_stands_in_the_command(tmp_path):
    options = {"model": "vae", "preset": "tiny", "steps": 1, "batch_size": 4, "progress": False}
    model = train(squares(4, 800, 1), out=tmp_path / "run", any_size=True, **options)
    assert model.image_shape == (4, 800, 1)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "--any-size" in run["command"].split()
    assert "any_size" not in run


def test_the_command_of_a_usual_size_does_without_any_size(baseline):
    run = json.loads((baseline / "run.json").read_text())
    assert "--any-size" not in run["command"]
