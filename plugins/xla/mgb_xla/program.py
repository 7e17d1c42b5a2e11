"""From a graph to a function that `jax.jit` traces, and what its results are to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax
from mgb.codegen import IOTA
from mgb.ir import CONST, Graph, Node
from mgb.runtime.forking import cached_property

from . import arithmetic, arrays, contract, convolution, exchanges, indices, pooling
from .constants import hidden
from .shapes import Value, iota

Pairs = tuple[tuple[int, int], ...]

WORDS = arithmetic.WORDS | arrays.WORDS | contract.WORDS | convolution.WORDS | pooling.WORDS | exchanges.WORDS


@dataclass(frozen=True)
class Program:
    """A graph as a function of JAX.

    Attributes
    ----------
    graph : Graph
    replaces : tuple of (output, input)
        Results that may take the memory of an input; in the order of the inputs. JAX gives each such input
        to the first result of its shape and dtype that has none: hence they are the first results.
    """

    graph: Graph
    replaces: Pairs

    @cached_property
    def results(self) -> tuple[Node, ...]:
        """Return the results, each value once; never an input, because JAX would not copy it."""
        given = frozenset(self.graph.inputs)
        first = [self.graph.outputs[output] for output, _ in self.replaces]
        return tuple(n for n in dict.fromkeys((*first, *self.graph.outputs)) if n not in given)

    @cached_property
    def checks(self) -> bool:
        """Return whether the last result, beside `results`, is whether an index is out of range."""
        return any(n.op.name in indices.WORDS for n in self.graph.nodes)

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """The numbers of the inputs whose memory may be taken."""
        return tuple(place for _, place in self.replaces)

    def __call__(self, *arguments: Value) -> tuple[Value, ...]:
        """Return the results, of the inputs and a 1: see `constants`."""
        *inputs, one = arguments
        wrong: list[Value] = []

        def rule(node: Node, *xs: Value) -> Value:
            if node.op.name not in indices.WORDS:
                return _value(node, *hidden(node, xs, one))
            value, flag = indices.WORDS[node.op.name](node, *xs)
            wrong.append(flag)
            return value

        found = dict(zip(self.graph.outputs, self.graph.fold(rule, inputs), strict=True))
        values = [found[n] for n in self.results]
        if not wrong:
            return tuple(values)
        refused = wrong[0]
        for flag in wrong[1:]:
            refused = lax.bitwise_or(refused, flag)
        for k, place in enumerate(self.donated):  # what is refused changes nothing
            values[k] = lax.select(refused, inputs[place], values[k])
        return (*values, refused)


def _value(node: Node, *xs: Value) -> Value:
    if node.op is CONST:
        return np.asarray(node.params["value"], node.spec.dtype)
    if node.op is IOTA:
        return iota(node.spec.shape, node.spec.dtype)
    return WORDS[node.op.name](node, *xs)


def sorted_pairs(pairs: Sequence[Sequence[int]]) -> Pairs:
    """Sort in the order of the inputs."""
    return tuple(sorted(((int(o), int(i)) for o, i in pairs), key=lambda pair: pair[1]))


def eager(graph: Graph, inputs: Sequence[Any]) -> None:
    """Let the ops' own rules look at the values: the one that refuses them says which and why."""

    def rule(node: Node, *xs: Any) -> Any:
        return node.params["value"] if node.op is CONST else node.op.eager(*xs, **node.params)  # type: ignore[misc]

    with np.errstate(all="ignore"):
        graph.fold(rule, inputs)
