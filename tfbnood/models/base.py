"""The base class of likelihood models: a `keras.Model` whose one primitive is `log p(images)`."""

import abc
import contextlib
import dataclasses
import math
import warnings
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from tqdm import tqdm

from tfbnood._core.batching import map_batches
from tfbnood._core.images import as_images
from tfbnood._core.precision import check_precision
from tfbnood._core.presets import check_size, preset
from tfbnood._core.units import bits_per_dim
from tfbnood.errors import DataError, TfbnoodError, TrainingDivergedError
from tfbnood.models.noise import Noise, scoring_noise, training_noise
from tfbnood.models.optimizer import Adam
from tfbnood.models.replicas import average_moving_moments, share_of_loss

__all__ = ["LikelihoodModel"]

if keras.backend.backend() != "tensorflow":
    raise TfbnoodError(
        "tfbnood needs Keras on TensorFlow: unset KERAS_BACKEND or set it to tensorflow. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}"
    )


class LikelihoodModel(keras.Model):
    """A density over images in {0, …, 255}^(h·w·c) with batch normalisation inside.

    There are two interfaces, separated on purpose:

    - `log_prob` scores. `training=True` chooses the moments of the batch in every batch normalisation and
      nothing else: no variable changes, no dropout.
    - `fit`, `evaluate`, `predict` are Keras' own and run `call`. In a step of `fit` the moving moments are
      updated, every image has fresh noise, and dropout is on.

    Subclasses implement `_log_prob` and `_sample`, and end their `__init__` with `self.build()`.

    Args:
        image_shape: `(height, width, channels)` of the images, 1 or 3 channels.
        seed: of the initial weights and of the noise in `fit`.
        precision: of the networks inside: `float32` (default), or `mixed_bfloat16` to train faster if the processor
            supports it. Weights, moments, log-determinants, mixtures and losses are float32 in both;
            `in_precision("float32")` returns the model to score with.

    Example:
        >>> isinstance(model, LikelihoodModel), model.dimensions
        (True, 64)
        >>> model.bits_per_dim(x.test).shape, model.sample(2, seed=0).shape
        ((397,), (2, 8, 8, 1))
    """

    preset_family: ClassVar[str]
    side_divisor: ClassVar[int] = 1

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        seed: int = 0,
        precision: str = "float32",
        **kwargs: Any,
    ):
        # The model itself stays in float32: Keras would round its input images.
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.image_shape = self._checked_shape(image_shape)
        self.seed = seed
        self.precision = check_precision(precision)
        self._bits_per_dim_tracker = keras.metrics.Mean(name="bits_per_dim")
        self._score_batch = tf.function(self._score_batch_eagerly, autograph=False)

    @abc.abstractmethod
    def _log_prob(self, images: tf.Tensor, training: bool, noise: Noise) -> tf.Tensor:
        """Returns log-likelihoods in nats, `[n]`, of float32 images in 0–255; `training` is for batch norm."""

    @abc.abstractmethod
    def _sample(self, count: int, temperature: float, seed: tuple[int, int]) -> tf.Tensor:
        """Returns `count` images with values in 0–255; `seed` is for stateless draws."""

    def _takes_precision(self, layer: keras.layers.Layer) -> bool:
        """Whether a layer computes in the model's `precision`; the others stay in float32."""
        return True

    @classmethod
    def from_preset(
        cls,
        name: str,
        image_shape: tuple[int, int, int] | None = None,
        *,
        seed: int = 0,
        any_size: bool = False,
        precision: str = "float32",
    ) -> "LikelihoodModel":
        """Makes an untrained model with a named size.

        Args:
            name: `paper-grey`, `paper-colour`, `cpu-grey`, `cpu-colour` or `tiny`.
            image_shape: `(height, width, channels)`. Defaults to the preset's: 28×28×1, 32×32×3 or 8×8×1.
            seed: of the initial weights and of the noise in `fit`.
            any_size: do not warn about images with more than 1.5 times the pixels that the preset is meant for.
            precision: `float32` (default) or `mixed_bfloat16`.

        Example:
            >>> tfbnood.models.VAE.from_preset("tiny", image_shape=(16, 16, 3)).image_shape
            (16, 16, 3)
        """
        chosen = preset(cls.preset_family, name)
        shape = cls._checked_shape(image_shape or chosen.image_shape)
        if not any_size:
            slow = check_size(cls.preset_family, name, shape, refuse=False)
            if slow:
                warnings.warn(slow, stacklevel=2)
        config = dataclasses.asdict(chosen.config)
        return cls(image_shape=shape, seed=seed, precision=precision, **config)

    def in_precision(self, precision: str) -> "LikelihoodModel":
        """A copy with the same weights, without an optimiser, whose networks compute in `precision`.

        Example:
            >>> model.precision, model.in_precision("mixed_bfloat16").precision
            ('float32', 'mixed_bfloat16')
        """
        copy = type(self).from_config({**self.get_config(), "precision": precision})
        copy.set_weights(self.get_weights())
        return copy

    @property
    def dimensions(self) -> int:
        """Number of values in an image, height · width · channels."""
        return math.prod(self.image_shape)

    def log_prob(
        self, images: Any, training: bool = False, *, seed: int | tf.Tensor = 0
    ) -> tf.Tensor:
        """Log-likelihoods in nats of the discrete images, `[n]`; the images are one batch.

        Args:
            images: `[n, height, width, channels]` in 0–255.
            training: False (default) normalises with the moving moments, so that every image has its own value;
                True with the moments of this batch, so that values depend on the companions. No variable changes
                either way.
            seed: of the noise (dequantisation, latent). One draw is shared by all rows.

        Example:
            >>> model.log_prob(x.test[:2]).shape
            TensorShape([2])
        """
        images = self._checked(images)
        # The scope catches the updates of the moving moments and drops them. A scope that is already open does so, too,
        # and may have other values for the weights.
        with contextlib.nullcontext() if in_stateless_scope() else keras.StatelessScope():
            return self._log_prob(images, training, scoring_noise(seed))

    def bits_per_dim(
        self,
        images: Any,
        training: bool = False,
        *,
        batch_size: int = 64,
        seed: int = 0,
        progress: bool = False,
    ) -> np.ndarray:
        """Bits per dimension of any number of images, `[n]`, in constant memory: `−log p / (h·w·c·ln 2)`.

        Args:
            images: `[n, height, width, channels]` in 0–255.
            training: as for `log_prob`; with True every `batch_size` images form one batch, and images from the front
                complete the last one.
            batch_size: images per pass. Defaults to 64, as in the paper.
            seed: of the noise.
            progress: show a bar on a terminal.

        Example:
            >>> bool(model.bits_per_dim(x.test[:64]).mean() < model.bits_per_dim(255 - x.test[:64]).mean())
            True
        """
        log_probs = map_batches(
            lambda batch: self._score_batch(batch, training, seed),
            as_images(images, self.image_shape),
            batch_size=batch_size,
            description="bits per dim",
            progress=progress,
        )
        return bits_per_dim(log_probs, self.image_shape)

    def _score_batch_eagerly(self, images, training, seed):
        return self.log_prob(images, training, seed=seed)

    def sample(
        self,
        n: int,
        temperature: float = 1.0,
        *,
        seed: int,
        batch_size: int = 64,
        progress: bool = False,
    ) -> np.ndarray:
        """Draws images in evaluation mode, uint8 `[n, height, width, channels]`.

        Args:
            n: number of images.
            temperature: 1.0 samples the model; lower is less varied, higher more. Each model's class states what is
                scaled.
            seed: the same seed gives the same images.
            batch_size: images drawn at a time.
            progress: show a bar on a terminal.

        Example:
            >>> model.sample(2, seed=0).shape
            (2, 8, 8, 1)
        """
        if n < 1:
            raise DataError(f"n must be at least 1. Received: n={n}")
        if not temperature > 0:
            raise DataError(f"temperature must be positive. Received: temperature={temperature}")
        parts = []
        for start in tqdm(
            range(0, n, batch_size),
            desc="sampling",
            unit="batch",
            disable=None if progress else True,
        ):
            images = self._sample(min(batch_size, n - start), temperature, (seed, start))
            parts.append(tf.clip_by_value(tf.floor(images), 0.0, 255.0).numpy().astype(np.uint8))
        return np.concatenate(parts)

    # Keras' interface.

    def build(self, input_shape=None):
        for layer in self._flatten_layers(include_self=False):
            layer.dtype_policy = self.precision if self._takes_precision(layer) else "float32"
        self.log_prob(np.zeros((1, *self.image_shape), np.uint8))
        self.built = True

    def call(self, images, training=False):
        """Log-likelihoods, `[n]`; `training=True` is a step of `fit`: moving moments, fresh noise, dropout."""
        images = tf.cast(tf.ensure_shape(images, (None, *self.image_shape)), tf.float32)
        if not training:
            return self._log_prob(images, False, scoring_noise(0))
        step = self.optimizer.iterations if self.compiled else 0
        return self._log_prob(images, True, training_noise(self.seed, step))

    def compile(self, optimizer: Any = None, *, jit_compile: bool = False, **kwargs: Any) -> None:
        """Keras' `compile` with defaults for these models.

        Args:
            optimizer: Defaults to Adam with learning rate 1e-3 and the gradient's norm clipped at 100.
            jit_compile: use XLA. Defaults to False: compiling takes most of a minute, and again for a last batch of
                another size.
            **kwargs: as for `keras.Model.compile`; a loss is not needed.
        """
        if optimizer is None:
            # The loss is a sum over pixels: norms in the hundreds are outliers, norms in the tens are usual.
            optimizer = Adam(1e-3, global_clipnorm=100.0)
        super().compile(optimizer=optimizer, jit_compile=jit_compile, **kwargs)
        # Made now, not inside the first step, whose graph would then be traced twice.
        self.optimizer.build(self.trainable_variables)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))

    def fit(self, x: Any = None, *args: Any, callbacks: Any = None, **kwargs: Any):
        """Keras' `fit` on images without labels, for arrays in batches of 64; compiles with the defaults if needed.

        Raises:
            TrainingDivergedError: if the loss is no longer finite.
        """
        if not self.compiled:
            self.compile()
        if isinstance(x, np.ndarray):
            x = as_images(x, self.image_shape, name="x")
            kwargs.setdefault("batch_size", 64)
        else:
            kwargs.setdefault("shuffle", False)  # Keras warns that it cannot shuffle a stream.
        callbacks = [StopWhenDiverged(), *(callbacks or [])]
        return super().fit(x, *args, callbacks=callbacks, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The mean negative log-likelihood in nats per image; labels are ignored."""
        return share_of_loss(-tf.reduce_mean(y_pred))

    def train_step(self, data):
        """Keras' step; afterwards all replicas of a `tf.distribute` strategy are equal."""
        logs = super().train_step(data)
        average_moving_moments(self)
        return logs

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self._bits_per_dim_tracker.update_state(bits_per_dim(y_pred, self.image_shape))
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "image_shape": list(self.image_shape), "seed": self.seed}
        # Earlier versions can read files of float32 models, too.
        return config if self.precision == "float32" else {**config, "precision": self.precision}

    def _checked(self, images: Any) -> tf.Tensor:
        if not tf.is_symbolic_tensor(images):
            images = as_images(images, self.image_shape)
        return tf.cast(tf.ensure_shape(images, (None, *self.image_shape)), tf.float32)

    @classmethod
    def _checked_shape(cls, image_shape: Any) -> tuple[int, int, int]:
        shape = tuple(image_shape)
        fits = (
            len(shape) == 3
            and all(isinstance(side, (int, np.integer)) and side > 0 for side in shape)
            and shape[2] in (1, 3)
            and shape[0] % cls.side_divisor == 0
            and shape[1] % cls.side_divisor == 0
        )
        if not fits:
            raise DataError(
                f"image_shape must be (height, width, channels) with sides divisible by {cls.side_divisor} "
                f"and 1 or 3 channels for {cls.__name__}. Received: image_shape={image_shape}"
            )
        return shape


class StopWhenDiverged(keras.callbacks.Callback):
    """Raises as soon as the loss is NaN or infinite: Keras would continue and save useless weights."""

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            step = int(self.model.optimizer.iterations.numpy())
            raise TrainingDivergedError(
                f"the loss became {loss} at step {step}: lower the learning rate, "
                "clip gradients (the default optimiser does), or check the images"
            )
