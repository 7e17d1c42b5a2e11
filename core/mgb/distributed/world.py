"""The processes of the job: who is in it, how an exchange is made, agreed on and waited for.

Every exchange is announced first: all ranks of the group say what comes, in 8 bytes, and who sees another
word says in full what it does. Waiting is polite, it tests and sleeps in turn, and has a limit; meanwhile
ranks tell each other by notes that they gave up, failed or have ended, and what they were at.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import config
from .communicator import Channel, Collective, Communicator, chosen
from .errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistributedError,
    GroupError,
    NotDistributedError,
    RankFailedError,
)

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

#: So many tests before the first sleep, and its length in seconds: see `World.wait`.
_TESTS, _SLEEP = 200, 50e-6
#: Bytes of a full description.
_TEXT = 512
#: Of each group so many exchanges are announced also where ``MGB_DISTRIBUTED_CHECK`` is 0.
_FIRST = 100
#: Seconds that others have to say what they are at when one has given up.
_GRACE = 1.0

_TO_ALL = Collective("all_gather")


@dataclass(slots=True)
class Line:
    """A group's channel and how many exchanges it has seen."""

    channel: Channel
    ranks: tuple[int, ...]
    count: int = 0


@dataclass
class World:
    """What `init_process_group` makes; there is one in a process.

    Attributes
    ----------
    at : str
        What this rank is at, in words: others are told of it.
    broken : DistributedError or None
        What ended the common work: every later exchange raises it again.
    ended : dict
        The ranks that will answer no more, and why.
    counts : dict
        How many exchanges of each group those ranks have made that have ended well.
    left : list
        The arrays of exchanges that did not end. They may still be written to: nobody gets their memory.
    """

    communicator: Communicator
    rank: int
    size: int
    lines: dict[str, Line] = field(default_factory=dict)
    at: str = "nothing yet"
    broken: DistributedError | None = None
    ended: dict[int, str] = field(default_factory=dict)
    gave_up: dict[int, str] = field(default_factory=dict)
    joined: set[tuple[int, str]] = field(default_factory=set)  # who has asked for which group
    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    left: list[Any] = field(default_factory=list)
    checks: bool = True

    def line(self, key: str) -> Line:
        """That of a group, made when its ranks first use it."""
        if key not in self.lines:
            ranks = tuple(map(int, key.split(",")))
            if self.rank not in ranks:
                raise GroupError(f"rank {self.rank} is not in the group of ranks {key}")
            others = [r for r in ranks if r != self.rank]
            for other in others:
                self.communicator.post(other, b"join " + key.encode())
            self.at = f"the making of the group of ranks {key}"
            self.wait(lambda: all((r, key) in self.joined for r in others), ranks)
            self.lines[key] = Line(self.communicator.group(ranks), ranks)
        return self.lines[key]

    # exchanges

    def exchange(self, key: str, what: Collective, source: Any, target: Any, about: str, said: str) -> None:
        """Make one exchange, on which the ranks agree.

        Parameters
        ----------
        key : str
            The group.
        what : Collective
        source, target : array or None
        about : str
            What all ranks have to say alike.
        said : str
            What this rank says besides if they do not: its shape, its source line.
        """
        if self.broken is not None:
            raise self.broken
        line = self.line(key)
        by_all = what.kind not in ("send", "recv")
        line.count += by_all
        self.at = f"{about} (number {line.count} of group {key}){said}" if by_all else about + said
        try:
            if by_all and (self.checks or line.count <= _FIRST):
                self._agree(key, line, about)
            self._run(line, what, source, target, (key, line.count) if by_all else None)
        except DistributedError as error:
            self.broken = error
            raise
        except BaseException as error:
            left = f"{type(error).__name__} ended {self.at} on this rank, half done: end the job"
            self.broken = RankFailedError(left)
            raise

    def _run(
        self, line: Line, what: Collective, source: Any, target: Any, place: tuple[str, int] | None
    ) -> None:
        try:
            self.wait(line.channel.start(what, source, target).test, line.ranks, place)
        except BaseException:
            self.left += [source, target]
            raise

    def _agree(self, key: str, line: Line, about: str) -> None:
        word = hashlib.blake2b(f"{line.count} {about}".encode(), digest_size=8).digest()
        words = self._from_all(key, line, np.frombuffer(word, np.uint8))
        if all(bytes(w) == word for w in words):
            return
        mine = np.frombuffer(self.at.encode()[:_TEXT].ljust(_TEXT), np.uint8)
        texts = [bytes(t).decode(errors="replace").strip() for t in self._from_all(key, line, mine)]
        listed = "".join(f"\n  rank {r}: {text}" for r, text in zip(line.ranks, texts, strict=True))
        raise CollectiveMismatchError(f"the ranks do not do the same:{listed}")

    def _from_all(self, key: str, line: Line, mine: Any) -> Any:
        everyone = np.empty((len(line.ranks), mine.size), np.uint8)
        self._run(line, _TO_ALL, mine, everyone, (key, line.count))
        return everyone

    # waiting

    def wait(
        self, test: Callable[[], bool], ranks: tuple[int, ...], place: tuple[str, int] | None = None
    ) -> None:
        """Until `test` holds, or the limit is over; it is short when one of `ranks` will not come.

        A core that another rank may need is free while this one sleeps: with more ranks than cores that
        is three times faster than testing all the time, and with a core for each it costs nothing.

        Parameters
        ----------
        test : callable
        ranks : tuple of int
            Who takes part.
        place : (str, int), optional
            The group, and which of its exchanges this is: who has ended its program after that one is there.
        """
        limit, left = time.monotonic() + config.DISTRIBUTED_TIMEOUT.whole(1), False
        while True:
            for _ in range(_TESTS):
                if test():
                    return
            self.listen()
            if not left and any(self._is_lost(rank, place) for rank in ranks):
                limit, left = min(limit, time.monotonic() + _GRACE), True
            if time.monotonic() > limit:
                raise self.failure(ranks)
            time.sleep(_SLEEP)

    def _is_lost(self, rank: int, place: tuple[str, int] | None) -> bool:
        """Has it given up, or ended before it came to `place`?"""
        if rank in self.gave_up or rank not in self.ended:
            return rank in self.gave_up
        return place is None or self.counts.get(rank, {}).get(place[0], 0) < place[1]

    def listen(self) -> None:
        """Take the notes that have come."""
        for rank, note in self.communicator.notes():
            kind, _, text = note.decode(errors="replace").partition(" ")
            if kind == "join":
                self.joined.add((rank, text))
            elif kind == "end":
                self.ended[rank], self.counts[rank] = text, {}
            elif kind == "left":
                self.counts[rank], self.ended[rank] = json.loads(text)
            else:
                self.gave_up[rank] = text

    def tell(self, kind: str, text: str) -> None:
        """Leave a note for every other rank."""
        for rank in range(self.size):
            if rank != self.rank:
                self.communicator.post(rank, f"{kind} {text}".encode()[:4096])

    def failure(self, ranks: tuple[int, ...]) -> DistributedError:
        """The error for an exchange that does not come about: who is at what, and who is silent."""
        self.tell("at", self.at)
        others = [r for r in ranks if r != self.rank]
        limit = time.monotonic() + _GRACE
        while time.monotonic() < limit and not all(r in self.ended or r in self.gave_up for r in others):
            self.listen()
            time.sleep(0.005)
        lines = [f"\n  rank {self.rank} waits in {self.at}"]
        for r in others:
            said = (
                f"waits in {self.gave_up[r]}" if r in self.gave_up else "is silent: busy elsewhere, or dead"
            )
            lines.append(f"\n  rank {r} {self.ended.get(r, said)}")
        text = "".join(lines)
        if any(r in self.ended for r in others):
            return RankFailedError(f"a rank has ended before all came to {self.at}:{text}")
        if all(r in self.gave_up for r in others):
            return CollectiveMismatchError(f"the ranks do not do the same:{text}")
        seconds = config.DISTRIBUTED_TIMEOUT.get()
        return CollectiveTimeoutError(
            f"not all ranks came to {self.at} within {seconds} s ({config.DISTRIBUTED_TIMEOUT.name}):{text}"
        )

    # the end

    def failed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """An exception ends this rank: the others hear of it, and have a moment to say so; then all end."""
        _hook(kind, error, trace)
        sys.stderr.flush()
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        self.tell("end", f"has raised {kind.__name__}: {error}{where}; it was at {self.at}")
        time.sleep(2 * _GRACE)
        self.communicator.abort(1)

    def leave(self) -> None:
        """The program of this rank is over: let nobody wait for it, and wait for the others."""
        counts = {key: line.count for key, line in self.lines.items()}
        self.tell(
            "left", json.dumps([counts, f"has ended its program; its last exchange was {self.at[:1000]}"])
        )
        limit = time.monotonic() + config.DISTRIBUTED_TIMEOUT.whole(1)
        while len(self.ended) < self.size - 1 and time.monotonic() < limit:
            self.listen()
            time.sleep(0.002)
        if len(self.ended) < self.size - 1:
            self.communicator.abort(1)


