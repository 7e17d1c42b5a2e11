"""The twins of `nets` in JAX: functions of a `Scope`, which finds arrays under the names of the parameters.

They have no constructor: what the arrays do not tell (strides, heads) is given by keyword.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


@dataclass
class Scope:
    """Arrays by name, and the running statistics that a forward pass leaves.

    Attributes
    ----------
    arrays : mapping of str to array
        Parameters and running statistics.
    left : dict of str to array
        The new running statistics.
    """

    arrays: Mapping[str, Array]
    left: dict[str, Array]

    def linear(self, name: str, x: Array) -> Array:
        """Return ``x @ weight.T + bias``."""
        return x @ self.arrays[f"{name}.weight"].T + self.arrays[f"{name}.bias"]

    def conv(self, name: str, x: Array, stride: int, padding: int, groups: int = 1) -> Array:
        """Return a convolution, with a bias if there is one."""
        out = lax.conv_general_dilated(
            x,
            self.arrays[f"{name}.weight"],
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=groups,
        )
        bias = self.arrays.get(f"{name}.bias")
        return out if bias is None else out + bias[:, None, None]

    def batch_norm(self, name: str, x: Array) -> Array:
        """Normalise by the batch; the running statistics follow it."""
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
        count = x.size // x.shape[1]
        for which, batch in (("mean", mean), ("var", variance * (count / (count - 1)))):
            key = f"{name}.running_{which}"
            self.left[key] = 0.9 * self.arrays[key] + 0.1 * lax.stop_gradient(batch)
        weight, bias = self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"]
        scale = lax.rsqrt(variance + 1e-5) * weight
        return (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]

    def layer_norm(self, name: str, x: Array) -> Array:
        """Normalise the last axis."""
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        weight, bias = self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"]
        return (x - mean) * lax.rsqrt(variance + 1e-5) * weight + bias

    def conv_norm(self, name: str, x: Array, stride: int = 1, groups: int = 1) -> Array:
        """See `nets.ConvNorm`."""
        kernel = self.arrays[f"{name}.conv.weight"].shape[-1]
        return self.batch_norm(f"{name}.norm", self.conv(f"{name}.conv", x, stride, kernel // 2, groups))


def max_pool(x: Array, kernel: int, stride: int) -> Array:
    """Return the largest element of each window."""
    window, steps = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, "VALID")


def MLP(scope: Scope, x: Array, *, widths: tuple[int, ...]) -> Array:
    """See `nets.MLP`."""
    for place in range(len(widths) - 2):
        x = jax.nn.relu(scope.linear(f"layers.{place}", x))
    return scope.linear(f"layers.{len(widths) - 2}", x)


def SmallConvNet(scope: Scope, x: Array, *, width: int, classes: int) -> Array:
    """See `nets.SmallConvNet`."""
    x = max_pool(jax.nn.relu(scope.conv("conv1", x, 1, 2)), 2, 2)
    x = max_pool(jax.nn.relu(scope.conv("conv2", x, 1, 0)), 2, 2)
    x = jax.nn.relu(scope.linear("fc1", x.reshape(len(x), -1)))
    return scope.linear("fc2", x)


def ResNet(scope: Scope, x: Array, *, width: int, blocks: tuple[int, ...], classes: int) -> Array:
    """See `nets.ResNet`."""
    x = jax.nn.relu(scope.conv_norm("stem", x))
    strides = [2 if stage and not place else 1 for stage, n in enumerate(blocks) for place in range(n)]
    for number, stride in enumerate(strides):
        name = f"blocks.{number}"
        around = x
        if f"{name}.shortcut.conv.weight" in scope.arrays:
            around = scope.conv_norm(f"{name}.shortcut", x, stride)
        inner = jax.nn.relu(scope.conv_norm(f"{name}.first", x, stride))
        x = jax.nn.relu(scope.conv_norm(f"{name}.second", inner) + around)
    return scope.linear("head", x.mean((2, 3)))


def MobileNet(
    scope: Scope, x: Array, *, width: int, blocks: tuple[tuple[int, int], ...], expansion: int, classes: int
) -> Array:
    """See `nets.MobileNet`."""
    x = jax.nn.relu6(scope.conv_norm("stem", x))
    for number, (outputs, stride) in enumerate(blocks):
        name, inputs = f"blocks.{number}", x
        out = jax.nn.relu6(scope.conv_norm(f"{name}.expand", x))
        out = jax.nn.relu6(scope.conv_norm(f"{name}.depthwise", out, stride, groups=out.shape[1]))
        x = scope.conv_norm(f"{name}.project", out)
        if stride == 1 and inputs.shape[1] == outputs:
            x = x + inputs
    return scope.linear("head", x.mean((2, 3)))


def Transformer(scope: Scope, x: Array, *, width: int, heads: int) -> Array:
    """See `nets.Transformer`."""
    normal = scope.layer_norm("norm1", x)
    q, k, v = (
        scope.linear(f"attention.{name}", normal).reshape(*x.shape[:2], heads, width // heads)
        for name in ("query", "key", "value")
    )
    attended = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
    x = x + scope.linear("attention.out", attended)
    inner = jax.nn.gelu(scope.linear("fc1", scope.layer_norm("norm2", x)), approximate=False)
    return x + scope.linear("fc2", inner)


def AlexNet(scope: Scope, x: Array, *, width: int, classes: int) -> Array:
    """See `nets.AlexNet`."""
    x = max_pool(jax.nn.relu(scope.conv("conv1", x, 4, 2)), 3, 2)
    x = max_pool(jax.nn.relu(scope.conv("conv2", x, 1, 2)), 3, 2)
    x = jax.nn.relu(scope.conv("conv3", x, 1, 1))
    x = jax.nn.relu(scope.conv("conv4", x, 1, 1))
    x = max_pool(jax.nn.relu(scope.conv("conv5", x, 1, 1)), 3, 2)
    x = jax.nn.relu(scope.linear("fc1", x.reshape(len(x), -1)))
    return scope.linear("fc3", jax.nn.relu(scope.linear("fc2", x)))
