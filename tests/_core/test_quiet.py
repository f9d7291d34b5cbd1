"""TensorFlow's C++ log is kept off the terminal, and nothing else."""

import os
import sys

import pytest

from tfbnood._core import quiet


def test_only_the_cpp_log_is_kept_back(capfd):
    def noisy():
        # To the descriptor, as C++ does.
        os.write(2, b"I0000 00:00:1794798675.480496    2695 port.cc:153] oneDNN\n")
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called\n")
        os.write(2, b"E: a Python error\n")
        raise ImportError("broken")

    with pytest.raises(ImportError, match="broken"):
        quiet._without_cpp_log(noisy)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "E: a Python error\nafter\n"


def test_the_log_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    before = list(sys.meta_path)
    with quiet.quiet_tensorflow():
        assert sys.meta_path == before
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    with quiet.quiet_tensorflow():
        assert sys.meta_path != before
    assert sys.meta_path == before
