"""`mgb doctor` names what is wrong with a machine, with what mends it. Machines are made up."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pluggy
import pytest
from mgb import plugins
from mgb.backends import API_VERSION
from mgb.runtime import cache, entry_points
from mgb.tools import cli

PLUGIN = """
from mgb.backends import Backend, Kernel, Traits
from mgb.backends.plugins import hookimpl

class Mine(Backend):
    name = "mine"
    traits = Traits([], dtypes=["float32"], devices=["cpu"], priority=9, api_version={version})
    def probe(self):
        return {problem!r}
    def note(self):
        return {note!r}
    def compile(self, graph):
        return Kernel(lambda *arrays, out: None)

@hookimpl
def mgb_backend(name):
    return Mine() if name == "mine" else None
"""

Machine = Callable[..., tuple[int, str]]


def forget() -> None:
    for cached in (plugins._imported, plugins._chosen):
        cached.cache_clear()


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Machine]:
    """What `mgb doctor` says where this one plugin is installed beside the core, or none."""
    monkeypatch.setenv("COLUMNS", "400")  # no line is folded, whatever runs the tests
    monkeypatch.delenv("MGB_JIT_BACKEND", raising=False)
    monkeypatch.setenv("MGB_OP_LIBRARIES", "none")
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    manager = pluggy.PluginManager("mgb")
    manager.add_hookspecs(plugins.Hooks)
    manager.register(plugins._Builtin(), name="eager")
    monkeypatch.setattr(plugins, "manager", manager)

    def doctor(
        plugin: bool = True,
        version: int = API_VERSION,
        problem: str | None = None,
        note: str | None = None,
    ) -> tuple[int, str]:
        if plugin:
            source = PLUGIN.format(version=version, problem=problem, note=note)
            (tmp_path / "made_up_doctored.py").write_text(source)
            info = tmp_path / "mgb_mine-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mgb-mine\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text("[mgb.backends]\nmine = made_up_doctored\n")
        points = [p for d in distributions(path=[str(tmp_path)]) for p in d.entry_points]
        here = {p.name: {"mgb-mine": p} for p in points}
        monkeypatch.setattr(entry_points, "announced", lambda group: here if group == plugins.GROUP else {})
        forget()
        status = cli.main(["doctor"])
        return status, capsys.readouterr().out

    yield doctor
    forget()
    sys.modules.pop("made_up_doctored", None)
    if sys.modules.get("cupy", sys).__doc__ == "made_up":
        del sys.modules["cupy"]


def test_healthy_machine_reports_no_problem(machine: Machine, tmp_path: Path) -> None:
    status, text = machine()
    assert status == 0 and "wrong:" not in text
    for line in (r"device cpu", "mine: priority 9, the highest here", f"{tmp_path / 'cache'}: 0 kernels"):
        assert line in text
    assert f"of {os.cpu_count()} processors" in text and "MGB_OP_LIBRARIES" in text


def test_backend_that_equals_the_chosen_one_is_named_with_what_decides(machine: Machine) -> None:
    source = PLUGIN.replace("mine", "yours").format(version=API_VERSION, problem=None, note=None)
    module = types.ModuleType("made_up_yours")
    exec(source, module.__dict__)
    plugins.manager.register(module, name="yours")
    _, text = machine()
    assert "mine: priority 9, the highest here, as yours too; of equal ones names decide" in text


def test_missing_backend_is_reported(machine: Machine) -> None:
    status, text = machine(plugin=False)
    assert status == 1
    assert (
        'wrong: device cpu: no other backend runs here, so nothing is fused: pip install "mgb[cpu]"' in text
    )


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(API_VERSION + 1, "pip install --upgrade mgb"), (0, "pip install --upgrade mgb-mine")],
)
def test_plugin_of_another_api_version_is_reported(machine: Machine, version: int, remedy: str) -> None:
    status, text = machine(version=version)
    assert status == 1
    assert f"written for version {version} of the backend API" in text and f"{remedy}\n" in text


def test_unwritable_cache_is_reported(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "file"))
    status, text = machine()
    assert status == 1
    assert "wrong: cache: " in text and "set MGB_CACHE_DIR to a folder of your own, or MGB_CACHE=0" in text


def test_cache_of_another_user_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat("/").st_uid + 54321)
    status, text = machine()
    assert status == 1 and "belongs to another user; set MGB_CACHE_DIR" in text


def test_damaged_cache_is_reported(machine: Machine, tmp_path: Path) -> None:
    for key in ("aa11", "bb22"):
        cache.store("mine", key, b"code")
    path = tmp_path / "cache" / cache.SCHEMA / "mine" / "aa" / "aa11"
    path.write_bytes(path.read_bytes()[:-1])
    status, text = machine()
    assert status == 1 and f"wrong: cache: 1 damaged files in {tmp_path / 'cache'}: mgb cache clear" in text
    assert cache.clear() == 2 and cache.damaged() == 0


def test_backend_without_its_driver_is_reported(machine: Machine) -> None:
    status, text = machine(problem="there is no driver: apt install driver")
    assert status == 1 and "wrong: backend mine: there is no driver: apt install driver\n" in text


def test_backend_that_is_slow_here_is_reported(machine: Machine) -> None:
    status, text = machine(note="calls are slow: pip install fast")
    assert status == 1 and "wrong: backend mine: calls are slow: pip install fast\n" in text
    assert "mine: priority 9, the highest here" in text


def test_gpu_without_its_driver_is_reported(machine: Machine, tmp_path: Path) -> None:
    if "cupy" in sys.modules:
        pytest.skip("CuPy is imported, and cannot be played")
    (tmp_path / "cupy.py").write_text('"""made_up"""\nclass cuda:\n    is_available = staticmethod(bool)\n')
    status, text = machine()
    assert status == 1 and "install the driver of your GPU" in text and "nvidia-smi" in text
