"""What a user sees: texts of objects, summaries, and what notebooks show."""

from __future__ import annotations

import os
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import UnknownBackendError
from mgb.jit import partial_trace, trace, xla_trace


class Balanced(HTMLParser):
    """Fails where an element is not closed; keeps the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def network() -> M.Module:
    net = M.Sequential(M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.Flatten(), M.Linear(144, 10))
    net.again = net[4]  # counted once
    return net


# texts of objects


def test_optimizer_repr() -> None:
    net = M.Linear(3, 2)
    assert repr(optim.SGD(net.parameters(), lr=0.1)) == (
        "SGD(2 parameters of 8 numbers, lr=0.1, momentum=0.0, weight_decay=0.0, nesterov=False)"
    )
    groups = optim.Adam([{"params": net.weight, "lr": 0.5}, {"params": net.bias}], lr=0.1)
    first, *lines, last = repr(groups).splitlines()
    assert (first, last) == ("Adam(", ")") and [line.split(",")[1] for line in lines] == [
        " lr=0.5",
        " lr=0.1",
    ]


def test_grad_manager_repr() -> None:
    manager = GradManager().attach(M.Linear(3, 2).parameters())
    kept = M.Linear(3, 2)
    manager.attach(kept.parameters())
    assert repr(manager) == "GradManager(2 tensors attached)"
    with manager:
        assert repr(manager) == "GradManager(2 tensors attached, recording)"


def test_traced_function_repr() -> None:
    class Steps:
        @trace(symbolic=True)
        def step(self, x):
            return x + 1

    def double(x):
        return x * 2 + 1

    name = f"{double.__qualname__}"
    assert repr(partial_trace(double)) == f"<partial_trace of {name}: not called>"
    assert repr(xla_trace(double)) == f"<xla_trace of {name}: not called>"
    traced = trace(double, backend="eager")
    for _ in range(3):
        traced(mgb.tensor([1.0]))
    assert repr(traced) == f"<trace of {name}, backend='eager': 3 calls, 1 records, eager>"
    assert re.fullmatch(r"<trace of .*Steps.step, symbolic=True: not called> of a Steps", repr(Steps().step))


def test_module_repr_shows_a_loaded_model(tmp_path: Path) -> None:
    def double(x):
        return x * 2

    trace(double).export(tmp_path / "double.mgb", "f32[3]")
    loaded = mgb.jit.load_compiled(tmp_path / "double.mgb", backend="eager")
    net = M.Sequential(loaded, M.ReLU())
    net.chosen = F.relu
    assert repr(net) == f"Sequential(\n  (0): {loaded!r}\n  (1): ReLU()\n)"


# summaries


def test_summary_counts_each_parameter_once() -> None:
    net = network()
    found = net.summary()
    assert found.parameters == sum(p.size for p in net.parameters()) == 4 * 9 + 4 + 8 + 1450
    assert found.buffers == 8 and found.nbytes == 4 * (found.parameters + 8)
    assert sum(layer.parameters for layer in found.layers) == found.parameters
    text = str(found)
    assert "output" not in text and "1,498 parameters" in text and repr(found) == text


def test_summary_with_an_input_shows_output_shapes() -> None:
    net, x = network(), mgb.random.normal(size=(2, 1, 8, 8))
    net[1].training = False
    before = net.state_dict()
    found = net.summary(x)
    shapes = {layer.name: layer.output for layer in found.layers}
    assert shapes == {
        "": "(2, 10)", "0": "(2, 4, 6, 6)", "1": "(2, 4, 6, 6)", "2": "(2, 4, 6, 6)", "3": "(2, 144)",
        "4": "(2, 10)",
    }  # fmt: skip
    assert [m.training for m in net.modules()].count(False) == 1 and not net[1].training
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    assert not any(m._forward_hooks for m in net.modules())
    lstm = M.LSTM(3, 4).summary(F.zeros((5, 2, 3)))
    assert lstm.layers[0].output == "(5, 2, 4) (1, 2, 4) (1, 2, 4)"
    with pytest.raises(Exception, match="conv2d"):
        net.summary(F.zeros((2, 3)))
    assert not any(m._forward_hooks for m in net.modules())


def test_summary_depths() -> None:
    net = M.Sequential(M.Sequential(M.Linear(2, 2)))
    assert [(layer.name, layer.depth) for layer in net.summary().layers] == [("", 0), ("0", 1), ("0", 2)]


# notebooks


def test_html_reprs_are_well_formed() -> None:
    x = mgb.tensor(np.arange(6).reshape(2, 3))
    assert "Tensor of shape (2, 3), int32 on" in Balanced(x._repr_html_()).text
    assert "[0, 1, 2]" in Balanced(x._repr_html_()).text
    assert len(F.zeros((1000, 1000))._repr_html_()) < 2000
    net = network()
    text = Balanced(net._repr_html_()).text
    assert "BatchNorm2d" in text and "1,450" in text
    traced = trace(lambda x: F.exp(x) < x, profiling=True)
    explanation = traced.explain(x)
    assert isinstance(explanation, str) and explanation.startswith("the call\n====")
    html = explanation._repr_html_()
    parsed = Balanced(html)
    assert html.count("<details>") > 5 and "lt" in parsed.text and "recorded" in parsed.text
    for _ in range(3):
        traced(x)
    assert "median" in Balanced(traced.profile_table()._repr_html_()).text


# a wrong backend


@pytest.mark.parametrize("way", [trace, partial_trace, xla_trace])
def test_unknown_backend_raises_at_decoration(way: Any) -> None:
    with pytest.raises(UnknownBackendError, match="no backend is called 'nvrct'; did you mean 'nvrtc'"):
        way(lambda x: x, backend="NVRCT")
    with pytest.raises(UnknownBackendError, match="'numba'"):
        way(backend="eager,numba")(lambda x: x)
    way(lambda x: x, backend="nvrtc,eager")  # known, if not installed


# files that are none


def test_saving_to_a_pipe_does_not_replace_it(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    mgb.save({"x": mgb.tensor([1.0])}, pipe)
    reader.join(60)
    assert pipe.is_fifo()
    (tmp_path / "file").write_bytes(read[0])
    assert mgb.load(tmp_path / "file")["x"].item() == 1.0
