"""Products of small matrices in machine code, for the turns of a loop: no library is called, no thread woken.

Blocks of `ROWS` rows and a few vectors of columns stay in registers while the inner axis is walked along;
what is left at the ends goes by narrower blocks. The terms of each sum are added in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from mgb.runtime import forking

from .native import emit
from .objects import Loaded
from .target import VECTORS, instructions

#: Rows of a block.
ROWS = 4

#: For each dtype LLVM's name of it and its bytes.
TYPES = {"float32": ("float", 4), "float64": ("double", 8)}

#: What a plan holds, in elements: rows, columns, the inner length, strides of `a`, `b` and the result. The
#: columns of the last two lie side by side.
PLAN = ("m", "n", "k", "a_row", "a_column", "b_row", "c_row")

_making = forking.lock()


@cache
def multiply(dtype: str) -> int:
    """Return the address of ``multiply(operands, plan)`` for a, b and the result of `dtype`."""
    with _making:
        return _library()[f"multiply_{dtype}"]


@cache
def _library() -> Any:
    widest = next((size for name, size in VECTORS.items() if name in instructions()), 16)
    text = "\n".join(_product(name, *TYPES[name], widest, 4 if widest == 64 else 2) for name in TYPES)
    library = Loaded(emit(text, 2))
    library.stay()
    return library


def _product(dtype: str, scalar: str, size: int, vector: int, vectors: int) -> str:
    lanes = vector // size
    shapes = [(f"<{lanes} x {scalar}>", vectors, lanes), (f"<{lanes} x {scalar}>", 1, lanes), (scalar, 1, 1)]
    blocks = [_block(dtype, scalar, size, rows, *shape) for shape in shapes for rows in (ROWS, 1)]
    widths = [count * width for _, count, width in shapes]
    return "\n".join([*blocks, _driver(dtype, size, widths)])


def _block(dtype: str, scalar: str, size: int, rows: int, kind: str, vectors: int, lanes: int) -> str:
    """Return the function for a block of `rows` and `vectors` of `kind`: its result in full."""
    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    zero = "zeroinitializer" if lanes > 1 else "0.0"
    lines = [
        f"define internal void @block_{dtype}_{rows}_{vectors * lanes}(ptr %a, ptr %b, ptr %c, i64 %k,"
        " i64 %a_row, i64 %a_column, i64 %b_row, i64 %c_row) noinline {",
        "entry:",
        *(f"  %first{r} = mul i64 %a_row, {r}" for r in range(rows)),
        "  br label %walk",
        "walk:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %body ]",
        "  %pa = phi ptr [ %a, %entry ], [ %pa_next, %body ]",
        "  %pb = phi ptr [ %b, %entry ], [ %pb_next, %body ]",
        *(f"  %s{r}_{v} = phi {kind} [ {zero}, %entry ], [ %t{r}_{v}, %body ]" for r, v in cells),
        "  %more = icmp slt i64 %i, %k",
        "  br i1 %more, label %body, label %end",
        "body:",
        *_loaded_columns(kind, scalar, size, vectors, lanes),
        *(line for r in range(rows) for line in _spread(kind, scalar, size, lanes, r)),
        *(
            f"  %p{r}_{v} = fmul contract {kind} %x{r}, %y{v}\n"
            f"  %t{r}_{v} = fadd contract {kind} %s{r}_{v}, %p{r}_{v}"
            for r, v in cells
        ),
        "  %next = add i64 %i, 1",
        f"  %pa_next = getelementptr {scalar}, ptr %pa, i64 %a_column",
        f"  %pb_next = getelementptr {scalar}, ptr %pb, i64 %b_row",
        "  br label %walk",
        "end:",
        *(
            f"  %row{r}_{v} = mul i64 %c_row, {r}\n  %to{r}_{v} = add i64 %row{r}_{v}, {v * lanes}\n"
            f"  %at{r}_{v} = getelementptr {scalar}, ptr %c, i64 %to{r}_{v}\n"
            f"  store {kind} %s{r}_{v}, ptr %at{r}_{v}, align {size}"
            for r, v in cells
        ),
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _loaded_columns(kind: str, scalar: str, size: int, vectors: int, lanes: int) -> Iterator[str]:
    for v in range(vectors):
        yield f"  %by{v} = getelementptr {scalar}, ptr %pb, i64 {v * lanes}"
        yield f"  %y{v} = load {kind}, ptr %by{v}, align {size}"


def _spread(kind: str, scalar: str, size: int, lanes: int, r: int) -> Iterator[str]:
    """Yield one element of a row, in all lanes."""
    yield f"  %from{r} = getelementptr {scalar}, ptr %pa, i64 %first{r}"
    if lanes == 1:
        yield f"  %x{r} = load {scalar}, ptr %from{r}, align {size}"
        return
    yield f"  %one{r} = load {scalar}, ptr %from{r}, align {size}"
    yield f"  %put{r} = insertelement {kind} poison, {scalar} %one{r}, i32 0"
    yield f"  %x{r} = shufflevector {kind} %put{r}, {kind} poison, <{lanes} x i32> zeroinitializer"


def _driver(dtype: str, size: int, widths: list[int]) -> str:
    """Return ``multiply``: for each width of blocks the columns that it takes, for each height the rows."""
    lines = [f"define void @multiply_{dtype}(ptr %operands, ptr %plan) {{", "start:"]
    for n, name in enumerate("abc"):
        lines += [
            f"  %at_{name} = getelementptr ptr, ptr %operands, i64 {n}",
            f"  %{name} = load ptr, ptr %at_{name}",
        ]
    for n, name in enumerate(PLAN):
        lines += [
            f"  %at_{name} = getelementptr i64, ptr %plan, i64 {n}",
            f"  %{name} = load i64, ptr %at_{name}",
        ]
    previous, column = "start", "0"
    for n, width in enumerate(widths):
        lines += [
            f"  br label %columns{n}",
            f"columns{n}:",
            f"  %j{n} = phi i64 [ {column}, %{previous} ], [ %j{n}_next, %rows{n}_end ]",
            f"  %j{n}_next = add i64 %j{n}, {width}",
            f"  %j{n}_more = icmp sle i64 %j{n}_next, %n",
            f"  br i1 %j{n}_more, label %rows{n}, label %columns{n}_end",
            f"rows{n}:",
            f"  %b{n}_far = mul i64 %j{n}, {size}",
            f"  %b{n} = getelementptr i8, ptr %b, i64 %b{n}_far",
        ]
        inside, row = f"rows{n}", "0"
        for height in (ROWS, 1):
            name = f"{n}_{height}"
            lines += [
                f"  br label %walk{name}",
                f"walk{name}:",
                f"  %i{name} = phi i64 [ {row}, %{inside} ], [ %i{name}_next, %block{name} ]",
                f"  %i{name}_next = add i64 %i{name}, {height}",
                f"  %i{name}_more = icmp sle i64 %i{name}_next, %m",
                f"  br i1 %i{name}_more, label %block{name}, label %walk{name}_end",
                f"block{name}:",
                f"  %a{name}_row = mul i64 %i{name}, %a_row",
                f"  %a{name}_far = mul i64 %a{name}_row, {size}",
                f"  %a{name} = getelementptr i8, ptr %a, i64 %a{name}_far",
                f"  %c{name}_row = mul i64 %i{name}, %c_row",
                f"  %c{name}_place = add i64 %c{name}_row, %j{n}",
                f"  %c{name}_far = mul i64 %c{name}_place, {size}",
                f"  %c{name} = getelementptr i8, ptr %c, i64 %c{name}_far",
                f"  call void @block_{dtype}_{height}_{width}(ptr %a{name}, ptr %b{n}, ptr %c{name}, i64 %k,"
                " i64 %a_row, i64 %a_column, i64 %b_row, i64 %c_row)",
                f"  br label %walk{name}",
                f"walk{name}_end:",
            ]
            inside, row = f"walk{name}_end", f"%i{name}"
        lines += [f"  br label %rows{n}_end", f"rows{n}_end:", f"  br label %columns{n}", f"columns{n}_end:"]
        previous, column = f"columns{n}_end", f"%j{n}"
    return "\n".join([*lines, "  ret void", "}"])


def plan_of(a: Any, b: Any, c: Any) -> Any:
    """Return the plan that `multiply` reads for these arrays."""
    strides = (a.strides[0], a.strides[1], b.strides[0], c.strides[0])
    return np.array([*c.shape, a.shape[1], *(s // a.itemsize for s in strides)], np.int64)
