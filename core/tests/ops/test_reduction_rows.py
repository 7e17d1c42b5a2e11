"""What rows say of reductions is true: against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb import codegen, dtypes
from mgb.ir import Kind, Op, Reduction, Spec
from mgb.ops.declare import OPS, op_of
from mgb.ops.primitives import bit_and
from mgb.tensor.apply import apply, evaluate
from mgb.tensor.tracing import graph_of

FOLDS = [op for op in OPS.values() if op.reduction is not None]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize("op", FOLDS, ids=lambda op: op.name)
def test_combining_from_the_identity_gives_the_reduction(op: Op, dtype: str) -> None:
    assert op.reduction is not None
    if dtype == "bool" and op.name in (
        "reduce_sum",
        "reduce_prod",
        "cumsum",
        "cumprod",
        "scatter_sum",
        "scatter_prod",
    ):
        return  # integers take part in them
    x = np.array([3, 0, 1, 5, 2], dtype)
    total, totals = np.array(op.reduction.identity(x.dtype), x.dtype), []
    for element in x:
        total = evaluate(op.reduction.combine, [total, element[None]], {}).reshape(())
        totals.append(total)
    if op.kind is Kind.SCAN:
        np.testing.assert_array_equal(evaluate(op, [x], {"axis": 0}), totals)
    elif op.kind is Kind.SCATTER:
        given = {"along": (None,), "shape": (2,)}
        nothing, found = evaluate(op, [x, np.full(5, 1, np.int32)], given)
        assert (nothing, found) == (op.reduction.identity(x.dtype), total)
    else:
        assert total == evaluate(op, [x], {"axis": (0,)})[0]
    assert op.reduction.accumulator(x.dtype).itemsize >= x.dtype.itemsize


def test_reductions_are_found_by_their_combining_op(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(codegen.reductions({"add", "maximum"})) == {"reduce_sum", "reduce_max"}
    row = Reduction(op_of(bit_and), lambda _dtype: -1, lambda dtype: dtype)

    def infer(x: Spec, axis: Any) -> Spec:
        return Spec((1,), x.dtype)

    op = Op("common_bits", Kind.REDUCE, infer, np.bitwise_and.reduce, reduction=row)
    monkeypatch.setitem(OPS, op.name, op)
    assert codegen.reductions({"bit_and"}) == ("common_bits",)
    (fold,) = graph_of(lambda x: apply(op, x, axis=(0,)), Spec((3,), dtypes.int32)).nodes
    assert (codegen.combine(fold), codegen.identity(fold)) == ("bit_and", -1)
