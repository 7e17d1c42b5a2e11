"""Workloads that are not one loop: index maps, scans, segments, folds, thin products and trigonometry.

Each is a function ``f(words, *arrays)``, written once; `WORDS` has the functions of every library by the same
names. NumPy's are the truth too, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

# index maps


def planes(w: Any, pixels: Any) -> Any:
    """Return image bytes, channels last, as normalized float planes."""
    return (w.cast(w.transpose(pixels, (0, 3, 1, 2))) / 255.0 - 0.45) / 0.22


def rotary(w: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Rotate pairs of neighbours by angles."""
    a, b = x[..., 0::2], x[..., 1::2]
    return w.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def complex_product(w: Any, x: Any, y: Any) -> Any:
    a, b, c, d = x[:, 0], x[:, 1], y[:, 0], y[:, 1]
    return w.stack([a * c - b * d, a * d + b * c], 1)


def plus_transpose(w: Any, x: Any, y: Any) -> Any:
    return x + y.T


def mirrored_mean(w: Any, x: Any) -> Any:
    """Average four neighbours in images, mirrored at their borders."""
    p = w.mirrored(x)
    return 0.25 * (p[..., :-2, 1:-1] + p[..., 2:, 1:-1] + p[..., 1:-1, :-2] + p[..., 1:-1, 2:])


def shuffled(w: Any, x: Any, y: Any) -> Any:
    """Join the channels of two branches, interleave and halve them."""
    n, c, *image = x.shape
    z = w.transpose(w.concat([x, w.relu(y)], 1).reshape((n, 2, c, *image)), (0, 2, 1, 3, 4))
    z = z.reshape((n, 2 * c, *image))
    return z[:, :c] * 0.5, z[:, c:] + 1.0


