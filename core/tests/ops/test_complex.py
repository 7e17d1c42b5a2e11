"""Complex numbers: values against NumPy, gradients against torch and differences, eager and traced."""

import operator

import mgb
import mgb.functional as F
import mgb.linalg as la
import mgb.optimizer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb import dtypes, tensor
from mgb.autodiff import GradManager
from mgb.errors import ConversionError
from mgb.jit import trace

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
CODES = ("complex64", "complex128")


def draw(*shape, dtype="complex128"):
    return (RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)).astype(dtype)


def gradients(function, *arrays):
    """The gradients of a real number that depends on every part of the result, by mgb."""
    given = [tensor(a, dtype=a.dtype) for a in arrays]
    manager = GradManager().attach(given)
    with manager:
        out = function(*given)
        loss = (F.real(out * out) + F.imag(out) * 0.5).sum() if F.is_complex(out) else (out * out).sum()
        manager.backward(loss)
    return [g.grad.numpy() for g in given]


def torch_gradients(function, *arrays):
    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = function(*given)
    loss = ((out * out).real + out.imag * 0.5).sum() if out.is_complex() else (out * out).sum()
    loss.backward()
    return [g.grad.resolve_conj().numpy() for g in given]


# name, mgb, torch, arrays
CASES = [
    ("add", operator.add, operator.add, (draw(3, 2), draw(2))),
    ("add real", operator.add, operator.add, (draw(3, 2), RANDOM.normal(size=2))),
    ("sub", operator.sub, operator.sub, (RANDOM.normal(size=2), draw(3, 2))),
    ("mul", operator.mul, operator.mul, (draw(3, 2), draw(2))),
    ("mul real", operator.mul, operator.mul, (draw(3, 2), RANDOM.normal(size=(3, 1)))),
    ("div", operator.truediv, operator.truediv, (draw(3, 2), draw(2))),
    ("pow", operator.pow, operator.pow, (draw(3, 2), draw(2))),
    ("matmul", operator.matmul, operator.matmul, (draw(2, 3, 4), draw(4, 2))),
    ("neg", operator.neg, operator.neg, (draw(3),)),
    *((name, getattr(F, name), getattr(torch, name), (draw(3, 2),)) for name in (
        "abs angle acos acosh asin asinh atan atanh conj cos cosh exp expm1 exp2 imag log log10 log1p log2 "
        "real rsqrt sin sinh sqrt square tan tanh view_as_real").split()),
    ("reciprocal", np.reciprocal, torch.reciprocal, (draw(3),)),
    ("complex", F.complex, torch.complex, (RANDOM.normal(size=3), RANDOM.normal(size=3))),
    ("polar", F.polar, torch.polar, (RANDOM.uniform(1, 2, 3), RANDOM.normal(size=3))),
    ("view_as_complex", F.view_as_complex, torch.view_as_complex, (RANDOM.normal(size=(3, 2)),)),
    ("sum", lambda x: x.sum(0), lambda x: x.sum(0), (draw(3, 2),)),
    ("prod", lambda x: x.prod(0), lambda x: x.prod(0), (draw(3, 2),)),
    ("mean", lambda x: x.mean(1), lambda x: x.mean(1), (draw(3, 2),)),
    ("var", lambda x: F.var(x, 0), lambda x: x.var(0, correction=0), (draw(3, 2),)),
    ("norm", lambda x: F.norm(x, axis=0), lambda x: torch.linalg.vector_norm(x, dim=0), (draw(3, 2),)),
    ("cumsum", lambda x: F.cumsum(x, 1), lambda x: x.cumsum(1), (draw(3, 2),)),
    ("index", lambda x: x[1:, [0, 0, 1]], lambda x: x[1:, [0, 0, 1]], (draw(3, 2),)),
    ("where", lambda x, y: F.where(x.real > 0, x, y), lambda x, y: torch.where(x.real > 0, x, y),
     (draw(3), draw(3))),
    ("concat", lambda x, y: F.concat([x, y]), lambda x, y: torch.cat([x, y]),
     (draw(3), RANDOM.normal(size=2))),
    ("reshape", lambda x: x.reshape(3, 2).T, lambda x: x.reshape(3, 2).T, (draw(2, 3),)),
    ("einsum", lambda x, y: F.einsum("ij,kj->ik", x, y), lambda x, y: torch.einsum("ij,kj->ik", x, y),
     (draw(2, 3), draw(4, 3))),
    ("vecdot", la.vecdot, torch.linalg.vecdot, (draw(2, 3), draw(2, 3))),
    ("astype", lambda x: x.astype("complex128") * 1j, lambda x: x.to(torch.complex128) * 1j,
     (RANDOM.normal(size=3),)),
]  # fmt: skip


