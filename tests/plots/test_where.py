"""Figures of images with their heat maps."""

import numpy as np
import pytest

from tfbnood.errors import DataError
from tfbnood.plots.where import where

IMAGES = np.arange(5 * 4 * 6, dtype=np.uint8).reshape(5, 4, 6, 1)
MAPS = np.linspace(-3, 3, 5 * 4 * 6).reshape(5, 4, 6)


def test_every_image_has_its_map_beside_it():
    figure = where(IMAGES, MAPS, columns=3, labels=list("abcde"))
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == 10
    np.testing.assert_array_equal(drawn[8].images[0].get_array(), IMAGES[4, ..., 0])
    np.testing.assert_array_equal(drawn[9].images[0].get_array(), MAPS[4])
    assert [axes.get_title() for axes in drawn[::2]] == list("abcde")


def test_a_map_over_its_image_is_opaque_where_it_is_high():
    figure = where(np.repeat(IMAGES, 3, axis=3), MAPS, over=True)
    (axes, *_) = (axes for axes in figure.axes if len(axes.images) == 2)
    np.testing.assert_allclose(axes.images[1].get_alpha(), 0.75 * np.clip(MAPS[0] / 3, 0, 1))
    figure.canvas.draw()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"maps": MAPS[:, :2]}, "maps must be finite and have shape"),
        ({"maps": np.full_like(MAPS, np.nan)}, "maps must be finite"),
        ({"limit": 0}, "limit must be positive"),
        ({"columns": 0}, "columns must be at least 1"),
        ({"labels": ["a"]}, "labels must be as many as images"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(DataError, match=message):
        where(IMAGES, **{"maps": MAPS, **wrong})
