"""Reads files through Beam's filesystems, with errors of one sentence."""

import importlib.util
from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems

from tfbnood.errors import TfbnoodError

__all__ = ["MOST_BYTES", "check_filesystem", "matching", "open_file"]

# Larger than any photograph; a film named .png must not fill a worker's memory.
MOST_BYTES = 256 * 2**20
# What Beam's filesystems import on use, and the extra that installs it.
_CLIENTS = {
    "gs": ("google.cloud.storage", "gcp"),
    "s3": ("boto3", "aws"),
    "azfs": ("azure.storage.blob", "azure"),
    "hdfs": ("hdfs", "hadoop"),
}


def check_filesystem(path: str) -> None:
    """Refuses a URL whose filesystem Beam lacks, or whose client is not installed.

    Raises:
        TfbnoodError: with the extra of Beam that is missing.
    """
    scheme = FileSystems.get_scheme(path)
    if scheme is None:
        return
    client, extra = _CLIENTS.get(scheme, (None, None))
    if client is not None and not _is_installed(client):
        raise TfbnoodError(
            f'{scheme}:// needs a client; run pip install "apache-beam[{extra}]". Received: {path}'
        )
    known = {one.scheme() for one in FileSystem.get_all_subclasses()} - {None}
    if scheme not in known:
        names = ", ".join(f"{name}://" for name in sorted(known))
        raise TfbnoodError(f"paths must be local or begin with {names}. Received: {path}")


def matching(pattern: str) -> list[FileMetadata]:
    """The files that a pattern or a plain path matches; may be none.

    Raises:
        TfbnoodError: if the filesystem is not installed, or refuses.
    """
    check_filesystem(pattern)
    try:
        return FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, ValueError) as error:
        raise TfbnoodError(f"{pattern} cannot be listed ({error})") from error


def open_file(path: str, *, decompress: bool = False) -> Any:
    """Opens a file to read bytes; with `decompress`, files such as .gz are decompressed."""
    kind = CompressionTypes.AUTO if decompress else CompressionTypes.UNCOMPRESSED
    return FileSystems.open(path, compression_type=kind)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # one of the packages above it
        return False
