"""Sessions: the interface of a Tensor and `apply` to the current trace that records or defers."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from ..errors import MgbError
from ..ir import Op, Spec
from ..ir.scalars import Scalar
from ..runtime import config
from ..runtime.trusted import PACKAGE

P = ParamSpec("P")
R = TypeVar("R")
#: What stands for a value: `Tensor`, which needs all of this to be there.
Value = TypeVar("Value")


class Refusal(NamedTuple):
    """The error that a session raised when a value was read, without frames, and the reading instruction.

    C code around the read may put an error of its own in place of ours. ``array[0] = x`` of NumPy answers
    "setting an array element with a sequence" to whatever `float` of a Tensor raises, `struct.pack` "required
    argument is not a float". A call that ends with such an error, from the same instruction, ends with ours.
    """

    error: MgbError
    code: CodeType
    place: int

    @classmethod
    def of(cls, error: MgbError) -> Refusal:
        """Make a refusal of an error that is being raised now."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        kind = type(error)
        return cls(kind.__new__(kind, *error.args), frame.f_code, frame.f_lasti)

    def explains(self, error: BaseException) -> bool:
        """Return whether this arose in the instruction that read the value, and says something else."""
        if isinstance(error, MgbError) or not isinstance(error, Exception):
            return False
        at, last = error.__traceback__, None
        while at is not None:
            if not at.tb_frame.f_code.co_filename.startswith(PACKAGE):
                last = at
            at = at.tb_next
        return last is not None and last.tb_frame.f_code is self.code and last.tb_lasti == self.place

    def instead_of(self, error: BaseException) -> MgbError:
        """Return the error that the user is to see, which `error` led to."""
        error.__cause__ = None  # where it is ours, it says the same
        self.error.__cause__ = error
        return self.error


class Session(Generic[Value]):
    """The receiver of `apply` and `Tensor`: a trace that records, a graph being built, deferred ops.

    Each overrides the hooks that concern it; here they do nothing.
    """

    #: Are shapes Tensors in the body?
    symbolic_shape = False

    #: How many devices the mesh has for which a program is recorded; 0: there is none.
    mesh = 0

    #: Is it a trace, of which what Python sees now may be taken for what it would see later?
    replays = False

    #: Does a traced function that is called here run as part of the body of another one?
    of_trace = False

    #: What gives the type of a Tensor with lengths that are followed; None: shapes are plain.
    spec_of: Callable[[Value], Spec] | None = None

    #: The latest read of a value that was refused.
    refusal: Refusal | None = None

    def shape_of(self, tensor: Value) -> Value:
        """Return the shape of `tensor` as a Tensor; asked for only if `symbolic_shape`."""
        raise NotImplementedError

    def measured(self, value: Any) -> Any:
        """Return `value`, which is not a Tensor, as code that reads symbolic lengths gets it."""
        return value

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Value | None:
        """Return the result of `op`, if the session applies it itself; None: `apply` goes on to `step`."""
        return None

    def step(self, op: Op, inputs: tuple[Value, ...], params: dict[str, Any]) -> Value:
        """Record or match one op on exact inputs."""
        raise NotImplementedError

    def read(self, tensor: Value) -> Any:
        """Return the array of `tensor`, a place in this session, whose value is wanted inside the body."""
        raise NotImplementedError

    def shapes_follow(self, tensor: Value) -> None:
        """Note that the value of `tensor`, a place in this trace, is about to be read for a shape."""

    def seen(self, tensor: Value) -> None:
        """Note that the body needs the value of `tensor`, which has no place in this trace."""

    def adopt(self, alias: Value, original: Value) -> None:
        """Note one more Tensor for the value of `original`, a place in this trace or a Tensor outside."""

    def rebound(self, tensor: Value, value: Value) -> None:
        """Note that `tensor` is about to take the value of another Tensor, a place in this trace or none."""

    def touched_grad(self, tensor: Value, reads: bool) -> None:
        """Note that the ``grad`` of `tensor` is about to be read, or else replaced."""

    def watched(self, tensor: Value) -> None:
        """Note that a gradient tape requires the gradient of `tensor` from now on."""

    def created(self, tensor: Value, data: Any) -> None:
        """Note a Tensor, or a constant beside Tensors, that was made of `data` inside the body."""

    def live(self, tensor: Value, source: Callable[[], float]) -> None:
        """Note that `tensor`, just made, holds what `source` returns, which is read again at every call."""

    def follows(self, tensor: Value, number: Scalar) -> bool:
        """Note that the constant `tensor` is made of `number`; return whether each call recreates it."""
        return False

    def entered(self, holder: Any) -> None:
        """Note an object that decides what the body does, as a layer that is called in it."""

    def flush(self) -> None:
        """Compute what was deferred; a trace does nothing here."""


