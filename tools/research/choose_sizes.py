"""Held-out bits per dimension of models of other sizes after the same CPU time of training.

    .venv/bin/python tools/research/choose_sizes.py --data cifar10 --model pixelcnn --preset cpu-colour \
        --steps 3000 --runs RUNS --out FILE [--size filters=48]

Without --size it is the preset itself. A training stops after --minutes of CPU time and can be resumed by `tfbnood
train` with the same settings, if the size is a preset's. With --minutes 0 nothing is trained: the checkpoint that is
there is measured, and its minutes are those of its `run.json`, which are CPU time if it had one core of its own. A
result file that is there already keeps its other lines.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import signal
import time
from types import FrameType

import tfbnood.training  # It registers the learning rate of a checkpoint with Keras.
from tfbnood._core import presets
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.models.registry import MODELS
from tfbnood.saving import load_model

PRECISION = "mixed_bfloat16"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--steps", type=int, required=True, help="of the whole training")
    parser.add_argument("--size", nargs="*", default=[], metavar="KEY=N", help="other sizes")
    parser.add_argument(
        "--minutes", type=float, default=20, help="of CPU time (default: 20); 0 trains nothing"
    )
    parser.add_argument("--n", type=int, default=1000, help="held-out images (default: 1000)")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="folder of trainings")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="result file, JSON")
    arguments = parser.parse_args()

    dataset = load(arguments.data)
    preset = add_preset(arguments.model, arguments.preset, arguments.size)
    name = "_".join((arguments.data, arguments.model, *arguments.size))
    run = arguments.runs / name
    settings = {"model": arguments.model, "preset": preset, "steps": arguments.steps}
    if arguments.minutes:
        began = time.process_time()
        with stop_after(60 * arguments.minutes):
            tfbnood.training.train(dataset, out=run, precision=PRECISION, **settings)
        seconds = time.process_time() - began
    else:
        seconds = json.loads((run / "run.json").read_text())["seconds"]
    model = load_model(run / "checkpoint.keras")
    steps = int(model.optimizer.iterations.numpy())
    scoring = model.in_precision("float32")  # as trained models do
    line = {
        **settings,
        "data": arguments.data,
        "precision": PRECISION,
        "steps_done": steps,
        "cpu_minutes": round(seconds / 60, 1),
        "parameters": model.count_params(),
        "images": arguments.n,
        "bits_per_dim": float(scoring.bits_per_dim(dataset.calibration[: arguments.n]).mean()),
    }
    print(name, line)
    lines = json.loads(arguments.out.read_text())["lines"] if arguments.out.exists() else {}
    content = {"versions": versions(), "machine": machine(), "lines": {**lines, name: line}}
    write_json(arguments.out, content)


def add_preset(model: str, name: str, sizes: list[str]) -> str:
    """The name of a preset with other sizes, which this process knows from now on."""
    if not sizes:
        return name
    base = presets.preset(model, name)
    other = {key: int(value) for key, value in (one.split("=") for one in sizes)}
    changed = dataclasses.replace(base, config=dataclasses.replace(base.config, **other))
    name = ",".join((name, *sizes))
    presets.PRESETS = {**presets.PRESETS, model: {**presets.PRESETS[model], name: changed}}
    return name


@contextlib.contextmanager
def stop_after(cpu_seconds: float):
    """Ends the block as Ctrl-C does, after which a training keeps all its steps."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


if __name__ == "__main__":
    main()
