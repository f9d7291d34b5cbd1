"""A calibrated detector as a SavedModel version that TF Serving loads: `BASE/<next integer>/`.

Signatures, every output of shape `[n]`:

- `serving_default` (`images` float32) and `uint8` (`images` uint8) → `score`, `p_value`, `is_ood`, `bits_per_dim`,
  `valid`: every row on its own, so that the answer is the same alone, padded, or merged with other clients' rows;
- `encoded` (`image_bytes`, PNG or JPEG) → the same;
- `log_prob` (`images`) → `log_prob`, `bits_per_dim`, `valid`, in evaluation mode;
- `score_batch` (`images`) → `delta`, `p_value`, `is_ood`, `batch_p_value`, `valid`: the paper's Δ with the request as
  the test set; needs server-side batching to be off.

A bad row is no error, which would fail the rows of others: it has `valid` False, `is_ood` True and a p-value of 0.
"""

import json
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.files import file_sha256, publish_version, staging_folder
from tfbnood._core.images import as_images
from tfbnood._core.provenance import versions
from tfbnood.calibration.conformal import check_false_alarm_rate
from tfbnood.detector import Detector
from tfbnood.errors import NotCalibratedError, StatisticError
from tfbnood.export.batch_delta import BatchDelta
from tfbnood.export.signatures import Served
from tfbnood.export.warmup import write_warmup
from tfbnood.scoring.moments import batch_normalizations
from tfbnood.statistics.base import EvidenceStatistic

__all__ = ["FORMAT", "export"]

FORMAT = 1


def export(
    detector: Detector,
    base: str | os.PathLike,
    *,
    fpr: float = 0.01,
    held_out: Any = None,
    embed: Any = None,
    progress: bool = False,
) -> pathlib.Path:
    """Writes the next version of a model base, atomically, and returns its folder.

    Args:
        detector: calibrated, with a statistic of single images in TensorFlow operations, such as "auto".
        base: the model base, e.g. `savedmodels/fashion`; made if it is not there.
        fpr: false-alarm rate behind `is_ood`.
        held_out: in-distribution images that neither model nor statistic has seen, to calibrate `score_batch` on;
            without them, or without batch normalisation, that signature is left out.
        embed: reference images to put into the model, so that `score_batch` mixes samples as the paper does. Defaults
            to none, and mixed moments: then no image is inside the export.
        progress: show a bar on a terminal.
    """
    calibration, scorer = detector.calibration, detector.statistic
    if calibration is None:
        raise NotCalibratedError(
            "call calibrate() with held-out in-distribution images before export()"
        )
    if not isinstance(scorer, EvidenceStatistic):
        raise StatisticError(
            'the statistic must score single images in TensorFlow operations to be exported, as "auto" does. '
            f"Received: {scorer.name}"
        )
    null = calibration.null_of_images(1)
    check_false_alarm_rate(fpr, null)
    delta = None
    if held_out is not None and batch_normalizations(detector.model):
        bank = None if embed is None else as_images(embed, detector.image_shape, name="embed")
        delta = BatchDelta(detector.model, detector.image_shape, bank)
        images = as_images(held_out, detector.image_shape, name="held_out")
        delta.calibrate(images, progress)
    served = Served(detector.model, scorer, null, fpr, delta)
    base = pathlib.Path(base)
    with staging_folder(base) as temporary:
        tf.saved_model.save(served, str(temporary), signatures=served.signatures())
        _write_extras(temporary, base.name, _about(detector, null, fpr, delta))
        return publish_version(temporary, base)


def _about(
    detector: Detector, null: np.ndarray, fpr: float, delta: BatchDelta | None
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "statistic": detector.statistic.name,
        "config": detector.statistic.get_config(),
        "image_shape": list(detector.image_shape),
        "fpr": fpr,
        "threshold": float(np.quantile(null, 1 - fpr, method="higher")),
        "calibration_images": len(null),
        "batch_group_sizes": None if delta is None else list(delta.sizes),
        "embedded_reference_images": 0
        if delta is None or delta._bank is None
        else len(delta._bank),
        "about": detector.about,
        "versions": versions(),
    }


def _write_extras(folder: pathlib.Path, name: str, about: dict[str, Any]) -> None:
    """A warm-up request, and what the model is, with a hash of every file."""
    hashes = {
        str(path.relative_to(folder)): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    extra = folder / "assets.extra"
    extra.mkdir()
    zeros = np.zeros((1, *about["image_shape"]), np.float32)
    write_warmup(extra / "tf_serving_warmup_requests", name, {"serving_default": {"images": zeros}})
    content = {**about, "sha256": hashes}
    text = json.dumps(content, default=str, indent=2, ensure_ascii=False)
    (extra / "detector.json").write_text(f"{text}\n", "utf-8")
