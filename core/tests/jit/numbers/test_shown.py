"""What Python and NumPy show of numbers that became inputs is what they show in eager code."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable
from time import struct_time
from typing import Any, NamedTuple

import numpy as np
import pytest
from following import X, same, skipping
from mgb import tensor
from mgb.jit import trace


@skipping
def test_builtins_show_numbers_as_in_eager_code(wrap: Any) -> None:
    def show(x: Any, n: Any) -> Any:
        texts = "/".join(map(str, (n,))), sorted([n, 3], key=str), "%s" % n  # noqa: UP031
        return x, texts, list(map(type, [n, 2])), n == "auto", n != "auto", n == None  # noqa: E711

    traced = wrap(show)
    for n in (1, np.int64(1), np.int64(2), np.float32(2.5), np.float32(3.5)):
        assert same(traced(tensor(X), n), traced.__wrapped__(tensor(X), n))


@pytest.mark.parametrize("symbolic", [False, True])
def test_nan_is_found_by_identity(symbolic: bool) -> None:
    outside = {"n": 1}

    def find(x: Any, n: Any) -> Any:
        return x * n, n in [1, n], (1, n).index(n), [n] == [n], [outside["n"]].count(outside["n"])

    traced = trace(find, symbolic=symbolic)
    for n in (1, 2.0, 3.5, math.nan, math.nan, 4.5, 5.5):
        outside["n"] = n
        assert same(traced(tensor(X), n), find(tensor(X), n)), n


NUMPYS = [np.int8(10), np.int8(2), 3, np.int8(100), np.uint8(200), 2, np.float32(1e30), 1e10, np.float32(0)]


@skipping
@pytest.mark.parametrize("state", ["warn", "raise", "ignore"])
def test_numpy_warnings_for_numbers_are_issued_once(wrap: Any, state: Any) -> None:
    outside = {"a": 1}

    def compute(x: Any, n: Any) -> Any:
        return x * 2, outside["a"] * n, n - outside["a"], 1 if n * n > 5 else 2

    def told(function: Any, *given: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught, np.errstate(all=state):
            warnings.simplefilter("always")
            try:
                result = function(*given)
            except FloatingPointError as error:
                return str(error)
        return result, *(str(warning.message) for warning in caught)

    traced = wrap(compute)
    for outside["a"], n in itertools.product(NUMPYS[::-1], NUMPYS):
        assert same(told(traced, tensor(X), n), told(compute, tensor(X), n)), (outside, n)


KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "display": lambda x, n: dict.fromkeys((0, n), x * n),
    "fromkeys": lambda x, n: dict.fromkeys([n, (7, n)]),
    "counter": lambda x, n: Counter(v + n for v in [1]),
    "pairs": lambda x, n: {v + n: v for v in [1, 2]},
    "of map": lambda x, n: dict(map(lambda v: (v + n, v), [1, 2])),  # noqa: C417
}


@skipping
@pytest.mark.parametrize("name", KEYS)
def test_numbers_as_keys_of_a_result(name: str, wrap: Any) -> None:
    function = KEYS[name]
    traced = wrap(function)
    for n in (1, 2, 3, 4, 2):
        result, want = traced(tensor(X), n), function(tensor(X), n)
        assert type(result) is type(want) and same(dict(result), dict(want))


class Extent(tuple):
    unit = "px"

    def area(self) -> Any:
        return self[0] * self[1]


class Pair(NamedTuple):
    one: Any
    other: Any

    def area(self) -> Any:
        return self.one * self.other


@skipping
def test_numbers_in_tuple_subclasses(wrap: Any) -> None:
    def compute(x: Any, extent: Any) -> Any:
        return x * extent.area(), type(extent).__name__, extent[:1]

    traced, runs = wrap(compute), trace(lambda x, extent: (x * extent[0], extent.unit))
    for n in (1, 2, 3):
        whole = Extent([n, 2])
        whole.unit = f"{n} cm"
        for extent in (whole, Pair(n, 3), Extent([n, n])):
            assert same(traced(tensor(X), extent), compute(tensor(X), extent))
        assert same(runs(tensor(X), whole), (tensor(X) * n, f"{n} cm"))
    traced = wrap(lambda x, when: (x * when[0], type(when) is struct_time))
    for n in range(4):
        when = struct_time([2000 + n] * 9)
        assert same(traced(tensor(X), when), traced.__wrapped__(tensor(X), when))
