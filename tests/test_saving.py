"""A saved detector comes back as it was; kills, full disks and damage leave the old one or one clear error."""

import io
import json
import os
import pathlib
import random
import shutil
import threading
import zipfile

import numpy as np
import pytest
from brought import trained_brought_model
from faults import assert_killed, contents, fill, make_read_only, mounted, run_python

import tfbnood
from tfbnood import saving
from tfbnood._core.files import file_sha256
from tfbnood.errors import DataError, SavedDetectorError, TfbnoodError

SAVED = pathlib.Path(__file__).parent / "saved"


@pytest.fixture(scope="module")
def by_image(brought_model, digits):
    detector = tfbnood.Detector(brought_model, "log_prob", reference=digits.train)
    return detector.calibrate(digits.calibration)


@pytest.fixture(scope="module")
def by_batch(brought_model, digits):
    detector = tfbnood.Detector(brought_model, "bn_delta", reference=digits.train, batch_size=16)
    return detector.calibrate(digits.calibration[:100])


@pytest.fixture(scope="module")
def pixels(digits):
    """A detector without a model: quick to save and load."""
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train[:200])
    return detector.calibrate(digits.calibration[:50])


@pytest.fixture
def saved(pixels, tmp_path):
    pixels.save(tmp_path / "saved")
    return tmp_path / "saved"


def load(folder):
    return tfbnood.Detector.load(folder)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["by_image", "by_batch"])
def test_a_saved_detector_comes_back_with_the_same_scores(kind, request, digits, tmp_path):
    detector = request.getfixturevalue(kind)
    detector.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    images = digits.test[:20]
    np.testing.assert_array_equal(again.p_values(images), detector.p_values(images))
    assert again.test_batch(images) == detector.test_batch(images)
    assert names(tmp_path) == ["saved"]
    assert names(tmp_path / "saved") == ["arrays.npz", "detector.json", "model.keras"]
    detector.save(tmp_path / "saved")  # replaces a detector
    assert json.loads((tmp_path / "saved" / "detector.json").read_text())["versions"]["tfbnood"]


def test_a_detector_loads_in_a_fresh_process(by_batch, digits, tmp_path):
    by_batch.save(tmp_path / "saved")
    code = (
        "import sys, brought, tfbnood\n"
        "detector = tfbnood.Detector.load(sys.argv[1])\n"
        "images = tfbnood.data.load('digits').test[:7]\n"
        "print(*detector.score(images).tolist())\n"
    )
    process = run_python(code, tmp_path / "saved")
    assert process.returncode == 0, process.stderr
    scores = np.array(process.stdout.split(), float)
    np.testing.assert_allclose(scores, by_batch.score(digits.test[:7]), rtol=1e-5)


def test_several_models_are_saved_too(brought_model, digits, tmp_path):
    models = [brought_model, trained_brought_model(digits.train, 1)]
    detector = tfbnood.Detector(models, "waic", reference=digits.train)
    detector.calibrate(digits.calibration[:100]).save(tmp_path / "saved")
    assert {"model_0.keras", "model_1.keras"} < {*names(tmp_path / "saved")}
    again = load(tmp_path / "saved")
    np.testing.assert_array_equal(again.score(digits.test[:5]), detector.score(digits.test[:5]))


def test_a_detector_without_a_model_or_calibration_is_saved_too(digits, tmp_path):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    detector.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert (again.model, again.calibration, again.reference) == (None, None, None)
    np.testing.assert_array_equal(again.score(digits.test[:5]), detector.score(digits.test[:5]))


def test_about_may_hold_all_that_json_has(pixels, tmp_path):
    parts = {"model": None, "statistic": pixels.statistic, "calibration": None}
    about = {"text": "8×8\n", "numbers": [1, 2.5, None, True], 10: "ten", 9: {"b": {}, "a": 0.1}}
    saving.save(tmp_path / "saved", about=about, **parts)
    assert saving.load(tmp_path / "saved").about == json.loads(json.dumps(about))
    before = contents(tmp_path)
    for bad in ({"x": object()}, {"x": "\ud800"}, {1: 1, "a": 2, (3,): 3}):
        with pytest.raises(DataError, match="must be JSON-safe"):
            saving.save(tmp_path / "saved", about=bad, **parts)
    assert contents(tmp_path) == before


