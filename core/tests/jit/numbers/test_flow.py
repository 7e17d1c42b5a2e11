"""Bodies whose Python code uses a number that changes: each call gives what eager code gives."""

from __future__ import annotations

import functools  # noqa: F401 - in the table, as the next two
import math  # noqa: F401
import operator  # noqa: F401
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, tensor
from mgb.autodiff import GradManager
from mgb.errors import TraceMismatchError
from mgb.ir.scalars import Scalar
from mgb.jit import partial_trace, trace
from mgb.jit.capture import replace_symbolic
from states import bodies

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0], [2.0, 1.0, 0.0]], np.float32)


class Point:
    """An object that keeps a number in several places."""

    def __init__(self, n: Any) -> None:
        self.n, self.list, self.dict = n, [n], {"n": n}

    @property
    def twice(self) -> Any:
        return self.n * 2

    def __call__(self, x: Any) -> Any:
        return x * self.n + self.twice + self.list[0] + self.dict["n"]


def recursive(x: Any, n: Any) -> Any:
    return x if n <= 0 else recursive(x * 2, n - 1)


#: Each with the most records that five numbers may cost.
CASES = bodies(
    """
### an_object_of_the_body 5
return Point(n)(x)
### slices_that_are_assigned 5
y = x * 1.0
y[:n] = 0
y[n % 3, 1:] = n
y[0] += n
return y
### a_generator 2
def multiples():
    for i in range(3):
        yield n * i

return sum((x * m for m in multiples()), x)
### a_closure 2
def inner(y):
    return y * n

return inner(inner(x))
### a_reduction 2
return functools.reduce(lambda a, b: a + b * n, [x, x, x])
### a_product 2
return x * functools.reduce(operator.mul, [n, 2, n])
### attributes_that_no_number_has 5
return x + sum(hasattr(n, name) for name in ("value", "path", "follower"))
### keywords 2
def inner(y, *rest, **more):
    return y * more["n"] + len(more) + sum(rest)

return inner(x, n, 2, n=n)
### a_swap 2
a, b = n, 2
a, b = b, a
return x * a + b
### a_walrus 2
return x * (m := n * 2) + m
### functions_of_math 2
return F.softmax(x * n / math.sqrt(n + 1) + math.hypot(n, 2), axis=1)
### an_error_that_is_caught 4
try:
    return x / (1 / (n - 3))
except ZeroDivisionError:
    return x
### a_loop 5
i = 0
while i < n:
    x = x + 1
    i += 1
return x
### recursion 5
return recursive(x, n)
### choices 5
return x * (n if n % 2 else -n) * (n > 2) * (not n) + (n and 3) + (n or 2)
### extremes 5
return x * min(n, 2) + max(n, 3) - abs(-n) + round(n / 3, 1) + divmod(n, 2)[0]
### questions 5
x = x if n is None else (x * 2 if n is n else x)
return x * (n == 2) + (n != "a") + (n in (1, 2)) + (n in [3])
### a_dict_of_the_body 5
table = {n: x}
table["k"] = n
return table[n] * table["k"]
### patterns 5
match n:
    case 1 | 2:
        return x
    case int(value) if value > 3:
        return x * value
return -x
### integers 5
return x * (n // 2) + n % 2 + (n << 1) + (n & 1) + int(n / 2) + float(n) + bool(n)
### a_text 5
return x * float(f"{n:.1f}") + len("%d" % n)
""",
    globals(),
    "x, n",
)


@pytest.mark.parametrize("wrap", [trace, partial_trace], ids=["default", "partial"])
@pytest.mark.parametrize("name", CASES)
def test_python_code_using_a_changing_number_matches_eager(name: str, wrap: Any) -> None:
    function, records = CASES[name], int(name.split()[1])
    traced = wrap(function)
    for n in (1, 2, 3, 4, 5, 1, 2, 3, 0, 5):
        np.testing.assert_allclose(
            traced(tensor(X), n).numpy(), function(tensor(X), n).numpy(), rtol=1e-5, atol=1e-5
        )
        if n == 5:
            assert traced.stats()["records"] <= records, traced.stats()["reasons"]
            records += 2


def test_training_step_with_scheduled_numbers_does_not_retrace() -> None:
    def make() -> tuple[Any, Any]:
        weight = Parameter(np.ones((3, 2), np.float32))
        gm = GradManager().attach([weight])

        def step(x, rate, clip):
            with gm:
                loss = F.square(F.matmul(x, weight)).mean()
                gm.backward(loss)
            weight[...] = weight - rate * F.clip(weight.grad, -clip, clip)
            weight.grad = None
            return loss, rate * 2

        return step, weight

    (plain, weight), (step, found) = make(), make()
    traced = trace(step)
    for number in range(16):
        given = tensor(X), 0.01 * (number + 1), 1 / (number + 1)
        assert plain(*given)[1] == traced(*given)[1]
        np.testing.assert_allclose(found.numpy(), weight.numpy(), rtol=1e-5)
    assert traced.stats()["records"] == 2


def test_gradient_requested_by_the_caller_is_correct() -> None:
    """While a GradManager outside records, the body of `trace` runs, and `partial_trace` has the gradient."""
    for wrap in (trace, partial_trace):
        traced = wrap(lambda x, n: F.tanh(x * n) * (n + 1))
        for number in range(8):
            n, x = 0.25 * number, tensor(X)
            with GradManager().attach([x]) as gm:
                gm.backward(traced(x, n).sum())
            expected = (1 - np.tanh(X * n) ** 2) * n * (n + 1)
            np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_run_body_rejects_a_changed_number() -> None:
    traced = trace(lambda x, n: x * n, run_body=True)
    for _ in range(3):
        assert traced(tensor([2.0]), 3).item() == 6.0
    with pytest.raises(TraceMismatchError, match="pass the value as a Tensor"):
        traced(tensor([2.0]), 4)
    assert traced(tensor([2.0]), 3).item() == 6.0


def test_ever_new_string_argument_makes_the_body_run() -> None:
    traced = trace(lambda x, name: x * len(name))
    for number in range(200):
        assert traced(tensor([1.0]), "a" * number).item() == number
    stats = traced.stats()
    assert stats["records"] < 30 and stats["body_runs"] == 200
    assert sum("runs at each call" in reason for reason in stats["reasons"]) <= 1
    for _ in range(200):  # the last one stays: it is skipped at some time
        assert traced(tensor([1.0]), "b").item() == 1.0
    before = traced.stats()["body_runs"]
    assert traced(tensor([1.0]), "b").item() == 1.0 and traced.stats()["body_runs"] == before
    for number in range(40):
        assert traced(tensor([1.0]), "abcdefgh"[: number % 8]).item() == number % 8


def test_tuples_in_a_result_stay_apart() -> None:
    """A new tuple may get the memory of one that has just been replaced."""

    def number(value: float) -> Scalar:
        return Scalar(None, None, value)

    assert replace_symbolic([[(number(1.0), 0, 0)], *[[(number(2.0), 0, 0)]] * 2], decide=False) == [
        [(1.0, 0, 0)], [(2.0, 0, 0)], [(2.0, 0, 0)],
    ]  # fmt: skip
