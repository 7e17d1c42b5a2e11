"""Help for backends that print source: keys, domains, loops, statements, the passes of a reduction."""

from .domain import aligned, domain, reduced_axes, spans, structure_key, values
from .hazards import hazards, replaced
from .layout import Loops, broadcast_strides, collapse, offset, row_major
from .online import Online, online
from .schedule import Pass, Schedule, is_operand, schedule
from .text import C_TYPES, Assign, Spelling, Table, c_literal, expression, scalar, statements

__all__ = [
    "C_TYPES",
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
