"""Long loops, whose turns run without Python where a backend can: as loops of NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.backends.plugins import load_backend
from mgb.executor import turns
from mgb.jit import fori_loop, scan, trace

R = np.random.default_rng(11)
U = R.normal(size=(9, 7)).astype(np.float32)
W = (R.normal(size=(7, 7)) * 0.4).astype(np.float32)


def padded(m: Any, inner: Any) -> Any:
    return m.pad(inner, ((1, 1), (1, 1)))


def bulk(u: Any) -> Any:
    return u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])


def edges(m: Any, u: Any, x: Any) -> Any:
    """The edges stay, or are set."""
    v = u + 0
    v[1:-1, 1:-1] = bulk(u)
    v[0, :] = v[1, :] * 0.5
    return v, v[:, 2] + x[0]


def stays(m: Any, u: Any, x: Any) -> Any:
    v = u + 0
    v[1:-1, 1:-1] = bulk(u)
    return v, v.sum()


def rolls(m: Any, u: Any, x: Any) -> Any:
    v = u + 0.1 * (m.roll(u, 1, 0) - m.roll(u, -1, 1))
    return v, v[::2, ::-1]


def wave(m: Any, c: Any, x: Any) -> Any:
    u, v = c
    return (1.9 * u - v + 0.1 * padded(m, bulk(u) - u[1:-1, 1:-1]), u), (v, x)


def registers(m: Any, c: Any, x: Any) -> Any:
    """What is carried is handed on: in a row, twice from one place, to and fro, and never changed."""
    a, b, d, e, f, g, same, n = c
    return (m.sin(d) + x, a, b, a, g, f, same, n + 1), (a + e, d * same[0], f - g, n)


def product(m: Any, u: Any, x: Any) -> Any:
    v = m.tanh(u @ W + x)
    return v, v


def sorted_rows(m: Any, u: Any, x: Any) -> Any:
    v = m.sort(u * 0.9 + x, axis=1)
    return v, m.argmax(v, axis=0)


def integers(m: Any, c: Any, x: Any) -> Any:
    i, j = c
    return (j * 3 + 1, i), i // 2


def hands_on_what_stays(m: Any, c: Any, x: Any) -> Any:
    a, same = c
    return (same, same), a + x


BODIES: dict[str, tuple[Callable[..., Any], Any]] = {
    "pad": (lambda m, u, x: (padded(m, bulk(u)) + 0, x), U),
    "heat": (lambda m, u, x: (padded(m, bulk(u)), x), U),
    "pad alone": (lambda m, u, x: (padded(m, bulk(u)), padded(m, bulk(u))), U),
    "edges": (edges, U),
    "stays": (stays, U),
    "rolls": (rolls, U),
    "wave": (wave, (U, U * 0.5)),
    "registers": (registers, (U[0], U[1], U[2], U[3], U[4], U[5], U[6], np.int32(0))),
    "product": (product, U),
    "sort": (sorted_rows, U),
    "integers": (integers, (np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32)[::-1])),
    "still": (hands_on_what_stays, (U[0], U[1])),
    "join": (lambda m, u, x: (m.concatenate([u[3:], m.sin(u[:3])]), u[0]), U),
    "transposed": (lambda m, u, x: ((u.T @ u)[:, ::-1] * 0.01 + x, u.T), U[:7]),
}


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def by_numpy(body: Callable[..., Any], init: Any, xs: Any, reverse: bool) -> tuple[Any, list[Any]]:
    carry, rows = init, []
    for x in reversed(xs) if reverse else xs:
        carry, row = body(np, carry, x)
        rows.append(leaves(row))
    rows = rows[::-1] if reverse else rows
    return carry, [np.stack(column) for column in zip(*rows, strict=True)]


def traced(body: Callable[..., Any], init: Any, xs: Any, reverse: bool, **options: Any) -> tuple[Any, Any]:
    def run(init: Any, xs: Any) -> Any:
        return scan(lambda c, x: body(np, c, x), init, xs, reverse=reverse)

    given = tuple(map(mgb.tensor, init)) if isinstance(init, tuple) else mgb.tensor(init)
    loop = trace(run, **options)
    loop(given, mgb.tensor(xs))
    return loop(given, mgb.tensor(xs))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("length", "reverse"), [(16, True), (41, False)])
def test_long_loops_match_numpy(name: str, length: int, reverse: bool) -> None:
    body, init = BODIES[name]
    xs = (R.normal(size=(length, 7)) * 0.1).astype(np.float32)
    last, rows = traced(body, init, xs, reverse)
    with np.errstate(over="ignore"):
        wanted, columns = by_numpy(body, init, xs, reverse)
    for found, true in zip([*leaves(last), *leaves(rows)], [*leaves(wanted), *columns], strict=True):
        np.testing.assert_allclose(found.numpy(), true, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["pad", "stays", "wave", "rolls", "registers", "integers", "product"])
def test_native_loop_runs_no_python_between_iterations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is given all of a turn; where it takes it, nothing is left for Python."""
    if type(load_backend("cpu_llvm")).repeat is mgb.backend.Backend.repeat:
        pytest.skip("CPU_LLVM has no loops in native code")
    monkeypatch.setattr(turns, "_in_turn", None)
    given: list[int] = []
    prepared = turns.Turns.prepared

    def noting(self: Any, *args: Any) -> Any:
        given.append(1)
        return prepared(self, *args)

    monkeypatch.setattr(turns.Turns, "prepared", noting)
    body, init = BODIES[name]
    traced(body, init, np.ones((20, 7), np.float32), False, backend="CPU_LLVM")
    assert given


