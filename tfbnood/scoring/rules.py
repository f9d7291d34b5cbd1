"""The one hook into batch normalisation: a rule that sets the moments of every layer.

The rule lives in a context variable, so that it belongs to one thread and to the block that opened it. Keras'
`BatchNormalization.call` looks it up; without a rule, it behaves as usual. The hook is part of the class: layers,
models and their configurations stay as they are, stock ones and ours.
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
    """An open `ruled` block: its rule, the graph it was opened in, and the layers that have used it."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.graph = _function_graph()
        self.asked: set[int] = set()
        self.refusal: str | None = None


_open: contextvars.ContextVar[_Block | None] = contextvars.ContextVar("tfbnood_rule", default=None)


def batch_normalizations(model: Any) -> list[keras.layers.BatchNormalization]:
    """Every batch normalisation in a Keras model, stock or ours, at any depth, even in a frozen model."""
    model = getattr(model, "unfrozen", model)
    layers = model._flatten_layers() if isinstance(model, keras.layers.Layer) else []
    return [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]


@contextlib.contextmanager
def ruled(model: Any, rule: Rule) -> Iterator[None]:
    """Makes every batch normalisation in this thread take its moments from the rule; no variable changes.

    Raises:
        StatisticError: if a layer's own `call`, or a `tf.function` inside the model, would bypass the rule.
    """
    block = _Block(rule)
    token = _open.set(block)
    try:
        with keras.StatelessScope():
            yield
    except Exception as error:
        if block.refusal is None:
            raise
        # Keras and autograph wrap errors raised inside a layer in their own.
        raise StatisticError(block.refusal) from error
    finally:
        _open.reset(token)
    layers = batch_normalizations(model)
    if layers and not block.asked:
        raise StatisticError(
            "the model's batch normalisations were not called, or do not call Keras' own: the model must run them in "
            "every trace, without its own tf.function, and their `call` must end in super().call(). "
            f"Received: {type(model).__name__} with {len(layers)} of them, none of which used the rule"
        )


def untraced(function: Callable) -> Callable:
    """The Python function behind a `tf.function`, whose old trace would ignore the rule; others as they are."""
    return getattr(function, "python_function", function)


def _hook(call: Callable) -> Callable:
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
    # An absolute scope: within the layers' scopes, thousands of operations in every export would have names of seventy
    # letters.
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
        return vector  # It broadcasts as it is: saves a reshape per layer.
    shape = [1] * rank
    shape[layer.axis] = -1
    return tf.reshape(vector, shape)


def _check_graph(block: _Block, layer: Any) -> None:
    """Refuses a `tf.function` inside the model: its first trace would keep the rule for every later call."""
    if _function_graph() is not block.graph:
        block.refusal = (
            "the model must not run batch normalisation inside its own tf.function, whose trace would keep these "
            f"moments: remove the decorator; tfbnood compiles the model itself. Received: one around {layer.name}"
        )
        raise StatisticError(block.refusal)


def _function_graph() -> Any:
    """The graph of the function being traced, outside its branches and loops; None in eager mode."""
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


# Ours has its own `call`, which must not bypass a rule.
for _layer in (keras.layers.BatchNormalization, BatchNormalization):
    _layer.call = _hook(_layer.call)  # type: ignore[method-assign]
