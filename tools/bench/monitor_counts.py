"""What `tools/bench/monitor.py` counts, and the file it keeps."""

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import beta

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions

__all__ = ["AFTER", "CHANGE", "Results", "delay", "first", "interval"]

# Images before and after the change of a stream.
CHANGE, AFTER = 500, 3000


class Results:
    """A result file that grows part by part; parts that are there already are not measured again."""

    def __init__(self, path: pathlib.Path, settings: dict[str, Any], only: str):
        self.path, self.only = path, only
        self.content: dict[str, Any] = {"settings": settings, "parts": {}, "cpu_seconds": {}}
        if path.exists():
            found = json.loads(path.read_text("utf-8"))
            if found["settings"] != settings:
                raise SystemExit(f"--out must be new, or of the same settings. Received: {path}")
            self.content |= {name: found[name] for name in ("parts", "cpu_seconds")}

    def add(self, name: str, measure: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        if name in self.content["parts"] or self.only not in name:
            return
        began = time.process_time()
        self.content["parts"][name] = found = measure(*arguments)
        self.content["cpu_seconds"][name] = round(time.process_time() - began, 1)
        write_json(self.path, {**self.content, "versions": versions(), "machine": machine()})
        print(name, json.dumps(found, ensure_ascii=False), flush=True)


def delay(hits: np.ndarray) -> dict[str, Any]:
    """Of streams without an alarm before the change: share found, median and 90 % quantile of the delay."""
    late = np.where(hits < CHANGE + AFTER, hits - CHANGE + 1.0, np.inf)[hits >= CHANGE]
    early, of = int((hits < CHANGE).sum()), len(hits)
    if not len(late):
        return {"median": None, "quantile_90": None, "found": None, "early": early, "of": of}
    quantiles = np.quantile(late, (0.5, 0.9), method="higher")
    median, most = (int(one) if np.isfinite(one) else None for one in quantiles)
    share = float(np.isfinite(late).mean())
    return {"median": median, "quantile_90": most, "found": share, "early": early, "of": of}


def first(hits: np.ndarray) -> np.ndarray:
    """Index of the first True of every row, the length of a row where there is none."""
    return np.where(hits.any(axis=1), hits.argmax(axis=1), hits.shape[1])


def interval(hits: int, of: int) -> dict[str, Any]:
    """A share with its exact 95 % interval (Clopper–Pearson)."""
    low = float(beta.ppf(0.025, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, of - hits)) if hits < of else 1.0
    return {"share": hits / of, "low": low, "high": high, "hits": hits, "of": of}
