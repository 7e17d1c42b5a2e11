"""As core/tests/jit/trace/test_halves.py, at every 16-bit number and many pairs, on the CPU backends here."""

from __future__ import annotations

import numpy as np
import pytest
from half_scan import EITHER_ZERO, EXACT, both, difference, dtype_of, ops, scanned
from mgb import plugins
from mgb.tensor.apply import apply

BACKENDS = [name for name in ("cpu_llvm", "cpu_numba", "mlir", "halide") if name in plugins.installed()]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_unary_ops_at_every_number(backend: str, dtype: str) -> None:
    x, found = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype)), list(ops(dtype_of(dtype), 1))
    pairs = both(lambda x: [apply(op, x) for op in found], [x], backend)
    texts = {
        op.name: difference(*pair, [x], int(op.name not in EXACT), op.name not in EITHER_ZERO)
        for op, pair in zip(found, pairs, strict=True)
    }
    assert not {name: text for name, text in texts.items() if text}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_at_special_numbers_and_many_others(backend: str, count: int, dtype: str) -> None:
    assert not scanned(dtype_of(dtype), count, 0 if dtype == "float32" else 20000, backend)
