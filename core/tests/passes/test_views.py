"""Which results of layout ops are views: NumPy says, by the addresses of what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, dtypes
from mgb.executor import Options, compile_program
from mgb.executor.remat.peak import memory_report
from mgb.executor.remat.timeline import timeline_of
from mgb.executor.views import view_strides
from mgb.ir import Graph, Node, Spec
from mgb.ops import layout
from mgb.tensor.tracing import graph_of

SHAPES = st.lists(st.integers(0, 4) | st.just(1), max_size=4).map(tuple)


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Layout ops, each of which reads the one before."""

    def body(x: Tensor) -> list[Tensor]:
        values = [x]
        for _ in range(draw(st.integers(1, 5))):
            values.append(_moved(draw, values[-1]))
        return values[1:]

    return graph_of(body, Spec(draw(SHAPES), dtypes.float32))


def _moved(draw: st.DrawFn, x: Tensor) -> Tensor:
    kind = draw(st.sampled_from(("reshape", "reshape", "transpose", "broadcast", "slice", "neg")))
    if kind == "reshape":
        return layout.reshape(x, shape=_other_shape(draw, x.shape))
    if kind == "transpose":
        return layout.transpose(x, axes=tuple(draw(st.permutations(range(x.ndim)))))
    if kind == "broadcast":
        longer = tuple(draw(st.integers(1, 3)) if d == 1 else d for d in x.shape)
        return layout.broadcast_to(x, shape=(*draw(st.sampled_from([(), (2,)])), *longer))
    if kind == "slice":
        ends = [(0, d, draw(st.integers(1, 3))) if draw(st.booleans()) else (d - 1, -1, -1) for d in x.shape]
        return layout.slice_(x, window=tuple(e if d else (0, 0, 1) for e, d in zip(ends, x.shape)))
    return -x


def _other_shape(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same number of elements in axes that are any divisors of it."""
    left, found = int(np.prod(shape)), []
    while left > 1:
        found.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= found[-1]
    return (*found, 0) if left == 0 else tuple(found)


@settings(max_examples=300)
@given(chains())
def test_views_match_numpy(graph: Graph) -> None:
    (x,) = graph.inputs
    arrays: dict[Node, Any] = {x: np.zeros(x.spec.shape, np.float32)}
    strides: dict[Node, Any] = {}
    for node in (n for n in graph.nodes if n.inputs):
        (operand,) = node.inputs
        assert node.op.eager is not None
        array = np.asarray(node.op.eager(arrays[operand], **node.params))
        found = view_strides(node, strides.get(operand))
        if found is None:
            assert not array.size or not np.shares_memory(array, arrays[operand])
            array = array.copy()
        elif array.size:  # of an empty array there are no addresses
            assert np.shares_memory(array, arrays[operand])
            steps = zip(found, array.strides, array.shape, strict=True)
            assert all(4 * step == there for step, there, length in steps if length > 1)
        arrays[node] = array
        if found is not None:
            strides[node] = found


def test_reshape_of_a_transposed_array_copies() -> None:
    """And so counted: a program that keeps it has twice the memory of one that keeps the view."""

    def body(x: Tensor, *, copies: bool) -> Tensor:
        y = layout.transpose(x * 2.0, axes=(1, 0))
        return layout.reshape(y, shape=(64 * 256,)) if copies else y

    report = {}
    for copies in (False, True):
        graph = graph_of(lambda x, c=copies: body(x, copies=c), Spec((64, 256), dtypes.float32))
        program = compile_program(graph, Options(0))
        line = timeline_of(program.steps, program.simplified)
        assert sum(line.nbytes) == (1 + copies) * 64 * 256 * 4
        report[copies] = memory_report(program)
        (out,) = program.run(np.ones((64, 256), np.float32))
        assert out.flags.c_contiguous == copies
    assert report[True].apart == 2 * report[False].apart
    assert report[True].peak == 2 * report[False].peak


@pytest.mark.parametrize("shape", [(64, 256), (256, 64), (64 * 256, 1)])
def test_reshape_without_copy_uses_no_extra_memory(shape: tuple[int, ...]) -> None:
    graph = graph_of(lambda x: layout.reshape(x * 2.0, shape=shape), Spec((64, 256), dtypes.float32))
    program = compile_program(graph, Options(0))
    assert sum(timeline_of(program.steps, program.simplified).nbytes) == 64 * 256 * 4
