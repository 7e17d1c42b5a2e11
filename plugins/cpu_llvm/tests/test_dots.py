"""Products with few terms whose second factor lies across the lanes: it is laid out once for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.backends.plugins import load_backend
from mgb.errors import BackendError
from mgb.jit import trace
from mgb_native import plan

R = np.random.default_rng(0)


def batch_t(x: Any) -> Any:
    """Return matrices transposed."""
    return x.transpose(0, 2, 1)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "with itself": (lambda a: a @ batch_t(a), [(30, 17, 16)]),
    "two": (lambda a, b: a @ batch_t(b), [(9, 20, 7), (9, 40, 7)]),
    "one for all": (lambda a, b: a @ b.T, [(500, 8), (300, 8)]),
    "one for all batches": (lambda a, b: a @ b[None].transpose(0, 2, 1), [(9, 20, 7), (70, 7)]),
    "heads": (lambda a: a.transpose(0, 2, 1, 3) @ a.transpose(0, 2, 3, 1), [(3, 50, 4, 12)]),
    "turned": (lambda a: a[:, ::-1] @ batch_t(a[:, :, ::-1]), [(12, 21, 9)]),
    "every other": (lambda a: a[:, ::2] @ batch_t(a[:, 1::2]), [(12, 22, 9)]),
    "both lie so": (lambda a, b: batch_t(a) @ batch_t(b), [(9, 7, 40), (9, 33, 7)]),
    "with work around it": (
        lambda a, m: np.tanh(a @ batch_t(a) * 0.3 + m) * m[:, :1], [(20, 33, 16), (20, 33, 33)]
    ),
    "and sums": (lambda a, b: (a @ batch_t(b)).sum(axis=1), [(9, 20, 7), (9, 40, 7)]),
    "and the largest": (lambda a, b: (a @ batch_t(b)).max(axis=2), [(9, 20, 7), (9, 1100, 7)]),
    "long": (lambda a, b: a @ batch_t(b), [(2, 5, 31), (2, 3000, 31)]),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu_llvm", "cpu_numba", "mlir"])
@pytest.mark.parametrize("name", CASES)
def test_values_match_numpy(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        load_backend(backend)
    except BackendError as error:
        pytest.skip(str(error))
    for constant in ("LINES", "ROW_LINES"):
        monkeypatch.setattr(plan, constant, 1 << 12)
    function, shapes = CASES[name]
    traced = trace(function, backend=backend)
    for dtype in ("float32", "float64"):
        for _ in range(3):  # other numbers at the same places
            arrays = [R.standard_normal(shape).astype(dtype) for shape in shapes]
            wanted = function(*[a.astype(np.float64) for a in arrays])
            found = traced(*[mgb.tensor(a, dtype=dtype) for a in arrays]).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 if dtype == "float32" else 1e-12)


def test_numbers_that_change_in_place_are_laid_out_again() -> None:
    traced = trace(lambda a: F.matmul(a, a.transpose(0, 2, 1)), backend="cpu_llvm")
    a = Tensor(np.zeros((6, 17, 16), np.float32))
    for k in range(4):
        a[...] = float(k)
        np.testing.assert_array_equal(traced(a).numpy(), np.full((6, 17, 17), 16.0 * k * k))
