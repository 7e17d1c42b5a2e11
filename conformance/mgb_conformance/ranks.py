"""The test of a communicator in each process of a job: exchanges on its channels, compared with NumPy."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mgb.distributed.communicator import Channel, Collective, Communicator, Ticket, chosen
from mgb.runtime.device import array_module, to_host

#: Seconds for one exchange.
LIMIT = 60.0
#: What stands around each array, and has to stay.
GUARD, MARK = 64, 0xA5

NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
#: Elements, of a whole array or of each block: none, one, odd ones, and more than fits in one message.
LENGTHS = (0, 1, 7, 4099, 300_001)
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}

CASES: dict[str, Callable[[Job], None]] = {}


def case(function: Callable[[Job], None]) -> Callable[[Job], None]:
    """Add a case, by its name."""
    CASES[function.__name__] = function
    return function


class Guarded:
    """An array in the middle of memory that nobody may touch."""

    def __init__(self, content: Any, xp: Any) -> None:
        content = np.ascontiguousarray(content)
        self._bytes = xp.full(content.nbytes + 2 * GUARD, MARK, np.uint8)
        self.array = self._bytes[GUARD : len(self._bytes) - GUARD].view(content.dtype)
        self.array[...] = xp.asarray(content.reshape(-1))

    def check(self, wanted: Any, what: str) -> None:
        """Return whether that stands there, and nothing around it changed."""
        np.testing.assert_array_equal(to_host(self.array), wanted, what)
        every = to_host(self._bytes)
        around = np.concatenate([every[:GUARD], every[len(every) - GUARD :]])
        assert (around == MARK).all(), f"{what}: memory beside the target was written to"


@dataclass
class Job:
    """The job, as this process sees it."""

    communicator: Communicator
    channel: Channel
    xp: Any = np  # the module whose arrays are exchanged

    @property
    def rank(self) -> int:
        return self.channel.rank

    @property
    def size(self) -> int:
        return self.channel.size

    def wait(self, ticket: Ticket, what: str = "an exchange") -> None:
        """Wait until it is done."""
        self.until(ticket.test, what)
        assert ticket.test(), f"{what}: done, and later not"

    def until(self, test: Callable[[], Any], what: str) -> None:
        """Wait until `test` gives something true."""
        limit = time.monotonic() + LIMIT
        while not test():
            assert time.monotonic() < limit, f"{what} was not done within {LIMIT} s"
            time.sleep(1e-5)

    def makes(self, what: Collective, source: Any, target: Any, wanted: Any) -> None:
        """Check one exchange: what it gives, and that it changes nothing else."""
        said = f"{what} of {(source if source is not None else target).shape}"
        given = None if source is None else Guarded(source, self.xp)
        found = None if target is None else Guarded(target, self.xp)
        args = [None if one is None else one.array for one in (given, found)]
        self.wait(self.channel.start(what, *args), said)
        if given is not None:
            given.check(source, said + ", its source")
        if found is not None:
            found.check(wanted, said)


def every(job: Job, length: int, dtype: str = "uint8") -> list[Any]:
    """Make the input of each rank; sums of them are exact."""
    high = 256 if dtype == "uint8" else max(2, 100 // job.size)
    return [
        np.random.default_rng([length, k]).integers(0, high, length).astype(dtype) for k in range(job.size)
    ]


def numbers(job: Job) -> Iterator[tuple[str, int, str, list[Any], Any]]:
    """Yield reductions, with what each rank gives and the result."""
    for dtype, length, name in itertools.product(NUMBERS, LENGTHS, REDUCE):
        given = [x // job.size if dtype == "uint8" else x for x in every(job, length, dtype)]
        total = given[0]
        for x in given[1:]:
            total = REDUCE[name](total, x)
        yield dtype, length, name, given, total.astype(dtype)


@case
def all_reduce(job: Job) -> None:
    for dtype, length, name, given, total in numbers(job):
        what = Collective("all_reduce", name)
        job.makes(what, given[job.rank], np.zeros(length, dtype), total)
        job.makes(what, None, given[job.rank], total)  # in place


@case
def reduce(job: Job) -> None:
    for k, (dtype, length, name, given, total) in enumerate(numbers(job)):
        root = k % job.size
        target = np.zeros(length, dtype) if job.rank == root else None
        job.makes(Collective("reduce", name, root), given[job.rank], target, total)


@case
def reduce_scatter(job: Job) -> None:
    for _, length, name, given, total in numbers(job):
        blocks = total[: length // job.size * job.size].reshape(job.size, -1)
        mine = given[job.rank][: blocks.size]
        job.makes(Collective("reduce_scatter", name), mine, np.zeros_like(blocks[0]), blocks[job.rank])


@case
def broadcast(job: Job) -> None:
    for length, root in itertools.product(LENGTHS, range(job.size)):
        given = every(job, length)
        job.makes(Collective("broadcast", peer=root), None, given[job.rank], given[root])


@case
def all_gather(job: Job) -> None:
    for length in LENGTHS:
        given = every(job, length)
        target = np.zeros(length * job.size, np.uint8)
        job.makes(Collective("all_gather"), given[job.rank], target, np.concatenate(given))


@case
def gather(job: Job) -> None:
    for length, root in itertools.product(LENGTHS, range(job.size)):
        given = every(job, length)
        target = np.zeros(length * job.size, np.uint8) if job.rank == root else None
        job.makes(Collective("gather", peer=root), given[job.rank], target, np.concatenate(given))


@case
def scatter(job: Job) -> None:
    for length, root in itertools.product(LENGTHS, range(job.size)):
        blocks = every(job, length)
        source = np.concatenate(blocks) if job.rank == root else None
        job.makes(Collective("scatter", peer=root), source, np.zeros(length, np.uint8), blocks[job.rank])


@case
def all_to_all(job: Job) -> None:
    for length in LENGTHS:
        given = [x.reshape(job.size, length) for x in every(job, length * job.size)]
        wanted = np.concatenate([x[job.rank] for x in given])
        job.makes(Collective("all_to_all"), given[job.rank].ravel(), np.zeros_like(wanted), wanted)


@case
def send_and_recv(job: Job) -> None:
    """Send messages between ranks; they arrive in order, whatever order the exchanges are tested in."""
    for giver, taker in itertools.permutations(range(job.size), 2):
        texts = [np.full(length + 1, k, np.uint8) for k, length in enumerate(LENGTHS)]
        if job.rank == giver:
            tickets = [
                job.channel.start(Collective("send", peer=taker), job.xp.asarray(text), None)
                for text in texts
            ]
        elif job.rank == taker:
            found = [Guarded(np.zeros_like(text), job.xp) for text in texts]
            tickets = [job.channel.start(Collective("recv", peer=giver), None, f.array) for f in found]
        else:
            continue
        for ticket in reversed(tickets):
            job.wait(ticket)
        if job.rank == taker:
            for one, text in zip(found, texts, strict=True):
                one.check(text, "recv")


@case
def all_ranks_get_the_same_bits(job: Job) -> None:
    values = job.xp.asarray(np.random.default_rng(job.rank).normal(size=4099).astype("f4"))
    target, all_bits = job.xp.zeros_like(values), job.xp.zeros(job.size * values.nbytes, np.uint8)
    for _ in range(3):
        job.wait(job.channel.start(Collective("all_reduce", "sum"), values, target))
        job.wait(job.channel.start(Collective("all_gather"), target.view(np.uint8), all_bits))
        bits = to_host(all_bits).reshape(job.size, -1)
        assert (bits == bits[0]).all(), "the sum has other bits on another rank"


@case
def start_returns_at_once(job: Job) -> None:
    """Start at rank 0 before the others, who start when it reports that it has come back."""
    source, target = job.xp.ones(300_001), job.xp.zeros(300_001)
    if job.rank:
        job.until(job.communicator.notes, "a note of rank 0, which start() seems to hold up,")
    ticket = job.channel.start(Collective("all_reduce", "sum"), source, target)
    if not job.rank:
        assert not ticket.test() or job.size == 1, "done before the others began"
        for other in range(1, job.size):
            job.communicator.post(other, b"started")
    job.wait(ticket)
    assert (to_host(target) == job.size).all()


@case
def several_at_once(job: Job) -> None:
    """Exchange several at the same time, of all kinds, looked at in another order on each rank."""
    given = [every(job, length, "float32") for length in LENGTHS * 2]
    targets = [job.xp.zeros_like(job.xp.asarray(x[0])) for x in given]
    tickets = [
        job.channel.start(Collective("all_reduce", "sum"), job.xp.asarray(x[job.rank]), target)
        for x, target in zip(given, targets, strict=True)
    ]
    order = np.random.default_rng(job.rank).permutation(len(tickets))
    for k in order:
        job.wait(tickets[k])
        np.testing.assert_array_equal(to_host(targets[k]), np.sum(given[k], 0))


@case
def groups_are_apart(job: Job) -> None:
    """Use other orders of ranks, and two groups of the same: what one exchanges, another does not see."""
    if job.rank > 1 or job.size < 2:
        return
    one, two = (job.communicator.group((1, 0)) for _ in range(2))
    for group in (one, two):
        assert (group.rank, group.size) == (1 - job.rank, 2), "the ranks of a group stand in its order"
    mine = [job.xp.full(1000, 10 * k + job.rank, "f8") for k in range(2)]
    found = [job.xp.zeros(1000) for _ in range(2)]
    first, second = ((one, 0), (two, 1)) if job.rank else ((two, 1), (one, 0))
    tickets = [g.start(Collective("all_reduce", "sum"), mine[k], found[k]) for g, k in (first, second)]
    for ticket in tickets:
        job.wait(ticket)
    assert [float(f[0]) for f in found] == [1, 21]
    roots = job.xp.full(8, job.rank, np.uint8)
    job.wait(one.start(Collective("broadcast"), None, roots))
    assert (to_host(roots) == 1).all(), "the root of a broadcast is a rank of the group"


@case
def notes(job: Job) -> None:
    """Post notes: they come whole and in the order of their writer; nobody waits for them."""
    assert job.communicator.notes() == []
    job.wait(job.channel.start(Collective("all_reduce", "max"), np.zeros(1), np.zeros(1)))
    texts = [b"", b"one", bytes(range(256)) * 16, b"last"]
    others = [r for r in range(job.size) if r != job.rank]
    for text in texts:
        for other in others:
            job.communicator.post(other, text)
    found: list[tuple[int, bytes]] = []

    def all_have_come() -> bool:
        found.extend(job.communicator.notes())
        return len(found) >= len(texts) * len(others)

    job.until(all_have_come, "the coming of all notes")
    for other in others:
        assert [text for who, text in found if who == other] == texts


def main(folder: str) -> None:
    """Try all cases in turn, and write down how each ended; after one that fails nothing is in step."""
    communicator = chosen()
    channel = communicator.join(None, None, None)
    job, ends = Job(communicator, channel), np.zeros(1)
    with open(Path(folder) / f"rank-{channel.rank}", "w") as file:
        for name, function in CASES.items():
            print(f"begin {name}", file=file, flush=True)
            try:
                for device in sorted(communicator.devices):
                    job.xp = array_module("gpu0") if device == "gpu" else np
                    function(job)
                job.wait(channel.start(Collective("all_reduce", "max"), ends, np.zeros(1)), "the next case")
            except Exception:
                print(traceback.format_exc(), file=file, flush=True)
                time.sleep(1)  # others may fail as well
                communicator.abort(1)
            print(f"end {name}", file=file, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
