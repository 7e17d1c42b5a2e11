"""The on-disk cache: a second process finds what the first compiled, and damage costs only time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ops.bodies.transcendental import tanh
from mgb.passes import lower

from .cases import of, require, samples
from .drive import Driver, is_announced

#: Compiles one kernel through the executor, and says how it was come by and what it gives.
SCRIPT = """
import json, sys
from mgb.executor import kernels
from mgb.backends.plugins import load_backend
from mgb_conformance.cases import of, samples
from mgb_conformance.drive import Driver
from mgb_conformance.test_cache import program
x, backend = samples("float32", (100,)), load_backend(sys.argv[1])
graph = of(program, x)
kernel = kernels.kernel_for(graph, backend)
out = Driver(backend).fill(kernel, graph, [x])
stats = kernels.stats()
print(json.dumps([stats.compiles, stats.disk_hits, [o.tobytes().hex() for o in out]]))
"""


def program(x: Any) -> list[Any]:
    return [tanh(x) * 0.5 + x, x * x]


class TestCache:
    def test_loaded_kernel_matches_the_saved_one(self, driver: Driver) -> None:
        graph, x, blob = self._saved(driver)
        loaded = driver.backend.load(lower(graph, driver.backend.traits), blob)
        first, second = driver.run(graph, [x]), driver.fill(loaded, graph, [x])
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))

    def test_second_process_loads_from_the_cache(self, driver: Driver, tmp_path: Path) -> None:
        self._saved(driver)
        first, second = self._process(driver, tmp_path), self._process(driver, tmp_path)
        assert first[:2] == [1, 0]
        assert second[:2] == [0, 1]
        assert first[2] == second[2]

    @pytest.mark.parametrize("damage", ["cut short", "a bit turned", "emptied"])
    def test_damaged_entry_is_recompiled(self, driver: Driver, tmp_path: Path, damage: str) -> None:
        self._saved(driver)
        first = self._process(driver, tmp_path)
        entries = [p for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith(".")]
        assert entries
        for entry in entries:
            entry.write_bytes(_damaged(entry.read_bytes(), damage))
        again = self._process(driver, tmp_path)
        assert again[:2] == [1, 0]
        assert again[2] == first[2]

    def _saved(self, driver: Driver) -> Any:
        x = samples("float32", (100,))
        graph = of(program, x)
        require(driver, graph)
        blob = driver.backend.save(driver.compile(graph))
        if blob is None:
            pytest.skip("Backend.save returns None: it keeps nothing on disk")
        return graph, x, blob

    def _process(self, driver: Driver, folder: Path) -> list[Any]:
        if not is_announced(driver.backend.name):
            pytest.skip("another process cannot find this backend")
        environment = os.environ | {config.CACHE_DIR.name: str(folder), config.CACHE.name: "1"}
        command = [sys.executable, "-c", SCRIPT, driver.backend.name]
        limit = 4 * driver.timeout
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout.splitlines()[-1]))


def _damaged(blob: bytes, damage: str) -> bytes:
    middle = len(blob) // 2
    return {
        "cut short": blob[:middle],
        "a bit turned": blob[:middle] + bytes([blob[middle] ^ 1]) + blob[middle + 1 :],
        "emptied": b"",
    }[damage]
