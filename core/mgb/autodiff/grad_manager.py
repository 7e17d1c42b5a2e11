"""GradManager: which tensors want a gradient, and from when to when the tape runs."""

from __future__ import annotations

import dis
import inspect
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Self

from ..errors import TapeError
from ..ir import dtypes
from ..ops.creation import ones_like
from ..tensor import ACTIVE, Tensor, next_level
from ..tensor.holding import Holder
from .attached import Attached, Callback, backward_to_its_end
from .tape import Tape

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "tells", "attach": "changes"}

Tensors = Tensor | Iterable[Tensor]

_ALREADY = "already recording: end that by backward() or release() first"


class _Recorder(ABC):
    """Base class that records from `record` to `release` or in a ``with``; interrupts restore its state."""

    @abstractmethod
    def record(self) -> None:
        """Start to record."""

    @abstractmethod
    def release(self) -> None:
        """Stop recording."""

    @abstractmethod
    def _records(self) -> bool:
        """Return whether it records now. What a ``with`` opened ends with that at the latest."""

    @abstractmethod
    def _opened_by(self, frame: FrameType) -> None:
        """Note that code in `frame` opened it, maybe by a ``with``."""

    def __enter__(self) -> Self:
        recorded = self._records()
        try:
            self.record()
            self._opened_by(sys._getframe(1))
            return self
        except BaseException:
            if not recorded:
                self.release()
            raise

    def __exit__(self, *_error: object) -> None:
        _to_the_end(self.release)


