"""`scan`, `while_loop`, `cond`, `fori_loop`: values and derivatives as those of `jax.lax` in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.jit as mjit
import numpy as np
import pytest
from jax_loops import both, close, in_float64, jax, jnp, nested  # noqa: F401 - one is a fixture
from mgb.autodiff import GradManager
from mgb.errors import LoopError, NoGradientError
from mgb.jit import trace

R = np.random.default_rng(5)
W, H, XS = R.normal(size=(3, 3)) * 0.5, R.normal(size=(2, 3)), R.normal(size=(6, 2, 3))


def rnn(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = m.tanh(h @ w + x)
        return h, m.sin(h) * x

    last, ys = lax.scan(step, h, xs)
    return (ys**2).sum() + last.sum()


def backwards(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    """Only the rows are wanted; a counter of integers and a value that never changes are carried, too."""

    def step(carry: Any, x: Any) -> Any:
        n, h, same = carry
        h = m.tanh(h * same["w"][0] + x) * n
        return (n + 1, h, same), {"y": h, "n": n}

    _, ys = lax.scan(step, (1, h, {"w": w}), xs, reverse=True)
    return (ys["y"] ** 2).sum() + (ys["n"] * xs[:, 0, 0]).sum()


def branches(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def power(k: int) -> Any:
        return lambda a, b: {"sum": (a**k).sum() + (b * w[k - 1]).sum(), "n": 1.0}

    out = lax.cond(w[0, 0] > 0, power(2), power(3), h, xs)
    return out["sum"] * out["n"]


def steps(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    return lax.fori_loop(2, 7, lambda i, v: m.sin(v) * xs[i - 2].sum() + v @ w, h).sum()


def nothing(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    last, ys = lax.scan(lambda h, x: (h @ w + x, h), h, xs[:0])
    return last.sum() + ys.sum() + lax.fori_loop(3, 1, lambda i, v: v * w, w).sum()


def long_way(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    return lax.scan(lambda v, _: (m.sin(v @ w), None), h, None, length=9)[0].sum()


SCANS = {f.__name__: f for f in (rnn, backwards, nested, branches, steps, nothing, long_way)}


def growth(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    """Steps until a norm is passed: how many depends on the values."""

    def body(state: Any) -> Any:
        n, v = state
        return n + 1, v * 1.5 + m.sin(v * w[0])

    n, v = lax.while_loop(lambda s: (s[1] ** 2).sum() < 300, body, (0, h))
    return n * v.sum()


def tensors() -> list[Any]:
    return [mgb.tensor(a, dtype="float64") for a in (W, H, XS)]


def arrays() -> tuple[Any, ...]:
    return tuple(jnp.array(a) for a in (W, H, XS))


def doubles(given: Any) -> list[Any]:
    return [mgb.tensor(a, dtype="float64") for a in given]


DIRECTIONS = [R.normal(size=a.shape) for a in (W, H, XS)]


@pytest.mark.parametrize("name", SCANS)
def test_derivatives_match_jax(name: str) -> None:
    ours, theirs = both(SCANS[name], np)
    every = jax.jit(lambda *a: (*jax.jvp(theirs, a, tuple(DIRECTIONS)), jax.grad(theirs, (0, 1, 2))(*a)))
    mine = mgb.jvp(ours, tensors(), doubles(DIRECTIONS)), mgb.grad(ours, (0, 1, 2))(*tensors())
    close([*mine[0], *mine[1]], every(*arrays()))
    close([ours(*tensors())], mine[0][0].numpy())


@pytest.mark.parametrize("name", ["branches", "steps"])
def test_second_derivatives_match_jax(name: str) -> None:
    ours, theirs = (lambda h, f=f, a=a: f(a[0], h, a[2]) for f, a in
                    zip(both(SCANS[name], np), (tensors(), arrays()), strict=True))  # fmt: skip
    squared = jax.grad(lambda h: (jax.grad(theirs)(h) ** 2).sum())
    mine = mgb.hessian(ours)(tensors()[1]), mgb.grad(lambda h: (mgb.grad(ours)(h) ** 2).sum())(tensors()[1])
    close(mine, jax.jit(lambda h: (jax.hessian(theirs)(h), squared(h)))(H))


def test_while_loop_supports_jvp_but_not_grad() -> None:
    ours, theirs = both(growth, np)
    close(mgb.jvp(ours, tensors(), doubles(DIRECTIONS)), jax.jvp(theirs, arrays(), tuple(DIRECTIONS)))
    with pytest.raises(NoGradientError, match=r"scan, or fori_loop"):
        mgb.grad(ours)(*tensors())


ROWS = R.normal(size=(4, 3))
#: Functions of `m`, `lax` and a vector, one of which `vmap` takes at once.
BATCHED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan": lambda m, lax, v: lax.scan(lambda c, x: (c * x + v[0], c * v), 1.5, v),
    "while": lambda m, lax, v: lax.while_loop(lambda s: s.sum() < 40, lambda s: s * 1.5 + 1, v * v),
    "cond": lambda m, lax, v: lax.cond(v[0] > 0, lambda v: v * v, lambda v: m.cos(v), v),
    "fori": lambda m, lax, v: lax.fori_loop(0, 4, lambda i, s: m.sin(s) * v + i, v),
    "grad": lambda m, lax, v: (mgb if m is np else jax).grad(
        lambda u: lax.scan(lambda c, x: (m.sin(c * x), None), u[1], u)[0]
    )(v),
}


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_matches_jax(name: str) -> None:
    ours = mgb.vmap(lambda v: BATCHED[name](np, mjit, v))(mgb.tensor(ROWS, dtype="float64"))
    theirs = jax.vmap(lambda v: BATCHED[name](jnp, jax.lax, v))(ROWS)
    close(ours if isinstance(ours, tuple) else [ours], theirs)


MODES = [
    *(({"opt_level": level}, "backwards") for level in range(4)),
    *(({option: True}, "nested") for option in ("run_body", "symbolic")),
    ({"backend": "EAGER"}, "branches"),
    ({}, "rnn"),
]


@pytest.mark.parametrize(("options", "name"), MODES, ids=str)
def test_traced_loops_match_eager(options: dict[str, Any], name: str) -> None:
    """Judged by eager code, which is judged above."""
    both_ways = mgb.value_and_grad(both(SCANS[name], np)[0], (0, 1, 2))
    traced, (wanted, gradients) = trace(both_ways, **options), both_ways(*tensors())
    for _ in range(3):
        value, found = traced(*tensors())
        close([value, *found], [t.numpy() for t in (wanted, *gradients)])


def test_traced_while_loop_matches_jax() -> None:
    traced = trace(lambda *a: growth(np, mjit, *a))
    for scale in (1.0, 1.0, 0.25, 100.0):
        given = [mgb.tensor(a, dtype="float64") for a in (W, H * scale, XS)]
        close([traced(*given)], growth(jnp, jax.lax, W, H * scale, XS))
    assert traced.stats()["body_runs"] == 1


def test_parameters_captured_by_a_loop_body_get_gradients() -> None:
    """Found by the body, in a layer: by a GradManager, traced and not, and by partial_trace."""
    layer = mgb.module.LSTMCell(4, 3)
    xs, start = mgb.tensor(R.normal(size=(5, 2, 4))), mgb.tensor(np.zeros((2, 3)))
    manager = GradManager().attach(layer.parameters())

    def loss(scanned: bool) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = layer(x, state)
            return state, state[0]

        if scanned:
            return (mjit.scan(step, (start, start), xs)[1] ** 2).sum()
        state, total = (start, start), 0.0
        for x in xs:
            state, h = step(state, x)
            total = total + (h**2).sum()
        return total

    def gradients(scanned: bool, of: Callable[[bool], Any] = loss) -> list[Any]:
        with manager:
            manager.backward(of(scanned))
        found = [p.grad for p in layer.parameters()]
        manager_clear(layer)
        return found

    wanted = [g.numpy() for g in gradients(False)]
    ways = (gradients, trace(gradients), lambda _: gradients(True, mjit.partial_trace(loss)))
    for way in ways:
        for _ in range(2):
            for found, other in zip(way(True), wanted, strict=True):
                np.testing.assert_allclose(found.numpy(), other, rtol=2e-5, atol=1e-6)


def manager_clear(layer: Any) -> None:
    for parameter in layer.parameters():
        parameter.grad = None


def test_xla_trace_of_scan_matches_jax() -> None:
    traced = mjit.xla_trace(lambda *a: SCANS["rnn"](np, mjit, *a))
    for _ in range(2):
        close([traced(*tensors())], rnn(jnp, jax.lax, *arrays()))


def test_loop_is_not_unrolled() -> None:
    """As many ops for 1,000 steps as for 2."""
    counts = []
    for length in (2, 1000):
        traced = trace(lambda x, n=length: mjit.fori_loop(0, n, lambda i, v: np.sin(v) + x, x), symbolic=True)
        traced(mgb.tensor(1.0))
        counts.append([len(program.recorded.nodes) for program in traced.programs()])
    assert counts[0] == counts[1]


def test_changed_free_variables_of_a_loop_body_take_effect() -> None:
    """A global that a body reads is guarded; a Tensor outside is live; a length is another record."""
    scale = {"k": 2.0}
    bias = mgb.tensor([1.0, 2.0])

    def step(c: Any, x: Any) -> Any:
        return c * scale["k"] + x * bias, c.sum()

    traced = trace(lambda xs: mjit.scan(step, bias, xs))

    def check(xs: np.ndarray[Any, Any]) -> None:
        c, ys = bias.numpy(), []
        for x in xs:
            ys.append(c.sum())
            c = c * scale["k"] + x * bias.numpy()
        last, rows = traced(mgb.tensor(xs))
        np.testing.assert_allclose(last.numpy(), c, rtol=1e-5)
        np.testing.assert_allclose(rows.numpy(), ys, rtol=1e-5)

    for _ in range(2):
        check(R.normal(size=(3, 2)).astype(np.float32))
    scale["k"] = 3.0
    check(R.normal(size=(3, 2)).astype(np.float32))
    bias[0] = 5.0
    check(R.normal(size=(3, 2)).astype(np.float32))
    check(R.normal(size=(5, 2)).astype(np.float32))


def test_python_numbers_in_the_carry_take_the_step_dtype() -> None:
    last, ys = mjit.scan(lambda c, x: (c + x, {"a": c, "none": None}), 0, mgb.tensor([1.5, 2.0]))
    assert last.dtype == np.float32 and ys["none"] is None
    np.testing.assert_allclose(ys["a"].numpy(), [0, 1.5])
    assert mjit.cond(True, lambda x: 0, lambda x: x, mgb.tensor(2.5)).dtype == np.float32


def leaky(c: Any, x: Any) -> Any:
    SEEN.append(c)
    return c, x


SEEN: list[Any] = []
X = mgb.tensor([1.0, 2.0])
BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: mjit.scan(leaky, 0.0, X), r"calls list\.append .* at .*test_loops\.py:\d+; .* scan"),
    (lambda: mjit.scan(lambda c, x: (c if c > 0 else x, x), 0.0, X), r"reads a value .*test_loops"),
    (lambda: mjit.scan(lambda c, x: (c + mgb.random.normal(size=()), x), 0.0, X), "draw random numbers"),
    (lambda: mjit.scan(lambda c, x: ({"h": c["h"][None]}, x), {"h": X}, X),
     r"carry\['h'\] changes its type .* float32\[2\] and leaves as float32\[1,2\]"),
    (lambda: mjit.scan(lambda c, x: (c.astype("float16"), x), X, X), r"leaves as float16\[2\]"),
    (lambda: mjit.scan(lambda c, x: ([c], x), X, X), r"nested otherwise than init: \[\*\] instead of \*"),
    (lambda: mjit.scan(lambda c, x: c, X, X), r"not a pair \(carry, y\)"),
    (lambda: mjit.scan(lambda c, x: (c, x), X, {"a": X, "b": X[:1]}), r"xs\['a'\] has 2, xs\['b'\] has 1"),
    (lambda: mjit.scan(lambda c, x: (c, x), X, X, length=3), "xs has 2, length has 3"),
    (lambda: mjit.scan(lambda c, x: (c, x), X), "give xs or length"),
    (lambda: mjit.scan(lambda c, x: (c, x), X, mgb.tensor(1.0)), "must have at least one axis"),
    (lambda: mjit.scan(lambda c, x: (c, "text"), X, X), "which is not an array"),
    (lambda: mjit.while_loop(lambda c: c, lambda c: c, X), r"cond_fun gives float32\[2\], not one Boolean"),
    (lambda: mjit.cond(X, lambda: X, lambda: X), "not one Boolean: use where"),
    (lambda: mjit.cond(True, lambda x: x[None], lambda x: x, X), r"true_fun is float32\[1,2\], the result"),
    (lambda: mjit.cond(True, lambda x: [x], lambda x: x, X), "return the same"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
@pytest.mark.parametrize("traced", [False, True])
def test_invalid_loops_raise_loop_error(call: Callable[[], Any], message: str, traced: bool) -> None:
    SEEN.clear()
    with pytest.raises(LoopError, match=message):
        (trace(call) if traced else call)()


@pytest.mark.parametrize("bound", [False, True])
def test_fori_loop_accepts_tensor_bounds(bound: bool) -> None:
    def of(lower: Any, upper: Any) -> Any:
        return mjit.fori_loop(lower, upper, lambda i, v: v * 2 + i, 1)

    run = trace(of) if bound else of
    for lower, upper in ((0, 5), (-2, 3), (3, 1)):
        found = run(mgb.tensor(lower), mgb.tensor(upper))
        assert found.item() == jax.lax.fori_loop(lower, upper, lambda i, v: v * 2 + i, 1)


def test_fori_loop_errors_name_the_function() -> None:
    wide = mgb.tensor(np.ones((4, 3)), dtype="float64")
    with pytest.raises(
        LoopError, match=r"array of float64, .* float32 .* mgb\.tensor\(array, dtype='float64'\)"
    ):
        mjit.scan(lambda c, x: (c + x, None), np.zeros(3), wide)
    with pytest.raises(LoopError, match=r"fori_loop: .* changes its type in the body"):
        mjit.fori_loop(0, 3, lambda i, c: mgb.functional.concat([c, c]), mgb.tensor([1.0]))
    with pytest.raises(LoopError, match="fori_loop: the body reads a value"):
        mjit.fori_loop(0, 3, lambda i, c: c + 1 if c > 0 else c, mgb.tensor([1.0]))
