"""Work in named stages whose results are files: killed anywhere, the same call goes on after the last finished one."""

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from tfbnood._core.files import remove_partials, write_json
from tfbnood.errors import TfbnoodError

__all__ = ["Stages"]


class Stages:
    """Results of stages as JSON files under `folder/stages`.

    Args:
        folder: of the whole work. Settings of an earlier call there must be the same.
        settings: everything that results depend on, JSON-safe.
        total: how many stages there will be, for the estimate of the time left.
    """

    def __init__(self, folder: str | pathlib.Path, settings: dict[str, Any], total: int):
        self.folder = pathlib.Path(folder)
        (self.folder / "stages").mkdir(parents=True, exist_ok=True)
        remove_partials(self.folder)
        remove_partials(self.folder / "stages")
        path = self.folder / "settings.json"
        settings = json.loads(json.dumps(settings))
        if path.is_file() and json.loads(path.read_text()) != settings:
            raise TfbnoodError(
                f"out must be a new folder, or one of a call with the same settings. Received: {self.folder}, "
                f"made with {path.read_text().strip()}"
            )
        write_json(path, settings)
        self._total, self._done, self._seconds = total, 0, 0.0

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns what `work` returned, now or in an earlier call; it must be JSON-safe."""
        path = self.folder / "stages" / f"{name}.json"
        self._done += 1
        if not path.is_file():
            self._say(f"{name} …")
            began = time.monotonic()
            result = {"result": work(), "seconds": round(time.monotonic() - began, 1)}
            write_json(path, result, compact=True)
        result = json.loads(path.read_text())
        self._seconds += result["seconds"]
        left = self._seconds / self._done * (self._total - self._done)
        self._say(f"{name} took {result['seconds']:.0f} s; about {left / 60:.0f} min left")
        return result["result"]

    def _say(self, text: str) -> None:
        print(f"[{self._done}/{self._total}] {text}", file=sys.stderr, flush=True)
