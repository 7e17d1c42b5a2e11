"""SciPy and scikit-learn take Tensors, traced ones too."""

from __future__ import annotations

import pytest
from test_guide import run


def test_functions_of_scipy() -> None:
    correlation, area, gradient = run("../array_api/scipy_functions.py").splitlines()
    assert correlation == "correlation 0.82, Tensor on xpux:0"
    assert area == "area 2.000"
    assert gradient == "gradient [-2.0, 100.0] SciPy's [-2.0, 100.0]"


def test_estimators_of_scikit_learn() -> None:
    pytest.importorskip(
        "sklearn", reason='needs scikit-learn: pip install "scikit-learn>=1.9" array-api-compat'
    )
    recognised, alike = run("../array_api/scikit_learn.py").splitlines()
    assert recognised.startswith("Tensor on xpux:0: 96%")
    assert alike == "100% as with NumPy's arrays"


def test_a_function_of_scipy_is_traced() -> None:
    assert run("../array_api/traced.py") == "3 calls, 1 run of the body, 1 program\n"
