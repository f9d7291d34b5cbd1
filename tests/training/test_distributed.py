"""Several replicas train as one with all their images, end every step equal, and resume to the same weights."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from keras_files import differing, state, steps_in
from toys import Toy

from tfbnood._core.cluster import Cluster, read_cluster
from tfbnood._core.presets import preset
from tfbnood.errors import TfbnoodError
from tfbnood.training import distributed
from tfbnood.training.distributed import STRATEGIES, plan_replicas
from tfbnood.training.run import train

HERE = pathlib.Path(__file__).parent
STEPS, EVERY = 20, 10


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if "TF_CPP" not in key}
    return {**kept, "PYTHONPATH": str(HERE.parent), **more}


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    """What on_two_devices.py has found and trained."""
    folder = tmp_path_factory.mktemp("devices")
    line = [sys.executable, str(HERE / "on_two_devices.py"), str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(devices):
    return json.loads((devices / "found.json").read_text())


def test_with_synchronised_moments_two_replicas_are_one_with_all_images(found):
    np.testing.assert_allclose(found["synchronised"]["loss"], found["one"]["loss"], rtol=1e-5)
    for two, one in zip(found["synchronised"]["weights"], found["one"]["weights"], strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)


def test_without_each_replica_has_the_moments_of_its_own_images(found, digits):
    rows = digits.train[:64].astype(np.float64)
    rows = rows[np.argsort(rows.sum(axis=(1, 2, 3)), kind="stable")]
    above = np.pad(rows[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64
    moving = 1.0
    for step in (above[:32], above[32:]):
        moving = 0.99 * moving + 0.01 * np.mean([step[:16].var(), step[16:].var()])
    np.testing.assert_allclose(found["own"]["moving_variance"], [moving], rtol=1e-6)
    together = 1.0
    for step in (above[:32], above[32:]):
        together = 0.99 * together + 0.01 * step.var()
    np.testing.assert_allclose(found["synchronised"]["moving_variance"], [together], rtol=1e-6)
    assert abs(moving - together) > 1e-5
    assert found["own"]["weights"] != found["synchronised"]["weights"]


def test_all_replicas_end_equal(found):
    assert len(found["own"]["weights"]) > 10
    assert found["own"]["unequal"] == []
    assert found["synchronised"]["unequal"] == []


def test_replicas_draw_noise_of_their_own_and_the_first_that_of_one_alone(found):
    first, second = found["seeds"]
    assert first == found["seed"]
    assert second != first


def test_an_interrupted_training_on_two_devices_resumes_to_the_same_weights(devices):
    for name in ("checkpoint.keras", "model.keras"):
        assert differing(devices / "whole" / name, devices / "stopped" / name) == []
    assert steps_in(devices / "stopped" / "checkpoint.keras") == STEPS
    runs = [json.loads((devices / one / "run.json").read_text()) for one in ("whole", "stopped")]
    assert runs[0]["result"] == runs[1]["result"]
    wanted = {"strategy": "mirrored", "replicas": 2, "sync_moments": False, "batch_size": 16}
    assert {key: runs[0][key] for key in wanted} == wanted
    assert "--strategy mirrored --replicas 2" in runs[0]["command"]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def train_on_two_machines(folder, out, *, dies_after=0):
    """Two processes; the second one's end is that of a kill where it `dies_after` a step."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    words = "train --data digits --model vae --preset tiny --batch-size 16 --seed 3 --strategy multiworker"
    words += " --learning-rate 0.03"
    limits = ["--steps", str(STEPS), "--checkpoint-every", str(EVERY)]
    processes = []
    for index, place in enumerate((out, folder / "not-there")):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        program = [str(HERE / "on_two_machines.py"), str(folder / f"{out.name}{index}.npz")]
        line = [*program, str(dies_after * index), *words.split(), *limits, "--out", str(place)]
        processes.append(
            subprocess.Popen(
                [sys.executable, *line],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(TF_CONFIG=json.dumps(task)),
            )
        )
    try:
        return [(*one.communicate(timeout=300), one.returncode) for one in processes], cluster
    finally:
        for one in processes:
            one.kill()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """A training on two machines that was never stopped, and one whose second machine was."""
    folder = tmp_path_factory.mktemp("machines")
    whole, cluster = train_on_two_machines(folder, folder / "whole")
    killed, killed_cluster = train_on_two_machines(folder, folder / "killed", dies_after=13)
    checkpoint = steps_in(folder / "killed" / "checkpoint.keras")
    resumed, _ = train_on_two_machines(folder, folder / "killed")
    return {
        "folder": folder,
        "whole": (whole, cluster["worker"]),
        "killed": (killed, killed_cluster["worker"]),
        "checkpoint": checkpoint,
        "resumed": resumed,
    }


