"""The node tests of the `onnx` package: models of one operator or of a few, with their results.

They are generated in memory; nothing is read from disk or fetched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from mgb import dtypes
from mgb.errors import FileVersionError, UnsupportedError
from mgb.jit import load

#: Cases that no importer can pass as they stand, by a part of the name.
EXCLUDED = {
    "bernoulli": "the result is random",
    "training_dropout": "the result is random",
    "scan_sum": "written for opset 8, whose Scan the converter of the onnx package does not convert",
}

#: Cases whose expected values are the rounding error of the reference, where 0 is exact.
NEAR_ZERO = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}


@cache
def all_cases() -> tuple[Any, ...]:
    """Every case that is not in `EXCLUDED`; it takes some seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    return tuple(c for c in cases if not any(e in c.name for e in EXCLUDED))


def operators(case: Any) -> frozenset[str]:
    """The operators in the graph of a case."""
    return frozenset(node.op_type for node in case.model.graph.node)


def one_for_each_operator() -> list[Any]:
    """The first case of each operator, alone in its graph or not."""
    chosen: dict[frozenset[str], Any] = {}
    for case in all_cases():
        found = operators(case)
        if len(found) == 1:
            chosen.setdefault(found, case)
    return list(chosen.values())


def run(cases: Iterable[Any], backend: str) -> tuple[int, list[str], dict[str, str]]:
    """Run each case twice, so that it is recorded and replayed.

    Returns
    -------
    passed : int
    failures : list of str
        Name and error of each case whose results are wrong.
    unsupported : dict
        By name, why the case was refused.
    """
    passed, failures, unsupported = 0, [], {}
    for case in cases:
        try:
            _run(case, backend)
            passed += 1
        except (UnsupportedError, FileVersionError) as error:
            unsupported[case.name] = str(error)
        except Exception as error:
            failures.append(f"{case.name}: {type(error).__name__}: {error}")
    return passed, failures, unsupported


def _run(case: Any, backend: str) -> None:
    function = load(io.BytesIO(case.model.SerializeToString()), backend)
    for given, wanted in case.data_sets:
        inputs = [_array(a) for a in given]
        for _ in range(2):
            results = function(*inputs)
            results = [results] if len(case.model.graph.output) == 1 else results
            _compare(results, [_array(a) for a in wanted], case)


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _compare(got: Sequence[Any], wanted: Sequence[Any], case: Any) -> None:
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        if w is None or isinstance(w, list | tuple):
            assert (g is None) == (w is None)
            _compare(g or (), w or (), case)
            continue
        array, expected = g.numpy(), np.asarray(w)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        rtol, atol = case.rtol, NEAR_ZERO.get(case.name, case.atol)
        if array.dtype in dtypes.HALVES:  # fused ops round once, the reference after each of them
            rtol = max(rtol, 2 * _epsilon(array.dtype))
            array, expected = array.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(array, expected, rtol, atol)


def _epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a 16-bit float."""
    return 2.0**-10 if dtype == dtypes.float16 else 2.0**-7
