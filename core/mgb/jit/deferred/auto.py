"""`auto`: a JIT for code without decorators."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from ...errors import ArgumentError, AutoWarning, MgbError
from ...executor import Options, Program, compile_program
from ...ir import Graph, Op
from ...tensor import ACTIVE, Session, Tensor
from ..config import check_options
from .stream import Counts, Stream


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of `auto`.

    Attributes
    ----------
    after : int
        How often a sequence runs op by op before it is compiled.
    options : Options
    """

    after: int = 2
    options: Options = field(default_factory=Options)

    def compile(self, graph: Graph, updates: Mapping[int, int]) -> Program | None:
        """Return a program, or None with a warning where none can be compiled."""
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

    Inside, an op is only noted. The ops that wait are computed when a value is needed: by ``numpy``,
    ``item``, ``print`` or ``if``, by a call of a traced function, by another thread, when too many ops wait,
    and at the end. Values of Tensors that no longer exist are not computed. A sequence that came often enough
    is compiled for the results that were still alive; other sequences run op by op, as without `auto`.

    A Python number that changes becomes an input, so a schedule of learning rates causes no recompilation. An
    op whose other parameters keep changing, such as the bounds of a slice, runs at once.

    `auto` is a reentrant context manager and a decorator. Every `auto` with the same settings shares compiled
    sequences, but each thread has its own. In the body of a trace it does nothing. ``MGB_JIT_AUTO=1`` applies
    `auto` to the whole process.

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
    ArgumentError
        `after` is not a count.
    TraceInputError
        Another option is not valid for `trace`.

    Notes
    -----
    An op that cannot take its operands raises at its line. An op that fails when it is computed raises where
    the value is needed, with a note that names the line of the op; results that do not depend on it are
    computed.

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
            raise ArgumentError(f"auto(after={after!r}): give the number of runs before one is compiled")
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
        except BaseException:  # after an interrupt here, `__exit__` is not called
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
        """Return counts of this thread: sequences computed, those by programs, and programs compiled."""
        return asdict(self._session.stream().counts)


#: For each `auto` that this context is in: the previous session, and whether `auto` replaced it.
_outer: ContextVar[tuple[tuple[Session[Tensor] | None, bool], ...]] = ContextVar("mgb_auto_outer", default=())


class AutoSession(Session[Tensor]):
    """The session of every `auto` with the same settings; it forwards each thread's ops to its `Stream`.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()

    def stream(self) -> Stream:
        """Return the stream of this thread."""
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
    """Return the one session for `settings`."""
    return _sessions.setdefault(settings, AutoSession(settings))


def everywhere() -> AutoSession:
    """Return the session that ``MGB_JIT_AUTO=1`` makes active in every context without a session."""
    return session_of(Settings())


__all__ = ["AutoSession", "Counts", "auto", "everywhere", "session_of"]
