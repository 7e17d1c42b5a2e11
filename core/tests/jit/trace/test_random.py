"""Small random programs over arguments, closures, updates, aliases and gradients: compiled as eager.

Each call may be given other Tensors than the one before: new ones, earlier ones, those that the body knows
as closures, the same one twice, a ``grad``. In between, Tensors outside get other values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mgb.autodiff import GradManager
from mgb.errors import ImpureBodyError, TraceMismatchError
from mgb.jit import partial_trace, trace
from mgb.tensor import Tensor, tensor

HELD, POOL = 3, 3  # Tensors that the body knows as closures, and others

place = st.integers(0, 7)
instructions = st.one_of(
    st.tuples(st.sampled_from(["mix", "add", "set", "give grad", "backward"]), place, place),
    st.tuples(st.sampled_from(["half", "detach", "take grad", "drop grad", "move grad"]), place, st.just(0)),
)
programs = st.tuples(st.lists(instructions, min_size=1, max_size=6), st.lists(place, min_size=1, max_size=3))
#: An argument: a closure, one of the pool, the ``grad`` of a closure, or a new Tensor.
arguments = st.one_of(
    st.tuples(st.just("held"), st.integers(0, HELD - 1)),
    st.tuples(st.just("pool"), st.integers(0, POOL - 1)),
    st.tuples(st.just("grad"), st.integers(0, HELD - 1)),
    st.tuples(st.just("new"), st.integers(1, 4)),
)
between = st.sampled_from(["nothing", "add", "share grad", "drop grads", "new grads", "change results"])
nestings = st.sampled_from(["flat", "list", "dict"])
calls = st.lists(
    st.tuples(arguments, arguments, nestings, between, st.integers(0, 2)), min_size=2, max_size=5
)


def body_of(program: tuple[Any, Any], held: list[Tensor]) -> Callable[..., list[Any]]:
    steps, wanted = program
    manager = GradManager().attach(held[:2])

    def body(first: Tensor, rest: Any) -> list[Any]:
        second = rest[0] if isinstance(rest, list) else rest["x"] if isinstance(rest, dict) else rest
        env = [first, second, *held]
        for op, i, j in steps:
            a, b = env[i % len(env)], env[j % len(env)]
            if op == "mix":
                env.append(a * 0.5 + b * 0.25)
            elif op == "half":
                env.append(a * 0.5)
            elif op == "detach":
                env.append(a.detach())
            elif op == "add":
                a += b
                a *= 0.5
            elif op == "set":
                a[...] = b
            elif op == "backward":
                with manager:
                    manager.backward((a * b * held[0] * 0.125).sum())
            elif op == "give grad":
                a.grad = b
            elif op == "drop grad":
                a.grad = None
            elif op == "take grad" and a.grad is not None:
                env.append(a.grad)
            elif op == "move grad":
                held[0].grad, a.grad = a.grad, held[0].grad
        results = [env[w % len(env)] for w in wanted]
        return results

    return body


class World:
    """All Tensors of a run of some calls; two worlds begin alike."""

    def __init__(self, program: Any, wrap: Callable[[Any], Any]) -> None:
        self.held = [tensor([1.0 + n, -2.0]) for n in range(HELD)]
        self.pool = [tensor([5.0 + n, 0.5]) for n in range(POOL)]
        self.results: list[Any] = []
        self.function = wrap(body_of(program, self.held))

    def argument(self, kind: str, number: int) -> Tensor:
        if kind == "new":
            return tensor([float(number), 3.0])
        if kind == "grad":
            return self.held[number].grad if self.held[number].grad is not None else self.held[number]
        return getattr(self, kind)[number]

    def change(self, what: str, number: int, results: bool) -> None:
        if what == "add":
            self.held[number] += 1.0
            self.pool[number] += 1.0
        elif what == "share grad":
            self.held[number].grad = self.held[number - 1].grad
        elif what == "drop grads":
            for t in self.held:
                t.grad = None
        elif what == "new grads":
            for n, t in enumerate(self.held):
                t.grad = tensor([float(n), 1.0])
        elif what == "change results" and results:
            for t in self.results:
                t += 1.0

    def call(self, first: Any, second: Any, nesting: str) -> None:
        x, y = self.argument(*first), self.argument(*second)
        self.results = self.function(x, [y] if nesting == "list" else {"x": y} if nesting == "dict" else y)

    def tensors(self, results: bool) -> Iterator[Tensor | None]:
        """Those that a user can see, the same in the same order."""
        for t in (*self.held, *self.pool):
            yield t
            yield t.grad
            yield t.grad.grad if t.grad is not None else None
        if results:
            for t in self.results:
                yield t
                yield t.grad

    def identities(self, results: bool) -> list[int]:
        ids = [id(t) for t in self.tensors(results)]
        return [ids.index(key) for key in ids]


def compare(program: Any, sequence: Any, wrap: Callable[[Any], Any], results: bool = True) -> None:
    """`results`: are they the very Tensors that the body returns?"""
    eager, other = World(program, lambda function: function), World(program, wrap)
    try:
        with suppress(TraceMismatchError):  # a replay refuses another aliasing than recorded
            follow(eager, other, sequence, results)
    except ImpureBodyError:  # partial_trace refuses what leaves a Tensor of the body with a grad
        grads = [t.grad for t in (*eager.held, *eager.pool)]
        made = [*(g for g in grads if g is not None), *eager.results]
        assert not results and any(t.grad is not None for t in made)


def follow(eager: World, other: World, sequence: Any, results: bool) -> None:
    for first, second, nesting, change, number in sequence:
        for world in (eager, other):
            world.call(first, second, nesting)
        for want, got in zip(eager.results, other.results, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
        assert other.identities(results) == eager.identities(results)
        for want, got in zip(eager.tensors(results), other.tensors(results), strict=True):
            if want is not None:
                assert got is not None
                np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
        for world in (eager, other):
            world.change(change, number, results)


quickly = settings(max_examples=25, suppress_health_check=list(HealthCheck))
long = settings(quickly, max_examples=1500)
modes = {
    "trace": (lambda function: trace(function, backend="eager"), True),
    "partial_trace": (lambda function: partial_trace(function, backend="eager"), False),
}
compiled = pytest.mark.parametrize(("wrap", "results"), modes.values(), ids=modes)


@quickly
@given(program=programs, sequence=calls)
def test_random_programs_with_run_body_match_eager(program: Any, sequence: Any) -> None:
    compare(program, sequence, lambda function: trace(function, run_body=True, backend="eager"))


#: The body asks a ``grad`` that it finds for its own.
GRAD_OF_A_GRAD = [("half", 0, 0), ("take grad", 0, 0), ("backward", 0, 0), ("take grad", 6, 0)], [0]
#: The body makes a Tensor that is its own ``grad``, and forgets it.
GRAD_OF_ITSELF = [("half", 0, 0), ("give grad", 5, 5)], [0]


@compiled
@quickly
@given(program=programs, sequence=calls)
@example(program=GRAD_OF_A_GRAD, sequence=[(("held", 0), ("held", 0), "flat", "nothing", 0)] * 2)
@example(program=GRAD_OF_ITSELF, sequence=[(("held", 0), ("held", 0), "flat", "nothing", 0)] * 2)
def test_random_programs_without_the_body_match_eager(
    wrap: Any, results: bool, program: Any, sequence: Any
) -> None:
    compare(program, sequence, wrap, results)


@pytest.mark.slow
@compiled
@long
@given(program=programs, sequence=calls)
def test_many_random_programs_without_the_body_match_eager(
    wrap: Any, results: bool, program: Any, sequence: Any
) -> None:
    compare(program, sequence, wrap, results)
