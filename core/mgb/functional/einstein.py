"""Einstein's notation: sums of products of tensors, decomposed into matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..ops.images import contract
from ..ops.images.attention import below
from ..ops.layout import reshape, transpose
from ..ops.primitives import where
from ..ops.reduce import reduce_sum
from ..tensor import Tensor
from ..tensor.apply import tensors

__all__ = ["einsum"]


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum products in Einstein's notation, as in NumPy: ``einsum("ij,jk->ik", a, b)`` is ``a @ b``.

    Operands are multiplied from left to right, as matrix products; a letter is summed as soon as nothing
    further names it.

    Parameters
    ----------
    equation : str
        A term of letters for each operand, with ``...`` for further axes, and after ``->`` that of the
        result; without one, the letters that stand once, in alphabetical order.
    *operands : Tensor

    Raises
    ------
    ShapeError
        The equation does not belong to these operands, or axes of one letter have different lengths.

    Examples
    --------
    >>> F.einsum("ij,j->i", mgb.tensor([[1.0, 2.0], [3.0, 4.0]]), mgb.tensor([1.0, 1.0]))
    Tensor([3., 7.], device=xpux:0)
    """
    if not isinstance(equation, str):
        raise TypeError(f"einsum: the equation comes first, as a str; got a {type(equation).__name__}")
    xs = tensors("einsum", operands)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        rest = term.replace("...", "", 1)
        if rest and not rest.isalpha():
            raise ShapeError(
                f"einsum: the term {term!r} of {equation!r} must have only letters and at most one ellipsis"
            )
    if len(terms) != len(xs):
        raise ShapeError(f"einsum: {equation!r} has {len(terms)} terms, but {len(xs)} operands are given")
    letters = _spare_letters(equation)
    named = [_spelt(term, x.ndim, letters) for term, x in zip(terms, xs)]
    dots = max((n[1] for n in named), key=len)
    result = right.replace("...", dots) if arrow else _implicit(named, dots)
    value, term = _diagonals(xs[0], named[0][0])
    for n, x in enumerate(xs[1:], 1):
        later = set(result).union(*(m[0] for m in named[n + 1 :]))
        value, term = _product(value, term, *_diagonals(x, named[n][0]), later)
    value, term = _summed(value, term, set(result))
    if sorted(term) != sorted(result):
        raise ShapeError(f"einsum: the output of {equation!r} has a letter that no operand has, or one twice")
    return transpose(value, axes=tuple(term.index(c) for c in result))


def _spare_letters(equation: str) -> str:
    """Return letters that stand for the axes of an ellipsis."""
    return "".join(c for c in map(chr, range(0x100, 0x200)) if c not in equation)


def _spelt(term: str, ndim: int, letters: str) -> tuple[str, str]:
    """Return `term` with its ellipsis expanded, and the ellipsis' letters; the last axes share letters."""
    if "..." not in term:
        if len(term) != ndim:
            raise ShapeError(
                f"einsum: the term {term!r} does not fit an operand with {ndim} axes: give a letter for each"
            )
        return term, ""
    count = ndim - len(term) + 3
    dots = letters[len(letters) - count :] if count > 0 else ""
    return term.replace("...", dots), dots


def _implicit(named: Sequence[tuple[str, str]], dots: str) -> str:
    """Return the result when none is named: the ellipsis, then every letter that stands once, in order."""
    text = "".join(term for term, _ in named)
    return dots + "".join(sorted(c for c in set(text) if text.count(c) == 1 and c not in dots))


def _diagonals(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Return a letter that stands twice in one operand is its diagonal."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i, j = [n for n, d in enumerate(term) if d == c][:2]
            if x.shape[i] != x.shape[j]:
                raise ShapeError(f"einsum: the axes {c!r} of {x.shape} differ in length")
            rest = [n for n in range(x.ndim) if n not in (i, j)]
            x = transpose(x, axes=(*rest, i, j))
            on = below(x, 0) & ~below(x, -1)
            x = reduce_sum(where(on, x, 0), axis=(x.ndim - 1,))
            x = reshape(x, shape=x.shape[:-1])
            term = "".join(term[n] for n in rest) + c
    return x, term


def _summed(x: Tensor, term: str, kept: set[str]) -> tuple[Tensor, str]:
    axis = tuple(i for i, c in enumerate(term) if c not in kept)
    return (_without(reduce_sum(x, axis=axis), axis) if axis else x), "".join(c for c in term if c in kept)


def _product(a: Tensor, term_a: str, b: Tensor, term_b: str, later: set[str]) -> tuple[Tensor, str]:
    """Return one matrix product: shared letters that live on are its batch, those that do not are summed."""
    a, term_a = _summed(a, term_a, later | set(term_b))
    b, term_b = _summed(b, term_b, later | set(term_a))
    alone = _stretched(a, term_a, b, term_b) - later
    a, term_a = _summed(a, term_a, set(term_a) - alone)
    b, term_b = _summed(b, term_b, set(term_b) - alone)
    shared = [c for c in term_a if c in term_b]
    batch = [c for c in shared if c in later]
    summed = [c for c in shared if c not in later]
    rows = [c for c in term_a if c not in shared]
    columns = [c for c in term_b if c not in shared]
    length = {**dict(zip(term_a, a.shape)), **dict(zip(term_b, b.shape))}
    left = _arranged(a, term_a, (batch, rows, summed))
    right = _arranged(b, term_b, (batch, summed, columns))
    out = contract.matmul(left, right)
    shape = (*out.shape[: len(batch)], *(length[c] for c in rows), *(length[c] for c in columns))
    return reshape(out, shape=shape), "".join((*batch, *rows, *columns))


def _stretched(a: Tensor, term_a: str, b: Tensor, term_b: str) -> set[str]:
    """Return shared letters whose axis has length 1 in one operand alone, which broadcasts to the other."""
    lengths = dict(zip(term_b, b.shape))
    differing = {c: (d, lengths[c]) for c, d in zip(term_a, a.shape) if c in lengths and d != lengths[c]}
    if wrong := [c for c, pair in differing.items() if 1 not in pair]:
        raise ShapeError(f"einsum: the lengths of {wrong} differ: {a.shape} and {b.shape}")
    return set(differing)


def _arranged(x: Tensor, term: str, groups: tuple[list[str], list[str], list[str]]) -> Tensor:
    """Return `x` with each letter of the batch as an axis, and the two other groups as one axis each."""
    order = [term.index(c) for group in groups for c in group]
    x = transpose(x, axes=tuple(order))
    batch, split = len(groups[0]), len(groups[0]) + len(groups[1])
    sides = math.prod(x.shape[batch:split]), math.prod(x.shape[split:])
    return reshape(x, shape=(*x.shape[:batch], *sides))


def _without(x: Tensor, axis: Sequence[int]) -> Tensor:
    return reshape(x, shape=tuple(d for i, d in enumerate(x.shape) if i not in axis))
