"""The models of the development server: which versions are loaded, and when they change.

A version runs as in TensorFlow Serving, in a session that is fed by tensor name, so that only the graph checks the
shapes of a request.
"""

import logging
import pathlib
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tfbnood.errors import ServingError
from tfbnood.serving.standin.config import ModelConfig, version_folders
from tfbnood.serving.standin.rest import HTTP_OF_TF_CODE, RestError
from tfbnood.serving.standin.xla import compiled_signatures

__all__ = ["Model", "Models", "Servable", "say"]

_TIMEOUT_MS = 30_000


class Servable:
    """One version of a model, loaded and warm."""

    def __init__(self, name: str, version: int, folder: pathlib.Path) -> None:
        import tensorflow as tf

        self.name = name
        self.version = version
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        log = logging.getLogger("tensorflow")
        level = log.level
        # The loader recommends another one, whose functions check shapes, which the real server does not.
        log.setLevel(logging.ERROR)
        try:
            with graph.as_default():
                saved = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
        finally:
            log.setLevel(level)
        self.signatures: dict[str, Any] = dict(saved.signature_def)
        self._compiled = compiled_signatures(saved)
        self._calls = {
            key: self._callable(signature)
            for key, signature in self.signatures.items()
            if signature.inputs
        }
        self._warm_up()

    def inputs(self, signature: str) -> dict[str, str]:
        """Names and dtypes of a signature's inputs."""
        import tensorflow as tf

        if signature not in self.signatures:
            raise RestError(
                400, f'Serving signature name: "{signature}" not found in signature def'
            )
        infos = self.signatures[signature].inputs
        if not infos:
            raise RestError(400, f"Failed to get input map for signature: {signature}")
        return {name: tf.as_dtype(infos[name].dtype).name for name in sorted(infos)}

    def run(self, signature: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature by name."""
        import tensorflow as tf

        if signature in self._compiled:
            # TensorFlow's message for what the real server does not support.
            node = self._compiled[signature]
            raise RestError(500, f"XLA compilation disabled\n\t [[{{{{node {node}}}}}]]")
        call, tensors = self._calls[signature]
        try:
            values = dict(
                zip(tensors, call(*(arrays[name] for name in sorted(arrays))), strict=True)
            )
        except tf.errors.OpError as error:
            raise RestError(HTTP_OF_TF_CODE.get(error.error_code, 500), error.message) from error
        outputs = self.signatures[signature].outputs
        return {name: _as_array(values[info.name]) for name, info in outputs.items()}

    def metadata(self) -> dict[str, Any]:
        """What `…/metadata` answers."""
        from google.protobuf import json_format

        signatures = {
            key: json_format.MessageToDict(
                signature,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            for key, signature in self.signatures.items()
        }
        return {
            "model_spec": {"name": self.name, "signature_name": "", "version": str(self.version)},
            "metadata": {"signature_def": {"signature_def": signatures}},
        }

    def _callable(self, signature: Any) -> tuple[Any, list[str]]:
        from tensorflow.core.protobuf import config_pb2

        tensors = sorted({info.name for info in signature.outputs.values()})
        feeds = [signature.inputs[name].name for name in sorted(signature.inputs)]
        options = config_pb2.CallableOptions(feed=feeds, fetch=tensors)
        options.run_options.timeout_in_ms = _TIMEOUT_MS
        # Session.run and make_callable first compare shapes with the placeholders; the real server does not.
        return self._session._make_callable_from_options(options), tensors

    def _warm_up(self) -> None:
        import tensorflow as tf

        for key in self._calls:
            arrays = {}
            for name, info in self.signatures[key].inputs.items():
                dims = [max(dim.size, 1) if dim.size else 0 for dim in info.tensor_shape.dim]
                dtype = tf.as_dtype(info.dtype)
                empty = b"" if dtype == tf.string else 0
                arrays[name] = np.full(dims or [1], empty, dtype.as_numpy_dtype)
            # The graph may refuse zeros; it is optimised and its memory allocated all the same.
            try:
                self.run(key, arrays)
            except RestError:
                continue


class Model:
    """One served model. Only one thread calls `refresh`; readers see only complete versions."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.failures: dict[int, str] = {}
        self._tried: dict[int, tuple] = {}
        # Replaced as a whole, never changed: readers need no lock, and can finish with a version they hold.
        self._loaded: dict[int, Servable] = {}
        self._states: dict[int, str] = {}

    def refresh(self) -> None:
        """Loads new versions, then drops those that are no longer wanted."""
        folders = version_folders(self.config.base)
        wanted = self.config.wanted(folders)
        for version in wanted:
            if version not in self._loaded:
                self._load(version, folders[version])
        # The old ones stay while a wanted version cannot be loaded or the base is being rewritten.
        if wanted and all(version in self._loaded for version in wanted):
            for version in self._loaded.keys() - set(wanted):
                self._set_state(version, "END")
            self._loaded = {version: self._loaded[version] for version in wanted}

    def find(self, version: int | None = None, label: str | None = None) -> Servable:
        """The version that a request asks for; by default the newest."""
        version = self._version(version, label)
        loaded = self._loaded
        if version is None and loaded:
            return loaded[max(loaded)]
        if version is None or version not in loaded:
            raise _make_not_found(self.config.name, version)
        return loaded[version]

    def status(self, version: int | None = None, label: str | None = None) -> dict[str, Any]:
        """What a status request answers, newest version first."""
        version = self._version(version, label)
        states = dict(self._states)
        if version is not None:
            if version not in states:
                raise RestError(
                    404, f"Could not find version {version} of model {self.config.name}"
                )
            states = {version: states[version]}
        if not states:
            raise RestError(404, f"Could not find any versions of model {self.config.name}")
        return {"model_version_status": [self._state(each) for each in sorted(states)[::-1]]}

    def _version(self, version: int | None, label: str | None) -> int | None:
        if label is None:
            return version
        if label not in self.config.labels:
            raise RestError(400, f"Unrecognized servable version label: {label}")
        return self.config.labels[label]

    def _state(self, version: int) -> dict[str, Any]:
        message = self.failures.get(version, "")
        status = {"error_code": "UNKNOWN" if message else "OK", "error_message": message}
        return {"version": str(version), "state": self._states[version], "status": status}

    def _set_state(self, version: int, state: str) -> None:
        self._states = {**self._states, version: state}

    def _load(self, version: int, folder: pathlib.Path) -> None:
        files = _fingerprint(folder)
        if self._tried.get(version) == files:
            return  # failed before, and unchanged since
        self._tried[version] = files
        say(f"loading {self.config.name} version {version} …")
        self._set_state(version, "LOADING")
        try:
            servable = Servable(self.config.name, version, folder)
        except (
            Exception
        ) as error:  # whatever is wrong with a user's model, the others must keep running
            if version not in self.failures:
                say(f"{folder} cannot be loaded ({_one_line(error)})")
            self.failures = {**self.failures, version: _one_line(error)}
            self._set_state(version, "END")
            return
        self.failures = {v: text for v, text in self.failures.items() if v != version}
        self._loaded = {**self._loaded, version: servable}
        self._set_state(version, "AVAILABLE")
        say(f"loaded {self.config.name} version {version}")


class Models:
    """All served models, and the thread that looks for new versions."""

    def __init__(self, configs: Iterable[ModelConfig]) -> None:
        self._models = {config.name: Model(config) for config in configs}
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def load(self) -> None:
        """Loads every model for the first time.

        Raises:
            ServingError: if a wanted version cannot be loaded.
        """
        for name, model in self._models.items():
            model.refresh()
            for version, message in model.failures.items():
                raise ServingError(f"version {version} of {name} cannot be loaded ({message})")
            if not model._loaded:
                say(f"no version of {name} in {model.config.base} yet")

    def watch(self, seconds: float = 1.0) -> None:
        """Starts a thread that looks for new versions."""
        self._watcher = threading.Thread(
            target=self._watch, args=(seconds,), name="tfbnood-versions", daemon=True
        )
        self._watcher.start()

    def close(self, *, wait: bool = True) -> bool:
        """Stops looking and returns whether the thread has ended; a version in loading is loaded to its end.

        Args:
            wait: until it is.
        """
        self._stop.set()
        if self._watcher is None:
            return True
        # Even without waiting, a thread that is not inside TensorFlow gets the moment it needs to end.
        self._watcher.join(None if wait else 0.5)
        return not self._watcher.is_alive()

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._models)

    def find(self, name: str, version: int | None, label: str | None) -> Servable:
        """The version that a request asks for."""
        if name in self._models:
            return self._models[name].find(version, label)
        if label is not None:
            raise RestError(400, f"Unrecognized servable version label: {label}")
        raise _make_not_found(name, version)

    def status(self, name: str, version: int | None, label: str | None) -> dict[str, Any]:
        """What a status request answers."""
        if name in self._models:
            return self._models[name].status(version, label)
        which = "any versions" if version is None else f"version {version}"
        raise RestError(404, f"Could not find {which} of model {name}")

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            for name, model in self._models.items():
                if self._stop.is_set():
                    return
                try:
                    model.refresh()
                except OSError as error:  # the base is gone or cannot be read: tried again
                    logging.getLogger("tfbnood").debug("%s: %s", name, error)


def say(text: str) -> None:
    """Prints a message on standard error."""
    print(f"tfbnood serve: {text}", file=sys.stderr, flush=True)


def _fingerprint(folder: pathlib.Path) -> tuple:
    files = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files)


def _as_array(value: Any) -> np.ndarray:
    # A scalar string comes as bytes, from which NumPy would strip zero bytes.
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def _make_not_found(name: str, version: int | None) -> RestError:
    which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return RestError(404, f"Servable not found for request: {which}")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
