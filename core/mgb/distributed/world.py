"""The processes of the job: who is in it, how exchanges are agreed on, go on together and are waited for.

Every exchange is announced first: all ranks of the group say what comes, in 8 bytes, and who sees another
word says in full what it does. Several may be under way, and go on whenever this rank tests one or waits for
one; they start in the order in which they were begun. Waiting is polite, it tests and sleeps in turn, and has
a limit; meanwhile ranks tell each other by notes that they gave up, failed or have ended, and what they were
at.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError
from ..runtime import config
from .communicator import Collective, Communicator, chosen
from .errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistributedError,
    RankFailedError,
)
from .exchange import Exchange, Line

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

#: So many tests before the first sleep, later ones while others have yet to come: see `World.wait`.
_TESTS, _FEW = 200, 2
#: The length of a sleep in seconds, and of the longest, while others have yet to come.
_SLEEP, _LONGEST = 50e-6, 1e-3
#: Of each group so many exchanges are announced also where ``MGB_DISTRIBUTED_CHECK`` is 0.
_FIRST = 100
#: The status of a job whose ranks were late: the program may be right, and is to be started again.
_AGAIN = 75
#: Seconds that others have to say what they are at when one has given up.
_GRACE = 1.0


@dataclass
class World:
    """The state of a job that `init_process_group` creates, once in a process.

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
    flying : list
        The exchanges under way, in their order; also those that will never end: their arrays may still be
        written to, and nobody gets that memory.
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
    flying: list[Exchange] = field(default_factory=list)
    checks: bool = True

    def line(self, key: str) -> Line:
        """Return the line of a group, made when its ranks first use it."""
        if key not in self.lines:
            ranks = tuple(map(int, key.split(",")))
            if self.rank not in ranks:
                raise ArgumentError(f"rank {self.rank} is not in the group of ranks {key}")
            others = [r for r in ranks if r != self.rank]
            for other in others:
                self.communicator.post(other, b"join " + key.encode())
            self.at = f"the making of the group of ranks {key}"
            self.wait(lambda: all((r, key) in self.joined for r in others), ranks)
            self.lines[key] = Line(self.communicator.group(ranks), self.communicator.group(ranks), ranks)
        return self.lines[key]

    # exchanges

    def begin(self, key: str, what: Collective, source: Any, target: Any, about: str, said: str) -> Exchange:
        """Begin an exchange, on which the ranks agree; `test` and `finish` let all that are under way go on.

        Parameters
        ----------
        key : str
            The group.
        what : Collective
        source, target : array or None
            They are the exchange's until it is done.
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
        at = f"{about} (number {line.count} of group {key}){said}" if by_all else about + said
        found = Exchange(line, what, (source, target), at, (key, line.count) if by_all else None)
        if by_all and len(line.ranks) > 1 and (self.checks or line.count <= _FIRST):
            found.word = hashlib.blake2b(f"{line.count} {about}".encode(), digest_size=8).digest()
        self.at = at
        self.flying.append(found)
        self._guarded(found, self._begun, found)
        return found

    def _begun(self, found: Exchange) -> None:
        if found.word:
            found.announce()
        self._go_on()

    def exchange(self, key: str, what: Collective, source: Any, target: Any, about: str, said: str) -> None:
        """Run `begin` and `finish`."""
        self.finish(self.begin(key, what, source, target, about, said))

    def test(self, exchange: Exchange) -> bool:
        """Return whether it is done. All that are under way go on."""
        if not exchange.is_done:
            self._guarded(exchange, self._go_on)
        return exchange.is_done

    def finish(self, exchange: Exchange) -> None:
        """Wait until it is done."""
        if not exchange.is_done:
            self._guarded(exchange, self._finish, exchange)

    def _finish(self, exchange: Exchange) -> None:
        def is_done() -> bool:
            self._go_on()
            return exchange.is_done

        self.at = exchange.said
        self.wait(is_done, exchange.line.ranks, exchange.place)

    def _go_on(self) -> None:
        """Let each exchange go on; on a line they start in their order, as on every rank."""
        waiting: set[int] = set()
        for one in list(self.flying):
            if not one.is_agreed:
                if id(one.line) in waiting and one.place is not None:
                    continue
                if not one.is_announced():
                    waiting.add(id(one.line))
                    continue
                if not one.is_alike():
                    raise self._disagreement(one)
                one.start()
            if one.ticket is not None and one.ticket.test():
                one.is_done = True
                self.flying.remove(one)

    def _guarded(self, exchange: Exchange, work: Callable[..., None], *args: Any) -> None:
        """Do something that an error or an interrupt may end, and with it the common work."""
        if self.broken is not None:
            raise self.broken
        try:
            work(*args)
        except DistributedError as error:
            self.broken = error
            raise
        except BaseException as error:
            left = f"{type(error).__name__} ended {exchange.said} on this rank, half done: end the job"
            self.broken = RankFailedError(left)
            raise

    def _disagreement(self, exchange: Exchange) -> DistributedError:
        """Return the ranks differ, which each finds out: they tell what they do."""
        self.at = exchange.said
        self.tell("at", exchange.said)
        others = [r for r in exchange.line.ranks if r != self.rank]
        limit = time.monotonic() + config.DISTRIBUTED_TIMEOUT.whole(1)
        while time.monotonic() < limit and not all(r in self.ended or r in self.gave_up for r in others):
            self.listen()
            time.sleep(0.002)
        told = {self.rank: exchange.said, **self.ended, **self.gave_up}
        listed = "".join(f"\n  rank {r}: {told.get(r, 'is silent')}" for r in exchange.line.ranks)
        return CollectiveMismatchError(f"the ranks do not do the same:{listed}")

    # waiting

    def wait(
        self, test: Callable[[], bool], ranks: tuple[int, ...], place: tuple[str, int] | None = None
    ) -> None:
        """Wait until `test` holds, or the time limit is over; the limit is short if one of `ranks` has left.

        A core that another rank may need is free while this one sleeps: with more ranks than cores that
        is three times faster than testing all the time, and with a core for each it costs nothing. While
        bytes move, each test moves some; where others have yet to come, few tests do, and sleeps grow.

        Parameters
        ----------
        test : callable
        ranks : tuple of int
            Who takes part.
        place : (str, int), optional
            The group, and which of its exchanges this is: who has ended its program after that one is there.
        """
        begin, left, tests, sleep = time.monotonic(), False, _TESTS, _SLEEP
        limit = begin + config.DISTRIBUTED_TIMEOUT.whole(1)
        while True:
            for _ in range(tests):
                if test():
                    return
            if any(one.is_agreed for one in self.flying):
                tests, sleep = _TESTS, _SLEEP
            else:
                tests, sleep = _FEW, min(max(_SLEEP, 0.05 * (time.monotonic() - begin)), _LONGEST)
            self.listen()
            if not left and any(self._is_lost(rank, place) for rank in ranks):
                limit, left = min(limit, time.monotonic() + _GRACE), True
            if time.monotonic() > limit:
                raise self.failure(ranks)
            time.sleep(sleep)

    def _is_lost(self, rank: int, place: tuple[str, int] | None) -> bool:
        """Return whether it has given up, or ended before it came to `place`."""
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
        """Return the error for an exchange that does not come about: who is at what, and who is silent."""
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
        """End this rank after an exception: the others hear of it and may report it; then all end."""
        _hook(kind, error, trace)
        sys.stderr.flush()
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        self.tell("end", f"has raised {kind.__name__}: {error}{where}; it was at {self.at}")
        time.sleep(2 * _GRACE)
        self._abort(_AGAIN if issubclass(kind, CollectiveTimeoutError) else 1)

    def leave(self) -> None:
        """End the program of this rank: nobody waits for it, and it waits for the others."""
        counts = {key: line.count for key, line in self.lines.items()}
        self.tell(
            "left", json.dumps([counts, f"has ended its program; its last exchange was {self.at[:1000]}"])
        )
        limit = time.monotonic() + config.DISTRIBUTED_TIMEOUT.whole(1)
        while len(self.ended) < self.size - 1 and time.monotonic() < limit:
            self._let_go_on()
            self.listen()
            time.sleep(0.002)
        if len(self.ended) < self.size - 1:
            self._abort(1)

    def _abort(self, status: int) -> None:
        """End the job; the first rank that does so says with which status.

        The launcher of MPICH kills the other ranks, and now and then reports how one of those ended.
        """
        if path := config.DISTRIBUTED_STATUS.get():
            with suppress(OSError), open(path, "x") as file:
                file.write(str(status))
        self.communicator.abort(status)

    def _let_go_on(self) -> None:
        """Finish exchanges that an error left under way: other ranks may wait for them."""
        with suppress(DistributedError):
            if self.broken is None:
                self._go_on()


_hook: Callable[..., Any] = sys.excepthook
_world: World | None = None


def world() -> World:
    """Return the job that this process is in.

    Raises
    ------
    DistributedError
        `init_process_group` was not called.
    """
    if _world is None:
        raise DistributedError(
            "no process group: call mgb.distributed.init_process_group() first, in a program that is started "
            "by `mpiexec -n 2 python x.py` or `python -m mgb.distributed.run -n 2 x.py`"
        )
    return _world


def joined() -> World | None:
    """Return `world`, or None if this process is not in a job."""
    return _world


def join(name: str | None, address: tuple[str, int] | None, size: int | None, rank: int | None) -> World:
    """Make the `World` of this process."""
    global _world, _hook
    if _world is not None:
        raise DistributedError("init_process_group was called before: a process is in one job")
    communicator = chosen(name)
    channel = communicator.join(address, size, rank)
    found = World(communicator, channel.rank, channel.size)
    every = tuple(range(channel.size))
    words = communicator.group(every) if channel.size > 1 else channel
    found.lines["world"] = Line(channel, words, every)
    if (size, rank) != (None, None) and (size or channel.size, rank) != (channel.size, channel.rank):
        started = f"rank {channel.rank} of {channel.size}"
        raise ArgumentError(
            f"this process was started as {started}, and init_process_group got {rank} of {size}"
        )
    _world, found.checks = found, config.DISTRIBUTED_CHECK.on()
    if found.size > 1:
        _hook, sys.excepthook = sys.excepthook, found.failed
        atexit.register(found.leave)
    return found
