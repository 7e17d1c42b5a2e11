"""The contract of a kernel, and of the backend's own description."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from mgb.backend import API_VERSION, Kernel

from .cases import check, of, require, samples
from .drive import Driver

#: Loads a backend in a core that has another version of the API from the start.
OTHER_CORE = """
import sys
from mgb import backend, errors, plugins
backend.API_VERSION = plugins.API_VERSION = backend.API_VERSION + 1
try:
    plugins.import_backend(sys.argv[1])
    print("accepted")
except errors.BackendVersionError:
    print("refused")
except (errors.UnknownBackendError, errors.BackendNotInstalledError):
    print("not found")
"""


class TestContract:
    def test_it_can_run_here(self, driver: Driver) -> None:
        assert driver.backend.probe() is None

    def test_the_version_of_its_api_is_its_own(self, driver: Driver) -> None:
        """With a core of another version it is refused: it does not say whatever that core's is."""
        command = [sys.executable, "-c", OTHER_CORE, driver.backend.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * driver.timeout)
        if done.stdout.strip() == "not found":
            pytest.skip("another process cannot find this backend")
        assert done.stdout.strip() == "refused", f"pass api_version={API_VERSION} to Traits{done.stderr}"

    def test_its_version_is_the_same_each_time(self, driver: Driver) -> None:
        assert driver.backend.version() == driver.backend.version()

    def test_it_returns_a_kernel_with_readable_source(self, driver: Driver) -> None:
        x = samples("float32", (5,))
        graph = of(lambda x: x * 2 + 1, x)
        require(driver, graph)
        kernel = driver.compile(graph)
        assert isinstance(kernel, Kernel)
        assert kernel.source.strip()

    def test_it_fills_its_outputs_and_nothing_else(self, driver: Driver) -> None:
        for size in (1, 7, 64, 1000):
            x, y = samples("float32", (size,), 1), samples("float32", (size,), 2)
            check(driver, of(lambda x, y: (x + y, x * y, x < y), x, y), [x, y])

    def test_an_output_may_be_the_memory_of_an_input(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        graph = of(lambda x, y: (x * y + 1, x - y, y), x, y)
        check(driver, graph, [x, y], over={0: 0})
        check(driver, graph, [x, y], over={1: 1, 0: 0})

    def test_a_small_output_may_be_the_memory_of_a_broadcast_input(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 50), 1), samples("float32", (50,), 2)
        check(driver, of(lambda x, y: (x * y, y * 0.5), x, y), [x, y], over={1: 1})

    def test_an_input_and_a_constant_may_be_outputs(self, driver: Driver) -> None:
        x = samples("float32", (40,))
        check(driver, of(lambda x: (x, x + 1, x), x), [x])

    def test_results_are_arrays_of_their_own(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        graph = of(lambda x, y: (x * y + 1, x < y, y, y), x, y)
        require(driver, graph)
        kernel = driver.compile(graph)
        if kernel.results is None:
            pytest.skip("traits.hands_over is False")
        found, wanted = kernel.results(x, y), driver.run(graph, [x, y])
        assert len(found) == len(wanted)
        for k, (array, want) in enumerate(zip(found, wanted, strict=True)):
            assert (array.shape, array.dtype) == (want.shape, want.dtype)
            assert array.flags.c_contiguous and array.flags.writeable
            assert np.array_equal(array, want)
            assert not any(np.shares_memory(array, other) for other in (x, y, *found[:k]))

    def test_a_kernel_can_be_run_again(self, driver: Driver) -> None:
        x = samples("float32", (1000,))
        graph = of(lambda x: x * x - x, x)
        first, second = check(driver, graph, [x])[0], check(driver, graph, [x])[0]
        assert np.array_equal(first, second)
