"""Trace functions and run them compiled."""

from ..errors import TraceError, TraceMismatchError
from ..executor import DTRConfig, SublinearMemoryConfig
from ..storage.exported import Exported, load_compiled
from ..storage.limits import LoadLimits
from ..storage.load import Loaded, load, load_outputs
from .config import GraphOptimizationConfig
from .control_flow import cond, fori_loop, scan, while_loop
from .deferred import auto
from .exclude import exclude_from_trace
from .partial import partial_trace
from .trace import trace
from .whole import xla_trace

Loaded.tracer = trace

__all__ = [
    "DTRConfig",
    "Exported",
    "GraphOptimizationConfig",
    "LoadLimits",
    "Loaded",
    "SublinearMemoryConfig",
    "TraceError",
    "TraceMismatchError",
    "auto",
    "cond",
    "exclude_from_trace",
    "fori_loop",
    "load",
    "load_compiled",
    "load_outputs",
    "partial_trace",
    "scan",
    "trace",
    "while_loop",
    "xla_trace",
]


def __dir__() -> list[str]:
    return __all__
