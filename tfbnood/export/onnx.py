"""A calibrated detector as one ONNX file, for onnxruntime, Triton and KServe: `pip install "tfbnood[onnx]"`.

One input, `images`, `[n, height, width, channels]` in 0–255; outputs of shape `[n]`, every row on its own: `score`,
`p_value`, `is_ood`, `valid`, `bits_per_dim` where the model has likelihoods, and `is_ood_certified` and `cluster` where
the detector has them. They are those of the signature `serving_default` that `Detector.export` writes for TF Serving,
up to rounding.
"""

import contextlib
import copy
import json
import logging
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.files import atomic_path
from tfbnood._version import __version__
from tfbnood.calibration.passes import alarm_levels
from tfbnood.errors import DataError, StatisticError, TfbnoodError
from tfbnood.export.signatures import Served
from tfbnood.export.write import check_exportable, describe, describe_alarms
from tfbnood.scoring.frozen import freeze

if TYPE_CHECKING:
    from tfbnood.detector import Detector

__all__ = ["OPSET", "export_onnx"]

# Of ONNX 1.13: onnxruntime from 1.14 on.
OPSET = 18
_MOST_BYTES = 2_000_000_000  # of a protocol buffer
_TOLERANCE = 1e-3  # of scores, relative to 1 + |score|
_CURES = {
    "EncodePng": "complexity needs the sizes of PNG files; fit and calibrate a detector without it: "
    'Detector(model, "ensemble", complexity=False)',
}
_CURE = "tfbnood export without --format onnx writes a SavedModel for TF Serving"


def export_onnx(
    detector: "Detector",
    path: str | os.PathLike[str],
    *,
    fpr: float | None = None,
    confidence: float | None = None,
    dtype: Literal["float32", "uint8"] = "float32",
    version: int = 1,
) -> pathlib.Path:
    """Writes a detector as an ONNX file atomically, checks it with onnxruntime, and returns its path.

    The runtime refuses other shapes or types, and requests without rows. A row with values that are not pixels is not
    an error: it has `valid` False, `is_ood` True and a p-value of 0.

    Args:
        detector: calibrated, for single images. One whose ensemble has the member `complexity` is refused: ONNX cannot
            encode PNG.
        path: of the file, e.g. `models/mine/1/model.onnx`.
        fpr: false-alarm rate behind `is_ood`. Defaults to 0.01, or to more with few calibration images.
        confidence: adds `is_ood_certified`, as in `Detector.export`.
        dtype: of the images.
        version: stored in the file.

    Raises:
        StatisticError: if the detector has operations that ONNX lacks, or does not score single images.

    Example:
        >>> import onnxruntime
        >>> from tfbnood.export.onnx import export_onnx
        >>> session = onnxruntime.InferenceSession(export_onnx(detector, folder / "digits.onnx", fpr=0.05))
        >>> (p_value,) = session.run(["p_value"], {"images": x.test[:5].astype(np.float32)})
        >>> bool((p_value == np.float32(detector.p_values(x.test[:5]))).all())
        True
    """
    if dtype not in ("float32", "uint8"):
        raise DataError(f"dtype must be 'float32' or 'uint8'. Received: dtype={dtype!r}")
    path = pathlib.Path(path)
    _check_installed()
    statistic, null, fpr = check_exportable(detector.statistic, detector.calibration, fpr)
    statistic.check_unchanged()
    assert detector.calibration is not None
    certified = None
    if confidence is not None:
        certified = alarm_levels(detector.calibration, 1, fpr, confidence=confidence)[0]
    served = Served(
        freeze(detector.model),
        statistic,
        null,
        fpr,
        None,
        within=detector.calibration.within,
        certified_levels=certified,
    )
    model = _convert(_trace(served, dtype), statistic.name)
    about = describe(statistic, null, fpr, None, 0, detector.about)
    about |= describe_alarms(detector.calibration, fpr, confidence)
    _describe(model, path.stem, version, {**about, "tolerate": list(detector.tolerate)})
    if model.ByteSize() > _MOST_BYTES:
        raise StatisticError(
            f"the detector must be smaller than 2 GB to fit into an ONNX file. Received: {model.ByteSize():,} bytes"
        )
    content = model.SerializeToString()
    _check_scores(content, detector, dtype)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return path


def _check_installed() -> None:
    try:
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise TfbnoodError(
            f'an ONNX export needs tf2onnx and onnxruntime; run pip install "tfbnood[onnx]". Received: {error}'
        ) from None


