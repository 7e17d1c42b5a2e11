"""Backends with one fault each, for `mgb reduce`: this file is the script that registers them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
from mgb.backends import Kernel, Scope
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl, manager
from mgb.ir import CONST, Kind, Node
from mgb.tensor.apply import evaluate


def wrong_word(node: Node, value: Any, _xs: Any) -> Any:
    """The hyperbolic tangent is a little off."""
    return value * np.float32(1.01) if node.op.name == "tanh" else value


def wrong_reduction(node: Node, value: Any, xs: Any) -> Any:
    """Rows of odd length lose their last element, as a loop by pairs would have it."""
    if node.op.name != "reduce_sum" or (length := xs[0].shape[-1]) % 2 == 0 or length < 2:
        return value
    return evaluate(node.op, [xs[0][..., :-1]], dict(node.params))


def wrong_dtype(node: Node, value: Any, _xs: Any) -> Any:
    """float64 is computed in float32."""
    return value.astype(np.float32).astype(value.dtype) if value.dtype == np.float64 else value


def crash(node: Node, value: Any, _xs: Any) -> Any:
    """The process ends at a logarithm."""
    if node.op.name.startswith("log"):
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def refuses(_node: Node, _value: Any, _xs: Any) -> Any:
    """An exception that is not mgb's."""
    raise ZeroDivisionError("the toolchain fell over")


def hangs(_node: Node, _value: Any, _xs: Any) -> Any:
    """A kernel that does not end."""
    time.sleep(1000)


def honest(_node: Node, value: Any, _xs: Any) -> Any:
    """No fault."""
    return value


class Faulty(EagerBackend):
    """EAGER over one domain, with a fault."""

    def __init__(self, fault: Callable[..., Any]) -> None:
        self.name, self._fault = fault.__name__, fault

    @property
    def traits(self) -> Any:
        kinds = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})
        return replace(super().traits, scope=Scope.DOMAIN, kinds=kinds, min_ops=2, priority=-2000)

    def compile(self, graph: Any) -> Kernel:
        def value(node: Node, *xs: Any) -> Any:
            if node.op is CONST:
                return node.params["value"]
            return self._fault(node, evaluate(node.op, xs, dict(node.params)), xs)

        def run(*arrays: Any, out: tuple[Any, ...]) -> None:
            values = [np.array(v) for v in graph.fold(value, self.read(arrays))]
            for target, made in zip(out, values, strict=True):
                target[...] = made

        return Kernel(run, at=lambda _lengths: run)

    def read(self, arrays: Any) -> Any:
        """The inputs as the kernel sees them."""
        return arrays


class WrongStrides(Faulty):
    """Reads each input as if it were row-major."""

    def __init__(self) -> None:
        super().__init__(honest)
        self.name = "wrong_strides"

    def read(self, arrays: Any) -> Any:
        """By the order of memory."""
        return [a if a.flags.c_contiguous or 0 in a.strides else a.T.reshape(a.shape) for a in arrays]


FAULTS = (wrong_word, wrong_reduction, wrong_dtype, crash, refuses, hangs, honest)
BACKENDS = {b.name: b for b in (*map(Faulty, FAULTS), WrongStrides())}


class Plugin:
    """Gives each by its name."""

    @hookimpl
    def mgb_backend(self, name: str) -> Any:
        return BACKENDS.get(name)


for _name in BACKENDS:
    if manager.get_plugin(_name) is None:
        manager.register(Plugin(), name=_name)


def network(x: Any, w: Any, v: Any) -> Any:
    """A step with all that the faults want: words, reductions, transposes, two dtypes."""
    hidden = F.tanh(x * w.reshape(1, -1) + 0.5)
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    mixed = F.exp(centred * 0.25) * F.sigmoid(x) + x.transpose(1, 0).reshape(x.shape) * 0.125
    turned = (mixed.transpose(1, 0) * 2.0 + 1.0) * 0.5
    wide = (v * 1.1 + 0.3) * v - v / 7.0
    entropy = F.log(F.abs(mixed) + 1.0) * 3.0
    return [turned, wide, entropy.sum(), F.relu(hidden - 0.1) * mixed]


def example_inputs() -> list[Any]:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s).astype("float32") for s in ((12, 31), (31,)))
    return [mgb.tensor(x), mgb.tensor(w), mgb.tensor(random.standard_normal(40), dtype="float64")]
