"""The options of traced functions, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from ..backends import plugins
from ..errors import ArgumentError, TraceInputError
from ..executor import DTRConfig, SublinearMemoryConfig
from ..runtime import config

_SWITCHES = frozenset(
    {
        "symbolic", "capture_as_const", "record_only", "profiling", "symbolic_shape", "without_host",
        "imperative", "fast_math",
    }
)  # fmt: skip

#: Options that are True, False, or None for neither.
_CHOICES = frozenset({"run_body", "cuda_graph"})

_SHOWN = {None: "UNSET", False: "OFF", True: "ON"}

#: The fields of SublinearMemoryConfig that the environment overrides.
_OVERRIDES = {
    "thresh_nr_try": config.SUBLINEAR_THRESH_NR_TRY,
    "genetic_nr_iter": config.SUBLINEAR_GENETIC_NR_ITER,
    "genetic_pool_size": config.SUBLINEAR_GENETIC_POOL_SIZE,
    "lb_memory_mb": config.SUBLINEAR_LOWER_BOUND_MB,
    "num_worker": config.SUBLINEAR_WORKERS,
}


@dataclass(slots=True, repr=False)
class GraphOptimizationConfig:
    """Options of fusion: the nodes that may join a group; None lets `opt_level` decide.

    Attributes
    ----------
    jit_fuse_dimshuffle : bool or None
        Move transposes out of the way of fusion.
    jit_fuse_reduce : bool or None
        Let reductions join groups.

    Examples
    --------
    >>> from mgb.jit import trace
    >>> config = GraphOptimizationConfig(jit_fuse_reduce=False)
    >>> total = trace(lambda x: (x * 2).sum(), graph_opt_config=config)
    >>> total(F.ones((4,)))
    Tensor(8., device=xpux:0)
    """

    jit_fuse_dimshuffle: bool | None = None
    jit_fuse_reduce: bool | None = None

    def __repr__(self) -> str:
        return (
            "GraphOptimizationConfig { "
            f"jit_fuse_dimshuffle = {_SHOWN[self.jit_fuse_dimshuffle]}, "
            f"jit_fuse_reduce = {_SHOWN[self.jit_fuse_reduce]} }}"
        )


class _Options(TypedDict, total=False):
    """The options of every traced function, for type checkers; `trace` documents them."""

    capture_as_const: bool
    sublinear_memory_config: SublinearMemoryConfig | None
    dtr_config: DTRConfig | None
    profiling: bool
    opt_level: int
    graph_opt_config: GraphOptimizationConfig | None
    symbolic_shape: bool
    without_host: bool
    fast_math: bool
    backend: str | None
    cuda_graph: bool | None


class TraceOptions(_Options, total=False):
    """The options of `trace`."""

    symbolic: bool
    record_only: bool
    run_body: bool | None
    imperative: bool


class WholeOptions(TraceOptions, total=False):
    """The options of `xla_trace`."""

    mesh: int | None


class PartialOptions(_Options, total=False):
    """The options of `partial_trace`."""

    trace_gmcallback: bool


def check_options(owner: str, options: Mapping[str, Any]) -> None:
    """Raise an error for switches that are not booleans, invalid levels, and unknown backends.

    Parameters
    ----------
    owner : str
        The name of the decorator.
    options : mapping
        The options by name; other names are ignored.

    Raises
    ------
    TraceInputError
    UnknownBackendError
    """
    for name, value in options.items():
        if name in _SWITCHES and not isinstance(value, bool | np.bool_):
            raise TraceInputError(f"{owner}({name}={value!r}): give True or False")
        if name in _CHOICES and not isinstance(value, bool | np.bool_ | None):
            raise TraceInputError(f"{owner}({name}={value!r}): give True, False or None")
    level = options.get("opt_level", 0)
    if isinstance(level, bool) or not isinstance(level, int | np.integer) or not 0 <= level <= 3:
        raise TraceInputError(f"{owner}(opt_level={level!r}): give 0, 1, 2 or 3, the default")
    backend = options.get("backend")
    if not isinstance(backend, str | None):
        raise TraceInputError(
            f"{owner}(backend={backend!r}): give a name, such as those that `python -m mgb backends` lists"
        )
    if backend is not None:
        plugins.check_names(backend)
    graph = options.get("graph_opt_config")
    if not isinstance(graph, GraphOptimizationConfig | None):
        raise TraceInputError(
            f"{owner}(graph_opt_config={graph!r:.60}): give a mgb.jit.GraphOptimizationConfig"
        )


def memory_config(
    sublinear: SublinearMemoryConfig | None, dtr: DTRConfig | None
) -> SublinearMemoryConfig | DTRConfig | None:
    """Return the memory option of a trace, with the environment variables that override it.

    Parameters
    ----------
    sublinear : SublinearMemoryConfig, optional
        Variables such as ``MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY`` override its fields.
    dtr : DTRConfig, optional

    Raises
    ------
    ArgumentError
        Both are given, one is of another class, or a variable holds what its field cannot take.
    """
    for name, given, expected in (
        ("sublinear_memory_config", sublinear, SublinearMemoryConfig),
        ("dtr_config", dtr, DTRConfig),
    ):
        if given is not None and not isinstance(given, expected):
            raise ArgumentError(f"{name} is a {type(given).__name__}; give a mgb.jit.{expected.__name__}")
    if sublinear is not None and dtr is not None:
        raise ArgumentError("sublinear_memory_config and dtr_config exclude each other: give one of them")
    return _override_fields(sublinear) if sublinear is not None else dtr


def _override_fields(given: SublinearMemoryConfig) -> SublinearMemoryConfig:
    for field, variable in _OVERRIDES.items():
        text = variable.get().strip()
        if text:
            try:
                given = replace(given, **{field: config.whole(text)})
            except ValueError as error:
                raise ArgumentError(
                    f"{variable.name}={text!r}: {variable.meaning} ({error}); correct or unset it"
                ) from error
    return given


def resolve_run_body(owner: str, run_body: bool | None, without_host: bool) -> bool | None:
    """Return the option ``run_body``, which MegEngine's ``without_host=True`` sets to False.

    Raises
    ------
    TraceInputError
        The two contradict each other.
    """
    if without_host and run_body:
        raise TraceInputError(
            f"{owner}(run_body=True, without_host=True): without_host is a name for run_body=False; give one"
        )
    return False if without_host else run_body
