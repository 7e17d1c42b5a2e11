"""Arguments that have no hash: buffers, frozen dataclasses that hold lists, classes whose hash raises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace


@dataclasses.dataclass(frozen=True)
class Frozen:
    weights: list[float]


class Hashless:
    weight = 1.0

    def __hash__(self) -> int:
        raise TypeError("it has no hash")


def case_of_a_buffer() -> tuple[Any, Callable[[float], object], Callable[[Tensor, Any], Tensor]]:
    array = np.ones(3, np.float32)
    return memoryview(array), array.fill, lambda x, buffer: x + tensor(np.asarray(buffer)).sum()


def case_of_a_dataclass() -> tuple[Any, Callable[[float], object], Callable[[Tensor, Any], Tensor]]:
    frozen = Frozen([1.0])
    return frozen, lambda k: frozen.weights.__setitem__(0, k), lambda x, one: x * one.weights[0]


def case_of_a_raising_hash() -> tuple[Any, Callable[[float], object], Callable[[Tensor, Any], Tensor]]:
    one = Hashless()
    return one, lambda k: setattr(one, "weight", k), lambda x, one: x * one.weight


@pytest.mark.parametrize("case", [case_of_a_buffer, case_of_a_dataclass, case_of_a_raising_hash])
def test_unhashable_arguments_match_eager(case: Callable[[], Any]) -> None:
    argument, set_to, body = case()
    traced, x = trace(body), tensor(2.0)
    for value in (1.0, 1.0, 3.0, 1.0):
        set_to(value)
        assert traced(x, argument).item() == body(x, argument).item()
