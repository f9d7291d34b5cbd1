"""Every public name has an example in its docstring, and all examples of the package run.

An example may use, beside the public names of the module it stands in:

- `np`: NumPy; `tfbnood`: the package;
- `x`: `tfbnood.data.load("digits")`;
- `model`: a small RealNVP for 8×8×1 images, trained for an epoch, whose functions are compiled for batches of 64;
- `detector`: `model` with the statistic "pixel_pca", fitted to `x.train` and calibrated on `x.calibration`;
- `folder`: a new temporary folder, a `pathlib.Path`.

It shows what is the same on all machines, takes less than a second and writes nothing outside of `folder`.
"""

import ast
import doctest
import importlib
import inspect
import io
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import tfbnood
from tfbnood import statistics
from tfbnood.statistics import registry

ROOT = Path(tfbnood.__file__).parents[1]
PUBLIC = (
    "tfbnood",
    "tfbnood.batch_tests",
    "tfbnood.calibration",
    "tfbnood.callbacks",
    "tfbnood.conditional",
    "tfbnood.data",
    "tfbnood.errors",
    "tfbnood.fitting",
    "tfbnood.metrics",
    "tfbnood.models",
    "tfbnood.monitor",
    "tfbnood.networks",
    "tfbnood.plots",
    "tfbnood.pseudo",
    "tfbnood.report",
    "tfbnood.serving",
    "tfbnood.statistics",
    "tfbnood.training",
    "tfbnood.tuning",
)
# These train models.
SKIPPED = {
    "tfbnood.fitting.run.fit",
    "tfbnood.training.run.train",
    "tfbnood.tuning.run.choose_statistic_for_best",
    "tfbnood.tuning.run.tune",
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# By name: modules are imported by the tests and not while pytest collects them.
SOURCES = {
    module_name(path): path
    for path in sorted(Path(tfbnood.__file__).parent.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
}


def examples(module):
    """The doctests of a file, of methods and decorated functions as well, which doctest's own finder may miss."""
    path = SOURCES[module]
    found = []

    def visit(node, name):
        if docstring := ast.get_docstring(node):
            line = node.body[0].lineno - 1
            found.append(doctest.DocTestParser().get_doctest(docstring, {}, name, str(path), line))
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                visit(child, f"{name}.{child.name}")

    visit(ast.parse(path.read_text(encoding="utf-8")), module)
    return [test for test in found if test.examples]


def needs_example(value):
    return inspect.isfunction(value) or (
        inspect.isclass(value) and not issubclass(value, Exception)
    )


def has_example(value):
    docstring = inspect.cleandoc(value.__doc__ or "")
    return re.search(r"^Example:\n    >>> ", docstring, re.MULTILINE) is not None


def public_values(module):
    module = importlib.import_module(module)
    values = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in values.items() if needs_example(value)}


def test_the_modules_in_the_package_s_all_are_those_of_this_suite():
    # Not only some of them: `tfbnood.serving.Client` must not need an import of its own.
    modules = {name for name in tfbnood.__all__ if inspect.ismodule(getattr(tfbnood, name))}
    assert {"tfbnood", *(f"tfbnood.{name}" for name in modules)} == set(PUBLIC)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_example(module):
    lacking = [name for name, value in public_values(module).items() if not has_example(value)]
    assert lacking == []


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        ("tfbnood:Detector", None),
        # Not those that Keras calls.
        ("tfbnood.models:LikelihoodModel", ("log_prob", "bits_per_dim", "sample")),
    ],
)
def test_the_methods_that_users_call_have_examples(owner, names):
    owner = pkgutil.resolve_name(owner)
    methods = {
        name: getattr(owner, name)
        for name in names or vars(owner)
        if not name.startswith("_") and callable(getattr(owner, name))
    }
    assert [name for name, value in methods.items() if not has_example(value)] == []


def test_every_built_in_statistic_has_an_example():
    classes = {name: type(statistics.get(name)) for name in registry._BUILT_IN}
    assert [name for name, value in classes.items() if not has_example(value)] == []


@pytest.fixture(scope="session")
def shared():
    x = tfbnood.data.load("digits")
    model = tfbnood.models.RealNVP((8, 8, 1), channels=2, blocks=0, scales=1)
    model.compile(run_eagerly=True)  # To compile a step takes longer than a few of them.
    model.fit(x.train, batch_size=256, verbose=0)
    detector = tfbnood.Detector(model, "pixel_pca", reference=x.train).calibrate(x.calibration)
    return {"np": np, "tfbnood": tfbnood, "x": x, "model": model, "detector": detector}


@pytest.fixture
def forgotten():
    """Forgets the statistics that an example registers."""
    before = set(statistics.names())
    yield
    for name in set(statistics.names()) - before:
        del registry._registered[name]


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("module", SOURCES)
def test_examples_run(module, shared, tmp_path_factory, monkeypatch):
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    imported = importlib.import_module(module)
    own = {name: getattr(imported, name) for name in imported.__all__}
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    report = io.StringIO()
    for test in examples(module):
        test.globs = {**own, **shared, "folder": tmp_path_factory.mktemp("folder")}
        runner.run(test, out=report.write)
    assert runner.failures == 0, report.getvalue()
    assert list(here.iterdir()) == []  # nothing is left behind


def test_only_examples_that_train_are_skipped():
    skipped = {
        test.name
        for module in SOURCES
        for test in examples(module)
        for example in test.examples
        if example.options.get(doctest.SKIP)
    }
    assert skipped <= SKIPPED
