"""An array that an op takes, and nothing else looks at, is an input from the second call on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace


class Looks:
    """Its operators look at what they are given, and hand it on."""

    __array_ufunc__ = None

    def __mul__(self, other: Any) -> Any:
        return tensor(1.0) * other if other[0] > 0 else tensor(2.0) * other

    __rmul__ = __mul__


LOOKS = Looks()


def in_place(x: Any, a: Any) -> Any:
    a += 1.0
    return x * a


def added(x: Any, a: Any) -> Any:
    x += a
    return x


def unpacked(x: Any, a: Any) -> Any:
    first, _ = a
    return x * first


def in_a_list(x: Any, a: Any) -> Any:
    return x * ([1.0, 2.0] + a)


def twice(x: Any, a: Any) -> Any:
    return x * a if a.sum() > 0 else x - a


INPUTS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, a: x * a,
    lambda x, a: a * x,
    lambda x, a: ((F.relu(x) - a) ** 2).mean(),
    lambda x, a: (x * 2.0 + 1.0) * a + 1.0,
    lambda x, a: x[0] * a,
    lambda x, a: a**x,
    lambda x, a: x * a + a,
    lambda x, a: [x, a][1] * x,
    lambda x, a: ((a,) * 2)[0] * x,
    added,
)
LOOKED_AT: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, a: x * (a * 2.0),
    lambda x, a: LOOKS * a + x,
    lambda x, a: a * LOOKS + x,
    lambda x, a: x * a[0],
    lambda x, a: x * 2.0 if a[0] > 0 else x,
    lambda x, a: x * -a,
    in_place, unpacked, in_a_list, twice,
)  # fmt: skip


def runs(body: Callable[[Any, Any], Any]) -> int:
    """How often the body runs for six arrays, where the results are those without a trace."""
    traced = trace(body)
    for call in range(6):
        one = np.array([1.0, 2.0], np.float32) * (call + 1) * (-1) ** call
        two = one.copy()
        expected = body(tensor([1.0, 2.0]), one)
        np.testing.assert_allclose(traced(tensor([1.0, 2.0]), two).numpy(), expected.numpy(), rtol=1e-6)
        np.testing.assert_array_equal(one, two)
    return int(traced.stats()["body_runs"])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("body", INPUTS)
def test_array_is_an_input(body: Callable[[Any, Any], Any]) -> None:
    assert runs(body) == 2


@pytest.mark.parametrize("body", LOOKED_AT)
def test_array_that_is_looked_at_is_not(body: Callable[[Any, Any], Any]) -> None:
    assert runs(body) == 6
