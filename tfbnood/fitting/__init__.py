"""From images to a calibrated detector in minutes: the choices and steps of `tfbnood fit`."""

from typing import TYPE_CHECKING, Any

from tfbnood.fitting.plan import Plan, make_plan

if TYPE_CHECKING:
    from tfbnood.fitting.run import Fitted as Fitted
    from tfbnood.fitting.run import fit as fit

__all__ = ["Fitted", "Plan", "fit", "make_plan"]


def __getattr__(name: str) -> Any:
    # Imports TensorFlow, which a plan does not need.
    if name in ("Fitted", "fit"):
        from tfbnood.fitting import run

        return getattr(run, name)
    raise AttributeError(f"module 'tfbnood.fitting' has no attribute {name!r}")
