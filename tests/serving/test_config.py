"""Where models come from: a base, a folder of bases, or a models.config of TF Serving."""

import pathlib

import pytest

from tfbnood.serving import ServingError
from tfbnood.serving.model_server_config import (
    new_model_server_config,
    read_model_server_config,
    write_model_server_config,
)
from tfbnood.serving.standin.config import ModelConfig, models_from

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_base_a_folder_of_bases_and_a_config_name_their_models(folder, config):
    assert [(m.name, m.base) for m in models_from(folder / "factor")] == [
        ("factor", folder / "factor")
    ]
    assert models_from(folder / "factor", "other")[0].name == "other"
    assert [model.name for model in models_from(folder)] == ["contract", "factor"]
    assert [model.name for model in models_from(folder, "factor")] == ["factor"]
    contract, factor = models_from(config)
    assert contract == ModelConfig("contract", folder / "contract")
    assert factor.labels == {"stable": 1, "canary": 2, "gone": 9}
    assert factor.versions == {1, 2}


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("", [7]),
        ("model_version_policy { latest { num_versions: 2 } }", [4, 7]),
        ("model_version_policy: { all: {} }", [1, 4, 7]),
        ("model_version_policy < specific < versions: [1, 7] > >", [1, 7]),
        ("model_version_policy { specific { versions: 4; versions: 9 } } # not there", [4]),
        ("logging_config { sampling_config { sampling_rate: 0.1 } }", [7]),
    ],
)
def test_a_config_says_which_versions_to_load(tmp_path, policy, wanted):
    path = tmp_path / "models.config"
    path.write_text(
        'model_config_list: { config: [ { name: "a\\"b" base_path: "/x", ' + policy + "\n} ] }"
    )
    (model,) = models_from(path)
    assert model.name == 'a"b'
    assert model.wanted([1, 4, 7]) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no model"),
        ("model_config_list {", r'1:19 : Expected "}"'),
        ("model_config_list {\n config { name: ? } }", "2:17 .*Expected string"),
        ("custom_model_config { }", '1:1 .*has no field named "custom_model_config"'),
        (
            'model_config_list { config { nmae: "a" } }',
            '1:30 .*ModelConfig" has no field named "nmae"',
        ),
        ('model_config_list { config { name: "a" base_path: "x" } }', "must be absolute"),
        ('model_config_list { config { base_path: "/x" } }', "must have a name"),
        ('model_config_list { config: "a" }', 'Expected "{"'),
        ("model_config_list { config { name: } }", "Expected string but found"),
        (
            'model_config_list { config { name: "a" base_path: "/x" model_platform: "caffe" } }',
            "model_platform must be tensorflow",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" } '
            'config { name: "a" base_path: "/y" } }',
            "a different name",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" '
            "version_labels { key: 'b' value: now } } }",
            "Couldn't parse integer: now",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" '
            "model_version_policy { all {} latest {} } } }",
            "another member of oneof",
        ),
        (
            'model_config_list { config { name: "a" name: "b" base_path: "/x" } }',
            "should not have multiple",
        ),
        (r'model_config_list { config { name: "caf\303" base_path: "/x" } }', "codec can't decode"),
        (
            'model_config_list { config { name: "a" base_path: "/x" model_type: OTHER } }',
            "model_platform must be tensorflow",
        ),
    ],
)
def test_what_a_config_has_wrong_is_said_in_one_line(tmp_path, text, said):
    path = tmp_path / "models.config"
    path.write_text(text)
    with pytest.raises(ServingError, match=said) as caught:
        models_from(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [r"caf\303\251", r"caf\u00e9", "café", r"caf\xc3\xa9"])
def test_names_outside_ascii_are_read_however_they_are_written(tmp_path, name):
    path = tmp_path / "models.config"
    path.write_text(
        f'model_config_list {{ config {{ name: "{name}" base_path: "/m\\303\\266" }} }}'
    )
    (model,) = models_from(path)
    assert (model.name, str(model.base)) == ("café", "/mö")


def test_every_field_of_a_real_models_config_is_understood(tmp_path):
    path = tmp_path / "models.config"
    path.write_text("""
    model_config_list {
      config {
        name: "a" base_path: "/x" model_type: TENSORFLOW
        version_labels { key: 'stable' value: 1 }
        version_labels: { key: 'canary', value: 2 }
        logging_config {
          log_collector_config { type: "file" filename_prefix: "/tmp/log" }
          sampling_config { sampling_rate: 0.5 attributes: 3 }
        }
      }
    }""")
    assert models_from(path) == [
        ModelConfig("a", pathlib.Path("/x"), {"stable": 1, "canary": 2}),
    ]


def test_the_deployment_file_is_read(tmp_path):
    found = models_from(ROOT / "tools" / "serving" / "models.config")
    assert [model.name for model in found] == ["fashion_mnist_realnvp", "cifar10_realnvp"]


def test_the_text_of_a_config_survives_being_written(tmp_path):
    config = new_model_server_config()
    config.model_config_list.config.add(name='a"\n\\é', base_path="/x", model_platform="tensorflow")
    assert read_model_server_config(write_model_server_config(config)) == config


def test_folders_without_models_are_refused(folder, tmp_path):
    for path, said in [
        (tmp_path, "has no model"),
        (tmp_path / "nowhere", "there is no folder"),
        (folder / "factor" / "1", "is a single version"),
    ]:
        with pytest.raises(ServingError, match=said):
            models_from(path)
