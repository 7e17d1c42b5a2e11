"""Discrete Fourier transforms, by SciPy's pocketfft, or CuPy's where the arrays are its own.

The gradients are the adjoint transforms: of a transform the one of the opposite direction with the same
factor, since the matrix of a transform is symmetric. Of real numbers half of the result is left out, being
the conjugate of the other half, so each element between the ends of that half stands for two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Node, Op, Spec, dtypes
from ..runtime import forking
from ..tensor import Tensor
from ..tensor.libraries import Rule
from .creation import along
from .declare import Dtypes, declare, real
from .primitives import logical_and, lt, where
from .reduce import Axes

#: Which direction is scaled, by the other one's: of an adjoint transform the factor is the same.
OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _library(x: Any) -> Any:
    """Return SciPy's transforms for the host; those of NumPy dispatch to CuPy."""
    if not isinstance(x, np.ndarray):
        return np.fft
    from scipy import fft

    return fft


def _cost(node: Node) -> int:
    """Return about ``5 n log2(n)`` operations for each row of n, as the literature counts."""
    spec, axis = node.inputs[0].spec, node.params["axis"]
    length = math.prod(spec.shape[a] for a in axis)
    return 5 * spec.size * max(1, int(length).bit_length() - 1)


def _declare(
    name: str, infer: Any, eager: Any, grad: Any, promote: Any, meaning: str
) -> Callable[..., Tensor]:
    rule = Rule(name, forking.short_call(eager), infer)
    return declare(Op(name, Kind.OPAQUE, infer, rule, grad, promote=promote, cost=_cost, meaning=meaning))


def _check(name: str, shape: Sequence[int], axis: Axes) -> None:
    if not all(shape[a] for a in axis):
        raise ShapeError(f"{name}: cannot transform an empty axis: axis {axis} of shape {tuple(shape)}")


# of complex numbers


def _promote(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return [dtypes.complex_of(dtypes.common([d])) for d in operands]


def _fft_infer(x: Spec, axis: Axes, inverse: bool, norm: str) -> Spec:
    _check("fft", x.shape, axis)
    return Spec(x.shape, x.dtype)


def _fft(x: Any, axis: Axes, inverse: bool, norm: str) -> Any:
    library = _library(x)
    return (library.ifftn if inverse else library.fftn)(x, axes=axis, norm=norm)


def _fft_grad(g: Tensor, _y: Spec, _x: Spec, axis: Axes, inverse: bool, norm: str) -> tuple[Tensor]:
    return (fft_(g, axis=axis, inverse=not inverse, norm=OPPOSITE[norm]),)


fft_ = _declare(
    "fft", _fft_infer, _fft, _fft_grad, _promote,
    "The discrete Fourier transform along all axes in `axis`, or its inverse. `norm` says which direction is "
    "divided by the number of elements, ``backward`` or ``forward``, or by its root, ``ortho``.",
)  # fmt: skip


# of real numbers: half of the result, along one axis


def half(length: int) -> int:
    """Return the number of independent elements in a transform of `length` real numbers."""
    return length // 2 + 1


def _with_length(shape: Sequence[int], axis: Axes, length: int) -> tuple[int, ...]:
    return tuple(length if i == axis[0] else d for i, d in enumerate(shape))


def _promote_real(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return [dtypes.real_of(dtypes.complex_of(dtypes.common([d]))) for d in operands]


def _rfft_infer(x: Spec, axis: Axes, norm: str) -> Spec:
    _check("rfft", x.shape, axis)
    return Spec(_with_length(x.shape, axis, half(x.shape[axis[0]])), dtypes.complex_of(x.dtype))


def _rfft(x: Any, axis: Axes, norm: str) -> Any:
    return _library(x).rfft(x, axis=axis[0], norm=norm)


def _between(g: Tensor, length: int, axis: Axes, times: float) -> Tensor:
    """Multiply by `times` the elements of `g`, half of a transform of `length`, that stand for two."""
    place = along(g.shape, axis, dtypes.int32, g.device)
    factor = where(logical_and(lt(0, place), lt(place * 2, length)), times, 1.0)
    return g * factor


def _rfft_grad(g: Tensor, _y: Spec, _x: Spec, axis: Axes, norm: str) -> tuple[Tensor]:
    length = _x.shape[axis[0]]
    return (irfft_(_between(g, length, axis, 0.5), axis=axis, length=length, norm=OPPOSITE[norm]),)


rfft_ = _declare(
    "rfft", _rfft_infer, _rfft, _rfft_grad, real(_promote_real),
    "The first half of ``fft`` of real numbers along the one axis in `axis`, with the element in the middle.",
)  # fmt: skip


def _irfft_infer(x: Spec, axis: Axes, length: int, norm: str) -> Spec:
    if x.shape[axis[0]] != half(length) or length < 1:
        raise ShapeError(
            f"irfft: axis {axis[0]} of {x.shape} must have length {half(length)} for a transform of {length} "
            "numbers"
        )
    return Spec(_with_length(x.shape, axis, length), dtypes.real_of(x.dtype))


def _irfft(x: Any, axis: Axes, length: int, norm: str) -> Any:
    return _library(x).irfft(x, n=length, axis=axis[0], norm=norm)


def _irfft_grad(g: Tensor, _y: Spec, _x: Spec, axis: Axes, length: int, norm: str) -> tuple[Tensor]:
    """Return the gradient, real at both ends, whose imaginary parts do not count."""
    return (_between(rfft_(g, axis=axis, norm=OPPOSITE[norm]), length, axis, 2.0),)


irfft_ = _declare(
    "irfft", _irfft_infer, _irfft, _irfft_grad, _promote,
    "The inverse of ``rfft``: `length` real numbers. Imaginary parts that no transform of real numbers has "
    "do not count.",
)  # fmt: skip
