"""All is skipped where MPI cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest


@cache
def problem() -> str:
    """Why not; asked in a process of its own, as loading it joins a job."""
    if not all(map(find_spec, ("mgb_mpi", "mpi4py"))):
        return 'not installed: pip install ./plugins/mpi "mpich>=5"'
    ask = "import mgb_mpi; print(mgb_mpi.communicator.probe() or '')"
    return subprocess.check_output([sys.executable, "-c", ask], text=True).strip()


@pytest.fixture(scope="session", autouse=True)
def needed() -> None:
    """Skip all, with the reason."""
    if problem():
        pytest.skip(problem())
