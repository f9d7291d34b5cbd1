"""The examples of CONTRIBUTING.md, typed into a copy of the package, make a model and a statistic that work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def block(before: str) -> str:
    """The first block of Python after some words."""
    start = TEXT.index(before)
    return re.search(r"^```python\n(.*?)^```", TEXT[start:], re.MULTILINE | re.DOTALL)[1]


def insert(path: Path, pattern: str, text: str) -> None:
    """Puts text behind the one place that a pattern finds."""
    content = path.read_text(encoding="utf-8")
    (place,) = re.finditer(pattern, content, re.MULTILINE)
    path.write_text(content[: place.end()] + text + content[place.end() :], encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A folder with a copy of the package; only the files that the text names are changed."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "tfbnood"
    shutil.copytree(ROOT / "tfbnood", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("models/halves.py", "statistics/contrast.py"):
        (package / path).write_text(block(f"`tfbnood/{path}`"), encoding="utf-8")
    presets, models = package / "_core" / "presets.py", package / "models" / "registry.py"
    insert(presets, r"^GREY, .*\n", "\n\n" + block("`tfbnood/_core/presets.py`"))
    insert(presets, r"^PRESETS.*\n    \{\n", block("an entry of `PRESETS`"))
    insert(models, r"^MODELS.*\{\n", block("an entry of `MODELS`"))
    insert(
        package / "statistics" / "registry.py",
        r"^_BUILT_IN.*\{\n",
        block("an entry of `_BUILT_IN`"),
    )
    return folder


def run(extended: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MODEL = """
import numpy as np, tfbnood
from tfbnood.models.registry import model_class
from tfbnood.saving import load_model
assert tfbnood.__file__.startswith(__import__("os").getcwd()), tfbnood.__file__
x = tfbnood.data.load("digits")
model = load_model("runs/halves/model.keras")
assert type(model) is model_class("halves") is tfbnood.models.Halves

before = [variable.numpy() for variable in model.variables]
batch = model.log_prob(x.test[:8], training=True).numpy()
for variable, old in zip(model.variables, before, strict=True):
    np.testing.assert_array_equal(variable, old)
assert np.abs(model.log_prob(x.test[:8]) - batch).max() > 0.1

# The density by hand, in evaluation mode, with the model's own draw of the noise.
from tfbnood.models.noise import scoring_noise
pixels = (x.test[:8] + scoring_noise(0).uniform(8, (8, 8, 1)).numpy()) / 128 - 1
upper, lower = np.split(pixels.reshape(8, 64), 2, axis=1)
norm, scales = model.normalization, np.exp(model.log_scale.numpy())
hidden = upper @ model.hidden.kernel.numpy() + model.hidden.bias.numpy()
hidden = (hidden - norm.moving_mean.numpy()) / np.sqrt(norm.moving_variance.numpy() + norm.epsilon)
hidden = np.maximum(hidden * norm.gamma.numpy() + norm.beta.numpy(), 0)
mean = hidden @ model.lower.kernel.numpy() + model.lower.bias.numpy()
errors = np.concatenate([upper - model.upper.numpy(), lower - mean], axis=1) / scales
expected = -0.5 * (errors**2 + np.log(2 * np.pi)) - np.log(scales) - np.log(128)
np.testing.assert_allclose(model.log_prob(x.test[:8]), expected.sum(axis=1), rtol=1e-4)

assert model.sample(3, seed=0).shape == (3, 8, 8, 1)
detector = tfbnood.Detector(model, "bn_delta", reference=x.train, mixing="moments")
assert detector.score(x.test[:64]).mean() < detector.score(255 - x.test[:64]).mean()
"""

STATISTIC = """
import numpy as np, tfbnood
x = tfbnood.data.load("digits")
detector = tfbnood.Detector(None, "contrast", reference=x.train).calibrate(x.calibration)
flat = x.test[:50] // 4
assert (detector.predict(flat, fpr=0.05).is_ood).all()
detector.save("contrast")
again = tfbnood.Detector.load("contrast").score(flat)
contrasts = x.train.std(axis=(1, 2, 3))
expected = np.abs(flat.std(axis=(1, 2, 3)) - contrasts.mean()) / contrasts.std()
np.testing.assert_allclose(again, expected)
"""


def test_the_model_trains_by_the_command_given_and_is_a_detectors_model(extended):
    command = re.search(r"`tfbnood (train [^`]* --model halves [^`]*)`", TEXT)[1].split()
    run(extended, "-m", "tfbnood", *command)
    run(extended, "-c", MODEL)


def test_the_statistic_is_fitted_saved_and_loaded_by_its_name(extended):
    run(extended, "-c", STATISTIC)


def test_the_layers_hold_with_both(extended):
    shutil.copy(ROOT / "pyproject.toml", extended)
    lint = "from importlinter.cli import lint_imports_command as run; run()"
    run(extended, "-c", lint, "--no-logo", "--no-cache")


def test_the_examples_are_formatted(extended):
    shutil.copy(ROOT / "pyproject.toml", extended)
    new = [f"tfbnood/{path}" for path in ("models/halves.py", "statistics/contrast.py")]
    run(extended, "-m", "ruff", "check", *new)
    run(extended, "-m", "ruff", "format", "--check", *new)


def test_the_text_has_the_layers_of_the_contract():
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]", contract, re.MULTILINE | re.DOTALL)[1]
    lines = re.findall(r'^    "(.*)",$', layers, re.MULTILINE)
    # Without public paths, the version, and what is not there yet.
    expected = [
        " | ".join(name for name in line.split(" | ") if name != "_version" and "(" not in name)
        for line in lines[1:]
    ]
    (shown,) = re.findall(r"^```\ncli\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert ["cli", *shown.splitlines()] == expected
