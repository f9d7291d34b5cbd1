"""Exported detectors: signatures, the same scores without tfbnood and Keras, bad rows, versions, atomicity."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfbnood
from tfbnood.errors import DataError, NotCalibratedError, StatisticError, TfbnoodError

OUTPUTS = {"score", "p_value", "is_ood", "bits_per_dim", "valid"}


@pytest.fixture(scope="module")
def version(detector, digits, tmp_path_factory):
    base = tmp_path_factory.mktemp("served") / "digits"
    return detector.export(base, fpr=0.05, held_out=digits.calibration)


@pytest.fixture(scope="module")
def served(version):
    return tf.saved_model.load(str(version))


def call(served, signature, **inputs):
    outputs = served.signatures[signature](**{k: tf.constant(v) for k, v in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def score(served, images, signature="serving_default"):
    dtype = np.uint8 if signature == "uint8" else np.float32
    return call(served, signature, images=np.asarray(images, dtype))


def tolerance(name, **others):
    """Rounded otherwise, a score may change places with one of the 300 calibration scores."""
    return {**others, "atol": 1.01 / 301} if name == "p_value" else others


def png(image):
    return tf.io.encode_png(image).numpy()


def test_signatures_and_their_outputs(served, digits):
    names = {"serving_default", "uint8", "encoded", "log_prob", "score_batch"}
    assert set(served.signatures) == names
    outputs = {name: set(served.signatures[name].structured_outputs) for name in names}
    assert outputs["serving_default"] == outputs["encoded"] == outputs["uint8"] == OUTPUTS
    assert outputs["log_prob"] == {"log_prob", "bits_per_dim", "valid"}
    assert outputs["score_batch"] == {"delta", "p_value", "is_ood", "batch_p_value", "valid"}
    for name in names - {"encoded", "uint8"}:
        for value in score(served, digits.test[:3], name).values():
            assert value.shape == (3,)


def test_scores_are_the_detector_s(served, detector, digits):
    images = np.concatenate([digits.test[:10], 255 - digits.test[10:20]])
    found, expected = score(served, images), detector.predict(images, fpr=0.05)
    np.testing.assert_allclose(found["score"], expected.score, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["p_value"], expected.p_value, atol=2 / 301)
    np.testing.assert_array_equal(found["is_ood"], found["p_value"] <= 0.05)
    np.testing.assert_allclose(found["bits_per_dim"], expected.bits_per_dim, rtol=1e-4)
    assert found["valid"].all()


def test_float_integer_and_encoded_images_are_one(served, digits):
    images = digits.test[:5]
    found = score(served, images)
    for other in (
        score(served, images, "uint8"),
        call(served, "encoded", image_bytes=[png(image) for image in images]),
    ):
        for name in OUTPUTS:
            np.testing.assert_allclose(other[name], found[name], **tolerance(name, rtol=1e-5))


def test_a_row_s_answer_is_the_same_alone_merged_and_padded(served, digits):
    images = np.concatenate([digits.test[:6], 255 - digits.test[6:9]])
    together = score(served, images)
    for index in range(len(images)):
        alone = score(served, images[index : index + 1])
        padded = score(served, np.repeat(images[index : index + 1], 7, axis=0))
        for name in OUTPUTS:
            how = tolerance(name, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(alone[name][0], together[name][index], **how)
            np.testing.assert_allclose(padded[name][3], together[name][index], **how)


BAD_ROWS = {
    "NaN": lambda image: np.where(image == image.max(), np.nan, image),
    "infinite": lambda image: np.where(image == image.max(), np.inf, image),
    "above 255": lambda image: image + 200.0,
    "below 0": lambda image: image - 1.0,
    "in 0–1": lambda image: image / 255.0,
}


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("signature", ["serving_default", "log_prob", "score_batch"])
def test_a_bad_row_is_flagged_and_hurts_no_other(served, digits, case, signature):
    images = digits.test[:4].astype(np.float32)
    good = score(served, images[[0, 2, 3]], signature)
    images[1] = BAD_ROWS[case](images[1])
    found = score(served, images, signature)
    np.testing.assert_array_equal(found["valid"], [True, False, True, True])
    for name, values in found.items():
        assert np.isfinite(values).all()
        how = tolerance(name, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(values[[0, 2, 3]], good[name], **how)
    if signature != "log_prob":
        assert found["is_ood"][1]
        assert found["p_value"][1] == 0


@pytest.mark.parametrize("broken", [b"", b"no image", b"\x89PNG\r\n\x1a\n and then nothing"])
def test_a_broken_file_is_flagged_and_hurts_no_other(served, digits, broken):
    files = [png(image) for image in digits.test[:3]]
    good = call(served, "encoded", image_bytes=files)
    found = call(served, "encoded", image_bytes=[files[0], broken, files[2]])
    np.testing.assert_array_equal(found["valid"], [True, False, True])
    assert found["is_ood"][1]
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name][[0, 2]], good[name][[0, 2]], rtol=1e-5)


def test_truncated_files_and_photographs_of_another_size_have_an_answer(served, digits):
    photo = tfbnood.data.photo_patches(1, (40, 30, 3), seed=0)[0]
    jpeg = tf.io.encode_jpeg(photo).numpy()
    files = [jpeg, jpeg[: len(jpeg) // 2], png(digits.test[0])[:-20]]
    found = call(served, "encoded", image_bytes=files)
    assert found["valid"][0]
    assert not found["valid"][2]
    assert all(np.isfinite(values).all() for values in found.values())


@pytest.mark.parametrize("shape", [(1,), (2, 8, 8), (2, 8, 8, 3), (2, 6, 8, 1)])
def test_other_shapes_are_refused_by_the_graph(served, shape):
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError, ValueError)):
        score(served, np.full(shape, 5.0))


@pytest.mark.parametrize("signature", ["serving_default", "uint8", "log_prob", "score_batch"])
def test_an_empty_request_has_an_empty_answer(served, signature):
    for values in score(served, np.zeros((0, 8, 8, 1)), signature).values():
        assert values.shape == (0,)


def test_a_request_of_many_chunks_is_scored_in_order(served, detector, digits):
    images = np.concatenate([digits.test[:150], 255 - digits.test[:7]])
    found = score(served, images, "uint8")
    np.testing.assert_allclose(found["score"], detector.score(images), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["p_value"], detector.p_values(images), atol=1 / 300)


def test_memory_does_not_grow_with_the_request(version, tmp_path):
    # In a process of its own, whose peak is the request's.
    code = """
