"""Shapes in a traced body: as Tensors, computed with, and depending on values. Judged against eager calls."""

from __future__ import annotations

from collections.abc import Callable

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import SymbolicReadError, TraceMismatchError
from mgb.jit import exclude_from_trace, trace
from mgb.ops import methods

MODES = [
    {},
    {"run_body": True},
    {"symbolic": True},
    {"run_body": True, "symbolic": True},
    {"without_host": True},
    {"imperative": True},
    {"capture_as_const": True},
    {"opt_level": 0},
]
READING = [{}, {"run_body": True}, {"imperative": True}, {"run_body": True, "opt_level": 0}]


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 2, shape).astype(np.float32)


def assigned(x: Tensor) -> Tensor:
    y = F.zeros(x.shape)
    y[: x.shape[0] // 2] = 1
    return y * x


# shapes as Tensors: works with a tuple, too, which is what it is judged against
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(x.shape[0], -1),
    "reshape to a product": lambda x: F.reshape(x, (x.shape[0] * x.shape[1], -1)),
    "reshape to a shape": lambda x: F.reshape(x, x.shape) * 2.0,
    "a slice of the shape": lambda x: F.zeros(x.shape[1:]) + x,
    "half": lambda x: x[:, : x.shape[1] // 2],
    "whole by a slice": lambda x: x[: x.shape[0], : x.shape[1] // x.shape[1] + 1] * 2.0,
    "index": lambda x: x[x.shape[0] - 1],
    "index by int": lambda x: x[int(x.shape[0]) - 1],
    "zeros": lambda x: F.zeros(x.shape) + x,
    "full": lambda x: F.full((x.shape[0], 3), x.shape[1]),
    "ones of a length": lambda x: F.ones(x.shape[0]),
    "broadcast": lambda x: F.broadcast_to(x[:, :1], x.shape),
    "broadcast to more": lambda x: F.broadcast_to(x[:1], (x.shape[0] * 2, x.shape[1], x.shape[2])),
    "arange": lambda x: F.arange(x.shape[0]) * 2,
    "arange from, to, by": lambda x: F.arange(x.shape[0], 40, x.shape[0] // 2 + 1, dtype="int32"),
    "linspace": lambda x: F.linspace(0, x.shape[0], x.shape[1]),
    "eye": lambda x: F.eye(x.shape[0], x.shape[1]),
    "a loop": lambda x: sum((x[i] for i in range(len(x.shape) - 1)), F.zeros(x.shape[1:])),
    "a factor": lambda x: x * x.shape[1],
    "a mean": lambda x: x.sum() / (x.shape[0] * x.shape[1] * x.shape[2]),
    "unpacked": lambda x: (lambda a, b, c: x.reshape(b, c, a))(*x.shape),
    "a branch": lambda x: x + 1 if x.shape[1] > 1 else x,
    "topk": lambda x: F.topk(x, x.shape[2] // 2)[0],
    "split at": lambda x: F.split(x, [x.shape[0] // 2], 0)[0],
    "split into": lambda x: F.concat(F.split(x, x.shape[0] // x.shape[0] * 2, 1), 0),
    "repeat": lambda x: F.repeat(x, x.shape[0], 0),
    "tile": lambda x: F.tile(x, (x.shape[0], 1, 1)),
    "one_hot": lambda x: F.one_hot(x[0, 0].astype("int32"), x.shape[0]),
    "pad": lambda x: F.pad(x, ((0, x.shape[0]), (0, 0), (0, 0))),
    "roll": lambda x: F.roll(x, x.shape[0] // 2, 0),
    "ndim and len": lambda x: x * len(x.shape) + x.ndim + x.size,
    "assignment": assigned,
    "a lower triangle": lambda x: F.tril(x[0]),
    "a shape before its data": lambda x: F.ones((x.shape[1], 2)) * x.sum(),
    "a larger length": lambda x: F.arange(
        F.maximum(x.shape[0], x.shape[1]) if type(x.shape) is not tuple else max(x.shape[:2])
    ),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("symbolic_shape", [True, False], ids=["Tensor", "tuple"])
@pytest.mark.parametrize("function", SHAPES.values(), ids=SHAPES)
def test_shape_computations_do_not_split_the_program(function, symbolic_shape, mode) -> None:
    traced = trace(function, symbolic_shape=symbolic_shape, **mode)
    for seed, shape in enumerate([(2, 4, 3), (2, 4, 3), (4, 2, 6), (3, 6, 2), (2, 4, 3), (4, 2, 6)]):
        x = tensor(floats(*shape, seed=seed))
        np.testing.assert_allclose(traced(x).numpy(), function(x).numpy(), rtol=1e-6)
    assert {len(v.segments) for v in traced.variants()} == {1}
    assert len(traced.variants()) <= 3


def test_shape_is_a_tensor_in_the_body_and_a_tuple_elsewhere() -> None:
    found = {}

    @trace(symbolic_shape=True)
    def function(x, scalar):
        found["x"], found["scalar"], found["tuple"] = x.shape, scalar.shape, x._tuple_shape
        found["values"] = x.shape.tolist()
        with exclude_from_trace():
            found["excluded"] = x.shape
        return (x * scalar).reshape(-1)

    for rows in (2, 3, 2):
        result = function(tensor(floats(rows, 4)), tensor(2.0))
        assert isinstance(found["x"], Tensor) and found["x"].dtype == np.int32
        assert found["scalar"] == ()
        assert found["tuple"] == found["excluded"] == (rows, 4)
        assert found["values"] == [rows, 4]
        assert result.shape == (4 * rows,)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_shape_tensor_may_be_returned_and_used_as_data(mode) -> None:
    traced = trace(lambda x: (x.shape, (x * 2).shape[1:] * x.shape[0]), symbolic_shape=True, **mode)
    for shape in ((2, 3), (2, 3), (5, 4), (2, 3)):
        whole, product = traced(tensor(floats(*shape)))
        assert whole.tolist() == list(shape)
        assert product.tolist() == [shape[0] * shape[1]]


@pytest.mark.parametrize("mode", [m for m in MODES if "capture_as_const" not in m], ids=str)
def test_shapes_under_a_tape(mode) -> None:
    weight = tensor(floats(3))
    manager = GradManager().attach([weight])

    @trace(symbolic_shape=True, **mode)
    def step(x):
        with manager:
            y = (x * weight).reshape(x.shape[0] * x.shape[1]) / x.shape[0]
            manager.backward((y * y).sum())
        gradient, weight.grad = weight.grad, None
        return gradient

    for rows in (2, 2, 5, 2):
        x = floats(rows, 3, seed=rows)
        expected = 2 * (x.astype(np.float64) ** 2).sum(0) * weight.numpy() / rows**2
        np.testing.assert_allclose(step(tensor(x)).numpy(), expected, rtol=1e-5)


def test_constant_expressions_are_readable_in_symbolic_mode() -> None:
    @trace(symbolic=True)
    def function(x):
        total = float((F.arange(4) * 2 + 1).sum())
        return x * total

    for value in (1.0, 2.0):
        assert function(tensor(value)).item() == 16 * value
    assert len(function.variants()[0].segments) == 1


def test_symbolic_shape_supports_changing_ndim() -> None:
    traced = trace(lambda x: x.reshape(x.shape[0], -1), symbolic_shape=True)
    for shape in ((2, 3), (2, 3, 4), (2, 3)):
        x = tensor(floats(*shape))
        np.testing.assert_array_equal(traced(x).numpy(), x.numpy().reshape(shape[0], -1))


# shapes that depend on values: `k` is an integer Tensor


def set_by_mask(x: Tensor, k: Tensor) -> Tensor:
    y = x * 1
    y[:k] = 0
    y[x > 0.5] = F.arange((x > 0.5).astype("int32").sum())
    return y


VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "topk": lambda x, k: F.topk(x * 2, k)[0] + 1,
    "topk, the last": lambda x, k: F.topk(x * 2, k, kth_only=True)[0] + 1,
    "topk of a sum": lambda x, k: F.topk(x, k + 1)[0] * 2,
    "mask": lambda x, k: (x * 2)[x > 0.2 * k] + 1,
    "mask of an axis": lambda x, k: (x * 2)[:, x[0] > x[0].mean() - 0.1 * k].sum(axis=1),
    "nonzero": lambda x, k: F.nonzero(x > 0.2 * k)[0] * 2,
    "non_zero": lambda x, k: F.non_zero(x > 0.2 * k) * 2,
    "cond_take": lambda x, k: F.cond_take(x > 0.2 * k, x * 2)[0] * 3,
    "int": lambda x, k: x.reshape(-1)[: int(k)] * 2,
    "int of a product": lambda x, k: F.zeros((int(k * 2), 2)) + x[0, 0],
    "slice": lambda x, k: x[:, :k] * 2,
    "arange": lambda x, k: F.arange(k) * x[0, 0],
    "arange from, to, by": lambda x, k: F.arange(k + 1, k * 3 + 1, k) * x[0, 0],
    "linspace": lambda x, k: F.linspace(0, k, k + 1) * x[0, 0],
    "reshape": lambda x, k: F.full((k, 2), x[0, 0]).reshape(-1, k) * 2,
    "broadcast": lambda x, k: F.broadcast_to(x[:1], (k + 1, *x.shape[1:])) * 2,
    "split": lambda x, k: F.split(x, [k], 1)[1].sum(),
    "tile": lambda x, k: F.tile(x, (k, 1)),
    "repeat": lambda x, k: F.repeat(x, k, 0),
    "repeat each": lambda x, k: F.repeat(x[0], F.broadcast_to(k, (x.shape[1],))),
    "one_hot": lambda x, k: F.one_hot(k, k + 1) * x[0, 0],
    "two of them": lambda x, k: (x[x > 0.1 * k] * 2).sum() + F.topk(x, k)[0].sum(),
    "one after the other": lambda x, k: x.reshape(-1)[: int(k)].mean() + x[x > 0.1 * k].mean(),
    "assignment": set_by_mask,
}


@pytest.mark.parametrize("mode", [*READING, {"symbolic_shape": True}], ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["argument", "computed"])
@pytest.mark.parametrize("function", VALUES.values(), ids=VALUES)
def test_value_dependent_shapes_may_change_at_every_call(function, inside, mode) -> None:
    def body(x: Tensor, k: Tensor) -> Tensor:
        return function(x, k * 1 if inside else k)

    traced = trace(body, **mode)
    calls = [
        (3, 4, 1),
        (3, 4, 2),
        (3, 4, 3),
        (3, 4, 1),
        (4, 5, 4),
        (3, 4, 3),
        (4, 5, 3),
        (2, 6, 1),
        (3, 4, 2),
    ]
    for rows, columns, k in calls:
        x = tensor(floats(rows, columns, seed=k + rows))
        np.testing.assert_allclose(traced(x, tensor(k)).numpy(), body(x, tensor(k)).numpy(), rtol=1e-6)
    counts = []
    for _ in range(3):  # what was recorded op by op is run as a program at its second call
        for rows, columns, k in calls:
            traced(tensor(floats(rows, columns, seed=k + rows)), tensor(k))
        counts.append((traced.stats()["variants"], traced.stats()["programs"]))
    assert counts[0][0] == counts[1][0] <= 7
    assert counts[1] == counts[2]


@pytest.mark.parametrize(
    "inside",
    [
        lambda x: x[: int((x > 0).astype("int32").sum())],
        lambda x: F.topk(x, (x > 0).astype("int32").sum())[0],
    ],
)
def test_value_read_in_symbolic_mode_raises(inside) -> None:
    with pytest.raises(SymbolicReadError, match=r"can not infer value .* under trace\(symbolic=True\)"):
        trace(inside, symbolic=True)(tensor(floats(4)))


def test_gradients_through_value_dependent_shapes() -> None:
    x = tensor(floats(5, 4))
    manager = GradManager().attach([x])

    @trace
    def step(limit):
        with manager:
            kept = x[x * x > limit]
            manager.backward((kept * kept * kept).sum())
        gradient, x.grad = x.grad, None
        return gradient

    for limit in (0.1, 0.5, 1.5, 9.0, 0.1):
        at = x.numpy().astype(np.float64)
        np.testing.assert_allclose(
            step(tensor(limit)).numpy(), np.where(at * at > np.float32(limit), 3 * at * at, 0), rtol=1e-5
        )


def test_changed_op_parameter_raises_a_mismatch() -> None:
    axis = 0
    traced = trace(lambda x: (x * 2).sum(axis=axis), run_body=True)
    traced(tensor(floats(3, 4)))
    axis = 1
    with pytest.raises(TraceMismatchError, match="operator mismatch"):
        traced(tensor(floats(3, 4)))


@pytest.mark.parametrize("key", [
    (slice(None, 3),), (slice(-4, None), 0), (None, 0, slice(0, 5)), (slice(None), None, slice(None, 2)),
    ([0, 1], slice(None, 4)), (slice(None, 3), [1, 0]), (0, [1, 0]), (..., 1),
], ids=str)  # fmt: skip
def test_index_records_the_same_ops_for_every_length(key) -> None:
    """Also for those of which a slice takes all."""

    def assigned(x: Tensor) -> Tensor:
        y = x * 1
        methods.METHODS["__setitem__"](y, key, x[key] * 2)
        return y + x[key].sum()

    traced = trace(assigned)
    for shape in ((5, 6), (3, 5), (4, 2), (2, 4), (3, 4), (1, 2), (5, 6)):
        if shape[0] == 1 and key[:1] == ([0, 1],):
            continue
        x, shape_now = floats(*shape), shape
        expected = x.copy()
        index = tuple(np.array(k) if isinstance(k, list) else k for k in key)
        expected[index] = x[index] * 2
        np.testing.assert_allclose(
            traced(tensor(x)).numpy(), expected + x[index].sum(), rtol=1e-5, err_msg=str(shape_now)
        )


@pytest.mark.parametrize("name", ["mask", "nonzero", "non_zero", "cond_take", "mask of an axis"])
@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"symbolic_shape": True}], ids=str)
def test_symbolic_call_computes_values_that_shapes_depend_on(name: str, options: dict) -> None:
    function = VALUES[name]
    traced = trace(symbolic=True, **options)(function)
    for seed, count in ((1, 3), (2, 1), (3, 2), (1, 3)):
        x, k = tensor(np.random.default_rng(seed).normal(size=(4, 5)).astype(np.float32)), tensor(count)
        np.testing.assert_allclose(traced(x, k).numpy(), function(x, k).numpy(), rtol=1e-6)


def test_symbolic_call_computes_only_values_that_shapes_depend_on() -> None:
    weight = tensor([1.0])
    known: list[bool] = []

    @trace(symbolic=True)
    def step(x: Tensor) -> Tensor:
        nonlocal weight
        chosen = (x * 2)[x * weight > 0]
        weight += 1
        last = chosen * weight
        known.append(last._data is None)
        return last

    for call in range(3):
        np.testing.assert_array_equal(step(tensor([-1.0, 2.0, 3.0])).numpy(), np.array([4, 6]) * (call + 2))
    assert known[0] and weight.item() == 4
    with pytest.raises(SymbolicReadError, match="symbolic=False"):
        trace(symbolic=True)(lambda x: x[: int(x.sum())])(tensor([1.0]))
    with pytest.raises(SymbolicReadError):
        trace(record_only=True)(lambda x: x[x > 0])(tensor([1.0]))
