"""Pages of a detector's results, as the commands `fit`, `score` and `evaluate` write them."""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood._core.provenance import versions
from tfbnood.calibration.batch_tests import default_batch_test
from tfbnood.calibration.whole_batch import assess_batch
from tfbnood.detector import Detection, Detector
from tfbnood.evaluation.result import Evaluation
from tfbnood.report.detector import detector_page
from tfbnood.report.document import write_page
from tfbnood.report.evaluation import RocCurve, evaluation_page
from tfbnood.report.parts import Example
from tfbnood.report.score import most_suspicious, score_page
from tfbnood.statistics.ensemble import Ensemble

__all__ = [
    "describe_batch",
    "make_card",
    "write_detector_report",
    "write_evaluation_report",
    "write_score_report",
]

_EXPLAINED = 60  # images with a heat map: each takes several passes
_WHY = (
    "How unusual each part of the score is, as a normal score: 0 is ordinary; 1 in 40 reference images exceeds 2, "
    "1 in 1,000 exceeds 3."
)
_LIMITS = (
    "The detector only knows the kind of images it was fitted to. Images that were processed differently, such as JPEG "
    "instead of PNG or another size, may be flagged for that alone."
)


def make_card(detector: Detector) -> dict[str, Any]:
    """The facts about a detector, in words."""
    about, calibration = detector.about, detector.calibration
    runs = about.get("runs") or [{}]
    height, width, channels = detector.image_shape
    card = {
        "data": about.get("data") or runs[0].get("data") or "not stated",
        "made": about.get("date") or "not stated",
        "stands on": _describe_model(detector),
        "statistic": detector.statistic.name,
        "images": f"{height}×{width} pixels, {'grey' if channels == 1 else 'colour'}",
        "reference images": about.get("train_images") or runs[0].get("train_images"),
        "calibration images": 0 if calibration is None else len(calibration.null_of_images(1)),
        "tolerates": ", ".join(detector.tolerate) or "nothing: every change may raise alarms",
        "limits": _LIMITS,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    return {key: value for key, value in card.items() if value is not None}


def describe_batch(found: Detection, detector: Detector) -> tuple[float, str] | None:
    """The p-value of all images together and the test used; None for a batch statistic or a single image."""
    calibration, scores = detector.calibration, found.score
    if detector.statistic.scope != "image" or len(scores) < 2 or calibration is None:
        return None
    method = default_batch_test("image", len(scores))
    p_value, _, _ = assess_batch(
        detector.statistic, None, scores, found.cluster, calibration, method
    )
    return p_value, method.replace("_", " ")


def write_score_report(
    path: str | os.PathLike[str],
    detector: Detector,
    found: Detection,
    *,
    names: Sequence[str],
    read: Callable[[int], np.ndarray],
    fpr: float,
    fdr: float | None = None,
    converted: Sequence[str] = (),
    progress: bool = False,
) -> None:
    """Writes the page of scored images, which shows where and why the most suspicious ones are unusual.

    Args:
        path: of the HTML file.
        detector: the one that scored them.
        found: its result.
        names: of the images.
        read: from row to image, of the detector's shape.
        fpr: initial false-alarm rate of the page.
        fdr: instead, initial false-discovery rate.
        converted: sentences about the files.
        progress: show bars on a terminal.
    """
    calibration = detector.calibration
    assert calibration is not None
    rows = most_suspicious(found.p_value, found.score, _EXPLAINED).tolist()
    where, why = _explain(detector, rows, read)
    batch = describe_batch(found, detector)
    # Within clusters, the slider starts where an image of any cluster can be flagged.
    alone = calibration.within is None
    compared = len(calibration.null_of_images(len(found))) if alone else calibration.fewest
    page = score_page(
        names,
        read,
        found.score,
        found.p_value,
        calibration_images=compared,
        fpr=fpr,
        fdr=fdr,
        batch_p_value=None if batch is None else batch[0],
        batch_words="" if batch is None else batch[1],
        where=where,
        why=why,
        why_words=_WHY if why else "",
        converted=converted,
        card={**make_card(detector), "scored": datetime.date.today().isoformat()},
        progress=progress,
    )
    write_page(path, page)


def write_detector_report(
    path: str | os.PathLike[str],
    detector: Detector,
    images: np.ndarray,
    *,
    name: str,
    notes: Sequence[str] = (),
) -> None:
    """Writes the page about a detector itself.

    Args:
        path: of the HTML file.
        detector: calibrated.
        images: held-out images, of which the most and the least typical are shown.
        name: the detector's name in commands.
        notes: sentences above the card.
    """
    assert detector.calibration is not None
    shown = images[:500]
    scores = detector.score(shown)
    order = np.argsort(scores)

    def examples(rows: np.ndarray) -> list[Example]:
        return [
            Example(f"image {row}", shown[row], note=f"score {scores[row]:.4g}") for row in rows
        ]

    page = detector_page(
        make_card(detector),
        detector.calibration.null_of_images(1),
        typical=examples(order[:8]),
        untypical=examples(order[::-1][:8]),
        commands=(
            ("Score a folder", f"tfbnood score {name} new_images/ --out report.html"),
            ("Export it for TF Serving", f"tfbnood export {name} --out models/mine"),
            ("Serve it", "tfbnood serve models/mine"),
        ),
        notes=notes,
        title=name,
    )
    write_page(path, page)


def write_evaluation_report(
    path: str | os.PathLike[str],
    detector: Detector,
    result: Evaluation,
    inliers: np.ndarray,
    outliers: Mapping[str, np.ndarray],
    *,
    n: int = 500,
) -> None:
    """Writes the page of an evaluation: ROC curves, and the images that were missed or flagged by mistake.

    Args:
        path: of the HTML file.
        detector: the evaluated one.
        result: of `tfbnood.evaluate`.
        inliers: test images.
        outliers: by name.
        n: maximum number of images per set, for curves and examples.
    """
    n = min(n, 500)
    usual, curves, misses = detector.score(inliers[:n]), [], []
    for name, images in outliers.items():
        scores = detector.score(images[:n])
        is_ood = np.repeat([False, True], [len(usual), len(scores)])
        both = np.concatenate([usual, scores])
        curves.append(RocCurve(name, detector.statistic.name, is_ood, both))
        misses += [
            Example(f"{name} {row}", images[row], note=f"score {scores[row]:.4g}")
            for row in np.argsort(scores)[:8]
        ]
    false_alarms = [
        Example(f"inlier {row}", inliers[row], note=f"score {usual[row]:.4g}")
        for row in np.argsort(-usual)[:8]
    ]
    page = evaluation_page(
        result,
        curves=curves,
        misses=misses,
        false_alarms=false_alarms,
        card=make_card(detector),
    )
    write_page(path, page)


def _explain(
    detector: Detector, rows: list[int], read: Callable[[int], np.ndarray]
) -> tuple[Mapping[int, np.ndarray], Mapping[int, list[tuple[str, float]]]]:
    """Maps and members' normal scores of some rows, by row."""
    statistic = detector.statistic
    if statistic.scope != "image" or not rows:
        return {}, {}
    images = np.stack([read(row) for row in rows])
    why: dict[int, list[tuple[str, float]]] = {}
    if isinstance(statistic, Ensemble):
        titles, values = statistic.explain_members(images)
        why = {
            row: [(title, float(value)) for title, value in zip(titles, of, strict=True)]
            for row, of in zip(rows, values, strict=True)
        }
    return dict(zip(rows, detector.explain(images), strict=True)), why


def _describe_model(detector: Detector) -> str:
    network, model = detector.about.get("network"), detector.model
    if network:
        return f"{network['name']} at {network['size']} pixels, frozen, trained on {network['weights']}"
    if model is None:
        return "pixels alone"
    return f"{type(model).__name__} {getattr(model, 'name', '')}".strip()