def test_exception_inside_a_loop_iteration_propagates() -> None:
    from mgb.functional import gather

    def body(carry: Any, x: Any) -> Any:
        return carry + gather(carry, 0, (x + carry * 0).astype("int32")), carry

    loop = trace(lambda c, xs: scan(body, c, xs)[0], symbolic=True)
    start, xs = mgb.tensor(np.zeros(3)), np.zeros(30)
    loop(start, mgb.tensor(xs))
    xs[25] = 7
    with pytest.raises(IndexError):
        loop(start, mgb.tensor(xs))


@pytest.mark.parametrize("name", ["heat", "edges", "rolls", "wave"])
def test_large_stencil_loops_match_numpy(name: str) -> None:
    body, start = BODIES[name][0], R.normal(size=(420, 430)).astype(np.float32)
    init = (start, start * 0.5) if name == "wave" else start
    ones = np.ones(7, np.float32)
    given = tuple(map(mgb.tensor, init)) if name == "wave" else mgb.tensor(init)
    last = trace(lambda u: fori_loop(0, 17, lambda _, v: body(np, v, ones)[0], u), symbolic=True)(given)
    wanted, _ = by_numpy(body, init, np.ones((17, 7), np.float32), False)
    for found, true in zip(leaves(last), leaves(wanted), strict=True):
        np.testing.assert_allclose(found.numpy(), true, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(600, 1100), (900_000,)])
def test_loops_over_large_arrays_match_numpy(shape: tuple[int, ...]) -> None:
    """With rows in and out, an operand that is the same for all, and one for each column."""
    start = R.normal(size=shape).astype(np.float32)
    column = R.normal(size=shape[1:]).astype(np.float32)
    xs = R.normal(size=(18, 1)).astype(np.float32)

    def body(m: Any, c: Any, x: Any) -> Any:
        a, b = c
        return (m.sin(a) + x * column, a * 0.5 + b), x

    last, _ = traced(body, (start, start * 2), xs, False)
    wanted, _ = by_numpy(body, (start, start * 2), xs, False)
    for found, true in zip(last, wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), true, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_loop_sees_updated_weights(dtype: str) -> None:
    """What is kept from call to call is where arrays lie, not what they hold."""
    w = mgb.Parameter(R.normal(size=(5, 5)) * 0.3, dtype=dtype)
    start = mgb.tensor(R.normal(size=(3, 5)), dtype=dtype)
    loop = trace(lambda u: fori_loop(0, 40, lambda _, v: np.tanh(v @ w.T + u @ w), u))
    for round in range(4):
        if round:
            w *= 0.5
        found = loop(start)
        u = wanted = start.numpy()
        for _ in range(40):
            wanted = np.tanh(wanted @ w.numpy().T + u @ w.numpy())
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-5)


def test_results_of_different_calls_do_not_alias() -> None:
    """Results that live on are not written by later calls, whose operands may lie at the same place."""
    loop = trace(lambda u: fori_loop(0, 30, lambda _, v: np.cos(v + u), u))
    found, wanted = [], []
    for k in range(8):
        u = np.full(6, k / 8, np.float32)
        found.append(loop(mgb.tensor(u)))
        v = u
        for _ in range(30):
            v = np.cos(v + u)
        wanted.append(v)
        if k == 4:
            del found[1:3], wanted[1:3]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-4)


@pytest.mark.parametrize("length", [64, 65, 203, 1000])
@pytest.mark.parametrize("backend", ["CPU_LLVM", "EAGER"])
def test_loops_of_short_steps_match_numpy(length: int, backend: str) -> None:
    rate = mgb.tensor(R.normal(size=3), dtype="float64")

    def step(m: Any, i: Any, u: Any, v: Any, rate: Any) -> Any:
        return m.cos(u) * 0.9 + v * rate + i * rate * 1e-3, u - v * 0.5

    loop = trace(
        lambda u, v: fori_loop(0, length, lambda i, c: step(np, i, *c, rate), (u, v)),
        backend=backend,
        symbolic=True,
    )
    u, v = R.normal(size=3), R.normal(size=(2, 3))
    start = [mgb.tensor(a, dtype="float64") for a in (np.broadcast_to(u, (2, 3)), v)]
    for _ in range(2):
        found = loop(*start)
    wanted = (np.broadcast_to(u, (2, 3)), v)
    for i in range(length):
        wanted = step(np, i, *wanted, rate.numpy())
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-12)
