"""Max pooling and its gradient by mgb-onednn and by PyTorch: ``python -m mgb_bench.pool_parts``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import torch
from mgb.autodiff import GradManager
from mgb.functional import nn

from .measure import interleave

#: Images, windows, strides.
LAYERS = (((64, 16, 28, 28), 2, 2), ((4, 64, 55, 55), 3, 2))


def ours(image: Any, kernel: int, stride: int) -> dict[str, Callable[[], Any]]:
    """Forward, and forward with the gradient."""
    x = mgb.tensor(image)
    manager = GradManager()

    def forward() -> Any:
        return nn.max_pool2d(x, kernel, stride)

    seed = mgb.tensor(np.ones(forward().shape, np.float32))

    def both() -> Any:
        x.grad = None
        with manager.attach(x):
            manager.backward(forward(), seed)
        return x.grad

    return {"mgb, forward": forward, "mgb, forward and gradient": both}


def theirs(image: Any, kernel: int, stride: int) -> dict[str, Callable[[], Any]]:
    """The same, and the gradient alone: the winners of the forward pass are kept."""
    x = torch.from_numpy(image)
    aten = torch.ops.aten
    sizes = ([kernel] * 2, [stride] * 2, [0, 0], [1, 1], False)
    value, winners = aten.max_pool2d_with_indices(x, *sizes)
    seed = torch.ones_like(value)

    def forward() -> Any:
        return aten.max_pool2d_with_indices(x, *sizes)

    def gradient() -> Any:
        return aten.max_pool2d_with_indices_backward(seed, x, *sizes, winners)

    def both() -> Any:
        return aten.max_pool2d_with_indices_backward(seed, x, *sizes, forward()[1])

    return {
        "torch, forward": forward,
        "torch, gradient": gradient,
        "torch, forward and gradient": both,
    }


def main() -> None:
    """Print microseconds, fastest and median, after the gradients have been compared."""
    torch.set_grad_enabled(False)
    for shape, kernel, stride in LAYERS:
        image = np.random.default_rng(0).standard_normal(shape, np.float32)
        calls = ours(image, kernel, stride) | theirs(image, kernel, stride)
        mine, other = calls["mgb, forward and gradient"](), calls["torch, forward and gradient"]()
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)
        print(f"{'x'.join(map(str, shape))} by {kernel}x{kernel}, stride {stride}")
        timings = interleave(calls, seconds=2.0)
        for name, timing in timings.items():
            print(f"  {name:28}{timing.min * 1e6:9.0f}{timing.median * 1e6:9.0f}", flush=True)
        parts = (timings[f"mgb, forward{more}"] for more in (" and gradient", ""))
        whole, forward = (timing.min for timing in parts)
        print(f"  {'mgb, gradient: the rest':28}{(whole - forward) * 1e6:9.0f}")


if __name__ == "__main__":
    main()