def _trace(served: Served, dtype: str) -> Any:
    """The function behind the signature."""

    def outputs(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return served.score(*served.checked(images))

    images = tf.TensorSpec((None, *served.image_shape), tf.as_dtype(dtype), name="images")
    return tf.function(outputs, autograph=False).get_concrete_function(images)


def _convert(function: Any, statistic: str) -> Any:
    """A concrete function of `images`, with outputs by name, as an ONNX model."""
    from tf2onnx import tf_loader, tfonnx

    from tfbnood.export.onnx_operations import HANDLERS, with_constants

    images = function.inputs[0]
    names = {tensor.name: name for name, tensor in function.structured_outputs.items()}
    # Checked first: tf2onnx takes a long time, and fails elsewhere.
    _refuse(statistic, _list_operations(function.graph.as_graph_def()) & _CURES.keys())
    with _quiet():
        frozen = tf_loader.from_function(function, [images.name], list(names))
        example = np.zeros((1, *images.shape[1:]), images.dtype.as_numpy_dtype)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(with_constants(frozen, {images.name: example}), name="")
            converted = tfonnx.process_tf_graph(
                graph,
                opset=OPSET,
                custom_op_handlers=dict(HANDLERS),
                input_names=[images.name],
                output_names=list(names),
                tensors_to_rename={images.name: "images", **names},
                continue_on_error=True,  # Remaining TensorFlow operations are reported below.
            )
            model = _optimize(converted).make_model("")
    _refuse(statistic, {node.op_type for node in model.graph.node} - _list_onnx_operations())
    return model


def _optimize(graph: Any) -> Any:
    """Reduces the operations. With errors caught, half of the time would go into copies."""
    from tf2onnx.optimizer import _get_optimizers, optimize_graph

    # Its transposes lose axes of length 1: maps of 1×1, mixtures of one component. onnxruntime moves them itself.
    steps = {name: step for name, step in _get_optimizers().items() if name != "optimize_transpose"}
    try:
        return optimize_graph(copy.deepcopy(graph), catch_errors=False, optimizers=steps)
    except Exception:  # Of any type; failing steps are then skipped.
        return optimize_graph(graph, optimizers=steps)


def _list_operations(graph: Any) -> set[str]:
    """The operations of a graph and of the functions it calls."""
    functions = graph.library.function
    return {node.op for nodes in (graph.node, *(f.node_def for f in functions)) for node in nodes}


def _list_onnx_operations() -> set[str]:
    import onnx

    return {schema.name for schema in onnx.defs.get_all_schemas()}


def _refuse(statistic: str, unknown: set[str]) -> None:
    """Raises an error with the operations that ONNX lacks, if any, and the cure."""
    if unknown:
        cure = next((_CURES[name] for name in sorted(unknown) if name in _CURES), _CURE)
        raise StatisticError(
            f"the detector must consist of operations that ONNX supports. Received: {statistic}, which needs "
            f"{', '.join(sorted(unknown))}; {cure}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses tf2onnx's line-by-line report, which `_refuse` summarises in one line."""
    logger = logging.getLogger("tf2onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _describe(model: Any, name: str, version: int, about: dict[str, Any]) -> None:
    """Stores the description of the detector in the model: every entry as JSON in `metadata_props`."""
    from onnx import helper

    model.producer_name, model.producer_version = "tfbnood", __version__
    model.model_version = version
    model.graph.name = name
    model.graph.doc_string = f"tfbnood {about['statistic']}, false-alarm rate {about['fpr']:g}"
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "n"
    entries = {"name": name, "version": version, **about}
    helper.set_model_props(
        model,
        {key: json.dumps(one, default=str, ensure_ascii=False) for key, one in entries.items()},
    )


def _check_scores(content: bytes, detector: "Detector", dtype: str) -> None:
    """Compares the file with the detector on images that every model accepts."""
    import onnxruntime

    random = np.random.RandomState(0)
    shape = detector.image_shape
    images = random.randint(0, 256, (3, *shape))
    images[1:] = np.linspace(0, 255, shape[0]).reshape(-1, 1, 1)
    images[2] //= 2
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(["score"], {"images": images.astype(dtype)})
    expected = detector.score(images.astype(np.uint8))
    apart = np.abs(found - expected) / (1 + np.abs(expected))
    if not (apart < _TOLERANCE).all():
        raise StatisticError(
            "the ONNX file must reproduce the detector's scores, but does not for this model. "
            f"Received: {found.tolist()} for {expected.tolist()}; {_CURE}"
        )