import resource, sys
import numpy as np, tensorflow as tf
score = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
peaks = []
for count in (64, 40_000):
    score(images=tf.constant(np.full((count, 8, 8, 1), 7, np.float32)))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(*peaks)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(version)], capture_output=True, text=True, check=True
    )
    small, large = map(float, run.stdout.split())
    assert large - small < 200  # MB; the request itself has 10


def test_score_batch_is_delta_with_mixed_moments(served, digits, detector):
    statistic = tfbnood.statistics.get("bn_delta", mixing="moments").fit(
        detector.model, digits.train
    )
    for images in (digits.test[:1], digits.test[:20], 255 - digits.test[:64]):
        found = score(served, images, "score_batch")
        np.testing.assert_allclose(found["delta"], statistic.score(images), rtol=1e-3, atol=1e-2)
        assert len(set(found["batch_p_value"])) == 1
    assert (
        found["batch_p_value"][0]
        < score(served, digits.test[:64], "score_batch")["batch_p_value"][0]
    )


def test_score_batch_with_embedded_images_is_delta_with_mixed_samples(detector, digits, tmp_path):
    bank = digits.train[:80]
    version = detector.export(tmp_path / "bank", held_out=digits.calibration, embed=bank)
    served = tf.saved_model.load(str(version))
    images = digits.test[:18]
    found = score(served, images, "score_batch")
    # One definition of ratios, groups and draws: that of the statistic in Python, with these reference images.
    statistic = tfbnood.statistics.get("bn_delta", reference_images=80).fit(detector.model, bank)
    np.testing.assert_allclose(found["delta"], statistic.score(images), rtol=1e-3, atol=1e-3)
    spoiled = images.astype(np.float32)
    spoiled[5] = np.nan
    again = score(served, spoiled, "score_batch")
    np.testing.assert_array_equal(again["valid"], np.arange(18) != 5)
    assert all(np.isfinite(values).all() for values in again.values())
    about = json.loads((version / "assets.extra" / "detector.json").read_text())
    assert about["embedded_reference_images"] == 80


def test_a_fresh_process_with_plain_tensorflow_gives_the_same_scores(
    version, detector, digits, tmp_path
):
    images = digits.test[:9]
    np.save(tmp_path / "images.npy", images)
    code = """
import sys
sys.modules["tfbnood"] = None; sys.modules["keras"] = None
import numpy as np, tensorflow as tf
served = tf.saved_model.load(sys.argv[1])
images = tf.constant(np.load(sys.argv[2]), tf.float32)
print(*served.signatures["serving_default"](images=images)["score"].numpy().tolist())
"""
    arguments = [sys.executable, "-c", code, str(version), str(tmp_path / "images.npy")]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=tmp_path)
    found = np.array(result.stdout.split(), float)
    np.testing.assert_allclose(found, detector.score(images), rtol=1e-4, atol=1e-4)


