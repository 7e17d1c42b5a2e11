"""What a loader might make: objects of a class of a user's, in the order of calls."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from mgb import Tensor, jit, tensor

ONE = tensor(np.ones(3, np.float32))


def three(number: float) -> Tensor:
    return tensor(np.array([number, -number, number + 1], np.float32))


class Batch:
    """What a loader makes of each batch."""

    def __init__(self, x: Any, y: Any = None) -> None:
        self.x, self.y = x, y

    def scaled(self) -> Any:
        return self.x * self.y

    @property
    def half(self) -> Any:
        return self.y * 0.5

    @functools.cached_property
    def third(self) -> Any:
        return self.y / 4.0


def batch(kind: type = Batch) -> Callable[[int], Any]:
    return lambda n: kind(three(n), float(n))


ORDER = (1, 1, 2, 2, 1, 3, 3, 2, 1, 4, 5, 6, 6, 1)


def agree(body: Callable[[Any], Any], make: Callable[[int], Any], symbolic: bool) -> None:
    """Compare a traced body with the plain one, on new arguments at each call."""
    traced = jit.trace(symbolic=symbolic)(body)
    for n in ORDER:
        given, other = make(n), make(n)
        got, wanted = traced(given), body(other)
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6, err_msg=f"at {n}")
        assert state(given) == state(other)


def state(thing: Any) -> Any:
    """What a body may have written."""
    if isinstance(thing, (list, tuple)):
        return [state(part) for part in thing]
    if isinstance(thing, Tensor):
        return thing.tolist()
    names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]
    parts = {name: getattr(thing, name) for name in names if name != "third"}
    return {n: state(v) for n, v in parts.items() if isinstance(v, (Tensor, list, int, float, str))}
