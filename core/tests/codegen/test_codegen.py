"""Help for backends that print: each part against NumPy, or against running what it says."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb.codegen import (
    C_TYPES,
    broadcast_strides,
    c_literal,
    collapse,
    domain,
    expression,
    offset,
    reduced_axes,
    row_major,
    schedule,
    statements,
    structure_key,
)
from mgb.errors import GraphError
from mgb.ir import Graph, Kind, Spec, const_node
from mgb.ops import primitives as ops
from mgb.ops.reduce import extent, reduce_max, reduce_sum
from mgb.tensor.tracing import graph_of

F4 = np.dtype("f4")


def spec(*shape: int, dtype: Any = F4) -> Spec:
    return Spec(shape, np.dtype(dtype))


def softmax(x: Any) -> Any:
    d = x - reduce_max(x, axis=(1,))
    e = (d * d + 1.0) * d * d
    return e / reduce_sum(e, axis=(1,))


def normalized(x: Any, w: Any) -> Any:
    n = extent(x, axis=(1,))
    mean = reduce_sum(x, axis=(1,)) / n
    d = x - mean
    return d / ops.sqrt(reduce_sum(d * d, axis=(1,)) / n) * w, mean


# domain and key


def test_domain_is_the_broadcast_of_all_shapes() -> None:
    graph = graph_of(lambda a, b: a * b + 1.0, spec(4, 1, 3), spec(5, 1))
    assert domain(graph) == (4, 5, 3)
    assert reduced_axes(graph) == ()


def test_reduced_axes_are_those_of_the_domain() -> None:
    assert reduced_axes(graph_of(lambda x: reduce_sum(x * 2.0, axis=(0, 2)), spec(2, 3, 4))) == (0, 2)
    graph = graph_of(lambda x, y: reduce_sum(x, axis=(0,)) + y, spec(3, 4), spec(2, 1, 4))
    with pytest.raises(GraphError, match="broadcast"):
        domain(Graph(graph.inputs, (*graph.outputs, graph_of(lambda x: x, spec(7, 7)).outputs[0])))
    assert reduced_axes(graph_of(lambda x: reduce_sum(x, axis=(0,)), spec(1, 4))) == ()


def test_reductions_over_different_axes_are_rejected() -> None:
    graph = graph_of(lambda x: reduce_sum(x, axis=(0,)) + reduce_sum(x, axis=(1,)), spec(3, 4))
    with pytest.raises(GraphError, match="different axes"):
        reduced_axes(graph)


def test_value_broadcast_along_some_reduced_axes_is_rejected() -> None:
    graph = graph_of(
        lambda x, y: reduce_sum(x, axis=(0, 1)) + reduce_sum(y, axis=(0, 1)), spec(3, 4), spec(3, 1)
    )
    with pytest.raises(GraphError, match="broadcast along"):
        reduced_axes(graph)


def key(function: Any, *specs: Spec) -> str:
    return structure_key(graph_of(function, *specs))


def test_structure_key_ignores_only_sizes() -> None:
    base = key(lambda a, b: a * b + 1.0, spec(4, 5), spec(5))
    assert base == key(lambda a, b: a * b + 1.0, spec(64, 3), spec(3))
    different = [
        key(lambda a, b: a * b + 1.0, spec(1, 5), spec(5)),
        key(lambda a, b: a * b + 1.0, spec(4, 5), spec(1)),
        key(lambda a, b: a * b + 1.0, spec(4, 5), spec(4, 5)),
        key(lambda a, b: a * b + 2.0, spec(4, 5), spec(5)),
        key(lambda a, b: a * b - 1.0, spec(4, 5), spec(5)),
        key(lambda a, b: a + b * 1.0, spec(4, 5), spec(5)),
        key(lambda a, b: a * b + 1.0, spec(4, 5, dtype="f8"), spec(5, dtype="f8")),
        key(lambda a, b: (a * b + 1.0, a), spec(4, 5), spec(5)),
        key(lambda b, a: a * b + 1.0, spec(5), spec(4, 5)),
    ]
    assert base not in different
    assert len(set(different)) == len(different)


def test_structure_key_includes_the_reduced_axes() -> None:
    keys = {key(lambda x, a=a: reduce_sum(x, axis=a), spec(3, 4)) for a in ((0,), (1,), (0, 1))}
    assert len(keys) == 3


def test_structure_key_includes_sizes_that_no_array_has() -> None:
    def count(n: int) -> str:
        return key(lambda x: x + reduce_max(ops.iota(shape=(n,), dtype=F4), axis=(0,)), spec(1))

    def added(n: int) -> str:
        return key(lambda x: x + ops.iota(shape=(n,), dtype=F4), spec(n))

    assert count(3) != count(4)
    assert added(3) == added(4)


# loops


@st.composite
def strided(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any], tuple[int, ...]]:
    """(domain, views that broadcast to it, reduced axes)."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    views = []
    for _ in range(draw(st.integers(1, 3))):
        axes = draw(st.permutations(range(len(shape))))
        own = tuple(d if draw(st.booleans()) else 1 for d in shape)
        base = np.arange(max(1, int(np.prod(own)))).reshape([own[a] for a in axes])
        view = base.transpose(np.argsort(axes)) if own else base.reshape(())
        flips = tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in own)
        views.append(view[flips])
    reduced = tuple(a for a in range(len(shape)) if draw(st.booleans()))
    return shape, views, reduced


