"""Training on several replicas: devices of one machine, or several machines.

A step's images are a function of the seed and the step, as with one replica; each replica takes its rows of them. All
replicas end a step with equal weights, moments and optimisers, so that any of them could write the checkpoint; the
chief does. We have our own loop, because Keras' `fit` does not run on several machines.
"""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood._core.cluster import TF_CONFIG_VARIABLE, Cluster, read_cluster
from tfbnood.errors import TfbnoodError
from tfbnood.models import LikelihoodModel
from tfbnood.models.base import StopWhenDiverged
from tfbnood.models.replicas import synchronize_moments
from tfbnood.training.stream import batches

__all__ = ["STRATEGIES", "LostWorkerError", "Replicas", "plan_replicas"]

STRATEGIES = ("mirrored", "multiworker")
"""`tf.distribute.MirroredStrategy` and `tf.distribute.MultiWorkerMirroredStrategy`."""

_MOST_SETTINGS = 64  # that are compared between machines

# The errors that the end of another process causes here.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


class LostWorkerError(TfbnoodError):
    """Another process of a training run on several machines has ended, and with it the step."""


def plan_replicas(strategy: str | None, replicas: int | None, sync_moments: bool) -> "Replicas":
    """Plans where a training will run; starts nothing yet.

    Args:
        strategy: one of `STRATEGIES`, or None for one replica.
        replicas: of `mirrored`. Defaults to one per GPU, or one without a GPU.
        sync_moments: normalise with the moments of all replicas' images.

    Raises:
        TfbnoodError: if the options cannot be combined, or `TF_CONFIG` is missing or malformed.

    Example:
        >>> from tfbnood.training.distributed import plan_replicas
        >>> plan_replicas("mirrored", 2, False).settings
        {'strategy': 'mirrored', 'replicas': 2, 'sync_moments': False}
    """
    if strategy not in (None, *STRATEGIES):
        raise TfbnoodError(
            f"strategy must be one of {', '.join(STRATEGIES)}. Received: {strategy!r}"
        )
    if replicas is not None and strategy != "mirrored":
        raise TfbnoodError(
            f"replicas needs strategy='mirrored'. Received: replicas={replicas}, strategy={strategy!r}"
        )
    if replicas is not None and replicas < 1:
        raise TfbnoodError(f"replicas must be at least 1. Received: replicas={replicas}")
    if strategy is None:
        if sync_moments:
            raise TfbnoodError("sync_moments needs a strategy. Received: sync_moments=True")
        return Replicas()
    devices = len(tf.config.list_physical_devices("GPU"))
    if strategy == "mirrored":
        return Replicas(strategy, replicas or devices or 1, sync_moments)
    cluster = read_cluster(os.environ.get(TF_CONFIG_VARIABLE))
    return Replicas(strategy, len(cluster.addresses) * (devices or 1), sync_moments, cluster)


