"""What a composite op is declared with says what its body makes, so that nothing else need look into that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from mgb import dtypes, tensor
from mgb.errors import ConversionError, GraphError
from mgb.ir import Kind, Op, Spec
from mgb.jit import trace
from mgb.ops import elementwise
from mgb.ops.declare import FLOATING, OPS, arity, composite, op_of
from mgb.passes.decompose import decompose
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

COMPOSITES = [op for op in OPS.values() if op.body is not None and op.kind is Kind.ELEMENTWISE]


def operands(op: Op) -> Iterator[tuple[Any, ...]]:
    """What the op may be given: all pairs of dtypes, and all alike where it takes more."""
    count = arity(op)
    pairs = itertools.product(dtypes.DTYPES, repeat=count)
    return pairs if count < 3 else ((dtype,) * count for dtype in dtypes.DTYPES)


@pytest.mark.parametrize("op", COMPOSITES, ids=lambda op: op.name)
def test_declared_dtype_matches_the_body(op: Op) -> None:
    seen = set()
    assert op.promote is not None
    for given in operands(op):
        try:
            promoted = tuple(op.promote(list(given)))
        except ConversionError:
            continue
        if not promoted or promoted in seen:  # none: integers whose signs differ are brought together first
            continue
        seen.add(promoted)
        specs = [Spec((), dtype) for dtype in promoted]
        (made,) = graph_of(lambda *xs: op.body(*xs), *specs).outputs  # type: ignore[misc]
        assert op.infer(*specs).dtype == made.spec.dtype, promoted
    assert seen


@contextmanager
def declared(body: Any) -> Iterator[Any]:
    """An op of this body that is there for a while."""
    function = composite(FLOATING)(body)
    try:
        yield function
    finally:
        del OPS[op_of(function).name]


def test_recording_an_op_does_not_run_its_body() -> None:
    runs = []

    def counted(x: Tensor, *, by: float = 2.0) -> Tensor:
        runs.append(1)
        return x * by

    with declared(counted) as function:
        trace(lambda x: function(x, by=3.0), record_only=True)(tensor([1.0, 2.0]))
        assert not runs
        traced = trace(lambda x: function(x, by=3.0), backend="eager")
        for _ in range(3):
            np.testing.assert_array_equal(traced(tensor([1.0, 2.0])).numpy(), [3.0, 6.0])


def test_invalid_calls_are_rejected_when_recorded() -> None:
    def scaled(x: Tensor, *, by: float) -> Tensor:
        return x * by

    x = tensor([1.0])
    with declared(scaled) as function:
        for call, text in (
            (lambda x: function(x, by=2.0, to=3.0), "'to'"),
            (lambda x: function(x), "'by'"),
            (lambda x: function(x, x, by=2.0), "positional"),
        ):
            with pytest.raises(TypeError, match=text):
                trace(call, record_only=True)(x)
    for dtype in ("int64", "bool"):
        operand = tensor([1], dtype=dtype)
        with pytest.raises(ConversionError, match="rmulh: needs integers of at most 32 bits"):
            trace(elementwise.rmulh, record_only=True)(operand, operand)


def test_body_of_undeclared_dtype_is_rejected_when_decomposed() -> None:
    def is_positive(x: Tensor) -> Tensor:
        return x > 0

    with declared(is_positive) as function:
        graph = graph_of(function, Spec((3,), dtypes.float32))
        with pytest.raises(GraphError, match="body makes bool: declare 'is_positive' with that result"):
            decompose(graph, frozenset())
