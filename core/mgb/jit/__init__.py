"""Trace functions and run them compiled."""

from ..errors import TraceError, TraceMismatchError
from ..executor import DTRConfig, SublinearMemoryConfig
from ..limits import LoadLimits
from .config import GraphOptimizationConfig
from .deferral import auto
from .exclude import exclude_from_trace
from .exported import Exported, load_compiled
from .load import Loaded, load, load_outputs
from .partial import partial_trace
from .trace import trace
from .whole import xla_trace

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
    "exclude_from_trace",
    "load",
    "load_compiled",
    "load_outputs",
    "partial_trace",
    "trace",
    "xla_trace",
]
