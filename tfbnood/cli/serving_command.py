"""`tfbnood score --url`: images on disk scored by a server; TensorFlow is not loaded."""

import pathlib

from tfbnood.cli.listing import print_listing
from tfbnood.errors import DataError
from tfbnood.serving.client import Client

__all__ = ["score_by_server"]

_SUFFIXES = (".png", ".jpg", ".jpeg")


def score_by_server(url: str, model: str, images: str, *, style: str = "table") -> None:
    """Scores a folder of PNG and JPEG files, or an array file, and prints them."""
    client, path = Client(url, model), pathlib.Path(images)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)
        if not files:
            raise DataError(
                f"images must be a folder with .png, .jpg or .jpeg files. Received: {path} without any"
            )
        names = [str(file.relative_to(path)) for file in files]
        found = client.score_files(files)
    elif path.suffix in (".npz", ".npy"):
        from tfbnood.data.formats import from_npz

        pixels = from_npz(path)
        names = [f"{path.name}[{index}]" for index in range(len(pixels))]
        found = client.score(pixels)
    else:
        raise DataError(f"images must be a folder, an .npz or an .npy file. Received: {path}")
    count = int(found.is_ood.sum())
    about = {"model": model, "url": url, "out_of_distribution": count, "of": len(found)}
    sentence = f"{count} of {len(found)} images out-of-distribution by {model} at {url}"
    print_listing(names, found, style, about=about, sentence=sentence)
