"""Calls of other shapes that come to other ops: judged against eager calls of the same function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import permutations

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import TraceMismatchError
from mgb.jit import body_calls, exclude_from_trace, specializations, trace

SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (0,), (1, 3), (3, 1), (3, 3), (2, 3, 4), (2, 1, 4)]

ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "sum of an axis": lambda x: x.sum(axis=-1),
    "mean, kept": lambda x: F.mean(x, axis=-1, keepdims=True),
    "variance": lambda x: F.var(x),
    "softmax": lambda x: F.softmax(x, axis=-1),
    "flat": lambda x: x.flatten(),
    "turned": lambda x: x.T,
    "indexed": lambda x: x[0],
    "ellipsis": lambda x: x[..., 0],
    "mask": lambda x: x[x > 0.8],
    "squeezed": lambda x: F.squeeze(x),
    "sorted": lambda x: F.sort(x)[0],
    "norm": lambda x: F.norm(x),
    "a branch": lambda x: x * 2.0 if x.ndim > 1 else x + 1.0,
    "rows": lambda x: sum((row.sum() for row in x), F.zeros(())),
}

PAIRS = list(permutations([(3, 4), (4,), (1, 4), (3, 1), ()], 2))

TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, y: x * y,
    "matmul": F.matmul,
    "where": lambda x, y: F.where(x > 0.8, x, y),
    "loss": F.nn.square_loss,
}

MODES = [{}, {"run_body": True}, {"imperative": True}, {"run_body": True, "symbolic_shape": True}]

matched = functools.partial(trace, run_body=True)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def floats(*shape: int) -> Tensor:
    return tensor(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype(np.float32))


def gradient(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    def gradients(*arguments: Tensor) -> list[Tensor]:
        manager = GradManager()
        copies = [x * 1 for x in arguments]
        manager.attach(copies)
        with manager:
            y = function(*copies)
            manager.backward((y * y).sum())
        return [x.grad if x.grad is not None else F.zeros(1) for x in copies]

    return gradients


def arrays(result: object) -> list[np.ndarray]:
    return [t.numpy() for t in (result if isinstance(result, list) else [result])]


def accepted(function: Callable[..., object], calls: list[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Those of the calls that are legal without a trace."""
    legal = []
    for call in calls:
        try:
            function(*call)
            legal.append(call)
        except (ValueError, IndexError, TypeError, ZeroDivisionError):
            pass
    return legal


