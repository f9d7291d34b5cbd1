"""The stages `batches`, `batch_means` and `mmd`: how often tests of whole batches flag fresh, skewed and mixed ones."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

import numpy as np

from tfbnood import statistics
from tfbnood._core.sampling import sample_of, take
from tfbnood.calibration.batch_tests import BATCH_TESTS, batch_p_value
from tfbnood.calibration.conformal import calibrate, conformal_p_values
from tfbnood.protocols import Encoder
from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.mmd import mmd_p_value

__all__ = ["BatchTests", "measure_batch_means", "measure_batch_tests", "measure_mmd"]

BATCH, SHARE, LEVEL = 64, 0.25, 0.05
GROUPS = 200  # maximum groups of held-out images: the null of a statistic's mean

Found = dict[
    str, dict[str, float]
]  # by test and kind of batch, the share of batches with p ≤ LEVEL


class BatchTests(TypedDict):
    """How the batches were made, their number per kind, and the share that each test found."""

    images_a_batch: int
    share_of_outliers: float
    level: float
    batches: dict[str, int]
    found: Found


def measure_batch_tests(context: StudyContext) -> BatchTests:
    """Tests of the images' p-values by the default statistic."""
    scores = {
        kind: [context.ensemble.score(batch) for batch in batches]
        for kind, batches in _make_batches(context)
    }
    null = calibrate(context.ensemble, context.dataset.calibration).null_of_images(1)

    def p_value_by(test: str) -> Callable[[np.ndarray], float]:
        return lambda scores: batch_p_value(scores, null, test)

    return {
        "images_a_batch": BATCH,
        "share_of_outliers": SHARE,
        "level": LEVEL,
        "batches": {kind: len(of) for kind, of in scores.items()},
        "found": {
            f"{test} of ensemble": {
                kind: _compute_share_found(of, p_value_by(test)) for kind, of in scores.items()
            }
            for test in BATCH_TESTS
        },
    }


def measure_batch_means(context: StudyContext) -> Found:
    """The mean of statistics of whole batches, on the same batches."""
    held_out = context.dataset.calibration
    groups = [
        held_out[BATCH * index : BATCH * (index + 1)]
        for index in range(min(GROUPS, len(held_out) // BATCH))
    ]
    chosen = [("bn_delta", {"mixing": "moments"}), ("typicality", {})]
    if isinstance(context.model, Encoder):
        chosen.append(("latent_fit", {}))
    kinds = dict(_make_batches(context))
    found = {}
    for name, config in chosen:
        statistic = statistics.get(name, **config).fit(context.model, context.dataset.train)
        null = np.array([statistic.score(group).mean() for group in groups])

        def p_value(batch, statistic=statistic, null=null):
            return float(conformal_p_values(statistic.score(batch).mean(), null))

        found[f"mean of {name}"] = {
            kind: _compute_share_found(batches, p_value) for kind, batches in kinds.items()
        }
    return found


def measure_mmd(context: StudyContext) -> Found:
    """The usual drift test, on the same batches."""
    reference = sample_of(context.dataset.train, 2000)
    shares = {
        kind: _compute_share_found(batches, lambda batch: mmd_p_value(batch, reference))
        for kind, batches in _make_batches(context)
    }
    return {"MMD on pixels": shares}


def _make_batches(context: StudyContext) -> Iterator[tuple[str, list[np.ndarray]]]:
    """By kind, the same batches at every call: of inliers, of only one class, and with a share of outliers."""
    random, count = np.random.RandomState(0), context.batches
    inliers, labels = context.dataset.test, context.dataset.test_labels

    def choose(images: np.ndarray, count: int) -> np.ndarray:
        return images[random.permutation(len(images))[:count]]

    yield "fresh", [choose(inliers, BATCH) for _ in range(count)]
    if labels is not None:
        classes = [inliers[labels == label] for label in np.unique(labels)]
        classes = [images for images in classes if len(images) >= BATCH]
        if classes:
            skewed = [choose(classes[index % len(classes)], BATCH) for index in range(count)]
            yield "one class only", skewed
    bad = round(SHARE * BATCH)
    for name, images in context.outliers.items():
        images = take(images, context.images_per_set, 0)
        mixed = [(choose(images, bad), choose(inliers, BATCH - bad)) for _ in range(count)]
        yield name, [np.concatenate(parts) for parts in mixed]


def _compute_share_found(
    batches: Sequence[np.ndarray], p_value: Callable[[np.ndarray], float]
) -> float:
    """The share of batches with p ≤ LEVEL."""
    return float(np.mean([p_value(batch) <= LEVEL for batch in batches]))
