"""Distributions with a backend each, made up for a test: `distribution` installs one."""

from __future__ import annotations

import sys

import pytest
from mgb import plugins
from mgb.backends import API_VERSION
from mgb.runtime.entry_points import scanned

PLUGIN = """
from mgb.backends import Backend, Kernel, Traits
from mgb.backends.plugins import hookimpl

class Mine(Backend):
    name = {name!r}
    traits = {traits} or Traits(
        {words!r}, dtypes={dtypes!r}, devices={devices!r}, priority={priority}, api_version={version}
    )
    def probe(self):
        return {problem!r}
    def compile(self, graph):
        return Kernel(lambda *arrays, out: None)

@hookimpl
def {hook}(name):
    return Mine() if name == {name!r} else None
"""

DEFAULTS = {
    "traits": "None",
    "words": [],
    "dtypes": ["float32"],
    "devices": ["cpu"],
    "priority": 5000,
    "version": API_VERSION,
    "problem": None,
    "hook": "mgb_backend",
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A folder for distributions, and the plugin manager as it was, afterwards."""
    monkeypatch.delenv("MGB_JIT_BACKEND", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "manager", new_manager())
    forget()
    yield
    forget()
    for module in [m for m in sys.modules if m.startswith("made_up_")]:
        del sys.modules[module]


def new_manager():
    import pluggy

    manager = pluggy.PluginManager("mgb")
    manager.add_hookspecs(plugins.Hooks)
    manager.register(plugins._Builtin(), name="eager")
    return manager


def forget():
    for cached in (plugins._imported, scanned, plugins._chosen):
        cached.cache_clear()


@pytest.fixture
def distribution(tmp_path):
    """Install a made-up distribution with one backend."""

    def install(name, dist=None, source=PLUGIN, entry=None, **fields):
        dist = dist or f"mgb-{name}"
        module = "made_up_" + dist.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source.format(**(DEFAULTS | {"name": name} | fields)))
        info = tmp_path / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[mgb.backends]\n{entry or name} = {module}\n")
        forget()
        return module

    return install
