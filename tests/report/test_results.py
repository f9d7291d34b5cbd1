"""What pages say of a detector's own results."""

import pytest

from tfbnood import Detector
from tfbnood.report.results import describe_batch


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
