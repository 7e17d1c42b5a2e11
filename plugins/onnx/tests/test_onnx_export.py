"""Every op, written to ONNX and run in ONNX Runtime, gives what it gives here."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import onnx
import op_samples as samples
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from mgb import dtypes
from mgb.errors import UnsupportedError
from mgb.ir import Graph, Kind, Op, Spec
from mgb.ops.declare import OPS
from mgb.ops.images import attention  # noqa: F401 - declares its ops
from mgb.storage.model_file import Style
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of
from mgb_onnx.export import model_of
from mgb_onnx.export_words import WORDS
from mgb_onnx.functions import SPELLINGS
from onnx.reference import ReferenceEvaluator
from onnx_runtime import run_model

#: ONNX has no linear algebra, no arithmetic of complex numbers, nor a search in what is in order.
WRITTEN = [
    n
    for n in samples.ALONE
    if n not in {*samples.MATRICES, *samples.COMPLEX, "searchsorted", *samples.OF_KERNELS}
]

DEFAULT = (dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.uint8, dtypes.bfloat16)
OTHERS = tuple(d for d in dtypes.DTYPES if d not in DEFAULT)


def check(name: str, dtype: np.dtype[Any]) -> None:
    """Compare one op on one dtype, where it takes it."""
    for graph, arrays in samples.cases(OPS[name], dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whole numbers at their limits overflow on purpose
            (want,) = run(graph, arrays)
        model = model_of(graph, [f"x{n}" for n in range(len(arrays))], ["y"], Style(), name)
        (got,) = run_model(model, *arrays)
        samples.assert_close(got, want, f"{name} on {dtype}")


@pytest.mark.parametrize("name", WRITTEN)
def test_op_matches_in_onnx_runtime(name: str) -> None:
    for dtype in DEFAULT:
        check(name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", OTHERS, ids=str)
@pytest.mark.parametrize("name", WRITTEN)
def test_op_matches_in_onnx_runtime_on_other_dtypes(name: str, dtype: np.dtype[Any]) -> None:
    check(name, dtype)


CALLS_INSIDE: dict[str, tuple[Any, Any]] = {
    "shift": (lambda x, y: x << y, np.left_shift),
    "power": (lambda x, y: x**y, np.power),
}


@pytest.mark.parametrize("name", CALLS_INSIDE)
def test_functions_precede_their_callers(name: str) -> None:
    """ONNX's own reference knows of a function only what was written before it."""
    function, truth = CALLS_INSIDE[name]
    arrays = np.array([1, 2, 3, 5], np.int32), np.array([0, 3, 2, 1], np.int32)
    graph = graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays))
    model = model_of(graph, ["x", "y"], ["z"], Style(), name)
    called = [{node.op_type for node in f.node if node.domain} for f in model.functions]
    assert any(called), "the sample has no function that calls another one"
    seen: set[str] = set()
    for f, names in zip(model.functions, called, strict=True):
        assert names <= seen
        seen.add(f.name)
    (got,) = ReferenceEvaluator(model).run(None, dict(zip("xy", arrays)))
    np.testing.assert_array_equal(got, truth(*arrays))


def test_every_op_has_a_sample() -> None:
    missing = [
        o.name
        for o in (OPS[name] for name in samples.ALONE)
        if o.kind is not Kind.ELEMENTWISE and o.name not in samples.SHAPED
    ]
    assert not missing, f"add {missing} to SHAPED in op_samples.py"


def test_operator_tables_name_only_existing_ops() -> None:
    of_files = {"file_quotient", "file_remainder", "conv_bias"}
    assert set(WORDS) - of_files <= set(OPS)
    assert set(SPELLINGS) <= set(OPS)


@pytest.mark.parametrize("name", ["log1p", "conv2d", "index_set", "argmax", "mod"])
def test_models_pass_the_checker(name: str) -> None:
    """With type and shape inference, functions included."""
    for dtype in (dtypes.float32, dtypes.int64):
        for graph, arrays in samples.cases(OPS[name], dtype):
            inputs = [f"x{n}" for n in range(len(arrays))]
            onnx.checker.check_model(model_of(graph, inputs, ["y"], Style(), name), full_check=True)


# numbers at the edges

EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 3e38, 0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    "name", ["add", "maximum", "minimum", "relu", "sigmoid", "exp", "log", "round", "sign", "abs", "log1p",
             "expm1", "exp2", "floor", "clip", "where", "isnan", "isinf", "isfinite", "lt", "eq", "logaddexp",
             "mod", "fmod", "floor_div", "copysign", "hypot", "tanh", "sqrt", "cbrt", "softplus", "erf"],
)  # fmt: skip
def test_nan_and_infinity_match_in_onnx_runtime(name: str) -> None:
    op = OPS[name]
    arity = samples.arity(op)
    grid = np.meshgrid(*[EDGES.astype(np.float32)] * min(arity, 2), indexing="ij")
    arrays = [grid[n % len(grid)].copy() for n in range(arity)]
    graph = graph_of(lambda *xs: apply(op, *xs), *(Spec(a.shape, a.dtype) for a in arrays))
    with np.errstate(all="ignore"):
        (want,) = run(graph, arrays)
    (got,) = run_model(model_of(graph, [f"x{n}" for n in range(arity)], ["y"], Style(), name), *arrays)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-37, err_msg=name)


