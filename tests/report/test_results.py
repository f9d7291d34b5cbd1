"""What pages say of a detector's own results."""

import re

import pytest

from tfbnood import Detector
from tfbnood.report.results import describe_batch, write_score_report


@pytest.mark.parametrize("clusters", [None, 4])
def test_the_batch_is_tested_as_the_detector_does(digits, clusters):
    detector = Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(digits.calibration, clusters=clusters)
    images = digits.test[digits.test_labels == 3]
    p_value, method = describe_batch(detector.predict(images), detector)
    tested = detector.test_batch(images)
    assert (p_value, method) == (tested.p_value, tested.method.replace("_", " "))
    if clusters:
        assert p_value != detector.test_batch(images, forgive_mix=False).p_value


@pytest.mark.parametrize("clusters", [None, 4])
def test_the_slider_starts_where_an_image_of_any_cluster_can_be_flagged(digits, clusters, tmp_path):
    detector = Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(digits.calibration, clusters=clusters)
    images = digits.test[:5]
    write_score_report(
        tmp_path / "page.html",
        detector,
        detector.predict(images, fpr=0.1),
        names=[str(row) for row in range(5)],
        read=lambda row: images[row],
        fpr=0.1,
    )
    page = (tmp_path / "page.html").read_text("utf-8")
    stated = [int(found) for found in re.findall(r'"calibration": ?(\d+)', page)]
    assert stated == [detector.calibration.fewest]
    assert (stated[0] < len(digits.calibration)) == bool(clusters)
