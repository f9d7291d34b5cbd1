"""A calibrated detector as a SavedModel version that TF Serving loads: `BASE/<next integer>/`.

Signatures, every output of shape `[n]`:

- `serving_default` (`images` float32) and `uint8` (`images` uint8) → `score`, `p_value`, `is_ood`, `valid`: every row
  on its own, so that the answer is the same alone, padded, or merged with other clients' rows; of a model with
  likelihoods also `bits_per_dim`, with `confidence` `is_ood_certified`, and of a calibration within clusters `cluster`;
- `encoded` (`image_bytes`, PNG or JPEG) → the same;
- `log_prob` (`images`), of a model with likelihoods → `log_prob`, `bits_per_dim`, `valid`, in evaluation mode;
- `score_batch` (`images`) → `delta`, `p_value`, `is_ood`, `batch_p_value`, `valid`: the paper's Δ with the request as
  the test set; of a network without likelihoods `shift` instead of `delta`, how far the moments of the request have
  moved; needs server-side batching to be off.

A bad row does not raise an error, which would fail other clients' rows, but has `valid` False, `is_ood` True and a
p-value of 0.
"""

import json
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfbnood._core.files import file_sha256, publish_version, staging_folder
from tfbnood._core.images import as_images
from tfbnood._core.provenance import versions
from tfbnood.calibration.conformal import Calibration
from tfbnood.calibration.passes import alarm_levels, thresholds
from tfbnood.calibration.rates import default_false_alarm_rate
from tfbnood.errors import NotCalibratedError, StatisticError
from tfbnood.export.batch_score import BatchScore, delta_of, shift_of
from tfbnood.export.signatures import Served
from tfbnood.export.warmup import write_warmup
from tfbnood.protocols import Likelihood
from tfbnood.scoring.rules import batch_normalizations
from tfbnood.statistics.base import EvidenceStatistic, Statistic

__all__ = ["FORMAT", "check_exportable", "describe", "describe_alarms", "export"]

FORMAT = 1


def export(
    base: str | os.PathLike,
    *,
    model: Any,
    statistic: Statistic,
    calibration: Calibration | None,
    about: dict[str, Any],
    tolerate: tuple[str, ...] = (),
    fpr: float | None = None,
    confidence: float | None = None,
    held_out: Any = None,
    embed: Any = None,
    progress: bool = False,
) -> pathlib.Path:
    """Writes the next version of a model base, atomically, and returns its folder.

    Args:
        base: the model base, e.g. `savedmodels/fashion`; created if missing.
        model: of the detector; frozen, its weights are constants of the export.
        statistic: fitted, of single images in TensorFlow operations, such as "auto".
        calibration: of the statistic.
        about: the detector's description of itself.
        tolerate: names of changes that raise no more alarms than the rate allows; for information.
        fpr: false-alarm rate behind `is_ood`. Defaults to 0.01, or to more with few calibration images.
        confidence: if given, such as 0.95, adds `is_ood_certified` for every image: alarms whose rate is at most `fpr`
            with this confidence over the draw of the calibration images, not only on average.
        held_out: in-distribution images that neither model nor statistic has seen, to calibrate `score_batch` on;
            without them, or without batch normalisation, that signature is left out.
        embed: reference images to store in the model, so that `score_batch` mixes samples as the paper does. Defaults
            to none: `score_batch` then mixes moments, and the export contains no images.
        progress: show a bar on a terminal.
    """
    statistic, null, fpr = check_exportable(statistic, calibration, fpr)
    assert calibration is not None
    certified = None
    if confidence is not None:
        certified = alarm_levels(calibration, 1, fpr, confidence=confidence)[0]
    batch_score = None
    bank = None if embed is None else as_images(embed, statistic.image_shape_, name="embed")
    if held_out is not None and batch_normalizations(model):
        images = as_images(held_out, statistic.image_shape_, name="held_out")
        group = (
            delta_of(model, bank, images) if isinstance(model, Likelihood) else shift_of(statistic)
        )
        if group is not None:
            batch_score = BatchScore(group, images, progress=progress)
    served = Served(
        model,
        statistic,
        null,
        fpr,
        batch_score,
        within=calibration.within,
        certified_levels=certified,
    )
    base = pathlib.Path(base)
    with staging_folder(base) as temporary:
        tf.saved_model.save(served, str(temporary), signatures=served.signatures())
        _drop_shapes(temporary)
        about = {**about, **({"tolerate": list(tolerate)} if tolerate else {})}
        sizes = None if batch_score is None else list(batch_score.sizes)
        embedded = 0 if batch_score is None or bank is None else len(bank)
        description = describe(statistic, null, fpr, sizes, embedded, about)
        description |= describe_alarms(calibration, fpr, confidence)
        description["outputs"] = list(served.outputs)
        _write_extras(temporary, base.name, description)
        return publish_version(temporary, base)


def check_exportable(
    statistic: Statistic, calibration: Calibration | None, fpr: float | None
) -> tuple[EvidenceStatistic, np.ndarray, float]:
    """The statistic, its sorted calibration scores and the false-alarm rate, if they can be part of a graph."""
    if calibration is None:
        raise NotCalibratedError(
            "call calibrate() with held-out in-distribution images before export()"
        )
    if not isinstance(statistic, EvidenceStatistic):
        raise StatisticError(
            'the statistic must score single images in TensorFlow operations to be exported, as "auto" does. '
            f"Received: {statistic.name}"
        )
    null = calibration.null_of_images(1)
    fpr = default_false_alarm_rate(calibration.fewest) if fpr is None else fpr
    alarm_levels(calibration, 1, fpr)  # Refuses a rate that the scores cannot resolve.
    return statistic, null, fpr


def describe(
    statistic: Statistic,
    null: np.ndarray,
    fpr: float,
    batch_sizes: list[int] | None,
    embedded: int,
    about: dict[str, Any],
) -> dict[str, Any]:
    """The description of an export, as JSON-safe values."""
    return {
        "format": FORMAT,
        "statistic": statistic.name,
        "config": statistic.get_config(),
        "image_shape": list(statistic.image_shape_),
        "fpr": fpr,
        "threshold": float(np.quantile(null, 1 - fpr, method="higher")),
        "calibration_images": len(null),
        "batch_group_sizes": batch_sizes,
        "embedded_reference_images": embedded,
        "about": about,
        "versions": versions(),
    }


def describe_alarms(
    calibration: Calibration, fpr: float, confidence: float | None = None
) -> dict[str, Any]:
    """The rules for alarms beyond a single threshold, as JSON-safe values; often empty."""
    found: dict[str, Any] = {}
    if (within := calibration.within) is not None:
        found["clusters"] = {
            "by": within.clusters.kind,
            "calibration_images": [len(null) for null in within.nulls],
            "thresholds": within.thresholds(within.alarm_levels(fpr)[0]).tolist(),
        }
    if confidence is not None:
        levels, _ = alarm_levels(calibration, 1, fpr, confidence=confidence)
        found["confidence"] = confidence
        found["certified_thresholds"] = thresholds(calibration, 1, levels).tolist()
    return found


def _drop_shapes(folder: pathlib.Path) -> None:
    """Removes the shapes of every operation's outputs, a tenth of a graph without its weights: loading infers them."""
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.attr.pop("_output_shapes", None)
    path.write_bytes(saved.SerializeToString(deterministic=True))
    # It has checksums of the file before; the description has those of all files.
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def _write_extras(folder: pathlib.Path, name: str, about: dict[str, Any]) -> None:
    """Writes a warm-up request, and a description of the model with a hash of every file."""
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
