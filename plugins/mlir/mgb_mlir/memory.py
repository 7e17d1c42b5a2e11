"""The functions that a kernel calls to reach memory, as MLIR text.

An address is an ``index``; `view` makes a memref of it. What copies memory is compiled once, in `mgb_native`.
"""

from __future__ import annotations

_DESCRIPTOR = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"

_VIEW = """
func.func private @view_{type}(%address: index) -> memref<?x{type}> {{
  %word = arith.index_cast %address : index to i64
  %pointer = llvm.inttoptr %word : i64 to !llvm.ptr
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %most = llvm.mlir.constant(4611686018427387904 : i64) : i64
  %d0 = llvm.mlir.poison : {descriptor}
  %d1 = llvm.insertvalue %pointer, %d0[0] : {descriptor}
  %d2 = llvm.insertvalue %pointer, %d1[1] : {descriptor}
  %d3 = llvm.insertvalue %zero, %d2[2] : {descriptor}
  %d4 = llvm.insertvalue %most, %d3[3, 0] : {descriptor}
  %d5 = llvm.insertvalue %one, %d4[4, 0] : {descriptor}
  %memory = builtin.unrealized_conversion_cast %d5 : {descriptor} to memref<?x{type}>
  return %memory : memref<?x{type}>
}}"""


def view(type_: str) -> str:
    """Return the function that makes a memref of elements of `type_` of an address."""
    return _VIEW.format(type=type_, descriptor=_DESCRIPTOR)


class Functions:
    """The functions that a kernel calls; a call is noted, `text` declares or defines them all."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def view(self, type_: str, address: str) -> str:
        """Return the call that gives the elements of `type_` at `address` as a memref."""
        self._known[f"view_{type_}"] = view(type_)
        return f"func.call @view_{type_}({address}) : (index) -> memref<?x{type_}>"

    def call(self, name: str, *operands: str) -> str:
        """Return the call of a function of `copies.c`, in `mgb_native`."""
        types = ", ".join(["index"] * len(operands))
        self._known[name] = f"func.func private @{name}({types})"
        return f"func.call @{name}({', '.join(operands)}) : ({types}) -> ()"

    def text(self) -> str:
        """Return the functions called so far."""
        return "\n".join(self._known.values())
