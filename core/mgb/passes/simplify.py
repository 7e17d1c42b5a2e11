"""The passes in the order in which they run, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Graph
from ..runtime import config
from .arithmetic import arithmetic
from .broadcasts import delay_broadcasts
from .casts import skip_casts
from .constants import fold_constants
from .identities import finite_identities, identities
from .merge import merge
from .reductions import merge_reductions
from .reshapes import delay_reshapes
from .transposes import hoist_transposes, merge_transposes, reduce_as_stored
from .turns import take_several_turns
from .verify import verify
from .windows import skip_windows

Pass = Callable[[Graph], Graph]

#: What each level adds to the one below. Level 3 adds fusion too, which is not a pass over a graph.
PASSES: dict[int, tuple[Pass, ...]] = {
    0: (fold_constants, merge),
    1: (identities, finite_identities, fold_constants, merge),
    2: (
        skip_windows,
        arithmetic,
        skip_casts,
        merge_transposes,
        hoist_transposes,
        merge_transposes,
        delay_broadcasts,
        delay_reshapes,
        delay_broadcasts,
        merge_reductions,
        fold_constants,
        merge,
        identities,
        merge,
    ),
    3: (reduce_as_stored, merge_transposes, delay_reshapes, merge, take_several_turns),
}


def simplify(graph: Graph, opt_level: int, skip: frozenset[Pass] = frozenset()) -> Graph:
    """Return a graph that computes the same and is cheaper.

    Parameters
    ----------
    graph : Graph
        Any graph.
    opt_level : int
        0: common subexpressions are merged, constants folded. 1: identities of arithmetic;
        `finite_identities` do not hold for NaN and infinities. 2: cheaper spellings, which may round
        otherwise, and layout ops out of the way of fusion. 3 and more: what only pays where kernels are
        fused, as reductions in the order of memory. A negative level means its absolute value.
    skip : frozenset of passes
        Passes to leave out.

    Returns
    -------
    Graph
        With the same inputs, and outputs of the same specs.
    """
    for level, passes in PASSES.items():
        for each in passes:
            if level <= abs(opt_level) and each not in skip:
                graph = each(graph)
                if config.VERIFY.on():
                    verify(graph)
    return graph
