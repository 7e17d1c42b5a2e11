"""The training step in PyTorch, eager and compiled, with PyTorch's own fused optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from . import torch_nets
from .workload import Workload

Array = np.ndarray[Any, Any]


def build(workload: Workload, weights: Mapping[str, Array]) -> torch.nn.Module:
    """Return the network with the given weights."""
    model: torch.nn.Module = getattr(torch_nets, workload.net)(**workload.sizes)
    with torch.no_grad():
        for name, target in (*model.named_parameters(), *model.named_buffers()):
            if name in weights:  # PyTorch counts batches too, which nothing reads
                target.copy_(torch.from_numpy(weights[name]).reshape(target.shape))
    return model


def optimizer(workload: Workload, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer of the parameters of `model`, in PyTorch's fastest form."""
    options = {"lr": workload.lr, "weight_decay": workload.weight_decay, "fused": True}
    if workload.optimizer == "SGD":
        return torch.optim.SGD(model.parameters(), momentum=0.9, **options)
    adam = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[workload.optimizer]
    return adam(model.parameters(), **options)


def batch(workload: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the workload's data; labels are int64, as PyTorch wants them."""
    x, y = (torch.from_numpy(array) for array in workload.data())
    return x, y.long() if workload.loss == "cross_entropy" else y


def make(
    workload: Workload, weights: Mapping[str, Array], compiled: bool = False
) -> Callable[[], torch.Tensor]:
    """Return a function that takes one step on the workload's batch and returns the loss before it.

    Forward and backward pass are one compiled function; the fused optimizer is one call of its own kernel,
    which compiling does not make faster.
    """
    model = build(workload, weights)
    update = optimizer(workload, model)
    compare = {"cross_entropy": F.cross_entropy, "square": F.mse_loss}[workload.loss]
    x, y = batch(workload)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return compare(model(x), y)

    run = torch.compile(forward) if compiled else forward

    def step() -> torch.Tensor:
        loss = run(x, y)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def gradients(workload: Workload, weights: Mapping[str, Array]) -> tuple[float, dict[str, Array]]:
    """Return the first loss, and its gradient for each parameter, computed in float64."""
    model = build(workload, weights).double()
    x, y = batch(workload)
    compare = {"cross_entropy": F.cross_entropy, "square": F.mse_loss}[workload.loss]
    loss = compare(model(x.double()), y.double() if workload.loss == "square" else y)
    loss.backward()
    return loss.item(), {name: p.grad.numpy() for name, p in model.named_parameters()}
