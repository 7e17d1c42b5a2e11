"""`dir` of each public module shows what is public and nothing else."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import mgb
import pytest

MODULES = sorted(
    {"mgb"}
    | {f"mgb.{name}" for name in dir(mgb) if isinstance(getattr(mgb, name), ModuleType)}
    | {f"mgb.functional.{name}" for name in ("nn", "loss", "distributed")}
    | {"mgb.distributed.functional", "mgb.module.init", "mgb.numpy.linalg", "mgb.transforms"}
)


def home(value: Any) -> str:
    """The package that a thing belongs to; a plain value belongs to whoever shows it."""
    if isinstance(value, ModuleType):
        return value.__name__
    is_named = isinstance(value, type) or (callable(value) and hasattr(value, "__module__"))
    return value.__module__ if is_named else "mgb"


@pytest.mark.parametrize("name", MODULES)
def test_dir_of_a_module_lists_only_public_names(name: str) -> None:
    module = importlib.import_module(name)
    shown = dir(module)
    assert len(shown) == len(set(shown)) and not {"annotations", "Any", "np"} & set(shown)
    listed = getattr(module, "__all__", None)
    if name == "mgb":
        listed = [*listed, *mgb._SUBMODULES, *mgb._ELSEWHERE]
    assert listed is None or set(shown) == set(listed)
    foreign = {n: home(getattr(module, n)) for n in shown if not n.startswith("__")}
    assert all(package.partition(".")[0] in ("mgb", "pluggy") for package in foreign.values()), foreign


def test_dir_of_functional_lists_all_its_functions() -> None:
    """Also what a module adds that is new in it."""
    made = {n: v for n, v in vars(mgb.functional).items() if callable(v) and not n.startswith("_")}
    assert set(made) <= set(dir(mgb.functional))


def test_checked_modules_include_the_main_ones() -> None:
    assert {"mgb.functional", "mgb.random", "mgb.jit", "mgb.module", "mgb.linalg"} <= set(MODULES)
    assert "normal" in dir(mgb.random) and "shr" not in dir(mgb.random) and "Any" not in dir(mgb)
    assert "bool_" in dir(mgb.dtypes) and {"ShapeError", "LinAlgError"} <= set(dir(mgb.errors))
