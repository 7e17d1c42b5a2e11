"""One call that is noted with symbolic lengths and numbers, and then undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ...ir.scalars import plain
from ...tensor import ACTIVE
from ..array_proxy import ArrayProxy, each
from ..guard import Guard, is_plain
from ..source import Argument, Source
from ..watch import Observer, kinds, known, pure
from ..watch.events import Events
from ..watch.undoing import Snapshot, undo
from .calls import Calls
from .refused import NotFollowed, asks_what_it_is, changes_for_good, forget_warning, writes_for_good
from .substitution import Substitution

#: So many calls are followed: that takes about a second.
_MOST_EVENTS = 100_000
#: Who computes with symbolic numbers, lengths and proxies of arrays.
_OURS = ("mgb.ir.scalars", "mgb.ir.sizes", "mgb.jit.")


class Following(Observer):
    """Watches one call whose numbers and lengths are followed. Nothing that it does outside stays.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    of_instance : bool
        The function is a method, whose instance is given first and is not an argument.
    follows : frozenset of Source
        Where numbers and Tensors are followed.
    """

    is_trial, refusal = True, NotFollowed

    def __init__(self, leaves: Sequence[Any], of_instance: bool, follows: frozenset[Source]) -> None:
        super().__init__(leaves, True, of_instance, follows)
        arrays = {Argument(n) for n, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)}
        self.changing.follows = follows - arrays
        self.writing.has_effects = True
        self._proxies = {id(leaf): self._proxy(leaf) for leaf in _alone(leaves)}
        self._looked: set[int] = set()
        self._substitution = Substitution(
            self.changing.numbers, self.guards, leaves, follows, self._proxies, self._proxy
        )
        self.net = Events(self)
        self._calls = Calls(self.net.report_call, _measured, self.net.without)
        self._harmless: set[CodeType] = set()
        self._kinds: dict[CodeType, str] = {}
        self._events = 0
        self.running.originals = self._calls.originals
        #: What was found, and the guards, before effects took their place.
        self._values: dict[Source, Any] = {}
        self._before: list[Guard] = []
        self._spaces: list[tuple[Any, tuple[str, ...]]] = []

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch; `undo` leaves everything as it was before."""
        try:
            self._substitution.outside()
            return super().run(function, *args, **kwargs)
        finally:
            self._substitution.restore(self.walk.values)
            self.changing.numbers.open = False

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._refuse_caches()
        try:
            args, kwargs = self._substitution.arguments(args, kwargs, self._of_instance)
            given = Snapshot([*args[self._of_instance :], *kwargs.values()])
            result = super()._run(self._calls.copy_of(function), args, kwargs)
            if not given.is_current():
                raise NotFollowed("writes an element of an argument")
            return each(result)
        finally:
            self.net.without(self._substitution.restore, self.walk.values)
            self._values, self._before = dict(self.walk.values), list(self.guards)
            self._spaces = list(self.walk.spaces)

    def starts(self, frame: FrameType) -> None:
        """Note that a Python function starts; see `events.Listener`."""
        code, (libraries, user) = frame.f_code, self._callers(frame)
        if code is known.SHOWS_WARNING:
            forget_warning(frame)
            raise NotFollowed("gives a warning, which the call itself is to give")
        if "ours" in libraries:  # which has to come to its end
            return
        self._count()
        if code not in self._harmless:
            self._check(code, libraries, user)
        self.running.starts(frame)
        self._refuse_caches()

    def _check(self, code: CodeType, libraries: set[str], user: FrameType | None) -> None:
        """Refuse code that does what cannot be undone, or asks what nobody is told of; see `_callers`."""
        own = self._calls.originals.get(code, code)
        if not libraries and writes_for_good(own):
            raise NotFollowed(f"{code.co_qualname} writes what cannot be written back")
        if "mgb" in libraries:
            return
        if not asks_what_it_is(code):
            self._harmless.add(code)
        elif user is not None and user.f_code not in self._calls.originals:
            raise NotFollowed(f"{code.co_qualname} may ask a number for its type or its identity")

    def calls(self, function: Any, frame: FrameType) -> None:
        """Note that `frame` calls a function in C."""
        if "ours" not in self._callers(frame)[0]:
            self._count()
            owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
            if changes_for_good(owner, name) and self.walk.where(owner) is not None:
                raise NotFollowed(f"changes what is outside by {type(owner).__name__}.{name}")
            self.running.calls(function, frame)
            self._refuse_caches()

    def _count(self) -> None:
        self._events += 1
        if self._events > _MOST_EVENTS:
            raise NotFollowed("runs too much Python to be noted for other numbers as well")

    def _refuse_caches(self) -> None:
        if self.walk.caches:  # the next call would find what this one has made
            raise NotFollowed("can reach a function made by lru_cache")

    def _callers(self, frame: FrameType) -> tuple[set[str], FrameType | None]:
        """Return the libraries whose functions run, up to the user's function that called them, and it."""
        libraries, inner = set[str](), frame
        while (kind := self._kind_of(inner)) != "user":
            libraries.add(kind)
            if kind == "ours" or inner.f_back is None:
                return libraries, None
            inner = inner.f_back
        return libraries, inner

    def _kind_of(self, frame: FrameType) -> str:
        kind = self._kinds.get(frame.f_code)
        if kind is None:
            name = frame.f_globals.get("__name__") or ""
            if not _is_librarys(frame):
                kind = "user"
            elif name.startswith(_OURS):
                kind = "ours"
            else:
                kind = "mgb" if name.startswith("mgb.") else "library"
            self._kinds[frame.f_code] = kind
        return kind

    def can_write(self, value: Any) -> bool:
        return is_plain(plain(value))

    def follows_array(self, leaf: Any) -> bool:
        return id(leaf) in self._proxies

    def _proxy(self, array: Any) -> ArrayProxy:
        return ArrayProxy(array, _measured, self.looks_at)

    def looks_at(self, array: Any) -> None:
        if id(array) in self._proxies and id(array) not in self._looked:
            self._looked.add(id(array))
            source = self.walk.where(array)
            assert source is not None
            self.net.without(kinds.look, self.walk, source, array)

    def _end(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for proxy in self._proxies.values():
            if id(proxy.array) in self.walk.also:  # where it has no proxy
                proxy.fixed()
        super()._end(result, args, kwargs)

    def undo(self) -> None:
        """Put back what was there before, wherever the body has written."""
        undo(self._values, self._before, self.leaves, self._spaces)

    def forget(self) -> None:
        super().forget()
        self._values, self._before, self._spaces = {}, [], []
        self._proxies.clear()
        self._substitution.forget()


def _alone(leaves: Sequence[Any]) -> list[Any]:
    """Return the arrays among the arguments that are there once."""
    often = Counter(map(id, leaves))
    return [a for a in leaves if type(a) is np.ndarray and often[id(a)] == 1 and not a.dtype.hasobject]


def _is_librarys(frame: FrameType) -> bool:
    """Return whether it is code of a library, also that which `dataclass` has made for it."""
    is_made = frame.f_code.co_filename == "<string>" and pure.is_library(frame.f_globals.get("__name__"))
    return is_made or pure.is_librarys(frame.f_code)


def _measured(value: Any) -> Any:
    """Return `value` as code that asks for lengths is given it."""
    session = ACTIVE.get()
    return value if session is None else session.measured(value)
