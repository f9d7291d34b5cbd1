"""A bar is shown where somebody looks at it, after two seconds or when asked for, and nowhere else."""

import contextlib
import io
import sys
import types

import pytest
import tqdm

from tfbnood._core import progress
from tfbnood._core.progress import bar, showing


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)


def drawn(output, **options):
    # Not by a fixture: pytest puts its own standard error back before a test is called.
    with contextlib.redirect_stderr(output):
        for _ in bar(range(3), "counting", **options):
            pass
    return "counting" in output.getvalue()


def test_a_bar_is_drawn_on_a_terminal_after_a_while(monkeypatch):
    assert not drawn(Terminal())  # These take no time.
    monkeypatch.setattr(progress, "_PATIENCE", 1e-9)
    assert drawn(Terminal())


def test_a_bar_that_was_asked_for_is_drawn_at_once():
    assert drawn(Terminal(), progress=True)


def test_false_silences(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 1e-9)
    assert not drawn(Terminal(), progress=False)
    with showing(False):
        assert not drawn(Terminal())
        with showing(None):
            assert not drawn(Terminal())
    with showing(True):
        assert drawn(Terminal())


def test_nothing_goes_into_a_pipe(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 1e-9)
    assert not drawn(io.StringIO())
    assert not drawn(io.StringIO(), progress=True)
    with contextlib.redirect_stderr(None):  # as in a program without a console
        assert list(bar(range(3), progress=True)) == [0, 1, 2]


def test_a_notebook_is_as_good_as_a_terminal(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", types.ModuleType("zmqshell"))
    monkeypatch.setattr(progress, "_tqdm", lambda notebook: tqdm.tqdm)
    assert not drawn(io.StringIO())
    assert drawn(io.StringIO(), progress=True)


def test_the_environment_silences_all(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert not drawn(Terminal(), progress=True)