def check_in_every_order(function: Callable[..., object], calls: list[tuple[Tensor, ...]], **mode) -> None:
    legal = accepted(function, calls)
    assert len(legal) > 2
    expected = [arrays(function(*call)) for call in legal]
    for first in range(0, len(legal), 4):
        traced = trace(function, **mode)
        order = [*range(first, len(legal)), *range(first)]
        for place in order * 3:
            found = arrays(traced(*legal[place]))
            for a, b in zip(found, expected[place], strict=True):
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        counts = traced.stats()
        for call in legal:
            traced(*call)
        again = traced.stats()
        assert (again["records"], again["variants"]) == (counts["records"], counts["variants"])


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("taped", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", ONE)
def test_argument_may_have_any_shape_the_ops_accept(name: str, taped: bool, mode) -> None:
    function = gradient(ONE[name]) if taped else ONE[name]
    check_in_every_order(function, [(floats(*shape),) for shape in SHAPES], **mode)


@pytest.mark.parametrize("mode", MODES[:2], ids=str)
@pytest.mark.parametrize("taped", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", TWO)
def test_arguments_may_broadcast_differently_than_recorded(name: str, taped: bool, mode) -> None:
    function = gradient(TWO[name]) if taped else TWO[name]
    check_in_every_order(function, [(floats(*a), floats(*b)) for a, b in PAIRS], **mode)


def test_new_ndim_is_recorded_separately_with_a_reason() -> None:
    traced = matched(lambda x: x.sum())
    for shape in ((2, 3), (), (2, 3), (), (4, 3), (5,)):
        assert traced(tensor(np.ones(shape, np.float32))).item() == np.prod(shape, dtype=int)
    stats = traced.stats()
    assert (stats["records"], stats["variants"]) == (4, 4)
    assert "argument 0 of <lambda> has shape (), recorded were (2, 3)" in stats["reasons"]


def test_length_that_changes_the_ops_is_recorded_in_the_same_call() -> None:
    calls = []
    weight = tensor(np.ones((3, 1), np.float32))
    manager = GradManager().attach([weight])

    @matched
    def step(x: Tensor) -> Tensor:
        calls.append(1)
        with manager:
            manager.backward((weight * x).sum())
        gradient, weight.grad = weight.grad, None
        return gradient

    records = []
    for columns in (1, 1, 4, 4, 4, 5, 1):  # the gradient is summed over columns, if there are several
        x = floats(3, columns)
        np.testing.assert_allclose(step(x).numpy(), x.numpy().sum(axis=1, keepdims=True), rtol=1e-6)
        records.append(step.stats()["records"])
    assert records == [1, 1, 2, 2, 2, 3, 3]  # each length of a body that runs has a record
    assert len(calls) == 7, "the body runs once at each call"


def test_side_effects_before_a_divergence_are_not_repeated() -> None:
    total = tensor(np.zeros(3, np.float32))
    log = []

    @matched
    def function(x: Tensor, y: Tensor) -> Tensor:
        nonlocal total
        total += x.sum(axis=0)
        doubled = x * 2.0
        with exclude_from_trace():
            log.append(float(doubled.sum()))
        product = doubled * y
        log.append(float(product.sum()))
        return F.broadcast_to(product, (2, 3)) if product.shape == (1, 3) else product

    def check(rows: int, others: int) -> None:
        x, y = floats(rows, 3), floats(others, 3)
        before = total.numpy().copy()
        product = 2 * x.numpy() * y.numpy()
        result = function(x, y).numpy()
        np.testing.assert_allclose(result, np.broadcast_to(product, (max(2, len(product)), 3)), rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), before + x.numpy().sum(axis=0), rtol=1e-6)
        np.testing.assert_allclose(log[-2:], [2 * x.numpy().sum(), product.sum()], rtol=1e-6)

    for rows, others in [(4, 4), (4, 4), (1, 1), (1, 1), (1, 1), (4, 4), (1, 4), (5, 1), (1, 1)]:
        check(rows, others)
    assert len(log) == 18


def test_value_dependent_length_may_change_the_ops() -> None:
    weight = tensor(np.arange(1.0, 4.0, dtype=np.float32).reshape(3, 1))
    manager = GradManager().attach([weight])

    @matched
    def step(x: Tensor) -> Tensor:
        with manager:
            manager.backward((x[x > 0] * weight).sum())
        gradient, weight.grad = weight.grad, None
        return gradient

    for count in (4, 4, 1, 3, 1, 4):  # for one element nothing is summed for the gradient of `weight`
        x = np.full(5, -1, np.float32)
        x[:count] = np.arange(1, count + 1)
        expected = np.full((3, 1), x[:count].sum())
        np.testing.assert_allclose(step(tensor(x)).numpy(), expected)
    assert step.stats()["records"] == 1


def test_other_ops_for_known_shapes_raise_a_mismatch() -> None:
    flag = False
    traced = matched(lambda x: x * 2.0 if flag else x + 1.0)
    for shape in ((2,), (), (3,)):
        traced(floats(*shape))
    flag = True
    for shape in ((2,), (), (3,)):
        with pytest.raises(TraceMismatchError, match="operator mismatch"):
            traced(floats(*shape))


def test_dtype_mismatch_raises_for_a_known_shape() -> None:
    traced = matched(lambda x: x + x)
    for values in ([1.0], [1.0, 2.0]):
        traced(tensor(values))
    with pytest.raises(TraceMismatchError, match="dtype mismatch: float32 vs int32"):
        traced(tensor([1, 2]))


@pytest.mark.parametrize("compiled", [(4, 3), (3,)])
def test_calls_after_compiling_several_shapes_ahead_are_correct(compiled: tuple[int, ...]) -> None:
    traced = matched(lambda x: x.sum() * 2.0)
    for shape in ((2, 3), compiled, (), (5, 3)):
        traced.compile(Tensor(np.empty(shape, np.float32)))
    for shape in ((2, 3), compiled, (), (5, 3), (6, 3), (7,)):
        assert traced(tensor(np.ones(shape, np.float32))).item() == 2 * np.prod(shape, dtype=int)


def test_number_of_cached_variants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (body_calls, specializations):
        monkeypatch.setattr(module, "cache_limit", lambda _variant: 8)
    traced = matched(lambda x: sum((x[i] for i in range(x.shape[0])), F.zeros(())))
    for _ in range(2):
        for rows in range(1, 24):
            assert traced(tensor(np.ones(rows, np.float32))).item() == rows
            assert traced(tensor(np.ones(rows, np.float32))).item() == rows
    assert len(traced.variants()) <= 8
