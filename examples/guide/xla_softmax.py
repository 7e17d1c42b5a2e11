"""`xla_trace` on a function of Tensors: the softmax of 256 matrices, or of as many as are asked for."""

import sys

import mgb as mge
import mgb.functional as F
import numpy as np
from mgb.jit import xla_trace


def softmax(inp):
    offset = inp.max(axis=-1, keepdims=True).detach()
    cached = F.exp(inp - offset)
    down = F.sum(cached, axis=-1, keepdims=True)
    return cached / down


@xla_trace
def xla_fused_softmax(inp):
    offset = inp.max(axis=-1, keepdims=True).detach()
    cached = F.exp(inp - offset)
    down = F.sum(cached, axis=-1, keepdims=True)
    return cached / down


count = int(sys.argv[1]) if len(sys.argv) > 1 else 256
inp = mge.tensor(np.random.randn(count, 1000, 1000))
xla_fused_softmax(inp)  # records the sequence of ops, and compiles it
print(softmax(inp))
print(xla_fused_softmax(inp))  # runs what was compiled
np.testing.assert_allclose(xla_fused_softmax(inp).numpy(), softmax(inp).numpy(), rtol=1e-5)
