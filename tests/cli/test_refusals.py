"""Wrong arguments are refused in one line, with exit code 2, before TensorFlow is imported.

All lines are run in one process, one after the other: had one of them imported TensorFlow, it would show.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

TRAIN = "train --data digits --preset tiny --steps 1 --out new"
TUNE = "tune --data digits --out new"
CALIBRATE = "calibrate run --out new"
SCORE = "score detector images"
WATCH = "watch detector images"
EVALUATE = "evaluate detector --inliers digits --outliers inverted"
EXPORT = "export detector --out new"
REPRODUCE = "reproduce table1 --out new"

# By line: what the error must say, in this order.
REFUSED = {
    # Commands and options.
    "": "required: COMMAND (see `tfbnood --help`)",
    "fly": "COMMAND must be one of fit, score, … Received: fly",
    "trian --data digits": "COMMAND must be one of … Received: trian; did you mean train?",
    "train": "required: --data, --out (see `tfbnood train --help`)",
    "train --data digits --preset tiny --steps 1": "required: --out",
    "train --preset tiny --steps 1 --out new": "required: --data",
    f"{TRAIN} --sede 3": "unknown argument --sede; did you mean --seed? (see `tfbnood train",
    f"{TRAIN} more": "unknown argument more (see `tfbnood train --help`)",
    f"{TRAIN} --model gan": "--model must be one of realnvp, vae, pixelcnn. Received: gan",
    f"{TRAIN} --model vea": "Received: vea; did you mean vae?",
    f"{TRAIN} --preset huge": "--preset must be one of … tiny. Received: huge",
    f"{TRAIN} --preset cpu-gray": "did you mean cpu-grey?",
    f"{TUNE} --method grid": "--method must be one of random, hyperband, bayesian. Received: grid",
    f"{TUNE} --objective pseudo_auorc": "--objective must be one of … did you mean pseudo_auroc?",
    "reproduce tabel1 --out new": "WHAT must be one of table1, … Received: tabel1; did you mean",
    f"{REPRODUCE} --scale huge": "--scale must be one of tiny, cpu, paper. Received: huge",
    f"{REPRODUCE} --only fashion_mnist_vea": "--only must be … did you mean fashion_mnist_vae?",
    # Numbers.
    f"{TRAIN} --steps 0": "--steps must be at least 1. Received: 0",
    f"{TRAIN} --steps many": "--steps must be an integer, at least 1. Received: many",
    f"{TRAIN} --steps 1.5": "--steps must be an integer, at least 1. Received: 1.5",
    f"{TRAIN} --batch-size 0": "--batch-size must be at least 1. Received: 0",
    f"{TRAIN} --checkpoint-every 0": "--checkpoint-every must be at least 1. Received: 0",
    f"{TRAIN} --learning-rate 0": "--learning-rate must be positive and finite. Received: 0",
    f"{TRAIN} --learning-rate inf": "--learning-rate must be positive and finite. Received: inf",
    f"{TRAIN} --seed -1": "--seed must be in [0, 2147483647]. Received: -1",
    f"{TRAIN} --mutation 1": "--mutation must lie in [0, 1) … Received: 1",
    f"{TRAIN} --mutation -0.1": "--mutation must lie in [0, 1) … Received: -0.1",
    "demo --out new --steps many": "--steps must be an integer, at least 1. Received: many",
    "demo --out new --steps 0": "--steps must be at least 1. Received: 0",
    f"{TUNE} --trials 0": "--trials must be at least 1. Received: 0",
    f"{TUNE} --epochs -3": "--epochs must be at least 1. Received: -3",
    f"{TUNE} --max-minutes 0": "--max-minutes must be positive and finite. Received: 0",
    f"{CALIBRATE} --images 0": "--images must be at least 1. Received: 0",
    f"{SCORE} --fpr 5": "--fpr must lie in (0, 1), e.g. 0.01 … Received: 5",
    f"{SCORE} --fpr 0": "--fpr must lie in (0, 1) … Received: 0",
    f"{SCORE} --fpr 1": "--fpr must lie in (0, 1) … Received: 1",
    f"{SCORE} --fpr nan": "--fpr must lie in (0, 1) … Received: nan",
    f"{SCORE} --fpr 1%": "--fpr must lie in (0, 1) … Received: 1%",
    f"{SCORE} --fdr -0.1": "--fdr must lie in (0, 1) … Received: -0.1",
    f"{SCORE} --fpr 0.1 --fdr 0.1": "--fdr: not allowed with argument --fpr",
    f"{EXPORT} --fpr 5": "--fpr must lie in (0, 1) … Received: 5",
    f"{EXPORT} --embed -1": "--embed must be at least 0. Received: -1",
    f"{EVALUATE} --n 0": "--n must be at least 1. Received: 0",
    f"{EVALUATE} --contamination 0": "--contamination must lie in (0, 1] … Received: 0",
    f"{EVALUATE} --contamination 1 1.1": "--contamination must lie in (0, 1] … Received: 1.1",
    f"{REPRODUCE} --n 0": "--n must be at least 1. Received: 0",
    f"{REPRODUCE} --batches 0": "--batches must be at least 1. Received: 0",
    f"{REPRODUCE} --seeds 0": "--seeds must be at least 1. Received: 0",
    "serve base --port 65536": "--port must be in [0, 65535]. Received: 65536",
    "serve base --port -1": "--port must be in [0, 65535]. Received: -1",
    # Statistics.
    f"{CALIBRATE} --statistic magic": "--statistic must be auto or one of … Received: magic",
    f"{CALIBRATE} --statistic bn_dleta": "Received: bn_dleta; did you mean bn_delta?",
    f"{CALIBRATE} --statistic pixel_pca:{{": "a JSON object as settings, e.g. bn_delta:{",
    f"{CALIBRATE} --statistic pixel_pca:[3]": "a JSON object as settings … pixel_pca:[3]",
    f"{CALIBRATE} --statistic magic:{{}}": "--statistic must be auto or one of … Received: magic",
    f"{EVALUATE} --statistics log_prob pixel_pac": "--statistics must … did you mean pixel_pca?",
    f"{TUNE} --statistic esemble": "--statistic must be … did you mean ensemble?",
    # Data sets; the folder has things_train.npz and large.npz.
    "train --data no_such_data --preset tiny --steps 1 --out new": "--data must be one of digits, … "
    "or have npz files in the folder that --data-dir names. Received: no_such_data",
    "tune --data fasion_mnist --out new": "--data must be … did you mean fashion_mnist?",
    f"{TRAIN} --data-dir nowhere": "--data-dir must name an existing folder. Received: nowhere",
    f"{TUNE} --data-dir nowhere": "--data-dir must name an existing folder. Received: nowhere",
    f"{REPRODUCE} --data-dir nowhere": "--data-dir must name an existing folder. Received: nowhere",
    f"{TRAIN} --data thing --data-dir sets": "npz files in sets. Received: thing; did you mean things?",
    "data fasion_mnist": "NAME must be one of … Received: fasion_mnist; did you mean fashion_mnist?",
    "evaluate detector --inliers digit --outliers inverted": "--inliers must … mean digits?",
    "evaluate detector --inliers rotation --outliers inverted": "--inliers must … Received: rotation",
    "evaluate detector --inliers digits --outliers nothing": "--outliers must be … rotation, … inverted, "
    "photos, a folder of images, or have … Received: nothing",
    "evaluate detector --inliers digits --outliers rotation fotos": "did you mean photos?",
    f"{EXPORT} --data digit": "--data must be … did you mean digits?",
    # Sizes; the folder has large.npz with images of 96×96×3.
    "train --data large --data-dir sets --preset cpu-colour --steps 1 --out new": "--data must keep to 4 times the "
    "32×32 pixels that the preset cpu-colour is meant for: … 9 times as long; resize the images to 32×32, or use a "
    "network … `tfbnood.Detector(tfbnood.networks.load(… or pass --any-size. Received: 96×96 pixels",
    f"{TRAIN} --data large --data-dir sets --model vae": "--data must … the preset tiny … Received: 96×96",
    f"{TRAIN} --data large --data-dir sets --model pixelcnn": "--data must … Received: 96×96",
    f"{TUNE} --data large --data-dir sets": "--data must keep to 4 times the 32×32 pixels that the preset cpu-colour "
    "… or pass --any-size. Received: 96×96",
    f"{TUNE} --data large --data-dir sets --preset tiny": "--data must … tiny … Received: 96×96",
    # Folders and files.
    "calibrate nowhere --out new": "RUN must be a folder of `tfbnood train`, with run.json. Received: "
    "nowhere, which does not exist",
    "calibrate empty --out new": "RUN must … Received: empty, which has no readable run.json",
    "calibrate damaged --out new": "RUN must … Received: damaged, which has no readable run.json",
    "calibrate unfinished --out new": "RUN must be finished. Received: unfinished, which has no "
    "model.keras; run the same `tfbnood train` again",
    "calibrate run unknown --out new": "RUNs must share one data set. Received: digits, mine",
    "calibrate unknown --out new": "the data set of RUN must be … --data-dir … Received: mine",
    "calibrate run --out empty": "--out must be a new folder, or the folder of a detector … Received: empty",
    "calibrate run --out file/new": "--out must be a folder. Received: file/new: … is a file",
    "train --data digits --preset tiny --steps 1 --out file": "--out must be a folder. Received: file, "
    "which is a file",
    "tune --data digits --out file/new": "--out must be a folder. Received: file/new",
    "export detector --out file": "--out must be a folder. Received: file",
    f"{EVALUATE} --out result.txt": "--out must be a folder, or end in .json, .md, .png or .html.",
    f"{EVALUATE} --out file": "--out must be a folder. Received: file, which is a file",
    f"{EVALUATE} --out file/result.md": "--out must be a folder. Received: file, which is a file",
    "reproduce table1 --out file": "--out must be a folder. Received: file",
    "demo --out file": "--out must be a folder. Received: file",
    "score nowhere images": "WHAT must be the folder of … or one of … digits_realnvp, … "
    "Received: nowhere, which does not exist",
    "score empty images": "WHAT must be the folder of a saved detector … Received: empty, which has no",
    "score fashion_mnist_vea images": "WHAT … did you mean fashion_mnist_vae?",
    "evaluate nowhere --inliers digits --outliers inverted": "DETECTOR must be … Received: nowhere",
    "export nowhere --out new": "DETECTOR must be … Received: nowhere",
    "score detector nowhere": "WHERE must be a folder, … Received: nowhere, which does not exist",
    "score detector nowhere.npz": "WHERE must be a folder, … Received: nowhere.npz, which does not",
    "score detector file": "WHERE must be an intact image, … Received: file: empty",
    f"{SCORE} --out /proc/report.html": "--out must be in a writable folder. Received: /proc",
    f"{SCORE} --out report.pdf": "--out must end in .html, .csv, … Received: report.pdf",
    "score detector empty": "WHERE must be a folder with images … Received: empty",
    "score detector damaged.npz": "damaged.npz",
    f"{SCORE} --url http://127.0.0.1:1 --fpr 0.1": "--fpr, … cannot be combined with --url",
    f"{SCORE} --url http://127.0.0.1:1 --skip-unreadable": "--skip-unreadable cannot be combined with --url",
    f"{SCORE} --url 127.0.0.1:1": "--url must look like http://localhost:8501. Received: 127.0.0.1:1",
    "score detector nowhere --url http://127.0.0.1:1": "WHERE must be a folder, … Received: nowhere",
    # Watching.
    "watch": "required: WHAT, --out",
    f"{WATCH} --out file": "--out must be a folder. Received: file, which is a file",
    "watch detector --out new": "give WHERE or --url. Received: neither",
    f"{WATCH} --out new --url http://127.0.0.1:1/v1/models/a": "give WHERE or --url. Received: images and http",
    "watch detector nowhere --out new": "WHERE must be a folder, or - for … Received: nowhere, which does not exist",
    "watch detector file --out new": "WHERE must be a folder, … Received: file, which is a file",
    "watch nowhere images --out new": "WHAT must be … Received: nowhere, which does not exist",
    "watch fashion_mnist_vea images --out new": "WHAT … did you mean fashion_mnist_vae?",
    "watch base images --out new": "WHAT must hold the detector itself: … Received: base/1; give the folder",
    f"{WATCH} --out new": "detector cannot be loaded: it is damaged",
    "watch detector --url http://127.0.0.1:1 --out new": "--url must look like http://127.0.0.1:8501/v1/models/NAME. "
    "Received: http://127.0.0.1:1",
    f"{WATCH} --out new --port 80": "--port needs --url. Received: --port without",
    f"{WATCH} --out new --host x": "--host needs --url. Received: --host without",
    f"{WATCH} --out new --scores": "--scores needs - as WHERE. Received: --scores without",
    f"{WATCH} --out new --forget": "--forget needs --restart. Received: --forget without",
    "watch detector - --out new --once": "--once needs a folder as WHERE. Received: --once without",
    "watch detector - --out new --interval 2": "--interval needs a folder as WHERE. Received: --interval",
    f"{WATCH} --out new --interval 0": "--interval must be positive and finite. Received: 0",
    f"{WATCH} --out new --run-length 1": "--run-length must be a number of images above 1. Received: 1",
    f"{WATCH} --out new --run-length many": "--run-length must be positive and finite. Received: many",
    f"{WATCH} --out new --fdr 2": "--fdr must lie in (0, 1) … Received: 2",
    f"{WATCH} --out new --fpr 0": "--fpr must lie in (0, 1) … Received: 0",
    f"{WATCH} --out new --thin 0": "--thin must be at least 1. Received: 0",
    f"{WATCH} --out new --metrics-port 70000": "--metrics-port must be in [0, 65535]. Received: 70000",
    f"{WATCH} --out new --log-size 0": "--log-size must be at least 1. Received: 0",
    # Fitting.
    "fit": "required: IMAGES, --out",
    "fit nowhere/ --out new": "IMAGES must be … Received: nowhere/, which does not exist",
    "fit digits --out new --network resnet": "--network must be auto, none, … Received: 'resnet'",
    "fit digits --out new --tolerate rain": "--tolerate must hold names of changes … 'rain'",
    "fit digits --out new --minutes 0": "--minutes must be positive and finite. Received: 0",
    "fit digits --out new --size 16": "--size must be at least 32. Received: 16",
    "fit digits --out file": "--out must be a folder. Received: file",
    "fit digits --out /proc/new": "--out must be a writable folder. Received: /proc/new",
    "fit ./empty --out new": "IMAGES must be a folder with images in it or below it. Received: ./empty",
    "fit images --out new": "files in images must be readable images. Received: 1 of 1 … one.png (empty)",
    "fit three --out new": "IMAGES must hold at least 40 images to fit and … Received: 3 in three",
    "serve nowhere": "PATH must be a model base, … digits_realnvp, … Received: nowhere, which does not",
    "serve digits_realnpv": "PATH must be … did you mean digits_realnvp?",
    "serve empty": "PATH must be … Received: empty, which has no NAME/1/saved_model.pb",
    "serve base/1": "PATH must be … Received: base/1, which is a single version; did you mean base?",
}
PROBE = """
import contextlib, io, json, sys
from tfbnood.cli import main
said = {}
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line.split())
    heavy = [name for name in ("tensorflow", "keras", "sklearn") if name in sys.modules]
    said[line] = [code, out.getvalue(), err.getvalue(), heavy]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the lines speak of, as far as it is there."""
    folder = tmp_path_factory.mktemp("refusals")
    for name in ("empty", "damaged", "unfinished", "run", "unknown", "detector", "images", "sets"):
        (folder / name).mkdir()
    (folder / "damaged" / "run.json").write_text("{")
    for name, data in (("unfinished", "digits"), ("run", "digits"), ("unknown", "mine")):
        (folder / name / "run.json").write_text(json.dumps({"data": data}))
    for name in ("run", "unknown"):
        (folder / name / "model.keras").touch()
    (folder / "detector" / "detector.json").write_text("{}")
    (folder / "outer" / "detector").mkdir(parents=True)
    (folder / "outer" / "detector" / "detector.json").write_text("{}")
    (folder / "base" / "1").mkdir(parents=True)
    (folder / "base" / "1" / "saved_model.pb").touch()
    (folder / "images" / "one.png").touch()
    (folder / "file").touch()
    (folder / "three").mkdir()
    for index in range(3):
        Image.new("L", (8, 8)).save(folder / "three" / f"{index}.png")
    (folder / "damaged.npz").write_bytes(b"PK")
    np.savez(folder / "sets" / "things_train.npz", images=np.zeros((2, 8, 8, 1), np.uint8))
    np.savez(folder / "sets" / "large.npz", images=np.zeros((8, 96, 96, 3), np.uint8))
    return folder


@pytest.fixture(scope="module")
def said(files):
    """By line: exit code, standard output, standard error, and heavy modules imported by then."""
    before = sorted(files.rglob("*"))
    environment = {key: value for key, value in os.environ.items() if "TFBNOOD" not in key}
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps(list(REFUSED)),
        capture_output=True,
        text=True,
        cwd=files,
        env=environment,
    )
    assert probe.returncode == 0, probe.stderr
    assert sorted(files.rglob("*")) == before, "a refused command has written something"
    return json.loads(probe.stdout)


@pytest.mark.parametrize("line", REFUSED)
def test_refused_in_one_line_before_tensorflow(said, line):
    code, out, err, heavy = said[line]
    assert (code, out) == (2, "")
    (error,) = err.splitlines()
    assert error.startswith("tfbnood: ")
    place = 0
    for words in REFUSED[line].split("…"):
        place = error.find(words.strip(), place)
        assert place >= 0, f"{words!r} is not said, or not in this place: {error}"
    assert heavy == []
