"""What is begun and waited for later: programs begin it early, read it late, and wait for each once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.ir import Kind, Op, Spec
from mgb.jit import SublinearMemoryConfig, partial_trace, trace
from mgb.tensor import Tensor
from mgb.tensor.apply import apply

LOG: list[str] = []


class Begun:
    """Three times the operand, which nobody may look at after the beginning."""

    def __init__(self, x: Any, *_before: Any, name: str) -> None:
        LOG.append(f"begin {name}")
        self.name, self.x, self.looks = name, np.array(x), 0

    def test(self) -> bool:
        self.looks += 1
        return False

    def finish(self) -> Any:
        LOG.append(f"end {self.name}")
        if self.name == "fails":
            raise ArithmeticError
        return self.x * self.x.dtype.type(3)


THRICE = Op(
    "thrice_for_tests",
    Kind.OPAQUE,
    lambda x, *_before, name: Spec(x.shape, x.dtype),
    lambda *xs, **params: Begun(*xs, **params).finish(),
    grad=lambda g, _y, _x, name: (thrice(g, f"{name}'"),),
    keeps_bits=True,
    ordered=True,
    begin=Begun,
)


def thrice(x: Any, name: str) -> Tensor:
    return apply(THRICE, x, name=name)


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    LOG.clear()
    yield LOG
    LOG.clear()


def layers(*ws: Tensor) -> list[Tensor]:
    """Parameters whose gradients are multiplied as soon as each is complete, and used at the end."""
    with GradManager() as gm:
        for k, w in enumerate(ws):
            gm.attach(w, callbacks=lambda _w, g, k=k: thrice(g, f"g{k}"))
        y = ws[0]
        for w in ws[1:]:
            y = F.tanh(y @ w) + y
        gm.backward(y.sum())
    return [w - 0.1 * w.grad for w in ws]


def unread(x: Tensor, *_: Tensor) -> list[Tensor]:
    """Results that nobody reads, that wait for each other, and twice the same operand."""
    thrice(x, "a")
    y = thrice(thrice(x + 1, "b"), "c")
    z = thrice(y, "d") + thrice(y, "e")
    thrice(y.sum(), "f")
    return [z, y, x * 2]


def small(x: Tensor, *_: Tensor) -> list[Tensor]:
    """Numbers, halves, and a value that is cut before it is read."""
    y = thrice(x.sum(), "sum")
    half = thrice(x.astype("float16"), "half")
    cut = F.reshape(thrice(x, "cut")[2:], (-1,))
    return [y * y, half.astype("float32") + 1, cut * 2]


WS = [np.random.default_rng(k).normal(size=(6, 6)).astype("f4") for k in range(4)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"opt_level": 0},
    {"run_body": True},
    {"symbolic_shape": True},
    {"sublinear_memory_config": SublinearMemoryConfig()},
    {"profiling": True},
]


@pytest.mark.parametrize("body", [layers, unread, small])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_results_and_begun_ops_match_eager(
    body: Callable[..., Any], options: dict[str, Any], log: list[str]
) -> None:
    wanted = [y.numpy() for y in body(*map(mgb.tensor, WS))]
    begun = [word for word in log if word.startswith("begin")]
    function = trace(body, **options)
    for _ in range(4):
        log.clear()
        found = function(*map(mgb.tensor, WS))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=2e-6, atol=2e-6)
        assert [word for word in log if word.startswith("begin")] == begun
        assert sorted(word.removeprefix("end ") for word in log if word.startswith("end")) == sorted(
            word.removeprefix("begin ") for word in begun
        )


def test_begun_gradient_ops_overlap_the_backward_pass(log: list[str]) -> None:
    """By the text: what a beginning needs, it, and no wait before all have begun."""
    function = trace(layers, symbolic=True)
    function(*map(mgb.tensor, WS))
    log.clear()
    function(*map(mgb.tensor, WS))
    assert log == [f"begin g{k}" for k in (3, 2, 1, 0)] + [f"end g{k}" for k in (3, 2, 1, 0)]
    lines = str(function.explain(*map(mgb.tensor, WS))).rpartition("def run(arrays)")[2].splitlines()
    products = [k for k, line in enumerate(lines) if "matmul" in line]
    begins = [k for k, line in enumerate(lines) if "begin_thrice" in line]
    assert len(begins) == 4
    assert sum(begins[0] < k < begins[-1] for k in products) >= 4, lines


def test_disabled_overlap_waits_for_each_op(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_DISTRIBUTED_OVERLAP", "0")
    function = trace(layers)
    for _ in range(2):
        log.clear()
        function(*map(mgb.tensor, WS))
    assert log == [f"{word} g{k}" for k in (3, 2, 1, 0) for word in ("begin", "end")]


def test_pending_ops_are_polled_between_long_calls() -> None:
    seen: list[Begun] = []
    keep = Op(**{**{f: getattr(THRICE, f) for f in THRICE.__dataclass_fields__}, "name": "kept_for_tests",
                 "begin": lambda *xs, **params: seen.append(Begun(*xs, **params)) or seen[-1]})  # fmt: skip

    @trace
    def f(x: Tensor) -> Tensor:
        y = apply(keep, x, name="y")
        for _ in range(5):
            x = x @ x * 0.001
        return y.sum() + x.sum()

    x = mgb.tensor(np.ones((200, 200), "f4"))
    for _ in range(3):
        f(x)
    assert seen and seen[-1].looks >= 4


def test_failing_asynchronous_op_leaves_parameters_unchanged(log: list[str]) -> None:
    w, v = mgb.Parameter([1.0, 2.0]), mgb.Parameter([3.0, 4.0])

    @trace
    def step(fails: bool) -> None:
        a, b = thrice(w, "a"), thrice(v, "fails" if fails else "b")
        w._reset(w - a)
        v._reset(v - b)

    for _ in range(3):
        step(False)
    before = w.numpy().copy(), v.numpy().copy()
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            step(True)
    assert (w.numpy() == before[0]).all() and (v.numpy() == before[1]).all()


def test_partial_trace_begins_ops_in_forward_and_backward(log: list[str]) -> None:
    part = partial_trace(lambda x: thrice(F.tanh(x), "p") * 2)
    for _ in range(3):
        log.clear()
        x = mgb.tensor(WS[0])
        with GradManager().attach(x) as gm:
            gm.backward(part(x).sum())
        np.testing.assert_allclose(x.grad.numpy(), 6 * (1 - np.tanh(WS[0]) ** 2), rtol=1e-5)
        assert [w for w in log if "begin" in w] == ["begin p", "begin p'"], log
        assert re.fullmatch(r"(begin|end) p,(begin|end) p,.*", ",".join(log))
