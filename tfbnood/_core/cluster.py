"""The machines that train together, as `TF_CONFIG` lists them; read without TensorFlow."""

import dataclasses
import json
import re
from typing import Any

from tfbnood.errors import TfbnoodError

__all__ = ["TF_CONFIG_VARIABLE", "Cluster", "read_cluster"]

TF_CONFIG_VARIABLE = "TF_CONFIG"

_EXAMPLE = '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, "task": {"type": "worker", "index": 0}}'
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a training run on several machines.

    Attributes:
        addresses: `host:port` of each, the chief's first.
        index: which of them this process is.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.index == 0


def read_cluster(text: str | None) -> Cluster:
    """Reads `TF_CONFIG`.

    Args:
        text: its value; None if it is not set.

    Raises:
        TfbnoodError: if it is missing or malformed.

    Example:
        >>> text = '{"cluster": {"worker": ["one:1", "two:1"]}, "task": {"type": "worker", "index": 1}}'
        >>> read_cluster(text)
        Cluster(addresses=('one:1', 'two:1'), index=1)
    """
    if not (text or "").strip():
        raise TfbnoodError(
            f"strategy multiworker needs the environment variable TF_CONFIG in every process, e.g. {_EXAMPLE} on host1 "
            'and "index": 1 on host2. Received: none'
        )
    try:
        content = json.loads(text or "")
    except ValueError as error:
        raise _make_error(f"be JSON ({error})", text) from None
    jobs = _get(content, "cluster", dict, text)
    unknown = [name for name in jobs if name not in ("chief", "worker")]
    if unknown:
        raise _make_error("have only the jobs chief and worker in cluster", unknown[0])
    addresses: list[str] = []
    firsts: dict[str, int] = {}
    for job in ("chief", "worker"):
        firsts[job] = len(addresses)
        found = jobs.get(job, [])
        if not isinstance(found, list):
            raise _make_error(f"have a list of addresses in cluster.{job}", found)
        addresses += found
    for address in addresses:
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise _make_error("have addresses host:port in cluster", address)
    if len(set(addresses)) < len(addresses):
        raise _make_error("list each address once", addresses)
    if len(jobs.get("chief", [])) > 1:
        raise _make_error("have at most one chief", jobs["chief"])
    task = _get(content, "task", dict, text)
    job, index = task.get("type"), task.get("index")
    if not isinstance(job, str) or job not in firsts or not jobs.get(job):
        raise _make_error("have a job of its cluster as task.type", job)
    if type(index) is not int or not 0 <= index < len(jobs[job]):
        raise _make_error(
            f"have a valid index into cluster.{job}, counted from 0, as task.index", index
        )
    return Cluster(tuple(addresses), firsts[job] + index)


def _get(content: Any, key: str, kind: type, text: str | None) -> Any:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, kind):
        raise _make_error(f"have an object {key}", text)
    return value


def _make_error(rule: str, received: object) -> TfbnoodError:
    return TfbnoodError(f"TF_CONFIG must {rule}, e.g. {_EXAMPLE}. Received: {str(received)[:200]}")
