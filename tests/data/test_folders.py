"""A folder is read whole or in chunks, in one order, with every conversion counted and every bad file named."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tfbnood import data
from tfbnood.data import folders
from tfbnood.data.folders import (
    UnreadableFilesError,
    from_folder,
    iterate_files,
    iterate_folder,
    walk,
)
from tfbnood.data.survey import FolderSurvey, survey
from tfbnood.errors import DataError

DIGITS = np.rint(load_digits().images[..., None] * 255 / 16).astype(np.uint8)
ORIGINALS = Path(os.environ.get("TFBNOOD_DATA", ""), "originals")

needs_originals = pytest.mark.skipif(
    not ORIGINALS.is_dir(), reason="needs originals/ in the folder that TFBNOOD_DATA names"
)


def save(path: Path, image: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """b/0.png, b/1.PNG, a/2.png, 3.jpg: real digits, and a file that is no image by name."""
    for index, name in enumerate(["b/0.png", "b/1.PNG", "a/2.png"]):
        save(tmp_path / name, DIGITS[index])
    save(tmp_path / "3.jpg", DIGITS[3], quality=100)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


@pytest.fixture
def damaged(folder):
    """The same with four files that cannot be read."""
    tiled = np.tile(DIGITS[0], (8, 8, 1))
    (folder / "a" / "bad.png").write_bytes(b"no image")
    for name in ("cut.jpg", "cut.png"):
        content = save(folder / name, tiled).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    (folder / "empty.png").write_bytes(b"")
    return folder


def names(paths, folder) -> list[str]:
    return [str(path.relative_to(folder)) for path in paths]


# Whole


def test_a_folder_is_read_in_sorted_order_and_png_values_are_kept(folder):
    read = from_folder(folder, (8, 8, 1))
    assert names(read.paths, folder) == ["3.jpg", "a/2.png", "b/0.png", "b/1.PNG"]
    np.testing.assert_array_equal(read.images[1:], DIGITS[[2, 0, 1]])
    assert np.abs(read.images[0].astype(int) - DIGITS[3]).max() <= 1  # JPEG at its best
    assert read.images.dtype == np.uint8
    assert read.skipped == ()


def test_files_that_fit_have_the_values_of_earlier_versions(tmp_path):
    # They were decoded by the graph of exports.
    random = np.random.RandomState(0)
    for index in range(6):
        pixels = random.randint(0, 256, (24, 20, 1 if index % 2 else 3)).astype(np.uint8)
        save(tmp_path / f"{index}.{'png' if index < 3 else 'jpg'}", pixels)
    for channels in (1, 3):
        read = from_folder(tmp_path, (24, 20, channels))
        for path, image in zip(read.paths, read.images, strict=True):
            expected = data.decode_image(path.read_bytes(), (24, 20, channels))
            np.testing.assert_array_equal(image, expected)


def test_a_folder_is_read_without_tensorflow(folder):
    code = (
        "import sys, tfbnood.data as d; "
        f"d.from_folder({str(folder)!r}, (8, 8, 1)); d.load({str(folder)!r}); "
        "sys.exit(any(m.startswith('tensorflow') for m in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unreadable_files_are_all_named_or_skipped_on_request(damaged):
    unreadable = (
        r"a/bad\.png \(not an image of a known format\), cut\.jpg \(truncated\), cut\.png \(truncated\), "
        r"empty\.png \(empty\)$"
    )
    with pytest.raises(
        UnreadableFilesError, match=rf"skip_unreadable=True.*4 of 8 unreadable: {unreadable}"
    ) as caught:
        from_folder(damaged, (8, 8, 1))
    assert names((path for path, _ in caught.value.files), damaged) == [
        *("a/bad.png", "cut.jpg", "cut.png", "empty.png")
    ]
    assert caught.value.files[1][1] == "truncated"
    assert (caught.value.folder, caught.value.of) == (damaged, 8)
    with pytest.warns(UserWarning, match=rf"skipped 4 unreadable files in .*: {unreadable}"):
        read = from_folder(damaged, (8, 8, 1), skip_unreadable=True)
    assert [path.name for path in read.skipped] == ["bad.png", "cut.jpg", "cut.png", "empty.png"]
    assert len(read.images) == len(read.paths) == len(read.conversions) == 4
    np.testing.assert_array_equal(read.images[1], DIGITS[2])
    assert read.summary.skipped["truncated"] == 2
    assert sum(read.summary.skipped.values()) == 4


def test_at_most_ten_unreadable_files_are_named(tmp_path):
    for index in range(25):
        (tmp_path / f"{index:02}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"25 of 25 unreadable: 00\.png .*09\.png .* and 15 more$"):
        from_folder(tmp_path, (8, 8, 1))


def test_a_folder_of_unreadable_files_only_is_an_error_even_when_skipping(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    for read in (from_folder, lambda *args, **kwargs: list(iterate_folder(*args, **kwargs))):
        with pytest.raises(DataError, match=r"readable images\. Received: 1 of 1 unreadable: bad"):
            read(tmp_path, (8, 8, 1), skip_unreadable=True)


def test_a_folder_without_images_or_not_there_is_named(tmp_path):
    (tmp_path / "x.heic").write_bytes(b"")
    for read in (
        from_folder,
        lambda *args: next(iterate_folder(*args)),
        lambda path, _: survey(path),
    ):
        with pytest.raises(
            DataError, match=r"folder must hold image files \(\.png, .*with 1 \.heic"
        ):
            read(tmp_path, (8, 8, 1))
        with pytest.raises(DataError, match=r"folder must be an existing folder.*gone"):
            read(tmp_path / "gone", (8, 8, 1))


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 2), (0, 8, 1), (8.0, 8, 1), 8, None])
def test_an_image_shape_that_is_none_is_named(tmp_path, shape):
    for read in (from_folder, iterate_folder):
        with pytest.raises(DataError, match=r"image_shape must be \(height, width, channels\)"):
            read(tmp_path, shape)


def test_bad_options_are_named(folder):
    for read in (from_folder, iterate_folder, iterate_files):
        with pytest.raises(DataError, match=r"fit must be one of crop, pad, stretch"):
            read(folder, (8, 8, 1), fit="zoom")
    with pytest.raises(DataError, match=r"chunk must be an integer of at least 1"):
        iterate_folder(folder, (8, 8, 1), chunk=0)


def test_conversions_are_counted_and_shown(folder):
    save(folder / "wide.png", np.tile(DIGITS[4], (1, 2, 1)))
    save(folder / "photo.bmp", np.repeat(DIGITS[5], 3, -1))
    (folder / "phone.heic").write_bytes(b"")
    read = from_folder(folder, (8, 8, 1))
    assert read.summary.files == 6
    assert read.summary.formats == {"PNG": 4, "BMP": 1, "JPEG": 1}
    assert read.summary.kinds == {"cropped": 1, "colour_to_grey": 1}
    assert read.summary.ignored == {".heic": 1}
    assert repr(read).startswith("<FolderImages: 6 images of 8×8×1. 1 of 6 files was cropped")
    assert len(from_folder(folder, (8, 8, 1), fit="stretch").summary.sizes) == 1


@needs_originals
def test_real_folders_are_read_with_every_conversion_counted():
    scenes = from_folder(ORIGINALS / "scenes", (128, 128, 3)).summary
    assert (scenes.files, scenes.formats) == (14, {"JPEG": 14})
    # Eight are less than 150 high, all of them by more than 1 %, four of them below 128 rows.
    assert scenes.kinds == {"resized": 14, "enlarged": 5, "cropped": 8}
    assert scenes.sizes["150×150"] == 6
    screws = from_folder(ORIGINALS / "screw", (128, 128, 1)).summary
    assert (screws.kinds, screws.sizes) == ({"resized": 8}, {"1024×1024": 8})


# Order


def test_the_order_is_that_of_sorted_paths(tmp_path):
    made = ["a.png", "a/b.png", "a/b/c.png", "a b.png", "A.png", "ä.png", "a-b/x.png", "a.b/x.png"]
    made = [*made, "z/1.png", "z/10.png", "z/2.jpeg", ".hidden/x.gif", ".hidden.png", "10.TIF"]
    for name in made:
        save(tmp_path / name.lower().replace("a.png", "A.png"), DIGITS[0])
    (tmp_path / "folder.png").mkdir()
    save(tmp_path / "folder.png" / "inner.webp", DIGITS[0])
    expected = sorted(
        path
        for path in tmp_path.rglob("*")
        if path.suffix.lower() in folders.ALL_SUFFIXES and path.is_file()
    )
    assert len(expected) >= len(made)
    assert list(walk(tmp_path)) == expected
    assert list(from_folder(tmp_path, (8, 8, 1)).paths) == expected


def test_links_to_files_are_read_and_links_to_folders_are_not_followed(folder, tmp_path):
    (folder / "b" / "up").symlink_to(folder, target_is_directory=True)
    (folder / "link.png").symlink_to(folder / "b" / "0.png")
    (folder / "broken.png").symlink_to(folder / "nothing.png")
    assert names(walk(folder), folder) == ["3.jpg", "a/2.png", "b/0.png", "b/1.PNG", "link.png"]


def test_a_folder_that_cannot_be_opened_is_named(folder, monkeypatch):
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for read in (from_folder, lambda *args: list(iterate_folder(*args))):
        with pytest.raises(DataError, match=r"1 of 3 unreadable: b \(permission denied\)"):
            read(folder, (8, 8, 1))
    with pytest.warns(UserWarning, match=r"skipped 1 unreadable files"):
        assert len(from_folder(folder, (8, 8, 1), skip_unreadable=True).images) == 2
    (chunk,) = iterate_folder(folder, (8, 8, 1), skip_unreadable=True)
    assert names((path for path, _ in chunk.unreadable), folder) == ["b"]


# In chunks


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 64])
def test_chunks_hold_the_images_of_the_whole_folder_in_its_order(folder, chunk):
    whole = from_folder(folder, (8, 8, 3))
    chunks = list(iterate_folder(folder, (8, 8, 3), chunk=chunk))
    assert [len(one.images) for one in chunks[:-1]] == [chunk] * (len(chunks) - 1)
    assert sum((one.paths for one in chunks), ()) == whole.paths
    assert sum((one.conversions for one in chunks), ()) == whole.conversions
    np.testing.assert_array_equal(np.concatenate([one.images for one in chunks]), whole.images)


@pytest.mark.parametrize("chunk", [1, 2, 4, 64])
def test_unreadable_files_come_with_their_chunk_and_never_make_an_empty_one(damaged, chunk):
    chunks = list(iterate_folder(damaged, (8, 8, 1), chunk=chunk, skip_unreadable=True))
    assert all(len(one.images) == len(one.paths) > 0 for one in chunks)
    assert sum(len(one.images) for one in chunks) == 4
    unreadable = sum((one.unreadable for one in chunks), ())
    assert names((path for path, _ in unreadable), damaged) == [
        *("a/bad.png", "cut.jpg", "cut.png", "empty.png")
    ]
    with pytest.raises(
        UnreadableFilesError, match=r"skip_unreadable=True leaves them out.*bad\.png"
    ):
        list(iterate_folder(damaged, (8, 8, 1), chunk=chunk))


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_the_summaries_of_chunks_add_up_to_that_of_the_folder(damaged, chunk):
    (damaged / "a" / "phone.heic").write_bytes(b"")
    (damaged / "z.avif").write_bytes(b"")
    save(damaged / "wide.png", np.tile(DIGITS[4], (2, 4, 1)))
    with pytest.warns(UserWarning, match="skipped 4"):
        whole = from_folder(damaged, (8, 8, 1), skip_unreadable=True).summary
    chunks = iterate_folder(damaged, (8, 8, 1), chunk=chunk, skip_unreadable=True)
    first, *others = (one.summary for one in chunks)
    assert sum(others, first) == whole
    assert whole.ignored == {".avif": 1, ".heic": 1}


def test_files_are_read_in_the_order_given(damaged):
    wanted = [damaged / name for name in ("b/1.PNG", "3.jpg", "a/2.png")]
    shutil.copy(damaged / "b" / "0.png", damaged / "no suffix")
    chunks = list(iterate_files(map(str, [*wanted, damaged / "no suffix"]), (8, 8, 1), chunk=3))
    assert [len(one.images) for one in chunks] == [3, 1]
    assert chunks[0].paths == tuple(wanted)
    np.testing.assert_array_equal(chunks[0].images[[0, 2]], DIGITS[[1, 2]])
    np.testing.assert_array_equal(chunks[1].images, DIGITS[:1])
    bad = [*wanted, damaged / "empty.png"]
    message = (
        rf"^files must be readable images; skip_un.*1 of 4 unreadable: {damaged}/empty\.png \(e"
    )
    with pytest.raises(UnreadableFilesError, match=message) as caught:
        list(iterate_files(bad, (8, 8, 1)))
    assert caught.value.folder is None
    (chunk,) = iterate_files(bad, (8, 8, 1), skip_unreadable=True)
    assert chunk.unreadable == ((damaged / "empty.png", "empty"),)
    with pytest.raises(UnreadableFilesError, match=r"images\. Received: 1 of 1 unreadable"):
        list(iterate_files(bad[-1:], (8, 8, 1), skip_unreadable=True))
    with pytest.raises(DataError, match=r"files must hold at least one path\. Received: none"):
        list(iterate_files([], (8, 8, 1)))


def test_the_first_images_come_before_other_folders_are_listed(tmp_path, monkeypatch):
    for index in range(30):
        save(tmp_path / f"{index:02}" / "x.png", DIGITS[index])
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    chunks = iterate_folder(tmp_path, (8, 8, 1), chunk=2)
    assert listed == []
    np.testing.assert_array_equal(next(chunks).images, DIGITS[:2])
    assert len(listed) <= 1 + 3 * 2 + 2
    chunks.close()
    assert len(listed) < 15


def test_files_are_decoded_while_the_caller_works_and_no_more_than_two_chunks_ahead(
    tmp_path, monkeypatch
):
    for index in range(40):
        save(tmp_path / f"{index:02}.png", DIGITS[index])
    read_image, read = folders.read_image, []

    def recorded(path, *args, **kwargs):
        read.append((path.name, threading.current_thread()))
        return read_image(path, *args, **kwargs)

    monkeypatch.setattr(folders, "read_image", recorded)
    chunks = iterate_folder(tmp_path, (8, 8, 1), chunk=4)
    next(chunks)
    deadline = time.monotonic() + 60
    while len(read) < 12 and time.monotonic() < deadline:  # the caller's work
        time.sleep(0.01)
    assert 12 <= len(read) <= 14  # 4 here, 8 ahead, 1 that ended the chunk
    assert threading.current_thread() not in {thread for _, thread in read}
    chunks.close()
    assert len(read) <= 14


def test_memory_does_not_grow_with_the_number_of_files(tmp_path):
    photo = np.zeros((64, 64, 3), np.uint8)
    for index in range(300):
        save(tmp_path / f"{index % 20}" / f"{index}.png", photo, compress_level=1)

    def once(files: int) -> int:
        tracemalloc.start()
        count = 0
        for chunk in iterate_folder(tmp_path, (64, 64, 3), chunk=8):
            count += len(chunk.images)
            if count >= files:
                break
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    def peak(files: int) -> int:
        # Of several: now and then the table of Python's interned names, which has those of paths, is enlarged.
        return min(once(files) for _ in range(3))

    once(50)  # and import what is needed
    assert peak(300) < 1.3 * peak(100)
    assert peak(300) < 300 * photo.nbytes / 4


# Surveys


def test_a_survey_reads_sizes_channels_and_formats_from_headers(folder):
    save(folder / "wide.webp", np.zeros((8, 16, 3), np.uint8))
    (folder / "bad.png").write_bytes(b"no image")
    found = survey(folder)
    assert found == FolderSurvey(
        files=6,
        sizes={(8, 8): 4, (8, 16): 1},
        formats={"PNG": 3, "JPEG": 1, "WEBP": 1},
        grey=4,
        unreadable=1,
    )
    (folder / "only").mkdir()
    (folder / "bad.png").rename(folder / "only" / "bad.png")
    with pytest.raises(UnreadableFilesError, match=r"1 of 1 unreadable: bad\.png"):
        survey(folder / "only")


@needs_originals
def test_a_survey_of_real_folders_suggests_a_shape():
    assert survey(ORIGINALS / "screw").image_shape == (128, 128, 1)
    scenes = survey(ORIGINALS / "scenes")
    assert scenes.sizes[150, 150] == 6
    ratios = [
        width / height for height, width in scenes.sizes for _ in range(scenes.sizes[height, width])
    ]
    height = 4 * round(128 / np.prod(ratios) ** (1 / 14) / 4)
    assert height == 112
    # Two in fourteen are only 108 and 110 high.
    assert scenes.image_shape == (108, 128, 3)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({(28, 28): 9}, (28, 28)),
        ({(96, 96): 9}, (96, 96)),
        ({(150, 150): 9}, (128, 128)),
        ({(480, 640): 9}, (96, 128)),
        ({(480, 640): 5, (640, 480): 5}, (128, 128)),
        ({(30, 30): 9}, (28, 28)),  # divisible by 4, and nothing enlarged
        ({(75, 100): 9}, (72, 100)),
        ({(1000, 1000): 19, (10, 10): 1}, (128, 128)),  # one in twenty may be enlarged
        ({(1000, 1000): 8, (40, 40): 2}, (40, 40)),
        ({(3000, 10): 2}, (128, 4)),
        ({(2, 3): 1}, (4, 4)),
    ],
)
def test_the_suggested_size_follows_its_rule(sizes, expected):
    found = FolderSurvey(sum(sizes.values()), sizes, {}, grey=0)
    assert found.image_shape == (*expected, 3)
    grey = FolderSurvey(sum(sizes.values()), sizes, {}, grey=sum(sizes.values()))
    assert grey.image_shape == (*expected, 1)


def test_the_largest_side_and_its_divisor_are_the_callers():
    found = FolderSurvey(9, {(480, 640): 9}, {}, grey=0)
    assert found.suggest(largest=32) == (24, 32, 3)
    assert found.suggest(largest=30, multiple=8) == (24, 24, 3)
    assert found.suggest(largest=1000, multiple=1) == (480, 640, 3)
    with pytest.raises(DataError, match=r"largest must be an integer of at least 8"):
        found.suggest(largest=4, multiple=8)


def test_a_survey_samples_evenly_by_its_seed(tmp_path):
    for index in range(60):
        save(tmp_path / f"{index:02}.png", np.zeros((8, index + 1, 1), np.uint8))
    some = survey(tmp_path, most=20)
    assert (some.files, sum(some.sizes.values())) == (60, 20)
    assert some == survey(tmp_path, most=20)
    assert some != survey(tmp_path, most=20, seed=1)
    widths = [
        width for seed in range(30) for _, width in survey(tmp_path, most=20, seed=seed).sizes
    ]
    assert abs(np.mean(widths) - 30.5) < 4 * 17.3 / np.sqrt(len(widths))
    with pytest.raises(DataError, match=r"most must be an integer of at least 1"):
        survey(tmp_path, most=0)


# As data sets


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder of 60 different digits, in two subfolders, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for index in range(60):
        save(tmp_path / "mine" / str(index % 2) / f"{index}.png", DIGITS[index])
    return tmp_path / "mine"


@pytest.mark.parametrize("name", ["mine", "./mine", "mine/", "../{parent}/mine", Path("mine")])
def test_the_path_of_a_folder_is_a_data_set(mine, name):
    if isinstance(name, str):
        name = name.format(parent=mine.parent.name)
    loaded = data.load(name)
    assert (len(loaded.train), len(loaded.calibration), len(loaded.test)) == (39, 15, 6)
    assert loaded.image_shape == (8, 8, 1)
    assert loaded.train_labels is None
    assert loaded.files.formats == {"PNG": 60}
    everything = np.concatenate([loaded.train, loaded.calibration, loaded.test])
    assert sorted(map(bytes, everything)) == sorted(map(bytes, DIGITS[:60]))
    assert loaded.name == str(name)
    again = data.load(mine)
    np.testing.assert_array_equal(again.train, loaded.train)
    np.testing.assert_array_equal(again.calibration, loaded.calibration)


def test_the_split_of_a_folder_is_pinned(mine):
    # Another rule would leak images that a detector was trained on into its calibration.
    loaded = data.load(mine)
    names = [f"{index % 2}/{index}.png" for index in range(60)]
    order = sorted(range(60), key=lambda index: hashlib.sha256(names[index].encode()).digest())
    assert order[:6] == [5, 13, 46, 21, 51, 6]
    np.testing.assert_array_equal(loaded.test, DIGITS[order[:6]])
    np.testing.assert_array_equal(loaded.calibration, DIGITS[order[6:21]])
    np.testing.assert_array_equal(loaded.train, DIGITS[order[21:]])


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (3, (1, 1, 1)),
        (4, (2, 1, 1)),
        (40, (26, 10, 4)),
        (395, (258, 98, 39)),
        (396, (258, 99, 39)),
        (600, (390, 150, 60)),
        (1797, (1418, 200, 179)),
    ],
)
def test_an_npz_file_is_split_by_the_same_rule(tmp_path, n, sizes):
    np.savez(tmp_path / "own.npz", images=DIGITS[:n], labels=np.arange(n))
    loaded = data.load(tmp_path / "own.npz")
    assert (len(loaded.train), len(loaded.calibration), len(loaded.test)) == sizes
    labels = [loaded.train_labels, loaded.calibration_labels, loaded.test_labels]
    assert sorted(np.concatenate(labels).tolist()) == list(range(n))
    np.testing.assert_array_equal(loaded.test, DIGITS[loaded.test_labels])
    assert loaded.files is None
    # By name, the same file is split as ever.
    named = data.load("own", data_dir=tmp_path)
    assert len(named.test) == n // 2


def test_subfolders_train_and_test_are_the_splits(mine):
    for index in range(60, 80):
        save(mine / "test" / f"{index}.png", DIGITS[index])
    for index in range(80, 280):
        save(mine / "train" / "deeper" / f"{index}.png", DIGITS[index])
    loaded = data.load(mine)
    np.testing.assert_array_equal(loaded.test, DIGITS[60:80])
    assert (len(loaded.train), len(loaded.calibration)) == (150, 50)
    held = set(map(bytes, np.concatenate([loaded.train, loaded.calibration])))
    assert held == set(map(bytes, DIGITS[80:280]))
    assert loaded.files.files == 200
    assert loaded.source == f"{mine / 'train'}, {mine / 'test'}"


def test_a_split_without_its_subfolder_is_named(mine):
    (mine / "1").rename(mine / "train")
    loaded = data.load(mine)
    assert (len(loaded.train), len(loaded.calibration)) == (23, 7)
    with pytest.raises(DataError, match=r"mine has no test images: found none below .*test"):
        _ = loaded.test
    (mine / "train").rename(mine / "test")
    with pytest.raises(DataError, match=r"has no calibration images.*below .*train"):
        _ = data.load(mine).calibration
    (mine / "train").mkdir()  # empty, as good as none
    assert list(data.load(mine).splits) == ["test"]


def test_files_that_are_added_leave_nearly_all_others_in_their_split(mine):
    before = data.load(mine)
    for index in range(60, 72):
        save(mine / "0" / f"{index}.png", DIGITS[index])
    after = data.load(mine)
    trained = set(map(bytes, before.train))
    leaked = sum(bytes(image) in trained for image in after.calibration)
    assert len(after.calibration) == 18
    assert leaked <= 3


def test_a_known_name_is_not_taken_for_a_folder(mine, tmp_path, monkeypatch):
    monkeypatch.delenv("TFBNOOD_DATA", raising=False)
    mine.rename(tmp_path / "digits")
    assert len(data.load("digits").train) == 1100
    assert len(data.load("./digits").train) == 39
    (tmp_path / "digits").rename(tmp_path / "own")
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "own.npz", images=DIGITS[:100])
    assert len(data.load("own", data_dir=tmp_path / "npz").test) == 50
    assert len(data.load("own").test) == 6


def test_a_data_set_has_the_shape_that_is_asked_for(mine):
    assert data.load(mine, image_shape=(4, 4, 3)).train.shape == (39, 4, 4, 3)
    np.savez(mine / "own.npz", images=DIGITS[:40])
    assert data.load(mine / "own.npz", image_shape=(8, 8, 1)).image_shape == (8, 8, 1)
    for name in (mine / "own.npz", "digits"):
        with pytest.raises(
            DataError, match=r"image_shape must be \(8, 8, 1\), the shape of the images"
        ):
            data.load(name, image_shape=(4, 4, 1))


def test_an_unreadable_file_of_a_data_set_is_named_or_skipped(mine):
    (mine / "x.png").write_bytes(b"")
    with pytest.raises(UnreadableFilesError, match=r"1 of 61 unreadable: x\.png \(empty\)"):
        data.load(mine)
    with pytest.warns(UserWarning, match=r"skipped 1 unreadable"):
        assert len(data.load(mine, skip_unreadable=True).test) == 6


def test_too_few_files_are_named(tmp_path):
    for index in range(2):
        save(tmp_path / f"{index}.png", DIGITS[index])
    with pytest.raises(DataError, match=r"must have at least two training images"):
        data.load(tmp_path)
    (tmp_path / "0.png").rename(tmp_path / "x.txt")
    (tmp_path / "1.png").unlink()
    with pytest.raises(DataError, match=r"folder must hold image files"):
        data.load(tmp_path)


def test_describe_takes_paths(mine):
    assert "39 train, 15 calibration, 6 test" in data.describe(["./mine"])


def test_paths_that_are_neither_are_named(tmp_path):
    (tmp_path / "x.png").write_bytes(b"")
    for path, end in ((tmp_path / "x.png", r"x\.png'$"), (tmp_path / "no.npz", "does not exist$")):
        with pytest.raises(
            DataError, match=rf"name must be the name of a data set, or the path.*{end}"
        ):
            data.load(path)
