"""Any Keras network, such as a classifier or an encoder, as the basis of a detector."""

from typing import TYPE_CHECKING, Any

from tfbnood.networks.catalogue import load, names

if TYPE_CHECKING:
    from tfbnood.networks.network import Network as Network

__all__ = ["Network", "load", "names"]


def __getattr__(name: str) -> Any:
    # Imports TensorFlow, which is not needed to list names.
    if name == "Network":
        from tfbnood.networks.network import Network

        return Network
    raise AttributeError(f"module 'tfbnood.networks' has no attribute {name!r}")
