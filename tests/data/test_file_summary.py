"""Summaries count what files went through, survive JSON, and say in sentences what a detector has not seen."""

import dataclasses
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbnood.data.file_summary import _DONE, FileSummary, of_arrays, sentences, summarize
from tfbnood.data.files import FORMATS, KINDS, Conversions
from tfbnood.errors import DataError

SHAPE = (128, 128, 3)
PLAIN = Conversions("PNG", (128, 128))
SMALL = Conversions("PNG", (150, 150), ("resized",))


def made(*counted) -> FileSummary:
    return summarize([one for one, count in counted for _ in range(count)], SHAPE)


conversions = st.builds(
    Conversions,
    st.sampled_from(FORMATS),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sets(st.sampled_from(KINDS)).map(lambda kinds: tuple(k for k in KINDS if k in kinds)),
)


@settings(deadline=None, derandomize=True)  # The machine may be busy.
@given(
    st.lists(conversions), st.lists(conversions), st.lists(st.sampled_from(["truncated", "empty"]))
)
def test_the_summary_of_two_parts_is_the_sum_of_their_summaries(first, second, skipped):
    both = summarize(first + second, SHAPE, skipped=skipped, ignored={".heic": 2})
    parts = summarize(first, SHAPE, skipped=skipped) + summarize(
        second, SHAPE, ignored={".heic": 2}
    )
    assert parts == both
    assert list(parts.formats.items()) == list(both.formats.items())  # in one order
    assert both.files == len(first) + len(second)
    assert sum(both.sizes.values()) == sum("resized" in one.kinds for one in first + second)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(conversions), st.lists(st.sampled_from(["truncated", "empty"])))
def test_a_summary_survives_json(found, skipped):
    summary = summarize(found, SHAPE, skipped=skipped)
    assert FileSummary.from_dict(json.loads(json.dumps(summary.as_dict()))) == summary


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(conversions, min_size=1), st.lists(conversions))
def test_every_kind_has_a_sentence_with_its_count(found, known):
    summary, reference = summarize(found, SHAPE), summarize(known, SHAPE)
    for calibrated_on in (None, reference, reference.as_dict()):
        said = sentences(summary, calibrated_on=calibrated_on)
        assert all(sentence.endswith(".") and "{" not in sentence for sentence in said)
        assert len(set(said)) == len(said)
        for kind, count in summary.kinds.items():
            words = re.split(r" \(| \{", _DONE[kind])[0].replace("{target}", "128×128")
            start = f"{count} of {len(found)} file{'s' * (len(found) > 1)} w"
            assert any(one.startswith(start) and words in one for one in said), kind


def test_every_kind_has_its_words():
    assert list(_DONE) == list(KINDS)


def test_files_whose_pixels_are_the_images_need_no_sentence():
    assert sentences(made((PLAIN, 9))) == []
    assert sentences(made((PLAIN, 9)), calibrated_on=made((PLAIN, 3))) == []


def test_resized_files_are_said_with_their_most_common_size():
    large = dataclasses.replace(SMALL, size=(300, 200))
    assert sentences(made((SMALL, 200), (large, 7), (PLAIN, 123))) == [
        "207 of 330 files were resized (mostly from 150×150 to 128×128)."
    ]
    assert sentences(made((SMALL, 1), (PLAIN, 1))) == [
        "1 of 2 files was resized (from 150×150 to 128×128)."
    ]


def test_files_that_were_not_read_are_counted_by_reason():
    summary = summarize(
        [PLAIN], SHAPE, skipped=["truncated", "empty", "empty"], ignored={".heic": 3}
    )
    assert sentences(summary) == [
        "3 files could not be read: 2 empty, 1 truncated.",
        "Formats that cannot be read: 3 .heic; convert these files to PNG.",
    ]


def test_formats_are_said_when_there_are_several():
    jpeg = Conversions("JPEG", (128, 128))
    assert sentences(made((PLAIN, 2), (jpeg, 3))) == ["The 5 files are 3 JPEG, 2 PNG."]


def test_a_format_that_the_detector_was_not_calibrated_on_is_a_warning():
    jpeg, bmp = Conversions("JPEG", (128, 128)), Conversions("BMP", (128, 128))
    assert sentences(made((PLAIN, 289), (jpeg, 41)), calibrated_on=made((PLAIN, 600))) == [
        "41 files are JPEG while the detector was calibrated on PNG: expect false alarms; see tolerate."
    ]
    assert sentences(made((PLAIN, 1)), calibrated_on=made((jpeg, 600))) == [
        "1 file is PNG while the detector was calibrated on JPEG: expect false alarms."
    ]
    # The same pixels in another lossless file.
    assert sentences(made((bmp, 9)), calibrated_on=made((PLAIN, 600))) == []


