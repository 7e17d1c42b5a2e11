"""The training step in mgb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
from mgb.autodiff import GradManager
from mgb.jit import trace

from . import nets
from .workload import Workload

Array = np.ndarray[Any, Any]
LOSSES: dict[str, Callable[..., Any]] = {"cross_entropy": F.nn.cross_entropy, "square": F.nn.square_loss}


def build(workload: Workload, seed: int = 0) -> M.Module:
    """Return the network with its initial values, the same at every call."""
    mgb.random.seed(seed)
    model: M.Module = getattr(nets, workload.net)(**workload.sizes)
    return model


def weights(model: M.Module) -> dict[str, Array]:
    """Return parameters and running statistics in the shapes that other frameworks give them."""
    return {name: _portable(name, array) for name, array in model.state_dict().items()}


def _portable(name: str, array: Array) -> Array:
    """Return a value in portable shape: a bias has one axis, a weight of grouped windows four."""
    if name.endswith(".bias"):
        return array.reshape(-1)
    return array.reshape(-1, *array.shape[2:]) if array.ndim == 5 else array


def optimizer(workload: Workload, model: M.Module) -> optim.Optimizer:
    """Make the optimizer of the parameters of `model`."""
    parameters, decay = list(model.parameters()), workload.weight_decay
    if workload.optimizer == "SGD":
        return optim.SGD(parameters, lr=workload.lr, momentum=0.9, weight_decay=decay)
    adam = {"Adam": optim.Adam, "AdamW": optim.AdamW}[workload.optimizer]
    return adam(parameters, lr=workload.lr, weight_decay=decay)


def make(workload: Workload, **options: Any) -> Callable[[], Any]:
    """Return a function that takes one step on the workload's batch and returns the loss before it.

    Parameters
    ----------
    workload : Workload
    **options
        Of `mgb.jit.trace`, ``opt_level`` for one.
    """
    step, _ = make_with_model(workload, **options)
    return step


def make_with_model(workload: Workload, **options: Any) -> tuple[Callable[[], Any], M.Module]:
    """See `make`; the model too."""
    model = build(workload)
    update = optimizer(workload, model)
    manager = GradManager().attach(model.parameters())
    compare = LOSSES[workload.loss]
    x, y = map(mgb.tensor, workload.data())

    @trace(without_host=True, **options)
    def step(x: mgb.Tensor, y: mgb.Tensor) -> mgb.Tensor:
        with manager:
            loss = compare(model(x), y)
            manager.backward(loss)
            update.step().clear_grad()
        return loss

    def call() -> mgb.Tensor:
        return step(x, y)

    call.traced = step  # type: ignore[attr-defined]  # for whoever wants to look at it
    call.inputs = x, y  # type: ignore[attr-defined]
    return call, model


def gradients(workload: Workload) -> tuple[float, dict[str, Array]]:
    """Return the first loss, and its gradient for each parameter, in the shapes of `weights`."""
    model = build(workload)
    x, y = map(mgb.tensor, workload.data())
    with GradManager().attach(model.parameters()) as manager:
        loss = LOSSES[workload.loss](model(x), y)
        manager.backward(loss)
    grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return loss.item(), {name: _portable(name, grad.reshape(grad.shape)) for name, grad in grads.items()}
