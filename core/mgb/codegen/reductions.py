"""Reductions as their rows have them: how two elements fold, what nothing is, what sums are kept in."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from ..ir import Kind, Node, Reduction
from ..ops import scatter_folds as scatter_folds  # whose rows are among `OPS` then
from ..ops.declare import OPS
from ..ops.scans import cumsum_ as cumsum_  # likewise


def reductions(words: Container[str]) -> tuple[str, ...]:
    """Return the reductions that a backend prints which folds two elements by `words`.

    Examples
    --------
    >>> reductions({"add", "maximum"})
    ('reduce_sum', 'reduce_max')
    """
    return _folding(Kind.REDUCE, words)


def scans(words: Container[str]) -> tuple[str, ...]:
    """Return the scans that a backend prints which folds two elements by `words`.

    Examples
    --------
    >>> scans({"add", "maximum"})
    ('cumsum', 'cummax')
    """
    return _folding(Kind.SCAN, words)


def scatters(words: Container[str]) -> tuple[str, ...]:
    """Return the scatters that a backend prints which folds two elements by `words`.

    Examples
    --------
    >>> scatters({"add", "maximum"})
    ('scatter_sum', 'scatter_max')
    """
    return _folding(Kind.SCATTER, words)


def _folding(kind: Kind, words: Container[str]) -> tuple[str, ...]:
    found = ((name, op.reduction) for name, op in OPS.items() if op.kind is kind)
    return tuple(name for name, row in found if row is not None and row.combine.name in words)


def combine(fold: Node) -> str:
    """Return the name of the op that folds two elements.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: x.max(axis=1), Spec((4, 8), np.dtype("float32")))
    >>> combine(graph.nodes[0])
    'maximum'
    """
    return _row(fold).combine.name


def identity(fold: Node) -> Any:
    """Return the identity of a reduction, its value for an empty axis, as a Python number.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: x.max(axis=1), Spec((4, 8), np.dtype("float32")))
    >>> identity(graph.nodes[0])
    -inf
    """
    return _row(fold).identity(fold.spec.dtype)


def accumulator(fold: Node) -> np.dtype[Any]:
    """Return the dtype in which the folds of many elements are folded.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: x.sum(axis=1), Spec((4, 8), np.dtype("float32")))
    >>> accumulator(graph.nodes[0]).name
    'float64'
    """
    return _row(fold).accumulator(fold.spec.dtype)


def _row(fold: Node) -> Reduction:
    assert fold.op.reduction is not None
    return fold.op.reduction
