"""The options of `compile_program`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import TraceInputError
from .remat.memory_config import DTRConfig, SublinearMemoryConfig


@dataclass(frozen=True, slots=True)
class Options:
    """Options of compilation.

    Attributes
    ----------
    opt_level : int
        3: simplify and fuse. Less: fuse only if a flag below is set, as in MegEngine.
    fuse_reduce, fuse_dimshuffle : bool or None
        May reductions, and transposes, be part of a group? None: yes at level 3, no below it.
    fast_math : bool
        Assume that every number is finite: ``x - x`` is 0. Round 16-bit floats only where they leave a group.
    backend : str or None
        The backend's name, or several in order of preference; None: what ``MGB_JIT_BACKEND`` says.
    memory : SublinearMemoryConfig, DTRConfig or None
        Compute some values twice, to keep fewer.
    profiling : bool
        Measure each step at each call.
    launch_graph : bool or None
        Kernels in a row start as one graph of launches, on backends that have such; None: where that pays.
    """

    opt_level: int = 3
    fuse_reduce: bool | None = None
    fuse_dimshuffle: bool | None = None
    fast_math: bool = False
    backend: str | None = None
    memory: SublinearMemoryConfig | DTRConfig | None = None
    profiling: bool = False
    launch_graph: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.launch_graph, bool | None):
            raise TraceInputError(
                f"cuda_graph={self.launch_graph!r}: give True, False, or None (where it is faster)"
            )

    @property
    def fuses(self) -> bool:
        """Return whether anything is fused at all."""
        return self.opt_level >= 3 or self.fuse_reduce is not None or self.fuse_dimshuffle is not None


DEFAULT = Options()
