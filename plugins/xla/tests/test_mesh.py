"""One executable on several devices: values against NumPy, gradients, training, refusals, processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import sys, numpy as np, mgb, mgb.distributed as dist, mgb.functional as F, mgb.module as M
from mgb import optimizer as optim
from mgb.autodiff import GradManager
from mgb.errors import MeshError
from mgb.jit import xla_trace
D = F.distributed

def refused(function, error, words):
    try:
        function()
    except error as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError("nothing was raised")
"""

#: Each rank's rows are a part of a batch; what it has by the collective is gathered, so that all can be seen.
VALUES = """
for n in (1, 2, 4):
    for dt in map(str, mgb.dtypes.DTYPES) if n == 4 else ["float32"]:
        whole = (np.arange(2 * n * n).reshape(n * n, 2) % 3).astype(mgb.dtypes.as_dtype(dt))
        every = [whole[k * n : (k + 1) * n] for k in range(n)]
        @xla_trace(mesh=n)
        def f(x):
            x = dist.shard(x)
            assert dist.get_world_size() == dist.WORLD.size == n and dist.is_distributed()
            found = [D.all_reduce_sum(x), D.all_reduce_max(x), D.all_reduce_min(x), D.broadcast(x)]
            own = [D.reduce_sum(x), D.gather(x), D.scatter(x), D.reduce_scatter_sum(x),
                   D.all_to_all(x, concat_axis=1)]
            return [*found, D.all_gather(x, axis=1), *(D.all_gather(y) for y in own)]
        total = np.sum([e.astype("f8") for e in every], 0) if dt != "bool" else np.any(every, 0)
        zeros = np.zeros((n * (n - 1), 2))
        wanted = [
            total, np.max(every, 0), np.min(every, 0), every[0], np.concatenate(every, 1),
            np.concatenate([total, zeros]), np.concatenate([whole, np.zeros((n * n * (n - 1), 2))]), every[0],
            total, np.concatenate([np.concatenate([e[r : r + 1] for e in every], 1) for r in range(n)]),
        ]
        for found, right in zip(f(mgb.tensor(whole, dtype=dt)), wanted, strict=True):
            assert str(found.dtype) == dt
            np.testing.assert_array_equal(found.numpy().astype("f8"), right.astype("f8"), f"{n} {dt}")
    @xla_trace(mesh=n)
    def extremes(x):
        x = dist.shard(x)
        return D.all_reduce_max(x), D.all_reduce_min(x), D.broadcast(x)
    rows = np.ones((n, 4), "f4")
    rows[-1] = np.nan, -2, -0.0, np.inf
    rows[0, 2:] = 0.0, -np.inf
    most, least, first = (t.numpy()[0] for t in extremes(mgb.tensor(rows)))
    np.testing.assert_array_equal(most, np.max(rows, 0))
    np.testing.assert_array_equal(least, np.min(rows, 0))
    assert np.signbit(least[2]) == (n > 1) and not np.signbit(most[2])
    np.testing.assert_array_equal(first, rows[0])

#: A result serves the next call, other programs, and arithmetic outside.
@xla_trace(mesh=4)
def again(x):
    return D.all_reduce_sum(x)
@xla_trace
def alone(x):
    return x + 1
x = mgb.tensor(np.ones(3, "f4"))
for k in range(4):
    x = again(alone(again(x)))
    x *= 0.5
wanted = 1.0
for k in range(4):
    wanted = (wanted * 4 + 1) * 2
np.testing.assert_array_equal(x.numpy(), np.full(3, wanted, "f4"))
"""

GRADIENTS = """
n = 4
functions = [D.all_reduce_sum, D.all_reduce_max, D.all_reduce_min, D.broadcast, D.reduce_sum, D.all_gather,
             D.reduce_scatter_sum, D.gather, D.scatter, lambda x: D.all_to_all(x, concat_axis=1)]
value = np.random.default_rng(0).normal(size=(n * n, 3))
for f in functions:
    @xla_trace(mesh=n)
    def both(x, w):
        x = x * 1
        with GradManager().attach(x) as gm:
            y = f(dist.shard(x))
            loss = (y * dist.shard(w) * y).sum()
            gm.backward(loss)
        return D.all_reduce_sum(loss), D.all_reduce_sum(x.grad)
    size = [n, n, n, n, n, n * n, 1, n * n, 1, 1][functions.index(f)]
    columns = 12 if f is functions[-1] else 3
    w = mgb.tensor(np.random.default_rng(1).normal(size=(size * n, columns)), dtype="float64")
    grad = both(mgb.tensor(value, dtype="float64"), w)[1].numpy()
    for place in ((0, 0), (5, 1), (15, 2)):
        step = np.zeros_like(value)
        step[place] = 1e-5
        ends = [both(mgb.tensor(value + s * step, dtype="float64"), w)[0].item() for s in (1, -1)]
        np.testing.assert_allclose(grad[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-7)
"""

