"""A communicator in little code: the processes of a job write their messages as files into one folder.

It is slow, and whole: every kind of exchange, groups, notes, and a launcher that ends the job when a process
fails. `python -m mgb_communicator_files N PROGRAM` is that launcher.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mgb.distributed.communicator import Channel, Collective, Communicator, Ticket

#: Of a process of a job: its folder, rank and size.
_JOB = "MGB_COMMUNICATOR_FILES_JOB"
_REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Awaited:
    """An exchange that is done when all its files have come and `finish` has used them."""

    def __init__(self, paths: list[Path], finish: Callable[[list[bytes]], None]) -> None:
        self._paths, self._finish = paths, finish

    def test(self) -> bool:
        """Is it done?"""
        if self._paths:
            if not all(path.exists() for path in self._paths):
                return False
            self._finish([path.read_bytes() for path in self._paths])
            for path in self._paths:
                path.unlink()
            self._paths = []
        return True


class FilesChannel(Channel):
    """Files whose names begin with `name`; each exchange has its number in them."""

    def __init__(self, folder: Path, name: str, rank: int, size: int) -> None:
        self._folder, self._name, self.rank, self.size = folder, name, rank, size
        self._counts: Counter[str] = Counter()

    def start(self, what: Collective, source: Any, target: Any) -> Ticket:
        """Write what others need; the rest is done when theirs is there."""
        everyone, root, me = range(self.size), what.peer, self.rank
        at_root = everyone if me == root else ()
        givers, takers = {
            "send": ((), (root,)),
            "recv": ((root,), ()),
            "broadcast": ((root,), at_root),
            "scatter": ((root,), at_root),
            "gather": (at_root, (root,)),
            "reduce": (at_root, (root,)),
        }.get(what.kind, (everyone, everyone))
        way = "all" if what.kind not in ("send", "recv") else f"{(*givers, me)[0]}-{(*takers, me)[0]}"
        self._counts[way] += 1
        name = f"{self._name}.{way}.{self._counts[way]}"
        if takers:
            given = np.ascontiguousarray(target if source is None else source).reshape(-1)
            has_blocks = what.kind in ("scatter", "reduce_scatter", "all_to_all")
            blocks = np.split(given, self.size) if has_blocks else [given] * self.size
            for taker in takers:
                write(self._folder / f"{name}.{me}-{taker}", blocks[taker].tobytes())
        reduction = _REDUCTIONS.get(what.reduce)

        def finish(found: list[bytes]) -> None:
            parts = [np.frombuffer(content, target.dtype) for content in found]
            if reduction is not None:
                parts = [functools.reduce(reduction, parts)]
            target.reshape(-1)[...] = np.concatenate(parts)

        return Awaited([self._folder / f"{name}.{giver}-{me}" for giver in givers], finish)


def write(path: Path, content: bytes) -> None:
    """A file that is there when it is whole."""
    path.with_name(f"part.{path.name}").write_bytes(content)
    path.with_name(f"part.{path.name}").rename(path)


class Files(Communicator):
    """The job that `python -m mgb_communicator_files` has started, or one process alone."""

    name, devices, api_version = "files", frozenset({"cpu"}), 1

    def command(self, number: int, program: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
        """Through the launcher below."""
        return [sys.executable, "-m", __name__, str(number), *program], {}

    def join(self, address: tuple[str, int] | None, size: int | None, rank: int | None) -> Channel:
        """Be the process that the launcher says."""
        folder, place, number = os.environ.get(_JOB, f"{tempfile.mkdtemp()} 0 1").rsplit(" ", 2)
        self._folder, self._rank, self._size = Path(folder), int(place), int(number)
        self._groups: Counter[str] = Counter()
        self._posted: Counter[str] = Counter()
        return FilesChannel(self._folder, "world", self._rank, self._size)

    def group(self, ranks: tuple[int, ...]) -> Channel:
        """Files of another name; each rank has asked for this group as often."""
        name = "_".join(map(str, ranks))
        self._groups[name] += 1
        return FilesChannel(
            self._folder, f"group.{name}.{self._groups[name]}", ranks.index(self._rank), len(ranks)
        )

    def post(self, rank: int, note: bytes) -> None:
        """A file; its name has its place among those of this writer."""
        way = f"note.{self._rank}-{rank}"
        self._posted[way] += 1
        write(self._folder / f"{way}.{self._posted[way]}", note)

    def notes(self) -> list[tuple[int, bytes]]:
        """Of each writer those that have come."""
        found = []
        for writer in range(self._size):
            way = f"note.{writer}-{self._rank}"
            while (path := self._folder / f"{way}.{self._posted[f'got {way}'] + 1}").exists():
                found.append((writer, path.read_bytes()))
                path.unlink()
                self._posted[f"got {way}"] += 1
        return found

    def abort(self, code: int) -> None:
        """End this process: the launcher ends the others."""
        sys.stderr.flush()
        os._exit(code or 1)


def launch(number: int, program: Sequence[str]) -> int:
    """Run the processes; all are ended when one fails. The status is that of the first that does."""
    folder, processes = tempfile.mkdtemp(prefix="mgb-files-"), []
    try:
        for rank in range(number):
            environment = {**os.environ, _JOB: f"{folder} {rank} {number}"}
            processes.append(subprocess.Popen([sys.executable, *program], env=environment))
        while True:
            codes = [process.poll() for process in processes]
            failed = next((code for code in codes if code), 0)
            if failed or None not in codes:
                return abs(failed)
            time.sleep(0.02)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


communicator = Files()

if __name__ == "__main__":
    sys.exit(launch(int(sys.argv[1]), sys.argv[2:]))
