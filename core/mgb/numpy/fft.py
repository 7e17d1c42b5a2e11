"""Discrete Fourier transforms under NumPy's names and with its arguments.

They give complex64, or float32 where the result is real, of all but 64-bit floats. The gradients are the
adjoint transforms: see `mgb.ops.fourier`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from ..functional import rearrange
from ..ir.sizes import amount, whole
from ..ops import fourier as ops
from ..ops.creation import along
from ..ops.declare import normalize_axis
from ..ops.layout import cut_along, unslice
from ..ops.primitives import le, where
from ..runtime import device as devices
from ..tensor import Tensor
from ..tensor.apply import tensors
from ..tensor.arguments import explain as _explain

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Lengths = Sequence[int] | None
Axes = int | Sequence[int] | None


def _norm(name: str, norm: str | None) -> str:
    if norm is not None and norm not in ops.OPPOSITE:
        raise ValueError(f"{name}: norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    return norm or "backward"


def _fitted(name: str, x: Tensor, length: int, axis: int) -> Tensor:
    """Return `x` cut, or with zeros at its end, so that `axis` is `length` long."""
    own = x.shape[axis]
    if length < 1:
        raise ShapeError(f"{name}: the length of a transform must be at least 1, got {length}")
    if own > length:
        return cut_along(x, axis, 0, length)
    if own == length:
        return x
    shape = tuple(length if i == axis else d for i, d in enumerate(x.shape))
    return unslice(x, shape=shape, window=tuple((0, d, 1) for d in x.shape))


def _places(name: str, x: Tensor, s: Lengths, axes: Axes) -> tuple[list[int], list[int]]:
    """Return the axes in the order given, and how long each is to be."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    given = [axes] if isinstance(axes, int) else list(axes)
    places = [normalize_axis(name, axis, x.ndim)[0] for axis in given]
    normalize_axis(name, given, x.ndim)  # none stands twice
    lengths = [-1] * len(places) if s is None else list(s)
    if len(lengths) != len(places):
        raise ShapeError(f"{name}: s has {len(lengths)} lengths for {len(places)} axes")
    wanted = [whole(n, f"{name}: n") for n in lengths]
    return places, [x.shape[p] if n == -1 else n for n, p in zip(wanted, places, strict=True)]


def _complex(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None, inverse: bool) -> Tensor:
    scaled = _norm(name, norm)
    (x,) = tensors(name, (a,))
    places, lengths = _places(name, x, s, axes)
    for place, length in zip(places, lengths, strict=True):
        x = _fitted(name, x, length, place)
    if not places:
        return +x
    return ops.fft_(x, axis=tuple(sorted(places)), inverse=inverse, norm=scaled)


