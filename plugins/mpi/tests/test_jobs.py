"""Real processes over loopback: values against NumPy, order, gradients, training, launchers."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import mgb
import mgb.distributed as dist
import numpy as np
import pytest
from mgb.distributed.errors import RankFailedError
from mgb_conformance.jobs import job

#: What all of these programs can call.
SAY = """
def say(name):
    dist.group_barrier()
    if r == 0:
        print("done", name, "on all", n, flush=True)
"""

VALUES = """
for dt in map(str, mgb.dtypes.DTYPES):
    every = [((np.arange(2 * n).reshape(n, 2) + k) % 3).astype(mgb.dtypes.as_dtype(dt)) for k in range(n)]
    x = mgb.tensor(every[r], dtype=dt)
    total = np.sum([e.astype("f8") for e in every], 0) if dt != "bool" else np.any(every, 0)
    def same(found, wanted):
        assert str(found.dtype) == dt and found.shape == wanted.shape, (dt, found.dtype)
        np.testing.assert_array_equal(found.numpy().astype("f8"), np.asarray(wanted).astype("f8"))
    same(D.all_reduce_sum(x), total)
    same(D.all_reduce_max(x), np.max(every, 0))
    same(D.all_reduce_min(x), np.min(every, 0))
    same(D.all_gather(x, axis=1), np.concatenate(every, 1))
    same(D.all_to_all(x, concat_axis=1), np.concatenate([e[r : r + 1] for e in every], 1))
    same(D.broadcast(x), every[0])
    same(D.scatter(x), every[0][r : r + 1])
    same(D.reduce_scatter_sum(x), total[r : r + 1])
    same(D.reduce_sum(x), total if r == 0 else total * 0)
    same(D.gather(x), np.concatenate(every) * (r == 0))
big = mgb.tensor(np.array([np.nan if r else 1, -r, 0.0 * (1 - 2 * r)], "float32"))
if n > 1:
    assert np.isnan(D.all_reduce_max(big).numpy()[0]) and np.isnan(D.all_reduce_min(big).numpy()[0])
assert D.all_reduce_min(big).numpy()[1] == 1 - n
assert D.all_reduce_sum(mgb.tensor(np.zeros((0, 3), "float32"))).shape == (0, 3)
assert D.all_reduce_sum(mgb.tensor(2.0)).item() == 2 * n
x = mgb.tensor(np.arange(6.0).reshape(2, 3)).transpose(1, 0)
np.testing.assert_array_equal(D.all_reduce_sum(x).numpy(), x.numpy() * n)
if n > 1 and r < 2:
    pair = dist.new_group([1, 0])
    assert D.broadcast(mgb.tensor([float(r)]), pair).item() == 1 and pair.rank == 1 - r
    x = mgb.tensor([5.0, 6.0])
    if r == 0:
        for value in (np.int8(3), np.ones((2, 0, 3)), np.arange(4, dtype="u2")):
            D.remote_send(mgb.tensor(value), 1)
    else:
        for value in (np.int8(3), np.ones((2, 0, 3), "f4"), np.arange(4, dtype="u2")):
            np.testing.assert_array_equal(D.remote_recv(0).numpy(), value, strict=True)
        try:
            trace(lambda: D.remote_recv(0))()
        except mgb.errors.ArgumentError as error:
            assert "needs the type of the result" in str(error)
    if r == 0:
        with mgb.autodiff.GradManager().attach(x) as gm:
            gm.backward(D.remote_send(x * 2, 1))
        assert x.grad.numpy().tolist() == [6, 6]
    else:
        with mgb.autodiff.GradManager().attach(x) as gm:
            y = D.remote_recv(0, inp=x)
            assert y.numpy().tolist() == [10, 12]
            gm.backward((y * 3).sum())
say("values")
"""

GRADIENTS = """
from mgb.autodiff import GradManager
rng = np.random.default_rng(r)
value, weight = rng.normal(size=(2 * n, 3)), np.random.default_rng(9).normal(size=(n, 8 * n * n))
functions = [D.all_reduce_sum, D.all_reduce_max, D.all_reduce_min, D.broadcast, D.reduce_sum, D.all_gather,
             D.reduce_scatter_sum, D.gather, D.scatter, lambda x: D.all_to_all(x, concat_axis=1)]
for f in functions:
    def loss(x):  # that of this rank; the gradient is that of the sum over ranks
        y = f(x) * f(x) if f is D.all_reduce_sum else f(x)
        w = np.random.default_rng(r + 5).normal(size=y.shape)
        return (y * mgb.tensor(w, dtype="float64")).sum()
    x = mgb.tensor(value, dtype="float64")
    with GradManager().attach(x) as gm:
        gm.backward(loss(x))
    for who in range(n):
        step = np.zeros_like(value)
        step[1, 2] = 1e-6 * (who == r)
        ends = [D.all_reduce_sum(loss(mgb.tensor(value + s * step, dtype="float64"))).item() for s in (1, -1)]
        if who == r:
            np.testing.assert_allclose(x.grad.numpy()[1, 2], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)
