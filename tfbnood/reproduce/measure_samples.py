"""The stage `fooled`: samples of a model of another data set, under a study's model."""

import base64
from typing import TypedDict

import numpy as np
import tensorflow as tf

from tfbnood import statistics
from tfbnood._core.sampling import take
from tfbnood.data.pools import photo_patches
from tfbnood.data.sets import Dataset, load
from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.measure_likelihoods import round_values, score_bits

__all__ = ["Examples", "Fooled", "measure_fooled"]

EXAMPLES = 8  # samples that Figure 5 shows


class Examples(TypedDict):
    """Images as base64 of PNG, and their bits per dimension."""

    png: list[str]
    bits: list[float]


class Fooled(TypedDict):
    """Bits and T_perm by set, at the temperature `fooling`; mean bits in both modes by temperature."""

    data: str
    fooling: float
    bits: dict[str, list[float]]
    t_perm: dict[str, list[float]]
    means: dict[str, list[float]]
    examples: Examples


def measure_fooled(context: StudyContext) -> Fooled:
    """Bits of the samples in both modes, T_perm, and the samples that are as likely as real images."""
    own, generator = context.study.data, context.study.generator
    assert generator is not None  # Only studies with a generator have this stage.
    other = _load_generators_data(generator.data, context)
    name = f"{generator.data}_{context.study.model}"
    model = context.load_or_train(name, other, generator.steps)
    samples = {
        temperature: model.sample(generator.samples, temperature, seed=0, progress=True)
        for temperature in generator.temperatures
    }
    bits = {
        temperature: [score_bits(context, images, training=mode) for mode in (False, True)]
        for temperature, images in samples.items()
    }
    inliers = context.sample_sets()[own]
    own_bits = score_bits(context, inliers, training=False)
    t_perm = statistics.get("t_perm").fit(context.model, context.dataset.train)
    fooling, fooling_bits = samples[generator.fooling], bits[generator.fooling][0]
    real = take(other.test, len(inliers), 0)
    return {
        "data": generator.data,
        "fooling": generator.fooling,
        "bits": {own: round_values(own_bits), "samples": round_values(fooling_bits)},
        "t_perm": {
            own: round_values(t_perm.score(inliers)),
            "samples": round_values(t_perm.score(fooling)),
            generator.data: round_values(t_perm.score(real)),
        },
        "means": {str(key): [float(one.mean()) for one in of] for key, of in bits.items()},
        # Only generated images: results are published, and we may not redistribute all real ones.
        "examples": _choose_nearest(fooling, fooling_bits, float(np.median(own_bits))),
    }


def _load_generators_data(name: str, context: StudyContext) -> Dataset:
    if name != "photos":
        return load(name, data_dir=context.data_dir)
    # Cut from photographs that are always available, for the smallest scale.
    shape = context.dataset.image_shape
    train, test = (photo_patches(1000, shape, seed=seed) for seed in (1, 2))
    return Dataset("photos", "scikit-learn's photographs", {"train": train, "test": test})


def _choose_nearest(images: np.ndarray, bits: np.ndarray, wanted: float) -> Examples:
    """The images whose bits per dimension are nearest to a value."""
    order = np.argsort(np.abs(bits - wanted))[:EXAMPLES]
    pngs = [base64.b64encode(tf.io.encode_png(images[index]).numpy()).decode() for index in order]
    return {"png": pngs, "bits": round_values(bits[order])}
