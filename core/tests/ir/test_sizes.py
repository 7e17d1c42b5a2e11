"""Sizes: they are what integers are, and what was made of them holds wherever the guards do."""

from __future__ import annotations

import json
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb import tensor
from mgb.ir import sizes
from mgb.ir.sizes import Lengths, Size, Sizes, checker
from mgb.jit import trace

Program = Callable[[Any, Any], Any]

LENGTHS = st.integers(0, 12)
BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
TESTS = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt]


@st.composite
def programs(draw: st.DrawFn, depth: int = 3) -> Program:
    """An expression over two lengths, with branches."""
    if not depth or draw(st.integers(0, 4)) == 0:
        number = draw(st.integers(-3, 9))
        return draw(st.sampled_from([lambda a, b: a, lambda a, b: b, lambda a, b: number]))
    left, right = draw(programs(depth=depth - 1)), draw(programs(depth=depth - 1))
    function = draw(st.sampled_from(BINARY))
    if draw(st.booleans()):
        test = draw(st.sampled_from(TESTS))
        return lambda a, b: left(a, b) if test(left(a, b), right(a, b)) else right(a, b)
    return lambda a, b: function(left(a, b), right(a, b))


def outcome(program: Program, a: Any, b: Any) -> Any:
    try:
        return program(a, b)
    except ZeroDivisionError:
        return "division by zero"


@given(programs(), LENGTHS, LENGTHS, LENGTHS, LENGTHS)
def test_size_expressions_are_correct_wherever_the_guards_hold(
    program: Program, a: int, b: int, c: int, d: int
) -> None:
    followed = Sizes((a, b))
    found = outcome(program, *followed.letters)
    assert sizes.plain(found) == outcome(program, a, b)
    fits = checker(followed)
    assert fits((a, b))
    if fits((c, d)):
        assert Lengths(followed, (c, d))(found) == outcome(program, c, d)


@given(programs(), LENGTHS, LENGTHS, LENGTHS, LENGTHS)
def test_size_expressions_can_be_evaluated_on_other_sizes(
    program: Program, a: int, b: int, c: int, d: int
) -> None:
    followed = Sizes((a, b))
    found = outcome(program, *followed.letters)
    followed.close()
    if checker(followed)((c, d)):
        again = Sizes((c, d))
        assert sizes.plain(Lengths(followed, again.letters)(found)) == outcome(program, c, d)


#: What looks at the value in a way that is not followed.
LOOKS: dict[str, Callable[[Any], Any]] = {
    "index": lambda n: list(range(20))[n],
    "range": lambda n: list(range(n)),
    "repetition": lambda n: [0] * n,
    "text": str,
    "format": lambda n: f"{n:4d}",
    "percent": lambda n: "%d" % n,  # noqa: UP031 - one more way
    "key of a dict": lambda n: {5: "five"}.get(n),
    "set": lambda n: n in {4, 5},
    "square root": math.sqrt,
    "quotient": lambda n: 1 / n,
    "quotient of it": lambda n: n / 2,
    "float": float,
    "float product": lambda n: 0.5 * n,
    "power": lambda n: 2**n,
    "root": lambda n: n**0.5,
    "bits": lambda n: (n & 1, n >> 1, n.bit_length()),
    "numpy": lambda n: np.zeros(n).shape,
    "numpy scalar": lambda n: np.float32(n),
    "numpy product": lambda n: int(np.int64(3) * n),
    "array": lambda n: np.array([n, 2]).tolist(),
    "rounding": lambda n: (round(n), math.floor(n), math.ceil(n), int(n)),
    "pickle": lambda n: pickle.loads(pickle.dumps(n)),
    "ratio": lambda n: n.as_integer_ratio(),
}


@pytest.mark.parametrize("name", LOOKS)
def test_reading_the_value_of_a_size_adds_an_equality_guard(name: str) -> None:
    look, followed = LOOKS[name], Sizes((5,))
    assert look(followed.letters[0]) == look(5)
    fits = checker(followed)
    assert fits((5,)) and not fits((6,)) and not fits((4,))


