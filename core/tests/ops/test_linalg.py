"""Linear algebra: values against NumPy, SciPy and torch, gradients against finite differences, traced too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mgb
import mgb.linalg as la
import mgb.numpy.linalg
import numpy as np
import pytest
import scipy.linalg
from differences import check, gradients
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.errors import LinAlgError, MgbError, NoGradientError, ShapeError
from mgb.jit import partial_trace, trace, xla_trace
from mgb.ops.numpy_protocol import functions

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(2, 3, 4, 4)) + 2 * np.eye(4)
ONE = SQUARE[0, 0]
TALL, WIDE = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(2, 3, 5))
SYMMETRIC = SQUARE + SQUARE.swapaxes(-1, -2)
DEFINITE = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(4)
REAL = np.array([[[2.0, 1, 0], [0.5, -1, 0.2], [0.1, 0.3, 4]], [[1.0, 2, 3], [0.4, 5, 1], [0.3, 0.6, -2]]])
COLUMNS, VECTOR = RNG.normal(size=(3, 4, 2)), RNG.normal(size=4)
LOW = np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]])  # of rank 2


def t(x: Any, dtype: str = "float64") -> Tensor:
    return Tensor(x, dtype=dtype)


#: Calls that NumPy answers: the function of `mgb.linalg` and of `np.linalg`, arguments, options.
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("solve", (ONE, VECTOR), {}),
    ("solve", (SQUARE, COLUMNS), {}),
    ("solve", (SQUARE[0], SQUARE[:, :1]), {}),
    ("solve", (SQUARE, VECTOR), {}),
    ("inv", (SQUARE,), {}),
    ("inv", (np.zeros((2, 0, 0)),), {}),
    ("pinv", (TALL,), {}),
    ("pinv", (WIDE,), {"rcond": 1e-3}),
    ("pinv", (LOW,), {"rtol": 1e-10}),
    ("det", (SQUARE,), {}),
    ("det", (ONE,), {}),
    ("slogdet", (SQUARE,), {}),
    ("slogdet", (np.zeros((2, 3, 3)),), {}),
    ("cholesky", (DEFINITE,), {}),
    ("cholesky", (DEFINITE,), {"upper": True}),
    ("qr", (TALL,), {}),
    ("qr", (WIDE,), {}),
    ("qr", (TALL, "complete"), {}),
    ("qr", (TALL, "r"), {}),
    ("svd", (TALL,), {}),
    ("svd", (WIDE,), {}),
    ("svd", (WIDE, False), {}),
    ("svd", (TALL,), {"compute_uv": False}),
    ("svdvals", (SQUARE,), {}),
    ("eigh", (SYMMETRIC,), {}),
    ("eigh", (SQUARE, "U"), {}),
    ("eigvalsh", (SQUARE,), {"UPLO": "L"}),
    ("eig", (REAL,), {}),
    ("eigvals", (REAL,), {}),
    ("lstsq", (TALL[0], np.ones((5, 2))), {}),
    ("lstsq", (TALL[0], np.ones(5)), {}),
    ("lstsq", (WIDE[0], np.ones(3)), {"rcond": 1e-6}),
    ("matrix_rank", (SQUARE,), {}),
    ("matrix_rank", (LOW,), {}),
    ("matrix_rank", (SQUARE,), {"tol": 2.0}),
    ("matrix_rank", (SQUARE,), {"rtol": 0.3}),
    ("matrix_rank", (VECTOR,), {}),
    *(("matrix_power", (SQUARE[0], n), {}) for n in (0, 1, 2, 5, -3)),
    *(("norm", (ONE, o), {}) for o in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)),
    *(("norm", (VECTOR, o), {}) for o in (None, 0, 1, 2, 3, np.inf, -np.inf)),
    ("norm", (SQUARE,), {}),
    ("norm", (SQUARE,), {"axis": 1, "ord": 3, "keepdims": True}),
    ("norm", (SQUARE,), {"axis": (3, 1), "ord": 1, "keepdims": True}),
    ("norm", (SQUARE, "nuc", (1, 0)), {}),
    ("vector_norm", (SQUARE,), {"axis": (1, 2), "ord": 1}),
    ("vector_norm", (SQUARE,), {}),
    ("matrix_norm", (SQUARE,), {"ord": 2}),
    ("matrix_norm", (SQUARE,), {"keepdims": True}),
    *(("cond", (SQUARE, p), {}) for p in (None, 2, -2, 1, "fro", np.inf)),
    ("cond", (np.diag([1.0, 0]),), {}),
    ("multi_dot", ([ONE, TALL[0, :4], WIDE[0]],), {}),
    ("multi_dot", ([VECTOR, ONE, TALL[0, :4], WIDE[0, :, :4], VECTOR],), {}),
    ("tensorsolve", (SQUARE[0, 0].reshape(4, 2, 2), VECTOR), {}),
    ("tensorsolve", (ONE.reshape(2, 2, 4), VECTOR), {"axes": (0, 1)}),
    ("tensorinv", (ONE.reshape(4, 2, 2),), {"ind": 1}),
    ("cross", (TALL, TALL[0, 1]), {}),
    ("cross", (WIDE, WIDE[:1]), {"axis": 1}),
    ("outer", (VECTOR, VECTOR[:2]), {}),
    ("trace", (SQUARE,), {"offset": 1}),
    ("diagonal", (TALL,), {"offset": -1}),
    ("matrix_transpose", (TALL,), {}),
    ("vecdot", (TALL, TALL[0]), {}),
    ("matmul", (TALL, WIDE), {}),
    ("tensordot", (TALL, TALL), {"axes": ((0, 1), (0, 1))}),
]


def given(value: Any, dtype: str = "float64") -> Any:
    if isinstance(value, list):
        return [given(v, dtype) for v in value]
    return t(value, dtype) if isinstance(value, np.ndarray) else value


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_values_match_numpy(call: Any) -> None:
    name, args, options = call
    numpy = getattr(np.linalg, name)
    want = parts(numpy(*args, **options))
    got = parts(getattr(la, name)(*map(given, args), **options))
    served = parts(numpy(*map(given, args), **options))  # the same function, reached by NumPy's protocol
    for g, s, w in zip(got, served, want, strict=True):
        assert g.shape == s.shape == np.shape(w)
        floats = "complex128" if name in ("eig", "eigvals") else "float64"  # NumPy's are real if they can be
        assert g.dtype == ("int32" if np.asarray(w).dtype.kind == "i" else floats)
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(g.numpy(), s.numpy())


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_solve_triangular_matches_torch(upper: bool, unit: bool, left: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    options = {"upper": upper, "left": left, "unitriangular": unit}
    b = COLUMNS if left else COLUMNS.swapaxes(-1, -2)
    want = torch.linalg.solve_triangular(torch.tensor(SQUARE), torch.tensor(b), **options)
    got = la.solve_triangular(t(SQUARE), t(b), **options)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-9)
    scaled = np.tril(ONE) * 0.3 + np.eye(4), b[0]
    check(lambda a, b: la.solve_triangular(a, b, **options), *(scaled if not upper else (scaled[0].T, b[0])))


def symmetric(a: Tensor) -> Tensor:
    return a + a.swapaxes(-1, -2)


def definite(a: Tensor) -> Tensor:
    return a @ a.swapaxes(-1, -2) + t(np.eye(a.shape[-1]))


W5 = np.cos(np.arange(25.0)).reshape(5, 5)


def weighted(x: Tensor) -> Tensor:
    """Each element with a weight of its own, so that a gradient that is transposed shows."""
    return x * t(W5[: x.shape[-2], : x.shape[-1]])


def of_svd(a: Tensor, full: bool = False) -> Tensor:
    """What depends on all three factors, not on their signs."""
    u, s, vh = la.svd(a, full_matrices=full)
    n = s.shape[-1]
    return weighted(u[..., :n] @ (s[..., None] ** 2 * vh[..., :n, :])) + (s[..., :1] * s).sum()


def of_eigh(a: Tensor) -> Tensor:
    values, vectors = la.eigh(a)
    return weighted((vectors * values[..., None, :] ** 3) @ vectors.swapaxes(-1, -2)) + (values**2).sum()


def of_eig(a: Tensor) -> Tensor:
    values, vectors = la.eig(a)
    first = vectors[..., :1, :]
    return (weighted(vectors * (first / abs(first))) + (values**3).sum()).real


GRADIENTS: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "solve": (la.solve, (ONE, COLUMNS[0])),
    "solve, broadcast": (la.solve, (SQUARE[:, 0], VECTOR)),
    "inv": (lambda a: weighted(la.inv(a)), (SQUARE[0],)),
    "pinv, tall": (lambda a: weighted(la.pinv(a)), (TALL[0],)),
    "pinv, wide": (lambda a: weighted(la.pinv(a)), (WIDE[0],)),
    "det": (la.det, (SQUARE[0],)),
    "det of singular matrices": (la.det, (LOW,)),
    "det of rank 1": (la.det, (np.outer([1.0, 2, 3], [1.0, -1, 2]),)),
    "slogdet": (lambda a: la.slogdet(a).logabsdet, (SQUARE[0],)),
    "cholesky": (lambda a: weighted(la.cholesky(definite(a))), (SQUARE[0],)),
    "cholesky, upper": (lambda a: weighted(la.cholesky(definite(a), upper=True)), (ONE,)),
    "qr, tall": (lambda a: sum(weighted(x).sum() for x in la.qr(a)), (TALL[0],)),
    "qr, wide": (lambda a: sum(weighted(x).sum() for x in la.qr(a)), (WIDE[0],)),
    "qr, complete": (lambda a: sum(weighted(x).sum() for x in la.qr(a, "complete")), (WIDE[0],)),
    "svd, tall": (of_svd, (TALL[0],)),
    "svd, wide": (of_svd, (WIDE[0],)),
    "svd, full": (lambda a: of_svd(a, True), (WIDE[0],)),
    "svd of equal values": (lambda a: la.svd(a).S.sum(), (np.diag([2.0, 2, 0.5]),)),
    "eigh of equal values": (lambda a: la.eigh(symmetric(a)).eigenvalues.sum(), (np.diag([2.0, 2, 1]),)),
    "svdvals": (lambda a: la.svdvals(a) ** 2, (TALL,)),
    "eigh": (lambda a: of_eigh(symmetric(a)), (ONE,)),
    "eigvalsh": (lambda a: la.eigvalsh(symmetric(a)) ** 2, (SQUARE[0],)),
    "eig": (of_eig, (REAL,)),
    "eigvals": (lambda a: abs(la.eigvals(a)) ** 2, (REAL,)),
    "lstsq, tall": (lambda a, b: la.lstsq(a, b).x, (TALL, COLUMNS[0, :1].repeat(5, 0))),
    "lstsq, wide": (lambda a, b: la.lstsq(a, b).x, (WIDE[0], COLUMNS[0, :3])),
    "lstsq, what is left": (lambda a, b: la.lstsq(a, b).residuals, (TALL[0], VECTOR.repeat(2)[:5])),
    "matrix_power": (lambda a: weighted(la.matrix_power(a, -3)), (ONE,)),
    "norm, nuc": (lambda a: la.norm(a, "nuc"), (ONE,)),
    "norm, 2": (lambda a: la.norm(a, 2, (0, 2)), (SQUARE[0],)),
    "norm, inf": (lambda a: la.norm(a, np.inf), (ONE,)),
    "vector_norm": (lambda a: la.vector_norm(a, ord=3, axis=1), (ONE,)),
    "cond": (la.cond, (ONE,)),
    "cond, 1": (lambda a: la.cond(a, 1), (ONE,)),
    "multi_dot": (lambda a, b: la.multi_dot([a, b, a]), (WIDE[0], TALL[0])),
    "cross": (lambda a, b: weighted(la.cross(a, b)), (TALL[0], TALL[1])),
    "tensorsolve": (lambda a, b: la.tensorsolve(a, b), (ONE.reshape(4, 2, 2), VECTOR)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_match_finite_differences(name: str) -> None:
    function, arrays = GRADIENTS[name]
    check(function, *arrays)


@pytest.mark.parametrize("name", GRADIENTS)
def test_traced_values_and_gradients_match_eager(name: str) -> None:
    """Values and gradients, of the call that records and of the next, and the body runs once."""
    function, arrays = GRADIENTS[name]
    tensors = [t(a) for a in arrays]
    gm = GradManager().attach(tensors)

    def step(*xs: Tensor) -> Any:
        with gm:
            y = function(*xs)
            gm.backward(y.sum())
        return y, [x.grad for x in xs]

    traced = trace(step)
    want, slopes = step(*tensors)
    for _ in range(3):
        got, found = traced(*tensors)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-10)
        for g, s in zip(found, slopes):
            np.testing.assert_allclose(g.numpy(), s.numpy(), rtol=1e-8, atol=1e-8)
    assert traced.stats()["body_runs"] == 1


@pytest.mark.parametrize("name", ["det", "svdvals", "eigvalsh", "inv", "solve", "cholesky"])
def test_second_derivatives_match_finite_differences(name: str) -> None:
    """Of what is scaled: a directional derivative of the gradient against a difference of gradients."""
    function, arrays = GRADIENTS[name]
    direction = [np.sin(np.arange(a.size)).reshape(a.shape) for a in arrays]

    def slope(*xs: Tensor) -> Tensor:
        gm = GradManager().attach(list(xs))
        with gm:
            gm.backward(function(*xs).sum())
        slopes = [x.grad for x in xs]
        for x in xs:
            x.grad = None
        return sum((s * t(d)).sum() for s, d in zip(slopes, direction))

    check(slope, *arrays)


def same_both_ways(function: Callable[..., Tensor], arrays: Sequence[Any]) -> None:
    """A derivative in a direction, weighted, is the gradient of that weight, along the direction."""
    xs = [t(a) for a in arrays]
    directions = [t(np.sin(1 + np.arange(a.size)).reshape(a.shape)) for a in arrays]
    y, slope = mgb.jvp(function, tuple(xs), tuple(directions))
    weights = t(np.cos(np.arange(y.size)).reshape(y.shape))
    gradients = mgb.vjp(function, *xs)[1](weights)
    along = sum((g * d).sum().item() for g, d in zip(gradients, directions))
    np.testing.assert_allclose((slope * weights).sum().item(), along, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", GRADIENTS)
def test_directional_derivatives_agree_with_gradients(name: str) -> None:
    function, arrays = GRADIENTS[name]
    same_both_ways(function, arrays)
    if "equal" not in name and "det of" not in name:  # whose gradients have no slope
        slope = mgb.grad(lambda *xs: function(*xs).sum(), tuple(range(len(arrays))))
        same_both_ways(lambda *xs: sum((g.sum() for g in slope(*xs)), t(0.0)), arrays)


@pytest.mark.parametrize("decorator", [partial_trace, xla_trace])
def test_partial_trace_and_xla_trace_match_eager(decorator: Callable[..., Any]) -> None:
    if decorator is xla_trace:
        pytest.importorskip("jax", reason="XLA is not installed")
        pytest.importorskip("mgb_xla", reason="mgb-xla is not installed")

    def function(a: Tensor, b: Tensor) -> Tensor:
        return la.solve(a @ a.swapaxes(-1, -2), b) * 2 + la.det(a)[:, None, None]

    traced = decorator(function)
    for scale in (1.0, 2.0):
        got = traced(t(SQUARE[0] * scale, "float32"), t(COLUMNS, "float32"))
        want = function(t(SQUARE[0] * scale), t(COLUMNS))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-3, atol=1e-3)


def test_partial_trace_gradients_match_eager() -> None:
    function, arrays = GRADIENTS["solve"]
    for got, want in zip(gradients(partial_trace(function), *arrays), gradients(function, *arrays)):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-9)


def everything(a: Tensor, b: Tensor) -> list[Tensor]:
    square = a @ a.swapaxes(-1, -2)
    found = [*la.qr(b), *la.svd(b, full_matrices=False), *la.eigh(square), *la.slogdet(square)]
    return [*found, la.cholesky(square), la.pinv(b), *la.lstsq(b, b), la.cond(b), la.matrix_rank(b)]


def test_new_shapes_do_not_retrace() -> None:
    traced = trace(everything)
    for batch, n, m in [(2, 3, 2), (5, 4, 2), (3, 6, 4), (7, 5, 3)]:
        rng = np.random.default_rng(n)
        a, b = (t(rng.normal(size=(batch, n, k))) for k in (n, m))
        for got, want in zip(traced(a, b), everything(a, b), strict=True):
            np.testing.assert_allclose(abs(got).numpy(), abs(want).numpy(), rtol=1e-7, atol=1e-9)
    assert traced.stats()["body_runs"] <= 2  # what the first call looks at, and the one that follows lengths


SINGULAR: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: la.solve(a, t(np.ones(3))),
    "inv": la.inv,
    "cholesky": la.cholesky,
    "solve_triangular": lambda a: la.solve_triangular(a, a, upper=True),
    "matrix_power": lambda a: la.matrix_power(a, -1),
}


@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("traced", [False, True])
def test_singular_matrix_raises_linalg_error(name: str, traced: bool) -> None:
    function = trace(SINGULAR[name]) if traced else SINGULAR[name]
    for _ in range(3):
        with pytest.raises(np.linalg.LinAlgError, match=r"\(3, 3\)") as caught:
            answer = function(t(np.zeros((3, 3))))
            answer.numpy()
        assert isinstance(caught.value, LinAlgError) and isinstance(caught.value, MgbError)
        np.testing.assert_array_equal(
            np.shape(function(t(np.eye(3)))), np.shape(SINGULAR[name](t(np.eye(3))))
        )


REFUSED: dict[str, Callable[[], Any]] = {
    "solve: needs square matrices in the last two axes": lambda: la.solve(t(TALL), t(TALL)),
    "different numbers of rows": lambda: la.solve(t(ONE), t(VECTOR[:3])),
    "do not broadcast": lambda: la.solve(t(SQUARE[0]), t(SQUARE[0][:2])),
    "inv: needs matrices in the last two axes": lambda: la.inv(t(VECTOR)),
    "det: needs square matrices": lambda: la.det(t(TALL)),
    "eigh: needs square matrices": lambda: la.eigh(t(TALL)),
    "one axis .* or two": lambda: la.norm(t(TALL), 2),
    "at least two": lambda: la.multi_dot([t(ONE)]),
    "three elements": lambda: la.cross(t(ONE), t(ONE)),
    "as many elements as the others": lambda: la.tensorinv(t(ONE), 1 + 1),
}


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_shapes_raise(text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        REFUSED[text]()


def test_invalid_mode_and_order_strings_raise() -> None:
    calls = (lambda: la.qr(t(ONE), "raw"), lambda: la.norm(t(ONE), "max"), lambda: la.eigh(t(ONE), "X"))
    for call in (*calls, lambda: la.norm(t(VECTOR), "fro")):
        with pytest.raises(ValueError, match="'"):
            call()


def test_complete_qr_of_tall_matrix_has_no_gradient() -> None:
    with pytest.raises(NoGradientError, match="complete"):
        gradients(lambda a: la.qr(a, "complete").Q.sum(), TALL[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_floats_keep_their_dtype(dtype: str) -> None:
    a, b = t(SQUARE[0], dtype), t(COLUMNS, dtype)
    rtol = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4}[dtype]
    for got, want in zip(
        (la.solve(a, b), la.svdvals(a), la.det(a)),
        (np.linalg.solve(SQUARE[0], COLUMNS), np.linalg.svdvals(SQUARE[0]), np.linalg.det(SQUARE[0])),
    ):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype("float64").numpy(), want, rtol=rtol, atol=rtol)


def test_integers_become_float32() -> None:
    a = np.array([[2, 1], [1, 3]])
    assert la.inv(t(a, "int32")).dtype == la.norm(t(a, "int32"), 1).dtype == "float32"
    assert la.matrix_power(t(a, "int32"), 5).tolist() == np.linalg.matrix_power(a, 5).tolist()


def test_solve_of_hilbert_matrix_is_as_exact_as_lapack() -> None:
    """Hilbert's matrices, on which the last digits of bad algorithms are lost."""
    hilbert = scipy.linalg.hilbert(8)
    x = la.solve(t(hilbert), t(hilbert @ np.ones(8))).numpy()
    np.testing.assert_allclose(x, np.linalg.solve(hilbert, hilbert @ np.ones(8)), rtol=1e-12)


def test_every_numpy_linalg_function_is_covered() -> None:
    served = {f.__name__ for f in functions() if f.__module__ == "numpy.linalg"}
    assert served == {name for name, *_ in CALLS}


def test_linalg_is_exported_by_mgb_and_mgb_numpy() -> None:
    assert mgb.linalg.solve is mgb.numpy.linalg.solve
    assert set(mgb.numpy.linalg.__all__) >= set(np.linalg.__all__) - {"LinAlgError"}
