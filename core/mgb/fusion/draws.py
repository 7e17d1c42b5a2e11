"""Random numbers are drawn in a kernel in the shape in which they are wanted.

A draw is computed for a column of counters and a row of the words that each gives, so that an eager rule has
all words of a counter at once; then it is laid out. A kernel computes each number on its own. It is quicker
over the shape that is wanted: it vectorizes along it, and what reads the numbers joins it.
"""

from __future__ import annotations

from ..backends import Traits
from ..ir import Graph, Node
from ..ops.declare import op_of
from ..ops.layout import RESHAPE, SLICE
from ..ops.primitives import IOTA, bit_and, iota, shr
from ..ops.random import bits as random_bits
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .legality import DEFAULT, FusionConfig, Shape, accepts

DRAWS = frozenset(
    op_of(draw)
    for draw in (
        random_bits.philox,
        random_bits.philox_pair,
        random_bits.philox_uniform,
        random_bits.philox_normal,
    )
)

#: The numbers of a draw whose places have 32 bits.
MOST = 1 << 32


def flat_draws(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Move what lays out a draw into the places that it is computed for.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the draws.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    if not any(node.op in DRAWS for node in graph.nodes):
        return graph
    drawn: dict[Node, tuple[Node, tuple[Tensor, ...]]] = {}
    outputs = frozenset(graph.outputs)

    def rule(node: Node, *inputs: Tensor) -> Tensor:
        if _is_regular(node) and accepts(traits, node, config) is None:
            drawn[node] = node, inputs
        elif _keeps_places(node) and node.inputs[0] in drawn:
            (source,) = node.inputs
            if source not in outputs and len(graph.readers[source]) == 1:
                drawn[node] = drawn[source]
                return _draw(*drawn[node], node.spec.shape)
        return copy_node(node, *inputs)

    return rebuild(lambda *xs: graph.fold(rule, xs), graph.inputs)


def _is_regular(node: Node) -> bool:
    """Return whether it draws for counters from 0 on, each with a row of words, a power of two."""
    if node.op not in DRAWS:
        return False
    which, counter, *rest = node.inputs
    words, counters = which.spec.size, counter.spec.size
    return (
        which.op is counter.op is IOTA
        and (which.spec.shape, counter.spec.shape) == ((1, words), (counters, 1))
        and words.bit_count() == 1
        and words * counters <= MOST
        and all(not i.spec.shape for i in rest)
    )


def _keeps_places(node: Node) -> bool:
    """Return whether an op leaves every number at its row-major place, or drops those at the end."""
    if node.op is SLICE:
        return len(node.params["window"]) == 1 and node.params["window"][0][::2] == (0, 1)
    return node.op is RESHAPE


def _draw(node: Node, inputs: tuple[Tensor, ...], shape: Shape) -> Tensor:
    """Return the first numbers of a draw, in this shape."""
    _, counter, *rest = inputs
    words = node.inputs[0].spec.size
    place = iota(shape=shape, dtype=counter.dtype, device=counter._device)
    out: Tensor = apply(
        node.op, bit_and(place, words - 1), shr(place, words.bit_length() - 1), *rest, **node.params
    )
    return out
