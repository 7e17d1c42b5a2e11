"""Vectors whose bits are combined, which some releases of LLVM take for others when one of them is chosen.

LLVM 21 and 22 make one ``vpternlog`` of a choice between a vector and one with some of its bits, for
processors with AVX-512, and print a wrong table: github.com/llvm/llvm-project/issues/157929. An opaque value
between the two keeps them apart.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The operations on bits.
BITWISE = frozenset(("and", "or", "xor"))

#: The bits of elements that the instruction has masks for.
WIDTHS = ("32", "64")


def joins(a: str, b: str, operands: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether `a` combines bits of `b`.

    Parameters
    ----------
    a, b : str
    operands : mapping
        Those of the vectors that operations on bits and reinterpretations make.
    """
    return a not in (leaves := _leaves(a, operands, 6)) and not leaves.isdisjoint(_leaves(b, operands, 3))


def _leaves(value: str, operands: Mapping[str, tuple[str, ...]], depth: int) -> set[str]:
    given = operands.get(value, ()) if depth else ()
    return set[str]().union(*(_leaves(o, operands, depth - 1) for o in given)) or {value}
