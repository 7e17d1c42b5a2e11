"""Lowering: from a fusion group to the graph that a backend compiles."""

from __future__ import annotations

from typing import Protocol

from ..ir import Graph
from .constants import fold_constants
from .decompose import decompose
from .merge import merge
from .widen import widen


class Speaker(Protocol):
    """Anything that names the ops it prints; a backend's `Traits`."""

    @property
    def vocabulary(self) -> frozenset[str]: ...


def lower(graph: Graph, traits: Speaker) -> Graph:
    """Lower `graph` to the graph that `Backend.compile` receives.

    No value has 16 bits but inputs, outputs and casts; no op is outside ``traits.vocabulary`` but const, iota
    and cast; nothing is computed twice; what is known now is a constant.

    Raises
    ------
    GraphError
        The vocabulary does not suffice.
    """
    graph = widen(graph)
    graph = fold_constants(graph)
    graph = decompose(graph, traits.vocabulary)
    graph = fold_constants(graph, below=2)
    return merge(graph)
