"""Fused multiply-add, which Halide has no word for in strict floating point.

A product that is to be fused is marked in the pipeline: its bits are shifted by a number that is 0 in every
call, which no simplifier knows. In LLVM's text of the compiled pipeline the marks are found, and a marked
product and the sum that reads it become ``llvm.fma``. What would not be found is computed as a product and a
sum: slower, and right.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgb.ir import CONST, Graph
from mgb_native.native import emit

from .toolchain import FEATURES, hl, host, target
from .words import Expr

_VALUE = r"(%[\w.$\-]+|%\"[^\"]+\")"
_TYPE = r"(<\d+ x (?:float|double)>|float|double)"
_OPERAND = r"(splat \([^)]*\)|<[^>]*>|[^\s,<]+)"
_PRODUCT = re.compile(rf"^  {_VALUE} = fmul {_TYPE} {_OPERAND}, {_OPERAND}$", re.M)
_BITS = re.compile(rf"^  {_VALUE} = bitcast {_TYPE} {_VALUE} to (?:<\d+ x i\d+>|i\d+)$", re.M)
_MARK = re.compile(rf"^  {_VALUE} = shl (?:<\d+ x i\d+>|i\d+) {_VALUE}, {_VALUE}$", re.M)
_BACK = re.compile(rf"^  {_VALUE} = bitcast (?:<\d+ x i\d+>|i\d+) {_VALUE} to {_TYPE}$", re.M)
_SUM = re.compile(rf"^  {_VALUE} = fadd {_TYPE} {_OPERAND}, {_OPERAND}$", re.M)


def fuses(graph: Graph) -> bool:
    """Whether a group has such words, the processor has them, and nothing in it could be taken for a mark."""
    alike = any(v.op.name == "shl" and v.inputs[1].op is not CONST for v in graph.nodes)
    return not alike and any(v.op.name == "fma" for v in graph.nodes) and "-fma" in host()


def marked(a: Expr, b: Expr, zero: Expr) -> Expr:
    """The product of two floats with a mark; `zero` is an integer of 32 bits."""
    product = a * b
    bits = hl.UInt(product.type().bits())
    mark = hl.cast(bits, hl.reinterpret(hl.UInt(32), zero))
    return hl.reinterpret(product.type(), hl.reinterpret(bits, product) << mark)


def fused_pipeline(outputs: Sequence[Any], arguments: Sequence[Any], name: str) -> bytes:
    """The object file of `outputs`, in which marked products and their sums are one."""
    with tempfile.TemporaryDirectory(prefix="mgb_halide_") as folder:
        text = Path(folder, "kernel.ll")
        kinds = {hl.OutputFileType.llvm_assembly: str(text)}
        hl.Pipeline(list(outputs)).compile_to(kinds, list(arguments), name, target(*FEATURES))
        return emit(contract(text.read_text()), level=2)


def contract(text: str) -> str:
    """LLVM's text with each marked product and the sums that read it as one.

    All or none: where a mark is not found again, the text is as it was, so that no element of an array is
    rounded otherwise than its neighbours.
    """
    types: set[str] = set()
    parts = re.split(r"^(?=define )", text, flags=re.M)
    made = [_function(part, types) for part in parts]
    if None in made:
        return text
    done = "".join(part for part in made if part)
    declared = "".join(f"declare {t} @{_name(t)}({t}, {t}, {t})\n" for t in sorted(types))
    return f"{done}\n{declared}"


def _function(text: str, types: set[str]) -> str | None:
    products = {m[1]: (m[3], m[4]) for m in _PRODUCT.finditer(text)}
    bits = {m[1]: products[m[3]] for m in _BITS.finditer(text) if m[3] in products}
    marks = {m[1]: bits[m[2]] for m in _MARK.finditer(text) if m[2] in bits}
    found = {m[1]: marks[m[2]] for m in _BACK.finditer(text) if m[2] in marks}

    def fused(m: re.Match[str]) -> str:
        name, type_, x, y = m.groups()
        pair, other = (found[x], y) if x in found else (found.get(y), x)
        if pair is None:
            return m[0]
        types.add(type_)
        operands = ", ".join(f"{type_} {v}" for v in (*pair, other))
        return f"  {name} = call {type_} @{_name(type_)}({operands})"

    done = _SUM.sub(fused, text)
    known = len(found) == sum(1 for _ in _MARK.finditer(text))
    return done if known and not any(x in found for m in _SUM.finditer(done) for x in (m[3], m[4])) else None


def _name(type_: str) -> str:
    """The intrinsic for ``<16 x float>`` or ``double``."""
    count = re.match(r"<(\d+)", type_)
    vector = f"v{count[1]}" if count else ""
    return f"llvm.fma.{vector}f{64 if 'double' in type_ else 32}"
