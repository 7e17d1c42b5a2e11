"""What macOS and Windows lack is not needed; all distributions have one version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent

#: Hides what only some systems have, in a process whose libraries are loaded.
HIDDEN = """
import os, sys
# Libraries that look for themselves:
import numpy, scipy.special, scipy.linalg, ml_dtypes, pluggy, platformdirs, rich.console
import asyncio, concurrent.futures, importlib.metadata, multiprocessing, subprocess, tempfile, unittest.mock
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "fork", "register_at_fork", "getuid", "geteuid", "killpg", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
sys.platform = {platform!r}
"""

WORK = """
import numpy as np
import mgb, mgb.functional as F, mgb.module as M, mgb.optimizer as optim, mgb.random
from mgb.autodiff import GradManager
from mgb.jit import trace

net = M.Linear(4, 3)
manager, optimizer = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1)

@trace
def step(x, y):
    with manager:
        loss = F.loss.cross_entropy(net(x), y)
        manager.backward(loss)
        optimizer.step().clear_grad()
    return loss

x, y = mgb.tensor(np.ones((2, 4), np.float32)), mgb.tensor([0, 2])
losses = [step(x, y).item() for _ in range(4)]
assert losses == sorted(losses, reverse=True) and losses[3] < losses[0], losses
assert step.stats()["body_runs"] == 1
print(step.backend)
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_training_runs_without_linux(platform: str) -> None:
    code = HIDDEN.format(platform=platform) + WORK
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in (["eager"], ["c"], ["xla"]), "the native launcher is for Linux"


def test_all_distributions_have_one_version() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "version.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.split()) == 1