def test_no_python_operations_no_xla_and_no_assignments(version):
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    functions = message.meta_graphs[0].graph_def.library.function
    serving = [
        f for f in functions if "restore" not in f.signature.name and "save" not in f.signature.name
    ]
    operations = {node.op for function in serving for node in function.node_def}
    assert not operations & {"PyFunc", "EagerPyFunc", "PyFuncStateless", "AssignVariableOp"}
    for function in functions:
        assert not function.attr["_XlaMustCompile"].b
        assert not any("_output_shapes" in node.attr for node in function.node_def)  # for size


def test_extras_say_what_it_is_and_their_hashes_fit(version, detector):
    extra = version / "assets.extra"
    about = json.loads((extra / "detector.json").read_text())
    assert about["statistic"] == "ensemble"
    assert about["fpr"] == 0.05
    assert about["image_shape"] == [8, 8, 1]
    assert about["batch_group_sizes"] == [1, 4, 16, 64]
    assert about["versions"]["tensorflow"] == tf.__version__
    for name, digest in about["sha256"].items():
        assert hashlib.sha256((version / name).read_bytes()).hexdigest() == digest
    assert "saved_model.pb" in about["sha256"]
    (record,) = tf.data.TFRecordDataset(
        str(extra / "tf_serving_warmup_requests")
    ).as_numpy_iterator()
    assert b"serving_default" in record
    assert b"images" in record


def test_the_warm_up_request_is_tf_serving_s_message(version):
    apis = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2", reason="needs tensorflow-serving-api"
    )
    path = version / "assets.extra" / "tf_serving_warmup_requests"
    (record,) = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    request = apis.PredictionLog.FromString(record).predict_log.request
    assert request.model_spec.signature_name == "serving_default"
    assert tf.make_ndarray(request.inputs["images"]).shape == (1, 8, 8, 1)


def test_versions_count_up_and_a_killed_export_leaves_none(detector, tmp_path):
    base = tmp_path / "digits"
    (base / "7").mkdir(parents=True)
    code = (
        "import os, brought, tfbnood, tensorflow as tf\n"
        "from tfbnood.export import write as module\n"
        "module._write_extras = lambda *_: os.kill(os.getpid(), 9)\n"  # after saved_model.pb is written
        "detector = tfbnood.Detector.load(os.environ['DETECTOR'])\n"
        "detector.export(os.environ['BASE'])\n"
    )
    detector.save(tmp_path / "detector")
    tests = pathlib.Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(tests), "BASE": str(base)}
    environment["DETECTOR"] = str(tmp_path / "detector")
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -9
    rests = [path for path in base.iterdir() if path.name != "7"]
    assert len(rests) == 1
    assert rests[0].name.startswith(".partial-")  # no integer: no server looks at it
    assert detector.export(base).name == "8"
    assert sorted(path.name for path in base.iterdir()) == ["7", "8"]


def test_a_failing_export_leaves_nothing(detector, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("tfbnood.export.write._write_extras", fail)
    with pytest.raises(TfbnoodError, match=r"cannot be written \(no space left"):
        detector.export(tmp_path / "digits")
    assert not list((tmp_path / "digits").iterdir())


def test_what_cannot_be_exported_is_said(detector, digits, tmp_path):
    raw = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    with pytest.raises(NotCalibratedError, match=r"before export\(\)"):
        raw.export(tmp_path)
    batch = tfbnood.Detector(detector.model, "typicality", reference=digits.train, group_size=4)
    with pytest.raises(StatisticError, match=r"must score single images .*Received: typicality"):
        batch.calibrate(digits.calibration[:20]).export(tmp_path)
    with pytest.raises(DataError, match=r"fpr must be at least 1/\(n \+ 1\)"):
        detector.export(tmp_path, fpr=1e-6)


@pytest.mark.parametrize("statistic", ["pixel_pca", "auto"])
def test_a_detector_of_pixels_alone_is_exported_without_likelihoods(digits, tmp_path, statistic):
    raw = tfbnood.Detector(None, statistic, reference=digits.train).calibrate(digits.calibration)
    served = tf.saved_model.load(str(raw.export(tmp_path / "pixels", held_out=digits.calibration)))
    assert set(served.signatures) == {"serving_default", "uint8", "encoded"}
    for signature in served.signatures.values():
        assert set(signature.structured_outputs) == OUTPUTS - {"bits_per_dim"}
    np.testing.assert_allclose(
        score(served, digits.test[:4])["score"], raw.score(digits.test[:4]), rtol=1e-4, atol=1e-3
    )


def test_t_perm_is_exported_too(detector, digits, tmp_path):
    ranked = tfbnood.Detector(detector.model, "t_perm", reference=digits.train)
    version = ranked.calibrate(digits.calibration).export(tmp_path / "ranked")
    found = score(tf.saved_model.load(str(version)), digits.test[:40])["score"]
    # Likelihoods that differ in their last bits may change places with a neighbour.
    np.testing.assert_allclose(found, ranked.score(digits.test[:40]), atol=2)
    assert len(np.unique(found)) > 10
