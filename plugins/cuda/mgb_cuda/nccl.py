"""Exchanges of arrays on GPUs by NCCL, through CuPy; the processes, notes and arrays of the host are MPI's.

A `Lane` is a communicator of NCCL with a stream of its own. It is made when the first array of a GPU is
exchanged, in a thread, since NCCL waits there until all its ranks have come; what is started meanwhile
waits in its order. Messages have a lane for each direction between two ranks: two that send to each other
would wait for each other on one.
"""

from __future__ import annotations

import ast
import importlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from mgb.distributed.communicator import Channel, Collective, Communicator, Ticket, chosen
from mgb.distributed.errors import DistributedError, RankFailedError

#: Bytes in which the first rank of a lane tells the others its id.
_ID = 1024

#: Dtypes that NCCL reduces, by the names of its constants; integers of 16 bits are summed in 32.
_REDUCED = {
    "int8": "NCCL_INT8", "uint8": "NCCL_UINT8", "int32": "NCCL_INT32", "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64", "uint64": "NCCL_UINT64", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64",
}  # fmt: skip
_WIDER = {"int16": "int32", "uint16": "uint32"}


def _nccl() -> Any:
    return importlib.import_module("cupy.cuda.nccl")


class Lane:
    """Exchanges that go over one communicator of NCCL, in the order in which they were started.

    Parameters
    ----------
    rank, size : int
        Of this process among those of the lane.
    ordinal : int
        The number of its GPU.
    share : callable
        Begins to give the id that stands in an array on the first rank to all others.
    every : list of Lane
        Those of this process, which go on together: another rank may have come to another one first.
    """

    def __init__(
        self, rank: int, size: int, ordinal: int, share: Callable[[Any], Ticket], every: list[Lane]
    ) -> None:
        self.rank, self.size, self.ordinal, self.every = rank, size, ordinal, every
        self.comm: Any = None
        self._id = np.zeros(_ID, np.uint8)
        if rank == 0:
            text = repr(_nccl().get_unique_id()).encode()
            self._id[: len(text)] = np.frombuffer(text, np.uint8)
        self._shared = share(self._id)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._waiting: deque[_Exchange] = deque()

    def add(self, exchange: _Exchange) -> _Exchange:
        """Launch it, when those before it are."""
        self._waiting.append(exchange)
        self.go_on()
        return exchange

    def go_on(self) -> None:
        """Launch what waits, if all ranks have come."""
        if self._error is not None:
            raise RankFailedError(f"NCCL: {self._error}") from self._error
        if self.comm is None and not self._has_come():
            return
        while self._waiting:
            self._waiting[0].launch(self)
            self._waiting.popleft()

    def check(self) -> None:
        """Raise what NCCL has found out since."""
        try:
            self.comm.check_async_error()
        except Exception as error:
            self._error = error
            raise RankFailedError(f"NCCL: {error}") from error

    def _has_come(self) -> bool:
        if self._thread is None and self._shared.test():
            self._thread = threading.Thread(target=self._join, name="mgb-nccl", daemon=True)
            self._thread.start()
        return False  # the thread says so

    def _join(self) -> None:
        import cupy

        try:
            unique = ast.literal_eval(bytes(self._id).rstrip(b"\0").decode())
            with cupy.cuda.Device(self.ordinal):
                self.stream = cupy.cuda.Stream(non_blocking=True)
                self.comm = _nccl().NcclCommunicator(self.size, unique, self.rank)
        except BaseException as error:
            self._error = error


