"""Modules have short public names, and for one release those of before."""

from __future__ import annotations

import importlib
import pickle
import sys

import mgb
import pytest
from mgb import errors
from mgb.runtime.aliases import Aliases


@pytest.mark.parametrize("name", sorted(mgb._PUBLIC))
def test_public_name_gives_the_module_itself(name: str) -> None:
    found, there = importlib.import_module(f"mgb.{name}"), importlib.import_module(f"mgb.{mgb._PUBLIC[name]}")
    assert found is there is getattr(mgb, name)
    assert there.__name__ == there.__spec__.name == f"mgb.{mgb._PUBLIC[name]}"


@pytest.mark.parametrize("name", sorted(mgb._MOVED))
def test_former_name_warns_and_gives_the_module_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"mgb.{name}", raising=False)
    with pytest.warns(DeprecationWarning, match=rf"mgb\.{name} is mgb\.{mgb._MOVED[name]} now") as told:
        found = importlib.import_module(f"mgb.{name}")
    assert found is importlib.import_module(f"mgb.{mgb._MOVED[name]}")
    assert told[0].filename == importlib.__file__  # whoever imports


@pytest.mark.parametrize("name, former", [(n, f) for n, fs in errors._FORMER.items() for f in fs.split()])
def test_former_error_warns_and_is_what_replaced_it(name: str, former: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"mgb\.errors\.{former} is {name} now"):
        assert getattr(errors, former) is getattr(errors, name)
    assert former not in dir(errors)


def test_modules_below_a_former_name_are_not_loaded_twice() -> None:
    with pytest.warns(DeprecationWarning):
        found = importlib.import_module("mgb.sizes.lengths")
    assert found is importlib.import_module("mgb.ir.sizes.lengths")


def test_class_is_unpickled_by_a_former_name() -> None:
    from mgb.storage.limits import LoadLimits

    text = pickle.dumps(LoadLimits, protocol=0).replace(b"mgb.storage.limits", b"mgb.limits")
    sys.modules.pop("mgb.limits", None)
    with pytest.warns(DeprecationWarning):
        assert pickle.loads(text) is LoadLimits


def test_other_names_are_nobodys() -> None:
    finder = Aliases("mgb", {}, {})
    assert finder.find_spec("mgb.nothing") is None and finder.find_spec("other.cli") is None
    with pytest.raises(ModuleNotFoundError, match=r"mgb\.nothing"):
        importlib.import_module("mgb.nothing")
