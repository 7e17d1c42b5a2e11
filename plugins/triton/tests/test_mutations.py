"""The interpreter finds wrong kernels: a wrong mask, an index off by one, a missing fold are each caught."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import lt, where
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_cuda.testing import mutations
from mgb_cuda.testing.mutations import columns, rows, tiers
from mgb_triton.testing.interpreter import missing
from triton_helpers import BENCH

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def online(x: Any) -> list[Any]:
    top = reduce_max(x, axis=(1,))
    return [reduce_sum(exp(x - top), axis=(1,)), top]


def row_sum(x: Any) -> Any:
    return reduce_sum(x * 2, axis=(0,))


def pieces(x: Any) -> Any:
    return where(lt(x, 0.75), x * 2 + 1, x)


#: What each row is multiplied by.
TABLE = np.linspace(1, 2, 100, dtype=np.float32)

#: What is run, on arrays of this shape, and on how many multiprocessors.
PROGRAMS: dict[str, mutations.Program] = {
    "rows": (rows, (5, 1000), 4),
    "short rows": (rows, (70, 50), 4),
    "rows that do not stay": (online, (6, 40_000), 1),
    "shared rows": (rows, (2, 21_000), 4),
    "columns": (columns, (65, 36), 4),
    "shared columns": (columns, (9000, 12), 4),
    "pieces": (pieces, (5003,), 4),
    "an odd row": (row_sum, (14_001,), 4),
    "a broadcast": (lambda x: x * TABLE + 1, (37, 100), 4),
}

#: What is changed, and into what; each place where the pattern stands is tried on its own.
MUTATIONS: dict[str, tuple[str, str]] = {
    "an element too many is stored": (r"(?<=inside = )(.*)at < end", r"\1at <= end"),
    "an element too few": (r"(?<=inside = )(.*)at < end", r"\1at + 1 < end"),
    "a row too many": (
        r"(row = .* \* (?!1 )\d+ \+ .*\n +live = .*)row < rows",
        r"\1row <= rows",
    ),
    "a row too few": (r"(?<=live = )(.*)row < rows", r"\1row + 1 < rows"),
    "an index off by one": (r"at = (\w+) \+ ", r"at = \1 + 1 + "),
    "a tile too long": (r"begin = (.*) \* (\d+)$", r"begin = \1 * (\2 + 1)"),
    "the last tile left out": (r"range\(last, end", "range(end, end"),
    "the last tile unmasked": (r"begin \+ (\d+) <= end", r"begin + \1 // 2 <= end"),
    "a step too long": (r"range\(begin, end, (\d+)\)", r"range(begin, end, \1 + 1)"),
    "a tile left out": (r"range\(begin, end", r"range(begin + 1, end - 1"),
    "a mask of folds left out": (r"tl\.where\(mask, (\w+), [^)]*\)[^)]*\)", r"\1"),
    "a removed step of a fold": (r"(a\d_\d) = \(\1 \+ (tl\.where.*)\)$", r"\1 = \2"),
    "a fold of lanes left out": (r"= tl\.reduce\((\w+), 1, fold_\w+, keep_dims=True\)", r"= \1"),
    "the wrong fold": (r"fold_maximum", "fold_minimum"),
    "a fold that starts wrong": (r"(tl\.full\(\[.*\]), 0, tl\.float32", r"\1, 1, tl.float32"),
    "a chunk left out": (r"range\(0, chunks, 128\)", "range(1, chunks, 128)"),
    "partial results beyond the last": (r"mask=live & \(part < chunks\)", "mask=live & (part < chunks - 1)"),
    "the wrong part": (r"part \* rows \+ row", "(part + 1) * rows + row"),
    "the wrong place of a part": (r"tl\.program_id\(1\)\.to\(tl\.int32\) \* rows", "0 * rows"),
    "the wrong row": (r"b(\d) = (.*)\bi0\b", r"b\1 = \2(i0 // 2)"),
    "a maximum of the wrong lane": (r"(settled_exponentials\(\w+, )a0_0", r"\1v1"),
    "a quotient too high": (r"i(\d) = (\w+) - q(\d)", r"i\1 = \2 + 1 - q\3"),
}


TIERS = tiers(PROGRAMS, quick=("rows", "columns", "pieces"))


class TestMutations(mutations.Mutations):
    bench = BENCH
    programs, mutations = PROGRAMS, MUTATIONS
    tables: ClassVar = {"program": TIERS, "mutation": MUTATIONS}
    raises = (Exception,)  # the interpreter raises what it likes
