"""The dialect ``mgb``: a fused group as the core hands it over, one operation for each node.

Operations work on whole tensors and broadcast like NumPy. `irdl` describes the dialect in MLIR's own language
for that, so that the toolchain can read, check and print modules of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from mgb.ir import CONST, Graph, Kind, Node
from mgb_native.nest.words import REDUCTIONS, SCANS


@dataclass(frozen=True, slots=True)
class Definition:
    """An operation of the dialect.

    Attributes
    ----------
    operands : int
    rule : str
        How the dtypes belong together: ``"same"`` for all, ``"compare"`` for equal operands and a bool,
        ``"select"`` for a bool and two of the result's, ``"bits"`` for equal widths, ``"any"``.
    attributes : tuple of str
    """

    operands: int
    rule: str = "same"
    attributes: tuple[str, ...] = ()


def _all(names: str, definition: Definition) -> dict[str, Definition]:
    return dict.fromkeys(names.split(), definition)


OPS: dict[str, Definition] = {
    **_all("add sub mul div quotient fmod_float fmod_double maximum minimum", Definition(2)),
    **_all("logical_and logical_or bit_and bit_or bit_xor shl shr mulhi", Definition(2)),
    **_all("neg logical_not floor round sqrt", Definition(1)),
    **_all("lt le eq", Definition(2, "compare")),
    **dict.fromkeys((*REDUCTIONS, *SCANS), Definition(1, "same", ("axis",))),
    "fma": Definition(3),
    "where": Definition(3, "select"),
    "unlikely": Definition(3, "select"),
    "cast": Definition(1, "any"),
    "bitcast": Definition(1, "bits"),
    "extent": Definition(1, "any", ("axis",)),
    "iota": Definition(0, "any"),
    "const": Definition(0, "any", ("value",)),
}


class DialectError(Exception):
    """A graph that is none of the dialect: the traits of the backend claim what it cannot take."""


def verify(graph: Graph) -> None:
    """Check every node.

    Raises
    ------
    DialectError
        There is no such operation, or its operands do not fit it. The message names the node.
    """
    for node in graph.nodes:
        definition = OPS.get(node.op.name)
        if definition is None:
            raise DialectError(f"{node}: the dialect has no operation mgb.{node.op.name}")
        if len(node.inputs) != definition.operands:
            raise DialectError(f"{node}: mgb.{node.op.name} takes {definition.operands} operands")
        if not _fits(node, definition.rule):
            dtypes = ", ".join(v.spec.dtype.name for v in node.inputs)
            raise DialectError(f"{node}: mgb.{node.op.name} does not take {dtypes} to {node.spec.dtype.name}")
        if _shape(node) != node.spec.shape:
            raise DialectError(
                f"{node}: the result has shape {node.spec.shape}, its operands give {_shape(node)}"
            )


def _fits(node: Node, rule: str) -> bool:
    operands, result = [v.spec.dtype for v in node.inputs], node.spec.dtype
    return {
        "same": all(d == result for d in operands),
        "compare": len(set(operands)) == 1 and result == np.bool_,
        "select": operands[:1] == [np.dtype(np.bool_)] and all(d == result for d in operands[1:]),
        "bits": all(d.itemsize == result.itemsize for d in operands),
        "any": True,
    }[rule]


def _shape(node: Node) -> tuple[int, ...]:
    if not node.inputs:
        return node.spec.shape
    shape = np.broadcast_shapes(*(v.spec.shape for v in node.inputs))
    if node.op.kind is Kind.REDUCE:
        return tuple(1 if a in node.params["axis"] else d for a, d in enumerate(shape))
    return shape


def irdl() -> str:
    """The dialect in IRDL: names, numbers of operands and results, attributes."""
    lines = ["module {", "  irdl.dialect @mgb {"]
    for name, definition in OPS.items():
        lines.append(f"    irdl.operation @{name} {{")
        lines.append('      %tensor = irdl.base "!builtin.tensor"')
        operands = ", ".join(f"{letter}: %t{letter}" for letter in "abc"[: definition.operands])
        lines += [
            f'      %t{letter} = irdl.base "!builtin.tensor"' for letter in "abc"[: definition.operands]
        ]
        if definition.attributes:
            lines.append("      %attribute = irdl.any")
            named = ", ".join(f'"{a}" = %attribute' for a in definition.attributes)
            lines.append(f"      irdl.attributes {{{named}}}")
        lines += [f"      irdl.operands({operands})"] if operands else []
        lines += ["      irdl.results(y: %tensor)", "    }"]
    return "\n".join([*lines, "  }", "}", ""])


# printing


def tensor(node: Node) -> str:
    """The type of a value; unsigned integers are ``ui``."""
    return f"tensor<{''.join(f'{d}x' for d in node.spec.shape)}{_ELEMENTS[node.spec.dtype.name]}>"


_ELEMENTS = {"bool": "i1", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"} | {
    f"{sign}int{bits}": f"{sign}i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def text(graph: Graph) -> str:
    """The graph as a module of the dialect.

    Raises
    ------
    DialectError
        See `verify`.
    """
    verify(graph)
    names = {v: f"%x{i}" for i, v in enumerate(graph.inputs)}
    arguments = ", ".join(f"{name}: {tensor(v)}" for v, name in names.items())
    lines = []
    for node in graph.nodes:
        if node in names:
            continue
        names[node] = f"%{len(names)}"
        operands = ", ".join(names[v] for v in node.inputs)
        types = ", ".join(tensor(v) for v in node.inputs)
        attributes = ", ".join(_attributes(node))
        given = f" {{{attributes}}}" if attributes else ""
        lines.append(
            f'    {names[node]} = "mgb.{node.op.name}"({operands}){given} : ({types}) -> {tensor(node)}'
        )
    outputs = ", ".join(names[o] for o in graph.outputs)
    types = ", ".join(tensor(o) for o in graph.outputs)
    head = f"  func.func @group({arguments}) -> ({types}) {{"
    return "\n".join(["module {", head, *lines, f"    return {outputs} : {types}", "  }", "}", ""])


def _attributes(node: Node) -> Iterable[str]:
    for name in OPS[node.op.name].attributes:
        if node.op is CONST:
            yield f"value = {_dense(node)}"
        else:
            given = node.params[name]
            axes = ", ".join(map(str, given if isinstance(given, tuple) else (given,)))
            yield f"{name} = array<i64{': ' if axes else ''}{axes}>"


def _dense(node: Node) -> str:
    value, type_ = np.ascontiguousarray(node.params["value"]), tensor(node)
    if value.dtype.kind == "b":
        return f"dense<{str(value.tolist()).lower()}> : {type_}"
    if value.dtype.kind in "iu" and value.size == 1:
        return f"dense<{value.item()}> : {type_}"
    return f'dense<"0x{value.tobytes().hex().upper()}"> : {type_}'
