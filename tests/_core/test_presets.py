"""Images far larger than a preset is meant for are announced or refused, with the reason and the cure."""

import subprocess
import sys

import pytest

from tfbnood._core.presets import PRESETS, check_size, default_preset, is_too_large
from tfbnood.errors import TfbnoodError

CURE = '`tfbnood.Detector(tfbnood.networks.load("efficientnet-lite0"), reference=images)`'
ON_CPU = ["cpu-grey", "cpu-colour", "tiny"]
PAPER = ["paper-grey", "paper-colour"]
# What each preset is meant for, by hand.
SIDES = {"cpu-grey": 28, "cpu-colour": 32, "tiny": 28, "paper-grey": 28, "paper-colour": 32}

pytestmark = pytest.mark.parametrize("model", PRESETS)


def shape_of(preset, times):
    """An image of so many times the pixels that the preset is meant for: as high, and wider."""
    height = SIDES[preset]
    width = height * times
    assert width == int(width)
    return (height, int(width), 3)


@pytest.mark.parametrize("preset", SIDES)
@pytest.mark.parametrize("side", [4, 8, 16, 28, 32])
def test_up_to_32_pixels_a_side_nothing_is_said(model, preset, side):
    for channels in (1, 3):
        assert check_size(model, preset, (side, side, channels)) is None


@pytest.mark.parametrize("preset", SIDES)
def test_one_and_a_half_times_the_pixels_are_fine_and_one_row_more_is_not(model, preset):
    height, width, channels = shape_of(preset, 1.5)
    assert check_size(model, preset, (height, width, channels)) is None
    assert "should keep to" in check_size(model, preset, (height + 1, width, channels))


@pytest.mark.parametrize("preset", ON_CPU)
def test_four_times_the_pixels_are_warned_of_and_one_row_more_is_refused(model, preset):
    height, width, channels = shape_of(preset, 4)
    assert "should keep to" in check_size(model, preset, (height, width, channels))
    assert not is_too_large(model, preset, (height, width, channels))
    assert is_too_large(model, preset, (height + 1, width, channels))
    with pytest.raises(TfbnoodError, match="must keep to 4 times"):
        check_size(model, preset, (height + 1, width, channels))


@pytest.mark.parametrize("preset", ON_CPU)
def test_who_must_not_be_refused_is_warned_above_four_times_too(model, preset):
    assert "about 100 times" in check_size(model, preset, shape_of(preset, 100), refuse=False)


@pytest.mark.parametrize("preset", PAPER)
def test_presets_for_accelerators_warn_and_never_refuse(model, preset):
    assert not is_too_large(model, preset, (1024, 1024, 3))
    assert "should keep to" in check_size(model, preset, (1024, 1024, 3))


def test_a_warning_names_argument_rule_cost_cure_and_size(model):
    assert check_size(model, "cpu-colour", (64, 64, 3)) == (
        "image_shape should keep to the 32×32 pixels that the preset cpu-colour is meant for: a training step takes "
        "about 4 times as long; resize the images to 32×32, or use a network, which takes any size and needs no "
        f"training, as in {CURE}. Received: 64×64 pixels"
    )


def test_a_refusal_names_argument_rule_cost_cure_and_size_in_one_sentence(model):
    with pytest.raises(TfbnoodError) as refused:
        check_size(model, "cpu-grey", (96, 64, 1), argument="dataset")
    assert str(refused.value) == (
        "dataset must keep to 4 times the 28×28 pixels that the preset cpu-grey is meant for: a training step takes "
        "about 7.8 times as long; resize the images to 28×28, or use a network, which takes any size and needs no "
        f"training, as in {CURE}, or pass any_size=True. Received: 96×64 pixels"
    )


@pytest.mark.parametrize("side", [48, 64, 96, 224, 1000])
def test_a_step_is_said_to_take_as_many_times_as_long_as_there_are_pixels(model, side):
    text = check_size(model, "cpu-colour", (side, side, 3), refuse=False)
    said = float(text.split("takes about ")[1].split(" times")[0])
    assert said == pytest.approx((side / 32) ** 2, rel=0.03)


def test_an_unknown_preset_is_refused_with_the_known_ones(model):
    with pytest.raises(TfbnoodError, match=r"preset must be one of paper-grey, .*Received: 'huge'"):
        check_size(model, "huge", (8, 8, 1))


@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 16, 1), (28, 28, 1), (8, 8, 3), (32, 32, 3)])
def test_the_default_preset_takes_such_images_in_silence(model, shape):
    assert check_size(model, default_preset(*shape), shape) is None


def test_sizes_are_compared_without_tensorflow(model):
    code = f"""
import sys
from tfbnood._core.presets import check_size
check_size({model!r}, "cpu-colour", (48, 48, 3))
assert not {{"tensorflow", "keras", "numpy"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
