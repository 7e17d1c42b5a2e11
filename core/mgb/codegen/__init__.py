"""Help for backends that print source: keys, domains, loops, statements, the passes of a reduction."""

from ..ops.primitives import BITCAST, CAST, IOTA
from ..ops.reduce import EXTENT
from ..strides import Loops, broadcast_strides, collapse, row_major
from .domain import aligned, domain, reduced_axes, spans, structure_key, values
from .hazards import hazards, replaced
from .online import Online, online
from .schedule import Pass, Schedule, is_operand, schedule
from .text import C_TYPES, Assign, Spelling, Table, c_literal, expression, offset, scalar, statements

__all__ = [
    "BITCAST",
    "CAST",
    "C_TYPES",
    "EXTENT",
    "IOTA",
    "Assign",
    "Loops",
    "Online",
    "Pass",
    "Schedule",
    "Spelling",
    "Table",
    "aligned",
    "broadcast_strides",
    "c_literal",
    "collapse",
    "domain",
    "expression",
    "hazards",
    "is_operand",
    "offset",
    "online",
    "reduced_axes",
    "replaced",
    "row_major",
    "scalar",
    "schedule",
    "spans",
    "statements",
    "structure_key",
    "values",
]
