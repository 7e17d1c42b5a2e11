"""The functions of the stand-in: NumPy's own, as far as CuPy has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.special
from mgb import dtypes

from . import cuda
from .modules import MODULE, SPECIAL
from .ndarray import RECORD, bound, ndarray, on_device, unwrap, wrap

#: Functions whose result is not an array.
#: The narrow floats that NumPy lacks, by the letters that ml_dtypes gives them.
_OURS = {d.char: d for d in dtypes.HALVES if d.isbuiltin != 1}

_PLAIN = frozenset({"ndim", "size", "shape", "result_type", "can_cast", "iinfo", "finfo", "broadcast_shapes"})


class ufunc:
    """A function of each element, for the dtypes that CuPy's has.

    Parameters
    ----------
    name : str
    types : list of str
        ``"ff->f"``: what it takes, and what it gives.
    source : ModuleType
        Who computes it here.
    """

    def __init__(self, name: str, types: list[str], source: Any) -> None:
        self.name = self.__name__ = name
        self.types = types
        self._function = getattr(source, name)
        self._loops = [tuple([_dtype(c) for c in part] for part in t.split("->")) for t in types]
        self.nin = len(self._loops[0][0])

    def __call__(
        self, *args: Any, out: Any = None, where: Any = None, dtype: Any = None, casting: str = "same_kind"
    ) -> Any:
        given = [unwrap(a) for a in args[: self.nin]]
        out = args[self.nin] if len(args) > self.nin else out
        takes, gives = self._loop(given, dtype)
        typed = [
            g.astype(t) if isinstance(g, np.ndarray) else t.type(g) for g, t in zip(given, takes, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = self._function(*typed)
        found = np.asarray(found).astype(gives[0], copy=False)
        target = out[0] if isinstance(out, tuple) else out
        if target is None:
            return wrap(found)
        if not np.can_cast(found.dtype, target.dtype, casting):
            raise TypeError(f"Cannot cast {self.name} output from {found.dtype} to {target.dtype}")
        np.copyto(unwrap(target), found, casting="unsafe", where=True if where is None else unwrap(where))
        return target

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        """Add at indices like ``np.add.at``; other functions are not supported."""
        if self.name != "add":
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        on_device(a).scatter_add(indices, b)

    def _loop(self, given: list[Any], dtype: Any) -> tuple[list[Any], list[Any]]:
        for takes, gives in self._loops:
            if dtype is not None and np.dtype(dtype) != gives[0]:
                continue
            if all(_fits(g, t) for g, t in zip(given, takes, strict=True)):
                return takes, gives
        kinds = [getattr(g, "dtype", type(g)) for g in given]
        raise TypeError(f"Wrong type ({kinds}) of arguments for cupy_{self.name}")


def _dtype(char: str) -> np.dtype[Any]:
    return _OURS.get(char) or np.dtype(char)


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return np.can_cast(value.dtype, dtype, "safe")
    rank = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}[dtype.kind]
    return rank >= (0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2)


def _function(name: str, parameters: list[str] | None, source: Any) -> Callable[..., Any]:
    numpy_function = getattr(source, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound(name, parameters, args, kwargs)
        out = kwargs.get("out")
        given = {k: unwrap(v) for k, v in kwargs.items() if v is not None}
        with np.errstate(all="ignore"):
            found = numpy_function(*map(unwrap, args), **given)
        if out is not None:
            return out
        return found if name in _PLAIN else wrap(np.bool_(found) if isinstance(found, bool) else found)

    call.__name__ = name
    return call


# what differs from NumPy's


def _array(
    obj: Any, dtype: Any = None, copy: bool | None = True, order: str = "K", **_options: Any
) -> ndarray:
    if isinstance(obj, ndarray):
        host, copy = obj._host, copy or obj._ordinal != cuda.state.device  # from another device: a copy here
    elif hasattr(obj, "__cuda_array_interface__"):
        host = _foreign(obj.__cuda_array_interface__, obj)
    else:
        host, copy = np.array(unwrap(obj.tolist()) if isinstance(obj, range) else obj), False
        if isinstance(obj, np.ndarray):
            host = np.array(obj, copy=True)
    wanted = host.dtype if dtype is None else np.dtype(dtype)
    kept = order if host.ndim else "C"
    return wrap(
        np.array(host, wanted, copy=True, order=kept) if copy else np.asarray(host, wanted, order=kept)
    )  # type: ignore[call-overload, no-any-return]


def _asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False
) -> ndarray:
    if isinstance(a, ndarray) and dtype in (None, a.dtype) and not copy and a._ordinal == cuda.state.device:
        return a
    return _array(a, dtype, bool(copy), order or "K")


def _foreign(interface: dict[str, Any], owner: Any) -> np.ndarray:
    """Return the memory that ``__cuda_array_interface__`` describes; no copy."""
    dtype, shape = np.dtype(interface["typestr"]), interface["shape"]
    strides = interface.get("strides") or np.empty(shape, dtype).strides
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    memory = (ctypes.c_char * reach).from_address(interface["data"][0])
    memory._owner = owner
    return np.ndarray(shape, dtype, memory, 0, strides)


class _OnHost:
    """The object that `np.from_dlpack` needs to import a capsule of the stand-in."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_options: Any) -> Any:
        return self._capsule


