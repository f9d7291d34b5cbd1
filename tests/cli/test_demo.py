"""`tfbnood demo` does the whole job, shows it, and can be stopped like any run."""

import json
import re

import tensorflow as tf

from tfbnood.cli import main
from tfbnood.detector import Detector
from tfbnood.models import VAE, registry
from tfbnood.training import run as training


def test_demo_resumes_after_ctrl_c_and_does_the_whole_job(tmp_path, capsys, monkeypatch):
    class Stopped(training.Reporter):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    line = ["demo", "--out", str(tmp_path), "--steps", "2", "--data", "digits"]
    # A VAE under the name: what is tested is the demo, and a RealNVP takes ten times as long to trace.
    monkeypatch.setitem(registry.MODELS, "realnvp", VAE)
    with monkeypatch.context() as patch:
        patch.setattr(training, "Reporter", Stopped)
        assert main(line) == 130
    assert not (tmp_path / "samples.png").exists()

    assert main(line) == 0
    captured = capsys.readouterr()
    assert "step 2/2" in captured.err
    # One log per call: the second resumed in the folder of the first.
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 2
    assert (tmp_path / "samples.png").read_bytes().startswith(b"\x89PNG")
    for name in ("rotated", "inverted", "photos"):
        (whole, fifth) = re.findall(rf"^{name} +(1|0\.2) +(\d\.\d+)", captured.out, re.MULTILINE)
        assert (whole[0], fifth[0]) == ("1", "0.2")
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert {row["statistic"] for row in evaluation["rows"]} == {
        "ensemble",
        "bn_delta",
        "log_prob",
        "pixel_knn",
    }
    assert (tmp_path / "evaluation.md").exists()
    assert tf.io.decode_png((tmp_path / "evaluation.png").read_bytes()).shape[-1] in (3, 4)
    assert re.search(r"\d+ of 42 images out-of-distribution by ensemble", captured.out)
    assert re.search(r"\d+ of 42 flagged by the server, p-values equal", captured.out)
    assert (tmp_path / "flagged.png").read_bytes().startswith(b"\x89PNG")
    assert all(
        "<html" in (tmp_path / page).read_text() for page in ("report.html", "evaluation.html")
    )
    assert captured.out.splitlines()[-4] == "next:"
    assert Detector.load(tmp_path / "detector").image_shape == (8, 8, 1)
