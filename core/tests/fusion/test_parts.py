"""What kernels compute for ``concat`` and ``stack`` is written into the result; every value is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Parameter, Tensor, plugins
from mgb.jit import trace

DEFAULT = plugins.choose_backend("cpu")

pytestmark = pytest.mark.skipif(
    not DEFAULT.traits.strided_outputs,
    reason="the kernels of the default backend write row-major results only",
)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32")


def source(traced: Any, *arrays: Any) -> str:
    """The text of the program for these."""
    return str(traced.explain(*map(Tensor, arrays)))


def is_copied(text: str) -> bool:
    """Does a program call the rule of concat?"""
    return "concat_" in text


#: A part of a program with x of (n, m): what is put side by side, and along which axis.
PARTS = st.sampled_from(["computed", "given", "shared", "negative", "strided", "read again", "joined"])
DRAWN = st.tuples(
    st.lists(PARTS, min_size=1, max_size=4),
    st.sampled_from(["first", "last", "stack", "stack last", "between"]),
)


def part(kind: str, k: int, x: Any, y: Any) -> Any:
    """An array of the shape of `x`."""
    if kind == "computed":
        return x * float(k + 2) + y
    if kind == "negative":
        return -np.exp(x * 0.1)
    if kind == "strided":
        return (y * 2.0 + x)[::-1] * 3.0 - 1.0
    if kind == "joined":
        half = x.shape[0] // 2
        return np.concatenate([x[:half] * 3.0 + 1.0, y[half:] - x[half:] * 2.0])
    return {"given": x, "shared": x * y + 1.0, "read again": y * y - x}[kind]


def program(kinds: list[str], how: str, x: Any, y: Any) -> Any:
    parts = [part(kind, k, x, y) for k, kind in enumerate(kinds)]
    again = sum((p.sum(axis=0) for kind, p in zip(kinds, parts, strict=True) if kind == "read again"), x[0])
    if how.startswith("stack"):
        return np.stack(parts, axis=-1 if how == "stack last" else 0), again
    if how == "between":
        return np.concatenate(parts, axis=1) * 2.0 + 1.0, again
    return np.concatenate(parts, axis=0 if how == "first" else 1), again


@settings(max_examples=25, deadline=None)
@given(DRAWN, st.integers(90, 130), st.integers(190, 230))
def test_concat_and_stack_match_numpy(drawn: tuple[list[str], str], n: int, m: int) -> None:
    kinds, how = drawn
    traced = trace(lambda x, y: program(kinds, how, x, y))
    for rows, columns in [
        (n, m),
        (n, m),
        (n + 7, m + 3),
        (3, 5),
    ]:  # other lengths of one record, and short ones
        x, y = numbers(rows, columns), numbers(rows, columns, seed=1)
        for got, wanted in zip(traced(Tensor(x), Tensor(y)), program(kinds, how, x, y), strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-5, atol=2e-5)


def test_kernel_results_are_concatenated_without_copy() -> None:
    x, y = numbers(200, 300), numbers(200, 300, seed=1)
    for body in (
        lambda x, y: np.concatenate([x * 2.0 + 1.0, y * 3.0 - 1.0], axis=1),
        lambda x, y: np.stack([x + y, x - y], axis=-1),
        lambda x, y: np.concatenate([np.concatenate([x + y, x - y]), np.exp(x)]),
    ):
        traced = trace(body)
        np.testing.assert_allclose(traced(Tensor(x), Tensor(y)).numpy(), body(x, y), rtol=1e-5)
        assert not is_copied(source(traced, x, y)), source(traced, x, y)


def test_results_do_not_share_memory() -> None:
    """A part that is returned as well is no window of the other result."""

    @trace
    def both(x: Any, y: Any) -> Any:
        part = x * 2.0 + y
        return part, np.concatenate([part, y - x])

    x, y = numbers(200, 300), numbers(200, 300, seed=1)
    for _ in range(3):
        first, whole = both(Tensor(x), Tensor(y))
        assert not np.shares_memory(first.numpy(), whole.numpy())
        np.testing.assert_allclose(whole.numpy(), np.concatenate([x * 2 + y, y - x]), rtol=1e-5)


def test_shifted_window_state_is_updated() -> None:
    """A window of the newest rows: what replaces the state is computed from it."""
    state, model = Parameter(numbers(300, 100)), numbers(300, 100)

    @trace
    def push(row: Any) -> Any:
        state._reset(np.concatenate([state[1:] * 0.5, row + 1.0]))
        return state.sum()

    for k in range(5):
        row = numbers(1, 100, seed=k)
        push(Tensor(row))
        model = np.concatenate([model[1:] * 0.5, row + 1])
        np.testing.assert_allclose(state.numpy(), model, rtol=1e-5, atol=1e-6)


def repeated(x: Any, y: Any) -> Any:
    return np.repeat(x * 2.0 + 1.0, 3, axis=-1) * 0.5


def patches(x: Any, y: Any) -> Any:
    n, m = x.shape
    return x.reshape(n // 4, 4, m // 4, 4).transpose(0, 2, 3, 1).reshape(-1, 16) * 2.0 - 1.0


def of_colours(x: Any, y: Any) -> Any:
    pixels = x.reshape(-1, 4)
    return pixels * y[0, :4] + np.exp(y[1, :1]), (pixels - y[0, :4]).T, pixels[:, :1] * y[:4, 0]


def of_classes(x: Any, y: Any) -> Any:
    scores = x.reshape(-1, 4) * y[0, :4]
    return np.concatenate([scores + 1.0, scores * 2.0], axis=1), np.stack([scores, scores], axis=1)


@pytest.mark.parametrize("body", [repeated, patches, of_colours, of_classes])
def test_short_rows_and_copies_match_numpy(body: Any) -> None:
    """Of other lengths, too; what is laid out otherwise than a kernel goes is row-major for who wants it."""
    traced = trace(body)
    for n, m in [(200, 320), (200, 320), (204, 324), (8, 8), (400, 320)]:
        x, y = numbers(n, m), numbers(n, m, seed=1)
        found, wanted = traced(Tensor(x), Tensor(y)), body(x, y)
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
        for got, value in pairs:
            assert got.shape == value.shape
            np.testing.assert_allclose(got.numpy(), value, rtol=2e-5, atol=2e-5)


def test_copies_are_fused_into_kernels() -> None:
    x, y = numbers(200, 320), numbers(200, 320, seed=1)
    for body in (repeated, patches):
        text = source(trace(body), x, y)
        assert "1 fused groups" in text and not is_copied(text), text
    nchw = trace(lambda x, y: ((x.reshape(-1, 50, 40, 4) - y[0, :4]) * 2.0).transpose(0, 3, 1, 2))
    nchw(Tensor(x), Tensor(y))  # recorded, op by op
    assert nchw(Tensor(x), Tensor(y)).numpy().flags.c_contiguous


#: Programs of a vector in which constants of one element stand in larger values.
CONSTANTS = {
    "behind": lambda x: np.concatenate([x * 2.0 + 1.0, np.ones(1, np.float32)]),
    "between the same": lambda x: (lambda a: np.concatenate([a, np.ones(1, np.float32), a]) * 2.0)(x * 2.0),
    "twice": lambda x: np.concatenate([np.ones(1, np.float32), x + 1.0, np.ones(1, np.float32)]),
    "counted": lambda x: np.concatenate([np.arange(5, dtype=np.float32), x * 2.0]),
    "stacked": lambda x: np.stack([x[:1], np.ones(1, np.float32), x[:1]]),
    "assigned": lambda x: assigned(x * 2.0 + 1.0),
    "assigned where it is shared": lambda x: (lambda a: (assigned(a + 0.0), a * 3.0))(x * 2.0),
}


def assigned(values: Any) -> Any:
    values[0] = 3.5
    values[-1:] = 4.0
    values[2] += 1.0
    return values


@pytest.mark.parametrize("opt_level", [0, 2, 3])
@pytest.mark.parametrize("name", CONSTANTS)
def test_single_element_constants_match_numpy(name: str, opt_level: int) -> None:
    """A step has these itself: they are among no values that it reads."""
    run = trace(CONSTANTS[name], opt_level=opt_level)
    for n in (10, 10, 40_000, 7):
        got, want = run(Tensor(numbers(n))), CONSTANTS[name](numbers(n))
        pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
        for one, true in pairs:
            np.testing.assert_allclose(np.asarray(one), true, rtol=1e-6)


#: What is seen of a value, which is assigned to behind that.
SEEN = {
    "backwards": lambda a: a[::-1],
    "behind the first": lambda a: a[1:],
    "of another shape": lambda a: a.reshape(2, -1),
    "turned": lambda a: a.reshape(2, -1).T,
    "of a view": lambda a: a[::2][1:],
    "with an axis": lambda a: a[None],
}


@pytest.mark.parametrize("n", [1_000, 40_000])
@pytest.mark.parametrize("name", SEEN)
def test_returned_view_is_unaffected_by_a_later_assignment(name: str, n: int) -> None:
    """A view that leaves the program is read behind its end: the memory it shows is not for others."""

    def function(x: Any, see: Any) -> tuple[Any, Any]:
        values = x * 2.0
        seen = see(values)
        values[2:4] = x[:2] * 3.0
        values[0] = 1.5
        return seen, values

    run = trace(lambda x: function(x, SEEN[name]))
    for seed in range(3):
        got = run(Tensor(numbers(n, seed=seed)))
        want = function(numbers(n, seed=seed), lambda a: SEEN[name](a).copy())
        for one, true in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(one), true)
