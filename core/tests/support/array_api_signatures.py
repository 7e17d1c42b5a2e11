"""The functions of the array API standard and their parameters, as version 2024.12 has them."""

from __future__ import annotations

ELEMENTS = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh
exp expm1 floor imag isfinite isinf isnan
log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square
tan tanh trunc
""".split()
PAIRS = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
minimum multiply nextafter not_equal pow remainder subtract
""".split()

#: Of the main namespace.
SIGNATURES = {
    **dict.fromkeys(ELEMENTS, "x, /"),
    **dict.fromkeys(PAIRS, "x1, x2, /"),
    **dict.fromkeys(("ones", "zeros", "empty"), "shape, *, dtype=None, device=None"),
    **dict.fromkeys(("ones_like", "zeros_like", "empty_like"), "x, /, *, dtype=None, device=None"),
    **dict.fromkeys(("tril", "triu"), "x, /, *, k=0"),
    **dict.fromkeys(("finfo", "iinfo"), "type, /"),
    **dict.fromkeys(
        ("argmax", "argmin", "all", "any", "max", "mean", "min"), "x, /, *, axis=None, keepdims=False"
    ),
    **dict.fromkeys(("argsort", "sort"), "x, /, *, axis=-1, descending=False, stable=True"),
    **dict.fromkeys(
        ("cumulative_prod", "cumulative_sum"), "x, /, *, axis=None, dtype=None, include_initial=False"
    ),
    **dict.fromkeys(("prod", "sum"), "x, /, *, axis=None, dtype=None, keepdims=False"),
    **dict.fromkeys(("std", "var"), "x, /, *, axis=None, correction=0.0, keepdims=False"),
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero"), "x, /"),
    "__array_namespace_info__": "",
    "arange": "start, /, stop=None, step=1, *, dtype=None, device=None",
    "asarray": "obj, /, *, dtype=None, device=None, copy=None",
    "astype": "x, dtype, /, *, copy=True, device=None",
    "broadcast_arrays": "*arrays",
    "broadcast_to": "x, /, shape",
    "can_cast": "from_, to, /",
    "clip": "x, /, min=None, max=None",
    "concat": "arrays, /, *, axis=0",
    "count_nonzero": "x, /, *, axis=None, keepdims=False",
    "diff": "x, /, *, axis=-1, n=1, prepend=None, append=None",
    "expand_dims": "x, /, axis",
    "eye": "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None",
    "flip": "x, /, *, axis=None",
    "from_dlpack": "x, /, *, device=None, copy=None",
    "full": "shape, fill_value, *, dtype=None, device=None",
    "full_like": "x, /, fill_value, *, dtype=None, device=None",
    "isdtype": "dtype, kind",
    "linspace": "start, stop, /, num, *, dtype=None, device=None, endpoint=True",
    "matmul": "x1, x2, /",
    "matrix_transpose": "x, /",
    "meshgrid": "*arrays, indexing='xy'",
    "moveaxis": "x, source, destination, /",
    "permute_dims": "x, /, axes",
    "repeat": "x, repeats, /, *, axis=None",
    "reshape": "x, /, shape, *, copy=None",
    "result_type": "*arrays_and_dtypes",
    "roll": "x, /, shift, *, axis=None",
    "searchsorted": "x1, x2, /, *, side='left', sorter=None",
    "squeeze": "x, /, axis",
    "stack": "arrays, /, *, axis=0",
    "take": "x, indices, /, *, axis=None",
    "take_along_axis": "x, indices, /, *, axis=-1",
    "tensordot": "x1, x2, /, *, axes=2",
    "tile": "x, repetitions, /",
    "unstack": "x, /, *, axis=0",
    "vecdot": "x1, x2, /, *, axis=-1",
    "where": "condition, x1, x2, /",
}

#: Of the extension `fft`.
FFT = {
    **dict.fromkeys("fft ifft rfft irfft hfft ihfft".split(), "x, /, *, n=None, axis=-1, norm=None"),
    **dict.fromkeys("fftn ifftn rfftn irfftn".split(), "x, /, *, s=None, axes=None, norm=None"),
    **dict.fromkeys(("fftfreq", "rfftfreq"), "n, /, *, d=1.0, dtype=None, device=None"),
    **dict.fromkeys(("fftshift", "ifftshift"), "x, /, *, axes=None"),
}

#: Of the extension `linalg`.
LINALG = {
    **dict.fromkeys(("det", "eigh", "eigvalsh", "inv", "matrix_transpose", "slogdet", "svdvals"), "x, /"),
    **dict.fromkeys(("matmul", "outer", "solve"), "x1, x2, /"),
    "cholesky": "x, /, *, upper=False",
    "cross": "x1, x2, /, *, axis=-1",
    "diagonal": "x, /, *, offset=0",
    "matrix_norm": "x, /, *, keepdims=False, ord='fro'",
    "matrix_power": "x, n, /",
    "matrix_rank": "x, /, *, rtol=None",
    "pinv": "x, /, *, rtol=None",
    "qr": "x, /, *, mode='reduced'",
    "svd": "x, /, *, full_matrices=True",
    "tensordot": "x1, x2, /, *, axes=2",
    "trace": "x, /, *, offset=0, dtype=None",
    "vecdot": "x1, x2, /, *, axis=-1",
    "vector_norm": "x, /, *, axis=None, keepdims=False, ord=2",
}

METHODS = """
abs add and array_namespace bool complex dlpack dlpack_device eq float floordiv ge getitem gt index int
invert le lshift lt matmul mod mul ne neg or pos pow rshift setitem sub truediv xor iadd isub imul
itruediv ifloordiv ipow imatmul imod iand ior ixor ilshift
irshift radd rsub rmul rtruediv rfloordiv rpow rmatmul rmod rand ror rxor
rlshift rrshift
""".split()
