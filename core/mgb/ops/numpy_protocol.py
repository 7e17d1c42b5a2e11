"""NumPy's functions on Tensors: ``np.tanh(t)``, ``np.add(array, t)`` and ``np.stack([t, u])`` give Tensors.

They call mgb's ops, so they are traced and differentiated. A function that mgb lacks raises TypeError:
nothing is copied to NumPy behind the user's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..apply import apply
from ..tensor import Tensor
from .declare import OPS
from .elementwise import reciprocal
from .operators import product
from .primitives import shl, shr

#: ``np.sum`` and so on, by the functions that serve them; `mgb.functional` fills it.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}

#: Ufuncs whose op computes with something else than the ufunc itself.
_UFUNCS: dict[Any, Callable[..., Tensor]] = {
    np.left_shift: shl,
    np.right_shift: shr,
    np.matmul: product,
    np.reciprocal: reciprocal,
    np.positive: lambda x: +x,
}


def ufunc_of(ufunc: np.ufunc) -> Callable[..., Tensor] | None:
    """The function for `ufunc`: that of the op whose eager rule it is."""
    if ufunc in _UFUNCS:
        return _UFUNCS[ufunc]
    op = next((op for op in OPS.values() if op.eager is ufunc), None)
    if op is None:
        return None
    _UFUNCS[ufunc] = lambda *xs: apply(op, *xs)
    return _UFUNCS[ufunc]


def _array_ufunc(
    self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
) -> Any:
    function = ufunc_of(ufunc) if method == "__call__" and not options else None
    if function is None:
        called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise TypeError(_refusal(f"np.{called}", options))
    result = function(*inputs)
    if out is None:
        return result
    (target,) = out
    if not isinstance(target, Tensor):
        raise TypeError(f"np.{ufunc.__name__}: a Tensor cannot be written into an array; use tensor.numpy()")
    target._reset(result)
    return target


def _array_function(
    self: Tensor,
    function: Callable[..., Any],
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    if function not in FUNCTIONS:
        raise TypeError(_refusal(f"np.{function.__name__}", {}))
    return FUNCTIONS[function](*args, **kwargs)


def _refusal(called: str, options: Mapping[str, Any]) -> str:
    what = f"{called} with {', '.join(options)}" if options else called
    return f"{what} does not take a Tensor: see mgb.functional for what does, or call it on tensor.numpy()"


METHODS: dict[str, Any] = {"__array_ufunc__": _array_ufunc, "__array_function__": _array_function}

for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
