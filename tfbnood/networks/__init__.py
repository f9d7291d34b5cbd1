"""Any Keras network, a classifier or an encoder, as something a detector can stand on."""

from typing import TYPE_CHECKING, Any

from tfbnood.networks.catalogue import load, names

if TYPE_CHECKING:
    from tfbnood.networks.network import Network as Network

__all__ = ["Network", "load", "names"]


def __getattr__(name: str) -> Any:
    # Imports TensorFlow, which a question for names does not need.
    if name == "Network":
        from tfbnood.networks.network import Network

        return Network
    raise AttributeError(f"module 'tfbnood.networks' has no attribute {name!r}")
