"""From a traced call that a backend gets wrong to the smallest graph that it gets wrong: ``mgb reduce``.

Delta debugging (Zeller and Hildebrandt, 2002) over outputs, nodes, lengths, dtypes and values. What may crash
or hang runs in a process of its own.
"""

from .case import Case, constant, laid_out, op
from .command import reduce_call
from .judge import Verdict
from .search import smallest
from .worker import Worker, check

__all__ = ["Case", "Verdict", "Worker", "check", "constant", "laid_out", "op", "reduce_call", "smallest"]