_hook: Callable[..., Any] = sys.excepthook
_world: World | None = None


def world() -> World:
    """The job that this process is in.

    Raises
    ------
    NotDistributedError
        `init_process_group` was not called.
    """
    if _world is None:
        raise NotDistributedError(
            "no process group: call mgb.distributed.init_process_group() first, in a program that is started "
            "by `mpiexec -n 2 python x.py` or `python -m mgb.distributed.run -n 2 x.py`"
        )
    return _world


def joined() -> World | None:
    """As `world`; None: this process is in no job."""
    return _world


def join(name: str | None, address: tuple[str, int] | None, size: int | None, rank: int | None) -> World:
    """Make the `World` of this process."""
    global _world, _hook
    if _world is not None:
        raise DistributedError("init_process_group was called before: a process is in one job")
    communicator = chosen(name)
    channel = communicator.join(address, size, rank)
    found = World(communicator, channel.rank, channel.size)
    found.lines["world"] = Line(channel, tuple(range(channel.size)))
    if (size, rank) != (None, None) and (size or channel.size, rank) != (channel.size, channel.rank):
        started = f"rank {channel.rank} of {channel.size}"
        raise GroupError(
            f"this process was started as {started}, and init_process_group got {rank} of {size}"
        )
    _world, found.checks = found, config.DISTRIBUTED_CHECK.on()
    if found.size > 1:
        _hook, sys.excepthook = sys.excepthook, found.failed
        atexit.register(found.leave)
    return found
