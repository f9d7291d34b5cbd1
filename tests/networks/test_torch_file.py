"""Files are written here opcode by opcode, so that neither PyTorch nor the reader's own tables are trusted."""

import contextlib
import hashlib
import os
import pickle
import struct

import numpy as np
import pytest

from tfbnood.errors import DataError
from tfbnood.networks import torch_file
from tfbnood.networks.torch_file import read_state_dict

ORDERED = b"ccollections\nOrderedDict\n)R"
HEADER = [
    pickle.dumps(0x1950A86A20F9469CFC6C, 2),
    pickle.dumps(1001, 2),
    pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2),
]
NUMBERS = np.arange(12, dtype="<f4")
STEPS = np.array([7], "<i8")


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def row(*items):
    return b"(" + b"".join(items) + b"t"


def pickled(body):
    return b"\x80\x02" + body + b"."


def storage(key="a", length=12, kind="FloatStorage", last=b"N"):
    name = f"ctorch\n{kind}\n".encode()
    return row(text("storage"), name, text(key), text("cpu"), number(length), last) + b"Q"


def tensor(place=None, offset=0, size=(3, 4), stride=(4, 1), hooks=ORDERED, grad=b"\x89"):
    arguments = row(
        place or storage(),
        number(offset),
        row(*map(number, size)),
        row(*map(number, stride)),
        grad,
        hooks,
    )
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"


def state_dict(**tensors):
    entries = b"".join(text(name) + body for name, body in tensors.items())
    return ORDERED + b"(" + entries + b"u"


def numbers(array, count=None):
    return struct.pack("<q", array.size if count is None else count) + array.tobytes()


STATE = state_dict(w=tensor(), n=tensor(storage("b", 1, "LongStorage"), size=(), stride=()))
DATA = numbers(NUMBERS) + numbers(STEPS)


def file_of(state=STATE, keys=("a", "b"), data=DATA, header=HEADER):
    return b"".join([*header, pickled(state), pickle.dumps(list(keys), 2), data])


def one_tensor(body, array=NUMBERS, **options):
    """A file of one tensor, whose storage is `array`."""
    return file_of(state_dict(w=body), ["a"], numbers(array), **options)


@pytest.fixture
def read(tmp_path):
    """Reads bytes as a file whose digest is right, so that only the parser stands in the way."""

    def read_bytes(data):
        path = tmp_path / "weights.pth"
        path.write_bytes(data)
        return read_state_dict(path, sha256=hashlib.sha256(data).hexdigest())

    return read_bytes


def test_arrays_come_back_by_name_in_order_and_read_only(read):
    arrays = read(file_of())
    assert list(arrays) == ["w", "n"]
    np.testing.assert_array_equal(arrays["w"], NUMBERS.reshape(3, 4))
    assert arrays["w"].dtype == np.float32
    assert arrays["n"] == 7
    assert arrays["n"].dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        arrays["w"][0, 0] = 1


def test_offsets_and_strides_are_those_of_torch(read):
    turned = read(one_tensor(tensor(size=(4, 3), stride=(1, 4))))["w"]
    np.testing.assert_array_equal(turned, NUMBERS.reshape(3, 4).T)
    part = read(one_tensor(tensor(offset=5, size=(2, 3), stride=(4, 1))))["w"]
    np.testing.assert_array_equal(part, NUMBERS.reshape(3, 4)[1:, 1:])


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("ByteStorage", "u1"),
        ("CharStorage", "i1"),
        ("ShortStorage", "<i2"),
        ("IntStorage", "<i4"),
        ("LongStorage", "<i8"),
        ("HalfStorage", "<f2"),
        ("FloatStorage", "<f4"),
        ("DoubleStorage", "<f8"),
    ],
)
def test_every_kind_of_number_is_read(read, kind, dtype):
    array = np.arange(12).astype(dtype)
    found = read(one_tensor(tensor(storage(kind=kind)), array))["w"]
    np.testing.assert_array_equal(found, array.reshape(3, 4))
    assert found.dtype == array.dtype


def test_tensors_may_share_a_storage_and_attributes_of_the_dictionary_are_dropped(read):
    metadata = b"}" + text("_metadata") + ORDERED + b"sb"
    state = state_dict(u=tensor(size=(6,), stride=(1,)), w=tensor(offset=6, size=(6,), stride=(1,)))
    arrays = read(file_of(state + metadata, ["a"], numbers(NUMBERS)))
    np.testing.assert_array_equal(np.concatenate([arrays["u"], arrays["w"]]), NUMBERS)


def test_an_altered_file_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    data = file_of()
    path.write_bytes(data[:-1] + b"\x01")
    monkeypatch.delattr(torch_file, "_parse")
    with pytest.raises(DataError, match="was altered: reinstall its package") as error:
        read_state_dict(path, sha256=hashlib.sha256(data).hexdigest())
    assert "\n" not in str(error.value)


