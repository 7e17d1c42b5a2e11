"""One call that is noted with what stands for lengths and for numbers that change, and then undone."""

from __future__ import annotations

import dis
import functools
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ...tensor import ACTIVE
from ..followed_array import FollowedArray, each
from ..guard import Guard
from ..source import Argument, Source
from ..watch import Observer, kinds, known, pure
from ..watch.events import Events
from ..watch.names import names_of
from ..watch.undoing import Containers, undo
from .calls import Calls
from .lending import Lending
from .refused import NotFollowed


class Following(Observer):
    """Watches one call whose numbers and lengths are followed. Nothing that it does outside stays.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    of_instance : bool
        The function is a method, whose instance is given first and is no argument.
    follows : frozenset of Source
        Where numbers and Tensors are followed.
    """

    follows_lengths = is_trial = True

    def __init__(self, leaves: Sequence[Any], of_instance: bool, follows: frozenset[Source]) -> None:
        super().__init__(leaves, True, of_instance, follows)
        arrays = {Argument(n) for n, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)}
        self.changing.follows, self._leaves = follows - arrays, leaves
        self.writing.has_effects = True
        self._arrays = {id(leaf): self._stand_in(leaf) for leaf in _alone(leaves)}
        self._looked: set[int] = set()
        self._lending = Lending(
            self.changing.numbers, self.guards, leaves, follows, self._arrays, self._stand_in
        )
        self._calls = Calls(self._tell_call, _measured, self._paused)
        self._harmless: set[CodeType] = set()
        self._kinds: dict[CodeType, str] = {}
        self._told = 0
        self.running.originals = self._calls.originals
        self.net = Events(self)
        #: What was found, and the guards, before effects took their place.
        self._places: dict[Source, Any] = {}
        self._before: list[Guard] = []
        self._spaces: list[tuple[Any, tuple[str, ...]]] = []
        self._containers = Containers(())

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and watch; `undo` leaves everything as it was before."""
        self._containers = Containers([*args[self._of_instance :], *kwargs.values()])
        try:
            self._lending.lend()
            return super().run(function, *args, **kwargs)
        finally:
            self._lending.give_back(self.walk.places)
            self.changing.numbers.open = False

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            args, kwargs = self._lending.arguments(args, kwargs, self._of_instance)
            return each(super()._run(self._calls.copy_of(function), args, kwargs))
        finally:
            self.net.without(self._lending.give_back, self.walk.places)
            self._places, self._before = dict(self.walk.places), list(self.guards)
            self._spaces = list(self.walk.spaces)

    def starts(self, frame: FrameType) -> None:
        """A function in Python starts; see `events.Listener`."""
        self._count()
        code, libraries = frame.f_code, self._libraries_above(frame)
        if code is known.SHOWS_WARNING:
            _forget_warning(frame)
            raise NotFollowed("gives a warning, which the call itself is to give")
        if "ours" in libraries:
            return
        own = self._calls.originals.get(code, code)
        if not libraries and code not in self._harmless and _writes_for_good(own):
            raise NotFollowed(f"{code.co_qualname} writes what cannot be written back")
        if code not in self._harmless and "mgb" not in libraries:
            if not sees_through(code):
                self._harmless.add(code)
            elif not self._has_hooks(frame, len(libraries)):
                raise NotFollowed(f"{code.co_qualname} may ask a number for its type or its identity")
        self.running.starts(frame)

    def calls(self, function: Any, frame: FrameType) -> None:
        """`frame` calls a function in C."""
        self._count()
        if "ours" not in self._libraries_above(frame):
            self._refuse_to_change(function)
            self.running.calls(function, frame)

    def _count(self) -> None:
        self._told += 1
        if self.walk.caches:  # the next call would find what this one has made
            raise NotFollowed("can reach a function made by lru_cache")
        if self._told > _MOST_TOLD:
            raise NotFollowed("runs too much Python to be noted for other numbers as well")

    def _libraries_above(self, frame: FrameType) -> list[str]:
        """Whose functions run, up to the function of a user's that called them."""
        found, inner = list[str](), frame
        while (kind := self._kind_of(inner)) != "user":
            found.append(kind)
            if kind == "ours" or inner.f_back is None:
                break
            inner = inner.f_back
        return found

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

    def _refuse_to_change(self, function: Any) -> None:
        """A method in C that changes what is outside is not called: not each change can be undone."""
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, np.ndarray):
            changes = name in _CHANGING_ARRAYS
        else:
            changes = isinstance(owner, _CHANGEABLE) and not pure.only_reads(owner, name)
        appends = type(owner) is list and name == "append"
        if changes and not appends and self.walk.where(owner) is not None:
            raise NotFollowed(f"changes what is outside by {type(owner).__name__}.{name}")

    def _has_hooks(self, frame: FrameType, above: int) -> bool:
        """Has the function of a user's hooks that runs so many functions of libraries above `frame`?"""
        user: FrameType | None = frame
        for _ in range(above):
            user = user.f_back if user is not None else None
        return user is None or user.f_code in self._calls.originals

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        line: tuple[str, int] | None = None,
        writes: bool = False,
    ) -> None:
        raise NotFollowed(reason)

    def follows_array(self, leaf: Any) -> bool:
        return id(leaf) in self._arrays

    def _stand_in(self, array: Any) -> FollowedArray:
        return FollowedArray(array, _measured, self._looks)

    def looks_at(self, array: Any) -> None:
        if id(array) in self._arrays:
            self._looks(array)

    def _looks(self, array: Any) -> None:
        """The values of an array among the arguments decide what comes."""
        if id(array) not in self._looked:
            self._looked.add(id(array))
            source = self.walk.where(array)
            assert source is not None
            self.net.without(kinds.look, self.walk, source, array)

    def _paused(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.net.without(function, *args)

    def _tell_call(self, function: Any, frame: FrameType) -> None:
        if type(function) is functools._lru_cache_wrapper:
            raise NotFollowed(f"keeps what {function.__name__} gives")
        self.net.tell_call(function, frame)

    def _end(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for standing in self._arrays.values():
            if id(standing.array) in self.walk.also:  # where nothing stands for it
                standing.fixed()
        super()._end(result, args, kwargs)

    def undo(self) -> None:
        """Put back what was there before, wherever the body has written."""
        undo(self._places, self._before, self._leaves, self._spaces)
        self._containers.put_back()

    def forget(self) -> None:
        super().forget()
        self._places, self._before, self._spaces, self._leaves = {}, [], [], ()
        self._arrays.clear()
        self._containers = Containers(())
        self._lending.forget()


def _alone(leaves: Sequence[Any]) -> list[Any]:
    """The arrays among the arguments that are there once."""
    often = Counter(map(id, leaves))
    return [a for a in leaves if type(a) is np.ndarray and often[id(a)] == 1 and not a.dtype.hasobject]


#: So many calls are followed: that takes about a second.
_MOST_TOLD = 100_000
#: Methods that change an array otherwise than by its elements, or large ones.
_CHANGING_ARRAYS = frozenset(
    "resize fill sort partition put itemset setfield setflags byteswap __setitem__ __setstate__".split()
)
#: What methods in C change.
_CHANGEABLE = (list, dict, set, bytearray, deque)
#: Attributes that Python code writes, and that are no places.
_SPECIAL = frozenset(
    "__class__ __dict__ __bases__ __code__ __defaults__ __kwdefaults__ __closure__ __name__ __qualname__ "
    "__annotations__ __doc__ shape dtype strides writeable flat real imag".split()
)


def _writes_for_good(code: CodeType) -> bool:
    """Does it write what cannot be written back, or delete attributes and variables outside?"""
    return names_of(code).stored != {} and any(
        step.opname in _DELETING or (step.opname == "STORE_ATTR" and step.argval in _SPECIAL)
        for step in dis.get_instructions(code)
    )


#: How code deletes what may stand outside.
_DELETING = frozenset({"DELETE_ATTR", "DELETE_DEREF", "DELETE_GLOBAL"})


def _forget_warning(frame: FrameType) -> None:
    """A warning is about to be shown: as if it had never come, so that it will be shown when it comes."""
    told = frame.f_locals["msg"]
    text, kind = str(told.message), told.category
    above: FrameType | None = frame
    while above is not None:
        registry = above.f_globals.get("__warningregistry__", {})
        if above.f_code.co_filename == told.filename:
            registry.pop((text, kind, told.lineno), None)
            registry.pop((text, kind, 0), None)
        above = above.f_back
    getattr(warnings, "onceregistry", {}).pop((text, kind), None)


def _is_librarys(frame: FrameType) -> bool:
    """Is it code of a library, also that which `dataclass` has made for it?"""
    is_made = frame.f_code.co_filename == "<string>" and pure.is_library(frame.f_globals.get("__name__"))
    return is_made or pure.is_librarys(frame.f_code)


#: Who computes with what stands for numbers, lengths and arrays.
_OURS = ("mgb.scalars", "mgb.sizes", "mgb.jit.")


def _measured(value: Any) -> Any:
    """`value` as code that asks for lengths is given it."""
    session = ACTIVE.get()
    return value if session is None else session.measured(value)


def sees_through(code: CodeType) -> bool:
    """Does it ask for types, or which of two objects one is? What is followed is not told of that."""
    if "type" in code.co_names:
        return True
    steps = list(dis.get_instructions(code))
    return any(then.opname == "IS_OP" and step.opname != "LOAD_CONST" for step, then in pairwise(steps))