@given(strided())
def test_collapsed_loops_visit_the_same_elements_in_the_same_order(case: Any) -> None:
    shape, views, reduced = case
    strides = [broadcast_strides(v.shape, tuple(s // v.itemsize for s in v.strides), shape) for v in views]
    loops = collapse(shape, strides, reduced)
    for view, steps in zip(views, loops.strides, strict=True):
        first = view[(0,) * view.ndim]
        visited = [
            first + sum(i * s for i, s in zip(place, steps, strict=True))
            for place in itertools.product(*map(range, loops.shape))
        ]
        assert visited == np.broadcast_to(view, shape).ravel().tolist()
        text = offset("i", loops.shape, steps, "//")
        assert [first + eval(text, {"i": i}) for i in range(len(visited))] == visited
    assert all(d > 1 for d in loops.shape)


def test_contiguous_axes_collapse_and_reduced_axes_stay_separate() -> None:
    steps = row_major((2, 3, 4))
    assert collapse((2, 3, 4), [steps, steps]).shape == (24,)
    loops = collapse((2, 3, 4), [steps], reduced=(1, 2))
    assert (loops.shape, loops.folded) == ((2, 12), (False, True))
    assert collapse((2, 3, 4), [steps, (0, 0, 1)]).shape == (6, 4)


# statements

TABLE = {
    "add": "({0} + {1})",
    "mul": "({0} * {1})",
    "lt": "({0} < {1})",
    "where": "({0} ? {1} : {2})",
    "cast": lambda node, x: f"({C_TYPES[node.spec.dtype.name]}){x}",
    "const": c_literal,
}


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc")


def compiled(folder: Path, source: str) -> ctypes.CDLL:
    """A shared library of C `source`."""
    (folder / "kernel.c").write_text(
        "#include <stdint.h>\n#include <stdbool.h>\n#include <math.h>\n" + source
    )
    command = ["cc", "-shared", "-fPIC", "-fwrapv", "-o", str(folder / "kernel.so"), str(folder / "kernel.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


@needs_compiler
def test_statements_are_c_code_that_computes_the_graph(tmp_path: Path) -> None:
    graph = graph_of(lambda a, b: ops.where(ops.lt(a, b), a * 0.1 + b, 1e-3), spec(8), spec(8))
    names = {graph.inputs[0]: "a[i]", graph.inputs[1]: "b[i]"}
    lines = statements(
        graph.nodes, names, TABLE, lambda n, name, text: f"{C_TYPES[n.spec.dtype.name]} {name} = {text};"
    )
    body = "\n".join([*lines, f"out[i] = {names[graph.outputs[0]]};"])
    library = compiled(
        tmp_path,
        f"void run(float *a, float *b, float *out) {{ for (int i = 0; i < 8; i++) {{ {body} }} }}",
    )
    a, b = np.random.default_rng(0).standard_normal((2, 8)).astype(F4)
    out = np.empty(8, F4)
    library.run(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, out)))
    np.testing.assert_array_equal(out, np.where(a < b, a * F4.type(0.1) + b, F4.type(1e-3)))


def test_op_missing_from_the_table_is_reported() -> None:
    graph = graph_of(lambda a: ops.floor(a), spec(2))
    with pytest.raises(KeyError, match="floor"):
        expression(graph.outputs[0], ["a"], TABLE)


@needs_compiler
def test_literals_are_exact_in_their_own_type(tmp_path: Path) -> None:
    cases: list[tuple[str, Any]] = [("bool", True), ("bool", False)]
    for name in C_TYPES:
        if name.startswith(("int", "uint")):
            cases += [(name, v) for v in (np.iinfo(name).min, np.iinfo(name).max, 7)]
    for name in ("float32", "float64"):
        info = np.finfo(name)
        cases += [(name, v) for v in (0.1, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.eps)]
    functions = [
        f"{C_TYPES[d]} f{i}(void) {{ _Static_assert(sizeof({text}) == {max(np.dtype(d).itemsize, 1)}"
        f' || {int(d == "bool")}, "width"); return {text}; }}'
        for i, (d, v) in enumerate(cases)
        for text in [c_literal(const_node(v, np.dtype(d)))]
    ]
    library = compiled(tmp_path, "\n".join(functions))
    for i, (dtype, value) in enumerate(cases):
        function = library[f"f{i}"]
        function.restype = np.ctypeslib.as_ctypes_type(np.dtype(dtype))
        want, got = np.array(value, dtype), np.array(function(), dtype)
        np.testing.assert_array_equal(got, want)
        if dtype.startswith("float"):
            assert np.signbit(got) == np.signbit(want) or np.isnan(want)


# passes


def played(graph: Graph, *arrays: Any) -> list[Any]:
    """Run a schedule with NumPy as it tells a printer to, on whole arrays at once."""
    plan = schedule(graph)
    known = dict(zip(graph.inputs, arrays, strict=True))

    def evaluate(node: Any) -> None:
        if node.op.kind is Kind.LEAF:
            value = node.params["value"] if "value" in node.params else node.op.eager(**node.params)
        elif node.op.name == "extent":
            full = np.broadcast_to(0, plan.shape)
            value = np.array(np.prod([full.shape[a] for a in plan.reduced]), node.spec.dtype)
        else:
            value = node.op.eager(*(known[i] for i in node.inputs), **node.params)
        known[node] = value

    for node in (*plan.row_reads, *plan.before):
        if node not in known:
            evaluate(node)
    written = {}
    kept = {}
    for part in plan.passes:
        scope = set(part.reads) | set(part.restores) | set(part.computes)
        for node in part.restores:
            known[node] = kept[node]
        for node in (*part.reads, *part.computes):
            if node not in known:
                evaluate(node)
        for fold in part.folds:
            assert fold.inputs[0] in scope
            evaluate(fold)
        for node in part.stores:
            assert node in scope
            written[node] = known[node]
        kept |= {node: known[node] for node in part.keeps}
        for node in (*part.reads, *part.restores, *part.computes):  # the loop is over: its values are gone
            if node not in graph.inputs:
                del known[node]
        for node in part.after:
            evaluate(node)
    written |= {node: known[node] for node in plan.row_stores}
    return [written[o] for o in graph.outputs]


def test_softmax_has_three_passes_and_stores_the_costly_value() -> None:
    graph = graph_of(softmax, spec(6, 8))
    plan = schedule(graph)
    assert [len(p.folds) for p in plan.passes] == [1, 1, 0]
    assert [len(p.keeps) for p in plan.passes] == [0, 1, 0]
    assert plan.passes[2].restores == plan.passes[1].keeps
    assert plan.passes[2].reads == ()
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(F4)
    d = x - x.max(1, keepdims=True)
    e = (d * d + 1) * d * d
    np.testing.assert_allclose(played(graph, x)[0], e / e.sum(1, keepdims=True), rtol=1e-5)


def test_cheap_value_is_recomputed() -> None:
    graph = graph_of(normalized, spec(6, 8), spec(8))
    plan = schedule(graph)
    assert [len(p.keeps) for p in plan.passes] == [0, 0, 0]
    assert len(plan.passes[2].computes) == 3
    assert [len(p.keeps) for p in schedule(graph, keep_ops=1).passes] == [0, 1, 0]
    x, w = np.random.default_rng(0).standard_normal((6, 8)), np.arange(8.0)
    y, mean = played(graph, x.astype(F4), w.astype(F4))
    np.testing.assert_allclose(y, (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * w, rtol=1e-4)
    np.testing.assert_allclose(mean, x.mean(1, keepdims=True), rtol=1e-4)


def test_group_without_reductions_has_one_pass() -> None:
    graph = graph_of(lambda a, b: (a + b, a * 2.0), spec(3, 4), spec(4))
    plan = schedule(graph)
    assert len(plan.passes) == 1 and not plan.before and not plan.row_stores
    assert plan.passes[0].stores == graph.outputs
    a, b = np.ones((3, 4), F4), np.arange(4, dtype=F4)
    np.testing.assert_array_equal(played(graph, a, b)[0], a + b)


def test_extent_does_not_compute_its_operand() -> None:
    graph = graph_of(lambda x: reduce_sum(x, axis=(1,)) / extent(x * 3.0, axis=(1,)), spec(3, 4))
    (part,) = schedule(graph).passes
    assert part.computes == ()
    np.testing.assert_array_equal(played(graph, np.ones((3, 4), F4))[0], np.ones((3, 1)))
