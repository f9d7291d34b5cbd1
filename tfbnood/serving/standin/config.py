"""Which models to serve: a base, a folder of bases, or a `models.config` of TensorFlow Serving."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from tfbnood._core.files import version_folders
from tfbnood.errors import ServingError
from tfbnood.serving.model_server_config import read_model_server_config

__all__ = ["ModelConfig", "models_from", "version_folders"]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A model to serve: its base folder, the labels of versions, and which versions to load.

    Example:
        >>> ModelConfig("digits", folder / "digits", newest=2).wanted([1, 9, 10])
        [9, 10]
    """

    name: str
    base: pathlib.Path
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)
    versions: frozenset[int] | None = None  # only these; None: the newest ones
    newest: int | None = 1  # how many of the newest; None: all

    def wanted(self, there: Iterable[int]) -> list[int]:
        """Which of the available versions to load."""
        if self.versions is not None:
            return sorted(self.versions.intersection(there))
        return sorted(there)[-self.newest :] if self.newest else sorted(there)


def models_from(path: str | os.PathLike, name: str | None = None) -> list[ModelConfig]:
    """The models of a base (`NAME/1/saved_model.pb`), of a folder of bases, or of a TF Serving `models.config`.

    Args:
        path: the base, the folder or the file.
        name: a name for the model of a base. Defaults to the folder's name.

    Raises:
        ServingError: if there is no model, or the file cannot be understood.

    Example:
        >>> (folder / "digits" / "1").mkdir(parents=True)
        >>> (folder / "digits" / "1" / "saved_model.pb").touch()
        >>> [config.name for config in models_from(folder)]
        ['digits']
    """
    path = pathlib.Path(path).absolute()
    if path.is_file():
        configs = _read_config(path)
    elif not path.is_dir():
        raise ServingError(f"there is no folder or models.config at {path}")
    elif version_folders(path):
        return [ModelConfig(name or path.resolve().name, path)]
    elif (path / "saved_model.pb").is_file():
        raise ServingError(
            f"{path} is a single version; give the folder around it, with versions named 1, 2, …"
        )
    else:
        bases = sorted(folder for folder in path.iterdir() if folder.is_dir())
        configs = [ModelConfig(base.name, base) for base in bases if version_folders(base)]
    if not configs:
        raise ServingError(f"{path} has no model: looked for NAME/1/saved_model.pb")
    if name is not None:
        configs = [config for config in configs if config.name == name]
        if not configs:
            raise ServingError(f"{path} has no model {name}")
    return configs


def _read_config(path: pathlib.Path) -> list[ModelConfig]:
    try:
        message = read_model_server_config(path.read_text("utf-8"))
        configs = [_config(model) for model in message.model_config_list.config]
        names = [config.name for config in configs]
        if len(set(names)) < len(names):
            raise ValueError(
                f"every model must have a different name. Received: {', '.join(names)}"
            )
    except (ValueError, OSError) as error:
        raise ServingError(f"{path} cannot be used as models.config: {error}") from error
    return configs


def _config(model: Any) -> ModelConfig:
    if not model.name:
        raise ValueError(f"config must have a name and a base_path. Received: {model.base_path!r}")
    if not os.path.isabs(model.base_path):
        raise ValueError(
            f"base_path must be absolute, as for the real server. Received: {model.base_path!r}"
        )
    if model.model_platform not in ("", "tensorflow") or model.model_type > 1:
        raise ValueError(
            f"model_platform must be tensorflow. Received: {model.model_platform or 'model_type: OTHER'}"
        )
    config = ModelConfig(model.name, pathlib.Path(model.base_path), dict(model.version_labels))
    policy = model.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "specific":
            return dataclasses.replace(config, versions=frozenset(policy.specific.versions))
        case "all":
            return dataclasses.replace(config, newest=None)
    return dataclasses.replace(config, newest=max(policy.latest.num_versions, 1))
