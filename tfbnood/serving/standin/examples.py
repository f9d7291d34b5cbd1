"""The real server's answers to `:classify` and `:regress`, which the signatures of an export do not support."""

from collections.abc import Mapping
from typing import Any

from tfbnood.serving.standin.rest import RestError, json_type, shown

__all__ = ["check_examples", "refusal"]


def check_examples(document: Mapping[str, Any]) -> None:
    """Refuses a request that has no examples."""
    if "examples" not in document:
        raise RestError(
            400,
            f"JSON Value: {shown(document)} When method is classify, key 'examples' is expected and was not found",
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise RestError(
            400, f"JSON Value: {shown(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise RestError(400, f"JSON Value: {shown(document)} 'examples' value is an empty array")
    for example in examples:
        if not isinstance(example, dict):
            raise RestError(400, f"Example must be JSON object but got JSON {json_type(example)}")


def refusal(method: str, name: str, signatures: Mapping[str, Any]) -> RestError:
    """The reason why a signature does not support the method.

    Args:
        method: `classify` or `regress`.
        name: of the signature.
        signatures: of the model, by name. Their `method_name` does not matter: newer servers ignore it.
    """
    if name not in signatures:
        return RestError(400, f"No signature was found with the name: {name}")
    inputs, outputs = set(signatures[name].inputs), set(signatures[name].outputs)
    if len(inputs) != 1:
        return RestError(400, "Expected one input Tensor.")
    text = str(signatures[name])
    if method == "regress":
        if len(outputs) != 1:
            return RestError(400, "Expected one output Tensor.")
        if "inputs" not in inputs:
            return RestError(400, f"No regression inputs found in SignatureDef: {text}")
        if "outputs" not in outputs:
            return RestError(400, f"No regression outputs found in SignatureDef: {text}")
    else:
        if len(outputs) not in (1, 2):
            return RestError(400, f"Expected one or two output Tensors, found {len(outputs)}")
        if "inputs" not in inputs:
            return RestError(400, f"No classification inputs found in SignatureDef: {text}")
        if not outputs & {"classes", "scores"}:
            return RestError(
                400,
                'Expected classification signature outputs to contain at least one of "classes" or "scores". '
                f"Signature was: {text}",
            )
    return RestError(501, f"{method} is not implemented: the development server has only predict")
