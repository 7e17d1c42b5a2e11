"""Complex numbers and their parts, under NumPy's names; `complex`, `polar` and the views are torch's.

The gradient of a real number with respect to ``z = x + 1j*y`` is the one with respect to `x` plus 1j times
the one with respect to `y`: torch's convention, in which ``z - rate * grad`` descends. JAX's is the
conjugate.
"""

from __future__ import annotations

from typing import Any

from ..errors import ConversionError, ShapeError
from ..ir import dtypes
from ..ops import primitives as p
from ..ops.bodies.transcendental import atan2, cos, sin
from ..ops.layout import concat, cut_along, reshape
from ..tensor import Tensor
from ..tensor.apply import tensors

__all__ = [
    "angle", "complex", "conj", "imag", "is_complex", "polar", "real", "view_as_complex", "view_as_real",
]  # fmt: skip


def is_complex(x: Any) -> bool:
    """Return whether it is a Tensor, or an array, of complex numbers.

    Examples
    --------
    >>> F.is_complex(mgb.tensor(1j)), F.is_complex(mgb.tensor(1.0))
    (True, False)
    """
    return getattr(x, "dtype", None) in dtypes.COMPLEX


def real(x: Any) -> Tensor:
    """Return the real parts; real numbers are their own.

    Examples
    --------
    >>> F.real(mgb.tensor([1 + 2j, 3 - 4j])).tolist()
    [1.0, 3.0]
    """
    return tensors("real", (x,))[0].real


def imag(x: Any) -> Tensor:
    """Return the imaginary parts; of real numbers 0.

    Examples
    --------
    >>> F.imag(mgb.tensor([1 + 2j, 3 - 4j])).tolist()
    [2.0, -4.0]
    """
    return tensors("imag", (x,))[0].imag


def conj(x: Any) -> Tensor:
    """Return the conjugates: the imaginary parts with the opposite sign; real numbers are their own.

    Examples
    --------
    >>> F.conj(mgb.tensor([1 + 2j])).tolist()
    [(1-2j)]
    """
    return tensors("conj", (x,))[0].conj()


def angle(x: Any, deg: bool = False) -> Tensor:
    """Return the angle to the positive real axis, in (-pi, pi], or in degrees.

    Examples
    --------
    >>> F.angle(mgb.tensor([1j, -1 + 0j]), deg=True).tolist()
    [90.0, 180.0]
    """
    (x,) = tensors("angle", (x,))
    found = atan2(x.imag, x.real)
    return found * 57.29577951308232 if deg else found


def complex(real: Any, imag: Any) -> Tensor:
    """Return the numbers with these real and imaginary parts: complex128 if one is float64, else complex64.

    Examples
    --------
    >>> F.complex(mgb.tensor([3.0]), mgb.tensor([4.0])).tolist()
    [(3+4j)]
    """
    return p.complex(real, imag)


def polar(abs: Any, angle: Any) -> Tensor:
    """Return the numbers of this magnitude and angle.

    Examples
    --------
    >>> F.polar(mgb.tensor([2.0]), mgb.tensor([0.0])).tolist()
    [(2+0j)]
    """
    return p.complex(abs * cos(angle), abs * sin(angle))


def view_as_real(x: Tensor) -> Tensor:
    """Return the real and imaginary parts along a new last axis of length 2.

    Raises
    ------
    ConversionError
        They are real.

    Examples
    --------
    >>> F.view_as_real(mgb.tensor([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    if not is_complex(x):
        raise ConversionError(f"view_as_real: needs complex64 or complex128, got {x.dtype}")
    parts = (reshape(part, shape=(*x.shape, 1)) for part in (p.real(x), p.imag(x)))
    return concat(*parts, axis=x.ndim)


def view_as_complex(x: Tensor) -> Tensor:
    """Return the numbers whose real and imaginary parts stand along the last axis, which is 2 long.

    Examples
    --------
    >>> F.view_as_complex(mgb.tensor([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last axis must have length 2, got shape {x.shape}")
    parts = (reshape(cut_along(x, x.ndim - 1, i, i + 1), shape=x.shape[:-1]) for i in (0, 1))
    return p.complex(*parts)
