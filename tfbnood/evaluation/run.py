"""How well a detector works: metrics by set, statistic and contamination, and likelihoods in both modes."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.batching import map_batches
from tfbnood._core.checks import check_integer
from tfbnood._core.progress import showing
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import halves, take
from tfbnood._core.stream import sample_images
from tfbnood._core.units import bits_per_dim
from tfbnood.detector import Detector
from tfbnood.errors import DataError, StatisticError
from tfbnood.evaluation.protocol import (
    MOST,
    checked_outliers,
    checked_shares,
    pool_rows,
    pool_scores,
    scores_apart,
)
from tfbnood.evaluation.result import Bits, Evaluation, Row
from tfbnood.metrics import estimates
from tfbnood.networks.network import as_model
from tfbnood.protocols import FeatureExtractor, Likelihood
from tfbnood.scoring.frozen import frozen_log_prob
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.registry import get

if TYPE_CHECKING:
    from tfbnood._core.images import Images
    from tfbnood.estimator import Model

__all__ = ["evaluate"]


def evaluate(
    detector_or_model: "Detector | Model",
    inliers: "Images",
    outliers: "Mapping[str, Images]",
    *,
    statistics: Iterable[str | Statistic] | str | Statistic | None = None,
    contamination: Iterable[float] | float = (1.0,),
    n: int | None = None,
    seed: int = 0,
    reference: "Images | None" = None,
    progress: bool | None = None,
) -> Evaluation:
    """Measures how well statistics separate outliers from inliers.

    At contamination 1, the paper's protocol, inliers are scored as one pool and outliers as another. Below 1 both
    are in one pool, `tfbnood.data.mix(inliers, outliers, contamination, seed=seed)`, as in a user's stream.

    Args:
        detector_or_model: a `Detector`, a model with `log_prob(images, training=…)`, or any Keras network.
        inliers: held-out in-distribution images, `[m, height, width, channels]` in 0–255. From a data set or generator,
            here and below, a random sample is read in constant memory: at most n, 10,000 images and 1 GB per set.
        outliers: out-of-distribution images by name, `{"mnist": images}`.
        statistics: names or `Statistic` objects. Defaults to the detector's own; for a bare model to "bn_delta" and
            "log_prob", for a network to "auto". A fitted object is used as it is, and so is the detector's own under
            its name.
        contamination: shares of outliers, in (0, 1].
        n: maximum number of images per set, chosen at random. Defaults to all.
        seed: of every random choice.
        reference: in-distribution images to fit statistics to. Defaults to the detector's; if it has none, a random
            half of the inliers is used and left out of the test.
        progress: show a bar, on a terminal or in a notebook: True at once, False never. Defaults to one after two
            seconds.

    Raises:
        StatisticError: if a statistic does not fit the model. None is dropped silently.

    Example:
        >>> result = tfbnood.evaluate(detector, x.test, {"inverted": 255 - x.test}, contamination=(1.0, 0.2))
        >>> result.auroc("inverted", "pixel_pca", contamination=0.2) > 0.9
        True
    """
    detector = detector_or_model if isinstance(detector_or_model, Detector) else None
    model = detector_or_model if detector is None else detector.model
    shape = getattr(detector_or_model, "image_shape", None)
    shares = checked_shares(contamination)
    if n is not None:
        check_integer("n", n, least=1)
    check_integer("seed", seed, least=0)
    with showing(progress):
        # Twice n inliers of a stream: half of them may become the reference.
        most = MOST if n is None else 2 * n
        inliers = sample_images(inliers, shape, most=most, seed=seed, name="inliers")
        sets = checked_outliers(outliers, inliers.shape[1:], most=n or MOST, seed=seed)
        if reference is not None:
            reference = sample_images(reference, inliers.shape[1:], seed=seed, name="reference")
    model = as_model(model, inliers.shape[1:])
    chosen = _choose(detector, model, statistics)
    reference, inliers, source = _choose_reference(detector, chosen, reference, inliers, seed)
    inliers = take(inliers, n, seed)
    sets = {name: take(images, n, seed) for name, images in sets.items()}
    # Drawn before anything is fitted or scored, to fail at once if there are too few images for a share.
    pools = {
        (name, share): pool_rows(len(inliers), len(images), share, seed)
        for name, images in sets.items()
        for share in shares
    }
    # A copy: the caller's object stays unfitted.
    fitted = [
        one if _is_fitted(one) else copy.copy(one).fit(model, reference, progress=progress)
        for one in chosen
    ]
    labelled = dict(zip(_make_labels(fitted), fitted, strict=True))
    # A statistic fitted elsewhere may belong to another model.
    own = {
        label
        for (label, one), before in zip(labelled.items(), chosen, strict=True)
        if one is not before or (detector is not None and one is detector.statistic)
    }
    whole = {"inliers": inliers, **sets}
    apart, log_probs = scores_apart(labelled, own, whole, 1.0 in shares, progress)
    scores = {
        label: pool_scores(statistic, apart.get(label, {}), inliers, sets, pools, progress)
        for label, statistic in labelled.items()
    }
    rows = []
    for (name, share), drawn in pools.items():
        is_ood = drawn >= len(inliers)
        count = int(is_ood.sum())
        for label in labelled:
            found = estimates(is_ood, scores[label][name, share], seed=seed)
            rows.append(Row(name, share, label, len(is_ood) - count, count, **found))
    return Evaluation(
        rows=tuple(rows),
        bits_per_dim=tuple(_measure_bits(model, whole, log_probs, seed, progress)),
        statistics={
            label: {"name": one.name, "scope": one.scope, "config": one.get_config()}
            for label, one in labelled.items()
        },
        n=n,
        seed=seed,
        reference=source,
        provenance={
            "model": type(model).__name__,
            "detector": {} if detector is None else detector.about,
            "image_shape": inliers.shape[1:],
            "versions": versions(),
            "machine": machine(),
        },
    )


def _choose(detector: Detector | None, model: Any, statistics: Any) -> list[Statistic]:
    if statistics is None and detector is not None:
        statistics = detector.statistic
    elif statistics is None:
        is_network = isinstance(model, FeatureExtractor)
        statistics = "auto" if is_network else ("bn_delta", "log_prob")
    if isinstance(statistics, str | Statistic):
        statistics = (statistics,)
    own = {} if detector is None else {detector.statistic.name: detector.statistic}
    chosen = [get(own.get(one, one) if isinstance(one, str) else one) for one in statistics]
    if not chosen:
        raise StatisticError("statistics must hold at least one. Received: none")
    return chosen


def _choose_reference(
    detector: Detector | None,
    chosen: list[Statistic],
    reference: np.ndarray | None,
    inliers: np.ndarray,
    seed: int,
) -> tuple[Any, np.ndarray, str]:
    """The images to fit the statistics to, the inliers that are left to test with, and where the former come from."""
    if all(map(_is_fitted, chosen)):
        if reference is not None:
            raise DataError(
                "reference must be left out if every statistic is already fitted: it would not be used. "
                f"Received: fitted {', '.join(statistic.name for statistic in chosen)}"
            )
        return None, inliers, "none needed, the statistics were already fitted"
    if reference is not None:
        source = "the reference argument"
    elif detector is not None and detector.reference is not None:
        reference, source = detector.reference, "the detector's"
    else:
        reference, inliers = halves(inliers, seed)
        source = "a random half of the inliers, left out of the test"
    return reference, inliers, f"{source} ({len(reference)} images)"


def _is_fitted(statistic: Statistic) -> bool:
    return hasattr(statistic, "image_shape_")


def _make_labels(chosen: list[Statistic]) -> list[str]:
    """Names; if two are equal, with the settings that distinguish them."""
    labels = []
    for one in chosen:
        same = [other.get_config() for other in chosen if other.name == one.name]
        settings = [
            f"{key}={value}"
            for key, value in one.get_config().items()
            if any(other.get(key) != value for other in same)
        ]
        labels.append(f"{one.name}({', '.join(settings)})" if settings else one.name)
    if len(set(labels)) < len(labels):
        raise StatisticError(f"statistics must differ. Received: {', '.join(labels)}")
    return labels


def _measure_bits(
    model: Any,
    sets: Mapping[str, np.ndarray],
    log_probs: Mapping[str, np.ndarray],
    seed: int,
    progress: bool | None,
) -> Iterator[Bits]:
    """Bits per dimension of every set in both modes; `log_probs` are those already known, in evaluation mode."""
    if not isinstance(model, Likelihood):
        return
    log_prob = frozen_log_prob(model)
    for name, images in sets.items():
        # Shuffled: in a file sorted by class, each batch would have one class only.
        images = images[np.random.RandomState(seed).permutation(len(images))]

        def nats(training, images=images, name=name):
            return map_batches(
                lambda batch: log_prob(batch, training),
                images,
                description=f"bits per dim of {name}",
                progress=progress,
            )

        evaluation = log_probs[name] if name in log_probs else nats(False)
        values = (
            bits_per_dim(one.mean(dtype=np.float64), images.shape[1:])
            for one in (evaluation, nats(True))
        )
        yield Bits(name, len(images), *map(float, values))
