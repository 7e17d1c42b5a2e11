"""The steps of the first hour with a GPU, in order; it stops at the first failure.

``python -m mgb_cuda.testing.first_hour --out first-hour`` leaves a folder with the output of each step. With
``--rehearse`` it runs on a driver that only takes notes; steps that need results say that they are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import stub

#: Programs that break first: casts of halves, a thread new to CUDA, rows that spill, rows that clusters
#: share, views that begin at no multiple of 16 bytes, and more elements than 31 bits count.
SMALL = """
import sys, threading
import numpy as np
import mgb, mgb.functional as F
from mgb.jit import trace

gpu, large = "gpu0", "--large" in sys.argv
@trace
def halves(x): return (x.astype("float32") * 2).astype("float16")
@trace
def rows(x, w, b): return F.layer_norm(x, (x.shape[1],), True, w, b)
@trace
def sums(x): return F.softmax(x, axis=1) * 65536
@trace
def pieces(x): return x * 2 + 1

def check(found, want, what):
    np.testing.assert_allclose(found.numpy(), want, rtol=2e-3, atol=2e-3, err_msg=what)
    print(what, "is right")

random = np.random.default_rng(0)
def case_of_halves():
    x = random.normal(size=4099).astype(np.float16)
    check(halves(mgb.tensor(x, device=gpu)), x * 2, "casts of halves")
def case_of_rows():
    x = random.normal(size=(64, 32768)).astype(np.float32)
    w, b = random.normal(size=(2, 32768)).astype(np.float32)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
    check(rows(*(mgb.tensor(a, device=gpu) for a in (x, w, b))), want, "rows of 32Ki")
def case_of_clusters():
    x = random.normal(size=(256, 65536)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    check(sums(mgb.tensor(x, device=gpu)), e / e.sum(1, keepdims=True) * 65536, "rows of 64Ki")
def case_of_views():
    x = random.normal(size=5004).astype(np.float32)
    check(pieces(mgb.tensor(x, device=gpu)[1:]), x[1:] * 2 + 1, "a view askew")
def case_of_many():
    x = mgb.zeros(((1 << 31) + 16,), dtype="int8", device=gpu)
    check(pieces(x)[-4:], np.ones(4, np.int8), "2^31 elements")

cases = [case_of_halves, case_of_rows, case_of_clusters, case_of_views, *([case_of_many] if large else [])]
for case in cases:
    for _ in range(3):
        case()
problem = []
def alone():
    try: case_of_halves()
    except BaseException as error: problem.append(error)
thread = threading.Thread(target=alone)
thread.start(); thread.join()
if problem: raise problem[0]
print("all small programs are right")
"""


@dataclass(frozen=True)
class Step:
    """One of them.

    Attributes
    ----------
    name : str
    command : tuple of str
        ``PYTHON``, ``SMALL`` and ``OUT`` stand for these.
    rehearsal : tuple of str
        What is run where there is no GPU; empty: nothing, the step needs results.
    needs : str
        A program without which it is left out.
    accepted : tuple of int
        Statuses that are no failure.
    """

    name: str
    command: tuple[str, ...]
    rehearsal: tuple[str, ...] = ()
    needs: str = ""
    accepted: tuple[int, ...] = (0,)


PYTEST = ("PYTHON", "-m", "pytest", "-q", "-x", "-m", "gpu and not slow")
BENCH = ("PYTHON", "-m", "mgb", "bench", "--suite", "gpu")
HOST = ("PYTHON", "-m", "mgb_cuda.testing.host_cost")
SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--tool")

STEPS = (
    Step("backends", ("PYTHON", "-m", "mgb", "backends"), ("PYTHON", "-m", "mgb", "backends")),
    Step("small programs", ("PYTHON", "SMALL", "--large"), ("PYTHON", "-m", "py_compile", "SMALL")),
    Step("memcheck", (*SANITIZER, "memcheck", "PYTHON", "SMALL"), needs=SANITIZER[0]),
    Step("racecheck", (*SANITIZER, "racecheck", "PYTHON", "SMALL"), needs=SANITIZER[0]),
    Step("tests", (*PYTEST, "plugins"), ("PYTHON", "-m", "pytest", "--version")),
    Step(
        "predictions",
        (*BENCH, "--predict", "--out", "OUT/predicted"),
        (*BENCH, "--predict", "--backend", "nvrtc", "--match", "fma,gelu", "--out", "OUT/predicted"),
    ),
    Step("peers", (*BENCH, "--out", "OUT/peers"), (*BENCH, "--out", "OUT/peers"), accepted=(0, 1, 2)),
    Step(
        "counters",
        ("ncu", "--clock-control", "none", "--set", "full", "-o", "OUT/counters", "PYTHON", "SMALL"),
        needs="ncu",
    ),
    Step("host", HOST, (*HOST, "--stub")),
)


def run(steps: Sequence[Step], out: Path, rehearse: bool) -> int:
    """Do them; 0 when all went well, else the number of the first that did not, from 1 on."""
    out.mkdir(parents=True, exist_ok=True)
    small = out / "small.py"
    small.write_text(SMALL)
    report = ["| step | seconds | what came of it |", "| --- | --- | --- |"]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if rehearse:
            stub.build(Path(folder))
            environment |= {"LD_LIBRARY_PATH": folder, "MGB_CACHE": "0"}
        for number, step in enumerate(steps, 1):
            begun = time.perf_counter()
            said, ok = _done(step, out, small, rehearse, environment)
            report.append(f"| {step.name} | {time.perf_counter() - begun:.0f} | {said} |")
            print(report[-1], flush=True)
            if not ok:
                wrong = number
                break
    (out / "report.md").write_text("\n".join([*report, ""]))
    return wrong


def _done(
    step: Step, out: Path, small: Path, rehearse: bool, environment: dict[str, str]
) -> tuple[str, bool]:
    """Run a step; return its outcome, and whether the next may follow."""
    command = step.rehearsal if rehearse else step.command
    if step.needs and shutil.which(step.needs) is None:
        return f"left out: {step.needs} is not installed", True
    if not command:
        return "left out: it needs results, and this is a rehearsal", True
    meant = {"PYTHON": sys.executable, "SMALL": str(small)}
    words = [meant.get(word, word.replace("OUT/", f"{out}/")) for word in command]
    log = out / f"{step.name.replace(' ', '-')}.txt"
    with log.open("w") as file:
        status = subprocess.run(words, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode
    if status in step.accepted:
        return "well", True
    return f"**status {status}**, see {log}", False


def main() -> int:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m mgb_cuda.testing.first_hour", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("first-hour"))
    parser.add_argument("--rehearse", action="store_true", help="on a driver that only takes notes")
    given = parser.parse_args()
    return run(STEPS, given.out.resolve(), given.rehearse)


if __name__ == "__main__":
    sys.exit(main())
