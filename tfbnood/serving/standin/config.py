"""Which models to serve: a base, a folder of bases, or a `models.config` of TensorFlow Serving."""

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tfbnood.serving.client import ServingError

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
    versions: frozenset[int] | None = None  # just these; None: the newest ones
    newest: int | None = 1  # how many of the newest; None: all

    def wanted(self, there: Iterable[int]) -> list[int]:
        """Which of the versions that are there to load."""
        if self.versions is not None:
            return sorted(self.versions.intersection(there))
        return sorted(there)[-self.newest :] if self.newest else sorted(there)


def models_from(path: str | os.PathLike, name: str | None = None) -> list[ModelConfig]:
    """The models of a base (`NAME/1/saved_model.pb`), of a folder of bases, or of a TF Serving `models.config`.

    Args:
        path: the base, the folder or the file.
        name: another name for the model of a base. Defaults to the folder's name.

    Raises:
        ServingError: there is no model, or the file has something that is not understood.

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


def version_folders(base: pathlib.Path) -> dict[int, pathlib.Path]:
    if not base.is_dir():
        return {}
    return {
        int(folder.name): folder
        for folder in base.iterdir()
        if folder.name.isascii()
        and folder.name.isdecimal()
        and (folder / "saved_model.pb").is_file()
    }


# The text form of protocol buffers, as far as a models.config uses it. Kinds that are not listed are skipped over.
_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.+-]+|[{}<>\[\]:,;])"""
)
_FIELDS = {
    "models.config": {"model_config_list"},
    "model_config_list": {"config"},
    "config": {"name", "base_path", "model_platform", "model_version_policy", "version_labels"}
    | {"logging_config"},
    "version_labels": {"key", "value"},
    "model_version_policy": {"latest", "all", "specific"},
    "latest": {"num_versions"},
    "specific": {"versions"},
    "all": set(),
}


def _read_config(path: pathlib.Path) -> list[ModelConfig]:
    try:
        message = _message(_tokens(path.read_text("utf-8")), "models.config", "")
        lists = message.get("model_config_list", [])
        configs = [_config(each) for models in lists for each in models.get("config", [])]
        names = [config.name for config in configs]
        if len(set(names)) < len(names):
            raise ValueError(f"every model needs a name of its own. Received: {', '.join(names)}")
    except (ValueError, OSError) as error:
        raise ServingError(f"{path} cannot be used as models.config: {error}") from error
    return configs


def _tokens(text: str) -> collections.deque[str]:
    tokens = collections.deque[str]()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise ValueError(f"line {line} is not understood at {text[position : position + 20]!r}")
        position = match.end()
        if match.group(1):
            tokens.append(match.group(1))
    tokens.append("")  # the end, so that there is always a next token
    return tokens


def _message(tokens: collections.deque[str], kind: str, end: str) -> dict[str, list[Any]]:
    """Reads fields up to `end`; every field is a list, since any may come again."""
    fields: dict[str, list[Any]] = {}
    while (key := tokens.popleft()) != end:
        if key in (",", ";"):
            continue
        if not re.fullmatch(r"\w+", key) or key not in _FIELDS.get(kind, {key}):
            raise ValueError(f"{kind} has no field {key or 'end'}")
        values = fields.setdefault(key, [])
        if tokens[0] == ":":
            tokens.popleft()
        if tokens[0] != "[":
            values.append(_value(tokens, key))
            continue
        tokens.popleft()
        while tokens[0] != "]":
            values.append(_value(tokens, key))
            if tokens[0] == ",":
                tokens.popleft()
        tokens.popleft()
    return fields


def _value(tokens: collections.deque[str], key: str) -> Any:
    token = tokens.popleft()
    if token in ("{", "<"):
        return _message(tokens, key, "}" if token == "{" else ">")
    if key in _FIELDS or not re.match(r"[\w.+\"'-]", token):
        raise ValueError(f"{key} must have a value. Received: {token or 'the end'}")
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token[0] in "\"'" else token


def _config(fields: dict[str, list[Any]]) -> ModelConfig:
    name, base = fields.get("name", [""])[-1], fields.get("base_path", [""])[-1]
    if not (isinstance(name, str) and isinstance(base, str) and name):
        raise ValueError(f"config must have a name and a base_path. Received: {name}, {base}")
    if not os.path.isabs(base):
        raise ValueError(f"base_path must be absolute, as for the real server. Received: {base}")
    platform = fields.get("model_platform", ["tensorflow"])[-1]
    if platform != "tensorflow":
        raise ValueError(f"model_platform must be tensorflow. Received: {platform}")
    labels = {
        each["key"][-1]: int(each["value"][-1])
        for each in fields.get("version_labels", [])
        if {"key", "value"} <= each.keys()
    }
    config = ModelConfig(name, pathlib.Path(base), labels)
    policy = fields.get("model_version_policy", [{}])[-1]
    if "specific" in policy:
        versions = policy["specific"][-1].get("versions", [])
        return dataclasses.replace(config, versions=frozenset(map(int, versions)))
    if "all" in policy:
        return dataclasses.replace(config, newest=None)
    newest = policy.get("latest", [{}])[-1].get("num_versions", [1])[-1]
    return dataclasses.replace(config, newest=max(int(newest), 1))