def test_detectors_of_format_1_still_load(saved, digits):
    description = json.loads((saved / "detector.json").read_text())
    del description["content_sha256"]
    (saved / "detector.json").write_text(json.dumps({**description, "format": 1}))
    assert len(load(saved).p_values(digits.test[:3])) == 3


def test_a_detector_that_version_0_1_0_saved_scores_as_its_export_did(digits):
    folder = SAVED / "version_0_1_0"  # the detector digits_realnvp that shipped with it
    assert json.loads((folder / "detector.json").read_text())["format"] == 1
    with np.load(folder / "arrays.npz") as arrays:
        assert "statistic/6.weights_" in arrays  # pretext's kernels in one vector
    detector = load(folder)
    images = np.concatenate([digits.test[:20], 255 - digits.test[:10], digits.test[20:30, ::-1]])
    # The answers to these images of the export that shipped with it.
    answers = json.loads((SAVED / "version_0_1_0_answers.json").read_text())
    np.testing.assert_allclose(detector.score(images), answers["score"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(detector.p_values(images), answers["p_value"], rtol=1e-4)


# What hashes find.


def truncate(folder):
    path = folder / "arrays.npz"
    path.write_bytes(path.read_bytes()[:-10])


def edit_arrays(folder):
    path = folder / "arrays.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def write(text):
    return lambda folder: (folder / "detector.json").write_text(text)


def edit(**changes):
    def spoil(folder):
        path = folder / "detector.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncate, "arrays.npz was truncated or edited"),
        (edit_arrays, "arrays.npz was truncated or edited"),
        (lambda folder: (folder / "arrays.npz").unlink(), "arrays.npz is missing"),
        (lambda folder: (folder / "detector.json").unlink(), "must hold a saved detector"),
        (lambda folder: shutil.rmtree(folder), "must hold a saved detector"),
        (write('{"form'), "detector.json cannot be loaded: it is damaged"),
        (write("{}"), "detector.json cannot be loaded: it is damaged"),
        (write("[1]"), "detector.json cannot be loaded: it is damaged"),
        (write("\x00"), "detector.json cannot be loaded: it is damaged"),
        (write("[" * 200_000), "it is damaged .RecursionError"),
        (write(" " * (2**24 + 1)), "it is damaged .ValueError: larger than 16777216 bytes"),
        (
            edit(format=99),
            "has format 99, written by tfbnood .*; this version of tfbnood reads formats 1 to 3",
        ),
        (edit(format="2" * 999), "has format 22222222222222222222, written by"),
        (edit(format=1), "was edited: its hash does not match"),
        (edit(config={"components": 3}), "was edited: its hash does not match"),
        (edit(about={"runs": "others"}), "was edited: its hash does not match"),
    ],
)
def test_a_damaged_edited_or_newer_folder_is_refused_in_one_sentence(saved, spoil, message):
    spoil(saved)
    with pytest.raises(SavedDetectorError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_no_changed_line_of_the_json_goes_unnoticed(saved):
    path = saved / "detector.json"
    lines = path.read_text().splitlines()
    for index, line in enumerate(lines):
        for character in filter(str.isalnum, {line.strip()[:1], *line[-6:]}):
            other = "7" if character != "7" else "8"
            changed = [*lines[:index], line.replace(character, other), *lines[index + 1 :]]
            path.write_text("\n".join(changed))
            with pytest.raises(SavedDetectorError):
                load(saved)


# What hashes do not find: damage with hashes made to fit.


def rehash(folder, **changes):
    path = folder / "detector.json"
    description = {**json.loads(path.read_text()), **changes}
    if "sha256" not in changes:
        description["sha256"] = {
            name: file_sha256(folder / name) for name in names(folder) if name != "detector.json"
        }
    description["content_sha256"] = saving._content_sha256(description)
    path.write_text(json.dumps(description))


def assert_refused(folder, message=None):
    with pytest.raises(SavedDetectorError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def deep(depth=300):
    return {"x": deep(depth - 1)} if depth else {}


@pytest.mark.parametrize("key", sorted(saving._TYPES))
def test_missing_keys_and_wrong_types_are_refused(saved, key):
    original = (saved / "detector.json").read_text()
    for value in (None, 3, -1.5, "x", "x" * 9999, [], [1, "a", None], {}, {"a": 1}, deep(), True):
        (saved / "detector.json").write_text(original)
        if value == json.loads(original)[key] or (key, value) == ("config", {}):
            continue  # Settings that are not there have their defaults.
        rehash(saved, **{key: value})
        if key == "about" and isinstance(value, dict):
            assert load(saved).about == value
        else:
            assert_refused(saved)
    description = json.loads(original)
    del description[key]
    description["content_sha256"] = saving._content_sha256(description)
    (saved / "detector.json").write_text(json.dumps(description))
    assert_refused(saved, key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["../../etc/passwd"]}, r"models must be \['model.keras'\]"),
        ({"models": ["model.keras"]}, "sha256 must be of model.keras, arrays.npz"),
        ({"models": ["x" * 5000]}, "models must be"),
        ({"several_models": True, "models": ["model_1.keras"]}, "models must be"),
        ({"sha256": {"arrays.npz": "0", "../secret": "0"}}, "sha256 must be of arrays.npz"),
        ({"sha256": {"arrays.npz": None}}, "was truncated or edited"),
        ({"statistic": "magic"}, "statistic cannot be restored .statistic must be auto or one of"),
        ({"config": {"colour": 1}}, "statistic cannot be restored .pixel_pca does not take these"),
        ({"statistic": "log_prob", "config": {}}, "statistic cannot be restored"),
        ({"image_shape": [8, 8, 3]}, "image_shape_ is"),
        ({"calibrated": False}, "unknown array 'image_scores/1'"),
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_refused(saved, changes, message):
    rehash(saved, **changes)
    assert_refused(saved, message)


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), **options)
    return file.getvalue()


