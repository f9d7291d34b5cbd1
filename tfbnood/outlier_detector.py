"""A detector with the interface of scikit-learn's outlier detectors: rows or images in, ±1 out."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from tfbnood.calibration.conformal import score_threshold
from tfbnood.calibration.passes import alarm_level
from tfbnood.detector import Detector
from tfbnood.errors import DataError, StatisticError

if TYPE_CHECKING:
    from tfbnood.estimator import Model

__all__ = ["OutlierDetector"]

_FEWEST = 8  # images, of which a quarter is held out


class OutlierDetector(OutlierMixin, BaseEstimator):
    """`Detector` with scikit-learn's interface, for pipelines, grid searches and comparisons with other detectors.

    It is fitted to in-distribution images. Unlike scikit-learn's `contamination`, the share of outliers among the
    training images, `fpr` is the false-alarm rate on new images. Some images are held out to calibrate it, as in
    `Detector.fit`.

    Args:
        model: as for `Detector`. `sklearn.base.clone` does not copy it.
        statistic: the name of a statistic of scope "image". Defaults to "auto".
        image_shape: `(height, width, channels)` of the images in the rows of a table. Defaults to the images' own shape
            for arrays `[n, height, width, channels]`, and to (1, columns, 1) for tables.
        value_range: the values of black and white. Defaults to (0, 255); None uses the smallest and the largest value
            of the training images, and clips later values to this range.
        fpr: the false-alarm rate. Defaults to 0.01, or to more with few calibration images.
        tolerate: as for `Detector`.
        settings: of the statistic, by name. Defaults to none.
        random_state: seed for choosing the held-out images. Defaults to 0.

    Attributes:
        detector_: the fitted `Detector`, which offers more: p-values, heat maps, tests of whole batches.
        offset_: `decision_function` is `score_samples − offset_`.
        image_shape_: of the images.
        value_range_: the range in use.
        n_features_in_: number of columns, if fitted to a table.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from tfbnood.outlier_detector import OutlierDetector
        >>> rows = load_digits().data  # 1797 rows of 64 values in 0–16
        >>> made = OutlierDetector(statistic="pixel_pca", image_shape=(8, 8, 1), value_range=(0, 16)).fit(rows[:1000])
        >>> made.predict(16 - rows[1000:1003])
        array([-1, -1, -1])
    """

    def __init__(
        self,
        model: "Model" = None,
        statistic: str = "auto",
        *,
        image_shape: tuple[int, int, int] | None = None,
        value_range: tuple[float, float] | None = (0, 255),
        fpr: float | None = None,
        tolerate: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ):
        self.model = model
        self.statistic = statistic
        self.image_shape = image_shape
        self.value_range = value_range
        self.fpr = fpr
        self.tolerate = tolerate
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "OutlierDetector":
        """Learns the in-distribution images, and from held-out ones when to raise an alarm.

        Args:
            X: `[n, height, width, channels]`, or a table `[n, height · width · channels]`.
            y: ignored.
        """
        values = self._validate(X, reset=True)
        self.image_shape_ = self._image_shape(values)
        low, high = (values.min(), values.max()) if self.value_range is None else self.value_range
        if not low <= high:
            raise DataError(f"value_range must be (low, high). Received: {self.value_range}")
        self.value_range_ = (float(low), float(high))
        detector = Detector(
            self.model, self.statistic, tolerate=self.tolerate, **(self.settings or {})
        )
        if detector.statistic.scope != "image":
            raise StatisticError(
                'statistic must be of scope "image", since rows are decided one by one. '
                f"Received: {self.statistic!r}"
            )
        self.detector_ = detector.fit(self._to_images(values), seed=self.random_state)
        null = self.detector_.calibration.null_of_images(1)  # type: ignore[union-attr]
        self.offset_ = -score_threshold(null, alarm_level(null, self.fpr)[0])
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """`[n]`; lower means more out-of-distribution."""
        check_is_fitted(self)
        images = self._to_images(self._validate(X, reset=False))
        return self.detector_.score_samples(images)

    def decision_function(self, X: Any) -> np.ndarray:
        """`[n]`; negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """`[n]`; −1 for outliers and 1 for inliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def __sklearn_clone__(self) -> "OutlierDetector":
        """Not fitted, on the same model: a trained network is not a setting to copy."""
        return type(self)(**self.get_params(deep=False))

    def _validate(self, X: Any, *, reset: bool) -> np.ndarray:
        least = _FEWEST if reset else 1
        if len(getattr(X, "shape", ())) != 4:
            return validate_data(self, X, reset=reset, ensure_min_samples=least)
        values = check_array(X, allow_nd=True, ensure_2d=False, ensure_min_samples=least)
        if not reset and values.shape[1:] != self.image_shape_:
            raise DataError(
                f"X must have (height, width, channels)={self.image_shape_}. Received: shape={values.shape}"
            )
        return values

    def _image_shape(self, values: np.ndarray) -> tuple[int, int, int]:
        own = values.shape[1:] if values.ndim == 4 else (1, values.shape[1], 1)
        wanted = own if self.image_shape is None else tuple(self.image_shape)
        if math.prod(wanted) != math.prod(own) or (values.ndim == 4 and wanted != own):
            raise DataError(
                f"image_shape must fit X. Received: image_shape={wanted}, X of shape {values.shape}"
            )
        return wanted  # type: ignore[return-value]

    def _to_images(self, values: np.ndarray) -> np.ndarray:
        images = values.reshape(-1, *self.image_shape_)
        low, high = self.value_range_
        if self.value_range is None:
            images = np.clip(images, low, high)
        if (low, high) == (0, 255):
            return images
        scaled = np.rint((images.astype(np.float64) - low) * (255 / max(high - low, 1e-300)))
        # One grey level is negligible, and `as_images` would take such an image for one in 0–1.
        scaled[scaled.max(axis=(1, 2, 3)) == 1] = 0
        return scaled