class _Exchange:
    """An exchange on a lane; it holds its arrays, and those that stand for them."""

    def __init__(self, lane: Lane, what: Collective, source: Any, target: Any) -> None:
        import cupy

        self._lane, self._what, self._arrays = lane, what, (source, target)
        self._held: tuple[Any, ...] = ()
        self._narrows = False
        self._done: Any = None
        with cupy.cuda.Device(lane.ordinal):
            self._ready = cupy.cuda.Event(disable_timing=True)
            self._ready.record()  # what the current stream computes has to be there

    def test(self) -> bool:
        """Return whether it is done."""
        import cupy

        if self._done is None:
            for lane in self._lane.every:
                lane.go_on()
        if self._done is None:
            return False
        self._lane.check()
        if not self._done.done:
            return False
        if self._narrows:  # on the current stream, where the target is read
            with cupy.cuda.Device(self._lane.ordinal):
                self._arrays[1][...] = self._held[1].astype(self._arrays[1].dtype)
            self._narrows = False
        return True

    def launch(self, lane: Lane) -> None:
        """Give it to the GPU."""
        import cupy

        with cupy.cuda.Device(lane.ordinal), lane.stream:
            lane.stream.wait_event(self._ready)
            source, target = self._arrays
            if (target if source is None else source).size:
                self._send(lane, source, target)
            self._done = cupy.cuda.Event(disable_timing=True)
            self._done.record(lane.stream)

    def _send(self, lane: Lane, source: Any, target: Any) -> None:
        what, source = self._what, target if source is None and self._what.reduce else source
        wider = _WIDER.get(source.dtype.name) if what.reduce else None
        given, found = source, target
        if wider is not None:
            given = source.astype(wider)
            found = None if target is None else target.astype(wider)
        self._held, self._narrows = (given, found), found is not target
        if what.reduce:
            _reduce(lane, what, given, found)
        elif what.kind in ("broadcast", "all_gather"):
            _spread(lane, what, given, found)
        else:
            _pairwise(lane, what, given, found)


def _pointer(array: Any) -> int:
    return 0 if array is None else int(array.data.ptr)


def _reduce(lane: Lane, what: Collective, source: Any, target: Any) -> None:
    nccl, stream = _nccl(), lane.stream.ptr
    kind = getattr(nccl, _REDUCED[source.dtype.name])
    operation = getattr(nccl, f"NCCL_{what.reduce.upper()}")
    ends = _pointer(source), _pointer(target)
    if what.kind == "all_reduce":
        lane.comm.allReduce(*ends, source.size, kind, operation, stream)
    elif what.kind == "reduce":
        lane.comm.reduce(*ends, source.size, kind, operation, what.peer, stream)
    else:
        lane.comm.reduceScatter(*ends, target.size, kind, operation, stream)


def _spread(lane: Lane, what: Collective, source: Any, target: Any) -> None:
    nccl, stream = _nccl(), lane.stream.ptr
    if what.kind == "broadcast":
        both = _pointer(target), _pointer(target)
        lane.comm.broadcast(*both, target.nbytes, nccl.NCCL_UINT8, what.peer, stream)
    else:
        lane.comm.allGather(_pointer(source), _pointer(target), source.nbytes, nccl.NCCL_UINT8, stream)


def _pairwise(lane: Lane, what: Collective, source: Any, target: Any) -> None:
    """Issue the sends and receives between ranks as one group: NCCL runs all of a group together."""
    nccl, everyone, is_root = _nccl(), range(lane.size), lane.rank == what.peer
    takers = {"send": (1,), "recv": (), "gather": (what.peer,), "scatter": everyone if is_root else ()}
    givers = {"send": (), "recv": (0,), "scatter": (what.peer,), "gather": everyone if is_root else ()}
    given = _blocks(source, lane.size if what.kind in ("scatter", "all_to_all") else 1)
    found = _blocks(target, lane.size if what.kind in ("gather", "all_to_all") else 1)
    nccl.groupStart()
    for taker in takers.get(what.kind, everyone):
        start, nbytes = given[taker % len(given)]
        lane.comm.send(start, nbytes, nccl.NCCL_UINT8, taker, lane.stream.ptr)
    for giver in givers.get(what.kind, everyone):
        start, nbytes = found[giver % len(found)]
        lane.comm.recv(start, nbytes, nccl.NCCL_UINT8, giver, lane.stream.ptr)
    nccl.groupEnd()