def test_two_machines_end_with_equal_weights_and_the_chief_writes_the_files(machines):
    folder = machines["folder"]
    ((out, err, code), (other_out, other_err, other_code)), (first, second) = machines["whole"]
    assert (code, other_code) == (0, 0), err + other_err
    assert out == f"trained toy: {folder}/whole/model.keras, {folder}/whole/run.json\n"
    assert other_out == f"trained toy with {first}, which writes the files\n"
    waits, *steps = err.splitlines()
    assert waits == f"{first} is waiting for {second}"
    assert [line.split(":")[0] for line in steps] == ["step 10/20", "step 20/20"]
    assert other_err == f"{second} is waiting for {first}\n"
    with np.load(folder / "whole0.npz") as one, np.load(folder / "whole1.npz") as other:
        assert len(one.files) == 6
        assert [name for name in one.files if not np.array_equal(one[name], other[name])] == []
    assert not (folder / "not-there").exists()
    run = json.loads((folder / "whole" / "run.json").read_text())
    assert (run["strategy"], run["replicas"], run["sync_moments"]) == ("multiworker", 2, False)


def test_two_machines_learn_as_two_devices_and_as_one_with_the_same_images(
    machines, devices, digits
):
    trained = [devices / "whole", machines["folder"] / "whole", devices / "alone"]
    two_devices, two_machines, alone = (state(one / "model.keras") for one in trained)
    for name, value in two_devices.items():
        np.testing.assert_allclose(two_machines[name], value, rtol=1e-4, atol=1e-6)
    assert alone.keys() == two_devices.keys()
    bits = [
        json.loads((one / "run.json").read_text())["result"]["bits_per_dim_training_mode"]
        for one in trained
    ]
    untrained = Toy((8, 8, 1), **vars(preset("vae", "tiny").config), seed=3)
    assert max(bits) < untrained.bits_per_dim(digits.test, training=True).mean() - 3
    # 16 and 32 images have other moments: no more than a hundredth of a bit here.
    np.testing.assert_allclose(bits, bits[0], atol=0.01)


def test_a_killed_machine_ends_the_others_in_one_line_and_all_resume_to_the_same_weights(machines):
    (chief, killed), (first, _) = machines["killed"]
    assert killed[2] == -signal.SIGKILL
    assert (chief[0], chief[2]) == ("", 2)
    _, checkpoint, line = chief[1].splitlines()
    assert checkpoint.startswith("step 10/20")
    assert re.fullmatch(
        rf"tfbnood: {first} lost another worker \(.+\); start all workers again with the same command: "
        "training resumes from the last checkpoint",
        line,
    )
    assert machines["checkpoint"] == EVERY
    assert [one[2] for one in machines["resumed"]] == [0, 0], machines["resumed"]
    folder = machines["folder"]
    for name in ("checkpoint.keras", "model.keras"):
        assert differing(folder / "whole" / name, folder / "killed" / name) == []
    with np.load(folder / "killed0.npz") as one, np.load(folder / "killed1.npz") as other:
        assert [name for name in one.files if not np.array_equal(one[name], other[name])] == []