@dataclasses.dataclass(frozen=True)
class Replicas:
    """Where a training runs.

    Attributes:
        strategy: one of `STRATEGIES`, or None for one replica.
        count: number of replicas on all machines.
        sync_moments: whether batch normalisation uses the moments of all replicas' images.
        cluster: the machines of `multiworker`.
    """

    strategy: str | None = None
    count: int = 1
    sync_moments: bool = False
    cluster: Cluster | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the results depend on."""
        return {
            "strategy": self.strategy,
            "replicas": self.count,
            "sync_moments": self.sync_moments,
        }

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.cluster is None or self.cluster.is_chief

    def connect(self, settings: Mapping[str, Any], *, progress: bool) -> None:
        """Waits for the other machines, and checks that all were started with the same settings.

        Args:
            settings: JSON-safe.
            progress: report on standard error what it is waiting for.

        Raises:
            TfbnoodError: if settings or devices differ between machines.
            LostWorkerError: if another process has ended, or this one's address cannot be used.
        """
        if self.cluster is None:
            return
        if progress:
            others = [one for one in self.cluster.addresses if one != self._address]
            print(
                f"{self._address} is waiting for {', '.join(others)}", file=sys.stderr, flush=True
            )
        with self._watch_workers():
            strategy = self._make()
            if strategy.num_replicas_in_sync != self.count:
                raise TfbnoodError(
                    f"every worker must have as many devices as this one, {self.count} in total. "
                    f"Received: {strategy.num_replicas_in_sync}"
                )
            _check_equal(strategy, settings)

    def build(
        self, make: Callable[[], LikelihoodModel], load: Callable[[LikelihoodModel], None]
    ) -> LikelihoodModel:
        """Builds the compiled model on all replicas, in the state that the chief loads.

        Args:
            make: makes it; the same on all machines.
            load: loads the initial state; called on the chief only.
        """
        strategy = self._make()
        with self._watch_workers():
            with strategy.scope():
                network = make()
            if self.sync_moments:
                synchronize_moments(network)
            # Outside the scope, in which Keras' temporary variables would wait for those of the other machines.
            if self.is_chief:
                load(network)
            if self.cluster is not None:
                _copy_from_chief(strategy, [*network.variables, *network.optimizer.variables])
        return network

    def fitter(
        self, network: LikelihoodModel, images: np.ndarray, run: Mapping[str, Any]
    ) -> Callable[[int, Sequence[keras.callbacks.Callback]], None]:
        """A function of a number of steps and callbacks that continues from the optimiser's step, as one epoch.

        It raises `TrainingDivergedError` if the loss is no longer finite, and `LostWorkerError` if another process has
        ended; the weights may then be those of half a step.

        Args:
            network: from `build`.
            images: all training images; the same on all machines.
            run: has `batch_size`, the images per step and replica, `seed` and `mutation`.
        """
        strategy, size = self._make(), run["batch_size"]
        train_step = _train_step(strategy, network)

        def fit(steps: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
            first = int(network.optimizer.iterations.numpy())
            stream = batches(
                images, self.count * size, run["seed"], first_step=first, mutation=run["mutation"]
            )
            every = keras.callbacks.CallbackList([StopWhenDiverged(), *callbacks], model=network)
            logs: dict[str, float] = {}
            with self._watch_workers():
                network.reset_metrics()
                every.on_epoch_begin(0)
                for number in range(steps):
                    rows = next(stream).reshape(self.count, size, *images.shape[1:])
                    found = train_step(_distribute(strategy, rows))
                    logs = {name: float(value) for name, value in found.items()}
                    every.on_train_batch_end(number, logs)
                every.on_epoch_end(0, logs)

        return fit

    @property
    def _address(self) -> str:
        return "" if self.cluster is None else self.cluster.addresses[self.cluster.index]

    def _make(self) -> tf.distribute.Strategy:
        return _mirrored(self.count) if self.cluster is None else _multiworker()

    @contextlib.contextmanager
    def _watch_workers(self) -> Iterator[None]:
        """Turns the end of another process into an error of one line."""
        try:
            yield
        except _LOST as error:
            if self.cluster is None:
                raise
            if "Could not start gRPC server" in error.message:
                raise TfbnoodError(
                    f"TF_CONFIG must give this process an address of this machine with a free port. "
                    f"Received: {self._address}"
                ) from error
            raise LostWorkerError(
                f"{self._address} lost another worker ({_find_reason(error)}); start all workers again with the same "
                "command: training resumes from the last checkpoint"
            ) from error


@functools.cache
def _mirrored(count: int) -> tf.distribute.Strategy:
    # Once per process: a second strategy would mix its messages with those of the first.
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if kind == "CPU":
        with contextlib.suppress(
            RuntimeError
        ):  # TensorFlow is already running, with a fixed number of devices.
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0],
                [tf.config.LogicalDeviceConfiguration()] * count,
            )
    devices = tf.config.list_logical_devices(kind)
    if len(devices) < count:
        raise TfbnoodError(
            f"replicas must be at most {len(devices)}, the number of {kind} devices TensorFlow has started with. "
            f"Received: replicas={count}"
        )
    return tf.distribute.MirroredStrategy(
        [device.name for device in devices[:count]],
        cross_device_ops=tf.distribute.ReductionToOneDevice() if kind == "CPU" else None,
    )


@functools.cache
def _multiworker() -> tf.distribute.Strategy:
    # TensorFlow allows one per process.
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "startup" not in str(error):
            raise
        raise TfbnoodError(
            "strategy multiworker must be used before TensorFlow does anything else in a process: start a new process"
        ) from None


def _check_equal(strategy: tf.distribute.Strategy, settings: Mapping[str, Any]) -> None:
    """Refuses settings that differ between machines: collective operations would hang, or mix two models."""
    names = sorted(settings)
    digests = np.zeros(_MOST_SETTINGS, np.int64)
    digests[: len(names)] = [
        zlib.crc32(json.dumps([name, settings[name]]).encode()) for name in names
    ]

    @tf.function(autograph=False)
    def gather() -> Any:
        def in_replica() -> tf.Tensor:
            return tf.distribute.get_replica_context().all_gather(digests[None], axis=0)

        return strategy.experimental_local_results(strategy.run(in_replica))[0]

    differing = _differing(names, gather().numpy())
    if differing:
        raise TfbnoodError(
            "all workers must be started with the same options, data and version of tfbnood. "
            f"Received: other values of {', '.join(differing)}"
        )


def _differing(names: Sequence[str], digests: np.ndarray) -> list[str]:
    """The settings whose digests, one row per replica, are not all equal."""
    unequal = (digests != digests[0]).any(axis=0)
    found = [name for name, differs in zip(names, unequal, strict=False) if differs]
    return found or ["settings of another version"] * bool(unequal.any())


def _train_step(strategy: tf.distribute.Strategy, network: LikelihoodModel) -> Any:
    """A compiled step on the parts of a batch: the means of the logs over the replicas."""

    def in_replica(images: tf.Tensor) -> dict[str, tf.Tensor]:
        logs = {name: tf.identity(value) for name, value in network.train_step(images).items()}
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, logs)

    @tf.function(autograph=False)
    def step(parts: Any) -> dict[str, tf.Tensor]:
        logs = strategy.run(in_replica, args=(parts,))
        return {name: strategy.experimental_local_results(value)[0] for name, value in logs.items()}

    return step


def _distribute(strategy: tf.distribute.Strategy, rows: np.ndarray) -> Any:
    """Distributes a step's images over the replicas of this process."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(rows[context.replica_id_in_sync_group])
    )


def _copy_from_chief(strategy: tf.distribute.Strategy, variables: Sequence[Any]) -> None:
    """Copies the values of the chief to all machines: only the chief needs access to the checkpoint."""

    def in_replica() -> None:
        context = tf.distribute.get_replica_context()
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        for dtype in sorted({variable.dtype for variable in variables}):  # an exchange for each
            alike = [variable for variable in variables if variable.dtype == dtype]
            own = [tf.where(is_first, one, tf.zeros_like(one)) for one in alike]
            values = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
            for variable, value in zip(alike, values, strict=True):
                variable.assign(value)

    tf.function(lambda: strategy.run(in_replica), autograph=False)()


def _find_reason(error: tf.errors.OpError) -> str:
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    mark = "Collective ops is aborted by: "
    aborted = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return (aborted or lines or [type(error).__name__])[0][:200]
