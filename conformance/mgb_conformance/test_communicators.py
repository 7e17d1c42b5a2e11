"""Communicators: every kind of exchange on their channels, and jobs in which something goes wrong.

Run them by ``pytest --pyargs mgb_conformance --mgb-communicator NAME``, or from a module of your own::

    from mgb_conformance.test_communicators import *
    MGB_COMMUNICATOR = "mine"
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .jobs import job, start
from .ranks import CASES

__all__ = ["TestChannels", "TestJobs"]


@cache
def written(communicator: str, ranks: int) -> dict[int, str]:
    """Run a job that tries all cases; return the log of each process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            _, said = start(folder, ranks, ["-m", "mgb_conformance.ranks", name], 120, communicator)
        except AssertionError as error:
            said = str(error)
        files = {r: folder / f"rank-{r}" for r in range(ranks)}
        return {r: file.read_text() if file.exists() else f"nothing:\n{said}" for r, file in files.items()}


class TestChannels:
    """One job for each number of processes tries all; what comes after a failure is not tried."""

    @pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
    @pytest.mark.parametrize("name", CASES)
    def test_exchanges(self, communicator: str, ranks: int, name: str) -> None:
        failures = []
        for rank, text in written(communicator, ranks).items():
            if f"end {name}\n" not in text:
                told = text.partition(f"begin {name}\n")[2] or f"not tried. It has written {text}"
                failures.append(f"rank {rank}: {told}")
        assert not failures, "\n".join(failures)


X = "x = mgb.tensor(np.ones((2, 2), 'float32'))\n"
OTHER, LATE, FAILED = "CollectiveMismatchError", "CollectiveTimeoutError", "RankFailedError"
#: A program, the error of it, and words in that.
FAILURES = {
    "another collective": ("D.all_reduce_sum(x) if r else D.all_reduce_max(x)", OTHER, "_max"),
    "another shape": ("D.all_reduce_sum(x if r else x[0])", OTHER, "float32[2, 2]"),
    "another dtype": ("D.all_reduce_sum(x if r else x.astype('int32'))", OTHER, "int32[2"),
    "another number": ("D.all_reduce_sum(x)\nif r: D.all_reduce_sum(x)", FAILED, "has ended its program"),
    "a sleeping rank": ("if r: D.all_reduce_sum(x)\nelse: time.sleep(60)", LATE, "is silent"),
    "an exception": ("if r: D.all_reduce_sum(x)\nelse: raise KeyError('oh')", FAILED, "raised KeyError"),
    "another group": ("D.all_reduce_sum(x, [0, 1] if r else None)", OTHER, "group of ranks 0,1"),
}

ENDS = {
    "killed": "if r: os.kill(os.getpid(), signal.SIGKILL)\nD.all_reduce_sum(x)",
    "killed in an exchange": "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
    "signal.signal(signal.SIGALRM, signal.SIG_DFL)\nwhile True: D.all_reduce_sum(x)",
    "interrupted": "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
    "if r: time.sleep(50)\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\nD.all_reduce_sum(x)",
    "left by an exit": "if r: os._exit(3)\nD.all_reduce_sum(x)",
}


def quick(names: Iterable[str], *few: str) -> list[Any]:
    """Return all names, those that are not among the `few` as long sweeps: a job takes a second or two."""
    return [pytest.param(name, marks=() if name in few else pytest.mark.slow) for name in names]


class TestJobs:
    """Programs of `mgb.distributed`: nothing hangs, nothing is wrong in silence."""

    def test_successful_job_exits_with_status_0(self, communicator: str, tmp_path: Path) -> None:
        text = "assert D.all_reduce_sum(mgb.tensor(1.0)).item() == n == 2\nprint('done', r)"
        status, said = job(tmp_path, 2, text, 120, communicator)
        assert (status, said.count("done")) == (0, 2), said

    @pytest.mark.parametrize("name", quick(FAILURES, "another dtype", "another number", "a sleeping rank"))
    def test_failure_reports_rank_collective_and_line(
        self, communicator: str, tmp_path: Path, name: str
    ) -> None:
        self._fails(communicator, tmp_path, name, FAILURES[name][0])

    @pytest.mark.slow
    @pytest.mark.parametrize("name", [name for name in FAILURES if name != "a sleeping rank"])
    def test_traced_failure_reports_rank_collective_and_line(
        self, communicator: str, tmp_path: Path, name: str
    ) -> None:
        body = "".join(f"    {line}\n" for line in FAILURES[name][0].splitlines())
        self._fails(communicator, tmp_path, name, f"@trace(symbolic=True)\ndef f(x):\n{body}\nf(x)")

    def _fails(self, communicator: str, tmp_path: Path, name: str, text: str) -> None:
        """Check that the program `text` ends as FAILURES says of `name`."""
        _, error, words = FAILURES[name]
        limit = "2" if error == LATE else "60"
        status, said = job(tmp_path, 2, X + text, 120, communicator, MGB_DISTRIBUTED_TIMEOUT=limit)
        assert status == 75 if error == LATE else status not in (0, 75), (status, said)
        assert error in said and words in said and "rank 0" in said and "rank 1" in said, said
        assert re.search(r"program\.py:\d+", said)

    @pytest.mark.parametrize("name", quick(ENDS, "killed in an exchange", "interrupted"))
    def test_terminated_rank_ends_the_job(self, communicator: str, tmp_path: Path, name: str) -> None:
        # The others wait for an hour: what ends them before the job's own limit is that the rank has ended.
        status, said = job(tmp_path, 2, X + ENDS[name], 120, communicator, MGB_DISTRIBUTED_TIMEOUT="3600")
        assert status != 0, said
