"""`xla_trace` elsewhere: methods, other traces, threads, files; and its parts by `partial_trace`."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from functools import partial
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    ExportError,
    ImpureBodyError,
    UnknownInputError,
)
from mgb.jit import auto, load, load_compiled, partial_trace, trace, xla_trace
from mgb.optimizer import SGD
from threads import together
from whole_steps import (
    LABELS,
    MAKERS,
    Net,
    another_rate,
    check_same,
    floats,
    no_change,
    run,
    train,
    whole_backend,  # noqa: F401 - a fixture
)

# as an object of Python


def test_xla_trace_of_methods(backend: str) -> None:
    class Own(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = M.Linear(3, 3)

        @xla_trace(backend=backend)
        def forward(self, x):
            return self.linear(x)

    class Trainer:
        def __init__(self, net: M.Module) -> None:
            self.net, self.opt = net, SGD(net.parameters(), lr=0.1, momentum=0.9)

        @xla_trace(backend=backend)
        def step(self, data, label):
            return train(data, label, opt=self.opt, net=self.net)

    own = Own()
    x = floats(2, 3)
    for _ in range(2):
        wanted = x.astype(np.float64) @ own.linear.weight.numpy().T + own.linear.bias.numpy()
        np.testing.assert_allclose(own(tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)
        own.linear.weight._reset(own.linear.weight * 2)
    assert own.forward.stats()["records"] == 1

    trainer = Trainer(Net())
    data, label = tensor(floats(16, 6)), tensor(LABELS)
    trainer.step(data, label)
    trainer.net = Net()
    trainer.opt = SGD(trainer.net.parameters(), lr=0.0)
    before = trainer.net.first.weight.numpy().copy()
    trainer.step(data, label)
    np.testing.assert_array_equal(before, trainer.net.first.weight.numpy())
    assert re.search(r"`Trainer\.(net|opt)` is", trainer.step.stats()["reasons"][0])
    gone = [weakref.ref(own), weakref.ref(trainer)]
    del own, trainer
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_xla_trace_inside_other_traces(backend: str) -> None:
    @xla_trace(backend=backend)
    def inner(x, net):
        return net(x) * 2

    net = M.Linear(3, 3)
    wanted = net(tensor(floats(2, 3))).numpy() * 2
    outer = trace(lambda x, net: inner(x, net) + 1)
    whole = xla_trace(lambda x, net: inner(x, net) + 1, backend=backend)
    for function in (outer, whole, auto()(lambda x, net: inner(x, net) + 1)):
        for _ in range(3):
            x = tensor(floats(2, 3))
            np.testing.assert_allclose(function(x, net).numpy(), wanted + 1, rtol=1e-5, atol=1e-6)


def test_training_under_auto(backend: str) -> None:
    step = xla_trace(train, backend=backend)
    wanted = run(train, MAKERS["SGD"], no_change)
    check_same(auto()(run)(step, MAKERS["SGD"], no_change), wanted)
    assert step.stats()["records"] == 1


def test_two_threads_share_one_record(backend: str) -> None:
    @xla_trace(backend=backend)
    def predict(x, net):
        return net(x)

    net, found = M.Linear(3, 3), {}
    xs = [floats(4, 3, seed=n) for n in range(8)]

    def work(first: int) -> None:
        for n in range(first, 8, 2):
            found[n] = predict(tensor(xs[n]), net).numpy()

    together([partial(work, n) for n in range(2)])
    for n, x in enumerate(xs):
        wanted = x.astype(np.float64) @ net.weight.numpy().T + net.bias.numpy()
        np.testing.assert_allclose(found[n], wanted, rtol=1e-5, atol=1e-6)
    assert predict.stats()["records"] == 1


def test_compile_before_the_first_call_records_once(backend: str) -> None:
    @xla_trace(backend=backend)
    def step(data, label, opt, net):
        return train(data, label, opt=opt, net=net)

    net = Net()
    opt = SGD(net.parameters(), lr=0.1)
    before = net.first.weight.numpy().copy()
    step.compile("f32[16,6]", "i32[16]", opt, net)
    np.testing.assert_array_equal(net.first.weight.numpy(), before)
    step(tensor(floats(16, 6)), tensor(LABELS), opt, net)
    assert step.stats()["records"] == len(step.programs()) == 1
    with pytest.raises(UnknownInputError):
        xla_trace(lambda x: net(x), backend=backend).compile("f32[16,6]")
    kept = []
    with pytest.raises(ImpureBodyError, match=r"calls list.append of an object from outside"):
        xla_trace(lambda x: kept.append(x * 2), backend=backend).compile("f32[16,6]")


def test_export_and_dump_to_files(backend: str, tmp_path: Any) -> None:
    pytest.importorskip("mgb_onnx", reason="not installed: pip install ./plugins/onnx")

    @xla_trace(backend=backend, capture_as_const=True)
    def predict(x, *, net):
        return F.softmax(net(x), axis=1)

    net, x = M.Linear(3, 2), floats(4, 3)
    predict(tensor(x), net=net)
    net.weight._reset(net.weight * 2)
    wanted = F.softmax(net(tensor(x)), axis=1).numpy()
    predict.export(tmp_path / "latest.mgb")
    predict.export(tmp_path / "types.mgb", "f32[4,3]", net=net)
    predict.dump(tmp_path / "model.onnx")
    readers = {"latest.mgb": load_compiled, "types.mgb": load_compiled, "model.onnx": load}
    for name, read in readers.items():
        result = read(tmp_path / name)(tensor(x))
        np.testing.assert_allclose(np.asarray(result.numpy()), wanted, rtol=1e-5, atol=1e-6)

    net = Net()
    step = xla_trace(train, backend=backend, capture_as_const=True)
    step(tensor(floats(16, 6)), tensor(LABELS), opt=SGD(net.parameters(), lr=0.1), net=net)
    for write in (step.export, step.dump):
        with pytest.raises(ExportError):
            write(tmp_path / "step")
    assert not (tmp_path / "step").exists()


def test_profile_table_lists_the_function(backend: str) -> None:
    @xla_trace(backend=backend, profiling=True)
    def double(x):
        return x * 2

    for _ in range(3):
        double(tensor(floats(4)))
    assert "double" in str(double.profile_table())


# partial_trace


def test_partial_trace_compiles_one_forward_and_one_backward_program(backend: str, caplog: Any) -> None:
    @partial_trace(backend=backend, capture_as_const=True)
    def backbone(model, inp):
        return model(inp)

    networks = []  # what is compiled for one is kept no longer than it

    def partly(data, label, *, opt, net):
        networks.append(net)
        gm = GradManager()
        gm.attach(net.parameters())
        with gm:
            loss = F.loss.cross_entropy(backbone(net, data), label)
            gm.backward(loss)
            opt.step().clear_grad()
        return loss

    check_same(run(partly, MAKERS["Adam"], another_rate), run(train, MAKERS["Adam"], another_rate))
    assert backbone.stats()["records"] == 1 and backbone.backend == backend
    assert [len(program.steps) for program in backbone.programs()] == [1, 1]


def test_partial_trace_programs_are_deterministic() -> None:
    net = M.Sequential(M.Linear(3, 5), M.GELU(), M.Linear(5, 4), M.ReLU(), M.Linear(4, 2))
    texts = set()
    for _ in range(8):
        function = partial_trace(lambda x, net: net(x), backend="eager")
        with GradManager().attach(net.parameters()) as gm:
            gm.backward(function(tensor(floats(2, 3)), net).sum())
        texts.add("\n".join(str(program.recorded) for program in function.programs()))
    assert len(texts) == 1


def test_partial_trace_recompiles_new_shape_and_logs_one_line(backend: str, caplog: Any) -> None:
    @partial_trace(backend=backend)
    def squares(x):
        return (x * x).sum()

    with caplog.at_level(logging.INFO, "mgb.jit"):
        for count in (2, 3, 2, 3):
            x = tensor(floats(count))
            with GradManager().attach(x) as gm:
                gm.backward(squares(x))
            np.testing.assert_allclose(x.grad.numpy(), 2 * floats(count), rtol=1e-6)
    (line,) = caplog.records
    assert "argument 0 of squares has shape (3,), recorded were (2,)" in line.getMessage()
    assert squares.stats()["records"] == 2
