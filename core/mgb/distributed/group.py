"""Groups of ranks, and how a process joins the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.device import set_default_device
from ..tensor import ACTIVE
from .world import join, joined, world

#: What the names of groups in ops begin with whose ranks are the devices of a mesh; then comes their number.
MESH = "mesh:"

__tracing__ = {"init_process_group": "impure", "new_group": "impure"}


def mesh_size() -> int:
    """Return the number of devices of the mesh that runs what is recorded here; 0: without a mesh."""
    session = ACTIVE.get()
    return 0 if session is None else session.mesh


class Group:
    """Ranks that exchange arrays, in their order; the first one is the root.

    Parameters
    ----------
    proc_ranks : sequence of int
        None at all: every rank of the job.

    Examples
    --------
    >>> group = mgb.distributed.Group([0])
    >>> group.size, group.rank
    (1, 0)
    """

    def __init__(self, proc_ranks: Sequence[int]) -> None:
        self._ranks = tuple(proc_ranks)
        if self._ranks and mesh_size():
            raise ArgumentError(
                f"a group of ranks {list(self._ranks)}: the devices of a mesh run one program, all of them"
            )
        if self._ranks:
            size, rank = world().size, world().rank
            if any(not 0 <= r < size for r in self._ranks) or len(set(self._ranks)) < len(self._ranks):
                raise ArgumentError(
                    f"a group of ranks {list(self._ranks)} needs different ranks of a job of {size} (valid: "
                    f"0..{size - 1})"
                )
            if rank not in self._ranks:
                raise ArgumentError(
                    f"rank {rank} makes a group of ranks {list(self._ranks)}, which it is not in"
                )

    @property
    def proc_ranks(self) -> list[int]:
        """Its ranks in the job."""
        return list(self._ranks or range(self.size))

    @property
    def key(self) -> str:
        """Its name in ops and messages."""
        if size := mesh_size():
            return f"{MESH}{size}"
        return ",".join(map(str, self._ranks)) or "world"

    @property
    def size(self) -> int:
        """The number of ranks."""
        return mesh_size() or len(self._ranks) or world().size

    @property
    def rank(self) -> int:
        """The place of this process in it."""
        _check_rank()
        return self._ranks.index(world().rank) if self._ranks else world().rank


#: All ranks of the job.
WORLD = Group([])


def init_process_group(
    master_ip: str | None = None,
    port: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    device: int | None = None,
    backend: str = "auto",
    device_type: str = "xpu",
) -> None:
    """Join the job that this process was started in; each process of it calls this once.

    Parameters
    ----------
    master_ip, port : str and int, optional
        Where the job meets, for communicators that do not know it; MPI does.
    world_size, rank : int, optional
        Checked against what the launcher has said.
    device : int, optional
        The number of the GPU of this process, which becomes the default device, where the communicator takes
        arrays of GPUs.
    backend : str
        The name of a communicator; ``"auto"``: that of ``MGB_DISTRIBUTED_BACKEND``, or the only one.
    device_type : str

    Raises
    ------
    DistributedError
        No communicator is available, or this process was started as another one.

    Examples
    --------
    >>> mgb.distributed.init_process_group()
    >>> mgb.distributed.is_distributed()
    True
    """
    address = None if master_ip is None else (master_ip, port or 0)
    found = join(None if backend == "auto" else backend, address, world_size, rank)
    if device is not None and "gpu" in found.communicator.devices:
        set_default_device(f"gpu{device}")


def is_distributed() -> bool:
    """Return whether this process is in a job, or a mesh of devices runs what is recorded.

    Examples
    --------
    >>> mgb.distributed.is_distributed()
    True
    """
    return joined() is not None or mesh_size() > 0


def get_rank() -> int:
    """Return the place of this process in the job; 0 without one.

    Examples
    --------
    >>> mgb.distributed.get_rank()
    0
    """
    _check_rank()
    found = joined()
    return 0 if found is None else found.rank


def get_world_size() -> int:
    """Return the number of processes of the job, or of devices of the recorded mesh; 1 without one.

    Examples
    --------
    >>> mgb.distributed.get_world_size()
    1
    """
    found = joined()
    return mesh_size() or (1 if found is None else found.size)


def _check_rank() -> None:
    if mesh_size():
        raise ArgumentError(
            "the devices of a mesh run one program, in which none has a number: take the rows of each by "
            "dist.shard, and ask for the rank of this process outside of the function"
        )


def get_backend() -> str:
    """Return the name of the communicator.

    Examples
    --------
    >>> mgb.distributed.get_backend()
    'mpi'
    """
    return world().communicator.name


def new_group(proc_ranks: Sequence[int]) -> Group:
    """Return the group of these ranks, which this one is among.

    Examples
    --------
    >>> mgb.distributed.new_group([0]).proc_ranks
    [0]
    """
    return Group(proc_ranks)


def as_group(group: Any) -> Group:
    """Return a group, or the one of these ranks; None: all."""
    if not mesh_size():
        world()
    return group if isinstance(group, Group) else WORLD if group is None else Group(group)
