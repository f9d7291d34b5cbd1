"""Harmless changes to images, such as JPEG compression, that a detector can be made to tolerate."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood._core.images import as_images
from tfbnood.errors import DataError

if TYPE_CHECKING:
    from tfbnood._core.images import Images

__all__ = ["CHANGES", "change", "check_changes", "mix_changes"]

CHANGES: tuple[str, ...] = (
    "jpeg",
    "resize",
    "brightness",
    "contrast",
    "blur",
    "noise",
    "shift",
    "mirror",
)

_ENLARGING = ("bilinear", "bicubic", "lanczos")  # names of Pillow
_REDUCING = (*_ENLARGING, "area")
_SMALLEST_SIDE = 24
_MIXING = 0x6D6978  # separates the draws of `mix_changes` from others with the same seed


def change(images: "Images", kind: str, *, seed: int) -> np.ndarray:
    """Changes every image with its own random strength, as cameras, web sites and preprocessing do.

    Strengths are uniform unless stated otherwise, and the result is rounded and clipped to 0–255:

    - `jpeg`: encoded and decoded at a quality of 50–95, in colour with 4:2:0 subsampling;
    - `resize`: scaled by a factor of 0.5–2 (log-uniform), but to at least 24 pixels, and back to its size. Each way
      draws its own filter: bilinear, bicubic or Lanczos, antialiased; for reductions also the mean of areas;
    - `brightness`: multiplied by 0.8–1.2;
    - `contrast`: differences from the image's mean multiplied by 0.8–1.2;
    - `blur`: discrete Gaussian with σ of 0–√(side / 32) pixels for the shorter side: up to 0.5 at 8 pixels, 1 at 32,
      2 at 128;
    - `noise`: Gaussian with σ of 0–5 grey levels, independent in pixels and channels;
    - `shift`: moved by whole pixels, at least 1 and up to 4 % of the height and width; edges replicated;
    - `mirror`: left and right swapped in every image.

    An image whose largest value would be 1 becomes black, since `as_images` would take it for one in 0–1.

    Args:
        images: `[n, height, width, channels]` in 0–255.
        kind: one of `CHANGES`.
        seed: of every random choice. The change of an image does not depend on later images.

    Returns:
        uint8, of the shape of `images`.

    Raises:
        DataError: for an unknown kind, a bad seed, or images that `as_images` refuses.

    Example:
        >>> bool((change(x.test, "mirror", seed=0) == x.test[:, :, ::-1]).all())
        True
    """
    images = as_images(images)
    check_integer("seed", seed, least=0)
    if not isinstance(kind, str) or kind not in CHANGES:
        raise DataError(f"kind must be one of {', '.join(CHANGES)}. Received: kind={kind!r}")
    random = np.random.RandomState(int(seed))
    changed = np.empty_like(images)
    # Image by image: the draws then form one stream, and memory use stays constant.
    for index, image in enumerate(images):
        made = _CHANGE[kind](image, random)
        changed[index] = made if made.dtype == np.uint8 else np.rint(np.clip(made, 0, 255))
    changed[changed.max(axis=(1, 2, 3)) == 1] = 0
    return changed


def mix_changes(images: "Images", kinds: Sequence[str], *, seed: int) -> np.ndarray:
    """Changes a random half of the images, each in one of the ways; tolerant statistics are fitted to the result.

    Of n images, n // 2 are changed, each in a kind drawn uniformly. The others stay as they are, so that clean images
    remain the most typical ones.

    Args:
        images: `[n, height, width, channels]` in 0–255.
        kinds: some of `CHANGES`; with none, the result is a copy.
        seed: of every random choice.

    Returns:
        uint8, of the shape of `images` and in their order.

    Raises:
        DataError: for bad kinds, a bad seed, or images that `as_images` refuses.

    Example:
        >>> mixed = mix_changes(x.test[:100], ("mirror", "shift"), seed=0)
        >>> int((mixed == x.test[:100]).all(axis=(1, 2, 3)).sum())
        50
    """
    kinds = check_changes(kinds)
    images = as_images(images)
    check_integer("seed", seed, least=0)
    mixed = images.copy()
    if not kinds:
        return mixed
    # Not RandomState(seed), whose permutation also splits reference images, e.g. in an ensemble: one part would get all
    # changed images, the other none.
    random = np.random.RandomState([int(seed), _MIXING])
    rows = random.permutation(len(images))[: len(images) // 2]
    drawn = random.randint(len(kinds), size=len(rows))
    for number, kind in enumerate(kinds):
        own_seed = int(random.randint(2**32, dtype=np.uint32))  # drawn even if it is not needed
        own = np.sort(rows[drawn == number])
        if len(own):
            mixed[own] = change(images[own], kind, seed=own_seed)
    return mixed


def check_changes(kinds: Any) -> tuple[str, ...]:
    """Checks names of changes, called `tolerate` in errors, and returns them in the given order.

    Args:
        kinds: a tuple or list of some of `CHANGES`, none twice; may be empty.

    Raises:
        DataError: names the argument, the rule and what was received.

    Example:
        >>> check_changes(["resize", "jpeg"])
        ('resize', 'jpeg')
    """
    # Sets are refused: their order, and thus what a seed draws, differs from run to run.
    if not isinstance(kinds, (tuple, list)):
        raise DataError(
            "tolerate must be a tuple or list of names; write a single one as "
            f'tolerate=("jpeg",). Received: tolerate={kinds!r}'
        )
    for kind in kinds:
        if not isinstance(kind, str) or kind not in CHANGES:
            raise DataError(
                f"tolerate must hold names of changes ({', '.join(CHANGES)}). Received: {kind!r}"
            )
    if len(set(kinds)) < len(kinds):
        raise DataError(f"tolerate must hold each name once. Received: tolerate={kinds!r}")
    return tuple(str(kind) for kind in kinds)


def _jpeg(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    from PIL import Image

    quality = int(random.randint(50, 96))
    buffer = io.BytesIO()
    # The subsampling is ignored for grey images, which have nothing to subsample.
    _as_pillow(image).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    with Image.open(buffer) as decoded:
        return np.asarray(decoded).reshape(image.shape)


def _resize(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    # 28 pixels reduced to 14 are another picture: a detector that tolerates that tolerates everything.
    smallest = np.clip(_SMALLEST_SIDE / min(image.shape[:2]), 0.5, 1)
    factor = 2 ** random.uniform(np.log2(smallest), 1)
    enlarging = _ENLARGING[random.randint(len(_ENLARGING))]
    reducing = _REDUCING[random.randint(len(_REDUCING))]
    there, back = (enlarging, reducing) if factor > 1 else (reducing, enlarging)
    height, width = image.shape[:2]
    scaled = _scaled(image, max(1, round(factor * height)), max(1, round(factor * width)), there)
    return _scaled(scaled, height, width, back)


def _scaled(image: np.ndarray, height: int, width: int, method: str) -> np.ndarray:
    if method == "area":
        # Not Pillow's box filter: it counts a pixel on the edge fully or not at all, like nearest neighbour near 1.
        columns = np.swapaxes(_area_weights(image.shape[1], width) @ image, 0, 1)
        areas = np.swapaxes(_area_weights(image.shape[0], height) @ columns, 0, 1)
        return np.rint(areas).astype(np.uint8)
    from PIL.Image import Resampling

    scaled = _as_pillow(image).resize((width, height), Resampling[method.upper()])
    return np.asarray(scaled).reshape(height, width, -1)


def _area_weights(old: int, new: int) -> np.ndarray:
    """The share that each of `old` pixels covers of each of `new` equal parts of a line, `[new, old]`."""
    ends = np.arange(new + 1)[:, None] * (old / new)
    covered = np.clip(ends - np.arange(old), 0, 1)  # of each pixel, up to each end
    return np.diff(covered, axis=0) * (new / old)


def _brightness(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    return image * np.float32(random.uniform(0.8, 1.2))


def _contrast(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    mean = np.float32(image.mean())
    return mean + np.float32(random.uniform(0.8, 1.2)) * (image - mean)


def _blur(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    from scipy.fft import dctn, idctn

    height, width = image.shape[:2]
    # The square root, since a σ proportional to the side would change nothing at 8 pixels and far too much at 224.
    sigma = random.uniform(0, np.sqrt(min(height, width) / 32))
    # The discrete Gaussian (Lindeberg, 1990) has variance σ² even below one pixel, where a sampled one is a single
    # point. The cosine transform mirrors the image at its edges, which keeps the mean.
    rows = np.cos(np.pi * np.arange(height) / height)[:, None, None]
    columns = np.cos(np.pi * np.arange(width) / width)[:, None]
    transfer = np.exp(sigma**2 * (rows + columns - 2)).astype(np.float32)
    return idctn(transfer * dctn(image.astype(np.float32), axes=(0, 1)), axes=(0, 1))


def _noise(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    return image + random.normal(0, random.uniform(0, 5), image.shape)


def _shift(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    height, width = image.shape[:2]
    most_down, most_right = max(1, height // 25), max(1, width // 25)
    steps = 2 * most_right + 1
    places = (2 * most_down + 1) * steps
    place = int(random.randint(places - 1))
    place += place >= places // 2  # Skips the middle one: the image's current place.
    down, right = place // steps - most_down, place % steps - most_right
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    return image[rows][:, columns]


def _mirror(image: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    return image[:, ::-1]


def _as_pillow(image: np.ndarray) -> Any:
    from PIL import Image

    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


_CHANGE: dict[str, Callable[[np.ndarray, np.random.RandomState], np.ndarray]] = {
    "jpeg": _jpeg,
    "resize": _resize,
    "brightness": _brightness,
    "contrast": _contrast,
    "blur": _blur,
    "noise": _noise,
    "shift": _shift,
    "mirror": _mirror,
}
