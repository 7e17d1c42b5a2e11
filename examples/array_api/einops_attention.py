"""Multi-head attention written with einops, as one program that runs without Python."""

import mgb
import numpy as np
from einops.array_api import rearrange
from mgb.jit import trace


def attention(x, weight, heads):
    """Self-attention of (batch, time, width); `weight` makes queries, keys and values of it."""
    xp = x.__array_namespace__()
    q, k, v = rearrange(x @ weight, "b t (three h d) -> three b h t d", three=3, h=heads)
    scores = q @ rearrange(k, "b h t d -> b h d t") * q.shape[-1] ** -0.5
    shares = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    shares = shares / xp.sum(shares, axis=-1, keepdims=True)
    return rearrange(shares @ v, "b h t d -> b t (h d)")


rng = np.random.default_rng(0)
x = rng.standard_normal((2, 6, 8), np.float32)
weight = rng.standard_normal((8, 24), np.float32)
traced = trace(attention)
for _ in range(3):
    found = traced(mgb.tensor(x), mgb.tensor(weight), heads=2)
np.testing.assert_allclose(found.numpy(), attention(x, weight, heads=2), rtol=1e-5, atol=1e-6)
stats = traced.stats()
print(f"{stats['calls']} calls, {stats['body_runs']} run of the body, {stats['programs']} program")
