"""SciPy and scikit-learn take Tensors, traced ones too."""

from __future__ import annotations

import pytest
from test_guide import run


def test_scipy_functions_take_tensors() -> None:
    correlation, area, gradient = run("../array_api/scipy_functions.py").splitlines()
    assert correlation == "correlation 0.82, Tensor on xpux:0"
    assert area == "area 2.000"
    assert gradient == "gradient [-2.0, 100.0] SciPy's [-2.0, 100.0]"


def test_scikit_learn_estimators_take_tensors() -> None:
    pytest.importorskip(
        "sklearn", reason='needs scikit-learn: pip install "scikit-learn>=1.9" array-api-compat'
    )
    recognised, alike = run("../array_api/scikit_learn.py").splitlines()
    assert recognised.startswith("Tensor on xpux:0: 96%")
    assert alike == "100% as with NumPy's arrays"


def test_scipy_function_can_be_traced() -> None:
    assert run("../array_api/traced.py") == "3 calls, 1 run of the body, 1 program\n"
