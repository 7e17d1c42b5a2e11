"""Choices between a vector and one with some of its bits; see `mgb_native.nest.bits`."""

from __future__ import annotations

import re

from mgb.ir import Graph
from mgb_native.nest.bits import BITWISE, WIDTHS, joins

_VALUE = r"%[\w.$\-]+|%\"[^\"]+\"|<[^>]*>|splat \([^)]*\)|\w+"
_TYPE = r"<\d+ x (?:i32|i64|float|double)>"
_RESULT, _A, _B = r"^  (?P<name>\S+)", rf"(?P<a>{_VALUE})", rf"(?P<b>{_VALUE})"
_BITS = re.compile(rf"{_RESULT} = (?:{'|'.join(sorted(BITWISE))})(?: disjoint)? {_TYPE} {_A}, {_B}")
_CAST = re.compile(rf"{_RESULT} = bitcast {_TYPE} {_A} to {_TYPE}")
_SHUFFLE = re.compile(rf"{_RESULT} = shufflevector {_TYPE} {_A}, {_TYPE} {_B}, ")
_HEAD = rf"^(?P<head>  \S+ = select <\d+ x i1> (?:{_VALUE}))"
_CHOICE = re.compile(rf"{_HEAD}, (?P<type>{_TYPE}) {_A}, {_TYPE} {_B}")
_ELEMENTS = {"i32": "float", "i64": "double"}


def combines(graph: Graph) -> bool:
    """Return whether a group combines bits."""
    names = {f"bit_{name}" for name in BITWISE}
    return any(v.op.name in names and v.spec.dtype.name[-2:] in WIDTHS for v in graph.nodes)


def apart(text: str) -> str:
    """Return LLVM's text of a pipeline in which such choices are of opaque values."""
    operands: dict[str, tuple[str, ...]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("define "):
            operands.clear()
        if found := _BITS.match(line) or _CAST.match(line) or _SHUFFLE.match(line):
            operands[found["name"]] = tuple(v for k, v in found.groupdict().items() if k != "name")
        elif found := _CHOICE.match(line):
            line = _choice(found, operands, lines)
        lines.append(line)
    return "\n".join(lines)


def _choice(found: re.Match[str], operands: dict[str, tuple[str, ...]], lines: list[str]) -> str:
    """Return the line of a choice; those that make its values opaque go to `lines`."""
    a, b, type_ = found["a"], found["b"], found["type"]
    chosen = [_opaque(x, type_, lines) if joins(x, other, operands) else x for x, other in ((a, b), (b, a))]
    return f"{found['head']}, {type_} {chosen[0]}, {type_} {chosen[1]}{found.string[found.end() :]}"


def _opaque(value: str, type_: str, lines: list[str]) -> str:
    count, element = type_.strip("<>").split(" x ")
    floats, name = _ELEMENTS.get(element, element), f"%opaque.{len(lines)}"
    whole = f"<{count} x {floats}>"
    suffix = f"v{count}f{32 if floats == 'float' else 64}"
    lines += [
        f"  {name}.a = bitcast {type_} {value} to {whole}",
        f"  {name}.b = call {whole} @llvm.arithmetic.fence.{suffix}({whole} {name}.a)",
        f"  {name} = bitcast {whole} {name}.b to {type_}",
    ]
    return name
