"""Trace functions and run them compiled."""

from ..errors import TraceError, TraceMismatchError
from ..executor import DTRConfig, SublinearMemoryConfig
from .config import GraphOptimizationConfig
from .exclude import exclude_from_trace
from .load import Loaded, load, load_outputs
from .trace import trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "Loaded",
    "SublinearMemoryConfig",
    "TraceError",
    "TraceMismatchError",
    "exclude_from_trace",
    "load",
    "load_outputs",
    "trace",
]
