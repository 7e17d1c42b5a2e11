"""Arrays of the stand-in, and how values pass in and out of them."""

from __future__ import annotations

import inspect
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import cuda
from .modules import MODULE, SPECIAL

#: What CuPy has; see `record`.
RECORD: dict[str, Any] = json.loads(Path(__file__).with_name("cupy.json").read_text())

#: Methods that give a view and launch nothing.
VIEWS = frozenset({"reshape", "transpose", "swapaxes", "squeeze", "view", "ravel", "diagonal"})

_REFUSED = (
    "Implicit conversion to a NumPy array is not allowed. "
    "Please use `.get()` to construct a NumPy array explicitly."
)


class Flags:
    """The flags that CuPy's arrays have; ``writeable`` is not among them."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.owndata = flags.owndata

    def __getitem__(self, name: str) -> bool:
        found: bool = getattr(self, name.lower())
        return found


class Pointer:
    """Where an array begins, and the memory that it is a part of."""

    def __init__(self, ptr: int, mem: Any) -> None:
        self.ptr, self.mem = ptr, mem


class ndarray:
    """An array on a device.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    """

    __slots__ = ("__weakref__", "_host", "_ordinal")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    _host: np.ndarray
    _ordinal: int

    def __init__(self, shape: Any, dtype: Any = float) -> None:
        fresh = wrap(np.empty(shape, dtype))
        self._host, self._ordinal = fresh._host, fresh._ordinal

    @property
    def data(self) -> Pointer:
        host = self._host
        return Pointer(int(host.ctypes.data), host if host.base is None else host.base)

    @property
    def device(self) -> cuda.Device:
        return cuda.Device(self._ordinal)

    @property
    def flags(self) -> Flags:
        return Flags(self._host.flags)

    @property
    def T(self) -> ndarray:
        return wrap(self._host.T, self._ordinal)

    @property
    def base(self) -> ndarray | None:
        return None if self._host.base is None else wrap(self._host.base, self._ordinal)

    # out

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """Return a copy in the memory of the host."""
        return self._host.copy(order=order if self._host.ndim else "C")  # type: ignore[call-overload]

    def item(self) -> Any:
        if self._host.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self._host.item()

    def tolist(self) -> Any:
        return self._host.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._host.tobytes()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(_REFUSED)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._host.flags.c_contiguous else self._host.strides
        return {
            "shape": self._host.shape,
            "typestr": self._host.dtype.str,
            "data": (self.data.ptr, False),
            "strides": strides,
            "version": 3,
            "stream": cuda.get_current_stream().ptr or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._ordinal

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return self._host.__dlpack__()

    # elements

    def __getitem__(self, key: Any) -> ndarray:
        return wrap(self._host[_key(key, self._host.shape)], self._ordinal)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        on_device(self)
        self._host[_key(key, self._host.shape)] = unwrap(value)

    def scatter_add(self, slices: Any, value: Any) -> None:
        """Add at places that may stand several times; atomic, which not every dtype can be."""
        if self._host.dtype.char not in "iefdILQ":
            raise TypeError(
                "cupyx.scatter_add only supports int32, float16, float32, float64, uint32, uint64"
            )
        with np.errstate(all="ignore"):
            np.add.at(self._host, _key(slices, self._host.shape), unwrap(value))

    def fill(self, value: Any) -> None:
        self[...] = value

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy from the host."""
        self._host[...] = arr

    # protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = getattr(MODULE, ufunc.__name__, None) or getattr(SPECIAL, ufunc.__name__, None)
        if found is None:
            return NotImplemented
        if method == "at":
            return found.at(*inputs, **kwargs)
        if method != "__call__":
            return NotImplemented
        return found(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found: Any = MODULE
        try:
            for name in (*func.__module__.split(".")[1:], func.__name__):
                found = getattr(found, name)
        except AttributeError:
            return NotImplemented
        if not all(issubclass(t, (ndarray, np.ndarray)) for t in types):
            return NotImplemented
        return found(*args, **kwargs)


def wrap(host: Any, ordinal: int | None = None) -> Any:
    """Return an array of the stand-in around NumPy's array or number; the same for sequences of them."""
    if isinstance(host, np.generic):
        host = np.asarray(host)
    if isinstance(host, np.ndarray):
        if host.base is None:
            cuda.allow(host.nbytes)
        array = ndarray.__new__(ndarray)
        array._host = host
        array._ordinal = cuda.state.device if ordinal is None else ordinal
        return array
    if isinstance(host, list | tuple) and any(isinstance(h, np.ndarray) for h in host):
        made = [wrap(h, ordinal) for h in host]
        return host._make(made) if hasattr(host, "_make") else type(host)(made)  # a tuple with names
    return host


def unwrap(value: Any) -> Any:
    """Return the host data of an argument: an array of the current device or a number, never NumPy's."""
    if isinstance(value, ndarray):
        return on_device(value)._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)([unwrap(v) for v in value])
    return value


