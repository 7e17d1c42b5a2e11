"""Bodies that do one of several things, as values decide: judged against eager calls of the same body."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import TraceMismatchError
from mgb.jit import auto, body_calls, exclude_from_trace, trace

pytestmark = pytest.mark.usefixtures("eager_backend")


class State:
    """What a body changes that does one of several things."""

    def __init__(self) -> None:
        self.total = tensor(np.zeros(4, np.float32))
        self.log: list[float] = []
        self.kept: list[Tensor] = []

    def body(self, x: Tensor, kind: Tensor) -> Tensor:
        doubled, old = x * 2.0, self.total * 1.0
        self.total += x
        which = int(kind)
        if which == 0:
            return x + 1.0
        if which == 1:  # takes values that no other kind needs, made of what was updated since
            return doubled * old
        if which == 2:
            with exclude_from_trace():
                self.log.append(float(doubled.sum()))
            self.total += doubled
            return doubled + self.total
        if which == 3:
            self.kept = [doubled, old]
            return F.topk(self.total, 2)[0]
        if which == 4:
            self.total *= 0.5
            self.log.append(float((old + x).sum()))
            return old
        return F.topk(self.total, 3)[0] * float(doubled.sum())


def check(found: State, expected: State, results: tuple[Tensor, Tensor]) -> None:
    np.testing.assert_array_equal(results[0].numpy(), results[1].numpy())
    np.testing.assert_array_equal(found.total.numpy(), expected.total.numpy())
    assert found.log == expected.log
    for one, other in zip(found.kept, expected.kept, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def call(state: State, function: Any, number: int, kind: int) -> Tensor:
    state.kept = []
    return function(tensor(np.arange(4, dtype=np.float32) + number), tensor(kind))


@pytest.mark.parametrize("order", ["in turn", "in runs", *range(2)])
def test_each_branch_of_a_body_gets_its_own_program(order: str | int) -> None:
    kinds = [n % 6 if order == "in turn" else n // 4 for n in range(24)]
    if isinstance(order, int):
        random.Random(order).shuffle(kinds)
    found, expected = State(), State()
    traced = trace(found.body)
    for number, kind in enumerate(kinds):
        check(
            found, expected, (call(found, traced, number, kind), call(expected, expected.body, number, kind))
        )
    stats = traced.stats()
    assert stats["records"] == 1 and stats["programs"] >= 6
    for kind in [0, 1, 2, 3, 4, 5] * 2:
        check(found, expected, (call(found, traced, 9, kind), call(expected, expected.body, 9, kind)))
    again = traced.stats()
    assert (again["programs"], again["reasons"]) == (stats["programs"], stats["reasons"])


def test_body_raising_after_divergence_keeps_its_updates() -> None:
    total = tensor(np.zeros(3, np.float32))

    @trace
    def step(x: Tensor, fails: Tensor) -> Tensor:
        nonlocal total
        total += x
        if int(fails):
            total += x * 2.0
            raise ValueError
        return total * 2.0

    x = tensor([1.0, 2.0, 3.0])
    expected = np.zeros(3, np.float32)
    for fails in (0, 0, 1, 0, 1, 1, 0):
        expected += x.numpy() * (3 if fails else 1)
        if fails:
            with pytest.raises(ValueError):
                step(x, tensor(1))
        else:
            np.testing.assert_array_equal(step(x, tensor(0)).numpy(), expected * 2)
        np.testing.assert_array_equal(total.numpy(), expected)


def test_variants_for_ever_new_op_parameters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_calls, "_MOST", 8)
    traced = trace(lambda x, k: F.topk(x * 2.0, k)[0], run_body=True)
    x = tensor(np.arange(30, dtype=np.float32))
    for k in range(1, 25):
        np.testing.assert_array_equal(traced(x, tensor(k)).numpy(), np.arange(29, 29 - k, -1) * 2.0)
    assert traced.stats()["records"] == 1 and len(traced.variants()) == 1


def test_different_ops_mismatch_even_after_earlier_divergence() -> None:
    flag = False

    def body(x: Tensor, k: Tensor) -> Tensor:
        largest = F.topk(x, k)[0]
        return largest * 2.0 if flag else largest + 1.0

    traced = trace(body, run_body=True)
    x = tensor([1.0, 3.0, 2.0])
    for k in (1, 2, 1, 2):
        np.testing.assert_array_equal(traced(x, tensor(k)).numpy(), np.float32([3, 2])[:k] + 1)
    flag = True
    for k in (1, 2):
        with pytest.raises(TraceMismatchError, match="operator mismatch"):
            traced(x, tensor(k))
    flag = False
    np.testing.assert_array_equal(traced(x, tensor(2)).numpy(), [4.0, 3.0])


def test_ops_on_values_read_by_the_body_stay_compiled() -> None:
    traced = trace(lambda x: (x + 1.0) * float(x.sum()) - float(x.sum()) / 2)
    for n in range(1, 12):
        x = np.arange(n, n + 4, dtype=np.float32)
        total = float(x.sum())
        np.testing.assert_array_equal(traced(tensor(x)).numpy(), (x + 1) * np.float32(total) - total / 2)
    stats = traced.stats()
    assert stats["records"] == 1 and stats["programs"] <= 4
    assert any("it is an input now" in reason for reason in stats["reasons"])


def test_returned_value_can_be_read_repeatedly_in_the_body() -> None:
    @trace
    def doubled(x: Tensor) -> Tensor:
        y = x * 2.0
        np.testing.assert_array_equal(y.numpy(), y.numpy())
        return y

    for number in range(4):
        np.testing.assert_array_equal(doubled(tensor([1.0, number])).numpy(), [2.0, 2.0 * number])


#: What a body may do next.
STEPS: list[Any] = [
    lambda x, draw: F.sin(x),
    lambda x, draw: F.exp(x * 0.1),
    lambda x, draw: x * draw.random(),
    lambda x, draw: x[:2],
    lambda x, draw: x.sum() - x,
]


@pytest.mark.parametrize("taped", [False, True])
def test_body_that_runs_does_what_it_likes_at_each_call(taped: bool) -> None:
    """Ops in another order, more and fewer of them, other constants: as in eager code."""
    draw, log = random.Random(3), list[Any]()

    def body(x: Tensor) -> Tensor:
        log.append(len(log) and object())
        for _ in range(draw.randrange(4)):
            x = draw.choice(STEPS)(x, draw)
            x = x / (float(x.sum()) if draw.random() < 0.3 else 2)
        return x

    traced = trace(body)
    for number in range(60):
        x = tensor(np.arange(3, dtype=np.float32) + 0.25 * number)
        state = draw.getstate()
        expected = body(x).numpy()
        draw.setstate(state)
        if taped:
            with GradManager().attach([x]) as manager:
                result = traced(x)
                manager.backward(result.sum())
        else:
            result = traced(x)
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6)


@pytest.mark.parametrize("options", [{"run_body": True}, {"imperative": True}])
@pytest.mark.parametrize(
    "constant", [float("nan"), complex("nan"), np.complex64([1, np.nan]), np.float32([np.nan, 1])], ids=str
)
def test_constants_that_are_no_numbers_equal_themselves(options: dict[str, Any], constant: Any) -> None:
    traced = trace(lambda x: x * constant, **options)
    for dtype in ("complex64",) if np.iscomplexobj(constant) else ("float32", "float16", "bfloat16"):
        x = tensor([1.0, 2.0]).astype(dtype)
        for _ in range(3):
            assert traced(x).numpy().tobytes() == (x * constant).numpy().tobytes()
        traced = trace(lambda x: x * constant, **options)


@pytest.mark.parametrize("options", [{}, {"run_body": True}])
def test_zeros_of_complex_constants_have_signs(options: dict[str, Any]) -> None:
    log: list[Any] = []

    def body(x: Tensor, c: complex) -> Tensor:
        log.append(object())
        return F.where(x.real != 0, x, c) * 1

    traced, x = trace(body, **options), tensor(np.zeros(1, np.complex64))
    for c in (0j, 0j, complex(-0.0, -0.0), complex(0.0, -0.0), 0j, complex(1, -0.0), complex(1, 0.0)):
        try:
            got = traced(x, c).numpy()
        except TraceMismatchError:
            assert options
        else:
            assert got.tobytes() == body(x, c).numpy().tobytes(), c


def test_links_of_calls_that_an_interrupt_ends_are_forgotten() -> None:
    log: list[Any] = []

    def body(x: Tensor, k: int) -> Tensor:
        log.append(object())
        x = F.pad(x, ((k, 0),))
        if k > 3:
            raise KeyboardInterrupt
        return x

    traced, x = trace(body), tensor([1.0])
    for k in range(900):
        with suppress(KeyboardInterrupt):
            traced(x, k)
    (impure,) = traced._impure_calls.values()
    waiting, links = [link for stream in impure.streams._all for link in stream._get_roots()], 0
    while waiting:
        links += 1
        waiting += waiting.pop().children
    assert links < 600


@pytest.mark.parametrize("options", [{}, {"run_body": True}])
def test_numbers_of_a_body_without_source_are_plain(options: dict[str, Any]) -> None:
    found: dict[str, Any] = {"lengths": []}
    traced = trace(_made(found), **options)
    for n in (5, 5, 6):
        traced(tensor(np.ones(n, np.float32)), 3.0)
    assert found["lengths"] == [5, 5, 6] and {type(n) for n in found["lengths"]} == {int}
    assert type(found["s"]) is float


def _made(found: dict[str, Any]) -> Any:
    space: dict[str, Any] = {"found": found}
    lines = ["def body(x, s):", "found['lengths'].append(x.shape[0])", "found['s'] = s * 2", "return x * 2"]
    exec("\n    ".join(lines), space)
    return space["body"]


@pytest.mark.parametrize("how", ["impure", "auto"])
def test_zeros_in_parameters_of_ops_have_signs(how: str) -> None:
    log: list[Any] = []

    def body(x: Tensor, slope: float) -> Tensor:
        log.append(object())
        return F.leaky_relu(x, slope) * 1

    traced, x = auto()(body) if how == "auto" else trace(body), tensor([-1.0, 2.0])
    for slope in (0.0, 0.0, 0.0, -0.0, 0.0, -0.0, -0.0, -0.0):
        np.testing.assert_array_equal(np.signbit(traced(x, slope).numpy()), [slope.hex()[0] != "-", False])


def test_body_that_is_longer_for_a_longer_tensor_from_outside() -> None:
    outside = tensor(np.ones(3, np.float32))

    def body(x: Tensor) -> float:
        y = outside.sum() + x.sum()
        for _ in range(len(outside)):
            y = y * 1.5
        return float(y) + 1

    traced, x = trace(body, run_body=True), tensor(np.ones(2, np.float32))
    for length in (3, 3, 6, 6, 2, 3):
        outside = tensor(np.ones(length, np.float32))
        assert traced(x) == body(x)
