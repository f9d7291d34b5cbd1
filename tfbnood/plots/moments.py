"""Why images were flagged: the deviations of their batch-norm moments from those of reference images, by channel."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import DataError, StatisticError
from tfbnood.plots.style import new_figure
from tfbnood.protocols import FeatureExtractor, Likelihood

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["moment_deviations", "moment_map", "moments"]

_MOMENTS = ("mean", "log variance")
# Names of more layers would overlap.
_MOST_NAMES = 90


def moments(
    model: Likelihood | FeatureExtractor, images: Any, reference: Any, *, title: str = ""
) -> "Figure":
    """Shows why images were flagged: the `moment_map` of their `moment_deviations`.

    Args:
        model: a Keras network, or a model with `log_prob(images, training=…)`, with batch normalisation.
        images: `[n, height, width, channels]` in 0–255; for several, the mean deviation is drawn.
        reference: in-distribution images, e.g. the training images; at most 1,000 of them are used.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> import keras
        >>> class Model(keras.Sequential):
        ...     def log_prob(self, images, training=False):
        ...         return -keras.ops.sum(self(images / 255, training=training) ** 2, axis=(1, 2, 3))
        >>> model = Model([keras.Input((8, 8, 1)), keras.layers.BatchNormalization()])
        >>> digits = tfbnood.data.load("digits")
        >>> figure = tfbnood.plots.moments(model, 255 - digits.test[:1], digits.train[:64])
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['mean', 'log variance']
    """
    return moment_map(moment_deviations(model, images, reference), title=title)


def moment_deviations(
    model: Likelihood | FeatureExtractor,
    images: Any,
    reference: Any,
    *,
    reference_images: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, np.ndarray]]:
    """Measures the deviations of images' own batch-norm moments from the reference images', in standard deviations.

    A moment is an image's own mean, or the logarithm of its own variance, in a channel of a batch normalisation, in
    evaluation mode. A layer that normalises vectors has no variance within an image, thus only means.

    Args:
        model: a Keras network, or a model with `log_prob(images, training=…)`, with batch normalisation.
        images: `[n, height, width, channels]` in 0–255.
        reference: in-distribution images, e.g. the training images.
        reference_images: maximum number of them to use. Defaults to 1,000.
        seed: of their choice.

    Returns:
        `{layer: {"mean": [n, channels], "log variance": [n, channels]}}`, layers in the order of their calls.

    Example:
        >>> import keras
        >>> class Model(keras.Sequential):
        ...     def log_prob(self, images, training=False):
        ...         return -keras.ops.sum(self(images / 255, training=training) ** 2, axis=(1, 2, 3))
        >>> model = Model([keras.Input((8, 8, 1)), keras.layers.BatchNormalization()])
        >>> digits = tfbnood.data.load("digits")
        >>> found = tfbnood.plots.moment_deviations(model, 255 - digits.test[:2], digits.train[:64])
        >>> [values.shape for values in next(iter(found.values())).values()]
        [(2, 1), (2, 1)]
    """
    # Imported here, so that drawing stored numbers does not load TensorFlow.
    from tfbnood._core.sampling import sample_of
    from tfbnood.networks.network import as_model
    from tfbnood.scoring.compiled import compile_rows
    from tfbnood.scoring.moments import image_moments, moment_columns
    from tfbnood.scoring.rules import batch_normalizations

    images = as_images(images, getattr(model, "image_shape", None))
    model = as_model(model, images.shape[1:])
    takes = isinstance(model, Likelihood | FeatureExtractor)
    if not takes or not batch_normalizations(model):
        raise StatisticError(
            "model must be a Keras network or have a method log_prob(images, training=…), with "
            f"keras.layers.BatchNormalization layers. Received: {type(model).__name__}"
        )
    reference = as_images(reference, images.shape[1:], name="reference")
    if min(len(reference), reference_images) < 2:
        raise DataError(
            "reference and reference_images must be at least 2 images. "
            f"Received: {len(reference)} images and reference_images={reference_images}"
        )
    moments_of = compile_rows(lambda batch: image_moments(model)(batch)[1][0], images.shape[1:])
    own, usual = (
        moments_of(some).astype(np.float64)
        for some in (images, sample_of(reference, reference_images, seed))
    )
    # Guard against channels that are constant over all reference images.
    deviations = (own - usual.mean(axis=0)) / np.maximum(usual.std(axis=0), 1e-3)

    found: dict[str, dict[str, np.ndarray]] = {}
    start = 0
    for layer, moment, channels in moment_columns(model, images.shape[1:]):
        found.setdefault(layer, {})[moment] = deviations[:, start : start + channels]
        start += channels
    return found


def moment_map(
    deviations: Mapping[str, Mapping[str, Any]], *, limit: float = 5.0, title: str = ""
) -> "Figure":
    """Draws deviations of batch-norm moments as heat maps: one row per layer, one column per channel, grey if absent.

    Args:
        deviations: `{layer: {"mean": [n, channels], "log variance": [n, channels]}}` in standard deviations, from
            `moment_deviations`; their mean over the n images is drawn.
        limit: where colours end, in standard deviations. Defaults to 5.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.moment_map({"norm": {"mean": [[0.5, -2.0, 9.0]]}})
        >>> figure.axes[0].images[0].get_array().tolist()
        [[0.5, -2.0, 9.0]]
    """
    if not limit > 0:
        raise DataError(f"limit must be positive. Received: limit={limit}")
    images = _number_of_images(deviations)
    layers = list(deviations)
    named = range(0, len(layers), -(-len(layers) // _MOST_NAMES))

    figure = new_figure(11, min(13, 2.4 + 0.13 * len(layers)))
    panels = figure.subplots(1, len(_MOMENTS), sharex=True, sharey=True)
    for axes, moment in zip(panels, _MOMENTS, strict=True):
        shown = axes.imshow(
            _pad_rows(deviations, moment),
            cmap="PuOr",
            vmin=-limit,
            vmax=limit,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_facecolor("0.75")  # NaN is not painted: there is no such channel.
        axes.set_title(moment)
        axes.set_xlabel("channel")
    size = 6 if len(layers) > 12 else 9  # With many layers, rows are low.
    panels[0].set_yticks(named, [layers[row] for row in named], fontsize=size)
    panels[0].set_ylabel("layer, first on top")
    unit = f"standard deviations of the reference images; colours end at ±{limit:g}"
    figure.colorbar(
        shown, ax=panels, location="bottom", extend="both", label=unit, aspect=60, pad=0.01
    )
    of = "one image" if images == 1 else f"mean of {images} images"
    figure.suptitle(title or f"Batch-norm moments against those of reference images ({of})")
    return figure


def _number_of_images(deviations: Mapping[str, Mapping[str, Any]]) -> int:
    """Checks deviations and returns the number of images."""
    shapes = {
        (layer, moment): np.shape(values)
        for layer, by_moment in deviations.items()
        for moment, values in by_moment.items()
    }
    images = {shape[0] if len(shape) == 2 else 0 for shape in shapes.values()}
    if len(images) != 1 or 0 in images or any(moment not in _MOMENTS for _, moment in shapes):
        raise DataError(
            f"deviations must be arrays [n, channels] by layer and by {' and '.join(_MOMENTS)}. "
            f"Received: shapes {shapes}"
        )
    return images.pop()


def _pad_rows(deviations: Mapping[str, Mapping[str, Any]], moment: str) -> np.ndarray:
    """The mean over images of one moment, `[layers, most channels]`; NaN where a layer has no such channel."""
    most = max(np.shape(values)[1] for layer in deviations.values() for values in layer.values())
    rows = np.full((len(deviations), most), np.nan)
    for row, layer in zip(rows, deviations.values(), strict=True):
        if moment in layer:
            values = np.mean(layer[moment], axis=0)
            row[: len(values)] = values
    return rows
