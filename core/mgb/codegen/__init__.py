"""Help for backends that print source: keys, domains, loops, statements, the passes of a reduction."""

from ..ir.strides import Loops, broadcast_strides, collapse, row_major
from ..ops.declare import OPS
from ..ops.dot import DOT
from ..ops.look_up import LOOK_UP, alongs, reach
from ..ops.primitives import BITCAST, CAST, IOTA
from ..ops.reduce import EXTENT
from ..passes.decompose import spell_out
from .conversions import narrowing, widening
from .domain import (
    aligned,
    domain,
    operands,
    reached,
    reduced_axes,
    sinks,
    spans,
    structure_key,
    tables,
    values,
    varying,
)
from .frame import Frame, Operand
from .guards import guard, guarded, long_division
from .hazards import hazards, replaced
from .online import Online, online
from .reductions import accumulator, combine, identity, reductions, scans, scatters
from .schedule import Pass, Schedule, is_operand, is_scatter, is_whole, schedule
from .states import Stated, bodied, is_sequential, stated, stateful
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
    "DOT",
    "EXTENT",
    "IOTA",
    "LOOK_UP",
    "OPS",
    "Assign",
    "Frame",
    "Loops",
    "Online",
    "Operand",
    "Pass",
    "Schedule",
    "Spelling",
    "Stated",
    "Table",
    "accumulator",
    "aligned",
    "alongs",
    "bodied",
    "broadcast_strides",
    "c_literal",
    "c_number",
    "collapse",
    "combine",
    "domain",
    "expression",
    "guard",
    "guarded",
    "hazards",
    "identity",
    "is_operand",
    "is_scatter",
    "is_sequential",
    "is_whole",
    "long_division",
    "narrowing",
    "offset",
    "online",
    "operands",
    "reach",
    "reached",
    "reduced_axes",
    "reductions",
    "replaced",
    "row_major",
    "scalar",
    "scans",
    "scatters",
    "schedule",
    "sinks",
    "spans",
    "spell_out",
    "stated",
    "stateful",
    "statements",
    "structure_key",
    "tables",
    "values",
    "varying",
    "widening",
]
