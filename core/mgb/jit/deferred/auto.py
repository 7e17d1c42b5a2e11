"""`auto`: a JIT for code that nobody decorated."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from ...errors import AutoInputError, AutoWarning, MgbError
from ...executor import Options, Program, compile_program
from ...ir import Graph, Op
from ...tensor import ACTIVE, Session, Tensor
from ..config import check_options
from .stream import Counts, Stream


@dataclass(frozen=True, slots=True)
class Settings:
    """What `auto` was asked for.

    Attributes
    ----------
    after : int
        A sequence runs op by op so often before it is compiled.
    options : Options
    """

    after: int = 2
    options: Options = field(default_factory=Options)

    def compile(self, graph: Graph, updates: Mapping[int, int]) -> Program | None:
        """A program; where none can be made, say so once, and the sequence goes on op by op."""
        try:
            return compile_program(graph, self.options, updates)
        except MgbError as error:
            warnings.warn(
                f"mgb.jit.auto: {len(graph.nodes)} ops that repeat go on op by op, for they cannot be "
                f"compiled: {error}",
                AutoWarning,
                stacklevel=2,
            )
            return None


class auto(ContextDecorator):
    """Defer ops, recognise sequences that repeat, and run those compiled.

    Within, an op that is called is only noted. What waits is computed where a value is wanted: by ``numpy``,
    ``item``, ``print``, ``if``; by a call of a traced function; by another thread; when too much waits; and
    at the end. Values that nobody can ask for any more are not computed. A sequence that came often enough is
    compiled for the results that were still alive; others run op by op, as without `auto`.

    A Python number that changes becomes an input, so that a schedule of learning rates compiles nothing anew.
    An op whose other parameters keep changing, such as the bounds of a slice, runs at once.

    It is a context manager and a decorator, may be nested and entered again, and remembers what it compiled;
    so does any other `auto` with the same settings. Each thread has sequences of its own. In the body of a
    trace it does nothing. ``MGB_JIT_AUTO=1`` is `auto` for the whole process.

    Parameters
    ----------
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND``.
    after : int
        How often a sequence runs op by op before it is compiled.
    opt_level : int
        As for `trace`.
    fast_math : bool
        As for `trace`.

    Raises
    ------
    AutoInputError
        `after` is no count.
    TraceInputError
        Another option is none that `trace` could take.

    Notes
    -----
    An op that cannot take its operands raises at its line. One that fails when it is computed raises where
    the value was wanted, with a note of the line that called it; what does not depend on it has its values.

    Examples
    --------
    >>> from mgb import jit, tensor
    >>> x = tensor([1.0, 2.0, 3.0])
    >>> with jit.auto():
    ...     for _ in range(4):
    ...         y = (x * 2 + 1).sum()
    ...         print(y.item())
    15.0
    15.0
    15.0
    15.0
    """

    def __init__(
        self, backend: str | None = None, after: int = 2, opt_level: int = 3, fast_math: bool = False
    ) -> None:
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise AutoInputError(f"auto(after={after!r}): give the number of runs before one is compiled")
        check_options("auto", {"opt_level": opt_level, "fast_math": fast_math, "backend": backend})
        options = Options(opt_level=opt_level, fast_math=fast_math, backend=backend)
        self._session = session_of(Settings(after, options))

    def __enter__(self) -> Self:
        active, outer = ACTIVE.get(), _outer.get()
        entered = active is None or not (active.replays or active.of_trace)
        try:
            _outer.set((*outer, (active, entered)))
            if entered:
                ACTIVE.set(self._session)
            return self
        except BaseException:  # an interrupt: `__exit__` is not called then
            ACTIVE.set(active)
            _outer.set(outer)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        *outer, (active, entered) = _outer.get()
        try:
            if entered:
                ACTIVE.set(active)
            _outer.set(tuple(outer))
        except BaseException:
            if entered:
                ACTIVE.set(active)
            _outer.set(tuple(outer))
            raise
        if not entered:
            return
        try:
            self._session.flush()
        except Exception:
            if error is None:
                raise

    def stats(self) -> dict[str, int]:
        """Of this thread: sequences computed, how many of them by programs, and programs made."""
        return asdict(self._session.stream().counts)


#: For each `auto` that this context is in: the session of before, and whether that was replaced.
_outer: ContextVar[tuple[tuple[Session[Tensor] | None, bool], ...]] = ContextVar("mgb_auto_outer", default=())


class AutoSession(Session[Tensor]):
    """The session of every `auto` with the same settings; it hands each thread's ops to a `Stream`.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()

    def stream(self) -> Stream:
        """That of this thread."""
        try:
            found: Stream = self._local.stream
        except AttributeError:
            found = self._local.stream = Stream(self._settings.after, self._settings.compile)
        return found

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        try:
            out: Tensor | None = self._local.stream.shortcut(op, args, params)
        except AttributeError:
            if hasattr(self._local, "stream"):
                raise
            out = self.stream().shortcut(op, args, params)
        return out

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        return self.stream().step(op, inputs, params)

    def flush(self) -> None:
        self.stream().flush()


_sessions: dict[Settings, AutoSession] = {}


def session_of(settings: Settings) -> AutoSession:
    """The session for `settings`, always the same one."""
    return _sessions.setdefault(settings, AutoSession(settings))


def everywhere() -> AutoSession:
    """What ``MGB_JIT_AUTO=1`` makes active in every context that has no session of its own."""
    return session_of(Settings())


__all__ = ["AutoSession", "Counts", "auto", "everywhere", "session_of"]
