"""Objects say what they are: in one line at a prompt, with tables and thumbnails in a notebook, with text escaped."""

import base64
import html.parser
import io
import re
import sys

import numpy as np
import pytest
from brought import trained_brought_model
from PIL import Image

import tfbnood
from tfbnood.detection import Detection
from tfbnood.errors import DataError, TfbnoodError

EVIL = "<script>alert('x')</script>&\""


class Tags(html.parser.HTMLParser):
    """Collects tags, and fails at one that is closed out of order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(value):
    parsed = Tags(value._repr_html_())
    assert "script" not in {tag for tag, _ in parsed.seen}
    assert not any(name.startswith("on") for _, attributes in parsed.seen for name in attributes)
    return parsed


def thumbnails(text):
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


@pytest.fixture(scope="module")
def detector(digits):
    made = tfbnood.Detector(None, "pixel_pca", reference=digits.train, tolerate=("blur",))
    return made.calibrate(digits.calibration)


@pytest.fixture(scope="module")
def mixed(digits):
    return np.concatenate([digits.test[:30], 255 - digits.test[:5]])


@pytest.fixture(scope="module")
def found(detector, mixed):
    return detector.predict(mixed, fpr=0.05)


def test_a_detector_says_what_it_stands_on_and_what_it_can_do(detector, digits):
    assert repr(detector) == (
        "<Detector: pixel_pca of pixels alone, images of (8, 8, 1), tolerates blur, "
        "calibrated by 300 scores, false-alarm rates from 0.0033>"
    )
    assert repr(tfbnood.Detector(None)) == "<Detector: ensemble of pixels alone, not fitted>"
    model = trained_brought_model(digits.train)
    made = tfbnood.Detector(model, "log_prob", reference=digits.train)
    assert repr(made) == (
        "<Detector: log_prob on BroughtModel, images of (8, 8, 1), not calibrated>"
    )
    assert "call calibrate(held_out_images)" in shown(made).text
    assert "call fit(images)" in shown(tfbnood.Detector(model)).text
    text = shown(detector).text
    for words in ("8×8×1", "1100 images", "blur", "from 0.0033"):
        assert words in text


def test_text_of_users_is_escaped(digits):
    class Evil(tfbnood.statistics.Statistic):
        name, scope, needs_model = EVIL, "image", False

        def __init__(self, *, word="fine"):
            self.word = word

        def _fit(self, model, reference):
            pass

        def _score(self, images):
            return images.mean(axis=(1, 2, 3))

    detector = tfbnood.Detector(None, Evil(word=EVIL), reference=digits.train)
    detector.about = {EVIL: EVIL}
    detector.calibrate(digits.calibration)
    results = [
        detector,
        detector.statistic,
        detector.predict(digits.test[:9]),
        detector.test_batch(digits.test[:9]),
        tfbnood.evaluate(detector, digits.test, {EVIL: 255 - digits.test}),
    ]
    for result in results:
        assert EVIL in shown(result).text
        assert "<script" not in result._repr_html_()


def test_statistics_say_their_settings_and_what_they_are_fitted_to(digits):
    statistic = tfbnood.statistics.get("bn_moments", components=20)
    assert repr(statistic) == "<bn_moments components=20, not fitted>"
    assert repr(tfbnood.statistics.get("bn_moments")) == "<bn_moments not fitted>"
    fitted = tfbnood.statistics.get("pixel_pca").fit(None, digits.train)
    assert repr(fitted) == "<pixel_pca fitted to (8, 8, 1)>"
    text = shown(statistic).text
    assert "components20" in text
    assert "reference_images4000" in text  # In a notebook the defaults as well.
    for name in tfbnood.statistics.names():
        assert re.fullmatch(rf"<{name} (.*, )?not fitted>", repr(tfbnood.statistics.get(name)))


def test_a_statistic_that_does_not_keep_its_settings_has_a_repr():
    class Forgetful(tfbnood.statistics.Statistic):
        name, scope = "test_forgetful", "batch"

        def __init__(self, *, secret=1, table=None):
            self.table = table

        def _fit(self, model, reference):
            pass

        def _score(self, images):
            pass

    assert repr(Forgetful()) == "<test_forgetful not fitted>"
    assert "table=array([0, 1])" in repr(Forgetful(table=np.arange(2)))


def test_a_calibration_says_which_rates_are_possible(detector):
    assert repr(detector.calibration) == "<Calibration: 300 scores, false-alarm rates from 0.0033>"
    null = detector.calibration.null_of_images(1)
    # Above the ⌊0.05 · 301⌋-th largest.
    assert f"above {np.sort(null)[-15]:.4g}" in shown(detector.calibration).text


def test_a_detection_shows_the_most_suspicious_images_first(found, mixed):
    alarms = int(found.is_ood.sum())
    assert alarms >= 5
    assert repr(found) == (
        f"<Detection: {alarms} of 35 images out-of-distribution by pixel_pca (false-alarm rate 0.05; every image on "
        "its own)>"
    )
    parsed = shown(found)
    pictures = thumbnails(found._repr_html_())
    assert len(pictures) == 24
    order = np.argsort(-found.score, kind="stable")
    for row, picture in zip(order, pictures, strict=False):
        np.testing.assert_array_equal(picture, mixed[row, ..., 0])
    captions = [attributes["alt"] for tag, attributes in parsed.seen if tag == "img"]
    assert captions[0] == f"{order[0]}: p = {found.p_value[order[0]]:.2g}"
    framed = [("#d4145a" in attributes["style"]) for tag, attributes in parsed.seen if tag == "img"]
    assert framed == found.is_ood[order[:24]].tolist()
    assert len(found._repr_html_()) < 30_000


def test_large_photographs_become_small_thumbnails():
    images = np.random.RandomState(0).randint(0, 256, (40, 96, 160, 3), np.uint8)
    detector = tfbnood.Detector(None, "pixel_pca").fit(images)
    text = detector.predict(images)._repr_html_()
    assert {picture.shape for picture in thumbnails(text)} == {(38, 64, 3)}
    assert len(text) < 300_000  # of noise, which no file format makes smaller


def test_images_of_a_detection_may_be_given(found, mixed):
    assert len(thumbnails(found.to_html(mixed, most=30))) == 30
    assert len(thumbnails(found.to_html(most=3))) == 3
    clear = found[~found.is_ood]
    pictures = thumbnails(clear.to_html(mixed, most=2))
    best = clear.rows[np.argsort(-clear.score, kind="stable")[:2]]
    np.testing.assert_array_equal(pictures, mixed[best, ..., 0])
    with pytest.raises(
        DataError, match=r"images must be all images that were passed to predict\(\)"
    ):
        found.to_html(mixed[:3])


def test_a_detection_is_indexed_like_an_array(found):
    alarms = found[found.is_ood]
    assert isinstance(alarms, Detection)
    assert alarms.is_ood.all()
    np.testing.assert_array_equal(alarms.rows, np.flatnonzero(found.is_ood))
    np.testing.assert_array_equal(alarms.score, found.score[found.is_ood])
    assert set(alarms.pictures.rows) <= set(alarms.rows)
    assert len(found[:7]) == len(found[[3, 1, 2, 0, 4, 5, 6]]) == 7
    assert found[-1] == list(found)[-1]
    assert found[2].row == 2
    assert found[2].score == found.score[2]
    assert found[2].bits_per_dim is None
    assert [one.is_ood for one in found] == found.is_ood.tolist()
    np.testing.assert_array_equal(found[5:][found.is_ood[5:]].rows, alarms.rows[alarms.rows >= 5])
    nothing = found[np.zeros(35, bool)]
    assert str(nothing).startswith("0 of 0 images")
    assert shown(nothing)
    with pytest.raises(IndexError):
        found[35]


def test_a_detection_does_not_keep_the_images(digits, detector):
    found = detector.predict(digits.test)
    assert not np.shares_memory(found.pictures.images, digits.test)
    assert found.pictures.images.shape == (24, 8, 8, 1)


def test_a_detection_becomes_a_table(found, digits):
    pandas = pytest.importorskip("pandas")
    table = found.to_frame()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == ["score", "p_value", "is_ood"]
    np.testing.assert_array_equal(table["p_value"], found.p_value)
    alarms = found[found.is_ood].to_frame()
    np.testing.assert_array_equal(alarms.index, np.flatnonzero(found.is_ood))
    model = trained_brought_model(digits.train)
    bits = tfbnood.Detector(model, "log_prob").fit(digits.train).predict(digits.test).to_frame()
    assert "bits_per_dim" in bits.columns


def test_without_pandas_the_error_says_so(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TfbnoodError, match=r"^to_frame\(\) needs pandas: pip install pandas$"):
        found.to_frame()


def test_a_batch_test_says_its_p_value(detector, digits):
    result = detector.test_batch(digits.test[:20])
    assert repr(result) == f"<BatchTest: {result}>"
    assert f"{result.p_value:.3g}" in shown(result).text


def test_an_evaluation_shows_its_tables(detector, digits):
    result = tfbnood.evaluate(detector, digits.test, {"inverted": 255 - digits.test})
    assert repr(result) == "<Evaluation: pixel_pca on inverted; seed 0>"
    parsed = shown(result)
    assert [tag for tag, _ in parsed.seen].count("table") == 1
    assert str(result.row("inverted", "pixel_pca").auroc) in parsed.text


def test_a_data_set_says_its_parts(digits):
    assert repr(digits) == (
        "<Dataset digits: 1100 train, 300 calibration, 397 test, image_shape=(8, 8, 1), "
        "scikit-learn's load_digits>"
    )
    parsed = shown(digits)
    for words in (
        "Data set digits",
        "1,100 images",
        "8×8 pixels, grey",
        "scikit-learn's load_digits",
    ):
        assert words in parsed.text
    pictures = thumbnails(digits._repr_html_())
    assert len(pictures) == 12
    np.testing.assert_array_equal(pictures[0], digits.train[0, ..., 0])
    np.testing.assert_array_equal(pictures[-1], digits.train[-1, ..., 0])


def test_a_data_set_of_a_folder_says_what_was_converted(tmp_path, digits):
    for index, image in enumerate(digits.test[:10]):
        Image.fromarray(image[..., 0]).save(tmp_path / f"{index}.png")
    Image.new("L", (16, 16), 9).save(tmp_path / "large.png")
    text = shown(tfbnood.data.load(tmp_path)).text
    assert "1 of 11 files was resized (from 16×16 to 8×8)." in text
    assert "train8 imagescalibration2 imagestest1 imageimages8×8 pixels, grey" in text
