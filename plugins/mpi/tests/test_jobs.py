"""Real processes over loopback: values against NumPy, order, gradients, and what each failure says."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from jobs import job


@pytest.fixture(scope="module", autouse=True)
def needed() -> None:
    """Skip all where MPI cannot be loaded; asked in a process of its own, as loading it joins a job."""
    if not all(map(find_spec, ("mgb_mpi", "mpi4py"))):
        pytest.skip('not installed: pip install ./plugins/mpi "mpich>=5"')
    ask = "import mgb_mpi; print(mgb_mpi.communicator.probe() or '')"
    if problem := subprocess.check_output([sys.executable, "-c", ask], text=True).strip():
        pytest.skip(problem)


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
        with mgb.autodiff.GradManager().attach(x) as gm:
            gm.backward(D.remote_send(x * 2, 1))
        assert x.grad.numpy().tolist() == [6, 6]
    else:
        with mgb.autodiff.GradManager().attach(x) as gm:
            y = D.remote_recv(0, inp=x)
            assert y.numpy().tolist() == [10, 12]
            gm.backward((y * 3).sum())
dist.group_barrier()
print("done", r)
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
print("done", r)
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
print("done", r)
"""


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
@pytest.mark.parametrize("text", [VALUES, GRADIENTS, ORDER], ids=["values", "gradients", "order"])
def test_a_job_ends_well(tmp_path: Path, ranks: int, text: str) -> None:
    status, said = job(tmp_path, ranks, text)
    assert (status, said.count("done")) == (0, ranks), said


X = "x = mgb.tensor(np.ones((2, 2), 'float32'))\n"
OTHER, LATE, FAILED = "CollectiveMismatchError", "CollectiveTimeoutError", "RankFailedError"
FAILURES = {
    "another collective": ("D.all_reduce_sum(x) if r else D.all_reduce_max(x)", OTHER, "_max"),
    "another shape": ("D.all_reduce_sum(x if r else x[0])", OTHER, "float32[2, 2]"),
    "another dtype": ("D.all_reduce_sum(x if r else x.astype('int32'))", OTHER, "int32[2"),
    "another number": ("D.all_reduce_sum(x)\nif r: D.all_reduce_sum(x)", FAILED, "has ended its program"),
    "a sleeping rank": ("if r: D.all_reduce_sum(x)\nelse: time.sleep(9)", LATE, "is silent"),
    "an exception": ("if r: D.all_reduce_sum(x)\nelse: raise KeyError('oh')", FAILED, "raised KeyError"),
    "another group": ("D.all_reduce_sum(x, [0, 1] if r else None)", OTHER, "group of ranks 0,1"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_failure_names_rank_collective_and_line(tmp_path: Path, name: str, traced: bool) -> None:
    text, error, words = FAILURES[name]
    if traced and "time." in text:
        pytest.skip("a trace does not sleep")
    if traced:
        body = "".join(f"    {line}\n" for line in text.splitlines())
        text = f"@trace(symbolic=True)\ndef f(x):\n{body}\nf(x)"
    status, said = job(tmp_path, 2, X + text, 30, MGB_DISTRIBUTED_TIMEOUT="2")
    assert status != 0
    assert error in said and words in said and "rank 0" in said and "rank 1" in said, said
    assert "program.py:" in said


def test_a_killed_rank_ends_the_job(tmp_path: Path) -> None:
    text = "if r: os.kill(os.getpid(), 9)\nD.all_reduce_sum(mgb.tensor([1.0]))"
    status, _ = job(tmp_path, 2, text, 30, MGB_DISTRIBUTED_TIMEOUT="3")
    assert status != 0


TRAINING = """
import mgb.module as M, mgb.optimizer as optim
from mgb.autodiff import GradManager
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

def curve(traced):
    mgb.random.seed(3 + r)  # the start state is the root's
    net = Net()
    dist.bcast_list_(list(net.parameters()))
    gm = GradManager().attach(net.parameters(), callbacks=dist.make_allreduce_cb("mean", bucket=4096))
    opt = optim.Adam(net.parameters(), lr=1e-3)
    def train(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
            opt.step().clear_grad()
        return D.all_reduce_sum(loss) / n
    step, losses, part = trace(train) if traced else train, [], 48 // n
    for k in range(44):
        rows = np.resize(order, 44 * 48)[k * 48 : (k + 1) * 48][r * part : (r + 1) * part]
        losses.append(step(mgb.tensor(data[rows]), mgb.tensor(labels[rows].astype("int32"))).item())
    flat = np.concatenate([p.numpy().ravel() for p in net.parameters()])
    every = D.all_gather(mgb.tensor(flat)).numpy().reshape(n, -1)
    assert (every == every[0]).all()
    return losses
if r == 0:
    print("done", end=" ")
found = [curve(False), curve(True)]
if r == 0:
    print(*map(repr, sum(found, [])))
"""


@pytest.mark.parametrize("backend", ["", pytest.param("EAGER", marks=pytest.mark.slow)])
def test_training_by_several_ranks_is_training_by_one(tmp_path: Path, backend: str) -> None:
    """Digits, batch normalisation over all ranks, gradients in buckets; eager and traced."""
    found = []
    for ranks in (1, 2, 3):
        status, said = job(tmp_path, ranks, TRAINING, MGB_JIT_BACKEND=backend)
        assert status == 0, said
        found.append([float(word) for word in said.partition("done ")[2].split()])
    assert len(found[0]) == 88 and found[0][43] < found[0][0] / 2
    for curve in found:
        assert max(abs(a - b) for a, b in zip(curve, found[0][:44] * 2, strict=True)) < 1e-5
