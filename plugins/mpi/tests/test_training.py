"""Training by two and three processes is training by one: digits and a transformer, on every CPU backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import plugins
from mgb_conformance.jobs import job

#: Prints, by model and backend, the losses of so many steps; all ranks have the same bits after them.
PROGRAM = """
import json, sys
import mgb.module as M, mgb.optimizer as optim
from mgb.autodiff import GradManager
from mgb.data.digits import load_digits

def digits():
    data, labels = load_digits()[:2]
    order = np.resize(np.random.default_rng(0).permutation(len(data)), 44 * 48).reshape(44, 48)
    conv = [M.Conv2d(1, 8, 3, padding=1), M.SyncBatchNorm(8), M.ReLU()]
    conv += [M.Conv2d(8, 8, 3, padding=1), M.SyncBatchNorm(8), M.ReLU()]
    net = M.Sequential(*conv, M.Flatten(), M.Linear(8 * 64, 10))
    return net, F.loss.cross_entropy, [(data[rows], labels[rows].astype("int32")) for rows in order]

class Texts(M.Module):
    # Which letter comes next, in words that repeat.
    def __init__(self):
        super().__init__()
        self.letters, self.places = M.Embedding(12, 24), mgb.Parameter(np.zeros((1, 10, 24), "f4"))
        layer = dict(dim_feedforward=48, dropout=0.0, norm_first=True)
        self.layers = M.Sequential(*(M.TransformerEncoderLayer(24, 3, **layer) for _ in range(2)))
        self.last = M.Linear(24, 12)
    def forward(self, x):
        return self.last(self.layers(self.letters(x) + self.places))

def transformer():
    rng, batches = np.random.default_rng(0), []
    for _ in range(44):
        words = rng.integers(0, 12, (12, 4)).astype("int32")
        texts = np.tile(words, 3)[:, :11]
        batches.append((texts[:, :10], texts[:, 1:]))
    loss = lambda y, label: F.loss.cross_entropy(F.reshape(y, (-1, 12)), F.reshape(label, (-1,)))
    return Texts(), loss, batches

def curve(model, backend, steps):
    mgb.random.seed(3 + r)  # the start state is the root's
    net, loss_of, batches = model()
    dist.bcast_list_([*net.parameters(), *net.buffers()])
    gm = GradManager().attach(net.parameters(), callbacks=dist.make_allreduce_cb("mean", bucket=4096))
    opt = optim.Adam(net.parameters(), lr=1e-3)
    def train(x, y):
        with gm:
            loss = loss_of(net(x), y)
            gm.backward(loss)
            opt.step().clear_grad()
        return D.all_reduce_sum(loss) / n
    if backend:
        train = trace(train, backend=backend if backend != "default" else None)
    losses = [train(*map(mgb.tensor, dist.shard(*batch))).item() for batch in batches[:steps]]
    flat = np.concatenate([p.numpy().ravel() for p in (*net.parameters(), *net.buffers())])
    every = D.all_gather(mgb.tensor(flat)).numpy().reshape(n, -1)
    assert (every.view("u4") == every[0].view("u4")).all(), "ranks have other bits"
    return losses

steps, models, backends = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(",")
pairs = [(globals()[model], backend) for model in models for backend in backends]
found = {f"{m.__name__} {b or 'eager code'}": curve(m, b, steps) for m, b in pairs}
if r == 0:
    print("found", json.dumps(found))
"""


def on_cpu() -> list[str]:
    """The backends that run here."""
    found = []
    for name in sorted(plugins.installed()):
        backend = plugins.import_backend(name)
        if "cpu" in backend.traits.devices and not backend.probe():
            found.append(name)
    return found


def losses(folder: Path, ranks: int, models: str, backends: list[str], steps: int, limit: float) -> Any:
    """By model and backend; one job for all."""
    arguments = [str(steps), models, ",".join(backends)]
    status, said = job(folder, ranks, PROGRAM, limit, arguments=arguments)
    assert status == 0, said
    return json.loads(said.partition("found ")[2].splitlines()[0])


def check(found: dict[str, list[float]], one: dict[str, list[float]], ranks: int) -> None:
    """The curves are those of one process within 1e-5."""
    for name, curve in found.items():
        worst = np.abs(np.subtract(curve, one[name])).max()
        assert worst < 1e-5, f"{name}, {ranks} ranks: {worst}"


def test_losses_match_a_single_process(tmp_path: Path) -> None:
    """Some steps, on the default backend."""
    one = losses(tmp_path, 1, "digits,transformer", ["default"], 6, 60)
    for ranks, model in ((2, "transformer"), (3, "digits")):
        check(losses(tmp_path, ranks, model, ["default"], 6, 60), one, ranks)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_losses_match_a_single_process_on_every_backend(tmp_path: Path) -> None:
    backends = ["", *on_cpu()]
    one = losses(tmp_path, 1, "digits,transformer", backends, 44, 2000)
    assert len(one) == 2 * len(backends)
    for name, curve in one.items():
        assert curve[-1] < curve[0] / 1.2, f"{name} learns nothing"
    for ranks in (2, 3):
        found = losses(tmp_path, ranks, "digits,transformer", backends, 44, 2000)
        assert found.keys() == one.keys()
        check(found, one, ranks)
