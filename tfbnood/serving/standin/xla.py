"""Finds the signatures that need XLA, which stock servers disable."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["compiled_signatures"]

_MARK = "_XlaMustCompile"


def compiled_signatures(meta_graph: Any) -> dict[str, str]:
    """The signatures that call a function with `jit_compile=True`, each with the first node that leads to it.

    Looks at the graph, not at a run: conditional calls count as well.
    """
    functions = {
        function.signature.name: function for function in meta_graph.graph_def.library.function
    }
    compiled = {
        name
        for name, function in functions.items()
        if _is_marked(function) or any(map(_is_marked, function.node_def))
    }
    calls = {
        name: {called for node in function.node_def for called in _find_called(node)}
        for name, function in functions.items()
    }
    while new := {name for name in functions if calls[name] & compiled} - compiled:
        compiled |= new
    nodes = {
        node.name
        for node in meta_graph.graph_def.node
        if _is_marked(node) or not compiled.isdisjoint(_find_called(node))
    }
    if not nodes:
        return {}
    graph = {node.name: list(map(_node_name, node.input)) for node in meta_graph.graph_def.node}
    found = {}
    for key, signature in meta_graph.signature_def.items():
        needed = _find_needed(graph, (_node_name(info.name) for info in signature.outputs.values()))
        first = next((name for name in needed if name in nodes), None)
        if first is not None:
            found[key] = first
    return found


def _is_marked(node_or_function: Any) -> bool:
    return _MARK in node_or_function.attr and node_or_function.attr[_MARK].b


def _find_called(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (function.name for function in value.list.func)


def _node_name(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]


def _find_needed(graph: Mapping[str, list[str]], outputs: Iterable[str]) -> Iterator[str]:
    """The nodes that some outputs need."""
    waiting, seen = list(outputs), set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting.extend(graph.get(name, []))