def headed(text):
    """A member with this header and eight bytes of data."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(8)


MEMBERS = {
    "an object": (npy(np.array([{}], object), allow_pickle=True), "bytes for object of shape"),
    "text": (npy(np.array(["abc"])), "bytes for <U3 of shape"),
    "a structure": (npy(np.zeros(2, "i4,f4")), "of shape"),
    "no array": (b"hello", "magic"),
    "nothing": (b"", "it is damaged"),
    "a cut array": (npy(np.arange(9.0))[:-1], "has 199 bytes for float64 of shape .9,."),
    "a long array": (npy(np.arange(9.0)) + b"x", "has 201 bytes"),
    "a huge shape": (
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }\n"),
        "float64 of shape .999999999999,.",
    ),
    "a negative shape": (
        headed("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }\n"),
        "of shape",
    ),
    "code": (headed("__import__('os').abort()\n"), "it is damaged"),
    "a bad type": (headed("{'descr': 7, 'fortran_order': False, 'shape': (1,), }\n"), "descr"),
    "deep brackets": (headed("(" * 5000), "it is damaged"),
    "a long header": (headed(" " * 60_000 + "{}"), "it is damaged"),
    "another version": (b"\x93NUMPY\x09\x00" + bytes(99), "it is damaged"),
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_member_that_is_no_array_of_numbers_is_refused(saved, kind):
    data, message = MEMBERS[kind]
    with zipfile.ZipFile(saved / "arrays.npz", "a") as archive:
        archive.writestr("statistic/more_.npy", data)
    rehash(saved)
    assert_refused(saved, message)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("score", np.zeros(3), "unknown array 'score'"),
        ("statistic/score", np.zeros(3), "pixel_pca has no 'score'"),
        ("statistic/_score", np.zeros(3), "pixel_pca has no '_score'"),
        ("x" * 9999, np.zeros(3), "unknown array"),
        ("../../etc/passwd", np.zeros(3), "unknown array"),
        ("image_scores/0", np.zeros(3), "single images are missing"),
        ("image_scores/many", np.zeros(3), "invalid literal"),
        ("image_scores/2", np.zeros((3, 3)), "must be sorted numbers"),
        ("image_scores/2", np.zeros(0), "must be sorted numbers"),
        ("image_scores/2", np.array([2.0, 1.0]), "must be sorted numbers"),
        ("image_scores/2", np.array([1.0, np.nan]), "must be sorted numbers"),
        ("image_scores/2", np.array([1.0, np.inf]), "must be finite"),
        ("batch_scores/2", np.array([1.0, 2.0]), "are of different sizes"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_unknown_and_unfit_members_are_refused(saved, name, array, message):
    with zipfile.ZipFile(saved / "arrays.npz", "a") as archive:
        archive.writestr(f"{name}.npy", npy(array))
    rehash(saved)
    assert_refused(saved, message)


def test_a_member_that_is_there_twice_is_refused(saved):
    with zipfile.ZipFile(saved / "arrays.npz", "a") as archive:
        archive.writestr("statistic/mean_", archive.read("statistic/mean_.npy"))
    rehash(saved)
    assert_refused(saved, "a name occurs twice")


@pytest.mark.parametrize("name", ["arrays.npz", "model.keras"])
def test_an_archive_that_would_fill_the_memory_is_refused_before_it_is_unpacked(
    by_image, tmp_path, name
):
    by_image.save(tmp_path / "saved")
    with zipfile.ZipFile(tmp_path / "saved" / name, "a") as archive:
        archive.writestr("statistic/more_.npy", npy(np.zeros(8)))
        archive.infolist()[-1].file_size = 4 * 2**30  # all that is looked at before unpacking
    rehash(tmp_path / "saved")
    assert_refused(tmp_path / "saved", f"{name} must unpack to at most 2147483648 bytes")


def test_a_member_larger_than_it_says_is_not_unpacked_further(saved):
    with zipfile.ZipFile(saved / "arrays.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        array = npy(np.zeros(4))
        archive.writestr("statistic/more_.npy", array + bytes(50_000_000))
        archive.infolist()[-1].file_size = len(array)
    rehash(saved)
    assert_refused(saved, "Bad CRC-32")


def test_no_damage_of_an_archive_gives_another_kind_of_error(saved):
    path, numbers = saved / "arrays.npz", random.Random(0)
    content = path.read_bytes()
    cuts = [content[: numbers.randrange(len(content))] for _ in range(50)]
    messages = []
    for data in (*cuts, *(spoilt(content, numbers) for _ in range(300))):
        path.write_bytes(data)
        rehash(saved)
        try:
            load(saved)  # A flip in a time stamp does not matter.
        except SavedDetectorError as error:
            messages.append(str(error))
    assert len(messages) > 250
    assert "\n" not in "".join(messages)


def spoilt(content, numbers):
    data = bytearray(content)
    # Where the structure is: headers at the start of members, and the directory at the end.
    for _ in range(numbers.randint(1, 4)):
        place = numbers.choice([numbers.randrange(len(data)), -numbers.randrange(1, 400)])
        data[place] = numbers.randrange(256)
    return data


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06" + bytes(18), b"x" * 100, "cut"])
def test_a_damaged_model_is_refused(by_image, tmp_path, data):
    by_image.save(tmp_path / "saved")
    path = tmp_path / "saved" / "model.keras"
    path.write_bytes(path.read_bytes()[:-10] if data == "cut" else data)
    rehash(tmp_path / "saved")
    assert_refused(tmp_path / "saved", "model.keras cannot be loaded")


# Places, kills and disks.


def test_saving_over_something_else_is_refused(pixels, saved, tmp_path):
    (tmp_path / "precious").mkdir()
    with pytest.raises(DataError, match="folder must be new, or hold a detector to replace"):
        pixels.save(tmp_path / "precious")
    with pytest.raises(SavedDetectorError, match="must hold a saved detector"):
        load(tmp_path / "precious")
    (saved / "notes.txt").write_text("precious")
    with pytest.raises(DataError, match=r"and nothing else\. Received: .*, with notes\.txt"):
        pixels.save(saved)
    with pytest.raises(DataError, match="folder must be new"):
        pixels.save(saved / "notes.txt")
    assert (saved / "notes.txt").read_text() == "precious"


KILLED = """
import os, pathlib, signal, sys
import numpy as np
import tfbnood
from tfbnood._core import files

