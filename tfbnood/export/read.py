"""An exported version, loaded to score in this process: a server's answers without a server."""

import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.images import as_images
from tfbnood.errors import SavedDetectorError

__all__ = ["ExportedDetector"]


class ExportedDetector:
    """A version that `Detector.export` wrote, loaded with plain TensorFlow.

    Args:
        version: folder of the version, such as `savedmodels/mine/1`.

    Attributes:
        image_shape: `(height, width, channels)` of the images it accepts.
        fpr: the false-alarm rate behind `is_ood`.
        confidence: that of `is_ood_certified`; None if it was not requested.
        about: the detector's description of itself.

    Example:
        >>> served = ExportedDetector(detector.export(folder / "digits", fpr=0.05))
        >>> bool((served.predict(x.test[:5])["p_value"] == np.float32(detector.p_values(x.test[:5]))).all())
        True
    """

    def __init__(self, version: str | os.PathLike[str]):
        version = pathlib.Path(version)
        try:
            about = json.loads((version / "assets.extra" / "detector.json").read_text("utf-8"))
            height, width, channels = (int(side) for side in about["image_shape"])
            self.image_shape = (height, width, channels)
            self.fpr = float(about["fpr"])
            given = about.get("confidence")
            self.confidence = None if given is None else float(given)
            self.calibration_images = int(about["calibration_images"])
            self.statistic = str(about["statistic"])
            self.about: dict[str, Any] = dict(about["about"])
            # Kept: signatures live as long as the module.
            self._module = tf.saved_model.load(str(version))
            self._score = self._module.signatures["uint8"]
        except Exception as error:  # TensorFlow raises many kinds for a damaged model.
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise SavedDetectorError(
                f"{version} must be a version that tfbnood exported. Received: one that cannot be loaded ({reason})"
            ) from error

    def predict(self, images: Any) -> dict[str, np.ndarray]:
        """The outputs of the signature `uint8`, each `[n]`; images are an array or arrays of several.

        Only an export of a model with likelihoods has `bits_per_dim`, only one with a certified rate
        `is_ood_certified`, and only one within clusters `cluster`.
        """
        parts = [
            self._score(images=tf.constant(batch))
            for batch in self._batches([images] if isinstance(images, np.ndarray) else images)
        ]
        return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}

    def _batches(self, images: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for batch in images:
            yield as_images(batch, self.image_shape)