@pytest.mark.parametrize("ours, theirs, arrays", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_values_and_gradients_match_torch(ours, theirs, arrays):
    wanted = theirs(*map(torch.tensor, arrays)).resolve_conj().numpy()
    traced = trace(ours)
    for function in (ours, traced, traced):
        got = function(*(tensor(a, dtype=a.dtype) for a in arrays))
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-11, atol=1e-12)
    for got, grad in zip(gradients(ours, *arrays), torch_gradients(theirs, *arrays), strict=True):
        assert got.dtype == grad.dtype
        np.testing.assert_allclose(got, grad, rtol=1e-9, atol=1e-10)


SQUARE = draw(2, 3, 3)
SHAPES = {"square": SQUARE, "high": draw(2, 5, 3), "wide": draw(3, 5)}


def _positive(a):
    """Positive definite matrices, also of high ones."""
    return (
        a.mT.conj() @ a + np.eye(a.shape[-1])
        if isinstance(a, mgb.Tensor)
        else a.mH @ a + torch.eye(a.shape[-1])
    )


def _of_svd(u, s, vh):
    """What does not depend on the angles of the vectors."""
    return (abs(u) ** 3 * s[..., None, :]).sum() + (abs(vh) ** 3).sum() + ((u * s[..., None, :] ** 2) @ vh)


def _of_qr(q, r):
    return q @ r**2


def _of_eigh(values, vectors):
    return (abs(vectors) ** 3 * values[..., None, :]).sum() + values


FACTORS = [
    ("svdvals", la.svdvals, torch.linalg.svdvals),
    ("svd", lambda a: _of_svd(*la.svd(a, full_matrices=False)),
     lambda a: _of_svd(*torch.linalg.svd(a, full_matrices=False))),
    ("qr", lambda a: la.qr(a).Q @ (la.qr(a).R ** 2), lambda a: _of_qr(*torch.linalg.qr(a))),
    ("pinv", la.pinv, torch.linalg.pinv),
    ("cholesky", lambda a: la.cholesky(_positive(a)), lambda a: torch.linalg.cholesky(_positive(a))),
    ("upper cholesky", lambda a: la.cholesky(_positive(a), upper=True),
     lambda a: torch.linalg.cholesky(_positive(a), upper=True)),
    ("eigvalsh", lambda a: la.eigvalsh(_positive(a)), lambda a: torch.linalg.eigvalsh(_positive(a))),
    ("eigh", lambda a: _of_eigh(*la.eigh(_positive(a))),
     lambda a: _of_eigh(*torch.linalg.eigh(_positive(a)))),
    ("nuclear norm", lambda a: la.norm(a, "nuc", (-2, -1)), lambda a: torch.linalg.matrix_norm(a, "nuc")),
]  # fmt: skip
LINEAR = [
    ("solve", la.solve, torch.linalg.solve, (SQUARE, draw(2, 3, 2))),
    ("solve real", la.solve, torch.linalg.solve, (RANDOM.normal(size=(3, 3)).astype(complex), draw(3, 2))),
    ("inv", la.inv, torch.linalg.inv, (SQUARE,)),
    ("det", la.det, torch.linalg.det, (SQUARE,)),
    ("slogdet", lambda a: la.slogdet(a).sign, lambda a: torch.linalg.slogdet(a).sign, (SQUARE,)),
    ("logabsdet", lambda a: la.slogdet(a).logabsdet, lambda a: torch.linalg.slogdet(a).logabsdet, (SQUARE,)),
    ("triangle", lambda a, b: la.solve_triangular(a, b, upper=True),
     lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), (SQUARE, draw(2, 3, 2))),
    ("power", lambda a: la.matrix_power(a, -3), lambda a: torch.linalg.matrix_power(a, -3), (SQUARE,)),
    ("eigvals", lambda a: F.exp(la.eigvals(a)).sum(), lambda a: torch.exp(torch.linalg.eigvals(a)).sum(),
     (SQUARE,)),
    ("eigvals of real", lambda a: F.exp(la.eigvals(a)).sum(),
     lambda a: torch.exp(torch.linalg.eigvals(a)).sum(), (RANDOM.normal(size=(2, 4, 4)),)),
    ("eig", lambda a: _loss(F, *la.eig(a)), lambda a: _loss(torch, *torch.linalg.eig(a)), (SQUARE,)),
    *((f"{name} of {form}", ours, theirs, (a,)) for form, a in SHAPES.items()
      for name, ours, theirs in FACTORS if form != "wide" or name not in ("qr", "eigh")),
    ("lstsq", lambda a, b: la.lstsq(a, b).x, lambda a, b: torch.linalg.lstsq(a, b).solution,
     (draw(2, 5, 3), draw(2, 5, 2))),
    ("lstsq wide", lambda a, b: la.lstsq(a, b).x, lambda a, b: torch.linalg.pinv(a) @ b,
     (draw(3, 5), draw(3, 2))),
    ("eig of real", lambda a: _loss(F, *la.eig(a)), lambda a: _loss(torch, *torch.linalg.eig(a)),
     (RANDOM.normal(size=(2, 4, 4)),)),
]  # fmt: skip


