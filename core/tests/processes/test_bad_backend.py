"""Backends and caches that are not what they should be, met from a trace and from a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from made_up_plugins import distribution, fresh  # noqa: F401 - fixtures
from mgb import errors, plugins, tensor
from mgb.backends import API_VERSION
from mgb.executor import kernels
from mgb.jit import trace
from mgb.runtime import cache

NAMES = {
    "nvrct": (errors.UnknownBackendError, r"'nvrct'; did you mean 'nvrtc'\? Installed: .*eager.*"
                                          r'pip install "mgb\[nvrtc\]"'),
    "FARAWAY": (errors.BackendNotInstalledError, r"'faraway' is not installed \(.*eager.* are\): "
                                                 r'pip install "mgb\[far\]"'),
    "zzz": (errors.UnknownBackendError, r"'zzz'\. Installed: .*eager.*pip install"),
}  # fmt: skip

BAD = {
    "broken": ({"source": "import ctypes\nctypes.CDLL('libnowhere.so.7')"},
               errors.BackendImportError,
               r"'broken' \(mgb-broken\) cannot be imported: OSError: libnowhere.*reinstall mgb-broken"),
    "syntax": ({"source": "def mgb_backend(:"}, errors.BackendImportError, "cannot be imported: SyntaxError"),
    "older": ({"version": API_VERSION - 1}, errors.BackendUnavailableError,
              rf"'older' \(mgb-older\).* version {API_VERSION - 1} .* version {API_VERSION}: "
              r"pip install --upgrade mgb-older$"),
    "newer": ({"version": API_VERSION + 1}, errors.BackendUnavailableError,
              rf"'newer' \(mgb-newer\).* version {API_VERSION + 1} .* version {API_VERSION}: "
              r"pip install --upgrade mgb$"),
    "versionless": ({"source": "from mgb.backends import Traits\nTraits(frozenset())"},
                    errors.BackendImportError, r"'versionless' \(mgb-versionless\).*'api_version'"),
    "misspelt": ({"words": ["mull"]}, errors.BackendContractError,
                 r"'misspelt' \(mgb-misspelt\): Traits.vocabulary has 'mull'; did you mean 'mul'\?"),
    "wrong_dtype": ({"dtypes": ["fp32"]}, errors.BackendContractError,
                    r"'wrong_dtype' \(mgb-wrong-dtype\): Traits.dtypes has 'fp32'; did you mean 'float32'"),
    "no_traits": ({"traits": "3"}, errors.BackendContractError,
                  r"'no_traits' \(mgb-no-traits\): its attribute `traits` is 3, not a Traits"),
    "wrong_probe": ({"problem": ["no compiler"]}, errors.BackendContractError,
                    r"probe\(\) of backend 'wrong_probe' gave \['no compiler'\], .* str or None"),
    "unable": ({"problem": "no compiler: apt install gcc"}, errors.BackendUnavailableError,
               "apt install gcc"),
}  # fmt: skip


def step(x):
    return (x * 2.0 + 1.0) * x


def check_others(monkeypatch):
    """Backends that have nothing to do with the bad one work in the same process."""
    for name in ("eager", "cpu_llvm"):
        if name in plugins.installed():
            monkeypatch.setenv("MGB_JIT_BACKEND", name)
            traced = trace(step, symbolic=True)
            assert traced(tensor([3.0])).item() == 21
            assert traced.backend == name


@pytest.mark.parametrize("name", NAMES)
def test_backend_name_that_is_not_installed_raises(name, monkeypatch):
    kind, text = NAMES[name]
    monkeypatch.setitem(plugins.EXTRAS, "faraway", "far")  # of those that are published some are installed
    traced = trace(step)
    monkeypatch.setenv("MGB_JIT_BACKEND", name)
    assert traced(tensor([3.0])).item() == 21  # the first call compiles nothing
    with pytest.raises(kind, match=text):
        traced(tensor([3.0]))
    with pytest.raises(kind, match=text):
        plugins.load_backend(name)
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")
    assert traced(tensor([3.0])).item() == 21
    check_others(monkeypatch)


@pytest.mark.parametrize("name", BAD)
def test_broken_backend_package_raises_and_is_reported(name, distribution, monkeypatch):  # noqa: F811
    fields, kind, text = BAD[name]
    distribution(name, dist=f"mgb-{name.replace('_', '-')}", **fields)
    monkeypatch.setenv("MGB_JIT_BACKEND", name.upper())
    traced = trace(step, symbolic=True)
    for _ in range(2):
        with pytest.raises(kind, match=text):
            traced(tensor([3.0]))
    assert next(line for line in plugins.status() if line.name == name).problem
    check_others(monkeypatch)
    assert traced(tensor([3.0])).item() == 21


def test_two_packages_with_one_backend_name_conflict(distribution, monkeypatch):  # noqa: F811
    distribution("mine", dist="mgb-mine")
    distribution("mine", dist="their-mine")
    monkeypatch.setenv("MGB_JIT_BACKEND", "mine")
    traced = trace(step, symbolic=True)
    with pytest.raises(errors.BackendUnavailableError, match=r"mgb-mine and by their-mine.*pip uninstall"):
        traced(tensor([3.0]))
    check_others(monkeypatch)


def test_unknown_name_in_a_backend_list_raises_without_fallback(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "eagre, eager")
    traced = trace(step, symbolic=True)
    with pytest.raises(errors.UnknownBackendError, match="did you mean 'eager'"):
        traced(tensor([3.0]))
    monkeypatch.setenv("MGB_JIT_BACKEND", " ,eager, ")
    assert traced(tensor([3.0])).item() == 21


# the on-disk cache

PROGRAM = """
import sys, warnings
warnings.simplefilter("always")
import numpy as np
from mgb import tensor
from mgb.executor import kernels
from mgb.jit import trace

