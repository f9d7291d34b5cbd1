"""An exported detector that loads in half a second, and real files for it. Without Beam the tests are skipped."""

import importlib.util
import shutil

import numpy as np
import pytest
from PIL import Image

# Needs no Beam.
_ALWAYS = "test_missing.py"


class _Skipped(pytest.Module):
    """A file of tests that cannot be imported without Beam."""

    def collect(self):
        pytest.skip(
            'Apache Beam is not installed; run pip install "tfbnood[beam]"', allow_module_level=True
        )


def pytest_pycollect_makemodule(module_path, parent):
    """Skips files before they are imported."""
    here = all(map(importlib.util.find_spec, ("apache_beam", "google_crc32c", "pyarrow")))
    if here or module_path.name == _ALWAYS:
        return None
    return _Skipped.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def pixel_detector(brought_model, digits):
    """A detector whose graph is small, of a model with batch normalisation."""
    from tfbnood import Detector

    made = Detector(brought_model, "pixel_pca", reference=digits.train)
    return made.calibrate(digits.calibration)


@pytest.fixture(scope="session")
def base(pixel_detector, digits, tmp_path_factory):
    """A model base with one version."""
    base = tmp_path_factory.mktemp("served") / "digits"
    pixel_detector.export(base, fpr=0.05, held_out=digits.calibration)
    return base


@pytest.fixture(scope="session")
def clustered(digits, tmp_path_factory):
    """A detector without a likelihood, calibrated within clusters, and its export with certified alarms."""
    from tfbnood import Detector

    made = Detector(None, "pixel_pca", reference=digits.train)
    made.calibrate(digits.calibration, clusters=3)
    base = tmp_path_factory.mktemp("served") / "clustered"
    made.export(base, fpr=0.1, confidence=0.9)
    return made, base


@pytest.fixture(scope="session")
def two_versions(base, tmp_path_factory):
    """A model base with the versions 9 and 10, which say the same."""
    copy = tmp_path_factory.mktemp("served") / "two"
    for version in ("9", "10"):
        shutil.copytree(base / "1", copy / version)
    return copy


@pytest.fixture(scope="session")
def photos(digits, tmp_path_factory):
    """Files as they come: sizes, formats and cameras differ; those of cam2 are inverted."""
    folder = tmp_path_factory.mktemp("photos")
    for index, image in enumerate(digits.test[:90]):
        camera = folder / f"cam{index // 30}"
        camera.mkdir(exist_ok=True)
        picture = Image.fromarray((255 - image if index >= 60 else image)[..., 0])
        if index % 3 == 1:  # The wide ones are cropped.
            size = (24, 16) if index >= 60 else (16, 16)
            picture.resize(size, 0).save(camera / f"{index:02}.jpg", quality=95)
        elif index % 3 == 2:
            picture.convert("RGB").save(camera / f"{index:02}.webp", lossless=True)
        else:
            picture.save(camera / f"{index:02}.png")
    (folder / "notes.txt").write_text("not an image, and not named like one")
    return folder


@pytest.fixture(scope="session")
def in_process(pixel_detector, photos):
    """Score and p-value of each photo by the detector itself."""
    from tfbnood.data import from_folder

    found = from_folder(photos, (8, 8, 1), progress=False)
    result = pixel_detector.predict(found.images, fpr=0.05)
    return {
        str(path): (score, p_value, bool(is_ood))
        for path, score, p_value, is_ood in zip(
            found.paths, result.score, result.p_value, result.is_ood, strict=True
        )
    }


@pytest.fixture(scope="session")
def damaged(photos, tmp_path_factory):
    """Files that are no images, by reason."""
    folder = tmp_path_factory.mktemp("damaged")
    whole = next((photos / "cam0").glob("*.png")).read_bytes()
    (folder / "truncated.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.jpg").write_bytes(b"nonsense")
    (folder / "empty.png").write_bytes(b"")
    np.save(folder / "array.npy", np.zeros(3))
    (folder / "array.npy").rename(folder / "array.webp")
    return folder