def _loss(library, values, vectors):
    """It depends neither on the order of the values nor on the angles of the vectors."""
    return (abs(vectors) ** 3 * library.exp(values * 0.3)[..., None, :]).sum()


@pytest.mark.parametrize("ours, theirs, arrays", [c[1:] for c in LINEAR], ids=[c[0] for c in LINEAR])
def test_linear_algebra_matches_torch(ours, theirs, arrays):
    test_values_and_gradients_match_torch(ours, theirs, arrays)


def test_gradient_is_the_conjugate_of_that_of_jax():
    """JAX's gradient, of the same function."""
    jax = pytest.importorskip("jax")
    array = draw(3, dtype="complex64")
    wanted = jax.grad(lambda z: (abs(jax.numpy.exp(z)) + (z**3).imag).sum())(array)
    got = mgb.grad(lambda z: (abs(F.exp(z)) + (z**3).imag).sum())(tensor(array))
    np.testing.assert_allclose(got.numpy(), np.conj(wanted), rtol=1e-5)


def test_derivatives_of_an_analytic_function():
    array, direction = draw(3), draw(3)
    z, d = tensor(array, dtype="complex128"), tensor(direction, dtype="complex128")
    _, tangent = mgb.jvp(lambda z: z**3, (z,), (d,))
    np.testing.assert_allclose(tangent.numpy(), 3 * array**2 * direction, rtol=1e-12)
    for function in (mgb.jacrev, mgb.jacfwd):
        np.testing.assert_allclose(function(lambda z: z**3)(z).numpy(), np.diag(3 * array**2), rtol=1e-12)


def test_second_order_gradient_through_complex_numbers():
    x = tensor(RANDOM.normal(size=4), dtype="float64")
    with_steps = mgb.grad(lambda x: mgb.grad(lambda x: (abs(F.exp(1j * x) * x + 1) ** 2).sum())(x).sum())(x)
    y = torch.tensor(x.numpy().copy(), requires_grad=True)
    (slope,) = torch.autograd.grad((abs(torch.exp(1j * y) * y + 1) ** 2).sum(), y, create_graph=True)
    slope.sum().backward()
    np.testing.assert_allclose(with_steps.numpy(), y.grad.numpy(), rtol=1e-10)


@given(st.sampled_from(dtypes.DTYPES), st.sampled_from(dtypes.COMPLEX), st.booleans())
def test_promotion(real, complicated, weak):
    """NumPy's, but that integers and bools count as float32, as they do beside floats."""
    counted = real if real in (dtypes.float64, dtypes.float16) else dtypes.float32
    number = 1j if weak else np.zeros(1, complicated)
    wanted = (np.zeros(1, counted) + number).dtype
    other = number if weak else tensor(number, dtype=complicated)
    assert (tensor([1], dtype=real) + other).dtype == (other - tensor([1], dtype=real)).dtype == wanted