def test_a_missing_file_a_folder_and_a_huge_file_are_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="No such file"):
        read_state_dict(tmp_path / "none.pth", sha256="0" * 64)
    with pytest.raises(DataError, match="Is a directory"):
        read_state_dict(tmp_path, sha256="0" * 64)
    monkeypatch.setattr(torch_file, "_MAX_FILE_BYTES", 1 << 20)
    (tmp_path / "huge.pth").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(DataError, match="at most 1 MB"):
        read_state_dict(tmp_path / "huge.pth", sha256="0" * 64)


def test_a_file_cut_off_anywhere_is_refused(read):
    data = file_of()
    for length in range(len(data)):
        with pytest.raises(DataError, match="cut off"):
            read(data[:length])


def test_bytes_after_the_last_number_are_refused(read):
    with pytest.raises(DataError, match="3 bytes follow its last number"):
        read(file_of() + b"abc")


def test_a_flipped_bit_gives_arrays_or_a_data_error_and_nothing_else(read):
    data = file_of()
    unnoticed = 0
    for position in range(len(data)):
        for bit in (0, 6):
            altered = bytearray(data)
            altered[position] ^= 1 << bit
            with contextlib.suppress(DataError):
                read(bytes(altered))
                unnoticed += 1
    # The numbers themselves, names and torch's notes: that is what the digest is for.
    assert 2 * 56 <= unnoticed < len(data)


WRONG = {
    "a magic number": (file_of(header=[pickle.dumps(1, 2), *HEADER[1:]]), "magic number"),
    "a magic text": (file_of(header=[pickle.dumps("x", 2), *HEADER[1:]]), "magic number"),
    "a zip file": (b"PK\x03\x04" + bytes(100), "magic number uses the opcode PERSID"),
    "a protocol": (file_of(header=[HEADER[0], pickle.dumps(1002, 2), HEADER[2]]), "must be 1001"),
    "big-endian": (
        file_of(header=[*HEADER[:2], pickle.dumps({"little_endian": False}, 2)]),
        "little-endian",
    ),
    "no dictionary": (file_of(number(1), [], b""), "does not hold a dictionary"),
    "a plain dictionary": (file_of(b"}", [], b""), "does not hold a dictionary"),
    "a number for a tensor": (file_of(state_dict(w=number(1)), [], b""), "'w' is not a tensor"),
    "a name twice": (
        file_of(ORDERED + b"(" + 2 * (text("w") + tensor()) + b"u", ["a"]),
        "not distinct strings",
    ),
    "a number for a name": (
        file_of(ORDERED + b"(" + number(1) + tensor() + b"u", ["a"]),
        "not distinct strings",
    ),
    "beyond the storage": (one_tensor(tensor(offset=1)), "'w' does not fit"),
    "before the storage": (one_tensor(tensor(offset=-1)), "'w' does not fit"),
    "a long stride": (one_tensor(tensor(stride=(5, 1))), "'w' does not fit"),
    "a backward stride": (one_tensor(tensor(offset=8, stride=(-4, 1))), "'w' does not fit"),
    "a stride of 0": (one_tensor(tensor(size=(1 << 30,), stride=(0,))), "'w' does not fit"),
    "no elements": (one_tensor(tensor(size=(0, 4))), "'w' does not fit"),
    "a negative size": (one_tensor(tensor(size=(-3, -4))), "'w' does not fit"),
    "few strides": (one_tensor(tensor(stride=(1,))), "'w' does not fit"),
    "many dimensions": (one_tensor(tensor(size=(1,) * 99, stride=(1,) * 99)), "'w' does not fit"),
    "hooks": (
        one_tensor(tensor(hooks=ORDERED + text("h") + number(1) + b"s")),
        "'w' is not a tensor",
    ),
    "a list of hooks": (one_tensor(tensor(hooks=b"]")), "'w' is not a tensor"),
    "a text for a flag": (one_tensor(tensor(grad=text("x"))), "'w' is not a tensor"),
    "few arguments": (
        one_tensor(b"ctorch._utils\n_rebuild_tensor_v2\n" + row(storage()) + b"R"),
        "a tensor in an unknown way",
    ),
    "a negative length": (one_tensor(tensor(storage(length=-1))), "a storage in an unknown way"),
    "a view of a storage": (
        one_tensor(tensor(storage(last=row(text("a"), number(0), number(1))))),
        "a storage in an unknown way",
    ),
    "a kind of storage": (one_tensor(tensor(storage(kind="UntypedStorage"))), "UntypedStorage"),
    "a count": (file_of(data=numbers(NUMBERS, 11) + numbers(STEPS)), "count of numbers"),
    "a negative count": (file_of(data=numbers(NUMBERS, -1) + numbers(STEPS)), "count of numbers"),
    "a length beyond the file": (one_tensor(tensor(storage(length=1 << 30))), "cut off"),
    "a storage too few": (file_of(keys=["a"]), "list of storages does not match"),
    "a storage too many": (file_of(keys=["a", "b", "c"]), "list of storages does not match"),
    "a storage twice": (file_of(keys=["a", "b", "b"]), "list of storages does not match"),
    "a number for a storage": (file_of(keys=[1, 2]), "list of storages does not match"),
    "two lengths of a storage": (
        file_of(state_dict(u=tensor(), w=tensor(storage(length=13))), ["a"], numbers(NUMBERS)),
        "'w' and another tensor disagree",
    ),
    "no value left": (file_of(b"R"), "state dict is damaged"),
}