say("gradients")
"""

ORDER = """
@trace
def f(x, flag):
    D.all_reduce_sum(x)
    if flag.item():  # another record on one rank
        x = x + 0
    a = D.all_reduce_sum(x + 1)
    b = D.all_reduce_sum(x * 100)
    return F.exp(b * 0) * b, a
for k in range(6):
    x = mgb.tensor([1.0 + k])
    b, a = f(x, mgb.tensor(bool(k > 2 and r == 0)))
    assert (a.item(), b.item()) == (n * (2.0 + k), n * 100 * (1.0 + k)), (k, a, b)
@trace
def g(x):
    a = D.all_reduce_sum(x)
    if x.ndim == 2 and r == 0:
        raise KeyError
    b = D.all_reduce_sum(x * 10)
    return b, a
for k in range(4):
    b, a = g(mgb.tensor([1.0]))
    assert (a.item(), b.item()) == (n, 10 * n)
say("order")
"""

#: Micro-batches whose gradients are exchanged once, parts of batches, files of rank 0.
AROUND = """
from mgb.autodiff import GradManager
from mgb.distributed.errors import CheckpointError
import mgb.distributed.world as inner
rows = np.random.default_rng(1).normal(size=(6 * n, 3)).astype("f4")
start = np.random.default_rng(2).normal(size=3).astype("f4")

def trained(traced, inside):
    w = mgb.Parameter(start)
    callback = dist.make_allreduce_cb("mean")
    gm = GradManager().attach(w, callbacks=callback)
    opt = mgb.optimizer.SGD([w], lr=0.1)
    def backward(x):
        with gm:
            gm.backward(((x @ w) ** 2).mean() / 3)
    def step(parts):
        with callback.no_sync():
            for x in parts[:-1]:
                backward(x)
        backward(parts[-1])
        opt.step().clear_grad()
    if traced and inside:
        step = trace(step)
    elif traced:
        backward = trace(backward)
    counts = []
    for k in range(5):
        before = inner.world().lines["world"].count
        step([mgb.tensor(dist.shard(rows[2 * n * j : 2 * n * (j + 1)])) for j in range(3)])
        counts.append(inner.world().lines["world"].count - before)
    assert counts == [1] * 5, counts
    return w.numpy()

wanted = start.astype("f8")
for k in range(5):
    wanted -= 0.1 * 2 * rows.T @ (rows @ wanted) / len(rows)
for traced in (False, True):
    for inside in (False, True):
        np.testing.assert_allclose(trained(traced, inside), wanted, rtol=1e-5)
try:
    with dist.make_allreduce_cb("sum").no_sync():
        raise AssertionError
except ValueError:
    pass
try:
    dist.shard(np.ones(n + 1))
except mgb.errors.ShapeError:
    assert n > 1
dist.save({"rank": r, "x": mgb.tensor([float(r)])}, "state")
found = dist.load("state")
assert found["rank"] == 0 and found["x"].item() == 0
try:
    dist.save({}, os.path.join("nowhere", "state"))
except FileNotFoundError:
    assert r == 0
except CheckpointError as error:
    assert r and "nowhere" in str(error), error
say("around")
"""


PROGRAMS = {"values": VALUES, "gradients": GRADIENTS, "order": ORDER, "around": AROUND}


@cache
def told(ranks: int) -> str:
    """Run all programs in one job and return its output: each prints "done", a failure ends the job."""
    with tempfile.TemporaryDirectory() as name:
        text = SAY + "\n".join(f"exec({text!r}, dict(globals()))" for text in PROGRAMS.values())
        return job(Path(name), ranks, text)[1]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_complete_on_all_ranks(ranks: int, name: str) -> None:
    assert f"done {name} on all {ranks}\n" in told(ranks), told(ranks)


def test_launcher_returns_results_and_tracebacks_of_local_functions() -> None:
    secret = np.arange(3)

    @dist.launcher(n_gpus=2)
    def both(scale: float, *, fails: bool) -> Any:
        total = dist.functional.all_reduce_sum(mgb.tensor(secret * scale))
        if fails and dist.get_rank() == 1:
            raise KeyError("oh no")
        return dist.get_rank(), total.numpy()

    for rank, (found, total) in enumerate(both(2.0, fails=False)):
        assert found == rank
        np.testing.assert_array_equal(total, secret * 4.0)
    with pytest.raises(RankFailedError, match=r"(?s)status 1\nrank 1:\n.*KeyError: 'oh no'"):
        both(1.0, fails=True)
