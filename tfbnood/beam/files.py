"""Files through Beam's filesystems, with errors of one sentence."""

from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from tfbnood.errors import TfbnoodError

__all__ = ["MOST_BYTES", "matching", "open_file"]

# Larger than any photograph; one worker must not be filled by a film that ends in .png.
MOST_BYTES = 256 * 2**20


def matching(pattern: str) -> list[FileMetadata]:
    """The files that a pattern or a plain path matches; none where there is none.

    Raises:
        TfbnoodError: the filesystem is not installed, or refuses.
    """
    try:
        return FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, ValueError) as error:
        # Beam's text names the client that it lacks, and how to install it.
        raise TfbnoodError(f"{pattern} cannot be listed ({error})") from error


def open_file(path: str, *, decompress: bool = False) -> Any:
    """Opens a file to read bytes; with `decompress`, one whose name ends in .gz and the like is decompressed."""
    kind = CompressionTypes.AUTO if decompress else CompressionTypes.UNCOMPRESSED
    return FileSystems.open(path, compression_type=kind)
