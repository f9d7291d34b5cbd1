"""`tfbnood serve` with the name of a shipped detector; tests/serving has the servers themselves."""

import pytest

from tfbnood._core import shipped


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A script in the place of TF Serving's own server, that prints its arguments."""
    script = tmp_path / "tensorflow_model_server"
    script.write_text('#!/bin/sh\necho "$*" > "$0.ran"\n')
    script.chmod(0o755)
    monkeypatch.setenv("TFBNOOD_MODEL_SERVER", str(script))
    return tmp_path / "tensorflow_model_server.ran"


def test_a_shipped_detector_is_served_by_its_name(server, run, monkeypatch, tmp_path):
    version = tmp_path / "models" / "mine" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    (version.parent / "MANIFEST.json").write_text("{}")
    monkeypatch.setattr(shipped, "PLACES", (tmp_path / "models",))
    code, _, _ = run("serve", "mine")
    assert code == 0
    assert f"--model_name=mine --model_base_path={version.parent}" in server.read_text()


def test_a_shipped_detector_without_a_version_is_to_be_exported_first(
    server, run, monkeypatch, tmp_path
):
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "MANIFEST.json").write_text("{}")
    monkeypatch.setattr(shipped, "PLACES", (tmp_path / "models",))
    code, out, err = run("serve", "mine")
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "run `tfbnood export mine --out models/mine`" in line
    assert not server.exists()
