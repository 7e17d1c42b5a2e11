"""Functions of our domain, read again by mgb, are our own ops: results are equal to the last bit."""

from __future__ import annotations

import io

import numpy as np
import op_samples as samples
import pytest
from graphs import run
from mgb import dtypes
from mgb.errors import UnsupportedError
from mgb.jit import load
from mgb.ops.declare import OPS
from mgb.ops.images import attention  # noqa: F401 - declares its ops
from mgb.storage.model_file import Style
from mgb_onnx.export import model_of

#: What gives or takes complex numbers, which ONNX's operators do not know.
COMPLEX = ("complex", "fft", "imag", "irfft", "real", "rfft")
#: ONNX has no linear algebra, nor a search in what is in order.
WRITTEN = [
    name
    for name in samples.ALONE
    if name not in {*samples.MATRICES, *COMPLEX, "searchsorted", *samples.OF_KERNELS}
]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_rejected(name: str) -> None:
    for graph, arrays in samples.cases(OPS[name], dtypes.float64):
        with pytest.raises(UnsupportedError, match=f"{name}|complex"):
            model_of(graph, [f"x{n}" for n in range(len(arrays))], ["y"], Style(), "f")


@pytest.mark.parametrize("name", WRITTEN)
def test_exported_function_is_loaded_as_the_original_op(name: str) -> None:
    """The name of the op stands in the metadata of the function; the body is for other readers."""
    for dtype in (dtypes.float64, dtypes.int32):
        for graph, arrays in samples.cases(OPS[name], dtype):
            model = model_of(graph, [f"x{n}" for n in range(len(arrays))], ["y"], Style(), "f")
            if not any(node.domain for node in model.graph.node):
                continue  # ONNX has a word
            with np.errstate(all="ignore"):
                (want,) = run(graph, arrays)
                got = load(io.BytesIO(model.SerializeToString()), backend="EAGER")(*arrays).numpy()
            np.testing.assert_array_equal(got, want, err_msg=f"{name} on {dtype}")
