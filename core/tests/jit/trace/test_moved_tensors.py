"""Bodies that put Tensors from one place into another: random ones, against the same ones without a trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace

#: Where Tensors stand, and where a statement may put one.
READ = ["o.a", "o.b", 'd["p"]', 'd["q"]', "l[0]", "l[1]", "o.t[0]"]
WRITTEN = READ[:-1]


class Box:
    def __init__(self) -> None:
        self.a, self.b, self.t = tensor(1.0), tensor(2.0), (tensor(3.0), tensor(4.0))


class Twin:
    """What lives between the calls of one body."""

    def __init__(self, source: str) -> None:
        self.space: dict[str, Any] = {
            "o": Box(), "d": {"p": tensor(5.0), "q": tensor(6.0)}, "l": [tensor(7.0), tensor(8.0)], "h": []
        }  # fmt: skip
        exec(source, self.space)
        self.body: Callable[[Tensor], Any] = self.space["f"]

    def disturb(self, choice: float, call: int) -> Tensor:
        """What others do between two calls; the next argument."""
        o, d, l = self.space["o"], self.space["d"], self.space["l"]
        if call > 3 and choice < 0.15:
            o.a = tensor(float(call))
        elif call > 3 and choice < 0.25:
            o.a = o.b
        elif call > 3 and choice < 0.35:
            d["p"] = l[0]
        elif call > 3 and choice < 0.4:
            o.b[...] = 9.0
        elif call > 3 and choice < 0.5:
            return o.a if choice < 0.45 else l[1]  # type: ignore[no-any-return]
        return tensor(float(call + 1) / 4)

    def seen(self, result: Any, x: Tensor) -> tuple[list[float], list[int]]:
        """The values of all Tensors, and which of them are one."""
        o, d, l = self.space["o"], self.space["d"], self.space["l"]
        parts = result if isinstance(result, tuple) else (result,)
        tensors = [o.a, o.b, *o.t, *d.values(), *l, *self.space["h"], *parts, x]
        first: dict[int, int] = {}
        objects = [first.setdefault(id(t), n) for n, t in enumerate(tensors) if isinstance(t, Tensor)]
        return [float(t) for t in tensors], objects


def statement(draw: random.Random) -> str:
    read, place = [draw.choice(READ) for _ in range(2)], [draw.choice(WRITTEN) for _ in range(2)]
    forms = {
        f"{place[0]}, {place[1]} = {read[0]}, {read[1]}": 5, f"{place[0]} = {read[0]}": 4,
        f"{place[0]} = {read[0]} * 0.5 + x": 5, f"o.t = ({read[0]} * 1.5, {read[1]})": 2,
        f"o.t = ({read[0]}, 3.0)": 1, f"{place[0]} = {read[0]} - {read[1]}": 1, f"y = y + {read[0]}": 1,
        f"{place[0]}[...] = {read[0]} * 0.25 + 1": 1, f"h.append({read[0]} * 1)": 1,
    }  # fmt: skip
    return draw.choices([*forms], [*forms.values()])[0]


def program(seed: int) -> str:
    draw = random.Random(seed)
    lines = ["y = x * 2", *(statement(draw) for _ in range(draw.randint(1, 4)))]
    result = draw.choice(
        ["y", "y + 1", f"{draw.choice(READ)} * 2", f"({draw.choice(READ)}, y)", draw.choice(READ)]
    )
    return "".join(["def f(x):\n", *(f"    {line}\n" for line in [*lines, f"return {result}"])])


def check(source: str, calls: int = 12) -> Any:
    """Compare the traced body with the plain one, and return the traced one."""
    plain, other, draw = Twin(source), Twin(source), random.Random(source)
    traced = trace(other.body, backend="EAGER")
    for call in range(calls):
        choice = draw.random()
        x, y = plain.disturb(choice, call), other.disturb(choice, call)
        (values, objects), (found, others) = plain.seen(plain.body(x), x), other.seen(traced(y), y)
        np.testing.assert_allclose(found, values, rtol=1e-5, err_msg=f"{source}call {call}")
        assert others == objects, f"{source}call {call}"
    return traced


@pytest.mark.parametrize("seed", range(40))
def test_places_hold_the_same_tensors_as_without_a_trace(seed: int) -> None:
    check(program(seed))


@pytest.mark.parametrize("moves", ["o.a = d['q']", "o.a, o.b = o.b, o.a", "o.t = (o.t[1], o.t[0])"])
def test_moves(moves: str) -> None:
    check(f"def f(x):\n    {moves}\n    return x * 2\n", 24)


@pytest.mark.parametrize(
    "body",
    [
        "o.a, o.b = o.b, o.a; return x + o.a",
        "o.a, o.b = o.b, 2 * o.b - o.a + x; return o.b + 0",
        "o.a, o.b, d['p'] = o.b, d['p'], o.a; return x * o.a",
        "o.a = o.b; o.b = o.b + x; return o.a * 1",
    ],
)
def test_body_that_only_moves_and_computes_is_skipped(body: str) -> None:
    twin = Twin(f"def f(x): {body}\n")
    traced = trace(twin.body, backend="EAGER")
    for _ in range(20):
        traced(tensor(1.0))
    assert traced.stats()["body_runs"] <= 3, traced.stats()["reasons"]


def test_a_tensor_that_stood_there_already_is_put_there_again() -> None:
    box, table = Box(), {"q": tensor(6.0)}
    box.a = table["q"]

    def body(x: Tensor) -> Tensor:
        box.a = table["q"]
        return x * 2

    traced = trace(body, backend="EAGER")
    for call in range(4):
        traced(tensor(1.0))
        assert box.a is table["q"]
        if call == 1:
            box.a = tensor(3.0)
