"""Traced functions that no other process can import, given to it by cloudpickle, as Dask and Ray do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import mgb
import mgb.module as M
import numpy as np
import pytest
from mgb.errors import TracePicklingError
from mgb.jit import partial_trace, trace, xla_trace

cloudpickle: Any = pytest.importorskip("cloudpickle", reason="not installed: pip install cloudpickle")


@trace
def at_the_top(x: Any) -> Any:
    return x + 1


def test_importable_function_is_pickled_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _here())
    assert pickle.loads(cloudpickle.dumps(at_the_top)) is at_the_top
    assert pickle.loads(cloudpickle.dumps([at_the_top]))[0] is at_the_top


def _here() -> Any:
    return type("Here", (), {"at_the_top": at_the_top})


@pytest.mark.parametrize("kind", [trace, partial_trace, xla_trace])
def test_local_functions_and_lambdas_keep_their_free_variables(kind: Any) -> None:
    scale, weight = 3.0, mgb.tensor([1.0, 2.0])

    def local(x: Any) -> Any:
        return x * scale + weight

    for function in (local, lambda x: x * scale + weight):
        again = pickle.loads(cloudpickle.dumps(kind(function)))
        assert type(again) is kind and again.__name__ == function.__name__
        if kind is not xla_trace:  # which needs a backend of its own
            for k in range(3):
                assert again(mgb.tensor([1.0 * k, 1.0])).numpy().tolist() == [3.0 * k + 1, 5.0]


def test_pickled_function_keeps_its_trace_options() -> None:
    again = pickle.loads(
        cloudpickle.dumps(trace(lambda x: x.sum(), symbolic=True, opt_level=2, profiling=True))
    )
    assert again(mgb.tensor([1.0, 2.0])).item() == 3
    assert again._settings == {"symbolic": True, "opt_level": 2, "profiling": True}


def test_recursive_functions_and_modules_with_traced_methods() -> None:
    @trace
    def power(x: Any, n: int) -> Any:
        return x if n < 2 else x * power(x, n - 1)

    assert pickle.loads(cloudpickle.dumps(power))(mgb.tensor(2.0), 3).item() == 8

    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = M.Linear(2, 1)

        @trace
        def forward(self, x: Any) -> Any:
            return self.last(x)

    net, x = Net(), mgb.tensor([[1.0, 2.0]])
    wanted = net(x).item()
    again = pickle.loads(cloudpickle.dumps(net))
    assert again(x).item() == wanted
    assert pickle.loads(cloudpickle.dumps(net.forward))(x).item() == wanted


def test_plain_pickle_error_recommends_cloudpickle() -> None:
    with pytest.raises(TracePicklingError, match=r"by value: cloudpickle\.dumps"):
        pickle.dumps(trace(lambda x: x))
    layer = trace(M.Linear(2, 2))
    with pytest.raises(TracePicklingError, match="a traced Linear cannot be pickled"):
        pickle.dumps(layer)
    x = mgb.tensor([[1.0, 2.0]])
    np.testing.assert_array_equal(pickle.loads(cloudpickle.dumps(layer))(x).numpy(), layer(x).numpy())


PROGRAM = """
import multiprocessing, sys
import cloudpickle, mgb
from mgb.jit import trace
two = 2.0

def twice(x):
    return x * two

@trace
def step(x):
    return twice(x) + 1.0

if __name__ == "__main__":
    assert [step(mgb.tensor(1.0)).item() for _ in range(3)] == [3, 3, 3]
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # pickles by name, and runs this file again
        assert pool.map(step, [mgb.tensor(3.0)])[0].item() == 7
    open(sys.argv[1], "wb").write(cloudpickle.dumps(step))
"""


def test_functions_of_the_main_program_are_pickled_by_value(tmp_path: Path) -> None:
    """By name for who runs the program again, by value for others; kernels are compiled once on a machine."""
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = {**os.environ, "MGB_CACHE_DIR": str(tmp_path / "kernels")}
    run: dict[str, Any] = {
        "env": variables,
        "check": True,
        "timeout": 120,
        "capture_output": True,
        "text": True,
    }
    subprocess.run([sys.executable, str(tmp_path / "program.py"), str(tmp_path / "step")], **run)
    other = (
        "import pickle, sys, mgb; step = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print([step(mgb.tensor(1.0 * k)).item() for k in range(4)], step.__module__)\n"
        "print(*(step.stats()[name] for name in ('body_runs', 'kernel_compiles', 'kernel_disk_hits')))"
    )
    said = subprocess.run([sys.executable, "-c", other, str(tmp_path / "step")], **run).stdout
    assert said == "[1.0, 3.0, 5.0, 7.0] __main__\n1 0 1\n"
