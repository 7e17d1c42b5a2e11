"""The array API standard: names and signatures, dtypes, inspection, values against NumPy, eager and traced.

The suite of the standard's authors runs from outside: see CONTRIBUTING.md; array_api_xfails.txt is for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import mgb
import mgb.numpy as xp
import numpy as np
import pytest
from array_api_signatures import ELEMENTS, FFT, LINALG, METHODS, PAIRS, SIGNATURES
from mgb import dtypes
from mgb.errors import ConversionError, ShapeError
from mgb.jit import trace
from mgb.ops.declare import op_of
from mgb.ops.elementwise import nextafter


def accepts(function: Callable[..., Any], text: str) -> bool:
    """Does `function` take each call that a signature of the standard allows, with the same defaults?"""
    wanted = inspect.signature(eval(f"lambda {text}: None"))
    had = inspect.signature(function)
    places = [p for p in had.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    for place, (name, p) in enumerate(wanted.parameters.items()):
        if p.kind is p.VAR_POSITIONAL:
            found = places[place] if places[place].kind is p.kind else None
        elif p.kind is p.POSITIONAL_ONLY:
            found = places[place] if place < len(places) else None
        else:
            found = had.parameters.get(name)
            if found is not None and p.kind is p.POSITIONAL_OR_KEYWORD and places[place].name != name:
                return False
        same = found is not None and (p.default == found.default or name in ("dtype", "device"))
        if not same and (found is None or p.default is not p.empty):
            return False
    extra = [
        p for name, p in had.parameters.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
    ]
    return len(extra) <= sum(p.default is p.empty for p in wanted.parameters.values())


def test_all_standard_names_are_public() -> None:
    kinds = ["bool", *(name for name in dtypes.BY_NAME if name != "bool")]
    names = {
        *SIGNATURES,
        *kinds,
        "e",
        "inf",
        "nan",
        "newaxis",
        "pi",
        "linalg",
        "fft",
        "__array_api_version__",
    }
    assert (
        names <= set(dir(xp)) and set(dir(xp)) == set(xp.__all__) and len(xp.__all__) == len(set(xp.__all__))
    )
    assert all(xp.isdtype(getattr(xp, name), name) for name in kinds)
    assert set(LINALG) <= set(dir(xp.linalg))
    assert all(hasattr(mgb.Tensor, f"__{name}__") for name in METHODS)
    assert all(hasattr(mgb.Tensor, name) for name in "dtype device mT T ndim shape size to_device".split())


@pytest.mark.parametrize(
    ("space", "name", "text"),
    [
        (space, *row)
        for space, table in ((xp, SIGNATURES), (xp.linalg, LINALG), (xp.fft, FFT))
        for row in table.items()
    ],
    ids=lambda value: value if isinstance(value, str) and "," not in value else "",
)
def test_signatures_match_the_standard(space: Any, name: str, text: str) -> None:
    function = getattr(space, name)
    assert accepts(function, text), f"{name}{inspect.signature(function)} does not take ({text})"
    assert function.__doc__


def test_array_namespace_of_a_tensor() -> None:
    t = mgb.tensor([1.0])
    assert t.__array_namespace__() is t.__array_namespace__(api_version="2024.12") is xp
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"1999\.01.* choose one of 2021\.12"):
        t.__array_namespace__(api_version="1999.01")


def test_array_namespace_info() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }
    assert info.default_device() == "xpux" and info.default_device() in info.devices()
    made = xp.asarray([1.0]), xp.asarray([1j]), xp.asarray([1]), xp.argmax(xp.asarray([1.0]))
    defaults = info.default_dtypes()
    assert [t.dtype for t in made] == [
        defaults[k] for k in ("real floating", "complex floating", "integral", "indexing")
    ]
    for kind in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    ):
        named = info.dtypes(kind=kind)
        assert all(named[name] == getattr(xp, name) for name in named)
        standard = [d for d in dtypes.BY_NAME.values() if d not in dtypes.HALVES]
        assert set(named) == {d.name for d in standard if np.isdtype(d, kind)}
    assert info.dtypes() == info.dtypes(kind=("bool", "numeric"))


# dtypes


def test_creation_uses_the_standard_default_dtypes() -> None:
    assert xp.asarray(1.5).dtype == xp.full(2, 0.5).dtype == xp.zeros(1).dtype == xp.eye(2).dtype == "float32"
    assert xp.asarray([1, 2]).dtype == xp.full(2, 3).dtype == xp.arange(3).dtype == "int64"
    assert xp.arange(0, 1, 0.5).dtype == xp.linspace(0, 1, 3).dtype == "float32"
    assert xp.asarray(True).dtype == xp.full((), False).dtype == "bool"
    for dtype in (np.float64, np.int16, np.uint64):
        assert xp.asarray(np.ones(3, dtype)).dtype == xp.asarray([1], dtype=dtype).dtype == dtype
    assert xp.asarray([xp.asarray(1.0), xp.asarray(2.0)]).tolist() == [1, 2]


def test_copy_argument_is_respected() -> None:
    t = xp.asarray([1.0, 2.0])
    assert xp.asarray(t) is xp.asarray(t, copy=False) is xp.astype(t, xp.float32, copy=False) is t
    for other in (xp.asarray(t, copy=True), xp.astype(t, xp.float32), xp.reshape(t, (2,))):
        t[0] = 5.0
        assert other.tolist() == [1, 2]
        t[0] = 1.0
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(t, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray([1.0], copy=False)


def test_dtype_kinds_and_promotion_match_numpy() -> None:
    kinds = (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    )
    standard = [d for d in dtypes.BY_NAME.values() if d not in dtypes.HALVES]
    for a in standard:
        assert [xp.isdtype(a, kind) for kind in kinds] == [np.isdtype(a, kind) for kind in kinds]
        for b in standard:
            assert xp.can_cast(a, b) == np.can_cast(a, b)
            if a.kind == b.kind or (
                a.kind in "iu" and b.kind in "iu" and "f" not in np.result_type(a, b).kind
            ):
                assert xp.result_type(a, b) == xp.result_type(xp.zeros(1, dtype=a), b) == np.result_type(a, b)
    assert xp.isdtype(xp.bfloat16, ("bool", "real floating")) and not xp.isdtype("int8", xp.int16)
    assert xp.result_type(xp.int8, 3) == "int8" and xp.result_type(xp.float64, 3, 0.5) == "float64"
    with pytest.raises(ValueError, match="'number' is not a kind"):
        xp.isdtype(xp.int8, "number")
    with pytest.raises(ValueError, match="at least one"):
        xp.result_type(1, 2.0)


@pytest.mark.parametrize("dtype", [d for d in dtypes.DTYPES if d.kind != "b"], ids=str)
def test_finfo_and_iinfo(dtype: np.dtype[Any]) -> None:
    is_whole = dtype in dtypes.INTEGERS
    info = xp.iinfo(dtype) if is_whole else xp.finfo(xp.zeros(1, dtype=dtype))
    assert (
        type(info.max) is type(info.min) is (int if is_whole else float) and info.bits == dtype.itemsize * 8
    )
    want = np.iinfo(dtype) if is_whole else __import__("ml_dtypes").finfo(dtype)
    assert (info.max, info.min, info.dtype) == (want.max, want.min, dtype)
    assert is_whole or (info.eps, info.smallest_normal) == (want.eps, want.smallest_normal)
    with pytest.raises(ConversionError, match=r"is not an? (integer|floating-point) dtype"):
        (xp.finfo if is_whole else xp.iinfo)(dtype)


# values: NumPy 2 has the same names


def real(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).uniform(0.1, 0.9, shape)


def whole(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(4).integers(1, 6, shape)


X, Y, I, J, B = real(3, 4), real(3, 4)[::-1], whole(3, 4), whole(3, 4)[::-1], real(3, 4) > 0.5
_WHOLE = [name for name in (*ELEMENTS, *PAIRS) if name.startswith("bitwise")]


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (I if name in _WHOLE else X + 1 if name == "acosh" else X,), {}) for name in ELEMENTS),
    *((name, (I, J) if name in _WHOLE else (X, Y), {}) for name in PAIRS),
    *((name, (I - 3, J), {}) for name in ("remainder", "floor_divide", "add", "less", "maximum")),
    *((name, (X, 2.0), {}) for name in ("pow", "multiply", "remainder", "greater")),
    *((name, (X,), {"axis": 1, "keepdims": True}) for name in "all any max mean min argmax sum prod".split()),
    ("argmin", (X,), {}),
    *((name, (B,), {"axis": 0}) for name in ("sum", "prod", "count_nonzero", "any")),
    *((name, (X,), {"axis": 0, "correction": 1}) for name in ("std", "var")),
    *((name, (X,), {"axis": 1, "include_initial": True}) for name in ("cumulative_sum", "cumulative_prod")),
    ("cumulative_sum", (I,), {"axis": 0, "dtype": np.int32}),
    ("diff", (X,), {"n": 2, "axis": 0, "append": X[:1], "prepend": Y}),
    ("clip", (X,), {"min": 0.3, "max": 0.6}), ("clip", (X, None, Y), {}), ("clip", (I,), {}),
    ("arange", (2, 20, 3), {}), ("arange", (5,), {}), ("linspace", (1, 2, 5), {"endpoint": False}),
    ("eye", (3, 4), {"k": -1}), ("eye", (3,), {"k": 2}), ("full", ((2, 3), 7), {}), ("full_like", (X, 2), {}),
    ("tril", (X,), {"k": -1}), ("triu", (X,), {"k": 1}), ("meshgrid", (X[0], Y[0]), {"indexing": "ij"}),
    ("broadcast_to", (X[:1], (3, 4)), {}), ("broadcast_arrays", (X[:1], Y[:, :1]), {}),
    ("concat", ([X, Y],), {"axis": None}), ("concat", ([X, Y],), {"axis": 1}),
    ("stack", ([X, Y],), {"axis": -1}),
    ("unstack", (X,), {"axis": 1}), ("expand_dims", (X, (0, 2)), {}), ("squeeze", (X[:1], 0), {}),
    ("flip", (X,), {"axis": 1}), ("roll", (X, (1, 2)), {"axis": (0, 1)}), ("moveaxis", (X, 0, 1), {}),
    ("permute_dims", (X, (1, 0)), {}), ("matrix_transpose", (X,), {}), ("reshape", (X, (2, -1)), {}),
    ("repeat", (X, 2), {"axis": 0}), ("repeat", (X[0], np.array([1, 0, 2, 1])), {}),
    ("tile", (X, (2, 1)), {}),
    ("take", (X, np.array([2, 0])), {"axis": 1}), ("take_along_axis", (X, I % 3), {"axis": 0}),
    ("sort", (X,), {"axis": 0}), ("argsort", (X,), {"axis": 0}), ("nonzero", (B,), {}),
    ("where", (B, X, 0.0), {}),
    ("searchsorted", (np.sort(X[0]), Y), {"side": "right"}),
    ("searchsorted", (X[0], Y), {"sorter": np.argsort(X[0])}),
    ("unique_all", (I,), {}), ("unique_counts", (I,), {}),
    ("unique_inverse", (I,), {}), ("unique_values", (I,), {}),
    ("matmul", (X, Y.T), {}), ("tensordot", (X, Y), {}),
    ("vecdot", (X, Y), {"axis": 0}), ("astype", (X, np.int32), {}),
]  # fmt: skip

#: What reads values, so that a traced body runs at each call.
READS = {"nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"}


def tensors(value: Any) -> Any:
    """The arrays in arguments as Tensors; indices and counts stay NumPy's where they are an array's shape."""
    if isinstance(value, list):
        return [tensors(v) for v in value]
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


def close(got: Any, want: Any, single: bool) -> None:
    if isinstance(want, list | tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            close(g, w, single)
        return
    assert isinstance(got, mgb.Tensor) and got.shape == want.shape
    assert got.dtype.kind == want.dtype.kind and (single or got.dtype.itemsize in (4, want.dtype.itemsize))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6 if single else 1e-13, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"), CALLS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(CALLS)]
)
def test_values_match_numpy_eager_and_traced(name: str, args: Any, kwargs: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    function: Callable[..., Any] = getattr(xp, name)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*args, **kwargs)
    want = np.sort(want) if name == "unique_values" else want  # whose order is the library's choice
    single = not any(isinstance(a, np.ndarray | list) for a in args)
    given, named = [tensors(a) for a in args], {k: tensors(v) for k, v in kwargs.items()}
    close(function(*given, **named), want, single)
    traced = trace(lambda *args: function(*args, **named))
    for _ in range(2):
        close(traced(*given), want, single)
    reads = name in READS or (name == "repeat" and isinstance(args[1], np.ndarray))
    assert traced.stats()["body_runs"] == 1 + reads, traced.stats()["reasons"]


def test_every_function_is_covered_by_a_call() -> None:
    called = {name for name, *_ in CALLS} | {
        "asarray",
        "can_cast",
        "finfo",
        "from_dlpack",
        "iinfo",
        "isdtype",
    }
    called |= {"result_type", "ones", "zeros", "empty", "ones_like", "zeros_like", "empty_like"}
    functions = {name for name in xp.__all__ if isinstance(getattr(xp, name), FunctionType)}
    assert functions - called == {"__array_namespace_info__"} and called <= functions


def test_expand_dims_with_invalid_axis_raises_index_error() -> None:
    for axis in (-2, 1):
        with pytest.raises(IndexError, match=f"axis {axis} is out of range for 1 axes"):
            xp.expand_dims(xp.asarray(1.0), axis)


def test_eye_with_a_diagonal_out_of_range() -> None:
    assert not xp.any(xp.eye(2, 3, k=2**40)) and not xp.any(xp.eye(2, k=-(2**40)))


def test_ones_zeros_and_empty() -> None:
    for name, value in (("ones", 1), ("zeros", 0), ("empty", None)):
        made = getattr(xp, name)((2, 3), dtype=xp.int8)
        like = getattr(xp, f"{name}_like")(made)
        assert made.shape == like.shape == (2, 3) and made.dtype == like.dtype == "int8"
        assert value is None or ((made.numpy() == value).all() and (like.numpy() == value).all())


# the Tensor, and other libraries


def test_matrix_transpose_and_to_device() -> None:
    t = xp.asarray(real(2, 3, 4))
    np.testing.assert_array_equal(t.mT.numpy(), t.numpy().swapaxes(1, 2))
    assert t.to_device(t.device).tolist() == t.tolist() and complex(t[0, 0, 0]) == t[0, 0, 0].item()
    with pytest.raises(ValueError, match="stream"):
        t.to_device(t.device, stream=1)
    with pytest.raises(mgb.errors.ShapeError, match="last two axes"):
        _ = xp.asarray([1.0]).mT


def test_zero_dimensional_mask_is_a_valid_index() -> None:
    x, t = real(2, 3), xp.asarray(real(2, 3))
    for flag in (True, False):
        mask = xp.asarray(flag)
        np.testing.assert_array_equal(t[mask].numpy(), x[np.array(flag)])
        changed = xp.asarray(t, copy=True)
        changed[mask] = 2.0
        assert (changed.tolist() == t.tolist()) is not flag
    assert xp.asarray(1.0)[xp.asarray(True)].tolist() == [1]


def test_empty_mask_selects_an_empty_array() -> None:
    for shape, mask in [((0, 1), (0, 0)), ((3, 2), (3, 0)), ((3, 2), (0,))]:
        x, none = np.ones(shape), np.zeros(mask, bool)
        assert xp.asarray(x)[xp.asarray(none)].shape == x[none].shape


def test_dlpack_with_numpy() -> None:
    t = xp.asarray([[1.0, 2.0]])
    assert t.__dlpack_device__()[0] == 1
    assert np.from_dlpack(t).tolist() == [[1, 2]]
    array = np.arange(3.0)
    shared, copied = xp.from_dlpack(array), xp.from_dlpack(array, copy=True, device="cpux")
    array[0] = 7
    assert np.may_share_memory(shared, array) and not np.shares_memory(copied, array)
    assert shared.tolist() == [7, 1, 2] and copied.tolist() == [0, 1, 2] and shared.dtype == "float64"


def test_dlpack_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="the other library is torch")
    t = torch.arange(6).reshape(2, 3)
    assert xp.from_dlpack(t).tolist() == t.tolist()
    assert torch.from_dlpack(xp.asarray([1.0, 2.0])).tolist() == [1, 2]


def test_rtol_per_matrix() -> None:
    a = real(2, 4, 3)
    share = np.array([0.5, 1e-9])
    np.testing.assert_allclose(
        xp.linalg.pinv(xp.asarray(a), rtol=xp.asarray(share)).numpy(),
        np.linalg.pinv(a, rtol=share),
        rtol=1e-9,
    )
    ranks = xp.linalg.matrix_rank(xp.asarray(a), rtol=xp.asarray(share))
    assert ranks.tolist() == np.linalg.matrix_rank(a, rtol=share).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nextafter_body_matches_numpy(dtype: str) -> None:
    info = np.finfo(dtype)
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        info.max,
        info.min,
        info.tiny,
        info.smallest_subnormal,
        np.inf,
        -np.inf,
        np.nan,
    ]
    a, b = (g.ravel() for g in np.meshgrid(np.array(edges, dtype), np.array([*edges, 0.5, -3.0], dtype)))
    with np.errstate(all="ignore"):
        want = np.nextafter(a, b)
    x, y = xp.asarray(a), xp.asarray(b)
    for function in (xp.nextafter, op_of(nextafter).body):
        got = function(x, y).numpy()
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))
    with pytest.raises(ConversionError, match="needs float32 or float64, got float16"):
        xp.nextafter(xp.ones(1, dtype="float16"), 2.0)


def test_round_rounds_both_parts_of_complex_numbers() -> None:
    values = np.array([0.5 + 1.5j, -2.5 - 0.25j, 1.26 + 3j], np.complex64)
    x = xp.asarray(values)
    np.testing.assert_array_equal(xp.round(x).numpy(), np.round(values))
    np.testing.assert_allclose(np.round(x, 1).numpy(), np.round(values, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [(((3, 1), (3, 4)), -1), (((4,), (1,)), -1), (((1, 3), (2, 3)), -2), (((3,), (2, 3)), -2)],
)
def test_vecdot_rejects_vectors_of_different_lengths(shapes: Any, axis: int) -> None:
    with pytest.raises(ShapeError, match=r"vecdot: vectors of \d+ and \d+ elements along axis"):
        xp.vecdot(*map(xp.ones, shapes), axis=axis)


def test_array_api_compat_recognizes_tensors() -> None:
    compat = pytest.importorskip("array_api_compat", reason="SciPy and scikit-learn ask this package")
    t = xp.asarray([1.0])
    assert compat.is_array_api_obj(t) and compat.array_namespace(t, 1.0) is xp
    assert (
        compat.device(t) == t.device and compat.to_device(t, "cpux").device == "cpux" and compat.size(t) == 1
    )
