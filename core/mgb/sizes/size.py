"""Lengths of axes that are followed: polynomials over the lengths of arguments, and what was decided by them.

A `Size` stands for an integer where a call is recorded or compiled, and has its value there. Sums, products,
floor divisions and remainders of it are sizes. A comparison that algebra does not decide is noted as a guard,
and whatever looks at the value itself fixes it, which is a guard too. So what was made of sizes holds for all
lengths that meet the guards.

A `Size` says that its class is `int`, and is none: C code would look at the value of an `int` without asking.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, NoReturn

#: A product of letters, each by its number; as often as it is a factor.
Monomial = tuple[int, ...]
#: A polynomial: monomials in order, with what they are multiplied by.
Terms = tuple[tuple[Monomial, int], ...]
#: A polynomial, and how it compares with 0.
Guard = tuple[Terms, str]
#: A letter that is no length: what is divided, by what, and the function.
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

    Attributes
    ----------
    letters : tuple of Size
        One for each of `values`.
    guards : dict
        In the order in which they were noted; its values say nothing.
    """

    def __init__(self, values: Sequence[int], prints: bool = False) -> None:
        self.prints = prints
        self.guards: dict[Guard, None] = {}
        self.quotients: list[Quotient] = []
        self.count = len(values)
        self._values = list(values)
        self._made: dict[Terms, Size] = {}
        self._numbers: dict[Quotient, int] = {}
        self._open = True
        self._arrays: dict[int, tuple[Any, Size]] = {}
        made = [self.of({(number,): 1}) for number in range(len(values))]
        self.letters: tuple[Size, ...] = tuple(made)

    @property
    def open(self) -> bool:
        """Are guards still noted? If not, a size is but its value."""
        return self._open

    def close(self) -> None:
        """Note no more: what was recorded or compiled is whole."""
        self._open = False

    def note(self, array: Any, size: Size) -> None:
        """Told that `array` is the number `size`."""
        self._arrays[id(array)] = array, size

    def noted(self, array: Any) -> Size | None:
        """Which size `array` is."""
        return self._arrays.get(id(array), (None, None))[1]

    def of(self, terms: Mapping[Monomial, int]) -> Any:
        """The size of a polynomial, the same object for equal ones; an `int` if it is constant."""
        key = tuple(sorted((m, c) for m, c in terms.items() if c))
        if not key or key[-1][0] == _ONE:
            return key[0][1] if key else 0
        size = self._made.get(key)
        if size is None:
            size = self._made[key] = Size(self, key, self.value(key))
        return size if self._open else size.value

    def value(self, terms: Terms) -> int:
        """What a polynomial is worth here."""
        return sum(c * math.prod([self._values[i] for i in m]) for m, c in terms)

    def quotient(self, whole: Terms, part: Terms, function: Callable[[Any, Any], Any]) -> Any:
        """The size ``function(whole, part)``, which becomes a letter."""
        if self.asks(part, "=="):
            return function(self.value(whole), 0)  # raises what integers raise
        key = (whole, part, function)
        if key not in self._numbers:
            self._numbers[key] = len(self._values)
            self._values.append(function(self.value(whole), self.value(part)))
            self.quotients.append(key)
        return self.of({(self._numbers[key],): 1})

    def asks(self, terms: Terms, relation: str) -> bool:
        """Is the polynomial equal to 0 (``==``), or less (``<``)? Noted as a guard unless it is always so."""
        known = self._is_zero(terms) if relation == "==" else self._is_negative(terms)
        if known is not None:
            return known
        terms = _reduced(terms) if relation == "==" else terms
        value = self.value(terms)
        holds = value == 0 if relation == "==" else value < 0
        if self._open:
            self.guards[terms, relation if holds else _OPPOSITE[relation]] = None
        return holds

    def judge(self, terms: Terms) -> int:
        """About how much it is: for what either answer is right, and lengths near these get the same one."""
        if self._open:
            for letter in {i for m, _ in terms for i in m}:
                value = max(self._values[letter], 1)
                lower, upper = ((_ONE, value), ((letter,), -NEAR)), ((_ONE, -NEAR * value), ((letter,), 1))
                self.guards[lower, "<"] = self.guards[upper, "<"] = None
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
        """Lengths are not negative; of quotients nothing is known."""
        if any(i >= self.count for m, _ in terms for i in m):
            return None
        if all(c >= 0 for _, c in terms):
            return False
        if all(c <= 0 for _, c in terms) and terms[0][0] == _ONE:
            return True
        return None


_OPPOSITE = {"==": "!=", "<": ">="}


