"""Large groups: many outputs, many inputs, deep chains, shared values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.bodies.floats import unlikely
from mgb.ops.bodies.transcendental import exp, sin, tanh
from mgb.ops.primitives import le, maximum, sqrt, where
from mgb.ops.reduce import reduce_max

from .cases import check, of, samples
from .drive import Driver


class TestFusion:
    def test_many_outputs(self, driver: Driver) -> None:
        x, y = samples("float32", (5, 40), 1), samples("float32", (40,), 2)

        def values(x: Any, y: Any) -> list[Any]:
            total = x + y
            return [total, total * x, total < 0, maximum(total, x), sin(total), x, y + 1]

        check(driver, of(values, x, y), [x, y])

    def test_outputs_of_many_dtypes(self, driver: Driver) -> None:
        x, n = samples("float32", (5, 40), 1), samples("int32", (5, 40), 2)
        check(driver, of(lambda x, n: [x * n, n + 1, x < n, where(n < 0, x, -x), n // 3], x, n), [x, n])

    def test_many_inputs(self, driver: Driver) -> None:
        count = min(120, driver.backend.traits.max_inputs)
        arrays = [samples("float32", (50,), seed) for seed in range(count)]
        check(driver, of(lambda *xs: sum(xs[1:], xs[0]), *arrays), arrays)

    def test_deep_chain(self, driver: Driver) -> None:
        x = samples("float32", (100,))

        def chain(x: Any) -> Any:
            for i in range(100):
                x = x * 0.75 + (i % 7) * 0.125
            return x

        check(driver, of(chain, x), [x])

    def test_shared_value_is_computed_once(self, driver: Driver) -> None:
        """Check that values are named: a printer that copies texts instead takes 2**32 steps."""
        x = np.linspace(-1, 1, 100, dtype=np.float32)

        def shared(x: Any) -> Any:
            for _ in range(32):
                x = x * x * 0.5 + x * 0.25
            return x

        check(driver, of(shared, x), [x])

    def test_chain_of_different_ops(self, driver: Driver) -> None:
        x, y = samples("float32", (7, 31), 1), samples("float32", (7, 1), 2)

        def network(x: Any, y: Any) -> Any:
            hidden = tanh(x * 0.5 + y)
            gate = 1 / (1 + exp(-hidden))
            return where(gate > 0.5, hidden * gate, sqrt(maximum(y, 0.0)) + hidden)

        check(driver, of(network, x, y), [x, y])

    def test_captured_constants_are_distinguished(self, driver: Driver) -> None:
        x = samples("float32", (4,))
        for value in (1.25, 2.5, -0.0, 0.0):
            check(driver, of(lambda x, v=value: x * v + v, x), [x])

    @pytest.mark.parametrize("where_it_holds", ["nowhere", "once", "in some", "everywhere"])
    @pytest.mark.parametrize("axis", [None, 0, 1])
    def test_unlikely_branches(self, driver: Driver, where_it_holds: str, axis: int | None) -> None:
        """Check values that only it needs, that others need too, that are results, and nested ones."""
        x = samples("float32", (37, 70), 1) % 1
        holds = {
            "nowhere": np.zeros(x.shape, bool),
            "once": np.arange(x.size).reshape(x.shape) == 1234,
            "in some": np.random.default_rng(3).random(x.shape) < 0.01,
            "everywhere": np.ones(x.shape, bool),
        }[where_it_holds]
        x = (x + 4 * holds).astype(np.float32)

        def values(x: Any) -> list[Any]:
            far = le(3, x)
            shared, alone = sqrt(x + 1), sqrt(x * x + 2)
            inner = unlikely(le(4.5, x), sqrt(alone + 3), alone * 0.5)
            first = unlikely(far, inner + shared, x * 2)
            second = unlikely(far, first - alone, shared - x)
            if axis is None:
                return [first, second, shared]
            scale = reduce_max(second, axis=(axis,))
            return [scale, first * scale, unlikely(le(3, scale), sqrt(scale), scale * 2) + x]

        check(driver, of(values, x), [x])
