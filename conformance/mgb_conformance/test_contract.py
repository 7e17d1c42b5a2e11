"""The contract of a kernel, and of the backend's own description."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb.backends import API_VERSION, Kernel, Specialize
from mgb.ir import Spec
from mgb.ir.sizes import Lengths, Sizes
from mgb.ops.primitives import iota
from mgb.passes import lower
from mgb.tensor.tracing import graph_of

from .cases import check, of, require, samples
from .drive import Driver
from .judge import judge, problem

#: Loads a backend in a core that has another version of the API from the start.
OTHER_CORE = """
import sys
from mgb import backends, errors
from mgb.backends import backend, plugins
newest = backends.API_VERSION + 1
for module in (backends, backend, plugins):
    module.API_VERSION = module.OLDEST_API_VERSION = newest
try:
    plugins.import_backend(sys.argv[1])
    print("accepted")
except errors.BackendUnavailableError:
    print("refused")
except (errors.UnknownBackendError, errors.BackendNotInstalledError):
    print("not found")
"""


def placed(lengths: tuple[Any, ...]) -> Callable[[Any, Any], Any]:
    """Return a function whose graph has these lengths as a parameter."""
    return lambda x, y: (x + iota(shape=lengths, dtype=np.dtype(np.float32))) * y


class TestContract:
    def test_probe_finds_the_backend_usable(self, driver: Driver) -> None:
        assert driver.backend.probe() is None

    def test_api_version_is_declared_by_the_backend(self, driver: Driver) -> None:
        """Check that a backend names its version: a core of another one rejects it."""
        command = [sys.executable, "-c", OTHER_CORE, driver.backend.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * driver.timeout)
        if done.stdout.strip() == "not found":
            pytest.skip("another process cannot find this backend")
        assert done.stdout.strip() == "refused", f"pass api_version={API_VERSION} to Traits{done.stderr}"

    def test_version_is_the_same_each_time(self, driver: Driver) -> None:
        assert driver.backend.version() == driver.backend.version()

    def test_compile_returns_a_kernel_with_readable_source(self, driver: Driver) -> None:
        x = samples("float32", (5,))
        graph = of(lambda x: x * 2 + 1, x)
        require(driver, graph)
        kernel = driver.compile(graph)
        assert isinstance(kernel, Kernel)
        assert kernel.text.strip()

    def test_kernel_writes_only_its_outputs(self, driver: Driver) -> None:
        for size in (1, 7, 64, 1000):
            x, y = samples("float32", (size,), 1), samples("float32", (size,), 2)
            check(driver, of(lambda x, y: (x + y, x * y, x < y), x, y), [x, y])

    def test_output_may_alias_an_input(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        graph = of(lambda x, y: (x * y + 1, x - y, y), x, y)
        check(driver, graph, [x, y], over={0: 0})
        check(driver, graph, [x, y], over={1: 1, 0: 0})

    def test_small_output_may_alias_a_broadcast_input(self, driver: Driver) -> None:
        x, y = samples("float32", (6, 50), 1), samples("float32", (50,), 2)
        check(driver, of(lambda x, y: (x * y, y * 0.5), x, y), [x, y], over={1: 1})

    def test_input_may_be_an_output(self, driver: Driver) -> None:
        x = samples("float32", (40,))
        check(driver, of(lambda x: (x, x + 1, x), x), [x])

    def test_results_are_separate_arrays(self, driver: Driver) -> None:
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

    def test_kernel_runs_at_other_sizes(self, driver: Driver) -> None:
        backend = driver.backend
        if backend.traits.specialize is not Specialize.SIZES:
            pytest.skip("traits.specialize is not Specialize.SIZES")
        sizes = Sizes((6, 50), prints=True)
        specs = [Spec(shape, np.dtype(np.float32)) for shape in (sizes.letters, sizes.letters[1:])]
        graph = graph_of(placed(sizes.letters), *specs)
        require(driver, graph)
        kernel = backend.compile(lower(graph, backend.traits))
        sizes.close()
        assert not sizes.guards
        assert kernel.at is not None
        for lengths in ((6, 50), (7, 31), (1, 3)):
            x, y = samples("float32", lengths, 1), samples("float32", lengths[1:], 2)
            out = (driver.place.put(np.empty(lengths, np.float32)),)
            kernel.at(Lengths(sizes, lengths))(*map(driver.place.put, (x, y)), out=out)
            (want,) = judge(of(placed(lengths), x, y), [x, y], backend.traits.denormals)
            assert problem(driver.place.get(out[0]), want) is None

    def test_kernel_can_be_run_again(self, driver: Driver) -> None:
        x = samples("float32", (1000,))
        graph = of(lambda x: x * x - x, x)
        first, second = check(driver, graph, [x])[0], check(driver, graph, [x])[0]
        assert np.array_equal(first, second)
