"""Arrays and notes between processes by MPI: every call returns at once, and requests are tested."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mgb.distributed.communicator import Channel, Collective, Communicator, Ticket
from mgb.distributed.errors import LaunchError

#: Open MPI starts for root, and more processes than there are cores, only when it is told to.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

#: The tag of messages from one rank to another, which order alone tells apart.
_TAG = 1


@cache
def _load() -> Any:
    """Import mpi4py's MPI, which starts, and reads the environment, when it is first imported.

    MPICH reads the memory of other processes of a machine, and where a read fails, because that process has
    died, it calls the collective done all the same. Without such reads a rank sends its data itself, and
    what a dead one has not sent never arrives.
    """
    os.environ.setdefault("MPIR_CVAR_CH4_CMA_ENABLE", "0")
    from mpi4py import MPI

    return MPI


class _Request:
    """A request that MPI tests; it holds its arrays."""

    def __init__(self, request: Any, *arrays: Any) -> None:
        self._request, self._arrays = request, arrays

    def test(self) -> bool:
        """Return whether it is done."""
        done: bool = self._request.Test()
        return done


class MpiChannel(Channel):
    """A communicator of MPI, of which only this channel knows."""

    def __init__(self, comm: Any) -> None:
        MPI = _load()
        self._comm, self.rank, self.size = comm, comm.rank, comm.size
        self._reductions = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self._in_place = MPI.IN_PLACE

    def start(self, what: Collective, source: Any, target: Any) -> Ticket:
        """Begin an exchange."""
        comm, reduction, peer = self._comm, self._reductions.get(what.reduce), what.peer
        if what.kind == "all_reduce":
            request = comm.Iallreduce(self._in_place if source is None else source, target, reduction)
        elif what.kind == "reduce":
            request = comm.Ireduce(source, target, reduction, peer)
        elif what.kind == "reduce_scatter":
            request = comm.Ireduce_scatter_block(source, target, reduction)
        elif what.kind == "broadcast":
            request = comm.Ibcast(target, peer)
        elif what.kind == "all_gather":
            request = comm.Iallgather(source, target)
        elif what.kind == "gather":
            request = comm.Igather(source, target, peer)
        elif what.kind == "scatter":
            request = comm.Iscatter(source, target, peer)
        elif what.kind == "all_to_all":
            request = comm.Ialltoall(source, target)
        elif what.kind == "send":
            request = comm.Isend(source, peer, _TAG)
        else:
            request = comm.Irecv(target, peer, _TAG)
        return _Request(request, source, target)


class Mpi(Communicator):
    """The job that ``mpiexec`` has started, or one process alone."""

    name = "mpi"
    devices = frozenset({"cpu"})
    api_version = 1

    def probe(self) -> str | None:
        """Return whether MPI can be loaded."""
        try:
            _load()
        except (ImportError, RuntimeError) as error:
            first = str(error).partition("\n")[0]
            return f'{first}; pip install "mgb[mpich]" brings one, MPI4PY_LIBMPI names the library of another'
        return None

    def command(self, number: int, program: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
        """Return ``mpiexec`` and its arguments, that of this Python's environment before others."""
        beside = Path(sys.executable).with_name("mpiexec")
        found = str(beside) if beside.exists() else shutil.which("mpiexec")
        if found is None:
            raise LaunchError('no mpiexec here: pip install "mgb[mpich]", or load the MPI of your cluster')
        return [found, "-n", str(number), sys.executable, *program], _OPEN_MPI

    def join(self, address: tuple[str, int] | None, size: int | None, rank: int | None) -> Channel:
        """Be a process of the job; MPI's launcher knows who it is."""
        MPI = _load()
        self._all = MPI.COMM_WORLD.Dup()
        self._post = MPI.COMM_WORLD.Dup()
        self._notes: list[Any] = []
        return MpiChannel(self._all)

    def group(self, ranks: tuple[int, ...]) -> Channel:
        """Return a communicator of these ranks."""
        group = self._all.Get_group().Incl(ranks)
        return MpiChannel(self._all.Create_group(group))

    def post(self, rank: int, note: bytes) -> None:
        """Send a note; it is held until it has gone."""
        self._notes = [request for request in self._notes if not request.test()]
        self._notes.append(_Request(self._post.Isend(note, rank), note))

    def notes(self) -> list[tuple[int, bytes]]:
        """Receive what has come."""
        MPI = _load()
        found = []
        status = MPI.Status()
        while (message := self._post.Improbe(status=status)) is not None:
            note = bytearray(status.Get_count(MPI.BYTE))
            message.Recv(note)
            found.append((status.Get_source(), bytes(note)))
        return found

    def abort(self, code: int) -> None:
        """End the job."""
        self._all.Abort(code)
