"""Fused multiply-add, which Halide has no word for in strict floating point.

A product that is to be fused is marked in the pipeline: its bits are shifted by a number that is 0 in every
call, which no simplifier knows. In LLVM's text of the compiled pipeline the marks are found, and a marked
product and the sum or difference that reads it become ``llvm.fma``. Where one is not found, all stay products
and sums: slower, and right to one more rounding; the log says why.

Nothing plainer is a mark. Flags of fast arithmetic on the pair alone are gone by then, for LLVM has made use
of them; the words that round, such as ``ceil``, cut long vectors in halves; others are calls for one lane.
"""

from __future__ import annotations

import logging
import re
from collections import Counter

from mgb.ir import CONST, Graph

from .toolchain import hl, host
from .words import Expr

_log = logging.getLogger("mgb.halide")

_VALUE = r"(%[\w.$\-]+|%\"[^\"]+\")"
_TYPE = r"(<\d+ x (?:float|double)>|float|double)"
_OPERAND = r"(splat \([^)]*\)|<[^>]*>|[^\s,<]+)"
_PRODUCT = re.compile(rf"^  {_VALUE} = fmul {_TYPE} {_OPERAND}, {_OPERAND}$", re.M)
_BITS = re.compile(rf"^  {_VALUE} = bitcast {_TYPE} {_VALUE} to (?:<\d+ x i\d+>|i\d+)$", re.M)
_MARK = re.compile(rf"^  {_VALUE} = shl (?:<\d+ x i\d+>|i\d+) {_VALUE}, {_VALUE}$", re.M)
_BACK = re.compile(rf"^  {_VALUE} = bitcast (?:<\d+ x i\d+>|i\d+) {_VALUE} to {_TYPE}$", re.M)
_SUM = re.compile(rf"^  {_VALUE} = (fadd|fsub) {_TYPE} {_OPERAND}, {_OPERAND}$", re.M)


def fuses(graph: Graph) -> bool:
    """Return whether a group has such ops, the processor has them, and nothing in it looks like a mark."""
    alike = any(v.op.name == "shl" and v.inputs[1].op is not CONST for v in graph.nodes)
    return not alike and any(v.op.name == "fma" for v in graph.nodes) and "-fma" in host()


def marked(a: Expr, b: Expr, zero: Expr) -> Expr:
    """Return the product of two floats with a mark; `zero` is an integer of 32 bits."""
    product = a * b
    bits = hl.UInt(product.type().bits())
    mark = hl.cast(bits, hl.reinterpret(hl.UInt(32), zero))
    return hl.reinterpret(product.type(), hl.reinterpret(bits, product) << mark)


def fused(text: str, must: bool = True) -> str:
    """Return LLVM's text of a compiled pipeline, in which marked products and their sums are one.

    Raises
    ------
    MarkLost
        They cannot be, and they `must`; otherwise the log says why.
    """
    try:
        return contract(text)
    except MarkLost as why:
        if must:
            raise
        _log.info("products and sums of a kernel stay apart, which is slower: %s", why)
        return text


class MarkLost(Exception):
    """A mark is not where it was put."""


def contract(text: str) -> str:
    """Return LLVM's text with each marked product and the sums and differences that read it as one.

    Raises
    ------
    MarkLost
        It cannot be done for all of them. Then it is to be done for none, so that no element of an array is
        rounded otherwise than its neighbours.
    """
    types: set[str] = set()
    done = "".join(_function(part, types) for part in re.split(r"^(?=define )", text, flags=re.M))
    declared = "".join(f"declare {t} @{_name(t)}({t}, {t}, {t})\n" for t in sorted(types))
    return f"{done}\n{declared}"


def _function(text: str, types: set[str]) -> str:
    found = _marked(text)

    def fused(m: re.Match[str]) -> str:
        name, op, type_, x, y = m.groups()
        first = x in found
        if not first and y not in found:
            return m[0]
        (a, b), c = (found[x], y) if first else (found[y], x)
        lines = []
        if op == "fsub":
            minus = f"%mgb.minus.{m.start()}"
            lines = [f"  {minus} = fneg {type_} {c if first else a}"]
            a, c = (a, minus) if first else (minus, c)
        types.add(type_)
        operands = ", ".join(f"{type_} {v}" for v in (a, b, c))
        return "\n".join([*lines, f"  {name} = call {type_} @{_name(type_)}({operands})"])

    done = _SUM.sub(fused, text)
    left = Counter(re.findall(_VALUE, done))
    if others := sum(left[value] > 1 for value in found):
        raise MarkLost(f"{others} of {len(found)} products are read by other than sums")
    return done


def _marked(text: str) -> dict[str, tuple[str, str]]:
    """Return the factors of each marked product of a function."""
    products = {m[1]: (m[3], m[4]) for m in _PRODUCT.finditer(text)}
    bits = {m[1]: products[m[3]] for m in _BITS.finditer(text) if m[3] in products}
    shifts = {m[1]: m[2] for m in _MARK.finditer(text)}
    marks = {value: bits[shifted] for value, shifted in shifts.items() if shifted in bits}
    found = {m[1]: marks[m[2]] for m in _BACK.finditer(text) if m[2] in marks}
    if len(found) < len(shifts):
        raise MarkLost(f"{len(shifts) - len(found)} of {len(shifts)} marks are on no product")
    return found


def _name(type_: str) -> str:
    """Return the intrinsic for ``<16 x float>`` or ``double``."""
    count = re.match(r"<(\d+)", type_)
    vector = f"v{count[1]}" if count else ""
    return f"llvm.fma.{vector}f{64 if 'double' in type_ else 32}"
