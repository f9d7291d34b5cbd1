import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from brought import PlainModel, trained_brought_model
from scipy.stats import kstest

import tfbnood
from tfbnood.errors import (
    DataError,
    NotCalibratedError,
    SavedDetectorError,
    StatisticError,
    TfbnoodError,
)


@pytest.fixture(scope="module")
def model(digits):
    return trained_brought_model(digits.train)


@pytest.fixture(scope="module")
def by_image(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    return detector.calibrate(digits.calibration)


@pytest.fixture(scope="module")
def by_batch(model, digits):
    detector = tfbnood.Detector(model, "bn_delta", reference=digits.train, batch_size=16)
    return detector.calibrate(digits.calibration)


@pytest.fixture(scope="module", params=["image", "batch"])
def detector(request, by_image, by_batch):
    return by_image if request.param == "image" else by_batch


def test_a_brought_keras_model_with_stock_batch_normalisation_finds_outliers(detector, digits):
    found = detector.predict(255 - digits.test[64:128], fpr=0.05)
    alarms = detector.predict(digits.test[:64], fpr=0.05)
    assert found.is_ood.mean() > 0.5
    assert alarms.is_ood.mean() < 0.25
    assert found.bits_per_dim.shape == (64,)


def test_p_values_of_held_out_digits_are_uniform(by_image, digits):
    p_values = by_image.p_values(digits.test)
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert abs((p_values <= 0.1).mean() - 0.1) < 0.05


def test_batch_p_values_of_held_out_digits_are_uniform_at_every_size(by_batch, digits):
    # The p-values of one request move together: the larger the requests, the fewer independent ones.
    for size, tolerance in ((1, 0.06), (4, 0.08), (16, 0.15)):
        requests = [digits.test[i : i + size] for i in range(0, 384, size)]
        p_values = np.concatenate([by_batch.p_values(request) for request in requests])
        assert abs(np.mean(p_values) - 0.5) < tolerance
        assert abs((p_values <= 0.2).mean() - 0.2) < tolerance


def test_predict_is_p_values_against_the_rate(detector, digits):
    images = np.concatenate([digits.test[:32], 255 - digits.test[32:64]])
    result = detector.predict(images, fpr=0.1)
    np.testing.assert_array_equal(result.score, detector.score(images))
    np.testing.assert_array_equal(result.p_value, detector.p_values(images))
    np.testing.assert_array_equal(result.is_ood, result.p_value <= 0.1)
    discoveries = detector.predict(images, fdr=0.2)
    np.testing.assert_array_equal(
        discoveries.is_ood, tfbnood.calibration.benjamini_hochberg(result.p_value, 0.2)
    )
    assert "false-discovery rate 0.2" in str(discoveries)


def test_results_say_what_they_assume(by_image, by_batch, digits):
    assert by_image.predict(digits.test[:5]).assumed == "every image on its own"
    batch = by_batch.predict(digits.test[:5], fpr=0.05)
    assert batch.assumed.startswith("homogeneous batch")
    assert batch.group_size == 4
    assert by_image.test_batch(digits.test[:5]).assumed == "every image on its own"
    assert by_batch.test_batch(digits.test[:5]).assumed.startswith("homogeneous batch")
    # A p-value is not the chance that the batch is fine, and the text must not say so.
    assert "the share of in-distribution batches that look as strange, by mean of bn_delta" in str(
        by_batch.test_batch(digits.test[:5])
    )


def test_methods_of_the_batch_test_go_with_the_scope(by_image, by_batch, digits):
    for method in tfbnood.batch_tests.BATCH_TESTS:
        assert by_image.test_batch(digits.test[:5], method=method).method == method
    assert by_image.test_batch(digits.test[:5]).method == "simes"
    assert by_image.test_batch(digits.test[:10]).method == "higher_criticism"
    for detector, method in ((by_image, "mean"), (by_batch, "simes")):
        with pytest.raises(
            StatisticError, match=f"method must be one of .*Received: method='{method}'"
        ):
            detector.test_batch(digits.test[:5], method=method)


def test_rank_counts_the_calibration_scores_at_or_below(detector, digits):
    images = digits.test[:20]
    null = detector.calibration.null_of_images(20)
    expected = [(null <= score).sum() for score in detector.score(images)]
    np.testing.assert_array_equal(detector.rank(images), expected)


def test_a_request_of_one_image_is_legal(detector, digits):
    result = detector.predict(digits.test[:1], fpr=0.05)
    assert len(result) == 1
    assert 0 < result.p_value[0] <= 1
    assert 0 < detector.test_batch(digits.test[:1]).p_value <= 1


def test_a_whole_batch_of_outliers_has_a_small_p_value(detector, digits):
    assert detector.test_batch(255 - digits.test[32:64]).p_value < 0.12
    assert detector.test_batch(digits.test[:32]).p_value > 0.05


def test_predict_before_calibrate_is_refused(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    for method in ("predict", "p_values", "rank", "test_batch"):
        with pytest.raises(NotCalibratedError, match=rf"call calibrate\(\) .* before {method}\(\)"):
            getattr(detector, method)(digits.test[:2])


def test_calibration_refuses_bad_images(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    with pytest.raises(DataError, match="held-out images must be finite"):
        detector.calibrate(np.where(digits.test > 250, np.nan, digits.test))
    with pytest.raises(StatisticError, match="at least 2 held-out images"):
        detector.calibrate(digits.test[:1])
    assert detector.calibration is None


def test_rates_that_make_no_sense_are_refused(detector, digits):
    with pytest.raises(DataError, match=r"fpr must be at least 1/\(n \+ 1\)"):
        detector.predict(digits.test[:4], fpr=1e-5)
    with pytest.raises(DataError, match="give fpr or fdr, not both"):
        detector.predict(digits.test[:4], fpr=0.1, fdr=0.1)


def test_a_model_without_batch_normalisation_is_refused_for_bn_statistics(digits):
    with pytest.raises(StatisticError, match="a model with none"):
        tfbnood.Detector(PlainModel(), "bn_delta", reference=digits.train)


def test_a_saved_detector_comes_back_with_the_same_scores(detector, digits, tmp_path):
    detector.save(tmp_path / "saved")
    again = tfbnood.Detector.load(tmp_path / "saved")
    images = digits.test[:20]
    np.testing.assert_array_equal(again.p_values(images), detector.p_values(images))
    assert again.test_batch(images) == detector.test_batch(images)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    detector.save(tmp_path / "saved")  # replaces a detector
    assert json.loads((tmp_path / "saved" / "detector.json").read_text())["versions"]["tfbnood"]


def test_a_detector_loads_in_a_fresh_process(by_batch, digits, tmp_path):
    by_batch.save(tmp_path / "saved")
    code = (
        "import sys, brought, tfbnood\n"
        "detector = tfbnood.Detector.load(sys.argv[1])\n"
        "images = tfbnood.data.load('digits').test[:7]\n"
        "print(*detector.score(images).tolist())\n"
    )
    tests = pathlib.Path(__file__).parent
    output = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved")],
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    scores = np.array(output.split(), float)
    np.testing.assert_allclose(scores, by_batch.score(digits.test[:7]), rtol=1e-5)


def test_several_models_and_no_model_are_saved_too(model, digits, tmp_path):
    for models, name in (
        ([model, trained_brought_model(digits.train, 1)], "waic"),
        (None, "pixel_pca"),
    ):
        detector = tfbnood.Detector(models, name, reference=digits.train)
        detector.calibrate(digits.calibration[:100]).save(tmp_path / name)
        again = tfbnood.Detector.load(tmp_path / name)
        np.testing.assert_array_equal(again.score(digits.test[:5]), detector.score(digits.test[:5]))


def truncate(folder):
    path = folder / "model.keras"
    path.write_bytes(path.read_bytes()[:-10])


def edit_arrays(folder):
    path = folder / "arrays.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rewrite(**changes):
    def spoil(folder):
        path = folder / "detector.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncate, "model.keras was truncated or edited"),
        (edit_arrays, "arrays.npz was truncated or edited"),
        (lambda folder: (folder / "arrays.npz").unlink(), "arrays.npz is missing"),
        (lambda folder: (folder / "detector.json").unlink(), "must hold a saved detector"),
        (
            lambda folder: (folder / "detector.json").write_text('{"form'),
            "detector.json is damaged",
        ),
        (lambda folder: (folder / "detector.json").write_text("{}"), "detector.json is damaged"),
        (rewrite(format=99), "has format 99, this version of tfbnood reads format 1"),
        (rewrite(sha256={}), "no hash for arrays.npz, model.keras"),
        (rewrite(models=["../../etc/passwd"]), "names a file outside its folder"),
        (rewrite(statistic="magic"), "statistic must be auto or one of"),
    ],
)
def test_a_damaged_edited_or_newer_folder_is_refused_in_one_sentence(
    by_image, tmp_path, spoil, message
):
    by_image.save(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(TfbnoodError, match=message) as caught:
        tfbnood.Detector.load(tmp_path / "saved")
    assert "\n" not in str(caught.value)


def test_saving_over_something_else_is_refused(by_image, tmp_path):
    (tmp_path / "precious").mkdir()
    with pytest.raises(DataError, match="folder must be new, or hold a detector to replace"):
        by_image.save(tmp_path / "precious")
    with pytest.raises(SavedDetectorError, match="must hold a saved detector"):
        tfbnood.Detector.load(tmp_path / "precious")


def test_a_save_that_fails_leaves_the_old_detector_and_no_rest(
    by_image, digits, tmp_path, monkeypatch
):
    by_image.save(tmp_path / "saved")
    before = (tmp_path / "saved" / "detector.json").read_text()
    monkeypatch.setattr(
        np, "savez_compressed", lambda *a, **k: (_ for _ in ()).throw(OSError("full"))
    )
    with pytest.raises(OSError, match="full"):
        by_image.save(tmp_path / "saved")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert (tmp_path / "saved" / "detector.json").read_text() == before
    assert len(tfbnood.Detector.load(tmp_path / "saved").score(digits.test[:2])) == 2
