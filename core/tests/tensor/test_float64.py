"""float64 keeps its digits beside numbers and arrays of every kind: NumPy in float64 is the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.optimizer as optim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Parameter, Tensor, jit
from mgb.autodiff import GradManager
from mgb.errors import ConversionError
from mgb.jit import trace

X = np.random.default_rng(0).uniform(0.5, 2, (3, 4))
V = np.random.default_rng(1).uniform(0.5, 2, 4)
MODES: dict[str, dict[str, Any]] = {
    "trace": {},
    "symbolic": {"symbolic": True},
    "without_host": {"without_host": True},
}


def double(array: Any) -> Tensor:
    return Tensor(array, dtype="float64")


def same(got: Any, want: Any) -> None:
    got = got.numpy() if isinstance(got, Tensor) else got
    assert got.dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got, want, rtol=4e-15, atol=1e-300)


# random expressions

NUMBERS = st.floats(0.5, 2).flatmap(
    lambda v: st.sampled_from([v, np.float64(v), np.float32(v), np.array(v), np.array(v, np.float32)])
)
ARRAYS = st.lists(st.floats(0.5, 2), min_size=4, max_size=4).flatmap(
    lambda row: st.sampled_from([row, np.array(row), np.array(row, np.float32), np.array([row] * 3)])
)
WHOLE = st.sampled_from(
    [3, np.int64(2**40 + 1), np.int32(7), np.array([1, 2, 3, 2**45 + 1]), True, np.bool_(True)]
)
OTHERS = st.one_of(NUMBERS, ARRAYS, WHOLE)
WORDS: list[Callable[[Any, Any], Any]] = [
    np.add,
    np.multiply,
    np.true_divide,
    np.maximum,
    np.minimum,
    np.hypot,
    lambda a, b: a - b,
    lambda a, b: b - a,
    lambda a, b: b * a,
    lambda a, b: a / b,
    lambda a, b: b / a,
    lambda a, b: np.where(a > 1, a, b),
    lambda a, b: np.where(a < 1, b, a),
    lambda a, b: np.clip(a, 0.25, b),
]
STEPS = st.lists(st.tuples(st.sampled_from(WORDS), OTHERS), min_size=1, max_size=5)


def computed(x: Any, steps: list[tuple[Callable[..., Any], Any]]) -> Any:
    for word, other in steps:
        x = word(x, other)
    return x


def exact(other: Any) -> Any:
    """`other` as NumPy takes it beside float64."""
    return np.asarray(other, np.float64)


def truth(x: np.ndarray, steps: list[tuple[Callable[..., Any], Any]]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return computed(x, [(word, exact(other)) for word, other in steps])


def well_conditioned(x: np.ndarray, steps: list[tuple[Callable[..., Any], Any]]) -> bool:
    """Does float32 in the place of float64 change the result by more than rounding in float64 does?"""
    want, near = truth(x, steps), truth(x * (1 + 2e-16), steps)
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(want)) and np.all(np.abs(near - want) <= 1e-15 * np.abs(want)))


@settings(max_examples=150)
@given(STEPS)
def test_random_expressions(steps: list[tuple[Callable[..., Any], Any]]) -> None:
    if not well_conditioned(X, steps):
        return
    same(computed(double(X), steps), truth(X, steps))


@settings(max_examples=25)
@given(STEPS, st.sampled_from(sorted(MODES)))
def test_random_expressions_traced(steps: list[tuple[Callable[..., Any], Any]], mode: str) -> None:
    if not well_conditioned(X, steps):
        return
    traced = trace(lambda x: computed(x, steps), backend="eager", **MODES[mode])
    for scale in (1.0, 1.0, 0.75):
        if well_conditioned(scale * X, steps):
            same(traced(double(scale * X)), truth(scale * X, steps))


# functions and statements


def assigned(x: Any) -> Any:
    x = x + 0
    x[0] = 0.1
    x[1, 2] = np.float64(1.2)
    x[:, 3] = V[:3]
    x[x > 1.5] = np.float64(0.3)
    x += V
    x *= np.float64(1.1)
    return x


def filled(x: Any) -> Any:
    return (
        x
        + np.full_like(x, 0.1)
        + np.full_like(x, np.float64(0.7))
        + np.pad(x, 1, constant_values=0.3)[1:4, 1:5]
    )


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "constants of NumPy": lambda x: np.exp(2.0) * x + np.sqrt(7) - x / np.pi,
    "powers": lambda x: x ** np.float64(1.7) + np.float64(1.1) ** x + x**0.1 + x**3 + x**-2.0,
    "remainders": lambda x: np.remainder(x, np.float64(0.3)) + x // np.float64(0.3),
    "assignments": assigned,
    "filled": filled,
    "comparisons": lambda x: (x * np.float64(1.1) >= 1.1 * X) & (x == X),
    "products": lambda x: x @ V + np.dot(x, V) + V[:3] @ x[:, :3] + np.einsum("ij,j->i", x, V),
    "outer": lambda x: np.outer(x[0], V) + np.multiply.outer(x[0], V),
    "tensordot": lambda x: np.tensordot(x, X, ((0, 1), (0, 1))),
    "joined": lambda x: np.concatenate([x, X, [V]]) + np.vstack([X, x, [V]]),
    "side by side": lambda x: np.stack([x, X]) + np.hstack([x, X])[:, :4],
    "average": lambda x: np.average(x, axis=1, weights=V),
    "interp": lambda x: np.interp(x, np.arange(5) * 0.5, np.arange(5) * 0.7),
    "statistics": lambda x: np.mean(x, 0) + np.std(x, axis=0, ddof=1) + np.var(x) + np.median(x, axis=0),
    "running": lambda x: np.cumsum(x * 0.1, axis=1) + np.cumprod(x, axis=1),
    "norms": lambda x: np.linalg.norm(x, axis=1) + np.linalg.norm(x, 3.0, axis=1),
    "beginning": lambda x: np.sum(x, initial=np.float64(0.1)) + np.prod(x, initial=np.float64(0.1)),
    "rounded": lambda x: np.round(x, 2),
    "near": lambda x: (
        np.isclose(x, X * (1 + 2e-8), rtol=1e-8, atol=0) | np.isclose(x, X * (1 + 5e-9), 1e-8, 0)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_match_numpy(name: str) -> None:
    function = FUNCTIONS[name]
    same(function(double(X)), function(X))
    traced = trace(function, backend="eager")
    for _ in range(2):
        same(traced(double(X)), function(X))


def test_mgb_functions_match_numpy() -> None:
    x = double(X)
    same(F.full((2,), np.float64(0.1), dtype="float64"), np.full(2, 0.1))
    same(F.linspace(0, 1 / 3, 4, dtype="float64"), np.linspace(0, 1 / 3, 4))
    same(F.clip(x, 0.7, np.float64(1.1)), np.clip(X, 0.7, 1.1))
    same(F.masked_fill(x, x > 1, np.float64(0.1)), np.where(X > 1, 0.1, X))
    same(F.Elemwise("FUSE_MUL_ADD3")(x, V, np.float64(0.1)), X * V + 0.1)
    same(F.matmul(X.T, x), X.T @ X)
    same(Tensor([2**40 + 1], dtype="int64") + np.array([2**41]), np.array([2**40 + 1 + 2**41]))


def test_changing_number_in_auto() -> None:
    with jit.auto(backend="eager", after=1):
        for k in (0.1, 0.1, 0.2, 0.3, 0.3):
            same(double(X) * np.float64(k) + 1, X * k + 1)


def test_single_precision_stays_single() -> None:
    x = Tensor([1.0])
    for other in (np.float64(0.1), np.array([0.1]), [0.1], np.array(0.1), 0.1):
        assert (x * other).dtype == np.float32
    assert (Tensor([1.0], dtype="float16") * np.float64(0.1)).dtype == np.float16
    assert (Tensor([1.0], dtype="float16") * np.float32(0.1)).dtype == np.float32


# optimizers


def adam(p: np.ndarray, g: np.ndarray, steps: int) -> np.ndarray:
    lr, (b1, b2), eps, decay = 1e-3, (0.9, 0.999), 1e-8, 0.01
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, steps + 1):
        grad = g * p + decay * p
        m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad * grad
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p


def sgd(p: np.ndarray, g: np.ndarray, steps: int) -> np.ndarray:
    v = np.zeros_like(p)
    for _ in range(steps):
        v = 0.9 * v + g * p + 0.01 * p
        p = p - 0.1 * v
    return p


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (lambda p: optim.Adam(p, 1e-3, weight_decay=0.01), adam),
        (lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01), sgd),
    ],
    ids=["Adam", "SGD"],
)
def test_optimizers(mode: str | None, made: Callable[..., Any], rule: Callable[..., Any]) -> None:
    parameter, g = Parameter(V, dtype="float64"), double(X[0])
    optimizer, manager = made([parameter]), GradManager().attach([parameter])

    def step() -> None:
        with manager:
            manager.backward((parameter * parameter * g).sum() / 2)
        optimizer.step().clear_grad()

    run = step if mode is None else trace(step, backend="eager", **MODES[mode])
    for _ in range(4):
        run()
    same(parameter, rule(V, X[0], 4))


def test_bfloat16_from_wider_types_is_rounded_once():
    bits = np.array([0x3F80, 0x4049, 0x0080, 0x7F00, 0xC2C8], np.uint16)  # of some bfloat16
    value = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    above = ((bits.astype(np.uint32) + 1) << 16).view(np.float32).astype(np.float64)
    middle = (value + above) / 2
    beyond = middle * (1 + np.finfo(np.float64).eps)  # nearer to the larger of both, but not in float32
    got = Tensor(beyond, dtype="bfloat16").numpy().astype(np.float64)
    np.testing.assert_array_equal(got, above)
    whole = np.array([2**24 + 2**16 + 1], np.int64)
    assert Tensor(whole, dtype="bfloat16").numpy().astype(np.float64)[0] == 2**24 + 2**17


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_comparison_with_an_integer_beyond_every_float_raises(dtype: str) -> None:
    for number in (10**400, -(10**400)):
        for compare in (np.less, np.equal, np.greater_equal):
            with pytest.raises(ConversionError, match=f"does not fit in {dtype}"):
                compare(Tensor([1.0], dtype=dtype), number)
