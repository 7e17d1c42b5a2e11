"""Tensors that a body puts outside: states, averages and caches are written though the body is skipped."""

import functools
from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import jit, tensor
from mgb.autodiff import GradManager
from mgb.optimizer import SGD
from states import ZERO, Computed, Layer, Notified, Slotted, State, alike, bodies, check, runs, values


class Cell(M.Module):
    """A layer with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.h = tensor(ZERO)

    def forward(self, x: Any) -> Any:
        self.h = F.tanh(self.h + x)
        return self.h * 2


GLOBAL = tensor(ZERO)


def a_global(s: Any, x: Any) -> Any:
    global GLOBAL
    GLOBAL = GLOBAL + x
    return GLOBAL * 2


BODIES = bodies(
    """
### state
s.h = F.tanh(s.h + x)
return s.h * 2
### returned
s.h = s.h + x
return s.h
### returned_in_a_list
s.h = s.h + x
return [s.h, s.h, x * 2]
### two
s.h, s.c = s.h + s.c, s.h * x
return s.h + s.c
### same_twice
s.h = s.c = s.h + x
return x
### several_times
for n in range(3):
    s.h = s.h * 0.5 + x * n
return s.h.sum()
### only_written
s.h = x * 2
return x + 1
### nothing_returned
s.h = s.h + x
### read_after
s.h = s.h + x
other = s.h * 3
s.c = other + s.h
return other
### average
s.table["a"] = s.table["a"] * 0.9 + x * 0.1
return s.table["a"].sum()
### averages
for name in ("a", "b"):
    s.table[name] = s.table[name] * 0.9 + x * 0.1
return x
### new_key
s.table["new"] = x * 2
return x
### element
s.row[1] = s.row[0] + x
s.row[0] = s.row[1] * 2
return x
### in_place
s.h += x
return s.h * 1.0
### guarded
if s.maybe is None:
    s.maybe = x * 2
return s.maybe + x
### by_branch
if s.flag:
    s.h = s.h + x
else:
    s.c = s.c + x
