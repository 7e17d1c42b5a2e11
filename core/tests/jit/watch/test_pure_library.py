"""Functions and classes of Python's library and NumPy that leave a body pure, and are never stale."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace

#: What the bodies find outside.
S = SimpleNamespace(k=2)


def scaled(a: float, b: int = 2) -> None: ...


class Assigned:
    k: Any


def begin(self: Any, k: Any) -> None:
    self.k = k


Assigned.__init__ = begin  # type: ignore[misc, assignment]


def filled(x: Tensor) -> Tensor:
    array = np.empty((2, 2), np.float32)
    array[:] = S.k
    other = np.empty_like(array)
    other[...] = array + 1
    return x * array + other


PURE: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": filled,
    "outer": lambda x: x * np.add.outer(np.arange(2.0), [S.k, 1.0]).astype(np.float32),
    "generator of a seed": lambda x: x * np.random.default_rng(S.k).normal(size=(2, 2)).astype(np.float32),
    "bit generator": lambda x: x * np.random.Generator(np.random.PCG64(S.k)).random(),
    "date": lambda x: x * datetime.date(2020, 1, S.k).toordinal(),
    "date and time": lambda x: x * len(datetime.datetime(2020, 1, 2, S.k).isoformat()) * S.k,
    "decimal": lambda x: x * float(decimal.Decimal(f"1.{S.k}")),
    "hash": lambda x: x * int(hashlib.sha256(bytes([S.k])).hexdigest()[:4], 16),
    "signature": lambda x: x * len(inspect.signature(scaled).parameters) * S.k,
    "assigned __init__": lambda x: x * Assigned(S.k).k,
}


@pytest.mark.parametrize("name", PURE)
def test_body_is_skipped_and_never_stale(name: str) -> None:
    body, x = PURE[name], tensor(np.ones((2, 2), np.float32))
    S.k = 2
    traced = trace(body)
    for k in (2, 2, 2, 5, 5, 2):
        S.k = k
        np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())
    assert traced.stats()["body_runs"] <= 3, traced.stats()["reasons"]


CLOCKS: dict[str, Callable[[Tensor], Tensor]] = {
    "today": lambda x: x * datetime.date.today().day,
    "now": lambda x: x * datetime.datetime.now().second,
    "from a time stamp": lambda x: x * datetime.datetime.fromtimestamp(0).hour,
    "generator without a seed": lambda x: x * np.random.default_rng().normal(),
    "generator of None": lambda x: x * np.random.RandomState(None).normal(),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_clock_and_entropy_are_read_at_each_call(name: str) -> None:
    traced = trace(CLOCKS[name])
    for _ in range(4):
        traced(tensor(1.0))
    assert traced.stats()["body_runs"] == 4


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "with_getattr.py").write_text(
        "values = {'k': 2.0}\n\ndef __getattr__(name):\n"
        "    if name in values:\n        return values[name]\n    raise AttributeError(name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "with_getattr", raising=False)
    return importlib.import_module("with_getattr")


def test_getattr_of_a_module_is_watched(module: Any) -> None:
    traced = trace(lambda x: x * module.k)
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [2.0] * 3
    assert traced.stats()["body_runs"] == 1
    module.values["k"] = 3.0
    assert traced(tensor(1.0)).item() == 3.0
    module.k = 4.0
    assert traced(tensor(1.0)).item() == 4.0


def test_object_outside_given_to_an_assigned_init_is_a_side_effect() -> None:
    one = Assigned(1.0)

    def body(x: Tensor) -> Tensor:
        begin(one, one.k + 1)
        return x * one.k

    traced = trace(body)
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [2.0, 3.0, 4.0, 5.0]


def test_function_of_a_reloaded_module_is_watched_again(module: Any, tmp_path: Path) -> None:
    path = tmp_path / "with_getattr.py"
    path.write_text("k = 2.0\n\ndef scaled(x):\n    return x * k\n")
    importlib.reload(module)
    traced = trace(lambda x: module.scaled(x))
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [2.0] * 3
    path.write_text("k = 5.0\n\n\ndef scaled(x):\n    y = x * k\n    return y + 1\n")
    importlib.reload(module)
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [6.0] * 3
    module.k = 7.0
    assert traced(tensor(1.0)).item() == 8.0
    assert traced.stats()["body_runs"] <= 3