def patches(w: Any, x: Any) -> Any:
    """Return patches of 16 x 16 pixels as rows, normalized."""
    n, c, height, width = x.shape
    z = x.reshape((n, c, height // 16, 16, width // 16, 16))
    return w.transpose(z, (0, 2, 4, 3, 5, 1)).reshape((n, -1, 256 * c)) * 0.25 - 0.5


# scans


def paths(w: Any, steps: Any) -> Any:
    return w.exp(w.cumsum(steps * 0.01, 1))


def box_filter(w: Any, x: Any) -> Any:
    total = w.cumsum(x, 1)
    return (total[:, 16:] - total[:, :-16]) / 16.0


def drawdown(w: Any, x: Any) -> Any:
    return 1.0 - x / w.cummax(x, 1)


# gathers, scatters and segments


def coloured(w: Any, table: Any, pixels: Any) -> Any:
    return table[w.places(pixels)] * 2.0 + 1.0


def embedding_bag(w: Any, table: Any, words: Any) -> Any:
    return table[words].sum(1)


def segment_means(w: Any, values: Any, ids: Any) -> Any:
    """Average squares by sorted ids, of which there are 4,096."""
    return w.segment_sum(values * values, ids, 4096) / (w.segment_sum(values * 0 + 1.0, ids, 4096) + 1e-6)


def pair_forces(w: Any, points: Any, pairs: Any) -> Any:
    d = points[pairs[:, 0]] - points[pairs[:, 1]]
    r = (d * d).sum(1) + 0.1
    return d * (1.0 / (r * r * r))[:, None]


# folds


def confident(w: Any, x: Any) -> Any:
    """Return the most likely class of each row, and how likely it is."""
    return w.argmax(x, 1), 1.0 / w.exp(x - w.max(x, 1)[:, None]).sum(1)


def column_logsumexp(w: Any, x: Any) -> Any:
    top = w.max(x, 0)
    return w.log(w.exp(x - top).sum(0)) + top


def standardized(w: Any, x: Any) -> Any:
    d = x - x.mean(0)
    return d / w.sqrt((d * d).mean(0) + 1e-5)


# products


def logistic_gradient(w: Any, x: Any, y: Any, weights: Any) -> Any:
    return x.T @ (1.0 / (1.0 + w.exp(-(x @ weights))) - y) / x.shape[0]


def gemver(w: Any, a: Any, u: Any, v: Any, x: Any, y: Any) -> Any:
    """Add a product of two vectors to a matrix, and multiply it by vectors from both sides."""
    a = a + u[:, None] * v[None, :]
    z = 0.02 * (a.T @ y) + x
    return a, z, 0.03 * (a @ z)


def small_products(w: Any, x: Any, y: Any) -> Any:
    return x @ y + 1.0


# trigonometry


def great_circle(w: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    h = w.sin((c - a) * 0.5) ** 2 + w.cos(a) * w.cos(c) * w.sin((d - b) * 0.5) ** 2
    return 2.0 * w.asin(w.sqrt(h))


# the words of each library


def numpy_words() -> Any:
    """Return NumPy's functions, of float32 or of float64."""

    def segment_sum(values: Any, ids: Any, count: int) -> Any:
        return np.bincount(ids, values, count).astype(values.dtype)

    return SimpleNamespace(
        transpose=np.transpose, stack=np.stack, concat=np.concatenate, cumsum=np.cumsum, exp=np.exp,
        log=np.log, sqrt=np.sqrt, sin=np.sin, cos=np.cos, asin=np.arcsin, argmax=np.argmax, max=np.max,
        cummax=np.maximum.accumulate, relu=lambda x: np.maximum(x, 0), cast=lambda x: x.astype(np.float32),
        places=lambda x: x, segment_sum=segment_sum,
        mirrored=lambda x: np.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect"),
    )  # fmt: skip


def mgb_words() -> Any:
    """Return the functions of mgb."""
    import mgb.functional as F

    return SimpleNamespace(
        transpose=F.transpose, stack=F.stack, concat=F.concat, cumsum=F.cumsum, exp=F.exp, log=F.log,
        sqrt=F.sqrt, sin=F.sin, cos=F.cos, asin=F.asin, argmax=F.argmax, max=F.max,
        cummax=lambda x, axis: F.cummax(x, axis)[0], relu=F.relu, cast=lambda x: x.astype("float32"),
        places=lambda x: x.astype("int32"), segment_sum=F.segment_sum,
        mirrored=lambda x: F.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect"),
    )  # fmt: skip


def jax_words() -> Any:
    """Return the functions of JAX."""
    import jax
    import jax.numpy as jnp

    return SimpleNamespace(
        transpose=jnp.transpose, stack=jnp.stack, concat=jnp.concatenate, cumsum=jnp.cumsum, exp=jnp.exp,
        log=jnp.log, sqrt=jnp.sqrt, sin=jnp.sin, cos=jnp.cos, asin=jnp.arcsin, argmax=jnp.argmax, max=jnp.max,
        cummax=jax.lax.cummax, relu=jax.nn.relu, cast=lambda x: x.astype(jnp.float32),
        places=lambda x: x.astype(jnp.int32), segment_sum=jax.ops.segment_sum,
        mirrored=lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect"),
    )  # fmt: skip


def torch_words() -> Any:
    """Return the functions of PyTorch."""
    import torch

    def segment_sum(values: Any, ids: Any, count: int) -> Any:
        return torch.zeros(count, dtype=values.dtype).index_add(0, ids, values)

    return SimpleNamespace(
        transpose=torch.permute, stack=torch.stack, concat=torch.cat, cumsum=torch.cumsum, exp=torch.exp,
        log=torch.log, sqrt=torch.sqrt, sin=torch.sin, cos=torch.cos, asin=torch.asin, argmax=torch.argmax,
        max=torch.amax, cummax=lambda x, axis: torch.cummax(x, axis)[0], relu=torch.relu,
        cast=lambda x: x.float(), places=lambda x: x.int(), segment_sum=segment_sum,
        mirrored=lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    )  # fmt: skip


WORDS: dict[str, Callable[[], Any]] = {
    "numpy": numpy_words, "mgb": mgb_words, "jax": jax_words, "torch": torch_words,
}  # fmt: skip
