"""A network's preprocessing of pixels in 0–255, in a form that can be saved with it: data, never code."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tfbnood.errors import StatisticError

__all__ = ["Preprocess", "from_saved", "to_saved"]

Preprocess = Callable[[Any], Any]

_APPLICATIONS = "keras.applications"


def to_saved(preprocess: Preprocess | None) -> dict[str, Any] | None:
    """Describes a preprocessing: a Keras layer, a `preprocess_input` of keras.applications, or a registered function.

    Raises:
        StatisticError: if it is none of them and so cannot be restored.

    Example:
        >>> import keras
        >>> to_saved(keras.applications.mobilenet_v2.preprocess_input)
        {'application': 'mobilenet_v2'}
    """
    if preprocess is None:
        return None
    if isinstance(preprocess, keras.layers.Layer):
        return {"layer": keras.saving.serialize_keras_object(preprocess)}
    for name, function in _application_functions().items():
        if preprocess is function:
            return {"application": name}
    name = keras.saving.get_registered_name(preprocess)
    if keras.saving.get_registered_object(name) is preprocess:
        return {"registered": name}
    raise StatisticError(
        "preprocess must be a Keras layer such as keras.layers.Rescaling, a preprocess_input of keras.applications, or "
        "a function registered with keras.saving.register_keras_serializable to be saved. "
        f"Received: {getattr(preprocess, '__name__', type(preprocess).__name__)}"
    )


def from_saved(saved: Mapping[str, Any] | None) -> Preprocess | None:
    """The preprocessing that `to_saved` described."""
    if saved is None:
        return None
    if "layer" in saved:
        return keras.saving.deserialize_keras_object(saved["layer"])
    if "application" in saved:
        return _application_functions()[saved["application"]]
    function = keras.saving.get_registered_object(saved["registered"])
    if function is None:
        raise StatisticError(
            "preprocess must be registered with keras.saving.register_keras_serializable before loading. "
            f"Received: {str(saved['registered'])[:80]!r}, which is not"
        )
    return function


def _application_functions() -> dict[str, Preprocess]:
    applications = importlib.import_module(_APPLICATIONS)
    modules = inspect.getmembers(applications, inspect.ismodule)
    # The common function has a mode that cannot be read from it.
    return {
        name: module.preprocess_input
        for name, module in modules
        if hasattr(module, "preprocess_input") and name != "imagenet_utils"
    }
