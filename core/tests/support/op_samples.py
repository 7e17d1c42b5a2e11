"""For every op, inputs and parameters to run it with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.errors import MgbError
from mgb.ir import Graph, Kind, Op, Spec
from mgb.ops import declare_all
from mgb.ops.declare import OPS, arity
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

Array = np.ndarray[Any, Any]

declare_all()

#: Loops and branches take what their graphs say: `test_loops` runs them.
OF_GRAPHS = frozenset({"cond", "scan", "while_loop", "result"})
#: Nobody records them: passes make them for kernels.
OF_KERNELS = frozenset(
    {"look_up", "strided", "dot", "scatter_sum", "scatter_prod", "scatter_max", "scatter_min"}
)
#: What one process can run alone: exchanges, of processes or over a mesh, are judged where there are several.
ALONE = sorted(name for name, op in OPS.items() if not (op.ordered or name in OF_GRAPHS or op.over_mesh))

#: Where the inputs of an op are drawn from, if not from -2 to 2.
DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "cbrt", "pow", "erfcinv"), (0.25, 1.75)),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv", "atanh_grad", "log1p"), (-0.9, 0.9)),
    **dict.fromkeys(("acosh", "acosh_grad"), (1.1, 3.0)),
}

_WINDOW = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
_POOL = {"kernel": (2, 3), "stride": (2, 1), "padding": (1, 1)}
_IMAGES, _WEIGHTS, _CONVOLVED, _POOLED = (2, 4, 6, 7), (6, 2, 3, 2), (2, 6, 3, 5), (2, 4, 4, 7)

#: What NumPy's rules take no whole numbers for: gradients, which are floats.
FLOATS_ONLY = {
    "max_pool2d_grad",
    "max_pool2d_pick",
    "avg_pool2d_grad",
    "adaptive_avg_pool2d_grad",
    "attention_grad",
}

#: Those take matrices of floats that have inverses and real eigenvalues.
MATRICES = {
    "solve": [([(2, 3, 3), (3, 2)], {})],
    "solve_triangular": [([(2, 3, 3), (3, 2)], {"lower": d, "unit_diagonal": d}) for d in (False, True)],
    "lstsq": [([(4, 3), (2, 4, 2)], {"rcond": None})],
    "pinv": [([(2, 3, 4)], {"rcond": r}) for r in (None, 1e-3)],
    "qr": [([(2, *shape)], {"complete": c}) for c, shape in ((False, (3, 4)), (True, (4, 3)))],
    "svd": [([(2, 4, 3)], {"full": f}) for f in (False, True)],
    **{name: [([(2, 3, 3)], {"upper": u}) for u in (False, True)] for name in ("eigh", "eigvalsh")},
    **{name: [([(2, 3, 3)], {})] for name in "inv cholesky det cofactor slogdet svdvals eig eigvals".split()},
}

#: Those give complex numbers, or take them.
COMPLEX = {
    "fft": [([(2, 3, 4)], {"axis": (1, 2), "inverse": i, "norm": "ortho"}) for i in (False, True)],
    "rfft": [([(3, 5)], {"axis": (1,), "norm": "backward"})],
    "irfft": [([(3, 4)], {"axis": (1,), "length": n, "norm": "forward"}) for n in (6, 7)],
    **{name: [([(3, 4)], {})] for name in ("real", "imag")},
    "complex": [([(3, 4), (4,)], {})],
}

#: For ops that are no element-wise ones: the shapes of inputs and the parameters, once or more. A letter
#: ``i`` in front of a shape stands for indices below 2.
SHAPED: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {
    **MATRICES,
    **COMPLEX,
    "cast": [([(2, 3)], {"dtype": d}) for d in dtypes.DTYPES],
    "bitcast": [([(2, 3)], {})],
    "iota": [([], {"shape": (2, 3), "dtype": dtypes.float32}), ([], {"shape": (5,), "dtype": dtypes.uint8})],
    "reshape": [([(2, 6)], {"shape": (3, 4)}), ([(2, 0)], {"shape": (0, 7)}), ([(1, 1)], {"shape": ()})],
    "transpose": [([(2, 3, 4)], {"axes": (2, 0, 1)}), ([()], {"axes": ()})],
    "broadcast_to": [([(3, 1)], {"shape": (2, 3, 4)}), ([()], {"shape": (2,)})],
    "slice": [
        ([(5, 6)], {"window": ((1, 4, 2), (0, 6, 1))}),
        ([(5, 6)], {"window": ((4, -1, -2), (5, 1, -1))}),
        ([(5, 6)], {"window": ((0, 5, 1), (0, 6, 1))}),
    ],
    "unslice": [
        ([(2, 3)], {"shape": (4, 5), "window": ((1, 3, 1), (0, 3, 1))}),
        ([(2, 3)], {"shape": (4, 5), "window": ((0, 3, 2), (4, -1, -2))}),
    ],
    "concat": [([(2, 3), (2, 1), (2, 2)], {"axis": 1})],
    "matmul": [
        ([(2, 3), (3, 4)], {}),
        ([(5, 3, 2), (4, 3)], {"transpose_a": True, "transpose_b": True}),
    ],
    "conv2d": [([_IMAGES, _WEIGHTS], _WINDOW)],
    "conv2d_grad_input": [([_CONVOLVED, _WEIGHTS], {"size": (6, 7), **_WINDOW})],
    "conv2d_grad_weight": [([_CONVOLVED, _IMAGES], {"kernel": (3, 2), **_WINDOW})],
    **{
        f"reduce_{name}": [
            ([(2, 3, 4)], {"axis": (1,)}),
            ([(2, 3)], {"axis": (0, 1)}),
            ([(2,)], {"axis": ()}),
        ]
        for name in ("sum", "prod", "max", "min")
    },
    "extent": [([(2, 3, 4)], {"axis": (0, 2)})],
    "index_get": [
        ([(3, 4), "i", (2, 2)], {"axes": (1,), "place": 1}),
        ([(2, 3, 4), "i", (2, 1), "i", (3,)], {"axes": (0, 2), "place": 1}),
    ],
    **{
        name: [
            ([(3, 4), (4,), "i", (1,)], {"axes": (0,), "place": 0}),
            ([(2, 3, 4), (2, 1), "i", (1, 1), "i", (1,)], {"axes": (0, 2), "place": 1}),
        ]
        for name in ("index_set", "index_add")
    },
    "slice_set": [([(4, 5), (3,)], {"window": ((0, 3, 2), (4, -1, -2))})],
    "dynamic_slice": [
        ([(5, 6), "i", (), "i", ()], {"axes": (0, 1), "window": ((0, 4, 2), (5, 1, -1))}),
        ([(2, 5, 3), "i", ()], {"axes": (1,), "window": ((1, 2, 1), (0, 1, 1), (0, 3, 1))}),
    ],
    "dynamic_unslice": [
        ([(2, 3), "i", ()], {"axes": (1,), "shape": (4, 6), "window": ((0, 3, 2), (4, -1, -2))}),
        ([(2, 3), "i", (), "i", ()], {"axes": (0, 1), "shape": (4, 5), "window": ((0, 2, 1), (0, 3, 1))}),
    ],
    "dynamic_slice_set": [
        ([(4, 6), (3,), "i", ()], {"axes": (1,), "window": ((0, 3, 2), (4, -1, -2))}),
        ([(4, 5), (), "i", (), "i", ()], {"axes": (0, 1), "window": ((0, 2, 1), (0, 3, 1))}),
    ],
    "strided": [
        ([(7,)], {"shape": (3, 3), "starts": (0,), "steps": ((2, 1),)}),
        ([(3, 4)], {"shape": (2, 3), "starts": (2, 0), "steps": ((-1, 0), (1, 1))}),
        ([(3, 4)], {"shape": (3, 1, 2), "starts": (0, 3), "steps": ((1, 0, 0), (-1, 0, -2))}),
    ],
    "look_up": [
        ([(3, 4), "i", (2, 1)], {"along": (None, -1)}),
        ([(3, 4), "i", (3, 5)], {"along": (-2, None)}),
        ([(3, 4), "i", (5,), "i", (2, 1)], {"along": (None, None)}),
        ([(3, 4), "i", (2, 1)], {"along": (-1, None)}),
    ],
    **{
        name: [
            ([(3, 4), "i", (3, 1)], {"along": (None, -1), "shape": (2, 4)}),
            ([(3, 4), "i", (3, 4)], {"along": (-2, None), "shape": (3, 3)}),
            ([(2, 3, 4), "i", (3, 1), "i", (4,)], {"along": (None, -3, None), "shape": (2, 2, 3)}),
        ]
        for name in ("scatter_sum", "scatter_prod", "scatter_max", "scatter_min")
    },
    "dot": [
        ([(3, 4), (4, 5)], {"along": ((-2, None), (None, -1))}),
        ([(2, 3, 4), (3, 5, 4)], {"along": ((-4, -3, None), (-3, -1, None))}),
    ],
    "gather": [([(3, 4), "i", (2, 4)], {"axis": 0})],
    "labels": [(["i", (3, 4)], {"count": 2})],
    "scatter": [([(3, 4), (1, 4), "i", (1, 4)], {"axis": 0})],
    "scatter_add": [([(3, 4), (3, 4), "i", (3, 4)], {"axis": 0})],
    "scatter_fold": [([(3, 4), (3, 4), "i", (3, 4)], {"axis": 0, "fold": f}) for f in ("prod", "max", "min")],
    "transfer": [([(2, 3)], {"device": "xpux:0"})],
    **{name: [([_IMAGES], _POOL)] for name in ("max_pool2d", "max_pool2d_places")},
    "max_pool2d_grad": [([_POOLED, _IMAGES, _POOLED], _POOL)],
    "max_pool2d_pick": [([_IMAGES, _IMAGES, _POOLED], _POOL)],
    "avg_pool2d": [([_IMAGES], {"count_padding": c, **_POOL}) for c in (True, False)],
    "avg_pool2d_grad": [([_POOLED], {"size": (6, 7), "count_padding": c, **_POOL}) for c in (True, False)],
    "adaptive_avg_pool2d": [([_IMAGES], {"size": (4, 3)})],
    "adaptive_avg_pool2d_grad": [([(2, 4, 4, 3)], {"size": (6, 7)})],
    "argsort": [([(3, 5)], {"axis": 1, "descending": d}) for d in (False, True)],
    "sort": [([(3, 5)], {"axis": a, "descending": d}) for a, d in ((1, False), (0, True))],
    "argtopk": [([(3, 5)], {"axis": 0, "k": 2, "descending": d}) for d in (False, True)],
    "attention": [([(2, 3, 4), (2, 5, 4), (2, 5, 2)], {"causal": c}) for c in (False, True)],
    "attention_grad": [([(2, 3, 2), (2, 3, 4), (2, 5, 4), (2, 5, 2)], {"causal": False})],
    "searchsorted": [([(1,), (2, 3)], {"right": r}) for r in (False, True)],
    **{name: [([(3, 5)], {"axis": 1})] for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **{
        name: [([(3, 5)], {"axis": (1,)}), ([(2, 3, 2)], {"axis": (0, 2)})]
        for name in ("argmax", "argmin", "integer_sum", "integer_product")
    },
}


def cases(op: Op, dtype: np.dtype[Any]) -> Iterator[tuple[Graph, list[Array]]]:
    """Graphs of one op on `dtype`, where the op takes it, with inputs for them."""
    if op.name in SHAPED:
        listed = SHAPED[op.name]
    else:
        assert op.kind is Kind.ELEMENTWISE, f"{op.name}: add it to SHAPED"
        listed = [([(3, 4)] * arity(op), {}), ([(3, 1), (4,), (1,), *[()] * 9][: arity(op)], {})]
    for shapes, params in listed:
        if op.name == "bitcast":
            params = {"dtype": _same_width(dtype)}
        if op.name in FLOATS_ONLY | MATRICES.keys() and dtype not in dtypes.FLOATS:
            return
        specs, arrays = _inputs(op, shapes, dtype)
        try:
            yield graph_of(lambda *xs: apply(op, *xs, **params), *specs), arrays  # noqa: B023
        except (MgbError, ValueError):
            return  # the op does not take this dtype


def _same_width(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "iu":
        return {2: dtypes.float16, 4: dtypes.float32, 8: dtypes.float64}.get(dtype.itemsize, dtypes.uint8)
    return np.dtype(f"int{dtype.itemsize * 8}")


def _inputs(op: Op, shapes: list[Any], dtype: np.dtype[Any]) -> tuple[list[Spec], list[Array]]:
    rng = np.random.default_rng(len(op.name))
    specs, arrays, index = [], [], False
    for shape in shapes:
        if shape == "i":
            index = True
            continue
        array = rng.integers(0, 2, shape).astype(np.int32) if index else draw(rng, op, shape, dtype)
        specs.append(Spec(array.shape, array.dtype))
        arrays.append(array)
        index = False
    if op.name in ("max_pool2d_grad", "max_pool2d_pick"):
        pool = OPS["max_pool2d"].eager
        arrays[2] = pool(arrays[1], **_POOL)
    return specs, arrays


def draw(rng: np.random.Generator, op: Op, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers that `op` is defined for."""
    if dtype == dtypes.bool_:
        return np.asarray(rng.integers(0, 2, shape), bool)
    if dtype.kind in "iu":
        low, high = (-6 if dtype.kind == "i" else 0), 7
        small = rng.integers(low, high, shape)
        bounds = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        edge = op.kind is Kind.ELEMENTWISE and op.name not in ("shl", "shr", "cast")
        chosen = rng.choice(bounds, shape)
        return np.where((rng.random(shape) < 0.2) & edge, chosen, small.astype(dtype)).astype(dtype)
    if op.name in MATRICES:
        return _definite(rng.random(shape)).astype(dtype)
    low, high = DOMAINS.get(op.name, (-2, 2))
    return np.asarray(low + (high - low) * rng.random(shape)).astype(dtype)


