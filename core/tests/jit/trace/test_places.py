"""Where a compiled call found a Tensor: an argument, a closure, a ``grad``. Eager calls are the judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace
from mgb.tensor import Parameter, Tensor, from_dlpack, tensor

compiled = pytest.mark.parametrize("wrap", [trace, partial_trace], ids=["trace", "partial_trace"])

shared = tensor([3.0])


@compiled
@pytest.mark.parametrize("more", [0, 20], ids=["one argument", "many"])
def test_argument_that_is_also_a_free_variable(wrap: Any, more: int) -> None:
    p, q, r = (tensor([value]) for value in (3.0, 5.0, 7.0))
    others = [tensor([0.0]) for _ in range(more)]
    traced = wrap(lambda x, *_others: x * 10.0 + p)
    for given, want in [(p, 33.0), (p, 33.0), (q, 53.0), (r, 73.0), (q, 53.0), (p, 33.0)]:
        assert traced(given, *others).item() == want


@compiled
@pytest.mark.parametrize("keeper", ["global", "list", "method", "default"])
def test_argument_also_reached_by_global_list_method_or_default(wrap: Any, keeper: str) -> None:
    class Owner:
        held = shared

        def run(self, x: Tensor) -> Tensor:
            return x * 10.0 + self.held

    kept = [shared]
    bodies: dict[str, Callable[..., Any]] = {
        "global": lambda x: x * 10.0 + shared,
        "list": lambda x: x * 10.0 + kept[0],
        "method": Owner().run,
        "default": lambda x, y=shared: x * 10.0 + y,
    }
    traced = wrap(bodies[keeper])
    got = [traced(t).item() for t in (shared, tensor([5.0]), shared, tensor([7.0]), tensor([9.0]))]
    assert got == [33.0, 53.0, 33.0, 73.0, 93.0]


@compiled
@pytest.mark.parametrize(
    ("given", "more"), [("pqn", 0), ("npq", 0), ("qnp", 0), ("nqp", 0), ("pnq", 0), ("nqp", 20)]
)
def test_grads_of_arguments_that_may_be_attached_match_eager(wrap: Any, given: str, more: int) -> None:
    """A manager of the body may know an argument, and not meet its other Tensors: what gets a ``grad``?"""

    def run(wrap: Any) -> list[Any]:
        p, q = tensor([1.0]), tensor([2.0])
        manager = GradManager().attach([p, q])

        def body(x: Tensor, *_others: Tensor) -> Tensor:
            with manager:
                manager.backward(x * x)
            return x * 2.0

        traced = wrap(body)
        others = [tensor([0.0]) for _ in range(more)]
        found = []
        for name in given:
            x = {"p": p, "q": q}.get(name) or tensor([5.0])
            found.append(traced(x, *others).item())
            found += [t.grad if t.grad is None else t.grad.item() for t in (x, p, q)]
        return found

    assert run(wrap) == run(lambda function: function)


@compiled
def test_argument_updated_through_a_free_variable_first(wrap: Any) -> None:
    def body(x: Tensor, p: list[Tensor]) -> Tensor:
        p[0][...] = p[0] * 2.0
        return x + 1.0

    def run(wrap: Any) -> list[float]:
        p, q, r = ([tensor([value])] for value in (3.0, 5.0, 7.0))
        traced = wrap(lambda x: body(x, p))
        found = [traced(*given).item() for given in (p, q, p, r, q, p)]
        return found + [t[0].item() for t in (p, q, r)]

    assert run(wrap) == run(lambda function: function)


@compiled
def test_arguments_stored_elsewhere_do_not_retrace(wrap: Any) -> None:
    held = []

    def body(x: Tensor, more: dict[str, Tensor], *, y: Tensor) -> Tensor:
        return x * more["a"] + y

    traced = wrap(body)
    label = tensor([1.0])
    for value in range(4):
        held.append(tensor([float(value)]))
        assert traced(held[-1], {"a": tensor([2.0])}, y=label).item() == 2.0 * value + 1
    assert traced.stats()["records"] == 1


@compiled
def test_argument_that_is_also_a_grad(wrap: Any) -> None:
    def run(wrap: Any) -> list[float]:
        p = tensor([3.0])
        traced = wrap(lambda x: x * 10.0 + (0.0 if p.grad is None else p.grad))
        found = []
        for value in (1.0, 2.0):
            p.grad = tensor([value])
            found += [traced(t).item() for t in (p.grad, p.grad, tensor([5.0]), tensor([6.0]), p.grad)]
        return found

    assert run(wrap) == run(lambda function: function)


def accumulating(p: Tensor, q: Tensor) -> Callable[[Tensor], Tensor]:
    manager = GradManager().attach([p, q])

    def step(x: Tensor) -> Tensor:
        with manager:
            loss = (p * x + q * x * x).sum()
            manager.backward(loss)
        return loss

    return step


@pytest.mark.parametrize("share_at", range(5))
def test_two_tensors_can_share_a_grad(share_at: int) -> None:
    def run(wrap: Any) -> list[float]:
        p, q = Parameter([3.0]), Parameter([4.0])
        step, found = wrap(accumulating(p, q)), []
        for call in range(7):
            if call == share_at:
                q.grad = p.grad
            if call == share_at + 2:
                q.grad = tensor([0.0])
            step(tensor([2.0]))
            found += [p.grad.item(), q.grad.item(), float(p.grad is q.grad)]
        return found

    assert run(trace) == run(lambda function: function)


def test_body_can_make_two_tensors_share_a_grad() -> None:
    def run(wrap: Any) -> list[Any]:
        p, q = tensor([3.0]), tensor([4.0])

        def body(x: Tensor) -> Tensor:
            p.grad = q.grad = x * 2.0
            return q.grad

        step, found = wrap(body), []
        for value in (1.0, 2.0, 3.0):
            result = step(tensor([value]))
            q.grad += 1.0
            found += [p.grad.item(), q.grad.item(), result.item(), p.grad is q.grad, result is p.grad]
        return found

    assert run(trace) == run(lambda function: function)


def test_grad_can_move_to_another_tensor() -> None:
    def run(wrap: Any) -> list[Any]:
        p, q = tensor([3.0]), tensor([4.0])

        def body(x: Tensor) -> Tensor | None:
            q.grad, p.grad = p.grad, None
            return x + 1.0

        step, found = wrap(body), []
        for value in (1.0, 2.0, 3.0, 4.0):
            p.grad = given = tensor([value])
            step(tensor([value]))
            found += [q.grad is given, q.grad.item(), p.grad is None]
        return found

    assert run(trace) == run(lambda function: function)


def test_arguments_and_duplicates_among_the_results() -> None:
    def run(wrap: Any) -> list[Any]:
        p = tensor([3.0])

        def body(x: Tensor) -> list[Any]:
            y = x * 2.0
            x += 1.0
            return [x, y, y, p, None]

        step, found = wrap(body), []
        for value in (1.0, 2.0, 3.0):
            x = tensor([value])
            a, b, c, d, _ = step(x)
            b += 1.0
            d += 1.0
            found += [a is x, b is c, d is p, a.item(), c.item(), p.item()]
        return found

    assert run(trace) == run(lambda function: function)


def test_changed_captured_constants_are_detected() -> None:
    p, q = tensor([3.0]), tensor([5.0])
    traced = trace(lambda x: x * p + q, capture_as_const=True)
    x = tensor([2.0])
    assert [traced(x).item() for _ in range(3)] == [11.0] * 3
    p[...] = 4.0
    assert [traced(x).item() for _ in range(3)] == [13.0] * 3
    q += 1.0
    assert [traced(x).item() for _ in range(3)] == [14.0] * 3
    p._reset(tensor(np.array([4.0], "float32")))  # the same value
    records = traced.stats()["records"]
    assert traced(x).item() == 14.0 and traced.stats()["records"] == records


@compiled
def test_reassigning_the_same_grad_takes_effect(wrap: Any) -> None:
    p, g = tensor([3.0]), tensor([1.0])

    def body(x: Tensor) -> Tensor:
        p.grad = g
        return x + 1.0

    step = wrap(body)
    p.grad = g
    for value in (1.0, 2.0, 3.0):
        step(tensor([value]))
        assert p.grad is g
        p.grad = None


GIVEN_GRADS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "the argument": lambda x, y: [give(y, x)],
    "itself": lambda x, y: [give(y, y)],
    "another result": lambda x, y: [give(y, z := x * 3.0), z],
    "another": lambda x, y: [give(y, x * 3.0)],
    "and of a Tensor outside": lambda x, y: [give(x, give(y, x))],
}


def give(tensor: Tensor, grad: Tensor) -> Tensor:
    tensor.grad = grad
    return tensor


@pytest.mark.parametrize("body", GIVEN_GRADS.values(), ids=GIVEN_GRADS)
def test_result_can_be_given_a_grad(body: Callable[[Tensor, Tensor], list[Tensor]]) -> None:
    def run(wrap: Any) -> list[Any]:
        traced, found = wrap(lambda x: body(x, x * 2.0)), []
        for value in (1.0, 2.0, 3.0):
            x = tensor([value])
            tensors = traced(x)
            found += [(t.item(), str(t.grad), [t.grad is p for p in (x, *tensors)]) for t in tensors]
        return found

    assert run(trace) == run(lambda function: function)


@compiled
def test_grad_of_a_grad_matches_eager(wrap: Any) -> None:
    def run(wrap: Any) -> list[Any]:
        p = tensor([3.0])

        def body(x: Tensor) -> Tensor:
            p.grad.grad = x
            return p.grad * x

        step, found = wrap(body), []
        for value in (1.0, 2.0, 3.0, 4.0):
            if value != 2.0:
                p.grad = tensor([value])
            x = tensor([value])
            found += [step(x).item(), p.grad.grad is x]
        return found

    assert run(wrap) == run(lambda function: function)


COPIES = {
    "t * 1": lambda t: t * 1,
    "t + 0": lambda t: t + 0,
    "+t": lambda t: +t,
    "copy": lambda t: F.copy(t),
    "astype": lambda t: t.astype("float32"),
    "t / 1": lambda t: t / 1,
    "(t * 1).T": lambda t: (t * 1).T,
    "maximum": lambda t: F.maximum(t, t),
    "among others": lambda t: [t.sum(), +t, t * 2][1],
}


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("run_body", [None, True])
@pytest.mark.parametrize("body", list(COPIES.values()), ids=list(COPIES))
def test_copied_result_does_not_share_memory_with_its_argument(
    body: Any, run_body: bool | None, level: int
) -> None:
    function = trace(body, run_body=run_body, opt_level=level)
    for call in range(3):
        source = np.full((2, 2), float(call), np.float32)
        result = function(from_dlpack(source))
        assert not np.shares_memory(result.numpy(), source)
        source[:] = 99.0
        assert result.tolist() == [[float(call)] * 2] * 2
