"""Settings that must stand before TensorFlow or a test module is imported, and the fixtures that all tests share."""

import gc
import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Data sets kept beside the checkout are used without asking; an explicit TFBNOOD_DATA wins.
_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
if "TFBNOOD_DATA" not in os.environ and _SHARED.is_dir():
    os.environ["TFBNOOD_DATA"] = str(_SHARED)

# A shell's background jobs ignore Ctrl-C, and so would every process started from here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What contributors run first: no training, no server, no browser, and a test of every part.
_QUICK = (
    "_core/",
    "calibration/",
    "cli/test_checks.py",
    "cli/test_listing.py",
    "cli/test_parser.py",
    "data/test_pseudo.py",
    "data/test_file_summary.py",
    "evaluation/",
    "models/test_layers.py",
    "models/test_logistic_mixture.py",
    "models/test_noise.py",
    "monitor/test_bets.py",
    "monitor/test_pool.py",
    "networks/test_network.py",
    "scoring/test_conditional.py",
    "test_detector.py",
    "test_metrics.py",
    "test_protocols.py",
)


def pytest_collection_modifyitems(items):
    folder = Path(__file__).parent
    for item in items:
        if item.path.relative_to(folder).as_posix().startswith(_QUICK):
            item.add_marker("quick")


@pytest.fixture(scope="module", autouse=True)
def collected_garbage():
    """Collects what a module leaves, and spares the collector the rest: TensorFlow's graphs are millions of objects.

    Without it the last modules of a run take twice the time that they take alone.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def brief_pretext():
    """Lets `pretext`, a part of the default statistic, train for 20 steps where a test does not say how many.

    Its 2,000 take 20 seconds of CPU per detector, and only the tests of `pretext` itself claim what they are good for.
    """
    from tfbnood.statistics.pretext.statistic import Pretext

    with pytest.MonkeyPatch.context() as patch:
        defaults = {**Pretext.__init__.__kwdefaults__, "steps": 20}
        patch.setattr(Pretext.__init__, "__kwdefaults__", defaults)
        yield


@pytest.fixture(scope="session")
def digits():
    """Scikit-learn's 8×8 digits, which are always there."""
    from tfbnood.data import load

    return load("digits")


@pytest.fixture(scope="session")
def brought_model(digits):
    """A user's own Keras model with stock batch normalisation, fitted to the digits."""
    from brought import trained_brought_model

    return trained_brought_model(digits.train)


@pytest.fixture(scope="session")
def detector(brought_model, digits):
    """A calibrated detector of single images that is quick to fit and to trace."""
    from tfbnood import Detector

    made = Detector(brought_model, reference=digits.train, components=2)
    return made.calibrate(digits.calibration)
