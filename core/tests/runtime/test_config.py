"""Environment variables: what they may hold, and errors that name them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mgb import config, memory, plugins
from mgb.backends import MOST_THREADS, num_threads
from mgb.errors import VariableError
from mgb.runtime import cache
from mgb.tools import doctor

SWITCHES = (config.AUTO, config.CACHE, config.VERIFY)


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), (" 7 ", 7), ("1_000", 1000), ("1e3", 1000), ("2.0", 2), (str(10**18 + 1), 10**18 + 1)],
)
def test_integer_variables_are_parsed(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", text)
    assert config.POOL_BYTES.whole() == number


@pytest.mark.parametrize("text", ["abc", "1.5", "-1", "inf", "nan", "1e30", "0x10", "9" * 5000, " "])
@pytest.mark.parametrize("variable", [config.NUM_THREADS, config.POOL_BYTES], ids=lambda v: v.name)
def test_invalid_number_is_rejected_with_the_variable_name(
    variable: config.Variable, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.empty_cache()  # a buffer that is free is handed out without a look at the limit
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(VariableError, match=f"{variable.name}=.*a whole number of at least"):
        num_threads() if variable is config.NUM_THREADS else memory.empty((1 << 20,), np.dtype("u1"))


def test_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in config.VARIABLES:
        monkeypatch.setenv(variable.name, "")
        assert variable.get() == variable.default
    assert num_threads() == len(os.sched_getaffinity(0))
    assert memory.empty((1 << 20,), np.dtype("u1")).shape == (1 << 20,)


def test_thread_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "1e9")
    assert num_threads() == MOST_THREADS
    monkeypatch.setenv("MGB_NUM_THREADS", "0")
    with pytest.raises(VariableError, match="at least 1, or unset MGB_NUM_THREADS"):
        num_threads()


def test_allocation_works_after_an_invalid_pool_size(monkeypatch: pytest.MonkeyPatch) -> None:
    size = (3 << 20) + 4096
    before = memory.stats()
    monkeypatch.setenv("MGB_POOL_BYTES", "a gigabyte")
    with pytest.raises(VariableError, match="MGB_POOL_BYTES='a gigabyte'"):
        memory.trim()
    memory.empty_cache()
    with pytest.raises(VariableError, match="MGB_POOL_BYTES='a gigabyte'"):
        memory.empty((size,), np.dtype("u1"))
    assert memory.stats().misses == before.misses
    monkeypatch.delenv("MGB_POOL_BYTES")
    assert memory.empty((size,), np.dtype("u1")).nbytes == size


@pytest.mark.parametrize("variable", SWITCHES, ids=lambda v: v.name)
def test_boolean_variables_are_parsed(variable: config.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("1", "true", "Yes", " on "):
        monkeypatch.setenv(variable.name, text)
        assert variable.on()
    for text in ("0", "false", "No", "off"):
        monkeypatch.setenv(variable.name, text)
        assert not variable.on()
    monkeypatch.setenv(variable.name, "yess")
    with pytest.raises(VariableError, match=f"{variable.name}='yess'.*1 or 0"):
        variable.on()


def test_folder_of_an_unknown_user_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_CACHE_DIR", "~nobody_of_this_name/cache")
    with pytest.raises(VariableError, match=r"MGB_CACHE_DIR=.*a folder"):
        cache.folder()


def test_import_error_names_the_variable() -> None:
    environment = {**os.environ, "MGB_JIT_AUTO": "maybe"}
    command = [sys.executable, "-c", "import mgb"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "MGB_JIT_AUTO='maybe'" in ran.stderr.splitlines()[-1]


def test_each_variable_that_the_sources_name_is_listed() -> None:
    """A backend says in `variables` what it reads; what tests and other programs are told is none."""
    root = Path(config.__file__).parents[3]
    named = {
        name
        for folder in ("core/mgb", "plugins")
        for path in (root / folder).rglob("*.py")
        if not {"tests", "testing"} & {*path.parts}
        for name in re.findall(r'Variable\(\s*"(MGB_\w+)"|environ(?:\.get\(|\[)"(MGB_\w+)"', path.read_text())
        for name in name
        if name
    }
    listed = {variable.name for variable in config.VARIABLES}
    stated = {"MGB_HALIDE_SCHEDULE", "MGB_MLIR_STOP", "MGB_TRITON_MATMUL", "MGB_TRITON_PRECISION"}
    assert named == listed | stated | {"MGB_TRITON_TUNE", "MGB_XLA_DONATE"}
    assert "MGB_RUN_BODY" in listed


def test_listing_has_the_variables_of_installed_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = config.Variable("MGB_MINE", "", "of a backend")
    monkeypatch.setattr(type(plugins.import_backend("eager")), "variables", (mine,))
    found = doctor.variables()
    assert found[: len(config.VARIABLES)] == [*config.VARIABLES] and found.count(mine) == 1
