"""Attention in blocks, and its gradient, against NumPy in float64."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.ops.declare import op_of
from mgb.ops.images import attention as core
from mgb.tensor import libraries
from mgb_onednn import library
from mgb_onednn.native import SPINS

PROBLEM = library.probe()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))

ATTENTION, GRADIENT = (op_of(f).eager for f in (core.attention, core.attention_grad))

SHAPES = {  # leading axes, queries, keys, width of both, width of the values
    "matrices": ((), 5, 5, 4, 3),
    "a stack": ((3,), 7, 9, 4, 4),
    "several blocks and a rest": ((2, 3), 130, 130, 16, 16),
    "fewer keys than queries": ((2, 3), 130, 70, 16, 8),
    "more keys than queries": ((2, 3), 70, 200, 8, 8),
    "two axes of images": ((2, 2, 3), 70, 70, 8, 8),
    "one query": ((2, 2), 1, 65, 8, 8),
    "several blocks of images": ((40, 4), 130, 256, 8, 8),
}


@pytest.fixture(autouse=True)
def only_onednn(monkeypatch):
    """No other library answers, and none remembers an answer."""
    monkeypatch.setenv("MGB_OP_LIBRARIES", "onednn")
    libraries.forget()
    yield
    monkeypatch.undo()
    libraries.forget()


def operands(lead, queries, keys, width, values, heads_inside=False):
    """q, k, v and a gradient of the output; with `heads_inside`, views of (..., places, heads, width)."""
    random = np.random.default_rng(0)
    shapes = (queries, width), (keys, width), (keys, values), (queries, values)
    arrays = [random.standard_normal((*lead, *shape)).astype(np.float32) for shape in shapes]
    if heads_inside and len(lead) > 1:
        arrays = [np.ascontiguousarray(a.swapaxes(-2, -3)).swapaxes(-2, -3) for a in arrays]
    return arrays


def expected(q, k, v, g, causal):
    """The output and the gradients of q, k and v, in float64."""
    q, k, v, g = (a.astype(np.float64) for a in (q, k, v, g))
    scores = q @ k.swapaxes(-1, -2)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return p @ v, ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


def unpacked(packed, q, k, v):
    """The three gradients in the vector that ``attention_grad`` gives."""
    parts = np.split(packed, np.cumsum([q.size, k.size]))
    for part, x in zip(parts, (q, k, v), strict=True):
        stored = x.swapaxes(-2, -3).shape if x.ndim > 2 else x.shape
        yield part.reshape(stored).swapaxes(-2, -3) if x.ndim > 2 else part.reshape(stored)


def near(actual, wanted):
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("heads_inside", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_attention_and_its_gradient_match_the_formula(shape, causal, heads_inside):
    q, k, v, g = operands(*shape, heads_inside)
    wanted = expected(q, k, v, g, causal)
    near(ATTENTION(q, k, v, causal=causal), wanted[0])
    got = unpacked(GRADIENT(g, q, k, v, causal=causal), q, k, v)
    for actual, want in zip(got, wanted[1:], strict=True):
        near(actual, want)


@pytest.mark.parametrize("causal", [False, True])
def test_numpy_rule_matches_the_formula(causal):
    q, k, v, g = (a.astype(np.float64) for a in operands((2, 3), 9, 7, 4, 5))
    wanted = expected(q, k, v, g, causal)
    np.testing.assert_allclose(ATTENTION(q, k, v, causal=causal), wanted[0], rtol=1e-12)
    got = unpacked(GRADIENT(g, q, k, v, causal=causal), q, k, v)
    for actual, want in zip(got, wanted[1:], strict=True):
        np.testing.assert_allclose(actual, want, rtol=1e-10, atol=1e-14)


def test_operands_of_any_layout_are_accepted():
    q, k, v, g = operands((2, 3), 9, 9, 4, 4)
    g = np.broadcast_to(np.float32(0.5), g.shape)
    q, k = np.asfortranarray(q), k[::-1]
    wanted = expected(q, k, v, g, True)
    near(ATTENTION(q, k, v, causal=True), wanted[0])
    for actual, want in zip(unpacked(GRADIENT(g, q, k, v, causal=True), q, k, v), wanted[1:], strict=True):
        near(actual, want)


@pytest.mark.filterwarnings("ignore:invalid value")  # of the formula
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_key_affects_only_queries_that_attend_to_it(bad):
    q, k, v, _ = operands((2, 3), 130, 130, 16, 16)
    k[0, 1, 100, 3] = bad
    out = ATTENTION(q, k, v, causal=True)
    np.testing.assert_array_equal(np.isnan(out).any(-1), np.isnan(expected(q, k, v, v, True)[0]).any(-1))
    near(out[0, 1, :100], expected(q, k, v, v, True)[0][0, 1, :100])


def test_large_scores_do_not_overflow():
    q, k, v, _ = operands((2, 3), 70, 70, 16, 16)
    wanted = expected(q * 100, k, v, v, True)[0]  # scores of 1000 have an error of 1e-4 in float32
    np.testing.assert_allclose(ATTENTION(q * 100, k, v, causal=True), wanted, rtol=1e-3, atol=1e-3)


def test_concurrent_calls_do_not_interfere():
    given = [operands((2, 3), 70, 70, 16, 16) for _ in range(4)]
    wanted = expected(*given[0], True)[0]
    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(lambda a: ATTENTION(*a[:3], causal=True), given * 8):
            near(out, wanted)


# what users call


def loss_and_gradients(arrays, dtype):
    tensors = [Tensor(a, dtype=dtype) for a in arrays[:3]]
    with GradManager().attach(tensors) as manager:
        out = F.scaled_dot_product_attention(*tensors, is_causal=True)
        manager.backward((out * Tensor(arrays[3], dtype=dtype)).sum())
    return [out.numpy(), *(t.grad.numpy() for t in tensors)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attention_uses_the_library_for_float32_only(dtype):
    arrays = operands((2, 3), 9, 9, 4, 4)
    q = arrays[0] * 0.5  # the scale: one over the root of the width
    o, dq, dk, dv = expected(q, *arrays[1:], True)
    for actual, want in zip(loss_and_gradients(arrays, dtype), (o, dq / 2, dk, dv), strict=True):
        near(actual, want)
    tensors = [Tensor(a, dtype=dtype) for a in arrays[:3]]
    assert core.is_served(*tensors, causal=True) == (dtype is np.float32)


def test_second_derivative_matches_finite_differences():
    def slope(dtype, step=0.0):
        q, k, v, g = operands((2,), 5, 5, 4, 4)
        h = np.random.default_rng(1).standard_normal(q.shape)
        q, k, v, g, h = (Tensor(a, dtype=dtype) for a in (q + step * h, k, v, g, h))
        with GradManager().attach([q]) as outer:
            with GradManager().attach([q]) as inner:
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                inner.backward((out * g).sum())
            first = (q.grad * h).sum()
            q.grad = None
            outer.backward(first)
        return first.item(), (q.grad * h).sum().item()

    step = 1e-5
    difference = (slope(np.float64, step)[0] - slope(np.float64, -step)[0]) / (2 * step)
    assert math.isclose(slope(np.float32)[1], difference, rel_tol=1e-3)


def test_traced_attention_module_is_correct_for_other_lengths():
    model = M.MultiHeadAttention(16, 4)
    traced = trace(lambda x: model(x, is_causal=True))
    weights = [p.numpy() for p in model.parameters()]
    assert all(w.dtype == np.float32 for w in weights)
    for length in (6, 6, 6, 9, 1):
        x = np.random.default_rng(length).standard_normal((2, length, 16)).astype(np.float32)
        hidden = Tensor(np.tri(length, dtype=bool))
        whole = model(Tensor(x), attn_mask=hidden).numpy()  # a mask is not served: weights in full
        near(traced(Tensor(x)).numpy(), whole)


def test_empty_batch_gives_an_empty_result():
    q, k, v = (Tensor(np.ones((0, 3, 4), np.float32)) for _ in range(3))
    assert F.scaled_dot_product_attention(q, k, v, is_causal=True).shape == (0, 3, 4)


# the runtime's threads

SPIN = "import os, mgb_onednn; mgb_onednn.library.probe(); print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_idle_threads_sleep_soon_unless_the_environment_overrides_it(given):
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = {**kept, **given, "OMP_DISPLAY_ENV": "VERBOSE"}
    run = subprocess.run([sys.executable, "-c", SPIN], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == given.get("GOMP_SPINCOUNT", "None")  # the environment is as it was
    spins = [line.split("'")[1] for line in run.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    if not given:
        assert spins == [str(SPINS)]
    if "GOMP_SPINCOUNT" in given:
        assert spins == ["7"]
