"""Loops and branches as ops that hold a Graph: `scan`, `while_loop`, `cond` over lists of Tensors."""

from .body import Noting, note, together
from .bundle import BUNDLE, RESULT, result
from .calls import cond, scan, scan_graph, while_loop
from .linear import fold_again
from .ops import COND, LOOPS, SCAN, WHILE, branch_of, nodes_within, run_graph, stacked
from .recurrence import RECURRENCE
from .unroll import unrolled

__all__ = [
    "BUNDLE",
    "COND",
    "LOOPS",
    "RECURRENCE",
    "RESULT",
    "SCAN",
    "WHILE",
    "Noting",
    "branch_of",
    "cond",
    "fold_again",
    "nodes_within",
    "note",
    "result",
    "run_graph",
    "scan",
    "scan_graph",
    "stacked",
    "together",
    "unrolled",
    "while_loop",
]
