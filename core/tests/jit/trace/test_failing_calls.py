"""A skipped call whose program raises leaves all that the body writes as it was before that call."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupting import without_memory
from mgb import Parameter, Tensor, jit, linalg, tensor
from mgb.autodiff import GradManager
from mgb.ir import Kind, Op
from mgb.ops.declare import OPS
from mgb.tensor.apply import apply
from states import ZERO, State

GOOD, BAD = np.eye(3, dtype=np.float32), -np.eye(3, dtype=np.float32)
#: Calls before one fails: so many that all bodies are skipped.
BEFORE = 14
GLOBAL: Any = None


#: An op of somebody else's, whose rules are none of a user's, which would be watched.
REFUSING = Op("refusing", Kind.OPAQUE, OPS["cholesky"].infer, OPS["cholesky"].eager.rule)


def by_library(x: Any) -> Any:
    """An op that fails by what its operands hold."""
    return linalg.cholesky(x)


def by_kernel(x: Any) -> Any:
    return apply(REFUSING, x)


class Trained(State):
    """What is updated in place, and what grows."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.p = tensor(ZERO + 1), Parameter(ZERO + 1)
        self.losses: list[Any] = []
        self.steps: list[Any] = []


def a_tensor(s: Any, x: Any, y: Any) -> None:
    s.h = s.h + y[0]


def tensors(s: Any, x: Any, y: Any) -> None:
    s.h, s.c = s.h + s.c, s.h * y[0]


def a_number(s: Any, x: Any, y: Any) -> None:
    s.n += 1


def numbers(s: Any, x: Any, y: Any) -> None:
    s.n += 1
    s.lr = s.lr * 0.5


def a_flag(s: Any, x: Any, y: Any) -> None:
    s.flag = not s.flag


def a_text(s: Any, x: Any, y: Any) -> None:
    s.mode = {"a": "b", "b": "a"}[s.mode]


def a_list(s: Any, x: Any, y: Any) -> None:
    s.losses.append(y.sum())


def lists(s: Any, x: Any, y: Any) -> None:
    s.losses.append(y.sum())
    s.losses.append(x * 2)
    s.steps.append(1)


def elements(s: Any, x: Any, y: Any) -> None:
    s.table["a"] = s.table["a"] * 0.5 + y[1]
    s.table["n"] += 1
    s.numbers[0] += 2
    s.row[1] = y[1] + s.row[1]


def a_key(s: Any, x: Any, y: Any) -> None:
    s.table["new"] = y[0] * 2


def a_variable(s: Any, x: Any, y: Any) -> None:
    global GLOBAL
    GLOBAL = GLOBAL + y[0] * 2


def in_place(s: Any, x: Any, y: Any) -> None:
    s.w += x[0]


def in_place_of_what_fails(s: Any, x: Any, y: Any) -> None:
    s.w += y[0]


def a_gradient(s: Any, x: Any, y: Any) -> None:
    with GradManager().attach([s.p]) as gm:
        gm.backward((s.p * x).sum())


def everything(s: Any, x: Any, y: Any) -> None:
    for write in (tensors, numbers, lists, elements, a_variable, in_place):
        write(s, x, y)


WRITES: tuple[Callable[[Any, Any, Any], None], ...] = (
    a_tensor, tensors, a_number, numbers, a_flag, a_text, a_list, lists, elements, a_key,
    a_variable, in_place, in_place_of_what_fails, a_gradient, everything,
)  # fmt: skip


def body(s: Any, write: Any, fails: Any, late: bool, x: Any) -> Any:
    """`write`, before or after the op that may fail."""
    if late:
        write(s, x, x * 2)
    y = fails(x)
    if not late:
        write(s, x, y)
    return y


def held(s: Trained) -> list[Any]:
    """All that is outside."""
    return [GLOBAL, *vars(s).values(), s.p.grad, *s.losses, *s.steps, *s.row, *s.numbers, *s.table.values()]


def shown(things: list[Any]) -> list[str]:
    """What they hold, whichever objects they are."""
    return [str(thing.tolist() if isinstance(thing, Tensor) else thing) for thing in things]


@pytest.fixture(autouse=True)
def zero() -> None:
    global GLOBAL
    GLOBAL = tensor(ZERO)


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("late", [False, True], ids=["fails_first", "writes_first"])
@pytest.mark.parametrize("fails", [by_library, by_kernel])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_skipped_call_that_fails_writes_nothing(write: Any, fails: Any, late: bool, symbolic: bool) -> None:
    one, other = Trained(), Trained()
    traced = jit.trace(functools.partial(body, one, write, fails, late), symbolic=symbolic)

    def call() -> None:
        """A good one, which gives and writes what eager code does."""
        global GLOBAL
        x, before = tensor(GOOD), GLOBAL
        got = traced(x)
        written = shown(held(one))
        after, GLOBAL = GLOBAL, before
        wanted = body(other, write, fails, late, x)
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())
        assert written == shown(held(other))
        GLOBAL = after

    for _ in range(BEFORE):
        call()
    runs = traced.stats()["body_runs"]
    for _ in range(2):
        before, values = held(one), shown(held(one))
        with pytest.raises(np.linalg.LinAlgError):
            traced(tensor(BAD))
        assert traced.stats()["body_runs"] == runs, traced.stats()["reasons"]
        assert len(held(one)) == len(before)
        assert all(map(operator.is_, held(one), before))
        assert shown(before) == values
        call()
        assert traced.stats()["body_runs"] == runs, traced.stats()["reasons"]


@pytest.mark.parametrize("write", [tensors, lists, elements, everything])
def test_skipped_call_that_gets_no_memory_writes_nothing(write: Any) -> None:
    one, x = Trained(), tensor(GOOD)
    traced = jit.trace(functools.partial(body, one, write, by_library, False))
    for _ in range(BEFORE):
        traced(x)
    runs, before, values = traced.stats()["body_runs"], held(one), shown(held(one))
    for request in range(1, 100):
        try:
            if not without_memory(request, lambda: traced(x)):
                break
        except MemoryError:
            assert all(map(operator.is_, held(one), before)), f"request {request}"
            assert shown(held(one)) == values, f"request {request}"
    assert traced.stats()["body_runs"] == runs, traced.stats()["reasons"]
    assert 1 < request < 99
    assert shown(held(one)) != values