TRAINING = """
from mgb.data.digits import load_digits
data, labels = load_digits()[:2]
order = np.random.default_rng(0).permutation(len(data))

class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = M.Conv2d(1, 8, 3, padding=1), M.Conv2d(8, 8, 3, padding=1)
        self.norms = [M.SyncBatchNorm(8), M.SyncBatchNorm(8)]
        self.last = M.Linear(8 * 64, 10)
    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)))
        x = F.relu(self.norms[1](self.second(x)))
        return self.last(F.flatten(x, 1))

def curve(mesh):
    mgb.random.seed(3)
    net = Net()
    opt = optim.Adam(net.parameters(), lr=1e-3)
    @xla_trace(mesh=mesh)
    def train(x, y, net, opt):
        callbacks = dist.make_allreduce_cb("mean", bucket=4096) if dist.is_distributed() else None
        gm = GradManager().attach(net.parameters(), callbacks=callbacks)
        x, y = dist.shard(x, y)
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
            opt.step().clear_grad()
        return D.all_reduce_sum(loss) / dist.get_world_size() if dist.is_distributed() else loss
    losses = []
    for k in range(STEPS):
        rows = np.resize(order, 44 * 48)[k * 48 : (k + 1) * 48]
        batch = mgb.tensor(data[rows]), mgb.tensor(labels[rows].astype("int32"))
        losses.append(train(*batch, net, opt).item())
    (program,) = train.programs()
    assert len(program.steps) == 1
    return np.array(losses)
one = curve(None)
assert STEPS < 44 or one[-1] < one[0] / 2
for n in (2, 4):
    found = curve(n)
    assert abs(found - one).max() < 1e-5, abs(found - one).max()
"""

REFUSALS = """
import jax
x = mgb.tensor(np.ones((4, 2), "f4"))
def of(function, mesh=2, **options):
    return lambda: xla_trace(mesh=mesh, **options)(function)(x)
refused(of(lambda x: dist.shard(x) * 2), MeshError, "return dist.functional.all_gather(x)")
refused(of(lambda x: D.all_reduce_sum(x), mesh=64), MeshError, "device_count=64")
refused(of(lambda x: dist.shard(x), mesh=3), mgb.errors.ShapeError, "no equal parts for 3 ranks")
refused(of(lambda x: x * dist.get_rank()), mgb.errors.ArgumentError, "none has a number")
refused(of(lambda x: D.all_reduce_sum(x, [0, 1])), mgb.errors.ArgumentError, "run one program")
refused(of(lambda x: D.remote_send(x, 1)), mgb.errors.ArgumentError, "cannot send one by one")
refused(of(lambda x: D.all_reduce_sum(dist.shard(x)), backend="EAGER"), MeshError, "backend")
for wrong in (0, True, "2"):
    refused(of(lambda x: x, mesh=wrong), mgb.errors.TraceInputError, "number of devices")
net = M.Linear(2, 1)
opt = optim.SGD(net.parameters(), lr=0.1)
@xla_trace(mesh=2)
def train(x, net, opt):
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(dist.shard(x)).sum())
        opt.step().clear_grad()
before = net.weight.numpy().copy()
refused(lambda: train(x, net, opt), MeshError, "make_allreduce_cb")
np.testing.assert_array_equal(net.weight.numpy(), before)
@xla_trace(mesh=2)
def picks(x, i):
    return D.all_gather(dist.shard(x)[dist.shard(i)])
np.testing.assert_array_equal(picks(x, mgb.tensor([0, 1, 1, 0])).numpy(), x.numpy())
refused(lambda: picks(x, mgb.tensor([0, 1, 1, 2])), IndexError, "out of range")
assert xla_trace(mesh=2)(lambda x: x * 2)(x).numpy().sum() == 16  # nothing is exchanged

#: Files.
total = xla_trace(mesh=2)(lambda x: D.all_reduce_sum(dist.shard(x) * 3))
total.export(sys.argv[1], x)
np.testing.assert_array_equal(mgb.jit.load_compiled(sys.argv[1])(x).numpy(), np.full((2, 2), 6))
refused(lambda: xla_trace(mesh=2)(lambda x: dist.shard(x)).export(sys.argv[1], x), MeshError, "own")
"""


def run(folder: Path, text: str, devices: int = 4, *arguments: str) -> subprocess.Popen[str]:
    """A process that has so many devices."""
    program = folder / "program.py"
    program.write_text(HEAD + text)
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, str(program), *arguments], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env={**os.environ, "XLA_FLAGS": flags},
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [VALUES, GRADIENTS, TRAINING.replace("STEPS", "44"), REFUSALS],
    ids=["values", "gradients", "training", "refusals"],
)
def test_mesh_programs_on_devices_of_one_process(tmp_path: Path, text: str) -> None:
    process = run(tmp_path, text, 4, str(tmp_path / "file"))
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said


#: The same program in each of two processes, which have two devices each.
JOB = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, int(sys.argv[1]))
assert jax.process_count() == 2
n = len(jax.devices("cpu"))
"""


def test_mesh_training_on_a_multi_process_jax_job(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    text = JOB + TRAINING.replace("(2, 4)", "(n,)").replace("STEPS", "8")
    processes = [run(tmp_path, text, 2, str(rank), port) for rank in range(2)]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
