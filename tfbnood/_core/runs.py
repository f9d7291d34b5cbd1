"""A folder of long work that resumes after a kill: it keeps the settings and admits one process at a time."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tfbnood._core.files import remove_leftovers, writing
from tfbnood._core.locks import lock
from tfbnood.errors import TfbnoodError

__all__ = ["RunFolder"]

_LOCK = ".lock"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A folder with a JSON file that holds the settings of the work.

    Attributes:
        folder: need not exist.
        file: name of the JSON file, which the work itself writes.
        kind: what messages call the work, e.g. "run".
        within: the key of the settings in the file; None if they are at the top level.
    """

    folder: pathlib.Path
    file: str
    kind: str
    within: str | None = None

    @contextlib.contextmanager
    def resume(
        self, settings: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Locks the folder and yields what an earlier call wrote, `{}` for a new folder.

        Args:
            settings: everything the results depend on, JSON-safe; must equal those of an earlier call.
            defaults: values of settings that files of earlier versions lack.

        Raises:
            TfbnoodError: if another process works here, the settings differ, the file is damaged or the folder holds
                something else.
        """
        with writing(self.folder):
            self._check_place()  # before a lock file appears in an unrelated folder
            made_here = not self.folder.exists()
        try:
            with self.lock():
                remove_leftovers(self.folder)
                yield self.earlier(settings, defaults=defaults)
        finally:
            if made_here:
                with contextlib.suppress(OSError):  # only if it is still empty
                    self.folder.rmdir()

    @contextlib.contextmanager
    def lock(self, part: str = "") -> Iterator[None]:
        """Keeps other processes out of the folder, or out of one part of the work."""
        with contextlib.ExitStack() as stack:
            with writing(self.folder):
                try:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    name = f".{part}{_LOCK}" if part else _LOCK
                    stack.enter_context(lock(self.folder / name, optional=True))
                except BlockingIOError:
                    what = f"{self.kind} {part}".strip()
                    raise TfbnoodError(
                        f"{self.folder} is in use: another process works on this {what}; "
                        "wait until it ends or choose another folder"
                    ) from None
            yield

    def earlier(
        self, settings: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What an earlier call with the same settings wrote into the file; `{}` if there is none."""
        path = self.folder / self.file
        try:
            content = json.loads(path.read_text("utf-8"))
            before = content if self.within is None else content[self.within]
            before = {**(defaults or {}), **before}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise self.damaged(error) from None
        wanted = json.loads(json.dumps(settings))
        other = [
            f"{key}={before.get(key)!r} instead of {value!r}"
            for key, value in wanted.items()
            if before.get(key) != value
        ]
        if other:
            raise TfbnoodError(
                f"out must be a new folder, or hold a {self.kind} with the same settings. "
                f"Received: {self.folder}, with {', '.join(other)}"
            )
        return content

    def damaged(self, reason: object) -> TfbnoodError:
        """The error for a file from which the work cannot resume."""
        return TfbnoodError(
            f"{self.folder / self.file} is not readable ({reason}); remove the folder to start again"
        )

    def _check_place(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise TfbnoodError(f"out must be a folder. Received: {self.folder}, which is a file")
        if not self.folder.exists() or (self.folder / self.file).exists():
            return
        # A killed call may have left temporary folders of ours before it wrote the file.
        if any(not path.name.startswith((".partial-", _LOCK)) for path in self.folder.iterdir()):
            raise TfbnoodError(
                f"out must be a new or empty folder, or the folder of an earlier {self.kind}. Received: {self.folder}"
            )
