"""Which server `tfbnood serve` runs. The real server and Docker are not to be had here: scripts stand for both."""

import pathlib
import shutil

import pytest
import yaml

from tfbnood.cli import main
from tfbnood.errors import TfbnoodError
from tfbnood.serving import launch as run
from tfbnood.serving.standin.config import models_from

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def base(tmp_path):
    version = tmp_path / "models" / "digits" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"")
    return version.parent


@pytest.fixture
def empty_path(monkeypatch, tmp_path):
    """A PATH without any server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv(run.MODEL_SERVER_VARIABLE, raising=False)
    return folder


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_real_server_is_run_with_a_base(base, empty_path, capfd):
    script(empty_path / "tensorflow_model_server", 'echo "ran: $*"')
    assert main(["serve", str(base), "--port", "1234"]) == 0
    out, err = capfd.readouterr()
    arguments = f"--rest_api_port=1234 --port=0 --model_name=digits --model_base_path={base}"
    assert out == f"ran: {arguments}\n"
    assert f"tensorflow_model_server {arguments}" in err  # the exact command is printed
    assert "binds to all addresses" in err


def test_a_folder_of_bases_becomes_a_models_config(base, tmp_path):
    shutil.copytree(base, base.parent / "more")
    command = run.server_command("server", base.parent, 8501)
    config = pathlib.Path(command[-1].removeprefix("--model_config_file=")).read_text()
    for name in ("digits", "more"):
        assert f'name: "{name}" base_path: "{base.parent / name}"' in config
    file = tmp_path / "models.config"
    file.write_text("model_config_list {}")
    assert run.server_command("server", file, 8501)[-1] == f"--model_config_file={file}"


def test_the_environment_names_the_server(base, empty_path, tmp_path, monkeypatch):
    script(tmp_path / "my_server", "exit 7")
    monkeypatch.setenv(run.MODEL_SERVER_VARIABLE, str(tmp_path / "my_server"))
    assert run.serve(base) == 7
    monkeypatch.setenv(run.MODEL_SERVER_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(TfbnoodError, match="TFBNOOD_MODEL_SERVER must name an executable"):
        run.serve(base)


def test_the_container_is_run_when_docker_answers(base, empty_path, capfd):
    script(empty_path / "docker", '[ "$1" = info ] || echo "ran: $*"')
    assert run.serve(base, port=9000) == 0
    assert capfd.readouterr().out == (
        f"ran: run --rm -p 127.0.0.1:9000:8501 -v {base}:/models/digits:ro -e MODEL_NAME=digits tensorflow/serving\n"
    )
    command = run.container_command(base.parent, 9000, "127.0.0.1")
    assert f"{base}:/models/digits:ro" in command
    assert command[-1] == "--model_config_file=/config/models.config"


def test_batching_parameters_reach_the_real_server_and_the_container(base, empty_path, capfd):
    script(empty_path / "tensorflow_model_server", 'for a; do echo "$a"; done')
    assert run.serve(base, merge=True, max_batch_size=64, batch_timeout_micros=5000) == 0
    arguments = capfd.readouterr().out.splitlines()
    assert "--enable_batching=true" in arguments
    file = next(a for a in arguments if a.startswith("--batching_parameters_file="))
    assert pathlib.Path(file.partition("=")[2]).read_text() == (
        "max_batch_size { value: 64 }\nbatch_timeout_micros { value: 5000 }\n"
    )
    for path in (base, base.parent):
        command = run.container_command(path, 9000, "127.0.0.1", batching=(64, 5000))
        mounted = next(part for part in command if part.endswith(":/config/batching.config:ro"))
        assert pathlib.Path(mounted.partition(":")[0]).is_file()
        image = command.index("tensorflow/serving")
        assert "--batching_parameters_file=/config/batching.config" in command[image:]


def test_odd_names_of_bases_survive_in_a_models_config(base):
    odd = base.parent / 'a "quoted" größe'
    shutil.copytree(base, odd)
    command = run.server_command("server", base.parent, 8501)
    file = command[-1].removeprefix("--model_config_file=")
    assert [(model.name, model.base) for model in models_from(file)] == [
        (odd.name, odd),
        ("digits", base),
    ]


def test_a_docker_that_does_not_answer_is_not_used(empty_path):
    assert not run._docker_answers()
    script(empty_path / "docker", "exit 1")
    assert not run._docker_answers()


def test_paths_that_hold_no_model_are_refused(tmp_path):
    with pytest.raises(TfbnoodError, match="path must be a model base"):
        run.serve(tmp_path / "nothing")
    with pytest.raises(TfbnoodError, match="path must hold model bases"):
        run.server_command("server", tmp_path, 8501)
    (tmp_path / "1").mkdir()  # a version without a model
    assert not run.is_base(tmp_path)


def test_deployment_files_are_well_formed_and_name_each_other():
    folder = ROOT / "tools" / "serving"
    compose = yaml.safe_load((folder / "docker-compose.yml").read_text())
    (service,) = compose["services"].values()
    assert service["ports"] == ["127.0.0.1:8501:8501"]
    assert (folder / "monitoring.config").is_file()
    kserve = yaml.safe_load((folder / "kserve.yaml").read_text())
    assert kserve["spec"]["predictor"]["model"]["modelFormat"] == {"name": "tensorflow"}
    for name in ("docker-compose.yml", "kserve.yaml", "batching.config", "monitoring.config"):
        assert f"({name})" in (folder / "README.md").read_text()
