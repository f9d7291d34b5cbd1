"""Images named on the command line: a folder, one file, a pattern, or an array in an npz or npy file."""

import dataclasses
import glob
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tfbnood.errors import TfbnoodError

if TYPE_CHECKING:
    import numpy as np

    from tfbnood.data.file_summary import FileSummary

__all__ = ["Images", "find_images"]

_ARRAYS = (".npz", ".npy")


@dataclasses.dataclass
class Images:
    """Images that are read chunk by chunk while they are scored.

    Attributes:
        path: as typed.
        files: the one file, or those that match the pattern; None for a folder, whose files are listed while reading.
        names: of the images read so far.
        summary: what was converted in the files read so far; None for an array.
    """

    path: pathlib.Path
    files: list[pathlib.Path] | None = None
    names: list[str] = dataclasses.field(default_factory=list)
    summary: "FileSummary | None" = None
    _array: "np.ndarray | None" = None
    _read: list[pathlib.Path] = dataclasses.field(default_factory=list)

    @property
    def is_array(self) -> bool:
        return self._array is not None

    def chunks(
        self, image_shape: tuple[int, int, int], *, skip_unreadable: bool = False
    ) -> "Iterator[np.ndarray]":
        """Images `[m, height, width, channels]`, in order; names and summary grow as they are read."""
        if self._array is not None:
            self.names = [f"{self.path.name}[{index}]" for index in range(len(self._array))]
            yield self._array
            return
        from tfbnood.data.folders import iterate_files, iterate_folder

        chunks = (
            iterate_folder(self.path, image_shape, skip_unreadable=skip_unreadable)
            if self.files is None
            else iterate_files(self.files, image_shape, skip_unreadable=skip_unreadable)
        )
        for chunk in chunks:
            found = chunk.summary
            self.summary = found if self.summary is None else self.summary + found
            self._read += chunk.paths
            self.names += [self.name_of(path) for path in chunk.paths]
            if len(chunk.images):
                yield chunk.images

    def list_files(self) -> list[pathlib.Path]:
        """The image files, for callers that read the bytes themselves."""
        if self.files is not None:
            return self.files
        from tfbnood.data.folders import SUFFIXES, walk

        # A server decodes PNG and JPEG only.
        found = [path for path in walk(self.path) if path.suffix.lower() in SUFFIXES]
        if not found:
            raise TfbnoodError(
                f"WHERE must be a folder with images. Received: {self.path}, which has none"
            )
        return found

    def name_of(self, file: pathlib.Path) -> str:
        """The name of an image in listings."""
        return str(file.relative_to(self.path) if self.files is None else file)

    def reader(self, image_shape: tuple[int, int, int]) -> "Callable[[int], np.ndarray]":
        """Reads the image of a row again, for a page: images are not kept in memory."""
        if (array := self._array) is not None:
            return lambda row: array[row]
        from tfbnood.data.files import read_image

        paths = list(self._read)
        return lambda row: read_image(paths[row], image_shape)[0]


def find_images(text: str, name: str = "WHERE") -> Images:
    """Finds the images. Reads arrays now, so that a damaged file is refused before TensorFlow is imported."""
    path = pathlib.Path(text)
    if path.is_dir():
        from tfbnood.data.folders import walk

        if next(walk(path, at_a_time=1), None) is None:
            raise TfbnoodError(
                f"{name} must be a folder with images in it or below it. Received: {text}, which has none"
            )
        return Images(path)
    if path.is_file() and path.suffix.lower() in _ARRAYS:
        from tfbnood.data.formats import from_npz

        return Images(path, _array=from_npz(path))
    if path.is_file():
        from tfbnood.data.files import UnreadableImageError, header

        try:
            header(path)
        except UnreadableImageError as error:
            raise TfbnoodError(
                f"{name} must be an intact image, preferably PNG or JPEG. Received: {text}: {error.reason}"
            ) from None
        return Images(path, files=[path])
    if glob.has_magic(text):
        found = sorted(pathlib.Path(one) for one in glob.glob(text, recursive=True))
        files = [one for one in found if one.is_file()]
        if files:
            return Images(path, files=files)
        raise TfbnoodError(f"{name} must match files. Received: {text}, which matches none")
    raise TfbnoodError(
        f"{name} must be a folder, an image, a pattern such as 'photos/*.jpg', an .npz or an .npy file. "
        f"Received: {text}, which does not exist"
    )