return x
### an_argument
s.h = x
return x * 2
### swapped
s.h, s.c = s.c, s.h
return x + s.h
### a_number
s.n += 1
s.h = s.h + x * s.n
return s.h * 1.0
### a_flag
s.flag = not s.flag
s.h = s.h + x
return s.h * (2.0 if s.flag else 3.0)
### restored
before, s.h = s.h, s.h + x
y = s.h * 2
s.h = before
return y
### deleted
s.table.pop("gone", None)
s.h = s.h + x
return s.h * 1.0
### in_an_object
s.inner.h = s.inner.h + x
return s.inner.h * 2
### replaced_object
s.inner = State()
s.inner.h = x * 2
return x
### by_setattr
setattr(s, "h", s.h + x)
return s.h * 2
### by_dict
s.__dict__["h"] = s.h + x
return s.h * 2
### with_a_read
s.h = s.h + x
return x * float(s.h.sum().item())
### asks_identity
before = s.h
s.h = s.h + x
return x * (2.0 if s.h is before else 3.0)
### in_a_tuple
s.inner = (s.h + x, 1)
return x
### detached
s.h = (s.h + x).detach()
return s.h * 2
### a_view
s.h = s.c
s.c = s.c + x
return s.h * 2
### a_constant
s.h = tensor([1.0, 2.0, 3.0])
return s.h * x
### lengths
s.h = F.concat([s.h, x])[-3:]
return s.h * 2
### pair
h, c = s.pair
c = c * 0.5 + x
h = F.tanh(c) + h
s.pair = (h, c)
return h
### pair_and_count
n, h = s.seen or (0, s.h)
s.seen = (n + 1, h * 0.5 + x * n)
return h * 2
### pair_with_an_argument
s.pair = (x, s.pair[0] + x)
return s.pair[1] * 2
### pair_moved
s.pair = (x * 2, s.pair[0])
return s.pair[1] + 1
""",
    globals(),
)
#: Bodies that are skipped once what they write was another one once.
SKIPPED = (
    "state", "returned", "returned_in_a_list", "two", "same_twice", "several_times", "only_written",
    "read_after",
    "nothing_returned", "average", "averages", "new_key", "element", "in_place", "detached", "in_an_object",
    "by_setattr", "lengths", "pair",
)  # fmt: skip


def made(kind: type = State) -> Any:
    found = kind()
    if isinstance(found, State):
        found.inner = State()
    return found


def disturb(s: Any, call: int) -> None:
    """What others do between two calls."""
    if call == 5:
        s.h = tensor(ZERO + 5)
    if call == 7 and isinstance(s, State):
        s.table["a"], s.row[0], s.flag = tensor(ZERO + 7), tensor(ZERO - 1), not s.flag
    if call == 9 and isinstance(s, State):
        s.maybe, s.inner = None, State()


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", BODIES)
def test_state_is_that_of_eager_code(name: str, symbolic: bool) -> None:
    if symbolic and name == "with_a_read":
        pytest.skip("the first call of a symbolic trace has no values")
    check(BODIES[name], made, disturb, symbolic=symbolic)


@pytest.mark.parametrize("kind", [Slotted, Computed, Notified, Layer])
@pytest.mark.parametrize("name", ["state", "returned", "only_written", "in_place"])
def test_state_of_other_classes(kind: type, name: str) -> None:
    check(BODIES[name], functools.partial(made, kind), disturb)


@pytest.mark.parametrize("name", SKIPPED)
def test_body_that_writes_tensors_is_skipped(name: str) -> None:
    count, reasons = runs(BODIES[name], made())
    assert count <= 4, reasons


def test_what_vmap_and_grad_leave_outside() -> None:
    for transform in (mgb.vmap, lambda g: mgb.grad(lambda t: g(t).sum())):
        s = State()

        def inner(t: Any, s: State = s) -> Any:
            s.h = t * 2
            return t * t

        def body(x: Any, transform: Any = transform, inner: Any = inner) -> Any:
            return transform(inner)(x)

        traced = jit.trace(body)
        for call in range(4):
            x = tensor(ZERO + call)
            np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())


def test_a_list_that_changes_before_a_tuple_takes_its_place_is_written() -> None:
    class Box:
        def __init__(self) -> None:
            self.held: Any = None

    def make() -> tuple[Box, list[float], Any]:
        box, numbers = Box(), [1.0]

        def body(x: Any) -> Any:
            box.held[0].append(2.0)
            box.held = (3.0, x * 2)
            return x + 1

        return box, numbers, body

    (box, numbers, body), (other, others, another) = make(), make()
    traced = jit.trace(another)
    for _ in range(5):
        box.held, other.held = (numbers, tensor(ZERO)), (others, tensor(ZERO))
        body(tensor(ZERO))
        traced(tensor(ZERO))
        assert numbers == others


def test_state_of_a_layer() -> None:
    one, other = Cell(), Cell()
    traced = jit.trace(one)
    for call in range(6):
        x = tensor(ZERO + call)
        np.testing.assert_allclose(traced(x).numpy(), other(x).numpy(), rtol=1e-6)
        np.testing.assert_allclose(one.h.numpy(), other.h.numpy(), rtol=1e-6)


def test_global_state() -> None:
    global GLOBAL
    traced = jit.trace(functools.partial(a_global, None))
    GLOBAL = tensor(ZERO)
    for call in range(8):
        assert traced(tensor(ZERO + 1)).tolist() == [2.0 * (call + 1)] * 3
        assert GLOBAL.tolist() == [call + 1.0] * 3
    GLOBAL = tensor(ZERO + 10)
    assert traced(tensor(ZERO + 1)).tolist() == [22.0] * 3
    assert traced.stats()["body_runs"] <= 3, traced.stats()["reasons"]


def test_variable_of_the_function_around() -> None:
    h = tensor(ZERO)

    @jit.trace
    def f(x: Any) -> Any:
        nonlocal h
        h = h + x
        return h * 2

    for call in range(8):
        assert f(tensor(ZERO + 1)).tolist() == [2.0 * (call + 1)] * 3
        assert h.tolist() == [call + 1.0] * 3
    assert f.stats()["body_runs"] <= 3, f.stats()["reasons"]


def test_average_beside_a_training_step() -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        w, s = mgb.Parameter(ZERO + 1), State()
        gm, opt = GradManager().attach([w]), SGD([w], lr=0.1)

        @wrap
        def step(x: Any) -> Any:
            with gm:
                loss = ((w * x) ** 2).sum()
                gm.backward(loss)
            opt.step().clear_grad()
            s.h = s.h * 0.5 + loss.detach() * 0.5
            s.table["w"] = w.detach() * 1.0
            return loss

        found = []
        for call in range(10):
            loss = step(tensor(ZERO + 0.1 * call))
            found.append(values([loss, s.h, s.table["w"]]))
        return found

    for one, other in zip(run(jit.trace), run(lambda f: f), strict=True):
        assert alike(one, other)