def _of_real(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Tensor:
    """Return a transform of real numbers along the last of `axes`, of complex ones along the others."""
    scaled = _norm(name, norm)
    (x,) = tensors(name, (a,))
    places, lengths = _places(name, x, s, axes)
    if not places:
        raise ShapeError(f"{name}: axes is empty: give at least one axis")
    for place, length in zip(places, lengths, strict=True):
        x = _fitted(name, x, length, place)
    *others, last = places
    out = ops.rfft_(x, axis=(last,), norm=scaled)
    return ops.fft_(out, axis=tuple(sorted(others)), inverse=False, norm=scaled) if others else out


def _to_real(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Tensor:
    """Return the inverse of `_of_real`; without a length the last axis gives an even number of elements."""
    scaled = _norm(name, norm)
    (x,) = tensors(name, (a,))
    places, lengths = _places(name, x, s, axes)
    if not places:
        raise ShapeError(f"{name}: axes is empty: give at least one axis")
    *others, last = places
    length = lengths[-1] if s is not None and s[-1] != -1 else 2 * (x.shape[last] - 1)
    if length < 1:
        raise ShapeError(f"{name}: the length of a transform must be at least 1, got {length}")
    for place, wanted in zip(places, (*lengths[:-1], ops.half(length)), strict=True):
        x = _fitted(name, x, wanted, place)
    if others:
        x = ops.fft_(x, axis=tuple(sorted(others)), inverse=True, norm=scaled)
    return ops.irfft_(x, axis=(last,), length=length, norm=scaled)


def _along(axis: int, n: int | None) -> dict[str, Any]:
    return {"s": None if n is None else (n,), "axes": (operator.index(axis),)}


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the discrete Fourier transform along `axis`.

    Parameters
    ----------
    a : Tensor of shape (..., m, ...)
        Of any dtype.
    n : int, optional
        How many elements count: `a` is cut, or zeros are put at its end.
    axis : int
    norm : str, optional
        ``"backward"``, the default: the inverse is divided by `n`. ``"forward"``: this is. ``"ortho"``: both
        are divided by the root of `n`.

    Returns
    -------
    Tensor of shape (..., n, ...)
        complex128 of float64 and complex128, else complex64.

    Raises
    ------
    ShapeError
        No element counts.
    """
    return _complex("fft", a, **_along(axis, n), norm=norm, inverse=False)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the inverse of `fft`, whose arguments it has."""
    return _complex("ifft", a, **_along(axis, n), norm=norm, inverse=True)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the first ``n // 2 + 1`` elements of `fft` of real numbers: the others are their conjugates."""
    return _of_real("rfft", a, **_along(axis, n), norm=norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the inverse of `rfft`.

    `n` real numbers, by default twice as many as steps in `a`, an even number.
    """
    return _to_real("irfft", a, **_along(axis, n), norm=norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the `fft`, which is real, of `n` numbers of which `a` has the first half.

    The others are conjugates.
    """
    (x,) = tensors("hfft", (a,))
    return _to_real("hfft", x.conj(), **_along(axis, n), norm=ops.OPPOSITE[_norm("hfft", norm)])


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the inverse of `hfft`."""
    return _of_real("ihfft", a, **_along(axis, n), norm=ops.OPPOSITE[_norm("ihfft", norm)]).conj()


def _several(name: str, transform: Callable[..., Tensor], default: Axes, meaning: str, **fixed: Any) -> Any:
    def function(a: Any, s: Lengths = None, axes: Axes = default, norm: str | None = None) -> Tensor:
        return transform(name, a, s, axes, norm, **fixed)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


# fmt: off
fftn   = _several("fftn",   _complex, None, "`fft` along `axes`, of the lengths `s`; None is all axes.",
                  inverse=False)
ifftn  = _several("ifftn",  _complex, None, "The inverse of `fftn`.", inverse=True)
rfftn  = _several("rfftn",  _of_real, None, "`rfft` along the last of `axes`, `fft` along the others.")
irfftn = _several("irfftn", _to_real, None, "The inverse of `rfftn`; `s` has the lengths of the result.")
fft2   = _several("fft2",   _complex, (-2, -1), "`fftn` along two axes, the last ones.", inverse=False)
ifft2  = _several("ifft2",  _complex, (-2, -1), "The inverse of `fft2`.", inverse=True)
rfft2  = _several("rfft2",  _of_real, (-2, -1), "`rfftn` along two axes, the last ones.")
irfft2 = _several("irfft2", _to_real, (-2, -1), "The inverse of `rfft2`.")
# fmt: on


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """Return the frequencies of the elements of `fft`, in cycles per unit of `d`, the step of the samples."""
    place = along((amount(n, "fftfreq: n"),), (0,), dtype, _device(device))
    return where(le((n + 1) // 2, place), place - n, place) / (n * d)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """Return the frequencies of the elements of `rfft`, as `fftfreq`."""
    return along((ops.half(amount(n, "rfftfreq: n")),), (0,), dtype, _device(device)) / (n * d)


def _device(device: str | None) -> str:
    return devices.canonical(device or "xpux")


def _shifted(x: Any, axes: Axes, forth: bool) -> Tensor:
    (x,) = tensors("fftshift", (x,))
    places = normalize_axis("fftshift", axes, x.ndim)
    by = [x.shape[p] // 2 if forth else -(x.shape[p] // 2) for p in places]
    return rearrange.roll(x, by, places) if places else +x


def fftshift(x: Any, axes: Axes = None) -> Tensor:
    """Return the element of frequency 0 moved to the middle of `axes`; None is all axes."""
    return _shifted(x, axes, True)


def ifftshift(x: Any, axes: Axes = None) -> Tensor:
    """Return the inverse of `fftshift`."""
    return _shifted(x, axes, False)


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
