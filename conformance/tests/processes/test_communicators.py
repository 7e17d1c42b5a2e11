"""Communicators that lie: the suite must catch each of them, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "communicator_files"

MODULE = """
import time
import numpy as np
from mgb_communicator_files import Files, FilesChannel, write

class Lying(FilesChannel):
    def start(self, what, source, target):
        ticket = super().start(what, source, target)
        {channel}
        return ticket

class Liar(Files):
    name = "liar"
    def join(self, *args):
        channel = super().join(*args)
        channel.__class__ = Lying
        return channel
    {communicator}

communicator = Liar()
"""

#: What a channel does after the start of an exchange, or else a method; and what is said of it.
LIES = {
    "a sum that overflows otherwise": (
        "if target is not None and target.dtype == np.int8:\n"
        "            while not ticket.test(): time.sleep(0.01)\n"
        "            target[...] = np.clip(target.astype(int) + 1, -128, 127)",
        "",
        "all_reduce",
    ),
    "a start that waits": (
        "while what.kind == 'all_reduce' and not ticket.test(): time.sleep(0.01)",
        "",
        "seems to hold up",
    ),
    "memory beside the target": (
        "np.lib.stride_tricks.as_strided(target, (len(target) + 1,))[-1] = 1 if target.size else 0",
        "",
        "memory beside the target was written to",
    ),
    "groups that are one": (
        "",
        "def group(self, ranks):\n"
        "        return FilesChannel(self._folder, 'same', ranks.index(self._rank), len(ranks))",
        "groups_are_apart",
    ),
    "notes that are cut": (
        "",
        "def post(self, rank, note): super().post(rank, note[:1000])",
        "begin notes|notes-2",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if k in (1, 2) else pytest.mark.slow) for k, n in enumerate(LIES)]
)
def test_lying_communicator_is_detected(name: str, tmp_path: Path) -> None:
    channel, communicator, words = LIES[name]
    (tmp_path / "liar.py").write_text(MODULE.format(channel=channel, communicator=communicator))
    (metadata := tmp_path / "liar-1.dist-info").mkdir()
    (metadata / "METADATA").write_text("Name: liar\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[mgb.communicators]\nliar = liar:communicator\n")
    paths = os.pathsep.join([str(tmp_path), str(EXAMPLE)])
    command = "-m pytest -q -p no:cacheprovider --pyargs mgb_conformance.test_communicators".split()
    result = subprocess.run(
        [sys.executable, *command, "--mgb-communicator=liar", "-k", "TestChannels and 2"],
        env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path, text=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 1, result.stdout + result.stderr
    assert any(word in result.stdout for word in words.split("|")), result.stdout
