"""What type checkers make of decorators, Modules and names of mgb: checked, never run."""

from __future__ import annotations

from typing import Any, assert_type

import mgb
import mgb.functional as F
import mgb.module as M
from mgb import Parameter, Tensor
from mgb.autodiff import GradManager
from mgb.jit import exclude_from_trace, partial_trace, trace, xla_trace
from mgb.optimizer import SGD

# decorators, with options and without


@trace
def plain(x: Tensor, *, name: str = "a") -> Tensor:
    return x


@trace()
def called(x: Tensor) -> float:
    return 1.0


@trace(without_host=True, opt_level=2, backend="eager")
def with_options(x: Tensor) -> tuple[Tensor, int]:
    return x, 1


@partial_trace
def part(x: Tensor) -> Tensor:
    return x


@partial_trace(backend="eager", trace_gmcallback=True)
def part_with_options(x: Tensor) -> Tensor:
    return x


@xla_trace
def whole(x: Tensor) -> str:
    return ""


@xla_trace(capture_as_const=True)
def whole_with_options(x: Tensor) -> str:
    return ""


class Steps:
    @trace
    def one(self, x: int) -> str:
        return ""

    @trace(symbolic=True)
    def two(self, x: int, *, flag: bool = False) -> str:
        return ""

    @partial_trace
    def three(self, x: int) -> str:
        return ""


x, steps = mgb.tensor([1.0]), Steps()
assert_type(plain(x, name="b"), Tensor)
assert_type(called(x), float)
assert_type(with_options(x), tuple[Tensor, int])
assert_type(part(x), Tensor)
assert_type(part_with_options(x), Tensor)
assert_type(whole(x), str)
assert_type(whole_with_options(x), str)
assert_type(steps.one(1), str)
assert_type(steps.two(1, flag=True), str)
assert_type(steps.three(1), str)
assert_type(trace(called)(x), float)
assert_type(trace(called, symbolic=True)(x), float)
assert_type(trace(symbolic=True)(called)(x), float)
assert_type(plain.stats(), dict[str, Any])
with exclude_from_trace():
    pass

plain(1)  # wrong: arg-type
plain(x, nome="b")  # wrong: call-arg
with_options("x")  # wrong: arg-type
steps.one("x")  # wrong: arg-type
trace(called, symbolick=True)  # wrong: call-overload
partial_trace(symbolic=True)  # wrong: call-overload


# modules


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = M.Linear(2, 3)

    def forward(self, x: Tensor, flag: bool = True) -> tuple[Tensor, int]:
        y = self.linear(x)
        assert_type(y, Tensor)
        return F.relu(y), 3


class TracedNet(M.Module):
    @partial_trace
    def forward(self, x: Tensor) -> Tensor:
        return x


def some(module: M.Module) -> None:
    assert_type(module(x, 1, name=2), Any)


net = Net()
assert_type(net(x, flag=False), tuple[Tensor, int])
assert_type(trace(net)(x), tuple[Tensor, int])
assert_type(TracedNet()(x), Tensor)
assert_type(M.LSTM(2, 3)(x)[1], tuple[Tensor, Tensor])
assert_type(M.Sequential(M.ReLU())(x), Any)
assert_type(net.train().half(), Net)
assert_type(next(net.parameters()), Parameter)
net(1)  # wrong: arg-type


# names of the package

assert_type(mgb.random.normal(size=(2,)), Tensor)
assert_type(mgb.amp.autocast()(called)(x), float)
assert_type(x + 1, Tensor)
assert_type(x.sum(), Tensor)
manager, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)
with manager:
    assert_type(opt.step(), SGD)
print(mgb.randon)  # wrong: attr-defined
