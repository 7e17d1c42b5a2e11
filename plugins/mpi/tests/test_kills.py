"""Jobs of which a process is killed at any moment: each ends, and leaves a whole checkpoint or none."""

from __future__ import annotations

import random
import time
from pathlib import Path

import mgb
import pytest
from mgb_conformance.jobs import start

#: The alarm ends a process at once, wherever it is: as it imports, joins, compiles, exchanges or saves.
PROGRAM = """
import os, signal, sys
rank, delay = int(sys.argv[1]), float(sys.argv[2])
if int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", -1))) == rank:
    signal.setitimer(signal.ITIMER_REAL, delay)
import mgb, mgb.distributed as dist, mgb.optimizer as optim, numpy as np
from mgb.autodiff import GradManager
from mgb.jit import trace
dist.init_process_group()
w = mgb.Parameter(np.zeros(50_000, "f4"))
gm = GradManager().attach(w, callbacks=dist.make_allreduce_cb("mean"))
opt = optim.SGD([w], lr=1.0)
@trace
def step():
    with gm:
        gm.backward(-w.sum())
    opt.step().clear_grad()
steps = 0
while True:
    step()
    steps += 1
    dist.save({"steps": steps, "w": w}, "state")
"""

#: Rank 1 begins to send and becomes another program, as if it had died: rank 0 cannot have its block.
LOST = """
import os, time
import numpy as np
from mgb.distributed.communicator import Collective, chosen
channel = chosen("mpi").join(None, None, None)
blocks = np.zeros((2, 400_000), np.uint8)
if channel.rank == 0:
    while not os.path.exists("lost"):
        time.sleep(0.01)
ticket = channel.start(Collective("gather"), np.ones(400_000, np.uint8), None if channel.rank else blocks)
tests = [ticket.test() for _ in range(100_000)]
if channel.rank:
    os.execvp("sh", ["sh", "-c", "touch lost; sleep 60"])
assert blocks.all() or not tests[-1], "done without the block of rank 1"
print("nothing wrong", flush=True)
os._exit(0)
"""

#: Seconds in which a job ends after the kill.
LIMIT = 15


def killed(folder: Path, rank: int, delay: float) -> int:
    """Run one; how many steps the checkpoint has, 0 if there is none."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    begin = time.monotonic()
    status, said = start(folder, 2, ["program.py", str(rank), str(delay)], delay + LIMIT)
    assert status != 0, said
    assert time.monotonic() - begin >= delay - 1, f"it ended by itself:\n{said}"
    if not (folder / "state").exists():
        return 0
    found = mgb.load(folder / "state")
    assert (found["w"].numpy() == found["steps"]).all()
    return int(found["steps"])


@pytest.mark.parametrize("runs", [1, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(0)])])
def test_killed_job_ends_and_leaves_a_whole_checkpoint_or_none(runs: int, tmp_path: Path) -> None:
    draw, longest = random.Random(), 3.0
    while not killed(tmp_path / f"after {longest}", draw.randrange(2), longest):
        longest *= 2
        assert longest < 60, "a job that is let alone saves nothing"
    for k in range(runs):
        killed(tmp_path / str(k), draw.randrange(2), draw.uniform(0, longest))


def test_unsent_data_of_a_lost_rank_is_not_treated_as_received(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOST)
    _, said = start(tmp_path, 2, ["program.py"])
    assert "nothing wrong" in said, said
