"""The training step in JAX: one jitted function, whose old parameters are donated to the new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import jax_nets
from .workload import Workload

Array = Any
Arrays = dict[str, Array]


def _loss(workload: Workload, params: Arrays, running: Arrays, x: Array, y: Array) -> tuple[Array, Arrays]:
    """Return the loss, and the running statistics after it."""
    scope = jax_nets.Scope({**params, **running}, {})
    out = getattr(jax_nets, workload.net)(scope, x, **workload.sizes)
    if workload.loss == "square":
        return jnp.square(out - y).mean(), scope.left
    picked = jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1)
    return -picked.mean(), scope.left


def _sgd(workload: Workload, p: Array, g: Array, state: Arrays) -> tuple[Array, Arrays]:
    velocity = 0.9 * state["velocity"] + g + workload.weight_decay * p
    return p - workload.lr * velocity, {"velocity": velocity}


def _adam(workload: Workload, p: Array, g: Array, state: Arrays) -> tuple[Array, Arrays]:
    step = state["step"] + 1
    if workload.optimizer == "Adam":
        g = g + workload.weight_decay * p
    mean = 0.9 * state["mean"] + 0.1 * g
    square = 0.999 * state["square"] + 0.001 * g * g
    delta = mean / (1 - 0.9**step) / (jnp.sqrt(square / (1 - 0.999**step)) + 1e-8)
    if workload.optimizer == "AdamW":
        delta = delta + workload.weight_decay * p
    return p - workload.lr * delta, {"step": step, "mean": mean, "square": square}


def _new_state(workload: Workload, p: Array) -> Arrays:
    if workload.optimizer == "SGD":
        return {"velocity": jnp.zeros_like(p)}
    return {"step": jnp.zeros(()), "mean": jnp.zeros_like(p), "square": jnp.zeros_like(p)}


def make(workload: Workload, weights: Mapping[str, np.ndarray[Any, Any]]) -> Callable[[], Array]:
    """Return a function that takes one step on the workload's batch and returns the loss before it."""
    arrays = {name: jnp.array(array) for name, array in weights.items()}
    running = {name: a for name, a in arrays.items() if "running_" in name}
    params = {name: a for name, a in arrays.items() if name not in running}
    states = {name: _new_state(workload, p) for name, p in params.items()}
    update = _sgd if workload.optimizer == "SGD" else _adam
    x, y = map(jnp.asarray, workload.data())

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params: Arrays, running: Arrays, states: dict[str, Arrays], x: Array, y: Array) -> Any:
        differentiated = jax.value_and_grad(partial(_loss, workload), has_aux=True)
        (loss, left), grads = differentiated(params, running, x, y)
        updated = {name: update(workload, p, grads[name], states[name]) for name, p in params.items()}
        new_params = {name: p for name, (p, _) in updated.items()}
        return loss, new_params, left, {name: state for name, (_, state) in updated.items()}

    current = [params, running, states]

    def call() -> Array:
        loss, *current[:] = step(*current, x, y)
        jax.block_until_ready(current)
        return loss

    return call
