"""Lengths of axes that are followed: polynomials over the lengths of arguments, and what was decided by them.

A `Size` stands for an integer where a call is recorded or compiled, and has its value there. Sums, products,
floor divisions and remainders of it are sizes. A comparison that algebra does not decide is noted as a guard,
and whatever looks at the value itself fixes it, which is a guard too. So what was made of sizes holds for all
lengths that meet the guards.

A `Size` says that its class is `int`, and is none: C code would look at the value of an `int` without asking.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..scalars import Scalar, Size, fixed

#: A product of letters, each by its number; as often as it is a factor.
Monomial = tuple[int, ...]
#: A polynomial: monomials in order, with what they are multiplied by.
Terms = tuple[tuple[Monomial, int], ...]
#: A polynomial, and how it compares with 0.
Guard = tuple[Terms, str]
#: A letter that is not a length: what is divided, by what, and the function.
Quotient = tuple[Terms, Terms, Callable[[Any, Any], Any]]

_ONE: Monomial = ()
#: What costs less at some length is taken to do so at all that are less than so many times as large or small.
NEAR = 8


class Sizes:
    """The letters of one recording or compilation, and the guards that it noted.

    Parameters
    ----------
    values : sequence of int
        The value of each letter.
    prints : bool
        May a size be printed, as its polynomial, without being fixed? So where texts decide nothing.
    line : callable
        Gives the line that a guard is noted for.

    Attributes
    ----------
    letters : tuple of Size
        One for each of `values`.
    guards : dict
        In the order in which they were noted, with the line of each.
    """

    def __init__(self, values: Sequence[int], prints: bool = False, line: Callable[[], str] = str) -> None:
        self.prints, self._line = prints, line
        self.guards: dict[Guard, str] = {}
        self.quotients: list[Quotient] = []
        self.count = len(values)
        self._values = list(values)
        self._made: dict[Terms, Size] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._numbers: dict[Quotient, int] = {}
        self.open = True
        self.letters: tuple[Size, ...] = tuple([self.of((((n,), 1),)) for n in range(len(values))])

    def close(self) -> None:
        """Note no more: what was recorded or compiled is whole."""
        self.open = False

    def of(self, terms: Terms) -> Any:
        """Return the size of a polynomial, the same object for equal ones; an `int` if it is constant."""
        if not terms or terms[-1][0] == _ONE:
            return terms[0][1] if terms else 0
        size = self._made.get(terms)
        if size is None:
            size = self._made[terms] = Size(self, terms, self.value(terms))
        return size

    def computed(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Return ``function(*given)``, a size if it is a polynomial or quotient: see `scalars.Follower`."""
        rule, terms = _ALGEBRA.get(function), [self._terms_of(number) for number in given]
        asked = (function, *terms)
        found = self._answers.get(asked)  # the shapes of a program are few, and compared again and again
        if found is not None:
            return found
        found = NotImplemented if rule is None or None in terms else rule(self, *terms)
        if found is not NotImplemented:
            self._answers[asked] = found
            return found
        return function(*[fixed(g) if t is not None else g for g, t in zip(given, terms, strict=True)])

    def _terms_of(self, number: Any) -> Terms | None:
        """Return a number as a polynomial; None: it is none of these."""
        if type(number) is Size and number.follower is self:
            terms: Terms = number.path
            return terms
        if type(number) is int or type(number) is bool:
            return ((_ONE, int(number)),) if number else ()
        return None

    def fix(self, number: Scalar) -> None:
        """Note that the value of `number` decides what follows."""
        self.asks(_sum(number.path, ((_ONE, number.value),), -1), "==")

    def text(self, terms: Terms) -> str:
        """Format a polynomial."""
        return text(terms)

    def divided(self, function: Callable[[Any, Any], Any], whole: Terms, part: Terms) -> Any:
        """Return the size ``function(whole, part)``, a division."""
        exact = _exact_quotient(whole, part)
        if exact is None or (part[0][0] != _ONE and self.asks(part, "==")):
            return self.quotient(whole, part, function)
        return self.of(exact) if function is operator.floordiv else 0

    def value(self, terms: Terms) -> int:
        """Return the value of a polynomial here."""
        return sum(c * math.prod([self._values[i] for i in m]) for m, c in terms)

    def quotient(self, whole: Terms, part: Terms, function: Callable[[Any, Any], Any]) -> Any:
        """Return the size ``function(whole, part)``, which becomes a letter."""
        if self.asks(part, "=="):
            return function(self.value(whole), 0)  # raises what integers raise
        key = (whole, part, function)
        if key not in self._numbers:
            self._numbers[key] = len(self._values)
            self._values.append(function(self.value(whole), self.value(part)))
            self.quotients.append(key)
        return self.of((((self._numbers[key],), 1),))

    def asks(self, terms: Terms, relation: str) -> bool:
        """Return whether the polynomial is 0 (``==``) or less (``<``), a guard unless it always is."""
        known = self._is_zero(terms) if relation == "==" else self._is_negative(terms)
        if known is not None:
            return known
        terms = _reduced(terms) if relation == "==" else terms
        value = self.value(terms)
        holds = value == 0 if relation == "==" else value < 0
        self._note(terms, relation if holds else _OPPOSITE[relation])
        return holds

    def _note(self, terms: Terms, relation: str) -> None:
        if self.open and (terms, relation) not in self.guards:
            self.guards[terms, relation] = self._line()

    def judge(self, terms: Terms) -> int:
        """Estimate a length where either answer is right; nearby lengths get the same estimate."""
        for letter in {i for m, _ in terms for i in m}:
            value = max(self._values[letter], 1)
            self._note(((_ONE, value), ((letter,), -NEAR)), "<")
            self._note(((_ONE, -NEAR * value), ((letter,), 1)), "<")
        return self.value(terms)

    def _is_zero(self, terms: Terms) -> bool | None:
        if not terms:
            return True
        constant = terms[0][1] if terms[0][0] == _ONE else 0
        factor = math.gcd(*(c for m, c in terms if m != _ONE))
        if not factor or constant % factor:
            return False
        down = tuple((m, -c) for m, c in terms)
        return False if constant and True in (self._is_negative(terms), self._is_negative(down)) else None

    def _is_negative(self, terms: Terms) -> bool | None:
        """Return whether it is negative: lengths are not, of quotients nothing is known."""
        if any(i >= self.count for m, _ in terms for i in m):
            return None
        if all(c >= 0 for _, c in terms):
            return False
        if all(c <= 0 for _, c in terms) and terms[0][0] == _ONE:
            return True
        return None


