"""TensorFlow Serving's `models.config`: its messages, and reading and writing its text."""

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

__all__ = ["new_model_server_config", "read_model_server_config", "write_model_server_config"]

# Names and numbers of tensorflow_serving/config: model_server_config.proto, logging_config.proto,
# log_collector_config.proto and file_system_storage_path_source.proto, without custom_model_config, which stock
# servers ignore, too.
_SCHEMA = """
name: "tfbnood/model_server_config.proto" package: "tensorflow.serving" syntax: "proto3"
enum_type {
  name: "ModelType"
  value { name: "MODEL_TYPE_UNSPECIFIED" number: 0 }
  value { name: "TENSORFLOW" number: 1 }
  value { name: "OTHER" number: 2 }
}
message_type {
  name: "ModelServerConfig"
  field { name: "model_config_list" number: 1 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.ModelConfigList" }
}
message_type {
  name: "ModelConfigList"
  field { name: "config" number: 1 label: LABEL_REPEATED type_name: ".tensorflow.serving.ModelConfig" }
}
message_type {
  name: "ModelConfig"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "base_path" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "model_type" number: 3 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.ModelType" }
  field { name: "model_platform" number: 4 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "logging_config" number: 6 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.LoggingConfig" }
  field {
    name: "model_version_policy" number: 7 label: LABEL_OPTIONAL
    type_name: ".tensorflow.serving.FileSystemStoragePathSourceConfig.ServableVersionPolicy"
  }
  field {
    name: "version_labels" number: 8 label: LABEL_REPEATED
    type_name: ".tensorflow.serving.ModelConfig.VersionLabelsEntry"
  }
  nested_type {
    name: "VersionLabelsEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  }
}
message_type {
  name: "FileSystemStoragePathSourceConfig"
  nested_type {
    name: "ServableVersionPolicy"
    oneof_decl { name: "policy_choice" }
    field {
      name: "latest" number: 100 label: LABEL_OPTIONAL oneof_index: 0
      type_name: ".tensorflow.serving.FileSystemStoragePathSourceConfig.ServableVersionPolicy.Latest"
    }
    field {
      name: "all" number: 101 label: LABEL_OPTIONAL oneof_index: 0
      type_name: ".tensorflow.serving.FileSystemStoragePathSourceConfig.ServableVersionPolicy.All"
    }
    field {
      name: "specific" number: 102 label: LABEL_OPTIONAL oneof_index: 0
      type_name: ".tensorflow.serving.FileSystemStoragePathSourceConfig.ServableVersionPolicy.Specific"
    }
    nested_type {
      name: "Latest"
      field { name: "num_versions" number: 1 label: LABEL_OPTIONAL type: TYPE_UINT32 }
    }
    nested_type { name: "All" }
    nested_type {
      name: "Specific"
      field { name: "versions" number: 1 label: LABEL_REPEATED type: TYPE_INT64 }
    }
  }
}
message_type {
  name: "LoggingConfig"
  field {
    name: "log_collector_config" number: 1 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.LogCollectorConfig"
  }
  field { name: "sampling_config" number: 2 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.SamplingConfig" }
}
message_type {
  name: "LogCollectorConfig"
  field { name: "type" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "filename_prefix" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
}
message_type {
  name: "SamplingConfig"
  field { name: "sampling_rate" number: 1 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "attributes" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
}
"""


@functools.cache
def _message_class() -> Any:
    # A separate pool: tensorflow-serving-api registers the same names in the default one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tensorflow.serving.ModelServerConfig")
    )


def new_model_server_config() -> Any:
    """An empty ModelServerConfig."""
    return _message_class()()


def read_model_server_config(text: str) -> Any:
    """The ModelServerConfig of a text.

    Raises:
        ValueError: with line, column and cause of a mistake.
    """
    try:
        return text_format.Parse(text, new_model_server_config())
    except text_format.ParseError as error:
        raise ValueError(" ".join(str(error).split())) from error


def write_model_server_config(config: Any) -> str:
    """The text of a ModelServerConfig."""
    return text_format.MessageToString(config, as_one_line=True, as_utf8=True) + "\n"
