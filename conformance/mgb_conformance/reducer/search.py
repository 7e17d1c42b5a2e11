"""The search: changes are tried until none leaves a failure of the same kind."""

from __future__ import annotations

from collections.abc import Callable

from .case import Case
from .changes import (
    Change,
    earlier_end,
    later_start,
    one_output,
    plain_layout,
    plain_values,
    shorter,
    usual_dtypes,
    without_node,
)

#: First what makes graphs small, as each later try is quicker then.
CHANGES: tuple[Change, ...] = (
    one_output,
    earlier_end,
    later_start,
    without_node,
    shorter,
    usual_dtypes,
    plain_layout,
    plain_values,
)


def smallest(case: Case, fails: Callable[[Case], bool], told: Callable[[Case], None] | None = None) -> Case:
    """Return a case that fails, and no longer fails after any single change.

    Parameters
    ----------
    case : Case
        One that fails.
    fails : callable
        Does a case fail in the same way?
    told : callable, optional
        Told of each smaller case.

    Examples
    --------
    >>> from mgb_conformance.reducer import Case, op
    >>> case = Case.of(lambda x: [op("neg", op("exp", op("abs", x)))], [np.ones((2, 3), "float32")])
    >>> least = smallest(case, lambda tried: any(node.op.name == "exp" for node in tried.graph.nodes))
    >>> print(least.graph)
    graph(%0: float32[1,1])
      %1: float32[1,1] = exp(%0)
      return %1
    """
    refused: set[tuple[str, bytes]] = set()
    going = True
    while going:
        going = False
        for change in CHANGES:
            while (found := _first(change, case, fails, refused)) is not None:
                case, going = found, True
                if told is not None:
                    told(case)
    return case


def _first(
    change: Change, case: Case, fails: Callable[[Case], bool], refused: set[tuple[str, bytes]]
) -> Case | None:
    """Return the first change after which it still fails."""
    for found in change(case):
        key = (found.graph.key, b"".join(a.tobytes("A") for a in found.arrays))
        if key in refused:
            continue
        refused.add(key)
        if found.graph.nodes and _is_meant(found) and fails(found):
            return found
    return None


def _is_meant(case: Case) -> bool:
    """Return whether EAGER computes it."""
    try:
        return all(case.values[o] is not None for o in case.graph.outputs)
    except Exception:  # an index that is out of range now, and whatever else an op refuses
        return False
