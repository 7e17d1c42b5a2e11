"""Bodies that compute with lengths, watched: never stale, and recorded again only where a length decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

Body = Callable[[Tensor], Any]

LIST = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
TABLE = {1: 5, 3: 7}
WEIGHTS = np.linspace(0, 1, 12, dtype=np.float32)


class Box:
    def __init__(self, rows: int) -> None:
        self.rows = rows


@dataclass
class Pair:
    value: Tensor
    rows: int


def folded(x: Tensor, rows: int, factor: int = 2) -> Tensor:
    return x.reshape(rows * factor, -1)


def matched(x: Tensor) -> Tensor:
    match x.shape:
        case (3, columns):
            return x * columns
        case (int() as rows, int()):
            return x + rows
    raise AssertionError(x.shape)


def each_row(x: Tensor) -> Tensor:
    total = F.zeros(x.shape[1:])
    for row in range(x.shape[0]):
        total = total + x[row]
    return total


def halved_while_large(x: Tensor) -> Tensor:
    while x.shape[0] > 4:
        x = x[: x.shape[0] // 2]
    return x


#: Bodies in which lengths only pass through: the record of the second one serves all.
THROUGH: dict[str, Body] = {
    "arithmetic": lambda x: x.reshape(x.shape[0] * x.shape[1]) * 2 + x.shape[0],
    "powers and signs": lambda x: x * abs(-x.shape[0]) + x.shape[0] ** 2,
    "remainders": lambda x: x * divmod(x.shape[0], 2)[1] + x.shape[0] // 3,
    "unpacking": lambda x: (lambda rows, columns: x.reshape(columns, rows))(*x.shape),
    "comprehension": lambda x: x.reshape([d * 1 for d in reversed(x.shape)]),
    "range of another axis": lambda x: sum((x[:, i] for i in range(x.shape[1])), F.zeros(x.shape[0])),
    "product": lambda x: x.reshape(math.prod(x.shape)),
    "sum": lambda x: x * sum(x.shape),
    "zip": lambda x: x * sum(a * b for a, b in zip(x.shape, (1, 2), strict=True)),
    "isinstance": lambda x: x * 2 if isinstance(x.shape[0], int) else x,
    "type": lambda x: x * 2 if type(x.shape[0]) is int else x,
    "truth": lambda x: x * 2 if x.shape[0] else x,
    "a function": lambda x: folded(x, x.shape[0]),
    "an object": lambda x: x * Box(x.shape[0]).rows,
    "a list": lambda x: (lambda found: x * found[-1])([1, *x.shape[:1]]),
    "arange": lambda x: x.sum(axis=1) + F.arange(x.shape[0]),
    "size": lambda x: x / x.size,
    "len": lambda x: x * len(x),
}
#: Those that compare a length: one more record for each outcome.
COMPARED: dict[str, Body] = {
    "branch": lambda x: x * 2 if x.shape[0] > 3 else x - 1,
    "slice": lambda x: x[: x.shape[0] // 2] * 2,
    "slice from": lambda x: x[x.shape[0] - 2 :] * 2,
    "min": lambda x: x[: min(x.shape[0], 4)] * 2,
    "max": lambda x: F.zeros((max(x.shape), 2)) + x.sum(),
    "sorted": lambda x: x * sorted(x.shape)[0],
    "a tuple": lambda x: x * 2 if x.shape == (3, 2) else x,
    "any": lambda x: x * any(d == 3 for d in x.shape),
    "match": matched,
    "while": halved_while_large,
}
#: Those that use the value itself: one record for each length.
USED: dict[str, Body] = {
    "range": each_row,
    "repeated list": lambda x: F.concat([x] * x.shape[0]),
    "f-string": lambda x: x * int(f"{x.shape[0]:>3}"),
    "text": lambda x: x * len(f"{x.shape[0]:d}") * float(str(x.shape[0])),
    "dict": lambda x: x * {1: 5, 3: 7}.get(x.shape[0], 2),
    "dict outside": lambda x: x * TABLE.get(x.shape[0], 2),
    "list outside": lambda x: x * LIST[x.shape[0]],
    "in a dict": lambda x: x * TABLE[x.shape[0]] if x.shape[0] in TABLE else x,
    "set": lambda x: x * len({x.shape[0], x.shape[1]}),
    "square root": lambda x: x / math.sqrt(x.shape[0]),
    "logarithm": lambda x: x * math.log2(x.shape[0]),
    "rounded": lambda x: x * math.ceil(x.shape[0] / 2) + round(x.shape[0] * 1.5),
    "bits": lambda x: x * x.shape[0].bit_length(),
    "float": lambda x: x / float(x.shape[0]),
    "NumPy array": lambda x: x + tensor(np.ones((x.shape[0], 1), np.float32)),
    "NumPy product": lambda x: x.reshape(int(np.prod(x.shape))),
    "array outside": lambda x: x * float(WEIGHTS[x.shape[0]]) + WEIGHTS[: x.shape[0], None],
}
#: Those that return a length.
RETURNED: dict[str, Body] = {
    "with a Tensor": lambda x: (x * 2, x.shape[0]),
    "a shape": lambda x: {"value": x * 2, "shape": x.shape},
    "a sum": lambda x: [x * 2, x.shape[0] * x.shape[1] + 1],
    "in a dataclass": lambda x: Pair(x * 2, x.shape[0] + 1),
}
ROWS = (4, 6, 1, 3, 9, 2, 6, 3)


def check(found: Any, wanted: Any) -> None:
    """Is it the same, and of the same plain types?"""
    assert type(found) is type(wanted)
    if isinstance(wanted, Tensor):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-7)
    elif isinstance(wanted, (list, tuple)):
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
    elif isinstance(wanted, dict):
        check(list(found.items()), list(wanted.items()))
    elif isinstance(wanted, Pair):
        check(vars(found), vars(wanted))
    else:
        assert found == wanted


def runs_as_eager(body: Body) -> int:
    """How often the body ran for many lengths."""
    traced = trace(body)
    for rows in ROWS:
        x = np.random.default_rng(rows).normal(size=(rows, 2)).astype(np.float32)
        check(traced(tensor(x)), body(tensor(x)))
    stats = traced.stats()
    assert stats["body_runs"] == stats["records"], stats["reasons"]
    runs: int = stats["body_runs"]
    return runs


@pytest.mark.parametrize("body", THROUGH.values(), ids=THROUGH)
def test_symbolic_use_of_lengths_does_not_retrace(body: Body) -> None:
    assert runs_as_eager(body) == 2


@pytest.mark.parametrize("body", COMPARED.values(), ids=COMPARED)
def test_length_comparison_retraces_once_per_outcome(body: Body) -> None:
    assert runs_as_eager(body) == 3


@pytest.mark.parametrize("body", USED.values(), ids=USED)
def test_using_the_value_of_a_length_retraces_per_length(body: Body) -> None:
    assert runs_as_eager(body) == len(set(ROWS))


def test_length_looked_for_in_a_list_retraces_per_element() -> None:
    assert runs_as_eager(lambda x: x * 2 if x.shape[0] in LIST[:3] else x) == 2 + 3


@pytest.mark.parametrize("body", RETURNED.values(), ids=RETURNED)
def test_returned_lengths_are_those_of_the_call(body: Body) -> None:
    assert runs_as_eager(body) <= len(set(ROWS))


def test_array_times_length_keeps_the_array_dtype() -> None:
    traced = trace(lambda x: (x * 2, WEIGHTS[:3] * x.shape[0]))
    for rows in ROWS:
        found = traced(tensor(np.ones((rows, 2))))[1]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, WEIGHTS[:3] * rows)


def test_changed_external_value_indexed_by_a_length_takes_effect() -> None:
    table = {3: 2.0, 4: 5.0}
    traced = trace(lambda x: x * table[x.shape[0]])
    for rows, factor in ((3, 2.0), (4, 5.0), (3, 7.0), (3, 7.0), (4, 1.0)):
        table[rows] = factor
        np.testing.assert_array_equal(traced(tensor(np.ones((rows, 2)))).numpy(), np.full((rows, 2), factor))


def test_training_step_converting_arrays_does_not_retrace() -> None:
    """Arrays of any length: nothing that the body makes is kept by the gradient that it asks for."""
    weight = mgb.Parameter(np.zeros((6, 4), np.float32))
    manager = GradManager().attach([weight])

    @trace
    def step(values: np.ndarray, labels: np.ndarray) -> Tensor:
        with manager:
            loss = F.nn.cross_entropy(tensor(values) @ weight, tensor(labels))
            manager.backward(loss)
        gradient, weight.grad = weight.grad, None
        return gradient

    for rows in (4, 4, 5, 7, 9):
        rng = np.random.default_rng(rows)
        values, labels = rng.normal(size=(rows, 6)), rng.integers(0, 4, rows).astype(np.int32)
        wanted = values.T @ (0.25 - np.eye(4)[labels]) / rows
        np.testing.assert_allclose(step(values.astype(np.float32), labels).numpy(), wanted, atol=1e-6)
    assert step.stats()["body_runs"] == 2


def test_array_labels_of_new_lengths_do_not_retrace() -> None:
    loss = trace(lambda scores, labels: F.nn.cross_entropy(scores * 2, labels))
    for rows in (4, 4, 5, 7, 1, 9):
        rng = np.random.default_rng(rows)
        scores, labels = rng.normal(size=(rows, 3)).astype(np.float32), rng.integers(0, 3, rows)
        odds = np.exp(2.0 * scores.astype(np.float64))
        wanted = -np.log(odds[np.arange(rows), labels] / odds.sum(axis=1)).mean()
        found = loss(tensor(scores), labels.astype(np.int32))
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    assert loss.stats()["body_runs"] == 2
