"""Groups of ranks, and how a process joins the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import GroupError
from .world import join, joined, world

__tracing__ = {"init_process_group": "impure", "new_group": "impure"}


class Group:
    """Ranks that exchange arrays, in their order; the first one is the root.

    Parameters
    ----------
    proc_ranks : sequence of int
        None at all: every rank of the job.
    """

    def __init__(self, proc_ranks: Sequence[int]) -> None:
        self._ranks = tuple(proc_ranks)
        if self._ranks:
            size, rank = world().size, world().rank
            if any(not 0 <= r < size for r in self._ranks) or len(set(self._ranks)) < len(self._ranks):
                raise GroupError(f"a group of ranks {list(self._ranks)} in a job of {size}")
            if rank not in self._ranks:
                raise GroupError(
                    f"rank {rank} makes a group of ranks {list(self._ranks)}, which it is not in"
                )

    @property
    def proc_ranks(self) -> list[int]:
        """Its ranks in the job."""
        return list(self._ranks or range(world().size))

    @property
    def key(self) -> str:
        """Its name in ops and messages."""
        return ",".join(map(str, self._ranks)) or "world"

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return len(self._ranks) or world().size

    @property
    def rank(self) -> int:
        """The place of this process in it."""
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
        The device of this process; arrays on a CPU have none.
    backend : str
        The name of a communicator; ``"auto"``: that of ``MGB_DISTRIBUTED_BACKEND``, or the only one.
    device_type : str

    Raises
    ------
    DistributedError
        There is no communicator, or this process was started as another one.
    """
    address = None if master_ip is None else (master_ip, port or 0)
    join(None if backend == "auto" else backend, address, world_size, rank)


def is_distributed() -> bool:
    """Is this process in a job?"""
    return joined() is not None


def get_rank() -> int:
    """The place of this process in the job; 0 without one."""
    found = joined()
    return 0 if found is None else found.rank


def get_world_size() -> int:
    """How many processes the job has; 1 without one."""
    found = joined()
    return 1 if found is None else found.size


def get_backend() -> str:
    """The name of the communicator."""
    return world().communicator.name


def new_group(proc_ranks: Sequence[int]) -> Group:
    """The group of these ranks, which this one is among."""
    return Group(proc_ranks)


def as_group(group: Any) -> Group:
    """A group, or the one of these ranks; None: all."""
    world()
    return group if isinstance(group, Group) else WORLD if group is None else Group(group)
