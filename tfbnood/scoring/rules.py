"""The one hook into batch normalisation: a rule that says which moments every layer uses.

The rule is held in a context variable, so that it belongs to one thread and to the block that opened it. Keras'
`BatchNormalization.call` asks for it; where there is none, and that is everywhere else, it does what it always did.
The hook is part of the class: layers, models and their configurations stay as they are, stock ones and ours alike.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfbnood.errors import StatisticError
from tfbnood.models.layers import BatchNormalization

__all__ = ["Moments", "Rule", "along_axis", "batch_normalizations", "ruled", "untraced"]

Moments = tuple[tf.Tensor, tf.Tensor]
# (layer, inputs) → mean and variance, of shapes that broadcast to the inputs.
Rule = Callable[[keras.layers.BatchNormalization, tf.Tensor], Moments]


class _Block:
    """An open `ruled` block: its rule, the graph it was opened in, and the layers that have asked."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.graph = _function_graph()
        self.asked: set[int] = set()
        self.refusal: str | None = None


_open: contextvars.ContextVar[_Block | None] = contextvars.ContextVar("tfbnood_rule", default=None)


def batch_normalizations(model: Any) -> list[keras.layers.BatchNormalization]:
    """Every batch normalisation in a Keras model, stock or ours, however deep, and also in a frozen one."""
    model = getattr(model, "unfrozen", model)
    layers = model._flatten_layers() if isinstance(model, keras.layers.Layer) else []
    return [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]


@contextlib.contextmanager
def ruled(model: Any, rule: Rule) -> Iterator[None]:
    """While open, in this thread, every batch normalisation takes its moments from the rule; no variable changes.

    Raises:
        StatisticError: a layer's own `call`, or a `tf.function` inside the model, would not obey the rule.
    """
    block = _Block(rule)
    token = _open.set(block)
    try:
        with keras.StatelessScope():
            yield
    except Exception as error:
        if block.refusal is None:
            raise
        # Keras and autograph wrap what is raised inside a layer in errors of their own.
        raise StatisticError(block.refusal) from error
    finally:
        _open.reset(token)
    layers = batch_normalizations(model)
    if layers and not block.asked:
        raise StatisticError(
            "the model's batch normalisations were not called, or call something else than Keras' own: the model must "
            "run them anew in every trace, without a tf.function of its own, and their `call` must end in "
            f"super().call(). Received: {type(model).__name__} with {len(layers)} of them, none of which was asked"
        )


def untraced(function: Callable) -> Callable:
    """The Python function behind a `tf.function`, whose old trace would not know the rule; any other as it is."""
    return getattr(function, "python_function", function)


def _hooked(call: Callable) -> Callable:
    @functools.wraps(call)
    def call_by_rule(self, inputs, training=None, mask=None):
        block = _open.get()
        if block is None:
            return call(self, inputs, training=training, mask=mask)
        _check_graph(block, self)
        block.asked.add(id(self))
        return _normalize(self, inputs, block.rule)

    return call_by_rule


def _normalize(layer: Any, inputs: tf.Tensor, rule: Rule) -> tf.Tensor:
    """What Keras does after it has chosen the moments."""
    inputs = tf.cast(inputs, layer.variable_dtype)
    # An absolute scope: within the layers' own, thousands of operations would take names of seventy letters into
    # every export.
    with tf.name_scope("moments/"):
        mean, variance = rule(layer, inputs)
        scale = along_axis(layer, layer.gamma, inputs) if layer.scale else None
        offset = along_axis(layer, layer.beta, inputs) if layer.center else None
        outputs = tf.nn.batch_normalization(inputs, mean, variance, offset, scale, layer.epsilon)
    return tf.cast(outputs, layer.compute_dtype)


def along_axis(layer: Any, vector: Any, inputs: tf.Tensor) -> tf.Tensor:
    """A vector of the channels in a shape that broadcasts to the inputs."""
    vector = tf.cast(vector, inputs.dtype)
    rank = len(inputs.shape)
    if layer.axis % rank == rank - 1:
        return vector  # It broadcasts as it is; a reshape less in every layer of every graph.
    shape = [1] * rank
    shape[layer.axis] = -1
    return tf.reshape(vector, shape)


def _check_graph(block: _Block, layer: Any) -> None:
    """A `tf.function` inside the model keeps its first trace: with a rule in it, every later call would be wrong."""
    if _function_graph() is not block.graph:
        block.refusal = (
            "the model must not run batch normalisation inside a tf.function of its own, whose trace would keep these "
            f"moments: remove the decorator, tfbnood compiles the model itself. Received: one around {layer.name}"
        )
        raise StatisticError(block.refusal)


def _function_graph() -> Any:
    """The graph of the function being traced, past the branches and loops in it; None when eager."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ in (
        "CondBranchFuncGraph",
        "WhileBodyFuncGraph",
        "WhileCondFuncGraph",
    ):
        graph = graph.outer_graph
    return graph


# Ours has a `call` of its own, which must not pass a rule by.
for _layer in (keras.layers.BatchNormalization, BatchNormalization):
    _layer.call = _hooked(_layer.call)  # type: ignore[method-assign]
