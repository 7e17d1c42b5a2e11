"""Runs a text as a job of several processes, within a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAD = """
import os, time
import numpy as np, mgb, mgb.distributed as dist, mgb.functional as F
from mgb.jit import trace
D = F.distributed
dist.init_process_group()
r, n = dist.get_rank(), dist.get_world_size()
"""


def job(folder: Path, ranks: int, text: str, limit: float = 60, **variables: str) -> tuple[int, str]:
    """The status and all that was printed."""
    program = folder / "program.py"
    program.write_text(HEAD + text)
    command = [sys.executable, "-m", "mgb.distributed.run", "-n", str(ranks), str(program)]
    surroundings = {**os.environ, **variables}
    found = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, env=surroundings
    )
    return found.returncode, found.stdout