def on_device(array: ndarray) -> ndarray:
    """Return `array`, if it lies on the current device."""
    if array._ordinal != cuda.state.device:
        raise ValueError(
            "Array device must be same as the current device: "
            f"array device = {array._ordinal} while current = {cuda.state.device}"
        )
    return array


def _key(key: Any, shape: tuple[int, ...]) -> Any:
    """Return `key` for the host; integers in arrays wrap around where they are out of range."""
    if isinstance(key, tuple):
        axis, found = 0, []
        for k in key:
            if k is Ellipsis:
                axis = len(shape) - (len(key) - len(found) - 1 - sum(x is None for x in key[len(found) :]))
            found.append(_one(k, shape[axis] if axis < len(shape) and k is not None else 1))
            axis += k is not None and k is not Ellipsis
        return tuple(found)
    return _one(key, shape[0] if shape else 1)


def _one(key: Any, length: int) -> Any:
    if isinstance(key, np.ndarray):
        raise TypeError("a NumPy array as an index: CuPy would copy it to the device and wait")
    if not isinstance(key, ndarray):
        return key
    host = on_device(key)._host
    return host % max(length, 1) if host.dtype.kind in "iu" else host


def bound(name: str, parameters: list[str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if CuPy's function `name` does not take these arguments."""
    if parameters is None or any(p.startswith("*") or p in ("args", "kwargs") for p in parameters):
        return
    unknown = set(kwargs) - set(parameters)
    if unknown or len(args) > len(parameters):
        raise TypeError(f"{name}() got an unexpected argument: {', '.join(sorted(unknown)) or 'too many'}")


def _method(name: str) -> Callable[..., Any]:
    parameters = RECORD["ndarray"][name]

    def call(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        bound(name, parameters, args, kwargs)
        if name not in VIEWS:
            on_device(self)
        given = {k: unwrap(v) for k, v in kwargs.items() if v is not None}
        with np.errstate(all="ignore"):
            found = getattr(self._host, name)(*map(unwrap, args), **given)
        return kwargs["out"] if kwargs.get("out") is not None else wrap(found, self._ordinal)

    return call


def _operator(name: str) -> Callable[..., Any]:
    plain = name.strip("_")
    swapped = plain[0] == "r" and hasattr(operator, f"__{plain[1:]}__") and plain not in ("rshift",)
    ufunc = _UFUNC_OF[plain[1:] if swapped else plain]

    def call(self: ndarray, *others: Any) -> Any:
        function = getattr(MODULE, ufunc)
        return function(*others, self) if swapped else function(self, *others)

    return call


def _inplace(name: str) -> Callable[..., Any]:
    def call(self: ndarray, other: Any) -> Any:
        getattr(MODULE, _UFUNC_OF[name])(self, other, out=self)
        return self

    return call


_UFUNC_OF = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "neg": "negative",
    "abs": "absolute", "invert": "invert",
}  # fmt: skip

for _name in ("shape", "strides", "dtype", "ndim", "size", "nbytes", "itemsize"):
    setattr(ndarray, _name, property(lambda self, _name=_name: getattr(self._host, _name)))
for _name, _parameters in RECORD["ndarray"].items():
    _here = _name in vars(ndarray) and _name != "__hash__"
    if _name.startswith("__"):
        _plain = _name.strip("_")
        _base = _plain[1:] if _plain[1:] in _UFUNC_OF else _plain
        if _here or _base not in _UFUNC_OF or inspect.ismethoddescriptor(vars(ndarray).get(_name)):
            continue
        _is_inplace = _plain[0] == "i" and _base != _plain
        setattr(ndarray, _name, _inplace(_base) if _is_inplace else _operator(_name))
    elif _parameters is not None and not _here and hasattr(np.ndarray, _name):
        setattr(ndarray, _name, _method(_name))
