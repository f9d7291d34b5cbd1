"""Reads the held-out scores of a saved detector without its model, and so without TensorFlow."""

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from tfbnood._core.files import file_sha256, read_whole, restore_folder
from tfbnood.errors import NotCalibratedError, SavedDetectorError

__all__ = ["HeldOut", "read_held_out"]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """What a stream is compared with.

    Attributes:
        name: of the detector, for display.
        scores: float64 `[n]`, sorted (within clusters), of held-out in-distribution images.
        image_shape: `(height, width, channels)` of the images that were scored.
        statistic: its name.
        alone: whether images must be scored one by one, since the statistic is one of whole batches.
        groups: int `[n]`, the cluster of each, for a detector calibrated within clusters; an image is then compared
            only with those of its cluster, and a change of the clusters' shares does not count.

    Example:
        >>> HeldOut("mine", np.arange(99.0), (8, 8, 1), "pixel_pca").sha256[:8]
        '3812b7bd'
    """

    name: str
    scores: np.ndarray
    image_shape: tuple[int, int, int]
    statistic: str
    alone: bool = False
    groups: np.ndarray | None = None

    @property
    def sha256(self) -> str:
        """Digest of the scores: a watch only resumes with the same ones."""
        digest = hashlib.sha256(np.ascontiguousarray(self.scores, np.float64).tobytes())
        if self.groups is not None:
            digest.update(np.ascontiguousarray(self.groups, np.int64).tobytes())
        return digest.hexdigest()

    @property
    def smallest_rate(self) -> float:
        """The smallest false-alarm rate that holds in every cluster."""
        count = (
            len(self.scores)
            if self.groups is None
            else np.unique(self.groups, return_counts=True)[1].min()
        )
        return float(1 / (count + 1))

    def p_values(self, scores: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
        """`(1 + #{held-out ≥ score}) / (n + 1)`, `[m]`, within clusters if there are any.

        Example:
            >>> HeldOut("mine", np.arange(99.0), (8, 8, 1), "pixel_pca").p_values(np.array([50.0, 99.0]), None)
            array([0.5 , 0.01])
        """
        if self.groups is None or groups is None:
            at_least = len(self.scores) - np.searchsorted(self.scores, scores, side="left")
            return (1 + at_least) / (len(self.scores) + 1)
        found = np.ones(len(scores))
        for group in np.unique(groups):
            null, rows = self.scores[self.groups == group], groups == group
            at_least = len(null) - np.searchsorted(null, scores[rows], side="left")
            found[rows] = (1 + at_least) / (len(null) + 1)
        return found


def read_held_out(folder: pathlib.Path, name: str) -> HeldOut:
    """Reads the calibration scores in a detector's folder; `Detector.load` checks the rest.

    Raises:
        NotCalibratedError: if the detector has none.
        SavedDetectorError: if the folder is damaged.

    Example:
        >>> detector.save(folder / "mine")
        >>> found = read_held_out(folder / "mine", "mine")
        >>> len(found.scores), found.image_shape, found.statistic
        (300, (8, 8, 1), 'pixel_pca')
    """
    restore_folder(folder)
    return read_whole(folder, lambda: _read(folder, name))


def _read(folder: pathlib.Path, name: str) -> HeldOut:
    try:
        about: dict[str, Any] = json.loads((folder / "detector.json").read_text("utf-8"))
        calibrated, digest = about["calibrated"], about["sha256"]["arrays.npz"]
        if calibrated and file_sha256(folder / "arrays.npz") != digest:
            raise ValueError("arrays.npz was truncated or edited: its hash does not match")
        height, width, channels = (int(side) for side in about["image_shape"])
        scores, alone, groups = np.empty(0), False, None
        if calibrated:
            with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
                scores = np.sort(np.asarray(arrays["image_scores/1"], np.float64))
                alone = sum(one.startswith("image_scores/") for one in arrays.files) > 1
                if about.get("clusters") is not None:
                    scores, groups = _within(arrays)
            if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
                raise ValueError("calibration scores must be finite numbers")
    except Exception as error:  # JSON, zip and NumPy raise many kinds.
        reason = (str(error).splitlines() or [""])[0][:200]
        raise SavedDetectorError(
            f"{folder} cannot be loaded: it is damaged ({type(error).__name__}: {reason})"
        ) from None
    if not calibrated:
        raise NotCalibratedError(
            "WHAT must be a calibrated detector; call calibrate() with held-out in-distribution images and save it "
            f"again. Received: {folder}"
        )
    return HeldOut(name, scores, (height, width, channels), str(about["statistic"]), alone, groups)


def _within(arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    """Held-out scores and their clusters, sorted within each."""
    count = sum(name.startswith("within/") for name in arrays.files)
    nulls = [np.sort(np.asarray(arrays[f"within/{index}"], np.float64)) for index in range(count)]
    return np.concatenate(nulls), np.repeat(np.arange(count), [len(null) for null in nulls])
