"""Reads weights from a legacy PyTorch file, without PyTorch and without running anything in it.

Such a file is five pickles (magic number, protocol version, system, state dict, list of storages), then the numbers of
each storage after their count, an int64. The state dict gives for every name the storage of its tensor and the part.
"""

import hashlib
import io
import math
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfbnood.errors import DataError

__all__ = ["read_state_dict"]

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MAX_DIMENSIONS = 8

# Limits for hostile files. EfficientNet-Lite0: 19 MB, 10,696 opcodes, 1,086 tuples.
_MAX_FILE_BYTES = 1 << 28
_MAX_OPCODES = 50_000
# Python hashes tuples in tuples by recursion in C: a key of a million of them crashes it.
_MAX_TUPLES = 4_000

_DTYPES = {
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}

_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
_PUTS = frozenset({"BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"BINGET", "LONG_BINGET"})
# Everything torch writes for a state dict; nothing that creates objects or duplicates the stack.
_NEEDED = (
    _TUPLES
    | _PUTS
    | _GETS
    | {"PROTO", "STOP", "MARK", "GLOBAL", "REDUCE", "BUILD", "BINPERSID"}
    | {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"}
    | {"EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS"}
)
_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}


class _Refused(Exception):
    """The reason for refusing a file, as the end of a sentence."""


class _StorageType(NamedTuple):
    name: str


class _Storage(NamedTuple):
    dtype: np.dtype
    key: str
    length: int


class _Tensor(NamedTuple):
    storage: Any
    offset: Any
    size: Any
    stride: Any
    requires_grad: Any
    hooks: Any


class _Ordered:
    """Stands in for an `OrderedDict`: entries by name; attributes (torch's `_metadata`) are dropped."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str) or key in self.entries:
            raise _Refused("its names are not distinct strings")
        self.entries[key] = value

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows three kinds of names and turns them into inert records."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

        # New for every file: a pickle can set attributes of what `find_class` returns.
        def make_ordered() -> _Ordered:
            return _Ordered()

        def make_tensor(*arguments: Any) -> _Tensor:
            if len(arguments) != len(_Tensor._fields):
                raise _Refused("it describes a tensor in an unknown way")
            return _Tensor(*arguments)

        self._makers: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): make_ordered,
            ("torch._utils", "_rebuild_tensor_v2"): make_tensor,
        }

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in self._makers:
            return self._makers[module, name]
        if module == "torch" and name in _DTYPES:
            return _StorageType(name)
        asked = f"{module}.{name}"
        raise _Refused(f"it asks for {asked[:80]!r}, which weights do not need")

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", _StorageType(name), str(key), str(), int(length), None) if length >= 0:
                return _Storage(np.dtype(_DTYPES[name]), key, length)
        raise _Refused("it describes a storage in an unknown way")


def read_state_dict(path: str | os.PathLike[str], *, sha256: str) -> dict[str, np.ndarray]:
    """Reads a file that `torch.save(network.state_dict(), path)` of PyTorch before 1.6 wrote.

    The digest is checked before anything is parsed. The pickles are then read by an unpickler that knows the few names
    with which torch describes tensors, turns them into inert records, and refuses any other name.

    Args:
        path: of the file; at most 256 MB.
        sha256: the digest that the file must have, in hexadecimal digits.

    Returns:
        Read-only arrays by name, in the file's order and of torch's shapes, such as (out, in, height, width) for the
        kernel of a convolution.

    Raises:
        DataError: if the file is missing, altered or damaged, or asks for anything but arrays.

    Example:
        >>> read_state_dict(folder / "weights.pth", sha256="0" * 64)
        Traceback (most recent call last):
            ...
        tfbnood.errors.DataError: .../weights.pth cannot be read (No such file or directory)
    """
    path = Path(path)
    data = _read_bytes(path)
    found = hashlib.sha256(data).hexdigest()
    if found != sha256.lower():
        raise DataError(
            f"{path} was altered: reinstall its package; "
            f"its SHA-256 must be {sha256}. Received: {found}"
        )
    try:
        return _parse(data)
    except _Refused as error:
        raise DataError(f"{path} cannot be read as PyTorch weights: {error}") from None


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from None
    if len(data) > _MAX_FILE_BYTES:
        raise DataError(
            f"{path} must have at most {_MAX_FILE_BYTES >> 20} MB to be read as PyTorch weights"
        )
    return data


def _parse(data: bytes) -> dict[str, np.ndarray]:
    position = 0
    parts = []
    for name in ("magic number", "protocol version", "system", "state dict", "list of storages"):
        part, position = _unpickle(data, position, name)
        parts.append(part)
    magic, protocol, system, state, keys = parts
    if type(magic) is not int or magic != _MAGIC:
        raise _Refused("it does not begin with PyTorch's magic number")
    if type(protocol) is not int or protocol != _PROTOCOL:
        raise _Refused(f"its protocol version must be {_PROTOCOL}")
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _Refused("its numbers must be little-endian")
    if not isinstance(state, _Ordered):
        raise _Refused("it does not hold a dictionary of tensors")
    tensors = {name: _checked(tensor, name) for name, tensor in state.entries.items()}
    storages = _read_storages(data, position, keys, tensors)
    return {
        name: _make_view(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()
    }


def _unpickle(data: bytes, start: int, what: str) -> tuple[Any, int]:
    """The object pickled at `start`, and where its pickle ends."""
    end = _check_opcodes(data, start, what)
    try:
        return _Unpickler(data[start:end]).load(), end
    except _Refused:
        raise
    except Exception as error:  # Each opcode is allowed, but their order makes no sense.
        raise _Refused(f"its {what} is damaged ({type(error).__name__})") from None


def _check_opcodes(data: bytes, start: int, what: str) -> int:
    """The end of the pickle at `start`; refuses what could exhaust memory before `find_class` is called."""
    stream = io.BytesIO(data)
    stream.seek(start)
    pushed, made = "", 0
    memo: dict[Any, str] = {}
    for index in range(_MAX_OPCODES):
        name, argument = _next_opcode(stream, what)
        made += name in _TUPLES
        if made > _MAX_TUPLES:
            break
        if name == "STOP":
            return stream.tell()
        if name in _PUTS:
            # The unpickler allocates a slot for every number below this one.
            if argument > index:
                raise _Refused(f"its {what} leaves out numbers of its memo")
            memo[argument] = pushed
        elif name in _GETS:
            # A tuple of two tuples, each of two tuples, … is small here and huge once it is walked.
            if memo.get(argument) not in ("BINUNICODE", "GLOBAL"):
                raise _Refused(f"its {what} uses a value twice that is neither a string nor a name")
            pushed = memo[argument]
        else:
            pushed = name
    raise _Refused(f"its {what} is longer than that of any known network")


def _next_opcode(stream: io.BytesIO, what: str) -> tuple[str, Any]:
    """The name and the argument of the next opcode; only those that are needed have their argument read."""
    opcode = _OPCODES.get(stream.read(1))
    if opcode is None:
        raise _Refused(f"its {what} is cut off or damaged")
    if opcode.name not in _NEEDED:
        raise _Refused(f"its {what} uses the opcode {opcode.name}, which weights do not need")
    try:
        # pickletools would take a backslash in a name for an escape; the unpickler does not.
        if opcode.name == "GLOBAL":
            return opcode.name, (_line(stream), _line(stream))
        return opcode.name, opcode.arg.reader(stream) if opcode.arg else None
    except ValueError:
        raise _Refused(f"its {what} is cut off or damaged") from None


def _line(stream: io.BytesIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise ValueError("cut off")
    return line


def _checked(tensor: Any, name: str) -> _Tensor:
    """The tensor, if it is one and lies within its storage."""
    match tensor:
        case _Tensor(
            _Storage() as storage, int(), tuple(size), tuple(stride), bool(), _Ordered() as hooks
        ) if not hooks.entries:
            if _fits(tensor.offset, size, stride, storage.length):
                return tensor
            raise _Refused(f"the tensor {name[:80]!r} does not fit into its storage")
    raise _Refused(f"the entry {name[:80]!r} is not a tensor")


def _fits(offset: int, size: tuple[Any, ...], stride: tuple[Any, ...], length: int) -> bool:
    if len(size) != len(stride) or len(size) > _MAX_DIMENSIONS:
        return False
    if not all(type(n) is int and n > 0 for n in size):
        return False
    if not all(type(step) is int and 0 <= step <= length for step in stride):
        return False
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    # Strides of 0 would turn one number into a huge array.
    return offset >= 0 and last < length and math.prod(size) <= length


def _read_storages(
    data: bytes, position: int, keys: Any, tensors: dict[str, _Tensor]
) -> dict[str, np.ndarray]:
    """The arrays that begin at `position`, to the end of the file."""
    expected: dict[str, _Storage] = {}
    for name, tensor in tensors.items():
        if expected.setdefault(tensor.storage.key, tensor.storage) != tensor.storage:
            raise _Refused(
                f"the tensor {name[:80]!r} and another tensor disagree about their storage"
            )
    known = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not known or sorted(keys) != sorted(expected):
        raise _Refused("its list of storages does not match its tensors")
    storages = {}
    for key in keys:
        dtype, _, length = expected[key]
        start, end = position + 8, position + 8 + length * dtype.itemsize
        if end > len(data):
            raise _Refused("its numbers are cut off")
        if struct.unpack_from("<q", data, position) != (length,):
            raise _Refused("the count of numbers in a storage does not match its tensors")
        # A copy, since the numbers need not lie at a multiple of their size.
        array = np.frombuffer(data, dtype, length, start).astype(dtype.newbyteorder("="))
        array.flags.writeable = False
        storages[key] = array
        position = end
    if position != len(data):
        raise _Refused(f"{len(data) - position:,} bytes follow its last number")
    return storages


def _make_view(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    steps = [step * storage.itemsize for step in tensor.stride]
    start = storage[tensor.offset :]
    return np.lib.stride_tricks.as_strided(start, tensor.size, steps, writeable=False)
