"""16-bit floats: a kernel of several ops rounds each result, as NumPy does op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import dtypes

from .cases import of, require, samples
from .drive import Driver

Chain = Callable[[Any, Any, Callable[[float], Any]], Any]

#: Functions of Tensors or of NumPy's arrays, which would give another result if they rounded less; the third
#: operand makes numbers.
CHAINS: dict[str, Chain] = {
    "back and forth": lambda x, y, of: (x * of(3)) / of(3) - y,
    "what a sum loses": lambda x, y, _of: (x + y) - x,
    "sum of products": lambda x, y, _of: x * y + x * x,
    "overflow": lambda x, y, of: (x * of(30000)) / of(30000) + y,
}


class TestHalves:
    @pytest.mark.parametrize("dtype", [d.name for d in dtypes.HALVES])
    @pytest.mark.parametrize("chain", CHAINS)
    def test_each_result_is_rounded(self, driver: Driver, dtype: str, chain: str) -> None:
        x, y = samples(dtype, (3, 500), seed=1), samples(dtype, (3, 500), seed=2)
        graph = of(lambda x, y: CHAINS[chain](x, y, float), x, y)
        require(driver, graph)
        with np.errstate(all="ignore"):
            expected = CHAINS[chain](x, y, x.dtype.type)
        (got,) = driver.run(graph, [x, y])
        assert got.dtype == expected.dtype == dtypes.as_dtype(dtype)
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))