detector = tfbnood.Detector(None, "pixel_pca", reference=np.zeros((9, 8, 8, 1), np.uint8))
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
%s
detector.save(sys.argv[1])
"""
WHERE = {
    "while it is written": "np.savez_compressed = die",
    "between the two renames": """
rename = pathlib.Path.rename
def rename_and_die(path, target):
    rename(path, target)
    die()
pathlib.Path.rename = rename_and_die
""",
}


@pytest.mark.parametrize("where", WHERE)
def test_a_kill_leaves_the_old_detector_and_the_next_save_removes_the_rest(
    pixels, saved, digits, where
):
    expected = pixels.score(digits.test[:3])
    before = contents(saved)
    assert_killed(run_python(KILLED % WHERE[where], saved))
    left = names(saved.parent)
    assert len(left) == (1 if where == "between the two renames" else 2)
    assert left[0].startswith(".partial-")
    np.testing.assert_array_equal(load(saved).score(digits.test[:3]), expected)
    assert contents(saved) == before
    pixels.save(saved)
    assert names(saved.parent) == ["saved"]
    np.testing.assert_array_equal(load(saved).score(digits.test[:3]), expected)


def test_threads_may_save_into_one_folder(pixels, saved, digits):
    threads = [
        threading.Thread(target=lambda: [pixels.save(saved) for _ in range(5)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(saved.parent) == ["saved"]
    assert len(load(saved).score(digits.test[:2])) == 2


@pytest.mark.parametrize("kind", ["pixels", "by_image"])
@pytest.mark.parametrize("leave", [0, 4096])
def test_a_full_disk_is_one_line_and_the_old_detector_stays(kind, leave, request, tmp_path):
    detector = request.getfixturevalue(kind)
    with mounted(tmp_path / "disk", "size=1m") as disk:
        detector.save(disk / "saved")
        before = contents(disk / "saved")
        fill(disk, leave)
        with pytest.raises(
            TfbnoodError, match=r"saved cannot be written \(No space left"
        ) as caught:
            detector.save(disk / "saved")
        assert "\n" not in str(caught.value)
        assert contents(disk / "saved") == before
        assert names(disk) == ["filling", "saved"]
        load(disk / "saved")


def test_a_file_that_may_not_grow_is_one_line(saved):
    code = KILLED % "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))"
    before = contents(saved)
    process = run_python(code, saved)
    last = process.stderr.splitlines()[-1]
    assert last == f"tfbnood.errors.TfbnoodError: {saved} cannot be written (File too large)"
    assert contents(saved.parent) == {f"saved/{name}": data for name, data in before.items()}


def test_a_read_only_disk_is_one_line_and_loads(pixels, tmp_path):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        pixels.save(disk / "saved")
        make_read_only(disk)
        for name in ("saved", "new"):
            with pytest.raises(TfbnoodError, match=r"cannot be written \(Read-only file system\)"):
                pixels.save(disk / name)
        assert load(disk / "saved").image_shape == (8, 8, 1)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_one_line(saved):
    saved.chmod(0)
    assert_refused(saved, "Permission denied")
    saved.chmod(0o700)