REFUSED = {
    "lt": lambda z: z < z, "floor_div": lambda z: z // 2, "fmod": lambda z: z % 2, "floor": F.floor,
    "maximum": lambda z: F.maximum(z, 0), "reduce_max": lambda z: z.max(), "sort": F.sort, "argmax": F.argmax,
    "argsort": F.argsort, "argtopk": lambda z: F.topk(z, 1), "clip": lambda z: F.clip(z, 0, 1),
    "atan2": lambda z: F.atan2(z, z), "relu": F.relu, "bit_and": lambda z: z & 1,
    "a cast of complex64 to float32": lambda z: z.astype("float32"),
    "lt of a number": lambda z: z.real < 1j,
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_functions_reject_complex_numbers(name):
    z = tensor(draw(3, 3, dtype="complex64"))
    for function in (REFUSED[name], trace(REFUSED[name])):
        with pytest.raises(ConversionError, match=f"^{name.removesuffix(' of a number')}"):
            function(z)


def test_casts_and_conversions():
    assert tensor([1 + 2j]).dtype == tensor(np.array([1j])).dtype == "complex64"
    assert tensor([0, 1j]).astype("bool").tolist() == [False, True]
    assert complex(tensor(1 + 2j)) == 1 + 2j
    assert np.iscomplexobj(tensor([1j])) and not np.iscomplexobj(tensor([1.0]))
    with pytest.raises(ConversionError, match="imaginary"):
        tensor([1j], dtype="float32")
    with pytest.raises(TypeError):
        float(tensor(1j))


def test_complex_functions_accept_real_numbers():
    x = tensor([-1.5, 2.0])
    assert F.real(x).tolist() == F.conj(x).tolist() == x.tolist()
    assert (F.imag(x).tolist(), x.imag.dtype) == ([0, 0], "float32")
    np.testing.assert_allclose(F.angle(x, deg=True).numpy(), [180, 0])
    np.testing.assert_array_equal(F.sign(tensor([3 + 4j, 0])).numpy(), np.complex64([0.6 + 0.8j, 0]))


@pytest.mark.parametrize(
    "function", [np.sign, np.conj, np.angle, np.real, np.imag, np.isfinite, np.isreal, np.std]
)
def test_numpy_functions_accept_complex_tensors(function):
    array = draw(4, 3, dtype="complex64")
    np.testing.assert_allclose(function(tensor(array)).numpy(), function(array), rtol=1e-5)


def test_complex_numbers_as_trace_arguments():
    @trace
    def scaled(z, factor):
        return z * factor + abs(z)

    array = draw(3, dtype="complex64")
    for factor in (1j, 1j, 2j, 3.0, 2, 4j, 5j):
        got = scaled(tensor(array), factor).numpy()
        np.testing.assert_allclose(got, array * factor + abs(array), rtol=1e-5)


def test_trace_fuses_real_ops_and_reports_complex_ones():
    @trace
    def power(z, x):
        return (abs(F.exp(z * x)) * x + 1).sum()

    z, x = tensor(draw(50, dtype="complex64")), tensor(RANDOM.normal(size=50))
    assert "needs complex64" in str(power.explain(z, x))
    assert "1 fused groups" in str(power.explain(z, x))
    wanted = (abs(np.exp(z.numpy() * x.numpy())) * x.numpy() + 1).sum()
    np.testing.assert_allclose(power(z, x).numpy(), wanted, rtol=1e-4)


def test_log_of_exp_is_not_rewritten_for_complex_numbers():
    """``log(exp(z))`` is not `z` where the imaginary part is beyond pi."""
    array = np.array([0.1 + 5j, 1 - 9j])
    got = trace(lambda z: F.log(F.exp(z)), symbolic=True)(tensor(array, dtype="complex128"))
    np.testing.assert_allclose(got.numpy(), np.log(np.exp(array)), rtol=1e-12)


def test_save_and_export_of_complex_numbers(tmp_path):
    z = tensor([1 + 2j, 3])
    mgb.save({"z": z}, tmp_path / "z")
    assert mgb.load(tmp_path / "z")["z"].tolist() == z.tolist()
    with pytest.raises(TypeError, match="complex128"):
        mgb.save(z.astype("complex128"), tmp_path / "z")

    @trace
    def squared(z):
        return z * z

    squared.export(tmp_path / "f", "c64[2]")
    assert mgb.jit.load_compiled(tmp_path / "f")(z).tolist() == [-3 + 4j, 9]


def test_optimizers_with_complex_parameters():
    weight = mgb.Parameter(np.array([1 + 1j, -2j]))
    goal, manager = tensor([2 - 1j, 3 + 3j]), GradManager().attach([weight])
    descent = mgb.optimizer.SGD([weight], lr=0.1, momentum=0.5)
    for _ in range(60):
        with manager:
            manager.backward((abs(weight - goal) ** 2).sum())
        mgb.optimizer.clip_grad_norm([weight], 100.0)
        descent.step().clear_grad()
    np.testing.assert_allclose(weight.numpy(), goal.numpy(), atol=1e-3)
    with pytest.raises(ValueError, match="view_as_real"):
        mgb.optimizer.Adam([weight], lr=0.1)


def test_loop_of_complex_numbers_has_gradients():
    turns, start = tensor(draw(4, 3), dtype="complex128"), tensor(draw(3), dtype="complex128")

    def looped(start):
        return (abs(mgb.jit.scan(lambda z, turn: (z * turn + z * z * 0.1, None), start, turns)[0]) ** 2).sum()

    def unrolled(start):
        for k in range(4):
            start = start * turns[k] + start * start * 0.1
        return (abs(start) ** 2).sum()

    got, wanted = mgb.grad(looped)(start), mgb.grad(unrolled)(start)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-10)
