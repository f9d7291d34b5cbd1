"""What a detector found: for single images, and for a batch as a whole."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfbnood._core.cards import card, gallery, paragraph
from tfbnood._core.images import as_images
from tfbnood.errors import DataError, TfbnoodError

if TYPE_CHECKING:
    import pandas as pd

    from tfbnood._core.images import Images

__all__ = [
    "BatchTest",
    "Detection",
    "ImageEvidence",
    "ImageResult",
    "Pictures",
    "Watch",
    "order_evidence",
]

_SHOWN = 24  # thumbnails in a notebook: three rows
_NAMED = 8  # images of a batch that a sentence names
_SUSPICIOUS = 0.05  # p-value of a batch up to which images are named


class ImageResult(NamedTuple):
    """The result for one image: a row of a `Detection`."""

    row: int
    score: float
    p_value: float
    is_ood: bool
    bits_per_dim: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Copies of the few images with the highest scores, for display.

    Attributes:
        rows: `[k]`, their positions among the images, the most suspicious first.
        scores: `[k]`.
        images: uint8 `[k, height, width, channels]`.

    Example:
        >>> Pictures.of(x.test, np.arange(397.0)).rows[:3].tolist()
        [396, 395, 394]
    """

    rows: np.ndarray
    scores: np.ndarray
    images: np.ndarray

    @classmethod
    def of(cls, images: np.ndarray, scores: np.ndarray, *, start: int = 0) -> "Pictures":
        """Picks the most suspicious of checked images, the first of which is row `start`."""
        best = np.argsort(-scores, kind="stable")[:_SHOWN]
        return cls(start + best, scores[best], images[best])

    def merged(self, other: "Pictures") -> "Pictures":
        """The most suspicious of both; the first set wins ties."""
        scores = np.concatenate([self.scores, other.scores])
        best = np.argsort(-scores, kind="stable")[:_SHOWN]
        rows = np.concatenate([self.rows, other.rows])[best]
        return Pictures(rows, scores[best], np.concatenate([self.images, other.images])[best])

    def within(self, rows: np.ndarray) -> "Pictures":
        """Those in the given rows."""
        chosen = np.isin(self.rows, rows)
        return Pictures(self.rows[chosen], self.scores[chosen], self.images[chosen])


