"""The constructor's arguments of a detector, as scikit-learn expects them, and its reprs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfbnood import statistics
from tfbnood._core.cards import card
from tfbnood.calibration.conformal import Calibration
from tfbnood.data.changes import check_changes
from tfbnood.errors import NotFittedError
from tfbnood.protocols import FeatureExtractor, Likelihood
from tfbnood.statistics.base import Statistic

if TYPE_CHECKING:
    import keras
    from typing_extensions import Self

    Model: TypeAlias = (
        keras.Model | Likelihood | FeatureExtractor | Sequence[keras.Model | Likelihood] | None
    )
    """What a detector can be based on; see `Detector`."""

__all__ = ["Estimator"]


class Estimator:
    """A model, a statistic and a calibration, and the arguments they were made from.

    Attributes:
        model: as statistics expect it.
        statistic: fitted or not.
        calibration: None before `calibrate`.
        reference: the images that the statistic was fitted to; None after loading.
        tolerate: the changes that raise no more alarms than the rate allows.
        about: where the model comes from, as JSON-safe values.
    """

    model: Any
    statistic: Statistic
    calibration: Calibration | None
    reference: np.ndarray | None
    tolerate: tuple[str, ...]
    about: dict[str, Any]
    _given: dict[str, Any]
    _compiled_log_prob: Any = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`(height, width, channels)` of the images it accepts."""
        if not self._is_fitted:
            raise NotFittedError(
                "call fit() with in-distribution images, or give them as reference=, before anything else"
            )
        return self.statistic.image_shape_

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments without the images; `deep` exists for scikit-learn and has no effect.

        Example:
            >>> tfbnood.Detector(None, "pixel_pca", components=5).get_params()
            {'model': None, 'statistic': 'pixel_pca', 'preprocess': None, 'tolerate': (), 'components': 5}
        """
        return dict(self._given)

    def set_params(self, **params: Any) -> "Self":
        """Changes arguments of the constructor, for the next `fit`; a new statistic starts with its own settings.

        Example:
            >>> tfbnood.Detector(None, "pixel_pca", components=5).set_params(statistic="pixel_knn")
            <Detector: pixel_knn of pixels alone, not fitted>
        """
        keep = {"model", "preprocess", "tolerate"} if "statistic" in params else set(self._given)
        kept = {key: value for key, value in self._given.items() if key in keep}
        made = type(self)(**{**kept, **params})
        self._given = made._given
        if not self._is_fitted:
            self.model, self.statistic, self.tolerate = made.model, made.statistic, made.tolerate
        return self

    def __sklearn_clone__(self) -> "Self":
        """Not fitted, on the same model: a trained network is not a setting to copy."""
        given = self.get_params()
        if isinstance(given["statistic"], Statistic):
            statistic = given["statistic"]
            given["statistic"] = type(statistic)(**statistic.get_config())
        return type(self)(**given)

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted and self.calibration is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type="outlier_detector", target_tags=TargetTags(required=False))

    def __repr__(self) -> str:
        if not self._is_fitted:
            return f"<Detector: {self.statistic.name} {_describe_model(self.model)}, not fitted>"
        state = (
            "not calibrated" if self.calibration is None else f"calibrated by {self.calibration}"
        )
        tolerates = f", tolerates {' '.join(self.tolerate)}" if self.tolerate else ""
        return (
            f"<Detector: {self.statistic.name} {_describe_model(self.model)}, images of {self.image_shape}{tolerates}, "
            f"{state}>"
        )

    def _repr_html_(self) -> str:
        fitted = self._is_fitted
        facts = {
            "statistic": repr(self.statistic)[1:-1],
            "model": _describe_model(self.model).removeprefix("on "),
            "images": "×".join(map(str, self.image_shape))
            if fitted
            else "not fitted: call fit(images)",
            "reference": "" if self.reference is None else f"{len(self.reference)} images",
            "tolerates": ", ".join(self.tolerate),
            "calibration": str(self.calibration or "none: call calibrate(held_out_images)"),
        }
        for key, value in self.about.items():
            if isinstance(value, str | int | float) and key not in facts:
                facts[key] = str(value)[:200]
        return card("Detector", facts)

    @property
    def _is_fitted(self) -> bool:
        return hasattr(self.statistic, "image_shape_")

    def _set(
        self,
        model: "Model",
        statistic: str | Statistic,
        *,
        preprocess: Callable[[Any], Any] | None,
        tolerate: Sequence[str],
        **config: Any,
    ) -> None:
        """Keeps the constructor's arguments."""
        self.tolerate = check_changes(tolerate)
        self.statistic = statistics.get(statistic, **config)
        self._compiled_log_prob = None
        self._given = {
            "model": model,
            "statistic": statistic,
            "preprocess": preprocess,
            "tolerate": self.tolerate,
            **config,
        }
        self.model = model
        self.reference = None
        self.calibration = None


def _describe_model(model: Any) -> str:
    """A model in a few words."""
    if model is None:
        return "of pixels alone"
    if isinstance(model, list | tuple):
        return f"on {len(model)} models ({', '.join(type(one).__name__ for one in model)})"
    kind = type(model).__name__
    name = getattr(model, "name", "")
    return f"on {kind} {name}" if kind == "Network" and name else f"on {kind}"
