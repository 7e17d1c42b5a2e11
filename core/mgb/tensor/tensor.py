"""Tensor: what users hold. Its arithmetic is attached by `mgb.ops.operators`, one floor up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConversionError, MgbError, TransformError
from ..ir import Spec, dtypes
from ..runtime import device as devices
from ..runtime.forking import lock
from ..runtime.shown import pre
from .conversion import as_array, exportable
from .session import ACTIVE, Refusal, Session

#: `Tensor._index` of a Tensor made of a literal (a Python number, a list): a trace compares its value,
#: never feeds it.
CONSTANT = -2

_FORMATS = ("default", "nchw", "nhwc")

_PACKAGE = __name__.partition(".")[0]

_level = 0
_raising = lock()


def next_level() -> int:
    """Return a level for a gradient tape, above that of every tape so far.

    A Tensor of a smaller `_level` got its value before that tape began.
    """
    global _level
    with _raising:
        _level += 1
        return _level


class Tensor:
    """An n-dimensional array, or a place in the active trace.

    Parameters
    ----------
    data : array-like, scalar or Tensor
        Copied. 64-bit numbers become 32-bit unless `dtype` says otherwise, as in MegEngine.
    dtype : dtype, optional
    device : str, optional
        ``"xpux"`` (the default device), ``"cpux"``, ``"gpu0"``, ...; not asked when `data` is a Tensor.
    is_const, no_cache
        Accepted for MegEngine's sake; they change nothing.
    name : str, optional
    format : str
        ``"default"``, ``"nchw"`` or ``"nhwc"``: a note on the order of the axes, which nothing in mgb reads.

    Raises
    ------
    ConversionError
        `data` has a dtype that mgb does not know, or is ragged.
    RuntimeError
        `data` is a Tensor of another dtype than `dtype`, or on another device than `device`.
    ValueError
        `format` is none.

    Examples
    --------
    >>> x = mgb.Tensor([[1, 2], [3, 4]], dtype="float32")
    >>> (x @ x.T).sum(axis=0)
    Tensor([16., 36.], device=xpux:0)
    """

    __slots__ = (
        "__weakref__",
        "_data", "_device", "_format", "_grad", "_index", "_level", "_name", "_session", "_spec", "_tape",
    )  # fmt: skip
    __array_priority__ = 1000

    _data: Any
    _device: str
    _index: int
    _level: int  # of the youngest gradient tape when this value was made: see `next_level`
    _session: Session[Tensor] | None
    _spec: Spec | None
    _tape: dict[Any, Any] | None
    _grad: Tensor | None
    _name: str  # this and the next are set in few Tensors: the others lack them
    _format: str

    def __init__(
        self,
        data: Any,
        dtype: Any = None,
        device: str | None = None,
        is_const: bool = False,
        no_cache: bool = False,
        name: str | None = None,
        format: str = "default",
    ) -> None:
        self._session = self._spec = self._tape = self._grad = None
        self._index = -1
        self._level = _level
        if name:
            self._name = name
        if format != "default":
            self.format = format
        if isinstance(data, Tensor):
            if dtype is not None and dtypes.as_dtype(dtype) != data.dtype:
                raise RuntimeError(f"a Tensor of {data.dtype} cannot be rebuilt as {dtype}: use astype")
            if device is not None and devices.canonical(device) != data._device:
                raise RuntimeError(f"a Tensor on {data.device} cannot be rebuilt on {device}: use .to")
            self._share(data)
            return
        array = as_array(data, dtype)
        self._device = devices.canonical(device) if device is not None else devices.of_array(array)
        self._data = devices.place(array, self._device)
        session = ACTIVE.get()
        if session is not None:
            session.created(self, data)

    # what it is

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device together."""
        session = ACTIVE.get()
        if session is not None and session.spec_of is not None:
            return session.spec_of(self)
        if self._spec is None:
            self._spec = Spec(self._data.shape, self._data.dtype, self._device)
        return self._spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes; an int32 Tensor of them in the body of ``trace(symbolic_shape=True)``.

        mgb's own code always gets the tuple, and so does everyone for a Tensor without axes.
        """
        session = ACTIVE.get()
        if session is not None:
            if session.spec_of is not None:
                return session.spec_of(self).shape
            if session.symbolic_shape and not _called_by_mgb() and self.ndim:
                return session.shape_of(self)  # type: ignore[no-any-return]
        return self._data.shape if self._data is not None else self.spec.shape  # as below, without a call

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._data.dtype if self._data is not None else self.spec.dtype

    @property
    def device(self) -> devices.Device:
        """Return where it lies; equal to each name of that device."""
        return devices.named(self._device)

    @property
    def ndim(self) -> int:
        return len(self._data.shape if self._data is not None else self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.size * self.dtype.itemsize

    @property
    def name(self) -> str:
        """The name, or an empty string."""
        return getattr(self, "_name", "")

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def format(self) -> str:
        """``"default"``, or what was set: a note, which no op reads. Data is row-major in any case."""
        return getattr(self, "_format", "default")

    @format.setter
    def format(self, format: str) -> None:
        if format not in _FORMATS:
            raise ValueError(f"{format!r} is not a format of a Tensor: choose one of {', '.join(_FORMATS)}")
        self._format = format

    @property
    def qparams(self) -> None:
        """Always None: mgb has no quantised dtypes."""
        return None

    @property
    def _tuple_shape(self) -> tuple[int, ...]:
        session = ACTIVE.get()
        if session is not None and session.spec_of is not None:
            return session.spec_of(self).shape
        shape: tuple[int, ...] = self._data.shape if self._data is not None else self.spec.shape
        return shape

    # its value

    def _array(self) -> Any:
        """Return the NumPy or CuPy array; inside a trace this is a read, which the trace records."""
        session = self._session or ACTIVE.get()
        if session is None:
            return self._data
        try:
            if self._session is not None:
                return self._session.read(self)
            session.seen(self)
        except MgbError as error:
            session.refusal = Refusal.of(error)
            raise
        return self._data

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the value as a read-only NumPy array.

        Inside a trace this splits the program: what comes before runs first.
        """
        array = self._array()
        view: np.ndarray[Any, Any] = devices.to_host(array).view()
        view.flags.writeable = False
        return view

    def item(self, *args: int) -> Any:
        """Return the value as a Python scalar."""
        array = self._array()
        return devices.to_host(array).item(*args) if args else array.item()

    def tolist(self) -> Any:
        """Return the value as nested Python lists."""
        return self._array().tolist()

    def __bool__(self) -> bool:
        return bool(self._array())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError("only a 0-d integer Tensor can be used as an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("ndim is 0")
        return self._tuple_shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._tape and any(tape.of_transform and tape.recording for tape in self._tape):
            raise TransformError(
                "what a transform differentiates would become a NumPy array here, through which no gradient "
                "comes: join Tensors by mgb.numpy.stack or concatenate; x.numpy() says that none is wanted"
            )
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        array = devices.place(self._array(), self._device)
        if not exportable(array):
            array = array.copy()
        return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = devices.place(self._array(), self._device).__dlpack_device__()
        return device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not devices.is_gpu(self._device):
            raise AttributeError(
                f"a Tensor on {self._device} has no __cuda_array_interface__: use .to('gpu0')"
            )
        found: dict[str, Any] = devices.place(self._array(), self._device).__cuda_array_interface__
        return found

    def __repr__(self) -> str:
        text = np.array2string(self.numpy(), separator=", ", prefix=f"{type(self).__name__}(")
        dtype = "" if self.dtype == np.float32 else f", dtype={self.dtype.name}"
        return f"{type(self).__name__}({text}{dtype}, device={self._device})"

    def _repr_html_(self) -> str:
        return pre(
            f"{type(self).__name__} of shape {self._tuple_shape}, {self.dtype.name} on {self.device}\n"
            f"{np.array2string(self.numpy(), separator=', ', threshold=200)}"
        )

    def __format__(self, spec: str) -> str:
        """Format a 0-d Tensor like a number, as in ``f"{loss:.3f}"``."""
        return format(self.item(), spec) if spec and not self.shape else super().__format__(spec)

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.numpy().copy(), self.dtype, self._device, False, False, self.name, self.format
        return type(self), given, getattr(self, "__dict__", None) or None

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = type(self)(self._array(), self.dtype, self._device, name=self.name, format=self.format)
        memo[id(self)] = copy
        for name, value in getattr(self, "__dict__", {}).items():
            setattr(copy, name, deepcopy(value, memo))
        return copy

    if TYPE_CHECKING:
        # Attached by `mgb.ops`: see the tables METHODS in its operators.py, methods.py and numpy_protocol.py.

        def _unary(self) -> Tensor: ...
        def _binary(self, other: Any) -> Tensor: ...
        def _reduction(self, axis: Any = None, keepdims: bool = False) -> Tensor: ...

        __neg__ = __pos__ = __abs__ = __invert__ = _unary
        __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _binary
        __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _binary
        __floordiv__ = __rfloordiv__ = __ifloordiv__ = __mod__ = __rmod__ = __imod__ = _binary
        __pow__ = __rpow__ = __ipow__ = __matmul__ = __rmatmul__ = __imatmul__ = _binary
        __and__ = __rand__ = __iand__ = __or__ = __ror__ = __ior__ = __xor__ = __rxor__ = __ixor__ = _binary
        __lshift__ = __rlshift__ = __ilshift__ = __rshift__ = __rrshift__ = __irshift__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary
        __eq__ = __ne__ = _binary  # type: ignore[assignment]
        sum = prod = min = max = mean = std = var = any = all = argmax = argmin = _reduction

        def _as_in_numpy(self, *args: Any, **kwargs: Any) -> Tensor: ...

        argsort = clip = copy = cumprod = cumsum = diagonal = dot = ravel = repeat = _as_in_numpy
        round = squeeze = swapaxes = take = trace = __round__ = _as_in_numpy

        def nonzero(self) -> tuple[Tensor, ...]: ...
        def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]: ...
        def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]: ...

        @property
        def T(self) -> Tensor: ...
        @property
        def real(self) -> Tensor: ...
        @property
        def imag(self) -> Tensor: ...
        def conj(self) -> Tensor: ...

        conjugate = conj

        @property
        def mT(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def astype(self, dtype: Any) -> Tensor: ...
        def to(self, device: Any, dtype: Any = None) -> Tensor: ...
        def to_device(self, device: str, /, *, stream: None = None) -> Tensor: ...
        def reshape(self, *shape: Any) -> Tensor: ...
        def transpose(self, *axes: Any) -> Tensor: ...
        def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor: ...

    # rebinding

    def _reset(self, other: Tensor) -> None:
        """Take the value of `other` and keep this identity: how every in-place operator works."""
        session = other._session or ACTIVE.get()
        if session is not None:
            session.rebound(self, other)
        self._data, self._session, self._index = other._data, other._session, other._index
        self._spec, self._tape, self._device = other._spec, other._tape, other._device
        self._level = other._level

    def _share(self, other: Tensor) -> None:
        """Begin with the value of `other`: as `_reset`, but this Tensor is new."""
        self._data, self._session, self._index = other._data, other._session, other._index
        self._spec, self._tape, self._device = other._spec, other._tape, other._device
        self._level = other._level
        session = self._session or ACTIVE.get()
        if session is not None:
            session.adopt(self, other)

    def _alias(self, tape: dict[Any, Any] | None = None) -> Tensor:
        """Return another Tensor of the same value, seen by the gradient tapes in `tape` only."""
        alias = Tensor.__new__(Tensor)
        alias._data, alias._session, alias._index = self._data, self._session, self._index
        alias._spec, alias._tape, alias._device = self._spec, tape, self._device
        alias._grad = None
        alias._level = self._level
        session = alias._session or ACTIVE.get()
        if session is not None:
            session.adopt(alias, self)
        return alias

    def detach(self) -> Tensor:
        """Return the same value, cut off from every gradient tape."""
        return self._alias()

    @property
    def grad(self) -> Tensor | None:
        """The gradient that a `GradManager` left here, or None."""
        session = ACTIVE.get()
        if session is not None:
            session.touched_grad(self, reads=True)
        return self._grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        session = ACTIVE.get()
        if session is not None:
            session.touched_grad(self, reads=False)
        self._grad = grad

    @property
    def requires_grad(self) -> bool:
        raise AttributeError("requires_grad is reserved: attach tensors to a GradManager instead")


class Parameter(Tensor):
    """A Tensor that a Module trains; results of ops are plain Tensors. It takes attributes of any name.

    Examples
    --------
    >>> layer = M.Linear(2, 1)
    >>> layer.bias = mgb.Parameter([3.0])
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """


def _called_by_mgb() -> bool:
    """Return whether the code that asks for an attribute of a Tensor is mgb's own, and no traced body."""
    module: str = sys._getframe(2).f_globals.get("__name__", "")
    return module.partition(".")[0] == _PACKAGE


def wrap(array: Any, device: str) -> Tensor:
    """Return a Tensor around `array` itself, without a copy or a check: the result of an op."""
    tensor = Tensor.__new__(Tensor)
    tensor._data = array
    tensor._device = device
    tensor._session = tensor._spec = tensor._tape = tensor._grad = None
    tensor._index = -1
    tensor._level = _level
    return tensor


def place(session: Session[Tensor], index: int, spec: Spec) -> Tensor:
    """Return a Tensor that stands for step `index` of a trace and has no value yet."""
    tensor = Tensor.__new__(Tensor)
    tensor._data = tensor._tape = tensor._grad = None
    tensor._device = spec.device
    tensor._index = index
    tensor._level = _level
    tensor._spec = spec
    tensor._session = session  # last: what the session finds of its Tensors is whole
    return tensor


def from_dlpack(data: Any) -> Tensor:
    """Return a Tensor on the very memory of another library's array, on a CPU or a GPU; nothing is copied.

    Parameters
    ----------
    data : object with ``__dlpack__`` or ``__cuda_array_interface__``
        An array of CuPy, PyTorch, JAX, NumPy. Changing it later changes the Tensor.

    Raises
    ------
    ConversionError
        Its dtype is none that mgb knows.

    Examples
    --------
    >>> mgb.from_dlpack(np.arange(3.0, dtype="float32"))
    Tensor([0., 1., 2.], device=xpux:0)
    """
    array = devices.adopt(data) if hasattr(data, "__cuda_array_interface__") else devices.from_dlpack(data)
    try:
        dtypes.as_dtype(array.dtype)
    except (TypeError, ValueError) as error:
        raise ConversionError(f"cannot make a Tensor of {type(data).__name__}: {error}") from error
    tensor = wrap(array, devices.where(array))
    session = ACTIVE.get()
    if session is not None:
        session.created(tensor, data)
    return tensor


#: How programs make a Tensor, and ask whether something is one.
tensor = Tensor
