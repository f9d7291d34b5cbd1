"""What `tfbnood fit` chooses, and says, before TensorFlow is imported."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tfbnood.errors import DataError
from tfbnood.fitting import make_plan
from tfbnood.fitting import plan as plans


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of 60 landscape photographs, by size alone."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.RandomState(0)
    for index in range(60):
        pixels = random.randint(0, 256, (120, 160, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(folder / f"{index}.jpg")
    return folder


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(plans.importlib.util, "find_spec", lambda name: object())


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(plans.importlib.util, "find_spec", lambda name: None)


def test_a_network_is_taken_where_one_is_installed(photos, installed):
    plan = make_plan(photos)
    assert (plan.network, plan.size, plan.preset) == ("efficientnet-lite0", 224, None)
    assert plan.image_shape == (168, 224, 3)
    assert plan.images == 60
    assert "60 images fitted to 168×224 pixels, colour." in plan.reasons
    assert "Nothing is trained." in plan.reasons[1]


def test_little_time_gets_the_smaller_size(photos, installed):
    plan = make_plan(photos, minutes=0.1)
    assert plan.size == 128
    assert "would take" in plan.reasons[1]


def test_small_images_are_not_enlarged_by_the_reader(installed, tmp_path):
    np.savez(tmp_path / "small.npz", images=np.full((50, 28, 28, 1), 9, np.uint8))
    plan = make_plan(tmp_path / "small.npz")
    assert (plan.size, plan.image_shape) == (128, (28, 28, 1))


def test_a_size_that_is_asked_for_is_taken(photos, installed):
    assert make_plan(photos, size=96).size == 96


def test_without_a_network_a_model_is_trained_and_the_better_way_is_named(photos, missing):
    plan = make_plan(photos, minutes=10)
    assert (plan.network, plan.preset) == (None, "cpu-colour")
    assert plan.image_shape == (24, 32, 3)
    assert 'pip install "tfbnood[networks]"' in plan.reasons[1]
    assert "about 7 of 10 minutes" in plan.reasons[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "resnet"}, "network must be auto, none, or one of"),
        ({"minutes": 0}, "minutes must be above 0"),
        ({"tolerate": ("rain",)}, "tolerate must hold names of changes"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(DataError, match=message):
        make_plan("digits", **settings)


def test_a_plan_needs_no_tensorflow(photos):
    code = (
        "import sys; from tfbnood.fitting.plan import make_plan;"
        f" make_plan({str(photos)!r}); assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