def test_size_behaves_as_an_integer() -> None:
    (n,) = Sizes((5,)).letters
    assert isinstance(n, int) and n == 5 and n != 4 and n is n and bool(n)
    assert type(n) is Size and sizes.is_sized((1, (n, 2))) and not sizes.is_sized((1, (5, 2)))
    assert json.dumps({"n": int(n)}) == '{"n": 5}'


def test_algebraic_comparisons_add_no_guards() -> None:
    followed = Sizes((4, 6))
    a, b = followed.letters
    assert (a * b * 2) // b == a * 2 and (a + b) * (a - b) == a * a - b * b
    assert a * 3 // 3 == a and a * 6 % 3 == 0 and a + 1 != 0 and a >= 0 and a + b + 1 > 0
    assert 2 * a != 7 and not a < 0
    assert set(followed.guards) <= {(((((1,), 1),)), "!=")}  # b divides, so it is not 0


def test_equal_polynomials_are_one_object() -> None:
    a, b = Sizes((4, 6)).letters
    assert a * 2 + b is b + a + a and (a + b) - b is a and a - a == 0 and type(a - a) is int


@given(st.slices(9), LENGTHS, LENGTHS)
def test_slices_of_a_size_match_slices_of_an_integer(chosen: slice, length: int, other: int) -> None:
    followed = Sizes((length,))
    found = sizes.indices(chosen, followed.letters[0])
    made = sizes.count(*found)
    assert sizes.plain(found) == chosen.indices(length)
    if checker(followed)((other,)):
        at = Lengths(followed, (other,))
        assert at(found) == chosen.indices(other)
        assert at((made,)) == (len(range(*chosen.indices(other))),)


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple)


@given(SHAPES, SHAPES, SHAPES)
def test_broadcasting_of_sizes_matches_numpy(one: Any, two: Any, three: Any) -> None:
    try:
        wanted = np.broadcast_shapes(one, two, three)
    except ValueError:
        wanted = None
    assert sizes.broadcast((one, two, three)) == wanted
    followed = Sizes((*one, *two))
    letters = followed.letters
    found = sizes.broadcast((letters[: len(one)], letters[len(one) :], three))
    assert sizes.plain(found) == wanted and checker(followed)((*one, *two))


def test_cost_estimates_are_guarded_to_nearby_lengths() -> None:
    followed = Sizes((16,))
    assert sizes.about(followed.letters[0] * 100) == 1600
    fits = checker(followed)
    assert fits((17,)) and fits((100,)) and fits((3,)) and not fits((2,)) and not fits((128,))


#: What a body may make of a length, and Python of the same integer.
MADE: dict[str, Callable[[int], Any]] = {
    "whole part": lambda n: n * 3 // 2,
    "rest": lambda n: n * 3 % 2,
    "parts": lambda n: sum(divmod(n * 5 + 1, 3)),
    "less": lambda n: 1 if n < 4 else 2,
    "or less": lambda n: 1 if n <= 4 else 2,
    "more": lambda n: 1 if n > 4 else 2,
    "or more": lambda n: 1 if n >= 4 else 2,
    "equal": lambda n: 1 if n == 4 else 2,
    "unequal": lambda n: 1 if n != 4 else 2,
    "more than none": lambda n: 1 if n > 0 else 2,
    "truth": lambda n: 1 if n else 2,
    "element": lambda n: tuple(range(10, 20))[n],
    "letter": lambda n: ord("abcdefghij"[n]),
    "index": lambda n: operator.index(n) * 2,
    "int": lambda n: int(n) * 3,
    "power": lambda n: n**2 - 2**n,
    "distance": lambda n: abs(n - 4),
    "least": lambda n: min(n, 4) + max(n, 5),
    "key": lambda n: {4: 1, 0: 3}.get(n, 2),
    "bits": lambda n: n.bit_length() + (n << 1) + (n & 3),
    "negative": lambda n: -n // 2,
}


@pytest.mark.parametrize("name", MADE)
def test_traced_length_arithmetic_matches_python(name: str) -> None:
    made = MADE[name]
    traced = trace(lambda x: x.sum() * 0.0 + made(x.shape[0]), without_host=True, backend="eager")
    for n in (4, 5, 3, 0, 8):
        assert traced(tensor(np.zeros(n, np.float32))).item() == made(n)
