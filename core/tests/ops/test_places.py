"""Places among more elements than int32 counts are int64, and int32 otherwise, as in MegEngine."""

from __future__ import annotations

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import dtypes
from mgb.ir import Spec
from mgb.jit import trace
from mgb.ops.declare import OPS, op_of
from mgb.ops.order import searchsorted_

ROW = np.random.default_rng(3).normal(size=(3, 700)).astype(np.float32)
ROW[2].sort()


@pytest.mark.parametrize("length, dtype", [(2**31, np.int32), (2**31 + 1, np.int64)])
def test_places_have_64_bits_as_soon_as_32_are_too_few(length, dtype):
    row, few = Spec((2, length), dtypes.int8), Spec((3,), dtypes.int8)
    for name in ("argmax", "argmin"):
        assert OPS[name].infer(row, axis=(1,)).dtype == dtype
        assert OPS[name].infer(row, axis=(0,)).dtype == np.int32
    assert OPS["argsort"].infer(row, axis=1, descending=False).dtype == dtype
    assert OPS["argtopk"].infer(row, k=3, axis=1, descending=False).dtype == dtype
    assert op_of(searchsorted_).infer(Spec((length - 1,), dtypes.int8), few, right=False).dtype == dtype


FUNCTIONS = {
    "argmax": (lambda x: F.argmax(x, axis=1), lambda x: x.argmax(1)),
    "argmin": (lambda x: F.argmin(x), lambda x: x.argmin()),
    "argsort": (lambda x: F.argsort(x), lambda x: np.argsort(x, kind="stable")),
    "descending": (lambda x: F.argsort(x, descending=True), lambda x: np.argsort(-x, kind="stable")),
    "topk": (lambda x: F.topk(x, 5)[1], lambda x: np.argsort(-x, kind="stable")[:, :5]),
    "nonzero": (lambda x: F.nonzero(x > 0)[1], lambda x: np.nonzero(x > 0)[1]),
    "searchsorted": (lambda x: np.searchsorted(x[2], x[1]), lambda x: np.searchsorted(x[2], x[1])),
}  # fmt: skip


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("bound, dtype", [(699, np.int64), (2**31, np.int32)])
def test_places_of_either_width_are_numpys(monkeypatch, name, bound, dtype, traced):
    monkeypatch.setattr(dtypes, "PLACES", bound)
    ours, numpys = FUNCTIONS[name]
    call = trace(ours) if traced else ours
    for _ in range(3 if traced else 1):
        got = call(mgb.tensor(ROW))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.numpy(), numpys(ROW))
