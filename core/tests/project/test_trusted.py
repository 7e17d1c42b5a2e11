"""What counts as the library's code: installed plugins do, a user's module of such a name does not."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import mgb
import numpy as np
import pytest
from mgb import tensor
from mgb.backends.plugins import installed
from mgb.jit import trace
from mgb.optimizer import SGD, Adam
from mgb.runtime.entry_points import scanned
from mgb.runtime.trusted import PYTHON, is_library, is_plugins, is_python, plugin_folders

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


#: A module of a user's, as it may stand anywhere.
PROJECT = """
factor = 1.0


class Shape:
    size = 2.0


def scale(shape, x):
    return x * shape.size * factor
"""


def trained(module):
    """What calls give before and after what they read has changed, and how often the body ran."""
    f, x = trace(module.scale), tensor(1.0)
    found = [f(module.Shape(), x).item() for _ in range(3)]
    module.factor = 3.0
    found += [f(module.Shape(), x).item()]
    module.Shape.size = 5.0
    return [*found, f(module.Shape(), x).item()], f.stats()["body_runs"]


@pytest.mark.parametrize(
    "place", ["mgb_something/mine.py", "mgb/mine.py", "site-packages/mine.py", "sched.py"]
)
def test_users_code_is_watched_wherever_it_lies_and_whatever_it_is_called(place, tmp_path, monkeypatch):
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(PROJECT)
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    module = importlib.import_module(file.stem)
    try:
        assert module.__file__ == str(file)
        assert not is_library(module.__name__)
        assert trained(module) == ([2.0, 2.0, 2.0, 6.0, 15.0], 3)
    finally:
        del sys.modules[file.stem]


def test_messages_name_the_line_of_a_project_beside_the_package(tmp_path):
    (tmp_path / "mgb").symlink_to(Path(mgb.__file__).parent)
    file = tmp_path / "mgb_something" / "train.py"
    file.parent.mkdir()
    file.write_text(
        "import mgb, mgb.functional as F\n"
        "def step(x):\n"
        "    return F.reshape(x, (5,))\n"
        "try:\n"
        "    mgb.jit.trace(step)(mgb.tensor([1.0]))\n"
        "except mgb.errors.ShapeError as error:\n"
        "    print(mgb.__file__, error)\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith(str(tmp_path / "mgb" / "__init__.py")), done
    assert f"{file}:3" in done.stdout


def test_function_that_is_evaluated_is_no_named_tuple():
    space = {"factor": 2.0}
    exec("def double(_cls): return _cls * factor", space)
    f = trace(space["double"])
    assert [f(tensor(1.0)).item() for _ in range(3)] == [2.0] * 3
    space["factor"] = 3.0
    assert f(tensor(1.0)).item() == 3.0


def test_library_of_python_is_what_lies_in_its_folder():
    assert is_python(json.__file__) and is_python("<frozen os>")
    assert is_library("json.decoder") and is_library("mgb.jit") and is_library("numpy.linalg")
    assert is_library("_sre") and not is_library("__main__") and not is_library(None)
    assert not any(map(is_python, (np.__file__, pytest.__file__, mgb.__file__, __file__)))
    assert not is_python(f"{PYTHON[:-1]}-projects/mine.py")


@pytest.fixture
def announced(tmp_path, monkeypatch):
    """An installed distribution that announces a plugin, and a folder that none does."""
    for package in ("acme_backend", "mgb_acme"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    about = tmp_path / "acme_backend-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-backend\nVersion: 1.0\nRequires-Dist: mgb-that-is-nowhere\n"
    )
    (about / "entry_points.txt").write_text("[mgb.backends]\nacme = acme_backend:PLUGIN\n")
    monkeypatch.syspath_prepend(tmp_path)
    for known in (scanned, plugin_folders, is_plugins):
        known.cache_clear()
    yield tmp_path
    for known in (scanned, plugin_folders, is_plugins):
        known.cache_clear()


def test_plugin_is_what_a_distribution_announces(announced):
    assert is_plugins(str(announced / "acme_backend" / "codegen" / "text.py"))
    assert not is_plugins(str(announced / "acme_backend_of_mine" / "text.py"))
    assert not is_plugins(str(announced / "mgb_acme" / "text.py"))
    assert not is_plugins(str(announced / "mgb_that_is_nowhere" / "text.py"))
