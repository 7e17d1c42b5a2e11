"""Jobs of several processes by a communicator, each within a limit of time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: What the texts of programs begin with.
HEAD = """
import os, signal, time
import numpy as np, mgb, mgb.distributed as dist, mgb.functional as F
from mgb.jit import trace
D = F.distributed
dist.init_process_group()
r, n = dist.get_rank(), dist.get_world_size()
"""


def start(
    folder: Path, ranks: int, program: list[str], limit: float = 60, name: str = "", **variables: str
) -> tuple[int, str]:
    """Run `program` as a job of the communicator `name`; its status, and all that was printed.

    Raises
    ------
    AssertionError
        It has not ended within `limit` seconds; all its processes are ended then.
    """
    chosen = {"MGB_DISTRIBUTED_BACKEND": name} if name else {}
    command = [sys.executable, "-m", "mgb.distributed.run", "-n", str(ranks), *program]
    with open(folder / "said", "w+", errors="replace") as said:
        job = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end, if it comes early, ends some jobs of MPICH
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **chosen, **variables},
            cwd=folder,
            start_new_session=True,
        )
        try:
            status = job.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            if job.stdin is not None:
                job.stdin.close()
        said.seek(0)
        text = said.read()
    assert status is not None, f"the job has not ended within {limit} s:\n{text}"
    return status, text


def job(
    folder: Path,
    ranks: int,
    text: str,
    limit: float = 60,
    name: str = "",
    arguments: Sequence[str] = (),
    **variables: str,
) -> tuple[int, str]:
    """Run the text of a program as a job; it begins with `HEAD`."""
    program = folder / "program.py"
    program.write_text(HEAD + text)
    return start(folder, ranks, [str(program), *arguments], limit, name, **variables)