@trace(symbolic=True)
def step(x):
    return (x * 2.0 + 1.0) * x

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for rows in (1, 2, 3):
        x = np.arange(rows * 2.0).reshape(rows, 2).astype("float32")
        assert (step(tensor(x)).numpy() == (x * 2 + 1) * x).all()
stats = kernels.stats()
print(stats.compiles > 0, stats.disk_hits > 0, [w.category.__name__ for w in caught])
"""

needs_cpu_llvm = pytest.mark.skipif("cpu_llvm" not in plugins.installed(), reason="needs mgb-cpu-llvm")


def run(folder, **more: str) -> str:
    """What `PROGRAM` prints in a process of its own, with its cache in `folder`."""
    environment = os.environ | {"MGB_JIT_BACKEND": "cpu_llvm", "MGB_CACHE_DIR": str(folder), **more}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@needs_cpu_llvm
def test_damaged_cache_entries_are_recompiled(tmp_path):
    assert run(tmp_path) == "True False []"
    for damage in (_truncate, _flip, lambda content: b""):
        entries = [p for p in (tmp_path / cache.SCHEMA).glob("*/??/*") if not p.name.startswith(".")]
        assert entries
        for entry in entries:
            entry.write_bytes(damage(entry.read_bytes()))
        assert run(tmp_path) == "True False []"
    assert run(tmp_path) == "False True []"


@needs_cpu_llvm
def test_file_in_place_of_the_cache_folder_warns_once(tmp_path):
    place = tmp_path / "cache"
    place.write_text("mine")
    assert run(place) == "True False ['CacheWarning']"
    assert place.read_text() == "mine"
    assert run(place / "below") == "True False ['CacheWarning']"


@needs_cpu_llvm
def test_cache_can_be_disabled(tmp_path):
    assert run(tmp_path / "cache", MGB_CACHE="0") == "True False []"
    assert not (tmp_path / "cache").exists()


def test_full_disk_warns_once(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_publish", full)
    with pytest.warns(errors.CacheWarning, match=r"No space left.*MGB_CACHE_DIR.*MGB_CACHE=0") as caught:
        for key in ("aa00", "bb00"):
            cache.store("mine", key, b"code")
    assert len(caught) == 1
    assert cache.load("mine", "aa00") is None


def test_unreadable_cache_entry_is_recompiled(tmp_path, monkeypatch):
    from mgb.backends.eager_backend import EagerBackend
    from mgb.ir import Spec
    from mgb.tensor.tracing import graph_of

    class Forgetful(EagerBackend):
        name = "forgetful"

        def save(self, kernel):
            return b"not what load wants"

        def load(self, graph, blob):
            raise EOFError("unexpected end")

    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path))
    graph = graph_of(lambda x: x * 2.0 + 1.0, Spec((3,), np.dtype(np.float32)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # another Backend object: as in another process
            kernel = kernels.kernel_for(graph, Forgetful())
            out = np.empty(3, np.float32)
            kernel.run(np.arange(3, dtype=np.float32), out=(out,))
            assert out.tolist() == [1, 3, 5]
    assert len([p for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith(".")]) == 1
