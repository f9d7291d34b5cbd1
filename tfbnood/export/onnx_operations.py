"""TensorFlow operations that detectors need and tf2onnx lacks, in terms of ONNX operations.

A handler has tf2onnx's form, `(graph, node, name, arguments)`, and replaces the node by ONNX nodes.
"""

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf
from onnx import TensorProto, helper
from tf2onnx.utils import make_name

__all__ = ["HANDLERS", "with_constants"]


class _Place:
    """The place of a node: makes the nodes that replace it, the last of which has its output."""

    def __init__(self, graph: Any, node: Any):
        self._graph = graph
        self._name = node.name
        self._output = node.output[0]
        self._dtype, self._shape = graph.get_dtype(self._output), graph.get_shape(self._output)
        graph.remove_node(node.name)

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        node = self._graph.make_node(
            operation, list(inputs), attr=attributes, op_name_scope=self._name
        )
        return node.output[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return self._graph.make_const(make_name(self._name), np.asarray(value, dtype)).output[0]

    def end(self, operation: str, *inputs: str, **attributes: Any) -> None:
        self._graph.make_node(
            operation,
            list(inputs),
            attr=attributes,
            outputs=[self._output],
            shapes=[self._shape],
            dtypes=[self._dtype],
            name=self._name,
        )

    def end_as_integers(self, values: str) -> None:
        self.end("Cast", values, to=self._dtype)


def _lower_bound(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """The number of sorted values below each value."""
    _bound(graph, node, upper=False)


def _upper_bound(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """The number of sorted values not above each value."""
    _bound(graph, node, upper=True)


def _bound(graph: Any, node: Any, *, upper: bool) -> None:
    """Bisects a constant row in constant memory; compares with all values of any other table."""
    known, (table, values) = node.inputs[0], node.input
    rows = known.get_tensor_value(as_list=False) if known.is_const() else None
    place = _Place(graph, node)

    def comes_before(entries: str, values: str) -> str:
        """For the upper bound "not above" rather than "below or equal", so that NaN goes where TensorFlow puts it."""
        if upper:
            return place.add("Not", place.add("Less", values, entries))
        return place.add("Less", entries, values)

    if rows is None or len(rows) != 1:
        table = place.add("Unsqueeze", table, place.constant([1]))
        values = place.add("Unsqueeze", values, place.constant([2]))
        before = place.add("Cast", comes_before(table, values), to=TensorProto.INT64)
        counts = place.add("ReduceSum", before, place.constant([2]), keepdims=0)
        place.end_as_integers(counts)
        return
    count = rows.shape[1]
    size = 1 << count.bit_length()
    # Entries beyond the last never precede a value; only infinity, and NaN for the upper bound, get that far.
    padded = np.concatenate([rows[0], np.full(size - count, np.inf, rows.dtype)])
    table = place.constant(padded, rows.dtype)
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    position = place.add("ConstantOfShape", place.add("Shape", values), value=zero)
    step = size // 2
    while step:
        further = place.add("Add", position, place.constant(step))
        entries = place.add("Gather", table, place.add("Sub", further, place.constant(1)))
        position = place.add("Where", comes_before(entries, values), further, position)
        step //= 2
    place.end_as_integers(place.add("Min", position, place.constant(count)))


def _log1p(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """`log(1 + x)`; exact to a rounding of 1."""
    dtype, values = _numpy_dtype(graph, node), node.input[0]
    place = _Place(graph, node)
    place.end("Log", place.add("Add", values, place.constant(1, dtype)))


def _expm1(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """`exp(x) − 1`; exact to a rounding of 1."""
    dtype, values = _numpy_dtype(graph, node), node.input[0]
    place = _Place(graph, node)
    place.end("Sub", place.add("Exp", values), place.constant(1, dtype))


def _numpy_dtype(graph: Any, node: Any) -> Any:
    return helper.tensor_dtype_to_np_dtype(graph.get_dtype(node.output[0]))


def _broadcast_args(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """The broadcast shape of two shapes: the right one where the left one is 1."""
    shapes = list(node.input)
    ranks = [graph.get_shape(shape)[0] for shape in shapes]
    place = _Place(graph, node)
    left, right = (
        place.add(
            "Concat",
            place.constant(np.ones(max(ranks) - rank)),
            place.add("Cast", shape, to=TensorProto.INT64),
            axis=0,
        )
        for shape, rank in zip(shapes, ranks, strict=True)
    )
    is_one = place.add("Equal", left, place.constant(1))
    place.end_as_integers(place.add("Where", is_one, right, left))


def _scale_and_translate(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """`tf.image.resize(…, antialias=True)`: one matrix per side, with TensorFlow's weights."""
    images = node.input[0]
    size, scale, translation = (one.get_tensor_value(as_list=False) for one in node.inputs[1:4])
    sides = graph.get_shape(images)[1:3]
    settings = {
        "kernel_type": node.get_attr_value("kernel_type").decode(),
        "antialias": bool(node.get_attr_value("antialias")),
    }
    rows, columns = (
        _compute_resizing(side, int(to), float(by), float(shift), settings)
        for side, to, by, shift in zip(sides, size, scale, translation, strict=True)
    )
    place = _Place(graph, node)
    # Channels first, as ONNX convolutions expect them: tf2onnx drops the transposes between.
    planes = place.add("Transpose", images, perm=[0, 3, 1, 2])
    planes = place.add("MatMul", place.constant(rows, np.float32), planes)
    planes = place.add("MatMul", planes, place.constant(columns.T, np.float32))
    place.end("Transpose", planes, perm=[0, 2, 3, 1])


def _compute_resizing(
    side: int, size: int, scale: float, translation: float, settings: dict[str, Any]
) -> np.ndarray:
    """TensorFlow's result for each unit vector of one side, `[size, side]`."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        units = tf.reshape(tf.eye(side), (1, side, 1, side))
        resized = tf.raw_ops.ScaleAndTranslate(
            images=units,
            size=[size, 1],
            scale=[scale, 1.0],
            translation=[translation, 0.0],
            **settings,
        )
        return session.run(resized)[0, :, 0, :]


HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "BroadcastArgs": (_broadcast_args, []),
    "Expm1": (_expm1, []),
    "Log1p": (_log1p, []),
    "LowerBound": (_lower_bound, []),
    "ScaleAndTranslate": (_scale_and_translate, []),
    "UpperBound": (_upper_bound, []),
}


def with_constants(graph: Any, example: dict[str, np.ndarray]) -> Any:
    """A copy of a `GraphDef` with constants for nodes that do not depend on the images but were not folded.

    These are noise, which depends only on seeds, and factors of resizing, which depend only on the image shape.

    Args:
        graph: frozen.
        example: any valid images, by the name of its input.
    """
    copy = type(graph)()
    copy.CopyFrom(graph)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        for node in list(copy.node):
            if node.op == "ScaleAndTranslate":
                for index in (1, 2, 3):
                    value = session.run(_tensor(node.input[index]), example)
                    constant = copy.node.add()
                    _set_constant(constant, f"{node.name}/constant_{index}", value)
                    node.input[index] = constant.name
            elif node.op.startswith("StatelessRandom") and "GetKey" not in node.op:
                # Noise that depends on the images stays and is refused: ONNX has no reproducible noise.
                with contextlib.suppress(tf.errors.InvalidArgumentError):
                    _set_constant(node, node.name, session.run(_tensor(node.name)))
    return copy


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _set_constant(node: Any, name: str, value: np.ndarray) -> None:
    node.Clear()
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
