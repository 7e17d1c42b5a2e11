"""Tensors, and the session of a trace that they speak to."""

from .conversion import as_array, as_given, converted
from .float_errors import float_errors, ignore_float_errors, quietly, restore_float_errors
from .rounding import ready_to_round
from .session import (
    ACTIVE,
    Outside,
    Session,
    active_trace,
    handling,
    of_handler,
    replace_handlers,
    restore_handlers,
    run_in,
)  # fmt: skip
from .tensor import CONSTANT, Parameter, Tensor, from_dlpack, next_level, place, tensor, wrap

__all__ = [
    "ACTIVE", "CONSTANT", "Outside", "Parameter", "Session", "Tensor", "active_trace", "as_array", "as_given",
    "converted", "float_errors", "from_dlpack", "handling", "ignore_float_errors", "next_level", "of_handler",
    "place", "quietly", "ready_to_round", "replace_handlers", "restore_float_errors", "restore_handlers",
    "run_in", "tensor", "wrap",
]  # fmt: skip

#: Pickles name the package, not its files.
Tensor.__module__ = Parameter.__module__ = __name__