def config(cluster, job="worker", index=0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def test_a_cluster_has_the_chief_first():
    jobs = {"worker": ["a:1", "[::1]:2"], "chief": ["c:3"]}
    addresses = ("c:3", "a:1", "[::1]:2")
    assert read_cluster(config(jobs, "worker", 1)) == Cluster(addresses, 2)
    assert read_cluster(config(jobs, "chief")).is_chief
    assert not read_cluster(config(jobs, "worker")).is_chief
    assert read_cluster(config({"worker": ["a:1"]})).is_chief


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"strategy multiworker needs the environment variable TF_CONFIG .* Received: none$"),
        (" ", "Received: none$"),
        ("{", r"TF_CONFIG must be JSON \(.*\), e\.g\. {.*}\. Received: {$"),
        ("[1]", r"have an object cluster, .* Received: \[1\]$"),
        (
            config({"ps": ["a:1"]}),
            "only the jobs chief and worker in cluster, .*Received: ps$",
        ),
        (config({"worker": "a:1"}), r"have a list of addresses in cluster\.worker"),
        (config({"worker": ["a"]}), "have addresses host:port in cluster, .* Received: a$"),
        (config({"worker": ["a:1", "a:1"]}), "list each address once"),
        (config({"chief": ["a:1", "b:1"]}, "chief"), "have at most one chief"),
        ('{"cluster": {"worker": ["a:1"]}}', "have an object task"),
        (config({"worker": ["a:1"]}, "chief"), r"a job of its cluster as task\.type, .* chief$"),
        (config({"worker": ["a:1"]}, ["worker"]), r"task\.type, .* Received: \['worker'\]$"),
        (
            config({"worker": ["a:1"]}, index=1),
            r"a valid index into cluster\.worker, .* Received: 1$",
        ),
        (config({"worker": ["a:1"]}, index=True), "Received: True$"),
    ],
    ids=str,
)
def test_a_malformed_cluster_is_one_line_with_an_example(text, message):
    with pytest.raises(TfbnoodError, match=message) as error:
        read_cluster(text)
    assert '"task": {"type": "worker", "index": 0}}' in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "tpu"}, "strategy must be one of mirrored, multiworker. Received: 'tpu'"),
        ({"replicas": 2}, "replicas needs strategy='mirrored'. Received: replicas=2, str"),
        ({"strategy": "mirrored", "replicas": 0}, "replicas must be at least 1"),
        ({"sync_moments": True}, "sync_moments needs a strategy"),
        ({"strategy": "mirrored", "jit": True}, "jit cannot be combined with a strategy"),
        (
            {"strategy": "mirrored", "replicas": 18},
            r"batch_size times the replicas must be at most the 1100 training images. Received: 18 · 64",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(digits, tmp_path, options, message):
    with pytest.raises(TfbnoodError, match=message):
        train(digits, model="vae", preset="tiny", steps=1, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_more_replicas_than_devices_are_refused_once_tensorflow_runs(digits, tmp_path):
    tf.config.list_logical_devices()
    with pytest.raises(
        TfbnoodError, match=r"replicas must be at most \d+, the number of .* Received: replicas=9"
    ):
        train(
            digits,
            model="vae",
            preset="tiny",
            steps=1,
            batch_size=8,
            out=tmp_path / "run",
            strategy="mirrored",
            replicas=9,
        )


def test_settings_that_differ_between_machines_are_named():
    equal = np.array([[1, 2, 3, 0], [1, 2, 3, 0]])
    assert distributed._differing(["a", "b", "c"], equal) == []
    assert distributed._differing(["a", "b", "c"], np.array([[1, 2, 3, 0], [1, 9, 3, 0]])) == ["b"]
    (text,) = distributed._differing(["a", "b", "c"], np.array([[1, 2, 3, 0], [1, 2, 3, 4]]))
    assert "another version" in text


def test_the_strategies_of_the_plan_are_those_of_the_names():
    assert [plan_replicas("mirrored", 2, True).strategy] == [*STRATEGIES[:1]]
    assert plan_replicas(None, None, False).settings == {
        "strategy": None,
        "replicas": 1,
        "sync_moments": False,
    }
