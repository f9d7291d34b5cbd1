"""Reads the headers of a folder's files: which sizes and channels they have, and which a detector should have."""

import math
import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood.data.files import UnreadableImageError, header
from tfbnood.data.folders import UnreadableFilesError, check_folder, no_images, walk

__all__ = ["FolderSurvey", "survey"]


@dataclass(frozen=True)
class FolderSurvey:
    """What the headers of a sample of files state.

    Attributes:
        files: number of image files in the folder.
        sizes: the sampled files by `(height, width)`, upright, the most common first.
        formats: the sampled files by format, the most common first.
        grey: how many of them are stored in grey.
        unreadable: how many have no header of an image.

    Example:
        >>> photos = FolderSurvey(600, {(480, 640): 150, (640, 480): 50}, {"JPEG": 200}, grey=0)
        >>> photos.image_shape, photos.suggest(largest=32)
        ((112, 128, 3), (28, 32, 3))
    """

    files: int
    sizes: Mapping[tuple[int, int], int]
    formats: Mapping[str, int]
    grey: int
    unreadable: int = 0

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`suggest()`: sides of at most 128 pixels, divisible by 4."""
        return self.suggest()

    def suggest(self, *, largest: int = 128, multiple: int = 4) -> tuple[int, int, int]:
        """The `(height, width, channels)` that a detector for these files should have.

        The longer side is `largest`, or less if a tenth of the files would have to be enlarged: the 10th percentile of
        their longer sides. The ratio of the sides is the geometric mean of the files' ratios, so that portraits and
        landscapes in equal parts give a square. Both sides are rounded to a multiple of `multiple`, down where files
        would have to be enlarged. There is one channel if every file is stored in grey, otherwise there are three.
        If all files have one size that follows these rules, they keep every pixel.

        Args:
            largest: maximum length of the longer side, in pixels.
            multiple: a number that the sides must be divisible by, as models require.

        Example:
            >>> FolderSurvey(60000, {(28, 28): 200}, {"PNG": 200}, grey=200).suggest()
            (28, 28, 1)
        """
        check_integer("multiple", multiple, least=1)
        check_integer("largest", largest, least=multiple)
        counts = list(self.sizes.values())
        files = np.repeat(np.array(list(self.sizes)), counts, axis=0)  # [n, 2]
        # What nine in ten files have at least: height, width and longer side.
        *limits, longest = np.sort(np.column_stack([files, files.max(axis=1)]), axis=0)[
            len(files) // 10
        ]
        longer = min(largest, int(longest))
        ratio = math.exp(np.log(files[:, 1] / files[:, 0]).mean())
        sides = []
        for side, limit in zip(
            (longer / max(ratio, 1), longer * min(ratio, 1)), limits, strict=True
        ):
            rounded = round(side / multiple) * multiple
            sides.append(
                max(multiple, rounded if rounded <= min(limit, largest) else rounded - multiple)
            )
        return sides[0], sides[1], 1 if self.grey == len(files) else 3


def survey(folder: str | os.PathLike[str], *, most: int = 200, seed: int = 0) -> FolderSurvey:
    """Reads the headers of a random sample of a folder's image files; decodes no pixels.

    Args:
        folder: as for `from_folder`.
        most: maximum number of files to read.
        seed: of the sample.

    Raises:
        UnreadableFilesError: if none of the files has the header of an image.
        DataError: if the folder does not exist or has no images.

    Example:
        >>> from PIL import Image
        >>> for index in range(5):
        ...     Image.fromarray(x.test[index, ..., 0]).save(folder / f"{index}.png")
        >>> survey(folder).image_shape
        (8, 8, 1)
    """
    check_integer("most", most, least=1)
    check_integer("seed", seed, least=0)
    path = check_folder(folder)
    ignored: Counter[str] = Counter()
    sample, files = _sample(path, most, seed, ignored)
    if not sample:
        raise no_images(path, ignored)
    sizes: Counter[tuple[int, int]] = Counter()
    formats: Counter[str] = Counter()
    grey = 0
    unreadable: list[tuple[Path, str]] = []
    for file in sample:
        try:
            image_format, size, is_grey = header(file)
        except UnreadableImageError as error:
            unreadable.append((file, error.reason))
        else:
            formats[image_format] += 1
            sizes[size] += 1
            grey += is_grey
    if not sizes:
        raise UnreadableFilesError(path, unreadable, len(sample))
    return FolderSurvey(
        files, dict(sizes.most_common()), dict(formats.most_common()), grey, len(unreadable)
    )


def _sample(folder: Path, most: int, seed: int, ignored: Counter[str]) -> tuple[list[Path], int]:
    """A uniform sample and the number of all files, in one pass and without a list of them (Vitter's algorithm R)."""
    chance = random.Random(seed)
    sample: list[Path] = []
    files = 0
    for files, path in enumerate(walk(folder, ignored=ignored), start=1):
        if len(sample) < most:
            sample.append(path)
        elif (place := chance.randrange(files)) < most:
            sample[place] = path
    return sample, files
