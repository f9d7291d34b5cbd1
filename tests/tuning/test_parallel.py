"""A chief and workers search as one process would, whichever of them is killed."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
from toys import EagerToy

from tfbnood._core.tuner_process import TunerProcess, read_tuner_process
from tfbnood.data import load
from tfbnood.errors import TfbnoodError
from tfbnood.models import registry
from tfbnood.saving import load_model
from tfbnood.tuning import Trial, tune
from tfbnood.tuning.parallel import read_events
from tfbnood.tuning.run import split

HERE = pathlib.Path(__file__).parent
OPTIONS = {"model": "vae", "preset": "tiny", "trials": 5, "epochs": 2, "seed": 4}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def variables(tuner_id: str, port: int | str) -> dict[str, str]:
    names = ("TUNER_ID", "ORACLE_IP", "ORACLE_PORT")
    values = (tuner_id, "127.0.0.1", str(port))
    return {f"KERASTUNER_{name}": value for name, value in zip(names, values, strict=True)}


class Process:
    """`tfbnood tune` as the chief or as a worker."""

    def __init__(self, tuner_id, folder, port, most=0):
        words = {"data": "few", "data-dir": folder, **OPTIONS, "out": folder / "search"}
        line = [str(w) for key, value in words.items() for w in (f"--{key}", value)]
        kept = {key: value for key, value in os.environ.items() if "TF_CPP" not in key}
        program = [str(HERE / "one_process.py"), str(folder / "meeting"), str(most)]
        self.process = subprocess.Popen(
            [sys.executable, *program, "tune", *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **variables(tuner_id, port), "PYTHONPATH": str(HERE.parent)},
        )

    def result(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """Five trials by two workers, of which one is killed in its second, and then the chief is; both come back."""
    folder = tmp_path_factory.mktemp("parallel")
    (folder / "meeting").mkdir()
    np.savez(folder / "few_train.npz", images=load("digits").train[:200])
    np.savez(folder / "few_test.npz", images=load("digits").test[:50])
    found, port = {"folder": folder / "search", "few": folder}, free_port()
    with contextlib.ExitStack() as stack:

        def start(*args):
            made = Process(*args)
            stack.callback(made.process.kill)
            return made

        chief, one, two = (
            start("chief", folder, port),
            start("tuner0", folder, port),
            start("tuner1", folder, port, 1),
        )
        found["two"], found["one"] = two.result(), one.result()
        deadline = time.monotonic() + 60
        while len(contents(found["folder"])["trials"]) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        chief.process.kill()
        found["killed chief"], found["killed"] = chief.result(), contents(found["folder"])
        chief, two = start("chief", folder, port), start("tuner1", folder, port)
        found["two again"], found["chief"] = two.result(), chief.result()
    return found


def contents(out):
    return json.loads((out / "tuning.json").read_text())


def test_both_workers_run_trials_and_none_is_run_twice(search):
    assert search["two"][0] == -signal.SIGKILL
    code, out, err = search["one"]
    assert (code, err) == (0, "")
    events = contents(search["folder"])["events"]
    for kind in ("start", "end"):
        assert sorted(event[1] for event in events if event[0] == kind) == [1, 2, 3, 4, 5]
    by_worker = {name: [e[1] for e in events if e[2:] == [name]] for name in ("tuner0", "tuner1")}
    assert len(by_worker["tuner0"]) == 3
    assert len(by_worker["tuner1"]) == 2
    numbers = ", ".join(str(number) for number in by_worker["tuner0"])
    assert out == f"tuner0 ran trials: {numbers}; the chief reports them\n"
    last = by_worker["tuner1"][-1]
    assert search["two again"] == (0, f"tuner1 ran trials: {last}; the chief reports them\n", "")


def test_a_killed_chief_resumes_with_all_that_was_done(search):
    killed = search["killed"]
    assert search["killed chief"][0] == -signal.SIGKILL
    assert (len(killed["trials"]), killed["finished"]) == (4, False)
    code, out, err = search["chief"]
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0] == "resuming after 4 of 5 trials"
    assert lines[1].startswith("chief is serving trials at 127.0.0.1:")
    missing = ({1, 2, 3, 4, 5} - {one["number"] for one in killed["trials"]}).pop()
    assert lines[2].startswith(f"trial {missing}/5: val_bits_per_dim ")
    assert len(lines) == 3
    assert out.splitlines()[0].split()[:2] == ["trial", "val_bits_per_dim"]
    after = contents(search["folder"])
    assert after["finished"]
    assert [one for one in after["trials"] if one["number"] != missing] == killed["trials"]


def test_the_result_is_that_of_one_process(search, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "vae", EagerToy)
    few = load("few", data_dir=search["few"])
    alone = tune(few, out=tmp_path / "alone", progress=False, **OPTIONS)
    content, expected = contents(search["folder"]), contents(tmp_path / "alone")
    assert content.keys() == {*expected, "events"}
    assert content["settings"] == expected["settings"]
    assert content["best"] == expected["best"]
    for one, other in zip(content["trials"], alone.trials, strict=True):
        trial = Trial(**one)
        assert (trial.number, trial.epochs, trial.status) == (other.number, 2, "completed")
        # keras-tuner sends float32 numbers.
        assert trial.hyperparameters == pytest.approx(other.hyperparameters, rel=1e-6)
        assert trial.value == pytest.approx(other.value, rel=1e-4)
    names = {str(path.relative_to(search["folder"])) for path in search["folder"].rglob("*.*")}
    kept = f"trials/{content['best']:04d}.keras"
    assert names == {"tuning.json", "best/model.keras", "best/run.json", kept}
    model = load_model(search["folder"] / "best" / "model.keras")
    _, validation = split(few.train, seed=OPTIONS["seed"])
    best = content["trials"][content["best"] - 1]["value"]
    assert best == min(one["value"] for one in content["trials"])
    assert best == pytest.approx(model.bits_per_dim(validation).mean(), rel=1e-5)


def test_one_process_takes_over_what_several_began(search, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "vae", EagerToy)
    few = load("few", data_dir=search["few"])
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "tuning.json").write_text(json.dumps(search["killed"]))
    best = search["killed"]["best"]
    (tmp_path / "search" / "trials").mkdir()
    model = search["folder"] / "best" / "model.keras"
    (tmp_path / "search" / "trials" / f"{best:04d}.keras").write_bytes(model.read_bytes())
    found = tune(few, out=tmp_path / "search", progress=False, **OPTIONS)
    expected = [Trial(**one) for one in contents(search["folder"])["trials"]]
    assert [trial.number for trial in found.trials] == [1, 2, 3, 4, 5]
    for one, other in zip(found.trials, expected, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4)


def test_the_events_of_one_process_are_those_of_a_chief_with_one_worker_at_a_time():
    trials = [{"number": 1}, {"number": 3}]
    assert read_events({"trials": trials}) == [
        ["start", 1, "nobody-1"],
        ["end", 1],
        ["start", 2, "nobody-2"],
        ["start", 3, "nobody-3"],
        ["end", 3],
    ]
    events = [["start", 1, "a"], ["start", 2, "b"], ["end", 2]]
    assert read_events({"trials": [{"number": 2}], "events": events}) == events


def test_a_process_is_named_by_the_variables_of_keras_tuner():
    assert read_tuner_process({}) is None
    assert read_tuner_process(variables("tuner0", 80)) == TunerProcess("tuner0", "127.0.0.1:80")
    assert read_tuner_process(variables("my-chief", 80)).is_chief
    assert not read_tuner_process(variables("tuner0", 80)).is_chief


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"KERASTUNER_TUNER_ID": ""},
            r"KERASTUNER_TUNER_ID must be set with the others, e\.g\. KER",
        ),
        (
            {"KERASTUNER_ORACLE_PORT": "http"},
            "KERASTUNER_ORACLE_PORT must be a port.* Received: http",
        ),
        ({"KERASTUNER_ORACLE_PORT": "0"}, "Received: 0"),
        ({"KERASTUNER_TUNER_ID": "a/b"}, "must consist of letters, digits, .* Received: a/b"),
    ],
    ids=str,
)
def test_variables_that_are_wrong_are_refused(changes, message):
    with pytest.raises(TfbnoodError, match=message):
        read_tuner_process({**variables("tuner0", 80), **changes})


def test_a_chief_whose_port_is_taken_is_one_line(search, tmp_path, monkeypatch):
    few = load("few", data_dir=search["few"])
    other = grpc.server(futures.ThreadPoolExecutor(1))  # as the chief of another search
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    for name, value in variables("chief", port).items():
        monkeypatch.setenv(name, value)
    try:
        with pytest.raises(TfbnoodError, match=r"with a free port\. Received: 127\.0\.0\.1:\d+$"):
            tune(few, out=tmp_path / "search", progress=False, **OPTIONS)
    finally:
        other.stop(grace=None).wait()
