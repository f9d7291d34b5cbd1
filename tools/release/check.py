"""Checks the trained detectors under savedmodels/: hashes, exports in plain TensorFlow, and equal scores in Python.

    tools/release/check [NAME …] [--folder savedmodels]

Per base: the hashes in assets.extra/detector.json and MANIFEST.json; a fresh process in which neither tfbnood nor Keras
can be imported loads the newest version and scores random images; the scores of `detector/`, in this process, must be
the same to 1e-4. Missing parts are reported: a base without a version cannot be served, but its detector is checked.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from tfbnood._core.files import file_sha256, version_folders
from tfbnood.errors import TfbnoodError

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
PLAIN = """
import sys
sys.modules["tfbnood"] = sys.modules["keras"] = sys.modules["tf_keras"] = None
import numpy as np, tensorflow as tf
served = tf.saved_model.load(sys.argv[1])
images = tf.constant(np.load(sys.argv[2]), tf.float32)
outputs = served.signatures["serving_default"](images=images)
np.savez(sys.argv[3], **{name: value.numpy() for name, value in outputs.items()})
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="bases (default: all)")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "savedmodels")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"--folder must be a folder of bases. Received: {arguments.folder}")
    # Hidden folders are still being written.
    paths = (path for path in sorted(arguments.folder.iterdir()) if path.is_dir())
    bases = {path.name: path for path in paths if not path.name.startswith((".", "_"))}
    for name in arguments.names:
        if name not in bases:
            parser.error(f"NAME must be one of {', '.join(bases)}. Received: {name}")
    if not bases:
        print(f"no model base under {arguments.folder}")
    failed = False
    for name in arguments.names or bases:
        problems, missing = check(bases[name])
        failed = failed or bool(problems)
        print(f"{name}: {'; '.join([*(problems or ['ok']), *missing])}", flush=True)
    return int(failed)


def check(base: pathlib.Path) -> tuple[list[str], list[str]]:
    """The problems of a base, and what could not be checked because the base lacks it."""
    # Imported here: errors in arguments should not wait for TensorFlow.
    from tfbnood.detector import Detector
    from tfbnood.zoo import changed_files

    problems, missing = [], []
    detector = served = None
    if (base / "MANIFEST.json").is_file():
        problems += [f"{name} differs from the manifest" for name in changed_files(base)]
    else:
        missing.append("no MANIFEST.json")
    if (base / "detector").is_dir():
        try:
            detector = Detector.load(base / "detector")
        except TfbnoodError as error:
            problems.append(f"detector/ does not load: {error}")
    else:
        missing.append("no detector/ to compare with")
    versions = version_folders(base)
    if versions:
        served = versions[max(versions)]
    else:
        missing.append("no exported version (`tfbnood export` makes one)")
    if len(missing) == 3:
        return ["holds no detector"], missing
    expected = None if detector is None else detector.score(make_images(detector.image_shape))
    if served is not None:
        problems += check_version(served, expected)
    elif expected is not None and not np.isfinite(expected).all():
        problems.append("scores of detector/ are not finite")
    return problems, missing


def check_version(version: pathlib.Path, expected: np.ndarray | None) -> list[str]:
    """The problems of an exported version; `expected` are its detector's scores of the images of `make_images`."""
    try:
        about = json.loads((version / "assets.extra" / "detector.json").read_text())
        hashes, image_shape = about["sha256"], about["image_shape"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return [f"{version.name}/assets.extra/detector.json is not readable ({error!r})"]
    problems = [
        f"{name} differs from the export"
        for name, digest in hashes.items()
        if not (version / name).is_file() or file_sha256(version / name) != digest
    ]
    try:
        scores = score_plainly(version, make_images(image_shape))
    except subprocess.CalledProcessError as error:
        last = [*error.stderr.strip().splitlines(), f"exit status {error.returncode}"][-2:][0]
        return [*problems, f"does not load: {last}"]
    if not np.isfinite(scores).all():
        problems.append("scores are not finite")
    if expected is not None:
        worst = np.abs(scores - expected).max() / max(1, np.abs(expected).max())
        if not worst <= TOLERANCE:  # Also if it is NaN.
            problems.append(f"differs from detector/ by {worst:.1e}")
    return problems


def score_plainly(version: pathlib.Path, images: np.ndarray) -> np.ndarray:
    """Scores of the export in a process with only TensorFlow."""
    with tempfile.TemporaryDirectory() as temporary:
        into, out = (pathlib.Path(temporary) / name for name in ("in.npy", "out.npz"))
        np.save(into, images)
        command = [sys.executable, "-c", PLAIN, str(version.resolve()), str(into), str(out)]
        subprocess.run(command, capture_output=True, text=True, cwd=temporary, check=True)
        with np.load(out) as outputs:
            return outputs["score"]


def make_images(image_shape: Any) -> np.ndarray:
    """Eight images of noise, the same at every call."""
    return np.random.RandomState(0).randint(0, 256, (8, *image_shape), np.uint8)


if __name__ == "__main__":
    sys.exit(main())
