"""`tfbnood demo` does the whole job, shows it, and can be stopped like any run."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tfbnood import training
from tfbnood.demo import demo, save_grid
from tfbnood.models import VAE

NUMBERS = r"^   (\S.{25})" + 3 * r" +(-?\d+\.\d\d)" + "$"


def test_demo_goes_on_after_ctrl_c_writes_samples_and_prints_four_sets(
    tmp_path, capsys, monkeypatch
):
    class Stopped(training._Reporter):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    # A VAE under the name: what is tested is the demo, and a RealNVP takes ten times as long to trace.
    monkeypatch.setitem(training.MODELS, "realnvp", VAE)
    with monkeypatch.context() as patch:
        patch.setattr(training, "_Reporter", Stopped)
        with pytest.raises(KeyboardInterrupt):
            demo(tmp_path, steps=2)
    assert not (tmp_path / "samples.png").exists()

    demo(tmp_path, steps=2)
    captured = capsys.readouterr()
    assert "step 2/2" in captured.err
    # One log a call: the second went on in the folder of the first.
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 2
    assert tf.io.decode_png((tmp_path / "samples.png").read_bytes()).shape == (8 * 64, 8 * 64, 1)
    table = re.findall(NUMBERS, captured.out, re.MULTILINE)
    names = [name.split()[-1] for name, *_ in table]
    assert names == ["(test)", "90–270°", "inverted", "patches"]
    for moving, batch, difference in ([float(word) for word in words] for _, *words in table):
        assert 0 < moving < 100
        assert difference == pytest.approx(batch - moving, abs=0.011)


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
