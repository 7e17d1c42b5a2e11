"""The contract of a kernel, and of the backend's own description."""

from __future__ import annotations

import numpy as np
from mgb.backend import API_VERSION, Kernel
from mgb.ops.declare import OPS

from .cases import check, of, require, samples
from .drive import Driver


class TestContract:
    def test_it_can_run_here(self, driver: Driver) -> None:
        assert driver.backend.probe() is None

    def test_it_was_written_for_this_api(self, driver: Driver) -> None:
        assert driver.backend.traits.api_version == API_VERSION

    def test_its_version_is_the_same_each_time(self, driver: Driver) -> None:
        assert driver.backend.version() == driver.backend.version()

    def test_its_words_are_ops(self, driver: Driver) -> None:
        assert driver.backend.traits.vocabulary <= {*OPS, "const", "iota", "cast"}

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

    def test_a_kernel_can_be_run_again(self, driver: Driver) -> None:
        x = samples("float32", (1000,))
        graph = of(lambda x: x * x - x, x)
        first, second = check(driver, graph, [x])[0], check(driver, graph, [x])[0]
        assert np.array_equal(first, second)
