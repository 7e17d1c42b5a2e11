"""Loops and branches of other lengths: one record, and the values and gradients of JAX and torch."""

from __future__ import annotations

from typing import Any

import mgb
import mgb.functional as F
import mgb.jit as mjit
import mgb.module as M
import numpy as np
import pytest
from jax_loops import both, close, in_float64, jax, jnp, nested  # noqa: F401 - one is a fixture
from mgb.autodiff import GradManager
from mgb.jit import trace

#: Numbers of steps, of rows and of columns; the last are large enough for native turns, blocks and threads.
LENGTHS = [(6, 2, 3), (6, 2, 3), (70, 4, 3), (33, 2, 5)]
#: One row broadcasts where others do not.
ONES = (1, 1, 1)


def rnn(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = m.tanh(h @ w + x)
        return h, m.sin(h) * x

    last, ys = lax.scan(step, h, xs, reverse=True)
    return (ys**2).sum() + last.sum()


def lengths_in_the_body(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        n, h = carry
        place = m.arange(h.shape[1]) * 0.5
        h = m.concat([h[:, 1:], h[:, :1]], axis=1) / h.shape[0] + x.mean(axis=1, keepdims=True) + place
        return (n + h.size, h), h.sum()

    (n, h), sums = lax.scan(step, (0.0, h), xs)
    return n + (h * w[0]).sum() + (sums * sums).mean() * 1e-2


def as_many_steps_as_rows(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    turned = lax.fori_loop(1, xs.shape[0] + 1, lambda i, v: m.sin(v) + 0.25 * i, h)
    return (turned @ w).sum() + lax.fori_loop(0, w.shape[0], lambda i, v: v * 0.5, xs).sum()


def branches(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    shape = (h.shape[1], h.shape[0])
    return lax.cond(w[0, 0] > 0, lambda a: a.reshape(shape) @ a, lambda a: (a.T @ a) * a.shape[0], h).sum()


DIFFERENTIABLE = {f.__name__: f for f in (rnn, lengths_in_the_body, nested, as_many_steps_as_rows, branches)}


def growth(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def body(state: Any) -> Any:
        n, v = state
        return n + v.shape[0], v * 1.5 + m.abs(m.sin(v * w[0])) + 0.1

    n, v = lax.while_loop(lambda s: (s[1] ** 2).sum() < 300, body, (0, h))
    return n * v.sum()


def arrays(lengths: tuple[int, int, int]) -> list[Any]:
    steps, rows, columns = lengths
    r = np.random.default_rng(steps)
    shapes = (columns, columns), (rows, columns), (steps, rows, columns)
    return [r.normal(size=shape) * 0.5 for shape in shapes]


def tensors(lengths: tuple[int, int, int]) -> list[Any]:
    return [mgb.tensor(a, dtype="float64") for a in arrays(lengths)]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_gradients_match_jax_at_new_shapes(name: str) -> None:
    ours, theirs = both(DIFFERENTIABLE[name])
    step, judge = trace(mgb.value_and_grad(ours, (0, 1, 2))), jax.jit(jax.value_and_grad(theirs, (0, 1, 2)))
    for lengths in (*LENGTHS, ONES):
        value, grads = step(*tensors(lengths))
        close([value, *grads], judge(*arrays(lengths)))
        assert step.stats()["records"] <= 2 + (lengths == ONES)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True, "opt_level": 1}])
def test_while_loop_matches_jax_at_new_shapes(options: dict[str, Any]) -> None:
    ours, theirs = both(growth)
    step = trace(**options)(ours)
    for lengths in (*LENGTHS[1:], ONES):
        close([step(*tensors(lengths))], theirs(*arrays(lengths)))
        assert step.stats()["records"] <= 2 + (lengths == ONES)


def test_vmap_of_scan_does_not_retrace_at_new_shapes() -> None:
    ours, theirs = both(rnn)
    step = trace(lambda w, hs, xs: mgb.vmap(lambda h: ours(w, h, xs))(hs))
    for lengths in LENGTHS[1:]:
        w, h, xs = arrays(lengths)
        hs = np.stack([h, h + 1, h * 2])[: lengths[1]]
        given = [mgb.tensor(a, dtype="float64") for a in (w, hs, xs)]
        close([step(*given)], jax.vmap(lambda h, w=w, xs=xs: theirs(w, h, xs))(hs))
    assert step.stats()["records"] == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_match_torch_at_new_shapes(kind: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, kind)(5, 7, dtype=torch.float64)
    layer = getattr(M, kind)(5, 7).to("float64")
    mgb.utils.load_torch_state_dict(layer, theirs.state_dict())
    gm = GradManager().attach(layer.parameters())

    @trace
    def step(x: Any) -> Any:
        with gm:
            loss = (layer(x)[0] ** 2).mean()
            gm.backward(loss)
        return loss, [p.grad for p in layer.parameters()]

    shapes = [(20, batch) for batch in (3, 3, 1, 2, 4, 5, 6, 7, 8, 9, 32)] + [(16, 3), (45, 3)]
    for steps, batch in shapes:
        x = np.random.default_rng(batch).normal(size=(steps, batch, 5))
        theirs.zero_grad()
        loss = (theirs(torch.tensor(x))[0] ** 2).mean()
        loss.backward()
        for parameter in layer.parameters():
            parameter.grad = None
        ours, grads = step(mgb.tensor(x, dtype="float64"))
        np.testing.assert_allclose(ours.numpy(), loss.detach(), rtol=1e-9)
        for grad, wanted in zip(grads, theirs.parameters(), strict=True):
            np.testing.assert_allclose(grad.numpy(), wanted.grad, rtol=1e-7, atol=1e-9)
    assert step.stats()["records"] == 2


def test_length_absent_from_loop_operands_is_symbolic() -> None:
    step = trace(lambda x: mjit.fori_loop(0, x.shape[0], lambda i, v: v + F.ones(x.shape[1]).sum() * i, 1.0))
    for shape in [(2, 3), (2, 3), (40, 4), (1, 7), (100, 2)]:
        wanted = 1 + shape[1] * sum(range(shape[0]))
        assert step(mgb.tensor(np.zeros(shape))).item() == wanted
    assert step.stats()["records"] == 2


def test_blocked_steps_handle_the_remainder() -> None:
    step = trace(lambda x: mjit.fori_loop(0, x.shape[0], lambda i, v: v + v * 0.01, x[0]))
    for count in (100, 100, 101, 133, 64, 99):
        np.testing.assert_allclose(step(mgb.tensor(np.ones((count, 3)))).numpy(), 1.01**count, rtol=1e-5)
    assert step.stats()["records"] == 2


def test_values_saved_for_the_gradient_have_a_stable_order() -> None:
    """A body that runs at each call is matched against what was recorded, the order of what is kept too."""
    ours, theirs = both(nested)
    calls: list[int] = []

    @trace
    def step(*args: Any) -> Any:
        calls.append(1)
        return mgb.grad(ours, (0, 1, 2))(*args)

    wanted = jax.jit(jax.grad(theirs, (0, 1, 2)))(*arrays(LENGTHS[0]))
    for _ in range(4):
        close(step(*tensors(LENGTHS[0])), wanted)
    assert len(calls) == 4 and step.stats()["records"] == 1
