"""Monitor: any chunks, alarms with a bound, onset, share, exemplars, restarts, thinning, groups."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
from faults import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from tfbnood.errors import DataError, NotCalibratedError
from tfbnood.monitor import AutocorrelationWarning, Monitor, OnlineFdr, thinning


class Calibration:
    """What a monitor needs of one."""

    def __init__(self, scores, sizes=(1,)):
        self.image_scores = {size: np.sort(scores) for size in sizes}

    def null_of_images(self, count):
        return self.image_scores[max(size for size in self.image_scores if size <= count)]


class Detector:
    """Scores an image by its first pixel and remembers its requests."""

    def __init__(self, calibration):
        self.calibration = calibration
        self.requests = []

    def score(self, images):
        self.requests.append(len(images))
        return images[:, 0, 0, 0].astype(float)


def changed_stream(seed, change=300, length=400, shift=3.0, held_out=500):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=held_out + length)
    scores[held_out + change :] += shift
    return scores[:held_out], scores[held_out:]


def state_of(monitor, folder):
    monitor.save(folder)
    with np.load(folder / "arrays.npz") as arrays:
        return (folder / "monitor.json").read_text(), {name: arrays[name] for name in arrays.files}


def assert_same_state(one, other, tmp_path):
    (text, arrays), (other_text, others) = (
        state_of(monitor, tmp_path / name) for monitor, name in ((one, "one"), (other, "other"))
    )
    assert text == other_text
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype
        assert array.tobytes() == others[name].tobytes(), name


def joined(readings):
    fields = [field.name for field in dataclasses.fields(readings[0]) if field.name != "index"]
    return {name: np.concatenate([getattr(one, name) for one in readings]) for name in fields}


@settings(max_examples=15, deadline=None, derandomize=True)
@given(cuts=st.lists(st.integers(0, 400), max_size=12), seed=st.integers(0, 3))
def test_results_do_not_depend_on_chunks_bit_for_bit(cuts, seed, tmp_path_factory):
    held_out, stream = changed_stream(seed)
    stream = stream.round(1)  # with ties

    def made():
        return Monitor(held_out, 1000, seed, fdr=0.1, capacity=600, history=100)

    whole, cut = made(), made()
    expected = joined([whole.update(scores=stream, keys=range(400))])
    bounds = [0, *sorted(cuts), 400]
    found = joined(
        [
            cut.update(scores=stream[low:high], keys=range(low, high))
            for low, high in itertools.pairwise(bounds)
        ]
    )
    assert whole.alarm
    for name, values in expected.items():
        assert values.tobytes() == found[name].tobytes(), name
    assert (whole.since, whole.share, whole.worst) == (cut.since, cut.share, cut.worst)
    assert_same_state(whole, cut, tmp_path_factory.mktemp("chunks"))


def test_p_values_are_those_among_held_out_scores_and_among_all_so_far():
    held_out, stream = changed_stream(0)
    found = Monitor(held_out).update(scores=stream)
    for index in (0, 5, 399):
        at_least = (held_out >= stream[index]).sum()
        assert found.p_value[index] == pytest.approx((1 + at_least) / 501)
        before = np.concatenate([held_out, stream[:index]])
        low = (before > stream[index]).sum() / (501 + index)
        assert low <= found.stream_p_value[index] <= low + 1 / (501 + index)


def test_the_seed_decides_ties_and_nothing_else():
    held_out, stream = changed_stream(1)
    one, same, other = (Monitor(held_out, seed=seed).update(scores=stream) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.stream_p_value, same.stream_p_value)
    assert (one.stream_p_value != other.stream_p_value).all()
    np.testing.assert_allclose(one.stream_p_value, other.stream_p_value, atol=1 / 500)
    np.testing.assert_array_equal(one.p_value, other.p_value)


@pytest.mark.parametrize("digits", [9, 0], ids=["no ties", "ties"])
def test_no_more_clean_streams_alarm_than_promised(digits):
    # Few held-out scores, which a fixed comparison would not forgive.
    alarms = martingales = 0
    for seed in range(150):
        rng = np.random.default_rng([9, seed])
        monitor = Monitor(rng.normal(size=30).round(digits), 1000, seed, thin=1)
        found = monitor.update(scores=rng.normal(size=300).round(digits))
        alarms += int(found.alarm[-1])
        martingales += int(found.log_martingale.max() >= np.log(20))
    assert binomtest(alarms, 150, 0.3, "greater").pvalue > 1e-3
    assert binomtest(martingales, 150, 0.05, "greater").pvalue > 1e-3


def test_an_alarm_tells_since_when_how_many_and_which():
    delays, covered, shares = [], [], []
    for seed in range(20):
        rng = np.random.default_rng([1, seed])
        held_out, stream = rng.normal(size=1000), rng.normal(size=900)
        strange = np.flatnonzero(rng.random(400) < 0.3) + 500
        stream[strange] += 4
        monitor = Monitor(held_out, 10_000, seed)
        found = monitor.update(scores=stream, keys=[f"{index}.png" for index in range(900)])
        assert monitor.alarm
        assert monitor.alarm_index == found.alarm.argmax()
        assert found.alarm[monitor.alarm_index :].all()
        assert found.log_evidence[monitor.alarm_index] >= np.log(10_000)
        assert (found.log_evidence[64 : monitor.alarm_index] < np.log(10_000)).all()
        delays.append(monitor.alarm_index - 500)
        covered.append(monitor.since.low <= 500 <= monitor.since.high)
        shares.append(monitor.share.value)
        worst = monitor.worst
        assert len(worst) == 16
        assert all(one.key == f"{one.index}.png" for one in worst)
        assert all(one.index >= monitor.since.value for one in worst)
        assert [one.p_value for one in worst] == sorted(one.p_value for one in worst)
        assert np.mean([one.index in strange for one in worst]) > 0.9
        assert worst[0].score == stream[worst[0].index]
    assert np.median(delays) < 40
    assert np.mean(covered) > 0.8
    assert np.mean(shares) == pytest.approx(0.3, abs=0.05)


def test_at_the_alarm_the_share_s_interval_covers_the_true_one():
    # Since the likeliest onset alone it covered 10 % in two of three of these streams.
    covered, values = [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        monitor = Monitor(rng.normal(size=1000), 1000, seed, thin=1)
        monitor.update(scores=rng.normal(size=100))
        while not monitor.alarm:
            monitor.update(scores=rng.normal(size=10) + 2.5 * (rng.random(10) < 0.1))
        covered.append(monitor.share.low <= 0.1 <= monitor.share.high)
        values.append(monitor.share.value)
    assert np.mean(covered) > 0.85
    assert np.mean(values) < 0.27


def test_nothing_is_told_before_an_alarm_and_the_worst_of_all_are_shown():
    held_out, stream = changed_stream(2, shift=0)
    monitor = Monitor(held_out)
    assert monitor.worst == []
    monitor.update(scores=stream)
    assert (monitor.alarm, monitor.alarm_index, monitor.since, monitor.share) == (
        False,
        None,
        None,
        None,
    )
    assert monitor.worst[0].index == stream.argmax()
    assert monitor.worst[0].key is None
    assert monitor.martingale == pytest.approx(np.exp(monitor.log_martingale))
    assert monitor.log_cusum <= monitor.log_evidence
    assert "400 images, no alarm" in repr(monitor)


def test_a_first_alarm_waits_for_the_first_measurement_unless_images_are_known_to_be_independent():
    held_out = np.random.default_rng(3).normal(size=500)
    waits, knows = Monitor(held_out), Monitor(held_out, thin=1)
    stream = np.random.default_rng(4).normal(6, size=64)
    assert waits.update(scores=stream).alarm.tolist() == [False] * 63 + [True]
    assert knows.update(scores=stream).alarm.argmax() < 10
    assert waits.since.low == knows.since.low == 0


def test_restart_collects_evidence_anew_and_keeps_all_scores():
    held_out, stream = changed_stream(5)
    monitor = Monitor(held_out)
    monitor.update(scores=stream)
    assert monitor.alarm
    monitor.restart()
    assert (monitor.alarm, monitor.since, monitor.log_martingale) == (False, None, 0.0)
    assert monitor.count == 400
    after = monitor.update(scores=stream[:50])
    before = np.concatenate([held_out, stream])
    expected = (before > stream[0]).sum() / 901
    assert after.stream_p_value[0] == pytest.approx(expected, abs=2 / 901)
    assert after.index == 400


def test_restart_that_forgets_compares_with_the_scores_before_the_onset():
    held_out, stream = changed_stream(6, shift=5.0)
    keeps, forgets = Monitor(held_out), Monitor(held_out)
    for monitor in (keeps, forgets):
        monitor.update(scores=stream)
        since = monitor.since
        monitor.restart(forget=monitor is forgets)
    found = forgets.update(scores=stream[:1])
    before = np.concatenate([held_out, stream[: int(since.low)]])
    low = (before > stream[0]).sum() / (len(before) + 1)
    assert low <= found.stream_p_value[0] <= low + 1 / (len(before) + 1)
    keeps.update(scores=stream[:1])
    # The same outliers again: not usual to the one that has forgotten them.
    again = [
        monitor.update(scores=stream[300:330]).log_evidence.max() for monitor in (keeps, forgets)
    ]
    assert again[1] > again[0] + 10


def test_forgetting_twice_takes_no_score_out_twice():
    held_out, stream = changed_stream(7, shift=6.0)
    monitor = Monitor(held_out)
    for _ in range(3):
        monitor.update(scores=stream[-100:])
        assert monitor.alarm
        monitor.restart(forget=True)
    assert 500 <= monitor._ranks.pools[""].count <= 503
    assert monitor.count == 300


def autocorrelated(rng, size, weight=0.95):
    values = rng.normal(size=size)
    for index in range(1, size):
        values[index] = weight * values[index - 1] + np.sqrt(1 - weight**2) * values[index]
    return values


def test_video_is_thinned_with_a_warning_and_raises_few_false_alarms():
    alarms = {None: 0, 1: 0}
    for seed in range(25):
        rng = np.random.default_rng([2, seed])
        held_out, stream = rng.normal(size=1000), autocorrelated(rng, 1000)
        for thin in alarms:
            monitor = Monitor(held_out, 10_000, seed, thin=thin)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                monitor.update(scores=stream)
            alarms[thin] += monitor.alarm
            if thin is None and not monitor.alarm:
                assert [one.category for one in caught] == [AutocorrelationWarning]
                assert "set thin= to the distance" in str(caught[0].message)
                assert caught[0].filename == __file__
                assert monitor.thinned > 10
                assert monitor.autocorrelation > 0.8
                assert f"bets {monitor.thinned} images apart" in repr(monitor)
            if thin == 1:
                assert caught == []
    assert alarms[1] >= 24
    assert alarms[None] <= 8


def test_a_change_in_a_thinned_stream_is_found_later():
    rng = np.random.default_rng(8)
    held_out, stream = rng.normal(size=1000), rng.normal(size=700)
    stream[500:] += 5
    delays = {}
    for thin in (1, 8):
        monitor = Monitor(held_out, thin=thin)
        monitor.update(scores=stream)
        delays[thin] = monitor.alarm_index - 500
        assert monitor.since.low <= 500 <= monitor.since.high
    assert delays[1] < 8 < delays[8] < 64


def test_independent_streams_are_neither_thinned_nor_warned_of():
    for seed in range(10):
        held_out, stream = changed_stream(seed, change=1500, length=1500)
        monitor = Monitor(held_out)
        monitor.update(scores=stream)
        assert not monitor._spacing.warned
        assert abs(monitor.autocorrelation) < 0.2


def test_outliers_before_a_restart_do_not_pass_for_autocorrelation():
    for seed in range(8):
        rng = np.random.default_rng([14, seed])
        monitor = Monitor(rng.normal(size=1000), seed=seed)
        monitor.update(scores=np.concatenate([rng.normal(size=1500), rng.normal(4, size=150)]))
        assert monitor.alarm
        monitor.restart(forget=True)
        distances = []
        for _ in range(10):
            monitor.update(scores=rng.normal(size=64))
            distances.append(monitor.thinned)
        assert not monitor._spacing.warned
        assert np.mean(distances) < 1.5
        # The next change is found as fast as the first one.
        monitor.update(scores=rng.normal(5, size=12))
        assert monitor.alarm


def test_video_stays_thinned_after_a_restart():
    rng = np.random.default_rng(15)
    monitor = Monitor(rng.normal(size=1000), 1e9)
    with pytest.warns(AutocorrelationWarning):
        monitor.update(scores=autocorrelated(rng, 1024))
    before = monitor.thinned
    monitor.restart()
    monitor.update(scores=autocorrelated(rng, 63))
    assert monitor.thinned == before > 10
    monitor.update(scores=autocorrelated(rng, 65))
    assert monitor.thinned > 3


def test_a_restart_before_the_first_measurement_still_waits_for_it():
    rng = np.random.default_rng(16)
    monitor = Monitor(rng.normal(size=500))
    monitor.update(scores=rng.normal(size=40))
    monitor.restart()
    found = monitor.update(scores=9 + rng.normal(size=90))
    assert monitor.alarm
    assert found.alarm.argmax() >= 23
    assert monitor.since.low >= 40


def test_measured_distances_keep_the_bounds_on_independent_images(monkeypatch):
    # Half a standard error: chance alone keeps changing the distance.
    monkeypatch.setattr(thinning, "_LEAST", 0.0)
    monkeypatch.setattr(thinning, "_ERRORS", 0.5)
    alarms = martingales = thinned = 0
    for seed in range(150):
        rng = np.random.default_rng([17, seed])
        monitor = Monitor(rng.normal(size=30), 600, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AutocorrelationWarning)
            found = monitor.update(scores=rng.normal(size=300))
        alarms += int(found.alarm[-1])
        martingales += int(found.log_martingale[63:].max() >= np.log(20))
        thinned += (monitor._history.since(0)["bet"] == 0).any()
    assert thinned > 75
    assert binomtest(alarms, 150, 0.5, "greater").pvalue > 1e-3
    assert binomtest(martingales, 150, 0.05, "greater").pvalue > 1e-3


def test_groups_forgive_an_order_by_class():
    rng = np.random.default_rng(10)
    classes = rng.integers(0, 5, 1500)
    scores = rng.normal(classes, 1.0)
    held_out, order = np.arange(500), 500 + np.argsort(-classes[500:], kind="stable")
    plain = Monitor(scores[held_out], thin=1)
    assert plain.update(scores=scores[order]).alarm.any()
    grouped = Monitor(scores[held_out], thin=1, groups=classes[held_out])
    assert not grouped.update(scores=scores[order], groups=classes[order]).alarm.any()
    strange = grouped.update(scores=np.full(60, 6.0), groups=np.zeros(60, int))
    assert strange.alarm[-1]


def test_online_fdr_decides_on_single_images():
    rng = np.random.default_rng(11)
    held_out, stream = rng.normal(size=5000), rng.normal(size=500)
    strange = rng.random(500) < 0.2
    stream[strange] += 8
    monitor = Monitor(held_out, fdr=0.1)
    found = monitor.update(scores=stream)
    assert found.discovery[strange].mean() > 0.9
    assert found.discovery[~strange].sum() / found.discovery.sum() < 0.2
    assert monitor.online_fdr.tests == 500
    assert monitor.online_fdr.discoveries == found.discovery.sum()
    chosen = OnlineFdr(0.1, method="lord++")
    assert Monitor(held_out, fdr=chosen).online_fdr is chosen
    assert Monitor(held_out).update(scores=stream).discovery is None


def test_memory_does_not_grow_with_the_stream(tmp_path):
    rng = np.random.default_rng(12)
    monitor = Monitor(rng.normal(size=100), 1e9, capacity=256, history=128, thin=1)
    sizes = []
    for _ in range(6):
        monitor.update(scores=rng.normal(size=500), keys=range(500))
        monitor.save(tmp_path / "monitor")
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "monitor").iterdir()))
    assert max(sizes[1:]) < sizes[0] + 100
    assert max(sizes) < 40_000
    assert len(monitor._history.since(0)["score"]) == 128


def test_a_detector_scores_images_and_a_calibration_or_array_takes_scores():
    rng = np.random.default_rng(13)
    held_out = rng.integers(0, 200, 300).astype(float)
    images = rng.integers(0, 256, (90, 2, 2, 1), dtype=np.uint8)
    detector = Detector(Calibration(held_out))
    found = Monitor(detector).update(images)
    assert detector.requests == [90]
    for source in (Calibration(held_out), held_out, held_out.tolist(), rng.permutation(held_out)):
        other = Monitor(source).update(scores=images[:, 0, 0, 0].astype(float))
        np.testing.assert_array_equal(found.stream_p_value, other.stream_p_value)
        np.testing.assert_array_equal(found.log_evidence, other.log_evidence)


def test_images_of_a_batch_statistic_are_scored_alone():
    detector = Detector(Calibration(np.arange(50.0), sizes=(1, 2, 4)))
    Monitor(detector).update(np.zeros((5, 2, 2, 1), np.uint8))
    assert detector.requests == [1] * 5


def test_a_real_detector_raises_the_alarm_on_inverted_digits(digits):
    from tfbnood import Detector

    detector = Detector(None, "pixel_pca", reference=digits.train).calibrate(digits.calibration)
    monitor = Monitor(detector)
    found = monitor.update(digits.test)
    assert not monitor.alarm
    np.testing.assert_allclose(found.p_value, detector.p_values(digits.test))
    monitor.update(255 - digits.test[:20])
    assert monitor.alarm
    assert monitor.since.low <= len(digits.test) <= monitor.since.high
    assert monitor.share.value > 0.7


def test_scores_need_no_tensorflow():
    done = run_python(
        "import sys, tfbnood.monitor as m; m.Monitor([1.0, 2.0]).update(scores=[3.0] * 70);"
        "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": []}, "source must"),
        ({"source": "scores"}, "source must be a calibrated Detector, a Calibration or numbers"),
        ({"source": None}, "source must be a calibrated Detector"),
        ({"source": [1.0, np.nan]}, r"source must be finite; .*cannot be scored\."),
        ({"source": np.zeros((3, 2))}, r"source must have shape \[n\]"),
        ({"run_length": 1}, "run_length must be a number of images above 1"),
        ({"run_length": float("nan")}, "run_length must be"),
        ({"run_length": "x"}, "run_length must be"),
        ({"run_length": True}, "run_length must be"),
        ({"seed": -1}, "seed must be an integer"),
        ({"thin": 0}, "thin must be an integer of at least 1"),
        ({"capacity": 8}, "capacity must be an integer of at least 32"),
        ({"history": 8}, "history must be an integer of at least 64"),
        ({"fdr": 2}, r"fdr must lie in \(0, 1\)"),
        ({"groups": [1]}, "groups must be 3 integers or names"),
        ({"groups": [1.5, 2, 3]}, "groups must be 3 integers or names"),
        (
            {"source": Calibration(np.arange(3.0)), "groups": [1, 2, 3]},
            "groups needs held-out scores in an array",
        ),
    ],
)
def test_what_cannot_be_watched_is_refused(given, message):
    with pytest.raises(DataError, match=f"{message}.*Received"):
        Monitor(**{"source": [1.0, 2.0, 3.0], **given})


def test_a_detector_must_be_calibrated():
    with pytest.raises(NotCalibratedError, match=r"call calibrate\(\)"):
        Monitor(Detector(None))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give images or scores. Received: neither"),
        ({"images": np.zeros((1, 2, 2, 1)), "scores": [1.0]}, "Received: both"),
        ({"images": np.zeros((1, 2, 2, 1))}, "images need a monitor with a detector"),
        ({"scores": [1.0, np.inf]}, "scores must be finite"),
        ({"scores": ["a"]}, "scores must be numbers"),
        ({"scores": [[1.0]]}, r"scores must have shape \[n\]"),
        ({"scores": [1.0], "keys": ["a", "b"]}, "keys must be 1 names or numbers"),
        ({"scores": [1.0], "keys": [object()]}, "keys must be 1 names or numbers"),
        ({"scores": [1.0], "groups": [1]}, "groups must be given to both"),
    ],
)
def test_a_chunk_that_is_refused_leaves_the_monitor_as_it_was(given, message, tmp_path):
    one, other = (Monitor(np.arange(50.0)) for _ in range(2))
    for monitor in (one, other):
        monitor.update(scores=np.arange(20.0))
    with pytest.raises(DataError, match=message):
        one.update(**given)
    assert_same_state(one, other, tmp_path)


def test_an_empty_chunk_is_no_change(tmp_path):
    one, other = (Monitor(np.arange(50.0)) for _ in range(2))
    assert len(one.update(scores=[])) == 0
    assert_same_state(one, other, tmp_path)