@pytest.mark.parametrize("dtype", dtypes.SIGNED, ids=str)
@pytest.mark.parametrize("name", ["floor_div", "mod", "fmod"])
def test_integer_division_never_traps(name: str, dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    numbers = np.array([limits.min, limits.min + 1, -7, -1, 0, 1, 7, limits.max], dtype)
    a, b = (x.copy() for x in np.meshgrid(numbers, numbers, indexing="ij"))
    graph = graph_of(lambda x, y: apply(OPS[name], x, y), Spec(a.shape, dtype), Spec(b.shape, dtype))
    with np.errstate(all="ignore"):
        (want,) = run(graph, [a, b])
    (got,) = run_model(model_of(graph, ["a", "b"], ["y"], Style(), name), a, b)
    np.testing.assert_array_equal(got, want)


# functions


def test_function_metadata_names_its_op() -> None:
    graph = graph_of(lambda x: apply(OPS["leaky_relu"], x, negative_slope=0.5), Spec((3,), dtypes.float64))
    model = model_of(graph, ["x"], ["y"], Style(), "f")
    (function,) = model.functions
    metadata = {p.key: json.loads(p.value) for p in function.metadata_props}
    assert metadata == {"mgb.op": {"op": "leaky_relu", "params": {"negative_slope": 0.5}}}
    assert (function.domain, function.name) == ("ai.mgb", model.graph.node[0].op_type)
    assert function.name.startswith("leaky_relu__")


def test_only_equal_calls_share_a_function() -> None:
    op = OPS["log1p"]
    graph = graph_of(
        lambda x, y: [apply(op, x), apply(op, apply(op, x)), apply(op, y)],
        Spec((3,), dtypes.float32),
        Spec((4,), dtypes.float32),
    )
    model = model_of(graph, ["x", "y"], ["a", "b", "c"], Style(), "f")
    assert len(model.functions) == 2 and len(model.graph.node) == 4


def test_unsupported_op_error_names_its_location() -> None:
    op = Op("mystery", Kind.OPAQUE, lambda x: x)
    graph = graph_of(lambda x: apply(op, x), Spec((3,), dtypes.int16))
    with pytest.raises(UnsupportedError, match=r"mystery\(int16\[3\]\) at .*ONNX has no operator"):
        model_of(graph, ["x"], ["y"], Style(), "f")


@pytest.mark.parametrize("field", ["ordered", "over_mesh"])
def test_communication_ops_are_rejected(field: str) -> None:
    op = Op("summed", Kind.OPAQUE, lambda x: x, **{field: True})
    graph = graph_of(lambda x: apply(op, x), Spec((3,), dtypes.float32))
    with pytest.raises(UnsupportedError, match=r"summed\(float32\[3\]\) at .*for one process"):
        model_of(graph, ["x"], ["y"], Style(), "f")


def test_recursive_op_body_is_rejected() -> None:
    op = Op("endless", Kind.ELEMENTWISE, lambda x: x, body=lambda x: apply(op, x))
    graph = graph_of(lambda x: apply(op, x), Spec((3,), dtypes.float32))
    with pytest.raises(UnsupportedError, match="endless: its body calls itself"):
        model_of(graph, ["x"], ["y"], Style(), "f")


def test_unregistered_op_writes_no_metadata() -> None:
    """Another op has this name: ONNX's word for that is not meant, and a reader must take the body."""
    op = Op("relu", Kind.ELEMENTWISE, lambda x: x, body=lambda x: x + 1)
    graph = graph_of(lambda x: apply(op, x), Spec((3,), dtypes.float32))
    (function,) = model_of(graph, ["x"], ["y"], Style(), "f").functions
    assert not function.metadata_props


def test_outputs_may_be_inputs_constants_or_repeated() -> None:
    import mgb

    one = mgb.tensor(np.arange(3, dtype=np.float32))
    graph = graph_of(lambda x: [x, one, x + one, x + one, x], Spec((3,), dtypes.float32))
    shared = graph.outputs[2]
    graph = type(graph)(graph.inputs, (*graph.outputs[:3], shared, graph.outputs[4]))
    names = ["a", "b", "c", "d", "e"]
    model = model_of(graph, ["x"], names, Style(), "f")
    onnx.checker.check_model(model, full_check=True)
    x = np.array([5, 6, 7], np.float32)
    got = run_model(model, x)
    for have, want in zip(got, [x, np.arange(3), x + np.arange(3), x + np.arange(3), x]):
        np.testing.assert_array_equal(have, want)


@settings(max_examples=60)
@given(random_graphs())
def test_random_graphs_match_in_onnx_runtime(graph: Graph) -> None:
    """Element-wise ops, reductions and layout ops in any combination, on whole numbers: sums are exact."""
    arrays = arrays_for(graph, integers=True)
    with np.errstate(all="ignore"):
        wanted = run(graph, arrays)
    names = [f"y{n}" for n in range(len(wanted))]
    inputs = [f"x{n}" for n in range(len(arrays))]
    model = model_of(graph, inputs, names, Style(value_names=True, node_names=True), "f")
    onnx.checker.check_model(model, full_check=True)
    for got, want in zip(run_model(model, *arrays), wanted):
        if np.isfinite(want).all():  # of NaN, reductions make what they like
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(initial=1))
