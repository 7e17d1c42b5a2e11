"""Statements from nodes, by a table with the code of each op in a language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import CONST, Node, dtypes

#: The code of an op: a format string over its operands, ``"({0} + {1})"``, or ``(node, *operands) -> str``.
Spelling = str | Callable[..., str]
Table = Mapping[str, Spelling]

#: ``(node, name, expression) -> statement``
Assign = Callable[[Node, str, str], str]

#: The C types of the dtypes, by ``stdint.h`` and ``stdbool.h``; those of narrow floats differ by dialect.
C_TYPES = {"bool": "bool", "float32": "float", "float64": "double"} | {
    d.name: f"{d.name}_t" for d in dtypes.INTEGERS
}


def expression(node: Node, operands: Iterable[str], table: Table) -> str:
    """Return the text of one application.

    Raises
    ------
    KeyError
        The table has no entry for the op: the backend's vocabulary claims more than it prints.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, y: x * y, *[Spec((2,), np.dtype("float32"))] * 2)
    >>> expression(graph.nodes[0], ["a", "b"], {"mul": "({0} * {1})"})
    '(a * b)'
    """
    spelling = table[node.op.name]
    return spelling.format(*operands) if isinstance(spelling, str) else spelling(node, *operands)


def statements(
    nodes: Iterable[Node], names: dict[Node, str], table: Table, assign: Assign, prefix: str = "v"
) -> list[str]:
    """Return one statement for each of `nodes`; its name is added to `names`.

    Nodes that have a name already (inputs, an ``iota`` that is a loop counter) are skipped; scalar constants
    become the text that ``table["const"]`` gives and need no statement.

    Parameters
    ----------
    nodes : iterable of Node
        In an order in which each stands after what it reads: ``graph.nodes``.
    names : dict
        How the values known so far are called.
    table : mapping
        From op name to `Spelling`; also of ``const`` and ``cast``.
    assign : callable
        Wraps a name and an expression into a statement, for example
        ``lambda node, name, text: f"{C_TYPES[node.spec.dtype.name]} {name} = {text};"``. The name is in
        `names` by then; where a value is not read by its name alone, put there what reads it.
    prefix : str, optional
        What the names begin with.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, y: x * y + y, *[Spec((2,), np.dtype("float32"))] * 2)
    >>> names = dict(zip(graph.inputs, ["a", "b"]))
    >>> table = {"mul": "{0} * {1}", "add": "{0} + {1}"}
    >>> statements(graph.nodes, names, table, lambda node, name, text: f"float {name} = {text};")
    ['float v2 = a * b;', 'float v3 = v2 + b;']
    """
    lines = []
    for node in nodes:
        if node in names:
            continue
        text = expression(node, [names[i] for i in node.inputs], table)
        if node.op is CONST:
            names[node] = text
        else:
            names[node] = f"{prefix}{len(names)}"
            lines.append(assign(node, names[node], text))
    return lines


def scalar(node: Node) -> np.generic:
    """Return the value of a constant of one element.

    Examples
    --------
    >>> from mgb.ir import const_node
    >>> scalar(const_node([[2.5]], np.dtype("float32"))).item()
    2.5
    """
    value: np.generic = node.params["value"].reshape(())[()]
    return value


def c_literal(node: Node) -> str:
    """Return a scalar constant as an exact C expression of its own type, for ``table["const"]``.

    NaN and the infinities are written ``NAN`` and ``INFINITY`` (``math.h``); narrow floats as float.

    Examples
    --------
    >>> from mgb.ir import const_node
    >>> c_literal(const_node(0.5, np.dtype("float32"))), c_literal(const_node(-1, np.dtype("int64")))
    ('0x1.0000000000000p-1f', '(-1LL)')
    """
    return c_number(scalar(node), node.spec.dtype)


def c_number(value: Any, dtype: np.dtype[Any]) -> str:
    """Return `c_literal` of a number in `dtype`.

    Examples
    --------
    >>> c_number(1.5, np.dtype("float64")), c_number(7, np.dtype("uint8"))
    ('0x1.8000000000000p+0', '((uint8_t)7U)')
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return _c_integer(int(value), dtype)
    return _c_float(float(value), "" if dtype.itemsize == 8 else "f")


def _c_integer(value: int, dtype: np.dtype[Any]) -> str:
    suffix = ("U" if dtype.kind == "u" else "") + ("LL" if dtype.itemsize == 8 else "")
    text = f"{abs(value)}{suffix}"
    if value < 0:
        text = f"(-{text})" if value != np.iinfo(dtype).min else f"(-{abs(value) - 1}{suffix} - 1)"
    return f"(({C_TYPES[dtype.name]}){text})" if dtype.itemsize < 4 else text


def _c_float(value: float, suffix: str) -> str:
    if np.isnan(value):
        return f"(({'float' if suffix else 'double'})NAN)"
    sign = "-" if np.signbit(value) else ""
    if np.isinf(value):
        return f"(({'float' if suffix else 'double'}){sign}INFINITY)"
    return f"({value.hex()}{suffix})" if sign else f"{value.hex()}{suffix}"


def offset(index: str, shape: Sequence[int], strides: Sequence[int], divide: str = "/") -> str:
    """Return the offset of an operand at row-major index `index` of a loop nest of known `shape`.

    >>> offset("i", (2, 3, 4), (4, 0, 1))
    'i / 12 * 4 + i % 4'
    """
    terms, inner = [], 1
    for axis in reversed(range(len(shape))):
        if strides[axis]:
            place = index if inner == 1 else f"{index} {divide} {inner}"
            if axis > 0:
                place = f"{place} % {shape[axis]}" if inner == 1 else f"({place}) % {shape[axis]}"
            terms.append(place if strides[axis] == 1 else f"{_factor(place, axis)} * {strides[axis]}")
        inner *= shape[axis]
    return " + ".join(reversed(terms)) or "0"


def _factor(place: str, axis: int) -> str:
    return place if axis == 0 else f"({place})"
