"""JAX, with its own functions where it has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def full_sum(x: Any) -> Any:
    return x.sum()


def row_sums(x: Any) -> Any:
    return x.sum(axis=1)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=1)


def log_softmax(x: Any) -> Any:
    return jax.nn.log_softmax(x, axis=1)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axis=1, keepdims=True) + 1e-5) * weight + bias


def rms_norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * weight


def batch_norm(x: Any, weight: Any, bias: Any, dout: Any) -> Any:
    def forward(x: Any, weight: Any, bias: Any) -> Any:
        mean = x.mean(axis=(0, 2), keepdims=True)
        scale = jax.lax.rsqrt(x.var(axis=(0, 2), keepdims=True) + 1e-5)
        return (x - mean) * scale * weight[:, None] + bias[:, None]

    out, pull = jax.vjp(forward, x, weight, bias)
    return out, *pull(dout)


def cross_entropy(x: Any, labels: Any) -> Any:
    def loss(x: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(x, axis=1), labels[:, None], axis=1).mean()

    return jax.value_and_grad(loss)(x)