class Ambient:
    """Stands for the session of every context that has none of its own, which is made when an op asks for it.

    Attributes
    ----------
    make : callable
        Returns that session; `mgb`, which puts the parts together, gives it.
    """

    make: Callable[[], Session[Any]]

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(Ambient.make(), name)
        return value


_default: Any = Ambient() if config.AUTO.on() else None

#: The session of this context: a trace that records, what defers ops, or None.
ACTIVE: ContextVar[Session[Any] | None] = ContextVar("mgb_active_trace", default=_default)


def run_in(session: Session[Any] | None, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``function(*args, **kwargs)`` with `session` as the active one.

    Whatever ends the call, a signal between two bytecodes too, the session of before is active again: once it
    is replaced, each place where an exception can arise is covered by the handler. What C code made of the
    error of a refused read becomes that error again.
    """
    before = ACTIVE.get()
    replaced = replace_handlers() if session is not None else []
    try:
        ACTIVE.set(session)
        result = function(*args, **kwargs)
        ACTIVE.set(before)
    except BaseException as error:
        ACTIVE.set(before)
        refusal = session.refusal if session is not None else None
        if refusal is not None and refusal.explains(error):
            raise refusal.instead_of(error) from error
        raise
    finally:
        restore_handlers(replaced)
    return result


def active_trace() -> Session[Any] | None:
    """Return the session of a trace in this context, if there is one; else what was deferred is computed."""
    session = ACTIVE.get()
    if session is None or session.replays or session.of_trace:
        return session
    session.flush()
    return None


# Signal handlers. Python calls one between two bytecodes of the main thread, whatever that is at: while a
# session is active there, each is replaced by one that steps out of the session first.

#: `signal.getsignal` also looks its result up in an enumeration, which takes ten times as long.
_get: Callable[[int], Any] = _signal.getsignal
_SIGNALS = tuple(sorted(map(int, signal.valid_signals())))

#: The module of asyncio's handler, which does nothing; replacing it would undo its `signal.siginterrupt`.
_IDLE = "asyncio.unix_events"

#: The classes of what stands for the default, for nothing and for C code.
_NO_HANDLERS = frozenset({int, type(None)})

#: What handled signals when no handler was written in Python, as seen last: to compare is quick.
_plain: list[Any] = []

#: Does a handler run that has interrupted a session?
_handling: ContextVar[bool] = ContextVar("mgb_handling", default=False)


class Outside:
    """A signal handler that runs outside of the session which it interrupts.

    Attributes
    ----------
    unwatched : callable
        Calls what it is given where nobody watches; who watches bodies gives it.
    """

    __slots__ = ("handler",)
    unwatched: Callable[..., Any] = staticmethod(lambda function, *args: function(*args))

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        token = _handling.set(True)
        try:
            return self.unwatched(run_in, None, self.handler, number, frame)
        finally:
            _handling.reset(token)


def handling() -> bool:
    """Return whether a signal handler asks, and not the body that it interrupts."""
    return _handling.get()


def of_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised it, so that it is not a failure of what caught it."""
    codes = [Outside.__call__.__code__, *map(_code_of, map(_get, _SIGNALS))]
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that runs where a handler is called; None: it is not written in Python."""
    while isinstance(handler, partial):
        handler = handler.func
    called = getattr(handler, "__func__", handler)
    code = getattr(called, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def replace_handlers() -> list[int]:
    """Have signal handlers run outside of sessions, until `restore_handlers` is given what this returns."""
    global _plain
    if threading.get_ident() != threading.main_thread().ident:
        return []
    handlers = list(map(_get, _SIGNALS))
    try:
        if handlers == _plain:
            return []
    except Exception:  # of a handler that compares itself
        pass
    if all(type(handler) in _NO_HANDLERS or handler is signal.default_int_handler for handler in handlers):
        _plain = handlers
        return []
    found = [number for number, handler in zip(_SIGNALS, handlers) if callable(handler)]
    return [number for number in found if _replace(number, _get(number))]


def _replace(number: int, handler: Any) -> bool:
    """Replace a handler that is written in Python, unless it is replaced already."""
    if isinstance(handler, (Outside, BuiltinFunctionType)) or getattr(handler, "__module__", None) == _IDLE:
        return False
    signal.signal(number, Outside(handler))
    return True


def restore_handlers(numbers: list[int]) -> None:
    """Undo `replace_handlers`; a handler that has been installed since stays.

    One that an interrupt leaves replaced goes on to do what it did.
    """
    for number in numbers:
        handler = _get(number)
        if isinstance(handler, Outside):
            signal.signal(number, handler.handler)
