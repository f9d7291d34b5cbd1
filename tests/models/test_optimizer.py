"""The fused Adam takes Keras' steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood.models.optimizer import Adam
from tfbnood.training.schedule import ConstantThenDecay


def weights_after(optimizer, steps=30):
    random = np.random.default_rng(0)
    variables = [keras.Variable(random.normal(size=shape)) for shape in ((3, 4), (5,), ())]

    @tf.function
    def step(gradients):
        optimizer.apply(gradients, variables)

    optimizer.build(variables)
    for _ in range(steps):
        step([tf.constant(100 * random.normal(size=v.shape), tf.float32) for v in variables])
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"global_clipnorm": 100.0},
        {"clipnorm": 1.0},
        {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3},
        {"amsgrad": True},
        {"weight_decay": 0.01},
    ],
    ids=str,
)
def test_steps_are_those_of_keras(options):
    rates = [ConstantThenDecay(0.1, 30) for _ in range(2)]
    own = weights_after(Adam(rates[0], **options))
    expected = weights_after(keras.optimizers.Adam(rates[1], **options))
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_it_takes_one_operation_per_variable():
    variables = [keras.Variable(np.zeros(3)) for _ in range(20)]
    optimizer = Adam(0.1)
    optimizer.build(variables)
    step = tf.function(lambda: optimizer.apply([tf.ones(3)] * 20, variables))
    graph = step.get_concrete_function().graph.as_graph_def()
    operations = [node.op for node in graph.node]
    operations += [node.op for function in graph.library.function for node in function.node_def]
    assert operations.count("ResourceApplyAdam") == 20
    assert "Sqrt" not in operations


def test_a_model_with_it_survives_a_keras_file(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(Adam(ConstantThenDecay(0.1, 5), global_clipnorm=7.0), "mse")
    x, y = np.ones((4, 2)), np.ones((4, 1))
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is Adam
    assert again.optimizer.global_clipnorm == 7.0
    for one in (model, again):
        one.fit(x, y, epochs=2, verbose=0)
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
