"""Who watches this thread, and what becomes of what it sees."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ImpureBodyError
from ..source import Call, Held, Object, Source
from ..watch.ending import handling_of_errors
from ..watch.impurity import line_of
from .armed import Armed
from .arming import Net
from .facts import Facts
from .writing import Writing

#: What is done with the result of a call: a function that is given it, or None.
Then = Callable[[Any], Any] | None


class _Watching(threading.local):
    watch: Watch | None = None


#: Who watches this thread.
WATCHING = _Watching()


class Watch(Facts):
    """The facts of one call; an `Observer` says what it is given. `armed` has functions run with hooks."""

    net: Net

    def __init__(
        self, leaves: Sequence[Any], refuses: bool, armed: Armed, follows: frozenset[Source] = frozenset()
    ) -> None:
        super().__init__(leaves, refuses, follows)
        self.writing = Writing(self)
        self.pending: dict[int, Any] = {}  # by frame: what is done with the result of its call
        self.beginning: list[type] = []  # whose `__init__`, called next, has another name
        self.walked: set[Source] = set()  # Modules of which all has been read
        self.busy = False  # it is looking itself
        self.quiet: dict[int, type] = {}  # classes of mgb's that have nothing of a user's: see `reach`
        self._armed = armed
        self._latest: Any = None  # the array that was read last, until an op has taken it
        self._told: set[int] = set()
        self._errors, self.handled = handling_of_errors(), sys.exception()
        #: By the id of an array: how it was read without an op: the whole array, its source, the user's line.
        self.unaccounted: dict[int, list[tuple[Any, Any, Source, tuple[str, int]]]] = {}

    def see(self, do: Callable[..., Any], *args: Any) -> Any:
        """Have `do(watch, *args)` done; what fails in it is no failure of the body."""
        if self.busy:  # what it calls itself is called once more, natively
            return None
        self.busy = True
        try:
            return self.net.without(do, self, *args)
        except ImpureBodyError:
            raise
        except Exception as error:
            self.impure(f"could not be watched: {type(error).__name__}: {error}")
            return None
        finally:
            self.busy = False

    def once(self, thing: Any) -> bool:
        """Is it asked for the first time?"""
        first = id(thing) not in self._told
        self._told.add(id(thing))
        return first

    def reads_array(self, array: Any, whole: Any, source: Source) -> None:
        """`array`, a part of `whole`, which is found at `source`, is read: see `takes_array`."""
        line = line_of(sys._getframe(1))
        self.unaccounted.setdefault(id(array), []).append((array, whole, source, line))
        self._latest = array

    def takes_array(self, array: Any) -> Source | None:
        """An op takes `array` as an input: what was just read needs no guard. Where it is found outside."""
        source = self.known(array)
        if source is not None and self._latest is array:
            self.unaccounted[id(array)].pop()
            self._latest = None
        return source

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        super().forget()
        self.writing.things.clear()

    def computes(self) -> None:
        """NumPy computes next; what it does with errors, where the body does not say, has to stay."""
        self.guard(Call(Object(Held(handling_of_errors))), "same", self._errors)

    def arm(self, thing: Any) -> None:
        """Watch the Python functions that `thing` is, or that its class, submodules and hooks have."""
        self._armed.arm(thing)

    def calls(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Then:
        """`function` is about to be called."""
        raise NotImplementedError
