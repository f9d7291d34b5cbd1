"""Work in named stages whose results are files: after a kill, the same call resumes after the last finished stage."""

import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfbnood._core.files import remove_leftovers, write_json
from tfbnood._core.runs import RunFolder
from tfbnood.errors import TfbnoodError

__all__ = ["Stages", "is_of"]


class Stages:
    """Results of stages as JSON files under `folder/stages`.

    Args:
        folder: of the whole work. Settings of an earlier call must be the same.
        settings: everything that results depend on, JSON-safe.
        total: number of stages, to estimate the time left.
    """

    def __init__(self, folder: str | pathlib.Path, settings: dict[str, Any], total: int):
        self.folder = pathlib.Path(folder)
        place = RunFolder(self.folder, "settings.json", "reproduction")
        place.earlier(settings)
        write_json(self.folder / place.file, settings)
        self._stages = RunFolder(self.folder / "stages", "", "stage")
        remove_leftovers(self._stages.folder)
        self._total, self._done, self._seconds = total, 0, 0.0

    def run(
        self, name: str, work: Callable[[], Any], settings: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns what `work` returned, now or in an earlier call; it must be JSON-safe.

        Args:
            name: of the stage and of its file.
            work: called if the file is missing or has other settings.
            settings: of only this stage, such as how its model was trained; JSON-safe.
        """
        path = self._stages.folder / f"{name}.json"
        self._done += 1
        if not path.is_file() or not is_of(path, settings):
            # Locked one by one: processes with different studies may share the folder.
            with self._stages.lock(name):
                again = ", again with new settings" if path.is_file() else ""
                self._say(f"{name}{again} …")
                began = time.monotonic()
                result = {"result": work(), "seconds": round(time.monotonic() - began, 1)}
                if settings is not None:
                    result["settings"] = settings
                write_json(path, result, compact=True)
        result = _read(path)
        self._seconds += result["seconds"]
        left = self._seconds / self._done * (self._total - self._done)
        self._say(f"{name} took {result['seconds']:.0f} s; about {left / 60:.0f} min left")
        return result["result"]

    def _say(self, text: str) -> None:
        print(f"[{self._done}/{self._total}] {text}", file=sys.stderr, flush=True)


def is_of(path: pathlib.Path, settings: Mapping[str, Any] | None) -> bool:
    """Whether the stage in a file was run with these settings; None accepts any."""
    return settings is None or _read(path).get("settings") == json.loads(json.dumps(settings))


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return {**content, "result": content["result"], "seconds": float(content["seconds"])}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise TfbnoodError(
            f"{path} is not readable ({error}); remove it to run the stage again"
        ) from None