def _from_dlpack(array: Any) -> ndarray:
    kind, number = array.__dlpack_device__()
    if kind != 2:
        raise TypeError("DLPack: the array is on no CUDA device")
    return wrap(np.from_dlpack(_OnHost(array.__dlpack__(stream=cuda.get_current_stream().ptr or 1))), number)  # type: ignore[no-any-return]


def _ascontiguousarray(a: ndarray, dtype: Any = None) -> ndarray:
    if not isinstance(a, ndarray):
        raise TypeError(f"Argument 'a' has incorrect type (expected ndarray, got {type(a).__name__})")
    return wrap(np.ascontiguousarray(on_device(a)._host, dtype), a._ordinal)  # type: ignore[no-any-return]


def _copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    np.copyto(unwrap(dst), unwrap(src), casting, True if where is None else unwrap(where))  # type: ignore[arg-type]


def _argsort(a: ndarray, axis: int = -1, kind: Any = None) -> ndarray:
    return wrap(np.argsort(unwrap(a), axis, "stable"))  # type: ignore[no-any-return]


def _matmul(*args: Any, out: Any = None, **options: Any) -> Any:
    a, b = (unwrap(x) for x in args[:2])
    target = out[0] if isinstance(out, tuple) else out
    with np.errstate(all="ignore"):
        found = np.matmul(a, b)
    if target is None:
        return wrap(found)
    unwrap(target)[...] = found
    return target


_SPECIAL: dict[str, Any] = {
    "array": _array, "asarray": _asarray, "from_dlpack": _from_dlpack,
    "ascontiguousarray": _ascontiguousarray,
    "copyto": _copyto, "argsort": _argsort, "matmul": _matmul,
    "asnumpy": lambda a, *_rest, **_options: a.get() if isinstance(a, ndarray) else np.asarray(a),
    "get_default_memory_pool": cuda.default_pool,
    "get_array_module": lambda *arrays: MODULE if any(isinstance(a, ndarray) for a in arrays) else np,
}  # fmt: skip


def _fill(target: Any, folder: str, source: Any) -> None:
    for name, parameters in RECORD["functions"][folder].items():
        if callable(getattr(source, name, None)):
            setattr(target, name, _function(name, parameters, source))


_fill(MODULE, "", np)
MODULE.lib = SimpleNamespace(stride_tricks=SimpleNamespace())  # type: ignore[attr-defined]
MODULE.linalg, MODULE.fft = SimpleNamespace(), SimpleNamespace()  # type: ignore[attr-defined]
_fill(MODULE.lib.stride_tricks, "lib.stride_tricks", np.lib.stride_tricks)
_fill(MODULE.linalg, "linalg", np.linalg)
_fill(MODULE.fft, "fft", np.fft)
for _target, _types, _source in ((MODULE, RECORD["ufuncs"], np), (SPECIAL, RECORD["special"], scipy.special)):
    for _name, _listed in _types.items():
        if hasattr(_source, _name):
            setattr(_target, _name, ufunc(_name, _listed, _source))
for _name, _function_here in _SPECIAL.items():
    setattr(MODULE, _name, _function_here)
MODULE.ndarray, MODULE.ufunc = ndarray, ufunc  # type: ignore[attr-defined]
MODULE.newaxis, MODULE.inf, MODULE.nan, MODULE.pi = None, np.inf, np.nan, np.pi  # type: ignore[attr-defined]
MODULE.__version__ = RECORD["version"]  # type: ignore[attr-defined]
MODULE.cuda = SimpleNamespace(**cuda.NAMES)  # type: ignore[attr-defined]
