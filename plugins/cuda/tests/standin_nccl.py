"""``cupy.cuda.nccl`` in the place of CuPy's: the same functions with the same parameters, by files.

What they are given is checked as NCCL would: dtypes, handles of streams, groups that are closed. The arrays
are those of `mgb_conformance.standin`, which lie in the memory of the host.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from mgb.distributed.communicator import Collective
from mgb_conformance import standin
from mgb_conformance.standin.cuda import under_way

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "communicator_files"))
from mgb_communicator_files import FilesChannel

DTYPES = {
    "NCCL_INT8": (0, "i1"), "NCCL_UINT8": (1, "u1"), "NCCL_INT32": (2, "i4"), "NCCL_UINT32": (3, "u4"),
    "NCCL_INT64": (4, "i8"), "NCCL_UINT64": (5, "u8"), "NCCL_FLOAT32": (7, "f4"), "NCCL_FLOAT64": (8, "f8"),
}  # fmt: skip
OPERATIONS = {"NCCL_SUM": (0, "sum"), "NCCL_MAX": (2, "max"), "NCCL_MIN": (3, "min")}
_dtypes, _operations = dict(DTYPES.values()), dict(OPERATIONS.values())
_group: list[list[Callable[[], None]]] = []


class NcclError(RuntimeError):
    """NCCL refused."""


def array(address: int, count: int, datatype: int) -> Any:
    """The elements at an address."""
    dtype = np.dtype(_dtypes[datatype])
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


class NcclCommunicator:
    """One that has all its ranks when each has been made; then it goes by files."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        folder = Path(commId.rstrip(b"\0").decode())
        self._channel = FilesChannel(folder, "nccl", rank, ndev)
        self._rank, self._size, self._to_itself = rank, ndev, list[Any]()
        ticket, here = (
            self._channel.start(Collective("all_reduce", "sum"), np.ones(1), there := np.zeros(1)),
            ndev,
        )
        while not ticket.test():
            pass
        assert there[0] == here

    def _go(self, what: Collective, source: Any, target: Any, stream: int) -> None:
        if stream not in _streams():
            raise NcclError(f"no stream has the handle {stream}")
        begin = lambda: under_way.setdefault(stream, []).append(  # noqa: E731
            self._channel.start(what, source, target).test
        )
        if _group:
            _group[-1].append(begin)
        else:
            begin()

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        ends = array(sendbuf, count, datatype), array(recvbuf, count, datatype)
        self._go(Collective("all_reduce", _operations[op]), *ends, stream)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        target = array(recvbuf, count, datatype) if self._rank == root else None
        source = array(sendbuf, count, datatype)
        self._go(Collective("reduce", _operations[op], root), source, target, stream)

    def reduceScatter(
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        source = array(sendbuf, recvcount * self._size, datatype)
        what = Collective("reduce_scatter", _operations[op])
        self._go(what, source, array(recvbuf, recvcount, datatype), stream)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        target = array(recvbuff, count, datatype)
        if self._rank == root:
            target[...] = array(sendbuff, count, datatype)
        self._go(Collective("broadcast", peer=root), None, target, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        source, target = array(sendbuf, count, datatype), array(recvbuf, count * self._size, datatype)
        self._go(Collective("all_gather"), source, target, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        source = array(sendbuf, count, datatype)
        if peer == self._rank:
            self._to_itself.append(source.copy())
        else:
            self._go(Collective("send", peer=peer), source, None, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        target = array(recvbuf, count, datatype)
        if peer == self._rank:
            assert _group, "NCCL hangs: a rank sends to itself only within a group"
            target[...] = self._to_itself.pop(0)
        else:
            self._go(Collective("recv", peer=peer), None, target, stream)

    def check_async_error(self) -> None:
        """Nothing has failed."""

    def abort(self) -> None:
        """Nothing waits in a kernel here."""


def _streams() -> set[int]:
    """The handles that there can be: see `standin.cuda`."""
    return {0, 2, *range(0x5000, 0x5000 + 0x100 * 4096, 0x100)}


def get_unique_id() -> bytes:
    """The name of a folder."""
    return tempfile.mkdtemp(prefix="mgb-nccl-").encode().ljust(128, b"\0")


def groupStart() -> None:
    """Delay the calls until `groupEnd`."""
    _group.append([])


def groupEnd() -> None:
    """All of the group begins."""
    for begin in _group.pop():
        begin()


def install() -> None:
    """CuPy and its NCCL are stand-ins from now on."""
    standin.install()
    module: Any = ModuleType("cupy.cuda.nccl")
    for name in ("NcclCommunicator", "NcclError", "get_unique_id", "groupStart", "groupEnd"):
        setattr(module, name, globals()[name])
    for name, (code, _) in (*DTYPES.items(), *OPERATIONS.items()):
        setattr(module, name, code)
    module.available = True
    sys.modules["cupy.cuda.nccl"] = module