def _blocks(array: Any, number: int) -> list[tuple[int, int]]:
    """Return where each of its parts begins, and its bytes."""
    if array is None:
        return []
    size = array.nbytes // number
    return [(_pointer(array) + k * size, size) for k in range(number)]


class NcclChannel(Channel):
    """Arrays of GPUs go over lanes of NCCL, those of the host over a channel of MPI.

    Parameters
    ----------
    host : Channel
    """

    def __init__(self, host: Channel, lanes: list[Lane]) -> None:
        self._host, self.rank, self.size = host, host.rank, host.size
        self._lanes: dict[Any, Lane] = {}
        self._every = lanes

    def start(self, what: Collective, source: Any, target: Any) -> Ticket:
        """Begin an exchange."""
        array = target if source is None else source
        if isinstance(array, np.ndarray):
            return self._host.start(what, source, target)
        lane = self._lane(what, array.device.id)
        return lane.add(_Exchange(lane, what, source, target))

    def _lane(self, what: Collective, ordinal: int) -> Lane:
        pair = what.kind in ("send", "recv")
        key = (what.kind, what.peer, ordinal) if pair else ordinal
        if key not in self._lanes:
            self._lanes[key] = self._pair(what, ordinal) if pair else self._all(ordinal)
            self._every.append(self._lanes[key])
        return self._lanes[key]

    def _all(self, ordinal: int) -> Lane:
        def share(text: Any) -> Ticket:
            return self._host.start(Collective("broadcast"), None, text)

        return Lane(self.rank, self.size, ordinal, share, self._every)

    def _pair(self, what: Collective, ordinal: int) -> Lane:
        """Return the lane of a pair; the sender is the first rank."""

        def share(text: Any) -> Ticket:
            return self._host.start(what, *((text, None) if what.kind == "send" else (None, text)))

        return Lane(int(what.kind == "recv"), 2, ordinal, share, self._every)


class Nccl(Communicator):
    """The job that MPI has started, each of whose processes has a GPU of its own."""

    name = "nccl"
    devices = frozenset({"cpu", "gpu"})
    api_version = 1
    extends = "mpi"

    def __init__(self) -> None:
        self._lanes: list[Lane] = []

    def probe(self) -> str | None:
        """Return whether CuPy, NCCL, a GPU and MPI are here."""
        if find_spec("cupy") is None:
            return "it needs CuPy: pip install 'mgb[cuda13]' (or 'mgb[cuda12]', as your driver has it)"
        import cupy

        try:
            if not cupy.cuda.runtime.getDeviceCount():
                return "there is no GPU"
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"there is no GPU: {error}"
        if not getattr(_nccl(), "available", True):
            return "NCCL is not installed: pip install nvidia-nccl-cu13 (or nvidia-nccl-cu12)"
        try:
            chosen(self.extends)
        except DistributedError as error:
            return str(error)
        return None

    def command(self, number: int, program: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
        """Return the command that starts the ranks, by MPI."""
        return chosen(self.extends, joins=False).command(number, program)

    def join(self, address: tuple[str, int] | None, size: int | None, rank: int | None) -> Channel:
        """Be a process of the job, as MPI's launcher says."""
        self._host = chosen(self.extends)
        return NcclChannel(self._host.join(address, size, rank), self._lanes)

    def group(self, ranks: tuple[int, ...]) -> Channel:
        """Open the channels of these ranks."""
        return NcclChannel(self._host.group(ranks), self._lanes)

    def post(self, rank: int, note: bytes) -> None:
        """Post notes by MPI."""
        self._host.post(rank, note)

    def notes(self) -> list[tuple[int, bytes]]:
        """Return notes from MPI."""
        return self._host.notes()

    def abort(self, code: int) -> None:
        """End the job; kernels of NCCL that wait for others are ended first."""
        for lane in self._lanes:
            if lane.comm is not None:
                lane.comm.abort()
        self._host.abort(code)


communicator = Nccl()
