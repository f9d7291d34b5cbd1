"""What was fitted once is loaded, for its own settings and images alone."""

import numpy as np

from tfbnood.data import load
from tfbnood.reproduce.reuse import load_or_fit, prepare_ensemble
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.pretext.statistic import Pretext


def test_a_statistic_is_fitted_once_for_its_settings_and_images(tmp_path, monkeypatch):
    images = load("digits").train[:100]
    first = load_or_fit(Pretext(steps=2, width=4), images, tmp_path)
    load_or_fit(Pretext(steps=2, width=4, seed=1), images, tmp_path)
    load_or_fit(Pretext(steps=2, width=4), images[1:], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.setattr(
        "tfbnood.statistics.pretext.statistic.train_network", None
    )  # Training again would fail.
    again = load_or_fit(Pretext(steps=2, width=4), images, tmp_path)
    np.testing.assert_array_equal(again.score(images), first.score(images))
    expected = first.tensor_columns(gather(None, "pixels", images))
    np.testing.assert_array_equal(again.tensor_columns(gather(None, "pixels", images)), expected)


def test_pretext_of_a_shipped_detector_serves_other_models_of_its_images(tmp_path, monkeypatch):
    images = load("digits").train
    prepare_ensemble(images[1:], tmp_path, Pretext(steps=2, width=4))
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr("tfbnood.statistics.pretext.statistic.train_network", None)
    prepare_ensemble(images, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