_OPPOSITE = {"==": "!=", "<": ">="}


def _reduced(terms: Terms) -> Terms:
    """Return the same without a common factor, so that equal questions are one guard."""
    factor = math.gcd(*(c for _, c in terms))
    factor = -factor if terms[-1][1] < 0 else factor
    return tuple((m, c // factor) for m, c in terms)


# polynomials


def _terms(coefficients: Mapping[Monomial, int]) -> Terms:
    return tuple(sorted((m, c) for m, c in coefficients.items() if c))


def _sum(a: Terms, b: Terms, factor: int) -> Terms:
    terms = dict(a)
    for m, c in b:
        terms[m] = terms.get(m, 0) + factor * c
    return _terms(terms)


def _product(a: Terms, b: Terms) -> Terms:
    terms: dict[Monomial, int] = {}
    for m, c in a:
        for n, d in b:
            key = tuple(sorted((*m, *n)))
            terms[key] = terms.get(key, 0) + c * d
    return _terms(terms)


def _exact_quotient(whole: Terms, part: Terms) -> Terms | None:
    """Return ``whole / part`` for a `part` of one term that divides each of `whole`."""
    if len(part) != 1:
        return None
    (divisor, factor), *_ = part
    found = []
    for monomial, coefficient in whole:
        left = list(monomial)
        for letter in divisor:
            if letter not in left:
                return None
            left.remove(letter)
        if coefficient % factor:
            return None
        found.append((tuple(left), coefficient // factor))
    return tuple(sorted(found))


def text(terms: Terms) -> str:
    """Return a polynomial as Python: letters are ``s0``, ``s1``, ..."""
    products = ("*".join([*([str(c)] if c != 1 or not m else []), *(f"s{i}" for i in m)]) for m, c in terms)
    return f"({' + '.join(products)})" if len(terms) > 1 else next(products, "0")


def _powered(sizes: Sizes, a: Terms, b: Terms) -> Any:
    """Return a power, if the exponent is a small number."""
    exponent = b[0][1] if len(b) == 1 and b[0][0] == _ONE else 0
    return sizes.of(functools.reduce(_product, [a] * exponent)) if 0 < exponent <= 8 else NotImplemented


#: What is followed of functions of polynomials; they may say `NotImplemented`.
_ALGEBRA: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.add: lambda sizes, a, b: sizes.of(_sum(a, b, 1)),
    operator.sub: lambda sizes, a, b: sizes.of(_sum(a, b, -1)),
    operator.mul: lambda sizes, a, b: sizes.of(_product(a, b)),
    operator.pow: _powered,
    operator.floordiv: lambda sizes, a, b: sizes.divided(operator.floordiv, a, b),
    operator.mod: lambda sizes, a, b: sizes.divided(operator.mod, a, b),
    operator.neg: lambda sizes, a: sizes.of(_sum((), a, -1)),
    operator.pos: lambda sizes, a: sizes.of(a),
    operator.abs: lambda sizes, a: sizes.of(_sum((), a, -1) if sizes.asks(a, "<") else a),
    operator.truth: lambda sizes, a: not sizes.asks(a, "=="),
    operator.eq: lambda sizes, a, b: sizes.asks(_sum(a, b, -1), "=="),
    operator.ne: lambda sizes, a, b: not sizes.asks(_sum(a, b, -1), "=="),
    operator.lt: lambda sizes, a, b: sizes.asks(_sum(a, b, -1), "<"),
    operator.gt: lambda sizes, a, b: sizes.asks(_sum(b, a, -1), "<"),
    operator.le: lambda sizes, a, b: not sizes.asks(_sum(b, a, -1), "<"),
    operator.ge: lambda sizes, a, b: not sizes.asks(_sum(a, b, -1), "<"),
}
