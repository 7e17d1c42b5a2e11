"""Halide pipelines, scheduled by hand: ``schedule(*buffers) -> call``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays import Array, aligned_like

LANES = 16


def softmax(x: Array) -> Callable[[], Any]:
    """Spread rows over the cores; the exponentials of a row stay in cache; sums and maxima have lanes."""
    import halide as hl

    columns = x.shape[1]
    i, j, lane = hl.Var("i"), hl.Var("j"), hl.Var("lane")
    source = hl.Buffer(x)  # the first axis is the one that is contiguous
    block = hl.RDom([(0, LANES), (0, columns // LANES)])
    across = hl.RDom([(0, LANES)])
    tops, top, weight = hl.Func("tops"), hl.Func("top"), hl.Func("weight")
    totals, total, result = hl.Func("totals"), hl.Func("total"), hl.Func("result")
    tops[lane, i] = source[lane, i]
    tops[block.x, i] = hl.max(tops[block.x, i], source[block.x + LANES * block.y, i])
    top[i] = tops[0, i]
    top[i] = hl.max(top[i], tops[across.x, i])
    weight[j, i] = hl.exp(source[j, i] - top[i])
    totals[lane, i] = hl.f32(0)
    totals[block.x, i] += weight[block.x + LANES * block.y, i]
    total[i] = hl.f32(0)
    total[i] += totals[across.x, i]
    result[j, i] = weight[j, i] / total[i]
    result.vectorize(j, LANES).parallel(i)
    for lanes in (tops, totals):
        lanes.compute_at(result, i).vectorize(lane, LANES)
        lanes.update().vectorize(block.x, LANES)
    top.compute_at(result, i)
    total.compute_at(result, i)
    weight.compute_at(result, i).vectorize(j, LANES)
    result.compile_jit()
    out = aligned_like(x.shape, x.dtype)
    buffer = hl.Buffer(out)

    def call() -> Any:
        result.realize(buffer)
        return out

    return call
