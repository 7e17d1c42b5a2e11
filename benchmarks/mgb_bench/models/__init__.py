"""Whole training steps: each network in mgb, PyTorch and JAX, from the same weights, on the same batch.

| module | what it holds |
| --- | --- |
| `workload` | sizes, loss and optimizer of each step |
| `nets`, `torch_nets`, `jax_nets` | the networks |
| `mgb_step`, `torch_step`, `jax_step` | forward pass, backward pass and update as one function |

`workload`, `nets` and `mgb_step` need mgb alone; the others import their framework.
"""

from .workload import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload"]
