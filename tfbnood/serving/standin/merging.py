"""Merges the rows of concurrent requests into one call, like TensorFlow Serving's server-side batching."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfbnood.serving.standin.rest import RestError
from tfbnood.serving.standin.servables import Servable

__all__ = ["Merger"]


class Merger:
    """Joins concurrent calls: the first waits briefly for others, then makes one call for all.

    Args:
        call: the function for the joined rows.
        max_batch_size: maximum rows per call; larger requests are refused, as by the real server.
        seconds: how long the first call waits.
    """

    def __init__(self, call: Any, *, max_batch_size: int, seconds: float) -> None:
        self._call = call
        self._max_batch_size = max_batch_size
        self._seconds = seconds
        self._lock = threading.Lock()
        self._open: dict[tuple, _Batch] = {}

    def call(
        self, servable: Servable, signature: str, arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The outputs for the rows of one request."""
        rows = _rows(arrays)
        if rows > self._max_batch_size:
            raise RestError(
                400,
                f"Task size {rows} is larger than maximum input batch size {self._max_batch_size}",
            )
        shapes = tuple((name, arrays[name].shape[1:]) for name in sorted(arrays))
        key = (servable, signature, shapes)
        with self._lock:
            batch = self._open.get(key)
            leads = batch is None or batch.rows + rows > self._max_batch_size
            if batch is None or leads:
                batch = self._open[key] = _Batch()
            start = batch.rows
            batch.requests.append(arrays)
            batch.rows += rows
            if batch.rows >= self._max_batch_size:
                batch.full.set()
        if leads:
            batch.full.wait(self._seconds)
            with self._lock:  # from here on, no request can join
                if self._open.get(key) is batch:
                    del self._open[key]
            batch.run(self._call, servable, signature)
        batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return {name: array[start : start + rows] for name, array in batch.outputs.items()}


class _Batch:
    def __init__(self) -> None:
        self.requests: list[Mapping[str, np.ndarray]] = []
        self.rows = 0
        self.full, self.done = threading.Event(), threading.Event()
        self.outputs: dict[str, np.ndarray] = {}
        self.error: Exception | None = None

    def run(self, call: Any, servable: Servable, signature: str) -> None:
        try:
            joined = {
                name: np.concatenate([arrays[name] for arrays in self.requests])
                for name in self.requests[0]
            }
            outputs = call(servable, signature, joined)
            for array in outputs.values():
                if array.ndim == 0:
                    raise RestError(400, "Batched output tensor has 0 dimensions")
                if len(array) != self.rows:
                    raise RestError(
                        400,
                        "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                        "dimension sizes of the input tensors",
                    )
            self.outputs = outputs
        except Exception as error:  # all merged requests get it, as from the real server
            self.error = error
        finally:
            self.done.set()


def _rows(arrays: Mapping[str, np.ndarray]) -> int:
    sizes = {array.shape[:1] for array in arrays.values()}
    if () in sizes:
        raise RestError(400, "Batching Run() input tensors must have at least one dimension")
    if len(sizes) > 1:
        raise RestError(400, "Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()[0]