class GradManager(_Recorder, Holder):
    """Computes gradients of what happens between `record` and `backward`.

    Managers nest: the one that was opened first records the `backward` of one that was opened later, which
    gives derivatives of higher order; never the other way round. ``gm1 | gm2`` opens several at once, blind
    to each other.

    Examples
    --------
    >>> from mgb import tensor
    >>> from mgb.autodiff import GradManager
    >>> x = tensor([1.0, 2.0, 3.0])
    >>> gm = GradManager().attach(x)
    >>> with gm:
    ...     gm.backward(x * x)
    >>> x.grad
    Tensor([2., 4., 6.], device=xpux:0)
    """

    #: Another number after each change from outside a trace.
    __revision__ = 0

    def __init__(self) -> None:
        self._attached: dict[int, Attached] = {}
        self._tape: Tape | None = None
        self._frame: FrameType | None = None  # of the `with` that has opened it

    def attach(self, tensors: Tensors, callbacks: Callback | Iterable[Callback] | None = None) -> GradManager:
        """Want the gradients of `tensors`.

        Parameters
        ----------
        tensors : Tensor or iterable of Tensor
            Of a float dtype. They are held weakly. Attached while recording, they are recorded from then on.
        callbacks : callable or iterable of callable, optional
            ``(tensor, grad) -> grad``, called in order once the gradient is complete; the last result is
            added to ``tensor.grad``. Attaching a tensor again appends its new callbacks.

        Returns
        -------
        GradManager
            This one.

        Raises
        ------
        TapeError
            Something is not a Tensor, or not of a float dtype.
        """
        added = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
        changes = False
        for tensor in _checked(tensors):
            attached = self._attached.get(id(tensor))
            changes = changes or attached is None or bool(added)
            if attached is None:
                attached = self._attached[id(tensor)] = Attached(tensor, self._forgetting())
                if self._tape is not None:
                    self._tape.watch(tensor, attached.arrived)
            attached.callbacks += added
        session = ACTIVE.get()
        if changes and (session is None or not session.replays):
            self.__revision__ += 1
        return self

    def attached_tensors(self) -> list[Tensor]:
        """Return the tensors that want a gradient, in the order they were attached."""
        self._tell()
        return self._alive()

    def _alive(self) -> list[Tensor]:
        found = (attached.reference() for attached in list(self._attached.values()))
        return [tensor for tensor in found if tensor is not None]

    def __repr__(self) -> str:
        recording = ", recording" if self._records() else ""
        return f"GradManager({len(self.attached_tensors())} tensors attached{recording})"

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        for place, tensor in enumerate(self._alive()):
            yield f"tensors.{place}", tensor
            for number, callback in enumerate(self._attached[id(tensor)].callbacks):
                yield f"callbacks.{place}.{number}", callback

    def __decides__(self) -> Iterator[Any]:
        """Yield only its revision, which changes with every tensor that is attached."""
        return iter(())

    def record(self) -> None:
        """Start to record.

        Raises
        ------
        TapeError
            This manager is already recording.
        """
        self._record(next_level())

    def backward(
        self,
        y: Tensor | Sequence[Tensor] | None = None,
        dy: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradients of `y` to the attached tensors' ``grad``, then stop recording.

        Parameters
        ----------
        y : Tensor or sequence of Tensor, optional
            Computed since `record`. What does not depend on an attached tensor is passed over.
        dy : Tensor or sequence of Tensor, optional
            The gradient of each `y`; ones by default.

        Raises
        ------
        TapeError
            Nothing was recorded, or a `y` was computed before that began.
        ValueError
            `y` and `dy` differ in number.
        """
        tape = self._tape
        if tape is None:
            raise TapeError(
                "no computation history. did you forget record() or call a method that clears the history?"
            )
        try:
            try:
                ys = _listed("y", y)
                _check_seen(tape, y, ys)
                dys = [ones_like(t) for t in ys] if dy is None else _listed("dy", dy)
                if len(ys) != len(dys):
                    raise ValueError(f"backward got {len(ys)} tensors and {len(dys)} gradients for them")
                backward_to_its_end(tape, ys, dys)
            finally:
                self.release()
        except BaseException:
            self.release()  # an interrupt may have ended the line above
            raise

    def release(self) -> None:
        """Stop recording and free what was kept for `backward`."""
        _to_the_end(self._release)

    def _release(self) -> None:
        if self._tape is not None:
            self._tape.close()
            self._tape = None
        self._frame = None

    def _records(self) -> bool:
        if self._tape is not None and _has_ended(self._frame):
            self.release()
        return self._tape is not None

    def _opened_by(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_flags & _WAITS == 0 and code.co_code[frame.f_lasti] == _WITH:
            self._frame = frame

    def __or__(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        return GradManagerGroup([self]) | other

    def _record(self, level: int) -> None:
        if self._records():
            raise TapeError(_ALREADY)
        self._tell()
        try:
            self._tape = Tape(level)
            self._tape.open()
            for attached in list(self._attached.values()):
                tensor = attached.reference()
                if tensor is not None:
                    self._tape.watch(tensor, attached.arrived)
        except BaseException:
            self.release()
            raise

    def _tell(self) -> None:
        """Tell a trace that what it does depends on the tensors that are attached."""
        session = ACTIVE.get()
        if session is not None:
            session.entered(self)

    def _forgetting(self) -> Callable[[weakref.KeyedRef[int, Tensor]], object]:
        """Return a callback that forgets a collected tensor; it does not hold the manager, which holds it."""
        manager = weakref.ref(self)

        def forget(reference: weakref.KeyedRef[int, Tensor]) -> None:
            alive = manager()
            if alive is not None:
                alive._attached.pop(reference.key, None)

        return forget


class GradManagerGroup(_Recorder):
    """Managers that record together: each sees the tensors' history, none sees another's `backward`.

    Parameters
    ----------
    managers : iterable of GradManager

    Examples
    --------
    >>> from mgb.autodiff import GradManager
    >>> x, one, other = mgb.Parameter([3.0]), GradManager(), GradManager()
    >>> with one.attach(x) | other.attach(x):
    ...     one.backward(x * x)
    >>> x.grad
    Tensor([6.], device=xpux:0)
    """

    def __init__(self, managers: Iterable[GradManager]) -> None:
        self._managers = tuple(managers)

    def record(self) -> None:
        """Start to record with every manager.

        Raises
        ------
        TapeError
            One of them is already recording; none is started.
        """
        if self._records():
            raise TapeError(_ALREADY)
        level = next_level()
        try:
            for manager in self._managers:
                manager._record(level)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Stop recording with every manager."""
        _to_the_end(self._release)

    def _release(self) -> None:
        for manager in self._managers:
            manager.release()

    def _records(self) -> bool:
        return any(manager._records() for manager in self._managers)

    def _opened_by(self, frame: FrameType) -> None:
        for manager in self._managers:
            manager._opened_by(frame)

    def __or__(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        if isinstance(other, GradManager):
            return GradManagerGroup([*self._managers, other])
        if isinstance(other, GradManagerGroup):
            return GradManagerGroup([*self._managers, *other._managers])
        return NotImplemented


#: Flags of code whose frames may wait: generators and coroutines. And what opens a ``with``.
_WAITS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_WITH = dis.opmap.get("BEFORE_WITH", -1)


def _has_ended(frame: FrameType | None) -> bool:
    """Return whether the function of `frame` has ended; an interrupt may have prevented ``__exit__``."""
    if frame is None:
        return False
    try:
        frame.clear()
    except RuntimeError:  # it runs
        return False
    return True


def _to_the_end(undo: Callable[[], None]) -> None:
    """Call `undo`, once more if an interrupt ends it before it is done."""
    try:
        undo()
    except BaseException:
        undo()
        raise


def _checked(tensors: Any) -> list[Tensor]:
    one = isinstance(tensors, Tensor) or not isinstance(tensors, Iterable)
    listed = [tensors] if one else list(tensors)
    for tensor in listed:
        if not isinstance(tensor, Tensor):
            raise TapeError(f"only a Tensor can be attached, got {type(tensor).__name__}")
        if tensor.dtype not in dtypes.INEXACT:
            raise TapeError(f"a Tensor of {tensor.dtype} has no gradient: attach a cast of it")
    return listed


def _listed(name: str, tensors: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    if tensors is None:
        return []
    if isinstance(tensors, Tensor):
        return [tensors]
    if not isinstance(tensors, Iterable):
        raise TypeError(f"backward: {name} is a Tensor or a list of them, not {type(tensors).__name__}")
    return list(tensors)


def _check_seen(tape: Tape, given: Any, ys: Sequence[Tensor]) -> None:
    """Refuse what `backward` is given where it was computed before `tape` could record that."""
    for place, y in enumerate(ys):
        name = "y" if y is given else f"y[{place}]"
        if not isinstance(y, Tensor):
            raise TypeError(f"backward: {name} is no Tensor but of {type(y).__name__}")
        if not tape.has_seen(y):
            raise TapeError(
                f"backward: {name} was computed before this GradManager began to record, so it has no "
                "gradient: move the lines that compute it into the `with` block, or below record()"
            )
