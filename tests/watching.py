"""Streams to watch without TensorFlow: the score of an image is its mean, so that a test can do it again in NumPy."""

import contextlib
import json
import os
import pathlib
import sys

import numpy as np
from PIL import Image

from tfbnood.watch import HeldOut, Item, Session

SHAPE = (4, 4, 1)


def held_out(count=400):
    scores = np.sort(np.random.default_rng(1).normal(100, 10, count).round(3))
    return HeldOut("means", scores, SHAPE, "mean")


def score(images):
    return images.mean(axis=(1, 2, 3))


def pixels(level, seed=0):
    noise = np.random.default_rng(seed).integers(-20, 21, SHAPE[:2])
    return np.clip(level + noise, 0, 255).astype(np.uint8)


def put(path, image, mtime=None):
    """Writes a file as careful programs do: under a hidden name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    Image.fromarray(image).save(hidden, "PNG")
    if mtime is not None:
        os.utime(hidden, (mtime, mtime))
    os.replace(hidden, path)


def events(out):
    """All lines of a watch, also of files that were renamed, in their order."""
    files = [*sorted(out.glob("events-*.jsonl")), out / "events.jsonl"]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def feed(folder, found, **settings):
    """A session that takes the items of given lines one by one, undisturbed; its folder."""
    with Session.open(folder, held_out(), **settings) as session:
        for one in found:
            if "restart" in one:
                session.restart(forget=one["forget"])
            else:
                given = {name: one[name] for name in ("unreadable", "id", "request") if name in one}
                session.take([Item(one["key"], one.get("score", float("nan")), **given)])
    return folder


def follow(out, folder):
    """What a killed process runs: saves and renames often, so that kills meet those as well."""
    import tfbnood.watch.run as run
    import tfbnood.watch.session as session
    from tfbnood.watch.folder import FolderSource

    session._EVERY_LINES = 10
    run._PAGE_SECONDS = 0.05
    out, folder = pathlib.Path(out), pathlib.Path(folder)
    run.Watch(
        out,
        str(folder),
        lambda: Session.open(out, held_out(), run_length=500, most_bytes=8000),
        lambda opened: FolderSource(
            folder, SHAPE, score, opened.tally, interval=0.05, once="--once" in sys.argv
        ),
    ).run()


@contextlib.contextmanager
def opened(folder, **settings):
    with Session.open(folder, held_out(), **settings) as session:
        yield session