class Watch:
    """Keeps the most suspicious images of a stream.

    Attributes:
        pictures: of the images seen so far; None before the first.
    """

    def __init__(self) -> None:
        self.pictures: Pictures | None = None
        self._seen = 0

    def add(self, images: np.ndarray, scores: np.ndarray) -> None:
        """Looks at the next images."""
        new = Pictures.of(images, scores, start=self._seen)
        self.pictures = new if self.pictures is None else self.pictures.merged(new)
        self._seen += len(images)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Detection:
    """What `Detector.predict` found, one entry per image.

    `len`, iteration and indexing work as for an array: `found[found.is_ood]` is a Detection of the alarms, `found[0]`
    an `ImageResult`. In a notebook it shows the most suspicious images.

    Attributes:
        score: higher means more out-of-distribution.
        p_value: share of in-distribution images that would score as high.
        is_ood: the decision.
        bits_per_dim: in evaluation mode; None when the detector has no likelihood model.
        statistic: name of the statistic.
        assumed: the assumption behind the p-values.
        rule: how p-values became decisions.
        group_size: size of the calibration requests used for comparison.
        rows: position of each image in the input of `predict`. Defaults to 0, 1, 2, …
        pictures: copies of the 24 most suspicious images; None if there are none to show.
        cluster: the cluster of each image, whose calibration images it was compared with; None without clusters.

    Example:
        >>> found = detector.predict(np.concatenate([x.test[:30], 255 - x.test[:3]]), fpr=0.01)
        >>> found
        <Detection: 3 of 33 images out-of-distribution by pixel_pca (false-alarm rate 0.01; every image on its own)>
        >>> found[found.is_ood].rows, [round(one.p_value, 4) for one in found[found.is_ood]]
        (array([30, 31, 32]), [0.0033, 0.0033, 0.0033])
    """

    score: np.ndarray
    p_value: np.ndarray
    is_ood: np.ndarray
    bits_per_dim: np.ndarray | None
    statistic: str
    assumed: str
    rule: str
    group_size: int
    rows: np.ndarray = None  # type: ignore[assignment]
    pictures: Pictures | None = None
    cluster: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.rows is None:
            object.__setattr__(self, "rows", np.arange(len(self.score)))

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, index: Any) -> "ImageResult | Detection":
        if isinstance(index, int | np.integer):
            bits = None if self.bits_per_dim is None else float(self.bits_per_dim[index])
            return ImageResult(
                int(self.rows[index]),
                float(self.score[index]),
                float(self.p_value[index]),
                bool(self.is_ood[index]),
                bits,
            )
        rows = self.rows[index]
        return dataclasses.replace(
            self,
            score=self.score[index],
            p_value=self.p_value[index],
            is_ood=self.is_ood[index],
            bits_per_dim=None if self.bits_per_dim is None else self.bits_per_dim[index],
            rows=rows,
            pictures=None if self.pictures is None else self.pictures.within(rows),
            cluster=None if self.cluster is None else self.cluster[index],
        )

    def __iter__(self) -> Iterator[ImageResult]:
        return (self[row] for row in range(len(self)))  # type: ignore[misc]

    def __str__(self) -> str:
        return f"{self._count()} by {self.statistic} ({self.rule}; {self.assumed})"

    def __repr__(self) -> str:
        return f"<Detection: {self}>"

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table by `image`, the row: `score`, `p_value`, `is_ood`, and where known `bits_per_dim`, `cluster`.

        Needs pandas, which nothing else does.
        """
        try:
            import pandas as pd
        except ImportError:
            raise TfbnoodError("to_frame() needs pandas: pip install pandas") from None
        columns = {"score": self.score, "p_value": self.p_value, "is_ood": self.is_ood}
        if self.bits_per_dim is not None:
            columns["bits_per_dim"] = self.bits_per_dim
        if self.cluster is not None:
            columns["cluster"] = self.cluster
        return pd.DataFrame(columns, index=pd.Index(self.rows, name="image"))

    def to_html(self, images: "Images | None" = None, *, most: int = _SHOWN) -> str:
        """What a notebook shows: a sentence, and thumbnails of the most suspicious images with their p-values.

        Args:
            images: all images that were passed to `predict`. Defaults to the copies in `pictures`.
            most: maximum number of thumbnails. Defaults to 24, all that `pictures` has.

        Example:
            >>> found = detector.predict(x.test, fpr=0.05)
            >>> found.to_html(x.test, most=100).count("<img ")
            100
        """
        pictures = self.pictures
        if images is not None:
            given = as_images(images)
            if len(given) <= self.rows.max(initial=-1):
                raise DataError(
                    "images must be all images that were passed to predict(). "
                    f"Received: {len(given)} images, of which one is row {self.rows.max()}"
                )
            order = np.argsort(-self.score, kind="stable")[:most]
            rows = self.rows[order]
            pictures = Pictures(rows, self.score[order], given[rows])
        sentence = f"by {self.statistic} ({self.rule}; {self.assumed})"
        start = paragraph(sentence, strong=self._count())
        if pictures is None or not len(pictures.rows) or not len(self):
            return start
        places = {row: place for place, row in enumerate(self.rows.tolist())}
        shown = [places[row] for row in pictures.rows.tolist()[:most]]
        captions = [f"{self.rows[place]}: p = {self.p_value[place]:.2g}" for place in shown]
        which = "the most suspicious first" if len(shown) < len(self) else "by score"
        return (
            start
            + gallery(pictures.images[:most], captions, self.is_ood[shown].tolist())
            + paragraph(f"{len(shown)} of {len(self)} images, {which}; framed ones raise an alarm")
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def _count(self) -> str:
        return f"{int(self.is_ood.sum())} of {len(self)} images out-of-distribution"


class ImageEvidence(NamedTuple):
    """What one image of a batch contributes to the evidence.

    Attributes:
        row: its position in the batch.
        p_value: its own p-value.
        contribution: how much smaller the test's value would be if this image were an ordinary one.
    """

    row: int
    p_value: float
    contribution: float


def order_evidence(p_values: np.ndarray, contributions: np.ndarray) -> tuple[ImageEvidence, ...]:
    """The images with a contribution above 0, the largest first; ties are ordered by p-value.

    Example:
        >>> order_evidence(np.array([0.5, 0.02, 0.01]), np.array([0.0, 3.0, 3.0]))[0]
        ImageEvidence(row=2, p_value=0.01, contribution=3.0)
    """
    order = np.lexsort((p_values, -contributions))
    return tuple(
        ImageEvidence(int(row), float(p_values[row]), float(contributions[row]))
        for row in order
        if contributions[row] > 0
    )


@dataclasses.dataclass(frozen=True, repr=False)
class BatchTest:
    """The result of `Detector.test_batch` for the whole batch.

    Attributes:
        p_value: share of in-distribution batches that would look as strange.
        score: mean score of the images.
        statistic: name of the statistic.
        method: how the scores of the images became one p-value.
        assumed: the assumption behind the p-value.
        group_size: size of the calibration requests used for comparison.
        evidence: images that speak against the batch, those with the largest contribution first.
    """

    p_value: float
    score: float
    statistic: str
    method: str
    assumed: str
    group_size: int
    evidence: tuple[ImageEvidence, ...] = ()

    def __str__(self) -> str:
        return (
            f"p = {self.p_value:.3g}, the share of in-distribution batches that look as strange, by {self.method} "
            f"of {self.statistic} ({self.assumed}){self._describe_evidence()}"
        )

    def _describe_evidence(self) -> str:
        """The rows that carry the evidence, as the end of a sentence."""
        if not self.evidence or self.p_value > _SUSPICIOUS:
            return ""
        rows = ", ".join(str(one.row) for one in self.evidence[:_NAMED])
        more = f" and {len(self.evidence) - _NAMED} more" if len(self.evidence) > _NAMED else ""
        return f"; most of the evidence is in images {rows}{more}"

    def __repr__(self) -> str:
        return f"<BatchTest: {self}>"

    def _repr_html_(self) -> str:
        facts = {
            "p-value": f"{self.p_value:.3g}, the share of in-distribution batches that look as strange",
            "by": f"{self.method} of {self.statistic}",
            "mean score": f"{self.score:.4g}",
            "assumed": self.assumed,
            "evidence": ", ".join(
                f"image {one.row} (p = {one.p_value:.2g})" for one in self.evidence[:_SHOWN]
            ),
        }
        return card("The batch as a whole", facts)
