"""``python -m mgb.distributed.run -n 4 x.py``: the processes of a job on this machine, by ``mpiexec``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def command(number: int, program: Sequence[str]) -> list[str]:
    """What starts `program`, that of this Python's environment before others."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise SystemExit('no mpiexec here: pip install "mgb[mpich]", or load the MPI of your cluster')
    return [found, "-n", str(number), sys.executable, *program]


def surroundings(number: int) -> dict[str, str]:
    """The environment: a share of the cores for each rank; Open MPI starts for root, and on few cores."""
    share = str(max(1, len(os.sched_getaffinity(0)) // number))
    root = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    many = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    return {"OMP_NUM_THREADS": share, "MGB_NUM_THREADS": share, **root, **many, **os.environ}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program in so many processes; its status is that of the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m mgb.distributed.run", description=__doc__)
    parser.add_argument("-n", type=int, default=2, metavar="PROCESSES")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="x.py and its arguments, or -m module")
    given = parser.parse_args(arguments)
    if given.n < 1 or not given.program:
        parser.error("say how many processes, at least 1, and which program")
    if given.n > (cores := len(os.sched_getaffinity(0))):
        print(f"{given.n} processes share {cores} cores: they will wait for each other", file=sys.stderr)
    return subprocess.call(command(given.n, given.program), env=surroundings(given.n))


if __name__ == "__main__":
    sys.exit(main())