def _definite(x: Array) -> Array:
    """Matrices whose left part is symmetric with eigenvalues that are positive and lie apart."""
    least = min(x.shape[-2:])
    part = x[..., :least, :least]
    part[...] = part + part.swapaxes(-1, -2) + np.diag(4.0 * np.arange(1, least + 1))
    return x


def tolerance(dtype: np.dtype[Any]) -> float:
    """How much the last rounding of two good implementations may differ, relative to 1."""
    known = {dtypes.bfloat16: 2e-2, dtypes.float16: 4e-3, dtypes.float32: 3e-5, dtypes.float64: 1e-11}
    return known.get(dtype) or 2.5 * 2.0 ** -dtypes.ROWS[dtype].digits


def assert_close(got: Array, want: Array, name: str) -> None:
    """Equal, or close in floats: relative to each element, and to the largest where sums cancel."""
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{name}: {got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    )
    if want.dtype.kind == "c":
        part = np.dtype(f"float{want.dtype.itemsize * 4}")
        got, want = got.view(part), want.view(part)
    if want.dtype.kind not in "fV" or not want.size:
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    wide, truth = got.astype(np.float64), want.astype(np.float64)
    rtol = tolerance(want.dtype)
    finite = truth[np.isfinite(truth)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(
        wide, truth, rtol=rtol, atol=rtol * min(max(scale, 1e-30), 1e300), err_msg=name
    )
