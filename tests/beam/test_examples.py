"""The examples in the docstrings of `tfbnood.beam` run.

They have no prompts, unlike those of the package, whose suite would need Beam for them.
"""

import inspect
import textwrap

import pytest

import tfbnood.beam

PUBLIC = [name for name in tfbnood.beam.__all__ if not name.endswith("Error")]


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run(name, base, digits, tmp_path):
    import tensorflow as tf

    for index in range(3):
        content = tf.io.encode_png(digits.test[index]).numpy()
        (tmp_path / f"{index}.png").write_bytes(content)
    documentation = inspect.cleandoc(getattr(tfbnood.beam, name).__doc__)
    example = textwrap.dedent(documentation.partition("\nExample:\n")[2])
    assert example
    names = {name: getattr(tfbnood.beam, name) for name in tfbnood.beam.__all__}
    # As a module of its own: Beam's functions look their names up there.
    exec(
        compile(example, name, "exec"),
        {**names, "base": base, "folder": tmp_path, "images": digits.test},
    )
