"""`tfbnood demo` does the whole job, shows it, and can be stopped like any run."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tfbnood import training
from tfbnood.demo import demo, save_grid
from tfbnood.models import VAE


def test_demo_writes_samples_prints_four_sets_and_resumes(tmp_path, capsys, monkeypatch):
    # A VAE under the name: what is tested is the demo, and a RealNVP takes ten times as long to trace.
    monkeypatch.setitem(training.MODELS, "realnvp", VAE)
    demo(tmp_path, steps=1)
    first = capsys.readouterr().out
    assert tf.io.decode_png((tmp_path / "samples.png").read_bytes()).shape == (8 * 64, 8 * 64, 1)
    rows = [line for line in first.splitlines() if len(line.split()) > 3 and "." in line[-6:]]
    table = {line[3:29].strip(): [float(word) for word in line[29:].split()] for line in rows[-5:]}
    table = {name: values for name, values in table.items() if len(values) == 3}
    assert len(table) == 4
    for moving, batch, difference in table.values():
        assert 0 < moving < 100
        assert difference == pytest.approx(batch - moving, abs=0.011)

    demo(tmp_path, steps=2)
    assert "for 2 steps" in capsys.readouterr().out
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["steps"] == 2
    # One log a call: the second went on in the folder of the first.
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 2


@pytest.mark.parametrize(("n", "rows", "columns"), [(1, 1, 1), (4, 2, 2), (5, 2, 3), (7, 3, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_are_where_they_belong(tmp_path, n, rows, columns, channels):
    random = np.random.RandomState(0)
    images = random.randint(1, 256, (n, 4, 6, channels)).astype(np.uint8)
    save_grid(tmp_path / "grid.png", images, zoom=2)
    grid = tf.io.decode_png((tmp_path / "grid.png").read_bytes()).numpy()
    assert grid.shape == (rows * 8, columns * 12, channels)
    for index in range(rows * columns):
        top, left = index // columns * 8, index % columns * 12
        tile = grid[top : top + 8, left : left + 12]
        for shift in ((0, 0), (1, 1)):
            pixels = tile[shift[0] :: 2, shift[1] :: 2]
            np.testing.assert_array_equal(pixels, images[index] if index < n else 0)
