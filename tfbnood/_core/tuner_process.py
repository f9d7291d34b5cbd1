"""One of the processes of a joint search, as keras-tuner's variables name it; read without TensorFlow."""

import dataclasses
import re
from collections.abc import Mapping

from tfbnood.errors import TfbnoodError

__all__ = ["TunerProcess", "read_tuner_process"]

_ID, _IP, _PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"
_EXAMPLE = f"{_ID}=chief (on others tuner0, tuner1, …) {_IP}=10.0.0.1 {_PORT}=8000"


@dataclasses.dataclass(frozen=True)
class TunerProcess:
    """The chief, which hands out trials and writes the files, or a worker, which runs trials.

    Attributes:
        tuner_id: its name; keras-tuner recognises the chief by "chief" in its name.
        address: `host:port` of the chief.
    """

    tuner_id: str
    address: str

    @property
    def is_chief(self) -> bool:
        """Whether it is the chief."""
        return "chief" in self.tuner_id


def read_tuner_process(variables: Mapping[str, str]) -> TunerProcess | None:
    """Reads keras-tuner's variables; None for a search in one process.

    Raises:
        TfbnoodError: if some of them are missing or malformed.

    Example:
        >>> names = ("TUNER_ID", "ORACLE_IP", "ORACLE_PORT")
        >>> values = ("tuner0", "10.0.0.1", "8000")
        >>> read_tuner_process({f"KERASTUNER_{a}": b for a, b in zip(names, values)})
        TunerProcess(tuner_id='tuner0', address='10.0.0.1:8000')
    """
    given = {name: variables.get(name, "").strip() for name in (_ID, _IP, _PORT)}
    if not any(given.values()):
        return None
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise TfbnoodError(
            f"{missing[0]} must be set with the others, e.g. {_EXAMPLE}. Received: none"
        )
    if not re.fullmatch(r"[\w.-]+", given[_ID]):
        raise TfbnoodError(
            f"{_ID} must consist of letters, digits, . _ and -. Received: {given[_ID]}"
        )
    if not given[_PORT].isdecimal() or not 0 < int(given[_PORT]) < 65536:
        raise TfbnoodError(f"{_PORT} must be a port, 1 to 65535. Received: {given[_PORT]}")
    return TunerProcess(given[_ID], f"{given[_IP]}:{given[_PORT]}")
