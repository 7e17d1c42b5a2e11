"""The rules of the IR, checked."""

from __future__ import annotations

from ..errors import GraphError, MgbError
from ..ir import CONST, INPUT, Graph, Kind, Node, Spec

_ONE_DEVICE = frozenset({Kind.ELEMENTWISE, Kind.REDUCE, Kind.LAYOUT})


def verify(graph: Graph) -> None:
    """Check every node: known inputs, hashable parameters, exact dtypes, and the spec that its op infers.

    Raises
    ------
    GraphError
        The message names the first node that is wrong and what is wrong with it.
    """
    given = set(graph.inputs)
    if len(given) != len(graph.inputs):
        raise GraphError("an input occurs twice in the graph's inputs")
    for node in graph.nodes:
        problem = _problem(node)
        if problem:
            source = f", made at {node.source}" if node.source else ""
            raise GraphError(f"{node!r}{source}: {problem}\nin\n{graph}")


def _problem(node: Node) -> str | None:
    if node.op is INPUT:
        return "an input that the graph does not list"
    if node.op is CONST:
        return _problem_of_constant(node)
    try:
        hash(tuple(node.params.values()))
    except TypeError:
        return f"a parameter is not hashable: {dict(node.params)}"
    try:
        return _problem_of_dtypes(node) or _problem_of_spec(node)
    except (MgbError, TypeError, ValueError) as error:
        return str(error)


def _problem_of_constant(node: Node) -> str | None:
    value = node.params["value"]
    if (value.shape, value.dtype) != (node.spec.shape, node.spec.dtype):
        return f"holds {value.dtype}{list(value.shape)}"
    return "its array can be written to" if value.flags.writeable else None


def _problem_of_dtypes(node: Node) -> str | None:
    given = tuple(i.spec.dtype for i in node.inputs)
    if node.op.promote is not None and given:
        wanted = tuple(node.op.promote(given))
        if wanted != given:
            return f"reads {_names(given)}, computes in {_names(wanted)}: casts are missing"
    devices = {i.spec.device for i in node.inputs} | {node.spec.device}
    if node.op.kind in _ONE_DEVICE and len(devices) > 1:
        return f"is spread over {', '.join(sorted(devices))}"
    return None


def _problem_of_spec(node: Node) -> str | None:
    found = node.op.infer(*(i.spec for i in node.inputs), **node.params)
    if (found.shape, found.dtype) != (node.spec.shape, node.spec.dtype):
        return f"infers {Spec(found.shape, found.dtype)}"
    return None


def _names(dtypes: tuple[object, ...]) -> str:
    return ", ".join(map(str, dtypes))