@pytest.mark.parametrize(
    ("known", "now", "warns"),
    [(0, 1, True), (4, 5, True), (4, 3, False), (5, 90, False), (50, 100, False), (1, 1, False)],
)
def test_new_is_what_less_than_5_percent_and_a_smaller_share_had(known, now, warns):
    reference = made((SMALL, known), (PLAIN, 100 - known))
    (said,) = sentences(made((SMALL, now), (PLAIN, 100 - now)), calibrated_on=reference)
    assert said.endswith("expect false alarms; see tolerate.") == warns
    if warns:
        assert ("none of those" if known == 0 else f"{known}.0% of those") in said


def test_files_of_another_scale_are_a_warning():
    huge = dataclasses.replace(SMALL, size=(1024, 1024))
    (said,) = sentences(made((SMALL, 9)), calibrated_on=made((huge, 9)))
    assert "while the detector was calibrated on files resized from 1024×1024: expect" in said
    (said,) = sentences(made((PLAIN, 9)), calibrated_on=made((huge, 9)))
    assert said == (
        "No file was resized while the detector was calibrated on files resized from 1024×1024: "
        "expect false alarms."
    )
    near = dataclasses.replace(SMALL, size=(160, 160))
    (said,) = sentences(made((near, 9)), calibrated_on=made((SMALL, 9)))
    assert "expect" not in said


@pytest.mark.parametrize("kind", ["rotated", "cropped", "first_frame", "profile", "faint"])
def test_what_leaves_pixels_as_they_are_is_no_warning(kind):
    now = made((Conversions("PNG", (128, 128), (kind,)), 9))
    (said,) = sentences(now, calibrated_on=made((PLAIN, 9)))
    assert "expect" not in said


def test_files_are_compared_with_the_arrays_that_a_shipped_detector_was_calibrated_on():
    jpeg = Conversions("JPEG", (128, 128))
    reference = of_arrays(SHAPE)
    assert sentences(made((PLAIN, 9)), calibrated_on=reference) == []
    resized, lossy = sentences(made((SMALL, 9), (jpeg, 3)), calibrated_on=reference)
    assert resized.endswith(
        "that the detector was calibrated on: expect false alarms; see tolerate."
    )
    assert lossy.startswith("3 files are JPEG while the detector was calibrated on arrays: expect")


def test_what_a_detector_tolerates_is_stated_and_no_warning():
    jpeg = Conversions("JPEG", (128, 128))
    now, before = made((SMALL, 9), (jpeg, 3)), made((PLAIN, 9))
    resized, lossy = sentences(now, calibrated_on=before, tolerate=("jpeg", "resize"))
    assert resized.endswith("none of those that the detector was calibrated on; it tolerates this.")
    assert lossy == "3 files are JPEG while the detector was calibrated on PNG; it tolerates this."
    resized, lossy = sentences(now, calibrated_on=before, tolerate=("jpeg",))
    assert resized.endswith("expect false alarms; see tolerate.")
    assert lossy.endswith("it tolerates this.")


def test_an_empty_reference_compares_nothing():
    assert sentences(made((SMALL, 2)), calibrated_on=made()) == sentences(made((SMALL, 2)))
    assert sentences(made(), calibrated_on=made((SMALL, 2))) == []


def test_only_the_most_common_sizes_are_kept():
    many = [dataclasses.replace(SMALL, size=(1, n)) for n in range(1, 500)] + [SMALL] * 3
    summary = summarize(many, SHAPE)
    assert len(summary.sizes) == 100
    assert next(iter(summary.sizes.items())) == ("150×150", 3)
    assert summary.kinds["resized"] == 502
    assert len((summary + summary).sizes) == 100


def test_summaries_of_two_shapes_do_not_add():
    with pytest.raises(DataError, match=r"image_shape must be the same.*\(128, 128, 3\) and \(8"):
        made() + FileSummary((8, 8, 1))


def test_a_summary_of_an_older_version_is_read():
    assert FileSummary.from_dict({"image_shape": [8, 8, 1], "files": 3}).kinds == {}
