"""Training by several processes, under the names of MegEngine: see docs/distributed.md."""

from __future__ import annotations

from . import functional as functional
from .group import (
    WORLD,
    Group,
    get_backend,
    get_rank,
    get_world_size,
    init_process_group,
    is_distributed,
    new_group,
)
from .helper import AllreduceCallback, bcast_list_, group_barrier, make_allreduce_cb, synchronized

__all__ = [
    "WORLD",
    "AllreduceCallback",
    "Group",
    "bcast_list_",
    "functional",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "init_process_group",
    "is_distributed",
    "make_allreduce_cb",
    "new_group",
    "synchronized",
]
