"""The judge accepts results within its bounds and rejects others."""

from __future__ import annotations

import numpy as np
import pytest
from mgb.ops.declare import OPS
from mgb.tensor.apply import apply
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem


def is_let_pass(name: str, x: float, got: float, denormals: bool) -> bool:
    """Is `got` taken for the value of an op at `x`, in float32?"""
    array = np.array([x], np.float32)
    (want,) = judge(of(lambda x: [apply(OPS[name], x)], array), [array], denormals)
    return problem(np.array([got], np.float32), want) is None


@pytest.mark.parametrize(("name", "ufunc"), [("cbrt", np.cbrt), ("log2", np.log2), ("sqrt", np.sqrt)])
def test_subnormal_may_be_flushed_unless_denormals_are_claimed(name: str, ufunc: np.ufunc) -> None:
    with np.errstate(divide="ignore"):
        right, flushed = (float(ufunc(np.float64(x))) for x in (np.float32(1e-40), 0))
    for denormals in (True, False):
        assert is_let_pass(name, 1e-40, right, denormals)
        assert is_let_pass(name, 1e-40, flushed, denormals) is not denormals


def test_cbrt_of_subnormal_with_wrong_sign_is_rejected() -> None:
    assert not is_let_pass("cbrt", 1e-40, -5.6e-16, False) and not is_let_pass("cbrt", -1e-40, 5.6e-16, False)


@pytest.mark.parametrize("name", ["sin", "tanh", "erf", "expm1", "log1p", "asinh", "cbrt"])
@pytest.mark.parametrize("denormals", [True, False])
def test_exact_zero_has_no_tolerance(name: str, denormals: bool) -> None:
    assert is_let_pass(name, 0.0, 0.0, denormals) and not is_let_pass(name, 0.0, 1e-9, denormals)
