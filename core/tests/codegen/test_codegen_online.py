"""Which folds of a second pass the first can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb.codegen import online, schedule
from mgb.ir import Graph, Spec
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import maximum, where
from mgb.ops.reduce import extent, reduce_max, reduce_sum
from mgb.tensor.tracing import graph_of

#: More ops than any value takes: every pass reads its operands again.
NEVER = 1 << 30

F32 = np.dtype(np.float32)


def traced(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: np.dtype[Any] = F32) -> Graph:
    return graph_of(function, *(Spec(s, dtype) for s in shapes))


def top(x: Any) -> Any:
    return reduce_max(x, axis=(1,))


def total(x: Any) -> Any:
    return reduce_sum(x, axis=(1,))


def mean(x: Any) -> Any:
    return total(x) / extent(x, axis=(1,))


def softmax(x: Any) -> Any:
    e = exp(x - top(x))
    return e / total(e)


def variance(x: Any) -> Any:
    centred = x - mean(x)
    return total(centred * centred)


FOUND: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "softmax": (softmax, ["exponentials"]),
    "a shift that comes from the maximum": (
        lambda x: total(exp(x - where(top(x) < 9, top(x), 0))),
        ["exponentials"],
    ),
    "variance": (variance, ["squares"]),
    "both": (lambda x: [total(exp(x - top(x))), variance(x)], ["exponentials", "squares"]),
}

NOT_FOUND: dict[str, Callable[..., Any]] = {
    "one pass": lambda x: total(x),
    "another use of the maximum": lambda x: total(x * top(x)),
    "one of two folds": lambda x: [total(exp(x - top(x))), total(x * top(x))],
    "the maximum of something else": lambda x: total(exp(x - top(x * 2))),
    "a maximum of exponentials": lambda x: reduce_max(exp(x - top(x)), axis=(1,)),
    "a product of two differences": lambda x: total((x - mean(x)) * (x - top(x))),
    "an output of the second pass": lambda x: [total(exp(x - top(x))), maximum(x, top(x))],
}


class TestOnline:
    @pytest.mark.parametrize("name", FOUND)
    def test_online_reductions_are_found(self, name: str) -> None:
        function, kinds = FOUND[name]
        found = online(schedule(traced(function, (4, 50)), NEVER))
        assert sorted("squares" if o.maximum is None else "exponentials" for o in found) == kinds
        for o in found:
            assert o.fold.op.name == "reduce_sum"
            assert o.value.spec.shape == (4, 50) and o.shift.spec.shape == (4, 1)
            assert o.maximum is None or o.maximum.inputs[0] is o.value

    @pytest.mark.parametrize("name", NOT_FOUND)
    def test_other_reductions_are_not_online(self, name: str) -> None:
        assert online(schedule(traced(NOT_FOUND[name], (4, 50)), NEVER)) == ()

    def test_integer_reductions_are_not_moved(self) -> None:
        graph = traced(lambda x: total((x - total(x)) * (x - total(x))), (4, 50), dtype=np.dtype(np.int32))
        assert online(schedule(graph, NEVER)) == ()
