"""Libraries of others take Tensors, traced ones too."""

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


def test_einops_rearranges_tensors_in_a_trace() -> None:
    pytest.importorskip("einops", reason="needs einops: pip install einops")
    assert run("../array_api/einops_attention.py") == "3 calls, 1 run of the body, 1 program\n"


def test_opt_einsum_contracts_tensors_in_a_trace() -> None:
    pytest.importorskip("opt_einsum", reason="needs opt_einsum: pip install opt_einsum")
    assert run("../array_api/opt_einsum_path.py") == "3 calls, 1 run of the body, 1 program\n"


def test_pandas_xarray_and_matplotlib_take_tensors() -> None:
    for name in ("pandas", "xarray", "matplotlib"):
        pytest.importorskip(name, reason=f"needs {name}: pip install {name}")
    table, labelled, line = run("../array_api/tables_and_plots.py").splitlines()
    assert table == "pandas: 0.7 in row 2"
    assert labelled == "xarray: 0.6"
    assert line == "Matplotlib: [0.8999999761581421, 0.5, 0.4000000059604645]"
