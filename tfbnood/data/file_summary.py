"""What was converted in a folder of files: as counts that a detector can store, and as sentences."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfbnood.data.files import FORMATS, KINDS, Conversions
from tfbnood.errors import DataError

__all__ = ["FileSummary", "of_arrays", "sentences", "summarize"]

_MOST_SIZES = 100  # kept; folders of crops have as many sizes as files
_RARE = 0.05  # a share below which something counts as new to a detector
_ARRAYS = "arrays"  # stands in for a format if there were no files
_LOSSLESS = ("PNG", "BMP", "TIFF", _ARRAYS)
_EXPECT = "expect false alarms"
# What a detector can be fitted to tolerate, and the name in `tfbnood.data.CHANGES`.
_TOLERABLE = {"resized": "resize", "enlarged": "resize", "JPEG": "jpeg", "WEBP": "jpeg"}
# What follows "N of M files were".
_DONE = {
    "resized": "resized ({sizes} to {target})",
    "enlarged": "smaller than {target} and enlarged",
    "cropped": "cropped to the aspect ratio of {target}",
    "padded": "padded to the aspect ratio of {target}",
    "stretched": "stretched to the aspect ratio of {target}",
    "rotated": "turned upright by EXIF data",
    "transparent": "transparent in places and composited over white",
    "sixteen_bit": "stored with more than 8 bits per value and cut to 8",
    "faint": "stored with 16 bits but held no value above 4095: the images are nearly black; scale them first",
    "cmyk": "converted from CMYK without a colour profile",
    "first_frame": "cut to the first of several frames",
    "colour_to_grey": "stored in colour and read as grey",
    "grey_to_colour": "stored in grey and read as colour",
    "profile": "read without their colour profile, which is not sRGB",
}
# These do not change pixel statistics, so that a detector need not have seen them.
_HARMLESS = ("cropped", "rotated", "first_frame", "profile")
_OWN_ADVICE = ("faint",)


@dataclass(frozen=True)
class FileSummary:
    """Counts of conversions in the files of a folder. Summaries can be added.

    Attributes:
        image_shape: `(height, width, channels)` that the files were fitted to.
        files: number of files read.
        formats: files by format.
        kinds: files by kind of conversion, as `Conversions` lists them.
        sizes: resized files by their size, "height×width", the 100 most common.
        skipped: files that could not be read, by reason.
        ignored: files of unsupported image formats, by file extension.

    Example:
        >>> from tfbnood.data.files import Conversions
        >>> one = summarize([Conversions("JPEG", (150, 150), ("resized",))], (128, 128, 3))
        >>> (one + one).kinds
        {'resized': 2}
        >>> FileSummary.from_dict(one.as_dict()) == one
        True
    """

    image_shape: tuple[int, int, int]
    files: int = 0
    formats: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "FileSummary") -> "FileSummary":
        if self.image_shape != other.image_shape:
            raise DataError(
                "image_shape must be the same to add two summaries. "
                f"Received: {self.image_shape} and {other.image_shape}"
            )
        return FileSummary(
            self.image_shape,
            self.files + other.files,
            _sorted(Counter(self.formats) + Counter(other.formats)),
            _in_order(Counter(self.kinds) + Counter(other.kinds)),
            _sorted(Counter(self.sizes) + Counter(other.sizes), _MOST_SIZES),
            _sorted(Counter(self.skipped) + Counter(other.skipped)),
            _sorted(Counter(self.ignored) + Counter(other.ignored)),
        )

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-safe values, for `Detector.about`."""
        return {**asdict(self), "image_shape": list(self.image_shape)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "FileSummary":
        """The summary that `as_dict` wrote."""
        height, width, channels = values["image_shape"]
        names = [name for name in cls.__dataclass_fields__ if name in values]
        return cls(
            **{**{name: values[name] for name in names}, "image_shape": (height, width, channels)}
        )


def summarize(
    conversions: Iterable[Conversions],
    image_shape: tuple[int, int, int],
    *,
    skipped: Iterable[str] = (),
    ignored: Mapping[str, int] | None = None,
) -> FileSummary:
    """Counts the conversions of files.

    Args:
        conversions: one per file that was read.
        image_shape: the shape they were fitted to.
        skipped: one reason per file that could not be read.
        ignored: files of unsupported image formats, by file extension.

    Example:
        >>> from tfbnood.data.files import Conversions
        >>> summarize([Conversions("PNG", (8, 8))], (8, 8, 1), skipped=["truncated"]).skipped
        {'truncated': 1}
    """
    conversions = list(conversions)
    sizes = (f"{one.size[0]}×{one.size[1]}" for one in conversions if "resized" in one.kinds)
    return FileSummary(
        image_shape,
        len(conversions),
        _sorted(Counter(one.format for one in conversions)),
        _in_order(Counter(kind for one in conversions for kind in one.kinds)),
        _sorted(Counter(sizes), _MOST_SIZES),
        _sorted(Counter(skipped)),
        _sorted(Counter(ignored or {})),
    )


def of_arrays(image_shape: tuple[int, int, int]) -> FileSummary:
    """The summary for a detector that was calibrated on arrays, as the shipped ones were.

    Example:
        >>> jpeg = FileSummary((28, 28, 1), 200, {"JPEG": 200})
        >>> sentences(jpeg, calibrated_on=of_arrays((28, 28, 1)))
        ['200 files are JPEG while the detector was calibrated on arrays: expect false alarms; see tolerate.']
    """
    return FileSummary(image_shape, 1, {_ARRAYS: 1})


def sentences(
    summary: FileSummary,
    *,
    calibrated_on: FileSummary | Mapping[str, Any] | None = None,
    tolerate: Collection[str] = (),
) -> list[str]:
    """Describes what was converted, one sentence per kind, and what is new to the detector.

    A kind or a lossy format is new if it occurs in less than 5 % of the files the detector was calibrated on, and now
    in a larger share. PNG, BMP and TIFF count as one format, since their pixels are the same.

    Args:
        summary: of the current files.
        calibrated_on: the summary of the files that the detector was calibrated on, also as `as_dict` gave it.
            Defaults to None: nothing is compared.
        tolerate: changes that the detector was fitted to tolerate; they cause no false alarms.

    Returns:
        The sentences; none if the files have one format, their pixels are the images, and nothing is new.

    Example:
        >>> from tfbnood.data.files import Conversions
        >>> scored = summarize([Conversions("JPEG", (150, 150), ("resized",))], (128, 128, 3))
        >>> reference = summarize([Conversions("PNG", (128, 128))], (128, 128, 3))
        >>> for sentence in sentences(scored, calibrated_on=reference):
        ...     print(sentence)
        1 of 1 file was resized (from 150×150 to 128×128), none of those that the detector was calibrated on: expect
        false alarms; see tolerate.
        1 file is JPEG while the detector was calibrated on PNG: expect false alarms; see tolerate.
    """
    if isinstance(calibrated_on, Mapping):
        calibrated_on = FileSummary.from_dict(calibrated_on)
    reference = calibrated_on if calibrated_on is not None and calibrated_on.files else None
    said = _describe_kinds(summary, reference, tolerate) + _describe_formats(
        summary, reference, tolerate
    )
    if summary.skipped:
        left_out = _count(sum(summary.skipped.values()))
        said.append(f"{left_out} could not be read: {_list(summary.skipped)}.")
    if summary.ignored:
        said.append(
            f"Formats that cannot be read: {_list(summary.ignored)}; convert these files to PNG."
        )
    return said


def _describe_kinds(
    summary: FileSummary, reference: FileSummary | None, tolerate: Collection[str]
) -> list[str]:
    words = {
        "target": f"{summary.image_shape[0]}×{summary.image_shape[1]}",
        "sizes": _from_sizes(summary),
    }
    said = []
    for kind, count in summary.kinds.items():
        done = f"{count} of {_count(summary.files)} {'was' if count == 1 else 'were'} {_DONE[kind].format(**words)}"
        said.append(f"{done}{_describe_news(kind, summary, reference, tolerate)}.")
    if reference is None or not summary.files:
        return said
    if "resized" not in summary.kinds and _share(reference.kinds, reference, "resized") > 0.5:
        size = f"files resized {_from_sizes(reference)}"
        said.append(f"No file was resized while the detector was calibrated on {size}: {_EXPECT}.")
    return said


def _describe_news(
    kind: str, summary: FileSummary, reference: FileSummary | None, tolerate: Collection[str]
) -> str:
    """The end of a sentence on a kind: what is new to the detector."""
    if reference is None or kind in (*_HARMLESS, *_OWN_ADVICE):
        return ""
    consequence = _describe_consequence(kind, tolerate)
    known, share = (_share(one.kinds, one, kind) for one in (reference, summary))
    if known < min(_RARE, share):
        few = "none" if known == 0 else f"{known:.1%}"
        return f", {few} of those that the detector was calibrated on{consequence}"
    if kind == "resized" and _scales_differ(summary, reference):
        return f" while the detector was calibrated on files resized {_from_sizes(reference)}{consequence}"
    return ""


def _describe_formats(
    summary: FileSummary, reference: FileSummary | None, tolerate: Collection[str]
) -> list[str]:
    if reference is None:
        several = len(summary.formats) > 1
        return [f"The {_count(summary.files)} are {_list(summary.formats)}."] if several else []
    said = []
    for formats in (_LOSSLESS, *((one,) for one in FORMATS if one not in _LOSSLESS)):
        known, share = (_share(one.formats, one, *formats) for one in (reference, summary))
        if share and known < min(_RARE, share):
            count = sum(summary.formats.get(one, 0) for one in formats)
            names = " or ".join(one for one in summary.formats if one in formats)
            said.append(
                f"{_count(count)} {'is' if count == 1 else 'are'} {names} while the detector was calibrated on "
                f"{' and '.join(reference.formats)}{_describe_consequence(names, tolerate)}."
            )
    return said


def _describe_consequence(name: str, tolerate: Collection[str]) -> str:
    """The end of a sentence on what is new to a detector."""
    if name not in _TOLERABLE:
        return f": {_EXPECT}"
    return "; it tolerates this" if _TOLERABLE[name] in tolerate else f": {_EXPECT}; see tolerate"


def _share(counts: Mapping[str, int], summary: FileSummary, *names: str) -> float:
    return sum(counts.get(name, 0) for name in names) / max(1, summary.files)


def _from_sizes(summary: FileSummary) -> str:
    if not summary.sizes:
        return ""
    size, count = next(iter(summary.sizes.items()))
    return f"{'' if count == summary.kinds['resized'] else 'mostly '}from {size}"


def _scales_differ(summary: FileSummary, reference: FileSummary) -> bool:
    """Whether the most common sizes differ by a factor of two or more in rows and columns."""
    pixels = []
    for one in (summary, reference):
        height, _, width = next(iter(one.sizes)).partition("×")
        pixels.append(int(height) * int(width))
    return max(pixels) >= 4 * min(pixels)


def _count(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _sorted(counts: Counter[str], most: int | None = None) -> dict[str, int]:
    """The most common first, then by name: the same counts give the same dictionary."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:most])


def _in_order(counts: Counter[str]) -> dict[str, int]:
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
