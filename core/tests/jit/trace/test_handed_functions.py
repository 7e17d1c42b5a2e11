"""Functions that a traced body hands to mgb's own are watched: the body is skipped, and never stale."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.jit import cond, fori_loop, scan, trace, while_loop

scale = 2.0


def loss(w: Tensor) -> Tensor:
    return (F.tanh(w * scale) ** 2).sum()


def with_power(power: int, w: Tensor) -> Tensor:
    return (w**power * scale).sum()


class Model:
    factor = 3.0

    def loss(self, w: Tensor) -> Tensor:
        return (w * w * self.factor * scale).sum()

    def __call__(self, w: Tensor) -> Tensor:
        return self.loss(w)


model = Model()
outside = mgb.grad(loss)
twice = mgb.grad(lambda w: mgb.grad(loss)(w).sum())

BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "grad": lambda x: mgb.grad(loss)(x),
    "grad made outside": lambda x: outside(x),
    "grad of grad": lambda x: twice(x),
    "of a method": lambda x: mgb.grad(model.loss)(x),
    "of a partial": lambda x: mgb.grad(functools.partial(with_power, 2))(x),
    "of an object": lambda x: mgb.grad(model)(x),
    "vmap": lambda x: mgb.vmap(loss)(x.reshape(2, 2)),
    "jacobian": lambda x: mgb.jacobian(lambda v: v * v * scale)(x),
    "hessian": lambda x: mgb.hessian(loss)(x),
    "jvp": lambda x: mgb.jvp(loss, (x,), (x,))[1],
    "fori_loop": lambda x: fori_loop(0, 5, lambda i, u: u + F.sin(u) * scale, x),
    "while_loop": lambda x: while_loop(lambda v: v.sum() < 100, lambda v: v * scale + 1, x),
    "cond": lambda x: cond(x.sum() > 0, lambda v: v * scale, lambda v: -v, x),
    "scan": lambda x: scan(lambda c, v: (c + v * scale, c), x.sum(), x)[1],
}


@pytest.mark.parametrize("name", BODIES)
def test_free_variables_of_functions_passed_to_transforms_are_guarded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = BODIES[name]
    traced = trace(body)
    x = mgb.tensor(np.arange(1, 5, dtype=np.float32))
    for value in (2.0, 2.0, 2.0, 3.0, 3.0):
        monkeypatch.setitem(globals(), "scale", value)
        np.testing.assert_allclose(traced(x).numpy(), body(x).numpy(), rtol=1e-5)
    assert traced.stats()["body_runs"] == 2, traced.stats()["reasons"]
    monkeypatch.setattr(Model, "factor", 5.0)
    np.testing.assert_allclose(traced(x).numpy(), body(x).numpy(), rtol=1e-5)
