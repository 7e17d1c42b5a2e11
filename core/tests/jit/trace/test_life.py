"""A traced function as an object of Python: methods, copies, pickles, signatures, threads."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from arrays import floats, ones
from mgb import Tensor, plugins, tensor
from mgb.errors import TracePicklingError
from mgb.jit import DTRConfig, trace
from mgb.jit.variant import Variant
from threads import together

pytestmark = pytest.mark.usefixtures("eager_backend")


class Scale:
    """Holds a factor."""

    offset = 1.0

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @trace
    def apply(self, x: Tensor, power: int = 1) -> Tensor:
        """Multiply."""
        return x**power * self.factor

    @classmethod
    @trace
    def shift(cls, x: Tensor) -> Tensor:
        return x + cls.offset

    @staticmethod
    @trace
    def double(x: Tensor) -> Tensor:
        return x * 2.0


class Moved(Scale):
    offset = 10.0


@trace
def halved(x: Tensor) -> Tensor:
    """Divide by two."""
    return x / 2.0


tripled = trace(lambda x: x * 3.0)


def test_instance_class_and_static_methods_can_be_traced() -> None:
    for call in range(3):
        x = tensor(float(call))
        assert Scale(2.0).apply(x).item() == 2 * call
        assert Scale(2.0).apply(x, power=2).item() == 2 * call * call
        assert Scale.double(x).item() == Scale(1.0).double(x).item() == 2 * call
        assert Scale.shift(x).item() == Scale(1.0).shift(x).item() == call + 1
        assert Moved.shift(x).item() == call + 10
        assert Scale.apply(Scale(5.0), x).item() == 5 * call  # the plain function, with its instance


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"without_host": True}], ids=str)
def test_traced_forward_of_a_module(options) -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = M.Linear(3, 2)

        @trace(**options)
        def forward(self, x):
            return F.relu(self.linear(x))

    first, second = Net(), Net()
    for call in range(3):
        x = np.full((4, 3), call, np.float32)
        for net in (first, second):
            weight, bias = net.linear.weight.numpy(), net.linear.bias.numpy()
            np.testing.assert_allclose(net(tensor(x)).numpy(), np.maximum(x @ weight.T + bias, 0), rtol=1e-5)


def test_bound_method_inherits_the_options_of_its_trace() -> None:
    class Model:
        @trace(symbolic_shape=True, opt_level=1, run_body=False, profiling=True,
               dtr_config=DTRConfig(eviction_threshold=1 << 30))  # fmt: skip
        def run(self, x):
            return x.reshape(x.shape[0], -1)

    model = Model()
    assert model.run(ones(2, 3, 4)).shape == (2, 12)
    assert (model.run.symbolic_shape, model.run.options.opt_level, model.run.run_body) == (True, 1, False)
    assert model.run.options.memory == DTRConfig(eviction_threshold=1 << 30) and model.run.options.profiling


def test_signature_name_and_docstring_are_preserved() -> None:
    assert str(inspect.signature(halved)) == "(x: 'Tensor') -> 'Tensor'"
    assert str(inspect.signature(Scale(1.0).apply)) == "(x: 'Tensor', power: 'int' = 1) -> 'Tensor'"
    assert list(inspect.signature(Scale.apply).parameters) == ["self", "x", "power"]
    assert (halved.__name__, halved.__qualname__, halved.__module__) == ("halved", "halved", __name__)
    assert halved.__doc__ == "Divide by two." and inspect.getdoc(Scale(1.0).apply) == "Multiply."
    assert Scale.apply.__doc__ == "Multiply."
    assert inspect.unwrap(halved).__name__ == "halved"


def test_copying_a_traced_function_returns_itself() -> None:
    for traced in (halved, tripled, trace(lambda x: x)):
        assert copy.copy(traced) is traced
        assert copy.deepcopy([traced])[0] is traced


def test_copied_bound_method_belongs_to_the_copied_instance() -> None:
    scale = Scale(2.0)
    method, other = copy.deepcopy((scale.apply, scale))
    assert method.__self__ is other is not scale
    other.factor = 7.0
    assert (method(tensor(1.0)).item(), scale.apply(tensor(1.0)).item()) == (7, 2)
    assert copy.copy(scale.apply).__self__ is scale


def test_copied_module_is_traced_separately() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tensor(1.0)

        @trace
        def forward(self, x):
            return x * self.weight

    net = Net()
    net(tensor(1.0))
    twin = copy.deepcopy(net)
    twin.weight._reset(tensor(3.0))
    assert [net(tensor(2.0)).item(), twin(tensor(2.0)).item()] * 2 == [2, 6, 2, 6]


def test_traced_function_is_pickled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(halved, protocol)) is halved
    assert pickle.loads(pickle.dumps(Scale.apply)) is Scale.apply
    method = pickle.loads(pickle.dumps(Scale(4.0).apply))
    assert method(tensor(2.0)).item() == 8


def _this_module():
    class Here:
        pass

    for name, value in globals().items():
        setattr(Here, name, staticmethod(value) if inspect.isfunction(value) else value)
    return Here


def test_traced_function_unpickles_in_another_process(tmp_path) -> None:
    (tmp_path / "steps.py").write_text(
        "import mgb\n\n@mgb.jit.trace\ndef step(x):\n    return x * 2.0 + 1.0\n", encoding="utf-8"
    )
    code = (
        "import pickle, sys, steps, mgb\n"
        "assert steps.step(mgb.tensor(1.0)).item() == 3\n"
        "sys.stdout.buffer.write(pickle.dumps(steps.step))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MGB_JIT_BACKEND": "eager"}
    run = {"env": environment, "capture_output": True, "check": True, "timeout": 120}
    blob = subprocess.run([sys.executable, "-c", code], **run).stdout
    code = (
        "import pickle, sys, mgb\nstep = pickle.loads(sys.stdin.buffer.read())\n"
        "print([step(mgb.tensor(float(i))).item() for i in range(3)])"
    )
    assert subprocess.run([sys.executable, "-c", code], input=blob, **run).stdout.split() == [
        b"[1.0,", b"3.0,", b"5.0]",
    ]  # fmt: skip


def test_pickling_a_function_not_found_by_its_name_raises() -> None:
    @trace
    def local(x):
        return x

    with pytest.raises(
        TracePicklingError, match=r"local cannot be pickled: .* define it at the top of a module"
    ):
        pickle.dumps(local)
    with pytest.raises(TracePicklingError, match="define it at the top"):
        pickle.dumps(tripled)
    other = trace(ones)
    with pytest.raises(pickle.PicklingError, match=r"bind trace\(ones\) to that very name"):
        pickle.dumps(other)


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"symbolic": True}], ids=str)
def test_first_calls_from_many_threads_record_once(options) -> None:
    traced = trace(lambda x, y, n: ((x * y + x) * n).sum(axis=1) + 1.0, **options)
    ready, wrong = threading.Barrier(8), []

    def work(number: int) -> None:
        ready.wait(60)
        for call in range(10):
            rows = 1 + (number + call) % 3
            x, y = floats(rows, 8, seed=number), floats(rows, 8, seed=call)
            expected = ((x * y + x) * 2).sum(axis=1) + 1
            if not np.allclose(traced(tensor(x), tensor(y), 2.0).numpy(), expected, rtol=1e-4, atol=1e-5):
                wrong.append((number, call))

    together([partial(work, n) for n in range(8)])
    stats = traced.stats()
    assert not wrong and stats["calls"] == 80 and stats["variants"] == 3
    assert stats["records"] == (3 if options.get("run_body") else 2)


def test_instances_bound_by_many_threads_have_one_trace_each() -> None:
    scales = [Scale(float(n)) for n in range(4)]
    ready = threading.Barrier(8)
    found: list[object] = []

    def work() -> None:
        ready.wait(60)
        found.append([scale.apply._traced for scale in scales])

    together([work] * 8)
    assert all(f == found[0] for f in found)
    reference = weakref.ref(scales[0])
    scales.clear()
    found.clear()
    assert reference() is None


def test_graph_backend_and_explain_can_be_inspected() -> None:
    @trace
    def function(x):
        return (x * 2.0).sum()

    assert function.graph is None and function.backend == ""
    for _ in range(2):
        function(ones(3))
    assert [n.op.name for n in function.graph.nodes][-2:] == ["reduce_sum", "reshape"]
    assert function.backend == plugins.load_backend("eager").name
    assert "recorded" in function.explain(ones(3))


def test_decorator_works_with_and_without_options() -> None:
    def function(x):
        return x + 1

    for spelled in (trace(function), trace(symbolic=True)(function), trace(function, symbolic=True)):
        assert spelled(tensor(1.0)).item() == 2
        assert spelled.__wrapped__ is function
        assert spelled.__name__ == "function"


@pytest.mark.parametrize("hashable", [True, False])
def test_method_is_traced_per_instance(hashable) -> None:
    @dataclass(eq=not hashable)
    class Scale:
        factor: float

        @trace
        def apply(self, x):
            return x * self.factor

    double, triple = Scale(2.0), Scale(3.0)
    for call in range(3):
        assert double.apply(tensor(float(call))).item() == 2 * call
        assert triple.apply(tensor(float(call))).item() == 3 * call
    assert double.apply.stats()["records"] == double.apply.stats()["body_runs"] == 1
    double.factor = 4.0
    assert double.apply(tensor(5.0)).item() == 20
    reference = weakref.ref(double)
    del double
    assert reference() is None


def test_garbage_collection_during_compilation_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    def box(value: float) -> dict[str, Any]:
        made: dict[str, Any] = {"factor": tensor(value)}
        made["itself"] = made
        return made

    program = Variant.program
    monkeypatch.setattr(Variant, "program", lambda *args: (gc.collect(), program(*args))[1])
    now = {"box": box(2.0)}
    scaled = trace(lambda x: x * now["box"]["factor"], backend="eager")
    gc.disable()
    try:
        assert scaled(tensor(3.0)).item() == 6
        now["box"] = box(5.0)
        assert [scaled(tensor(3.0)).item() for _ in range(3)] == [15] * 3
    finally:
        gc.enable()


def test_class_created_in_the_body_can_be_collected() -> None:
    @trace
    def step(x: Any) -> Any:
        @dataclass
        class Point:
            scale: float = 2.0

        return x * Point(3.0).scale

    for _ in range(3):
        assert step(tensor(1.0)).item() == 3.0
        gc.collect()
    assert step.stats()["records"] == 1
