"""Training by several processes, under the names of MegEngine: see docs/distributed.md."""

from __future__ import annotations

from . import functional as functional
from .checkpoint import load, save
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
from .helper import (
    AllreduceCallback,
    bcast_list_,
    get_offsets,
    group_barrier,
    make_allreduce_cb,
    param_pack_concat,
    param_pack_split,
    shard,
    synchronized,
)
from .launcher import launcher

__all__ = [
    "WORLD",
    "AllreduceCallback",
    "Group",
    "bcast_list_",
    "functional",
    "get_backend",
    "get_offsets",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "init_process_group",
    "is_distributed",
    "launcher",
    "load",
    "make_allreduce_cb",
    "new_group",
    "param_pack_concat",
    "param_pack_split",
    "save",
    "shard",
    "synchronized",
]


def __dir__() -> list[str]:
    return __all__
