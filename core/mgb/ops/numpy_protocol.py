"""NumPy's functions on Tensors: ``np.tanh(t)``, ``np.add(array, t)`` and ``np.stack([t, u])`` give Tensors.

They call mgb's ops, so they are traced and differentiated. A function that mgb lacks raises TypeError:
nothing is copied to NumPy behind the user's back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..tensor import Tensor
from ..tensor.apply import apply, tensors
from .bodies.division import floor_div, mod
from .bodies.integers import left_shift, right_shift
from .declare import OPS
from .elementwise import direction, reciprocal
from .layout import reshape
from .operators import fitted, power, product

#: ``np.sum`` and so on, by the functions that serve them; see `functions`.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}


#: What imports those who fill it: they stand on a higher floor, and come in when somebody asks first.
FILLERS: list[Callable[[], object]] = []


def functions() -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """Return `FUNCTIONS`, filled."""
    for fill in FILLERS:
        fill()
    return FUNCTIONS


#: Ufuncs whose op computes with something else than the ufunc itself, or that are several ops: these come
#: with `functions`.
UFUNCS: dict[Any, Callable[..., Any]] = {
    np.left_shift: left_shift,
    np.right_shift: right_shift,
    np.power: power,
    np.matmul: product,
    np.reciprocal: reciprocal,
    np.sign: direction,
    np.positive: lambda x: +x,
    np.divmod: lambda a, b: (floor_div(a, b), mod(a, b)),
}


def ufunc_of(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return the function for `ufunc`: that of the op whose eager rule it is."""
    if ufunc in UFUNCS:
        return UFUNCS[ufunc]
    op = next((op for op in OPS.values() if op.eager is ufunc), None)
    if op is None:
        functions()
        return UFUNCS.get(ufunc)
    UFUNCS[ufunc] = lambda *xs: apply(op, *xs)
    return UFUNCS[ufunc]


def _array_ufunc(
    self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
) -> Any:
    if method != "__call__":
        return _derived(ufunc, method, inputs, options if out is None else {"out": out, **options})
    function = ufunc_of(ufunc) if not options else None
    if function is None:
        raise TypeError(_refusal(f"np.{ufunc.__name__}", options))
    if out is None:
        return function(*inputs)
    if len(out) > 1 or not isinstance(out[0], Tensor):
        raise TypeError(f"np.{ufunc.__name__}: a Tensor cannot be written into an array; use tensor.numpy()")
    target: Tensor = out[0]
    target._reset(fitted(function(*inputs), target.dtype, *inputs))
    return target


#: The methods of ufuncs by the functions that serve them, NumPy's or ours; `reduce` and `accumulate` begin
#: with axis 0.
UFUNC_METHODS: dict[tuple[Any, str], Callable[..., Any]] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.logical_and, "reduce"): np.all,
    (np.logical_or, "reduce"): np.any,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}


def _derived(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Run ``ufunc.reduce(t)`` and the like."""
    called, function = f"np.{ufunc.__name__}.{method}", ufunc_of(ufunc)
    if method == "outer" and function is not None and not options:
        a, b = tensors(called, inputs)
        return function(reshape(a, shape=(*a.shape, *(1,) * b.ndim)), b)
    served = functions()
    if (ufunc, method) not in UFUNC_METHODS:
        raise TypeError(_refusal(called, options))
    same = UFUNC_METHODS[ufunc, method]
    given = {name: value for name, value in options.items() if value is not None or name == "axis"}
    first = {} if method == "at" else {"axis": 0}
    return _serve(called, same, served.get(same, same), inputs, {**first, **given})


def _array_function(
    self: Tensor,
    function: Callable[..., Any],
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    called = f"np{function.__module__.removeprefix('numpy')}.{function.__name__}"
    served = functions().get(function)
    if served is None:
        raise TypeError(_refusal(called, {}))
    return _serve(called, function, served, args, kwargs)


def _serve(
    called: str,
    function: Callable[..., Any],
    served: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return the answer of `served`, or raise an error that names the arguments that it does not take."""
    try:
        return served(*args, **kwargs)
    except TypeError:
        if _binds(served, args, kwargs):
            raise
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    taken = inspect.signature(served).parameters
    meant = {n: v for n, v in given.items() if n in taken or v is not defaults[n]}
    if refused := [n for n in meant if n not in taken]:
        raise TypeError(_refusal(called, dict.fromkeys(refused)))
    return served(**meant)


def _binds(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _refusal(called: str, options: Mapping[str, Any]) -> str:
    what = f"{called} with {', '.join(options)}" if options else called
    return f"{what} does not take a Tensor: see mgb.functional for what does, or call it on tensor.numpy()"


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _serve(name, function, functions()[function], (self, *args), kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``np.{name}`` of this Tensor: see there."
    return method


def _rounded(self: Tensor, decimals: int | None = None) -> Tensor:
    rounded: Tensor = functions()[np.round](self, decimals or 0)
    return rounded


def _divmod(self: Tensor, other: Any) -> Any:
    """Return the quotient rounded down and what is left.

    Here floats too take the sign of `other`, unlike ``%``.
    """
    return np.divmod(self, other)


def _rdivmod(self: Tensor, other: Any) -> Any:
    return np.divmod(other, self)


METHODS: dict[str, Any] = {
    "__array_ufunc__": _array_ufunc,
    "__array_function__": _array_function,
    "__round__": _rounded,
    "__divmod__": _divmod,
    "__rdivmod__": _rdivmod,
    **{
        name: _method(name)
        for name in (
            "all any argmax argmin argsort clip copy cumprod cumsum diagonal dot nonzero ravel repeat round "
            "squeeze std swapaxes take trace var"
        ).split()
    },
}

for _name, _method_of_tensor in METHODS.items():
    setattr(Tensor, _name, _method_of_tensor)
