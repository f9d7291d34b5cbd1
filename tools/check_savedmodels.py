"""Loads every exported model under savedmodels/ with plain TensorFlow and compares it with its detector.

    tools/check_savedmodels [FOLDER]

For every base: the hashes in assets.extra/detector.json and, where there is one, in MANIFEST.json; a fresh process in
which neither tfbnood nor Keras can be imported loads the newest version and scores random images; where the detector's
folder lies beside the version as `detector/`, its scores in this process must be the same to 1e-4.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tfbnood.zoo import changed_files

ROOT = pathlib.Path(__file__).resolve().parents[1]
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
    parser.add_argument("folder", nargs="?", default=ROOT / "savedmodels", type=pathlib.Path)
    folder = parser.parse_args().folder
    bases = sorted(path for path in folder.iterdir() if versions(path))
    if not bases:
        print(f"no model base under {folder}")
        return 0
    failed = 0
    for base in bases:
        problems = check(base)
        failed += bool(problems)
        print(f"{base.name}: {'; '.join(problems) or 'ok'}")
    return int(failed > 0)


def versions(base: pathlib.Path) -> list[pathlib.Path]:
    """Version folders, oldest first."""
    found = base.iterdir() if base.is_dir() else ()
    return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name))


def check(base: pathlib.Path) -> list[str]:
    """What is wrong with the newest version of a base."""
    version = versions(base)[-1]
    about = json.loads((version / "assets.extra" / "detector.json").read_text())
    problems = [
        f"{name} is not what was exported"
        for name, digest in about["sha256"].items()
        if hashlib.sha256((version / name).read_bytes()).hexdigest() != digest
    ]
    if (base / "MANIFEST.json").is_file():
        problems += [f"{name} is not what the manifest says" for name in changed_files(base)]
    images = np.random.RandomState(0).randint(0, 256, (8, *about["image_shape"]), np.uint8)
    with tempfile.TemporaryDirectory() as temporary:
        images_file, outputs_file = (
            pathlib.Path(temporary) / name for name in ("in.npy", "out.npz")
        )
        np.save(images_file, images)
        command = [sys.executable, "-c", PLAIN, str(version), str(images_file), str(outputs_file)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=temporary)
        if result.returncode:
            return [*problems, f"does not load: {result.stderr.strip().splitlines()[-1]}"]
        with np.load(outputs_file) as outputs:
            scores = outputs["score"]
    if not np.isfinite(scores).all():
        problems.append("scores are not finite")
    if (base / "detector").is_dir():
        from tfbnood import Detector

        expected = Detector.load(base / "detector").score(images)
        worst = np.abs(scores - expected).max() / max(1, np.abs(expected).max())
        if worst > 1e-4:
            problems.append(f"differs from detector/ by {worst:.1e}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
