"""Protocols know models by their methods, ours and a user's, and cost no import of TensorFlow."""

import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from brought import PlainModel

import tfbnood
from tfbnood.models import VAE, PixelCNN, RealNVP
from tfbnood.networks import Network
from tfbnood.protocols import Encoder, FeatureExtractor, Likelihood, Reconstructor
from tfbnood.scoring.frozen import FrozenLikelihood, FrozenNetwork


class Duck:
    """No Keras model: any object with the method will do."""

    def log_prob(self, images, training=False):
        return images


def classifier():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: RealNVP((8, 8, 1), channels=2, blocks=1), {Likelihood, Encoder}),
        (
            lambda: VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8),
            {Likelihood, Reconstructor},
        ),
        (lambda: PixelCNN((8, 8, 1), filters=4, blocks=1, mixtures=1), {Likelihood}),
        (lambda: FrozenLikelihood(PlainModel()), {Likelihood}),
        (lambda: Network(classifier()), {FeatureExtractor}),
        (lambda: FrozenNetwork(Network(classifier())), {FeatureExtractor}),
        (PlainModel, {Likelihood}),
        (Duck, {Likelihood}),
        (classifier, set()),
        (lambda: [PlainModel()], set()),
        (lambda: None, set()),
    ],
    ids=[
        "RealNVP",
        "VAE",
        "PixelCNN",
        "frozen",
        "network",
        "frozen network",
        "a user's",
        "duck",
        "classifier",
        "list",
        "None",
    ],
)
def test_models_are_known_by_their_methods(make, expected):
    model = make()
    known = (Likelihood, FeatureExtractor, Encoder, Reconstructor)
    found = {one for one in known if isinstance(model, one)}
    assert found == expected


def test_protocols_do_not_import_tensorflow():
    code = "import sys, tfbnood.protocols; assert not {'tensorflow', 'keras', 'numpy'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_module_asks_for_a_likelihood_in_its_own_way():
    by_hand = re.compile(r"""(has|get)attr\([^)]*["']log_prob["']""")
    sources = Path(tfbnood.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if by_hand.search(path.read_text("utf-8"))] == []
