"""Each peer's call for one step of an optimizer over parameters and gradients that are given.

Every function here takes the optimizer's name and gives a `Stateful`, whose arrays are all the parameters and
then all the gradients, and whose call returns the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, Arrays
from ..case import Stateful
from .update_rules import BETA1, BETA2, DECAY, EPSILON, LR, MOMENTUM, STATES, in_place, loop, pure

#: Up to so many elements one core is quicker alone.
SERIAL = 1 << 16


def halves(values: Any) -> tuple[list[Any], list[Any]]:
    """Return the parameters and the gradients."""
    every = list(values)
    return every[: len(every) // 2], every[len(every) // 2 :]


def truth(name: str, steps: int) -> Callable[..., Any]:
    """Return the parameters after so many steps, in the dtype of the arrays, in NumPy."""
    rule = pure(name, np)

    def run(*arrays: Array) -> tuple[Array, ...]:
        out = []
        for p, g in zip(*halves(arrays), strict=True):
            states: tuple[Any, ...] = (np.zeros_like(p),) * STATES[name]
            for t in range(1, steps + 1):
                p, *rest = rule(p, g, t, *states)
                states = tuple(rest)
            out.append(p)
        return tuple(out)

    return run


def with_mgb(name: str) -> Stateful:
    """Return `mgb.optimizer` in a traced step that takes the gradients."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        import mgb
        from mgb import optimizer as optim

        values, given = halves(arrays)
        params, grads = [mgb.Parameter(value) for value in values], [peer.put(g) for g in given]
        decay = {"weight_decay": DECAY[name]} if DECAY[name] else {}
        more = {"momentum": MOMENTUM} if name == "SGD" else {"betas": (BETA1, BETA2), "eps": EPSILON}
        optimizer = getattr(optim, name)(params, lr=LR, **more, **decay)

        def step(*grads: Any) -> None:
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad
            optimizer.step().clear_grad()

        traced = peer.trace(step)

        def call() -> Any:
            traced(*grads)
            return params

        return call

    return Stateful(build)


def with_numpy(name: str) -> Stateful:
    """Update in place, with two arrays to work in."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        params, grads = halves(arrays)
        params, rule, count = [p.copy() for p in params], in_place(name), 0
        jobs = [
            (p, g, (np.empty_like(p), np.empty_like(p)), *(np.zeros_like(p) for _ in range(STATES[name])))
            for p, g in zip(params, grads, strict=True)
        ]

        def call() -> Any:
            nonlocal count
            count += 1
            for p, g, room, *states in jobs:
                rule(p, g, count, room, *states)
            return params

        return call

    return Stateful(build)


def with_numba(name: str) -> Stateful:
    """Run one loop for each tensor; over all cores where the tensor is large."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        params, grads = halves(arrays)
        params, count = [p.copy() for p in params], 0
        rules = {parallel: peer.loop(loop(name), parallel) for parallel in (False, True)}
        jobs = [
            (
                rules[p.size > SERIAL],
                p.ravel(),
                g.ravel(),
                [np.zeros(p.size, p.dtype) for _ in range(STATES[name])],
            )
            for p, g in zip(params, grads, strict=True)
        ]

        def call() -> Any:
            nonlocal count
            count += 1
            for rule, p, g, states in jobs:
                rule(p, g, count, *states)
            return params

        return call

    return Stateful(build)


def with_jax(name: str) -> Stateful:
    """Run one jitted function over all tensors, which donates the parameters and the states."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        import jax
        import jax.numpy as jnp

        rule = pure(name, jnp)

        def update(held: Any, grads: Any, t: Any) -> Any:
            t = t + 1
            return [rule(p, g, t, *states) for (p, *states), g in zip(held, grads, strict=True)], t

        jitted = jax.jit(update, donate_argnums=(0, 2))
        params, grads = halves(arrays)
        grads = [peer.put(g) for g in grads]
        held = [(jnp.array(p), *(jnp.zeros_like(p) for _ in range(STATES[name]))) for p in params]
        t = jnp.float32(0)

        def call() -> Any:
            nonlocal held, t
            held, t = jitted(held, grads, t)
            jax.block_until_ready(held)
            return [p for p, *_ in held]

        return call

    return Stateful(build)


def with_torch(name: str, **form: bool) -> Stateful:
    """Return `torch.optim` in the `form` given: ``fused=True`` or ``foreach=True``."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        import torch

        values, given = halves(arrays)
        params = [torch.nn.Parameter(peer.put(value.copy())) for value in values]
        for param, grad in zip(params, given, strict=True):
            param.grad = peer.put(grad)
        more = {"momentum": MOMENTUM} if name == "SGD" else {"betas": (BETA1, BETA2), "eps": EPSILON}
        optimizer = getattr(torch.optim, name)(params, lr=LR, weight_decay=DECAY[name], **more, **form)

        def call() -> Any:
            optimizer.step()
            return params

        return call

    return Stateful(build)


def lamb_with_torch() -> Stateful:
    """Run LAMB, which PyTorch lacks, by its foreach functions, as its own optimizers use them."""

    def build(peer: Any, arrays: Arrays) -> Callable[[], Any]:
        import torch

        values, given = halves(arrays)
        params, grads = [peer.put(v.copy()) for v in values], [peer.put(g) for g in given]
        means, squares = ([torch.zeros_like(p) for p in params] for _ in range(2))
        count = 0

        def call() -> Any:
            nonlocal count
            count += 1
            torch._foreach_lerp_(means, grads, 1 - BETA1)
            torch._foreach_mul_(squares, BETA2)
            torch._foreach_addcmul_(squares, grads, grads, 1 - BETA2)
            steps = torch._foreach_div(squares, 1 - BETA2**count)
            torch._foreach_sqrt_(steps)
            torch._foreach_add_(steps, EPSILON)
            torch._foreach_mul_(steps, 1 - BETA1**count)
            steps = torch._foreach_div(means, steps)
            torch._foreach_add_(steps, params, alpha=DECAY["LAMB"])
            rates = torch._foreach_div(torch._foreach_norm(params), torch._foreach_norm(steps))
            torch._foreach_mul_(rates, -LR)
            torch._foreach_mul_(steps, rates)
            torch._foreach_add_(params, steps)
            return params

        return call

    return Stateful(build)


def ways(name: str) -> dict[str, Any]:
    """Return the ways by peer; PyTorch's compiler has none: its optimizers are already whole kernels."""
    torch_ways = (
        {"torch": lamb_with_torch()}
        if name == "LAMB"
        else {"torch": with_torch(name, fused=True), "torch_foreach": with_torch(name, foreach=True)}
    )
    return {
        "mgb": with_mgb(name),
        "numpy": with_numpy(name),
        "numba": with_numba(name),
        "jax": with_jax(name),
        "torch_compile": None,
        **torch_ways,
    }
