"""Help for backends that print source: keys, domains, loops, statements, the passes of a reduction."""

from ..ops.primitives import BITCAST, CAST, IOTA
from ..ops.reduce import EXTENT
from ..strides import Loops, broadcast_strides, collapse, row_major
from .domain import aligned, domain, reduced_axes, spans, structure_key, values
from .frame import Frame, Operand
from .hazards import hazards, replaced
from .online import Online, online
from .reductions import accumulator, combine, identity, reductions
from .schedule import Pass, Schedule, is_operand, schedule
from .text import (
    C_TYPES,
    Assign,
    Spelling,
    Table,
    c_literal,
    c_number,
    expression,
    offset,
    scalar,
    statements,
)

__all__ = [
    "BITCAST",
    "CAST",
    "C_TYPES",
    "EXTENT",
    "IOTA",
    "Assign",
    "Frame",
    "Loops",
    "Online",
    "Operand",
    "Pass",
    "Schedule",
    "Spelling",
    "Table",
    "accumulator",
    "aligned",
    "broadcast_strides",
    "c_literal",
    "c_number",
    "collapse",
    "combine",
    "domain",
    "expression",
    "hazards",
    "identity",
    "is_operand",
    "offset",
    "online",
    "reduced_axes",
    "reductions",
    "replaced",
    "row_major",
    "scalar",
    "schedule",
    "spans",
    "statements",
    "structure_key",
    "values",
]
