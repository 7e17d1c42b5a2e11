"""Fourier transforms: values against NumPy, gradients against torch and differences, traced too."""

import mgb
import mgb.fft
import mgb.numpy.fft
import numpy as np
import pytest
from differences import check
from hypothesis import given
from hypothesis import strategies as st
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.jit import trace

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
REAL = RANDOM.normal(size=(3, 4, 5))
COMPLEX = REAL + 1j * RANDOM.normal(size=REAL.shape)
NORMS = (None, "backward", "ortho", "forward")

ALONG = "fft ifft rfft irfft hfft ihfft".split()
OVER = "fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split()

CALLS = [
    *((name, {}) for name in (*ALONG, *OVER)),
    *((name, {"n": n, "axis": axis, "norm": "ortho"})
      for name in ALONG for n, axis in ((3, 1), (8, -1), (1, 0), (7, -1))),
    *((name, {"s": s, "axes": axes, "norm": "forward"})
      for name in OVER
      for s, axes in (((3, 6), (0, 2)), ((7, 2), (2, 1)))),
    *((name, {"axes": (1, 0)}) for name in "fftn ifftn rfftn irfftn".split()),
]  # fmt: skip


def operand(name):
    return REAL if name in ("rfft", "rfft2", "rfftn", "ihfft") else COMPLEX


def loss(out):
    """A real number that depends on all parts of `out`, in mgb and in torch."""
    parts = (out.real, out.imag) if out.dtype in (np.dtype("complex128"), torch.complex128) else (out,)
    return sum((part * part * part).sum() for part in parts)


@pytest.mark.parametrize("name, options", CALLS)
def test_values_and_gradients(name, options):
    array = operand(name)
    wanted = getattr(np.fft, name)(array, **options)
    ours, numpy = getattr(mgb.fft, name), getattr(np.fft, name)
    traced = trace(lambda x: ours(x, **options))
    for function in (lambda x: ours(x, **options), lambda x: numpy(x, **options), traced, traced):
        got = function(tensor(array, dtype=array.dtype))
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-10, atol=1e-12)
    names = {"n": "n", "axis": "dim", "axes": "dim", "s": "s", "norm": "norm"}
    theirs = torch.tensor(array, requires_grad=True)
    loss(getattr(torch.fft, name)(theirs, **{names[k]: v for k, v in options.items()})).backward()
    for function in (lambda x: loss(ours(x, **options)), trace(lambda x: loss(ours(x, **options)))):
        x = tensor(array, dtype=array.dtype)
        with GradManager().attach([x]) as manager:
            manager.backward(function(x))
        np.testing.assert_allclose(x.grad.numpy(), theirs.grad.resolve_conj().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_gradients_match_finite_differences_to_second_order(norm, length):
    array = RANDOM.normal(size=(2, length))

    def magnitudes(x):
        return abs(mgb.fft.irfft(mgb.fft.rfft(x, norm=norm) ** 2, n=length, norm=norm) + x) ** 3

    check(magnitudes, array)
    check(lambda x: mgb.grad(lambda x: magnitudes(x).sum())(x), array)


@given(
    st.integers(1, 12),
    st.sampled_from(NORMS),
    st.sampled_from(["float32", "float64", "complex64", "int32", "float16"]),
)
def test_inverses(length, norm, dtype):
    array = (RANDOM.normal(size=(2, length)) * 10).astype(dtype)
    x = tensor(array, dtype=dtype)
    wide = dtype in ("float64",)
    assert mgb.fft.fft(x).dtype == ("complex128" if wide else "complex64")
    back = mgb.fft.ifft(mgb.fft.fft(x, norm=norm), norm=norm)
    np.testing.assert_allclose(back.numpy(), array, atol=1e-12 if wide else 1e-4)
    if dtype != "complex64":
        back = mgb.fft.irfft(mgb.fft.rfft(x, norm=norm), n=length, norm=norm)
        assert back.dtype == ("float64" if wide else "float32")
        np.testing.assert_allclose(back.numpy(), array, atol=1e-12 if wide else 1e-4)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies_and_shifts(n):
    for name in ("fftfreq", "rfftfreq"):
        got = getattr(mgb.fft, name)(n, 0.25)
        np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(n, 0.25), rtol=1e-6)
        assert (got.dtype, getattr(mgb.fft, name)(n, dtype="float64").dtype) == ("float32", "float64")
    x = RANDOM.normal(size=(n, 3, 4))
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, (1, 2), -1, ()):
            got = getattr(np.fft, name)(tensor(x, dtype="float64"), axes=axes)
            np.testing.assert_array_equal(got.numpy(), getattr(np.fft, name)(x, axes=axes))


def test_other_lengths_need_no_retrace():
    @trace
    def filtered(x):
        return mgb.fft.irfft(mgb.fft.rfft(x) * 2, n=x.shape[-1]) + x

    for length in (8, 5, 12, 7, 9):
        x = RANDOM.normal(size=(2, length))
        np.testing.assert_allclose(filtered(tensor(x, dtype="float64")).numpy(), 3 * x, rtol=1e-10)
    assert filtered.stats()["records"] <= 2


def test_vmap():
    x = tensor(REAL, dtype="float64")
    got = mgb.vmap(mgb.fft.rfft2)(x).numpy()
    np.testing.assert_allclose(got, np.fft.rfft2(REAL), rtol=1e-10, atol=1e-12)


REFUSED = {
    "no elements": (lambda x: mgb.fft.fft(x[:, :0]), ShapeError, "must be at least 1, got 0"),
    "length": (lambda x: mgb.fft.fft(x, 0), ShapeError, "must be at least 1, got 0"),
    "norm": (lambda x: mgb.fft.fft(x, norm="both"), ValueError, "norm is"),
    "axis": (lambda x: mgb.fft.fft(x, axis=2), ShapeError, "axis"),
    "twice": (lambda x: mgb.fft.fftn(x, axes=(0, 0)), ShapeError, "twice"),
    "lengths": (lambda x: mgb.fft.fftn(x, s=(1, 2), axes=(0,)), ShapeError, "2 lengths for 1"),
    "complex": (lambda x: mgb.fft.rfft(x * 1j), TypeError, "real numbers"),
    "out": (lambda x: np.fft.fft(x, out=np.zeros((3, 4), complex)), TypeError, "out"),
    "one": (lambda x: mgb.fft.irfft(x[:, :1]), ShapeError, "must be at least 1, got 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_arguments_are_rejected(name):
    function, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        function(tensor(REAL[0]))


def test_fft_is_available_in_mgb_numpy():
    assert mgb.fft.fft is mgb.numpy.fft.fft
