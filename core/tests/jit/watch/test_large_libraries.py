"""A body that meets objects of a large library takes no longer for it, and is never stale."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mgb import tensor
from mgb.jit import trace
from work import python_calls_of

METHOD = '''
    def method_{n}(self, x):
        """One of many."""
        total = [self.scale for _ in range({n})]
        return x * self.scale + sum(total) * {n}
'''


def library(folder: Path, name: str, methods: int) -> Any:
    """A module of a class with so many methods."""
    head = "class Large:\n    def __init__(self):\n        self.scale = 2.0\n"
    text = head + "".join(METHOD.format(n=n) for n in range(methods))
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if _is_in(module, tmp_path)]:
        del sys.modules[name]


def _is_in(module: Any, folder: Path) -> bool:
    return str(getattr(module, "__file__", "")).startswith(str(folder))


def test_first_call_takes_work_linear_in_the_methods_of_a_class(folder: Path) -> None:
    def work(methods: int) -> int:
        one = library(folder, f"large_{methods}", methods).Large()
        traced = trace(lambda x: one.method_0(x))
        return python_calls_of(lambda: traced(tensor(1.0)))

    work(3)
    assert work(80) < 2.5 * work(40)


@pytest.mark.parametrize("methods", [40, 2000])
def test_body_with_a_large_object_is_never_stale(folder: Path, methods: int) -> None:
    one = library(folder, f"stale_{methods}", methods).Large()
    traced = trace(lambda x: one.method_3(x))
    for scale in (2.0, 2.0, 2.0, 5.0, 2.0):
        one.scale = scale
        assert traced(tensor(1.0)).item() == one.method_3(1.0)
    assert traced.stats()["body_runs"] <= 3


def test_work_of_the_first_call_is_bounded(folder: Path) -> None:
    def work(methods: int) -> int:
        one = library(folder, f"bounded_{methods}", methods).Large()
        traced = trace(lambda x: x * len(str(one.scale)))
        count = python_calls_of(lambda: traced(tensor(1.0)))
        assert traced(tensor(1.0)).item() == 3.0 and traced.stats()["body_runs"] == 1
        return count

    work(3)
    few, many = work(1000), work(2000)
    assert many < 1.5 * few
