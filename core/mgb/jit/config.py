"""The options of `trace` that are objects of their own."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN = {None: "UNSET", False: "OFF", True: "ON"}


@dataclass(slots=True, repr=False)
class GraphOptimizationConfig:
    """What the fusion detector may put into a group; None lets `opt_level` decide.

    Attributes
    ----------
    jit_fuse_dimshuffle : bool or None
        Move transposes out of the way of fusion.
    jit_fuse_reduce : bool or None
        Let reductions join groups.
    """

    jit_fuse_dimshuffle: bool | None = None
    jit_fuse_reduce: bool | None = None

    def __repr__(self) -> str:
        return (
            "GraphOptimizationConfig { "
            f"jit_fuse_dimshuffle = {_SHOWN[self.jit_fuse_dimshuffle]}, "
            f"jit_fuse_reduce = {_SHOWN[self.jit_fuse_reduce]} }}"
        )
