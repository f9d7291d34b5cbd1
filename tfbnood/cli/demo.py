"""`tfbnood demo`: the whole workflow on Fashion-MNIST if it is installed, else on scikit-learn's 8×8 digits."""

import argparse
import pathlib
from typing import TYPE_CHECKING, Any

from tfbnood.cli import checks, options, values

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "demo",
        help="run the whole workflow on garments or digits, in a few minutes",
        description="Trains on Fashion-MNIST if it is installed, else on scikit-learn's 8×8 digits. Flags images of a "
        "stream, shows them on a page, and repeats the scoring through a server. After Ctrl-C or a kill, run the same "
        "command again to resume.",
    )
    options.out(command, "folder of the results (default: demo)", default="demo")
    command.add_argument(
        "--data",
        choices=("fashion_mnist", "digits"),
        help="data set (default: fashion_mnist if it is installed, else digits)",
    )
    # With more steps the model memorises the few digits.
    command.add_argument(
        "--steps", type=values.integer(1), default=500, help="training steps (default: 500)"
    )
    options.seed(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Trains a small model, calibrates a detector, evaluates it, scores a stream with it, and serves it."""
    checks.check_out(arguments.out)
    from tfbnood.data import load, photo_patches, rotate
    from tfbnood.detector import Detector
    from tfbnood.evaluation.run import evaluate
    from tfbnood.plots import gallery
    from tfbnood.plots.style import write_figure
    from tfbnood.report.results import write_evaluation_report
    from tfbnood.statistics.registry import get
    from tfbnood.training.run import train

    out, steps, seed = pathlib.Path(arguments.out), arguments.steps, arguments.seed
    x = load(arguments.data or _choose_data())
    model, preset = ("realnvp", "tiny") if x.name == "digits" else ("vae", "cpu-grey")
    print(f"1. data: {x!r}")
    print(f"2. training a {model} for {steps} steps of 64 images into {out / 'run'}")
    network = train(x, model=model, preset=preset, steps=steps, out=out / "run", seed=seed)
    write_figure(out / "samples.png", gallery(network.sample(60, seed=seed)))
    print(f"   60 samples of the model: {out / 'samples.png'}")

    held_out = x.calibration[:1000]
    print(f"3. calibrating a detector on {len(held_out)} held-out images")
    # Training the pretext networks on 60,000 images would take minutes.
    pretext = x.name == "digits"
    detector = Detector(network, reference=x.train[:10_000], seed=seed, pretext=pretext)
    detector.calibrate(held_out).save(out / "detector")
    print(f"   detector: {out / 'detector'}")

    test = x.test[:500]
    outliers = {
        "rotated": rotate(test, seed=seed),
        "inverted": 255 - test,
        "photos": photo_patches(len(test), x.image_shape, seed=seed),
    }
    print("4. evaluating on three kinds of outliers, alone and as a fifth of a stream")
    result = evaluate(
        detector,
        test,
        outliers,
        statistics=("ensemble", get("bn_delta", mixing="moments"), "log_prob", "pixel_knn"),
        contamination=(1.0, 0.2),
        seed=seed,
        reference=x.train[:10_000],
    )
    suffixes = (".json", ".md", ".png")
    for suffix in suffixes:
        result.save(out / f"evaluation{suffix}")
    write_evaluation_report(out / "evaluation.html", detector, result, test, outliers)
    print(f"\n{result}\n\n   as files: {out}/evaluation{', '.join((*suffixes, '.html'))}")

    print(
        "5. scoring a stream of 42 images, two of each kind of outlier, at a false-alarm rate of 5 %"
    )
    names, images = _make_stream(test, outliers, seed)
    _show_stream(detector, names, images, out)
    print("6. exporting the detector and asking a stand-in server by TF Serving's REST API")
    _ask_server(detector, images, out)
    print("next:")
    print(f"   tfbnood score {out / 'detector'} YOUR_IMAGES --out report.html")
    print("   tfbnood fit YOUR_IMAGES --out detectors/mine    # a detector for your own images")
    print(f"   tfbnood serve {out / 'served'}")


def _choose_data() -> str:
    """Fashion-MNIST if it needs no download: it shows the method better than digits do."""
    from tfbnood.data.catalogue import has_fashion_mnist

    return "fashion_mnist" if has_fashion_mnist() else "digits"


def _make_stream(
    test: "np.ndarray", outliers: "dict[str, np.ndarray]", seed: int
) -> "tuple[list[str], np.ndarray]":
    """Test images mixed with a few outliers, in random order."""
    import numpy as np

    rows = [(f"usual {index}", test[-1 - index]) for index in range(36)]
    rows += [(f"{kind} {index}", of[index]) for kind, of in outliers.items() for index in (0, 1)]
    order = np.random.RandomState(seed).permutation(len(rows))
    return [rows[index][0] for index in order], np.stack([rows[index][1] for index in order])


def _show_stream(detector: Any, names: list[str], images: "np.ndarray", out: pathlib.Path) -> None:
    from tfbnood.plots import gallery
    from tfbnood.plots.style import write_figure
    from tfbnood.report.results import write_score_report

    found = detector.predict(images, fpr=0.05)
    flagged = ", ".join(name for name, is_ood in zip(names, found.is_ood, strict=True) if is_ood)
    write_figure(out / "flagged.png", gallery(images, found.is_ood))
    write_score_report(
        out / "report.html",
        detector,
        found,
        names=names,
        read=lambda row: images[row],
        fpr=0.05,
    )
    print(f"   {found}: {flagged or 'none'}")
    print(
        f"   picture with flagged images framed: {out / 'flagged.png'}; page: {out / 'report.html'}"
    )


def _ask_server(detector: Any, images: "np.ndarray", out: pathlib.Path) -> None:
    import numpy as np

    from tfbnood.serving import Client, Server, models_from

    version = detector.export(out / "served" / "demo", fpr=0.05)
    with Server(models_from(out / "served"), port=0) as server:
        answer = Client(server.url, "demo").score(images)
    # Rounded otherwise, a score may change places with one of the 300 or more calibration scores.
    same = np.allclose(answer.p_value, detector.p_values(images), atol=1.5 / 301)
    count = int(answer.is_ood.sum())
    print(
        f"   {version}: {count} of {len(images)} flagged by the server, p-values {'equal' if same else 'DIFFER'}"
    )