@pytest.mark.parametrize(("data", "reason"), WRONG.values(), ids=WRONG)
def test_a_file_that_is_wrong_in_one_way_is_refused_for_it(read, data, reason):
    with pytest.raises(DataError, match=reason) as error:
        read(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("region", range(5))
@pytest.mark.parametrize(
    "how", ["GLOBAL", "INST", "STACK_GLOBAL", "NEWOBJ", "protocol 2", "dotted"]
)
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(read, tmp_path, how, region):
    marker = tmp_path / "ran"
    command = f"touch {marker}"

    class Evil:
        def __reduce__(self):
            return os.system, (command,)

    evil = {
        "GLOBAL": pickled(b"cos\nsystem\n" + row(text(command)) + b"R"),
        "INST": pickled(b"(" + text(command) + b"ios\nsystem\n"),
        "STACK_GLOBAL": pickle.dumps(Evil(), 4),
        "NEWOBJ": pickled(b"csubprocess\nPopen\n" + row(text(command)) + b"\x81"),
        "protocol 2": pickle.dumps(Evil(), 2),
        "dotted": pickled(
            b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n" + row(text(command)) + b"R"
        ),
    }[how]
    parts = [*HEADER, pickled(STATE), pickle.dumps(["a", "b"], 2)]
    parts[region] = evil
    with pytest.raises(DataError, match="which weights do not need"):
        read(b"".join([*parts, DATA]))
    assert not marker.exists()
    assert pickle.loads(pickle.dumps(Evil(), 2)) == 0  # The evil is real.
    assert marker.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins\neval", "builtins\ngetattr", "torch\nload", "torch\nTensor", "torch.storage\nFloatStorage",
     "collections\ndeque", "numpy\nload", "tfbnood.networks.torch_file\n_Ordered"],
)  # fmt: skip
def test_any_name_but_the_needed_ones_is_refused(read, name):
    with pytest.raises(DataError, match="which weights do not need"):
        read(file_of(f"c{name}\n".encode()))


def test_a_pickle_cannot_change_the_reader(read):
    names = [b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n"]
    states = [
        b"}" + text("__doc__") + text("x") + b"s",
        row(b"N", b"}" + text("__defaults__") + b"Ns"),
    ]
    for name in [*names, b"ctorch\nFloatStorage\n"]:
        for state in states:
            with pytest.raises(DataError):
                read(file_of(name + state + b"b"))
    np.testing.assert_array_equal(read(file_of())["w"], NUMBERS.reshape(3, 4))


BOMBS = {
    "a memo of 2³¹ slots": (text("x") + b"r" + struct.pack("<I", (1 << 31) - 1), "its memo"),
    "a text of 4 GB": (b"X" + struct.pack("<I", (1 << 32) - 1), "cut off"),
    "bytes of 2⁶² bytes": (b"\x8e" + struct.pack("<Q", 1 << 62), "opcode BINBYTES8"),
    "tuples that double": (
        b"}" + text("x") + b"".join(b"q%ch%c\x86" % (i, i) for i in range(1, 100)) + b"Ns",
        "uses a value twice",
    ),
    "tuples that double by another number": (
        b"}" + text("x") + b"".join(b"q%cq%ch%c\x86" % (i, i + 1, i + 1) for i in range(1, 200, 2)) + b"Ns",
        "uses a value twice",
    ),
    "a million tuples in each other": (b"})" + b"\x85" * 1_000_000 + b"Ns", "longer than"),
    "a million lists in each other": (b"]" * 1_000_000 + b"a" * 999_999, "longer than"),
    "a dictionary in itself": (b"}q\x01" + text("x") + b"h\x01s", "uses a value twice"),
    "a copy of the stack": (text("x") + b"2\x86", "opcode DUP"),
    "an extension": (b"\x82\x01", "opcode EXT1"),
    "a buffer": (b"\x97", "opcode NEXT_BUFFER"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), BOMBS.values(), ids=BOMBS)
def test_a_pickle_that_would_exhaust_memory_is_refused_at_once(read, body, reason):
    with pytest.raises(DataError, match=reason):
        read(file_of(body))


def test_the_deepest_tuples_that_pass_the_bound_do_not_crash(read):
    body = b"})" + b"\x85" * torch_file._MAX_TUPLES + b"Ns"
    with pytest.raises(DataError, match="does not hold a dictionary"):
        read(file_of(body))