def _reduced(terms: Terms) -> Terms:
    """The same without a common factor: equal questions are one guard."""
    factor = math.gcd(*(c for _, c in terms))
    factor = -factor if terms[-1][1] < 0 else factor
    return tuple((m, c // factor) for m, c in terms)


class Size:
    """An integer that is followed. There is one object for each polynomial of a `Sizes`.

    Attributes
    ----------
    sizes : Sizes
    terms : tuple
        The polynomial.
    value : int
        What it is worth where it was made; taking it notes no guard.
    """

    __slots__ = ("sizes", "terms", "value")

    def __init__(self, sizes: Sizes, terms: Terms, value: int) -> None:
        self.sizes, self.terms, self.value = sizes, terms, value

    @property  # type: ignore[misc]
    def __class__(self) -> type[int]:  # type: ignore[override]
        return int

    def fixed(self) -> int:
        """The value, which is a guard from now on."""
        sizes = self.sizes
        if sizes.open:
            sizes.asks(_sum(self.terms, _terms_of(self.value), -1), "==")
        return self.value

    # arithmetic that is followed

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add, lambda a, b: self.sizes.of(dict(_sum(a, b, 1))))

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub, lambda a, b: self.sizes.of(dict(_sum(a, b, -1))))

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul, lambda a, b: self.sizes.of(_product(a, b)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self.fixed(), other, modulus)
        if type(other) is int and 0 < other <= 8 and self.sizes.open:
            return math.prod([self] * other)
        return operator.pow(self.fixed(), other)

    def __divmod__(self, other: Any) -> Any:
        return operator.floordiv(self, other), operator.mod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return operator.floordiv(other, self), operator.mod(other, self)

    def _with(self, other: Any, plain: Callable[[Any, Any], Any], followed: Callable[..., Any]) -> Any:
        if type(other) is Size:
            if other.sizes is self.sizes and self.sizes.open:
                return followed(self.terms, other.terms)
            if other.sizes.open:
                return plain(self.value, other)
            other = other.value
        if type(other) is int or type(other) is bool:
            return followed(self.terms, _terms_of(other)) if self.sizes.open else plain(self.value, other)
        return plain(self.fixed(), other) if isinstance(other, Number) else NotImplemented

    def _divided(self, function: Callable[[Any, Any], Any], whole: Terms, part: Terms) -> Any:
        exact = _exact_quotient(whole, part)
        if exact is None or (part[0][0] != _ONE and self.sizes.asks(part, "==")):
            return self.sizes.quotient(whole, part, function)
        return self.sizes.of(dict(exact)) if function is operator.floordiv else 0

    # comparisons, which are guards

    def __eq__(self, other: object) -> Any:
        return self is other or self._compared(other, operator.eq, "==", 1)

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt, "<", 1)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt, "<", -1)

    def __le__(self, other: Any) -> Any:
        greater = self > other
        return greater if greater is NotImplemented else not greater

    def __ge__(self, other: Any) -> Any:
        less = self < other
        return less if less is NotImplemented else not less

    def _compared(self, other: Any, plain: Callable[[Any, Any], Any], relation: str, sign: int) -> Any:
        def ask(a: Terms, b: Terms) -> bool:
            first, then = (a, b) if sign > 0 else (b, a)
            return self.sizes.asks(_sum(first, then, -1), relation)

        return self._with(other, plain, ask)

    def __bool__(self) -> bool:
        return not self.sizes.asks(self.terms, "==")

    # whatever else needs the value

    def __index__(self) -> int:
        return self.fixed()

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __float__(self) -> float:
        return float(self.fixed())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np  # a size that is followed never comes here

        return np.asarray(self.fixed(), dtype)

    def __repr__(self) -> str:
        return text(self.terms) if self.sizes.prints else repr(self.fixed())

    def __format__(self, spec: str) -> str:
        return repr(self) if self.sizes.prints else format(self.fixed(), spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.fixed(),)

    def __copy__(self) -> Size:
        return self

    def __deepcopy__(self, memo: Any) -> Size:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array_"):  # NumPy asks what else it could be
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def __setstate__(self, state: Any) -> NoReturn:
        raise TypeError("a size becomes an int where it is stored")


Size.__name__ = Size.__qualname__ = int.__name__  # so that errors of Python are those of integers


def _turned(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


def _fixing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is `function` of the value."""
    return lambda self, *others: function(self.fixed(), *others)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator whose operands are numbers."""
    return lambda a, b: function(a.fixed(), b) if isinstance(b, Number) else NotImplemented


def _division(function: Callable[[Any, Any], Any]) -> Iterator[Callable[[Size, Any], Any]]:
    """The operator, and the one with its operands exchanged."""
    yield lambda a, b: a._with(b, function, lambda x, y: a._divided(function, x, y))
    yield lambda a, b: a._with(b, _turned(function), lambda x, y: a._divided(function, y, x))


for _function in (operator.floordiv, operator.mod):
    _name = _function.__name__
    for _prefix, _method in zip(("", "r"), _division(_function), strict=True):
        setattr(Size, f"__{_prefix}{_name}__", _method)
_OPERATORS = (operator.truediv, operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor)
for _function in _OPERATORS:
    _name = _function.__name__.strip("_")
    setattr(Size, f"__{_name}__", _binary(_function))
    setattr(Size, f"__r{_name}__", _binary(_turned(_function)))
Size.__rpow__ = _binary(_turned(operator.pow))  # type: ignore[attr-defined]
for _convert in (operator.invert, math.trunc, math.floor, math.ceil, round, int, complex):
    setattr(Size, f"__{_convert.__name__}__", _fixing(_convert))


# polynomials


def _terms_of(number: int) -> Terms:
    return ((_ONE, int(number)),) if number else ()


def _sum(a: Terms, b: Terms, factor: int) -> Terms:
    terms = dict(a)
    for m, c in b:
        terms[m] = terms.get(m, 0) + factor * c
    return tuple(sorted((m, c) for m, c in terms.items() if c))


def _product(a: Terms, b: Terms) -> dict[Monomial, int]:
    terms: dict[Monomial, int] = {}
    for m, c in a:
        for n, d in b:
            key = tuple(sorted((*m, *n)))
            terms[key] = terms.get(key, 0) + c * d
    return terms


def _exact_quotient(whole: Terms, part: Terms) -> Terms | None:
    """``whole / part`` for a `part` of one term that divides each of `whole`."""
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
    """A polynomial as Python: letters are ``s0``, ``s1``, ..."""
    products = ("*".join([*([str(c)] if c != 1 or not m else []), *(f"s{i}" for i in m)]) for m, c in terms)
    return f"({' + '.join(products)})" if len(terms) > 1 else next(products, "0")
