"""What counts as the library's code: installed plugins do, a user's module of such a name does not."""

import importlib
import importlib.util

import numpy as np
import pytest
from mgb import tensor
from mgb.optimizer import SGD, Adam
from mgb.plugins import installed
from mgb.trusted import is_plugins, plugin_folders

SOURCE = """
import mgb


def parameters():
    yield mgb.Parameter([1.0])
    raise LookupError("_mine")

class Shape:
    def __index__(self):
        raise ZeroDivisionError("_mine")"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mgb_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("mgb_mine")


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1), lambda p: Adam(p, lr=0.1)])
def test_error_of_a_users_module_called_like_a_plugin_is_left_alone(make, mine):
    with pytest.raises(LookupError, match="_mine") as caught:
        make(mine.parameters())
    assert type(caught.value) is LookupError


def test_errors_of_its_methods_are_left_alone(mine):
    from mgb import functional as F

    with pytest.raises(ZeroDivisionError, match="_mine"):
        F.topk(tensor([1.0, 2.0]), mine.Shape())


def test_plugins_that_are_installed_are_trusted_and_other_folders_are_not(tmp_path, mine):
    names = {f"mgb_{name}" for name in installed() if importlib.util.find_spec(f"mgb_{name}")}
    for name in names:
        assert is_plugins(importlib.util.find_spec(name).origin), name
    assert len(plugin_folders()) >= len(names)
    assert not is_plugins(mine.__file__)
    assert not is_plugins(str(tmp_path / "mgb_cpu_llvm" / "__init__.py"))
    assert not is_plugins(np.__file__)
