"""Which Tensors among the arguments of a call its body could also find by another way."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextvars import Context
from operator import is_
from types import ModuleType
from typing import Any

from ..autodiff.tape import Leaf, Node, Tape
from ..tensor import Tensor
from .record import Binding, Expected, External, Outside, Pin

#: From so many objects on that lead to Tensors, all of these are taken for such as can be found.
_MOST = 256

#: What is held by a longer chain of objects than this likewise: each link costs a look at all objects.
_DEEPEST = 16

#: A function that is recorded more often than this is not worth a search each time: its Tensors are all taken
#: for such as can be found, and a second call with others runs the body once more.
SEARCHES = 16

#: What may hold a Tensor, but hands it to nobody.
_NOTES = (Tape, Node, Leaf, Binding, Expected, External, Outside, Pin)


def found_elsewhere(
    leaves: Sequence[Any], body: Any, keywords: Mapping[str, Any], searches: int = 0
) -> frozenset[int]:
    """The ids of those Tensors that are not held by running functions and argument lists alone.

    The search goes from each Tensor to the objects that refer to it, strongly or weakly, and on from these.
    Where nothing refers to an object any more, only variables of running functions do: `body` cannot look
    into those. It errs on one side: a Tensor that `body` never asks for may be found.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    body : callable
        What is to be called.
    keywords : mapping
        The keyword arguments.
    searches : int
        How often this was asked for `body` before.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    everything = frozenset(map(id, tensors))
    if searches >= SEARCHES or gc.get_freeze_count():  # what is frozen is not searched
        return everything
    search = _Search([body, *(leaf for leaf in leaves if not isinstance(leaf, Tensor))], keywords)
    return search.run(tensors) if tensors else everything


class _Search:
    """Goes up from all Tensors at once: each look at what refers to some objects goes through all objects.

    Parameters
    ----------
    ends : list
        What the body has: what leads there can be found.
    keywords : mapping
        The keyword arguments.
    """

    def __init__(self, ends: list[Any], keywords: Mapping[str, Any]) -> None:
        self._ends = ends
        self._end_ids = frozenset(map(id, ends))
        self._origins: dict[int, set[int]] = {}  # by id, for what was visited: the Tensors it leads to
        self._next: list[Any] = []
        self._keywords = keywords
        self._lists: list[Any] = [ends, self._next]  # our own; they live as long as their ids matter
        self._found: set[int] = set()

    def run(self, tensors: list[Any]) -> frozenset[int]:
        """The ids of those of `tensors` that can be found."""
        self._lists.append(tensors)
        self._next += tensors
        self._origins.update((id(t), {id(t)}) for t in tensors)
        everything = frozenset(self._origins)
        for _ in range(_DEEPEST):
            if not self._next or len(self._found) == len(everything):
                return frozenset(self._found)
            if len(self._origins) > _MOST + len(everything):
                break
            self._climb()
        return everything

    def _climb(self) -> None:
        front, self._next = self._next, []
        holders = gc.get_referrers(*front)
        self._lists += [self._next, holders]
        ours = {*map(id, self._lists), id(self._lists)}
        here, held = {id(o) for o in front}, set()
        for holder in holders:
            if id(holder) in ours or isinstance(holder, _NOTES):
                continue
            below = here.intersection(map(id, gc.get_referents(holder)))
            held |= below
            self._visit(holder, set().union(*map(self._origins.__getitem__, below)))
        for target in front:
            for reference in weakref.getweakrefs(target):
                self._visit(reference, self._origins[id(target)])
            if type(target) is dict and id(target) not in held and not self._is_keywords(target):
                self._found |= self._origins[id(target)]

    def _is_keywords(self, variables: dict[Any, Any]) -> bool:
        """Is it the keyword arguments on their way? Another that nothing refers to may be of a thread."""
        theirs = self._keywords
        return variables.keys() == theirs.keys() and all(map(is_, variables.values(), theirs.values()))

    def _visit(self, holder: Any, origins: set[int]) -> None:
        if id(holder) in self._end_ids or _is_open(holder):
            self._found |= origins
            return
        known = self._origins.setdefault(id(holder), set())
        if not origins <= known:
            known |= origins
            self._next.append(holder)


def _is_open(holder: Any) -> bool:
    """Can any function get at what `holder` has?"""
    if type(holder) is not dict:
        return isinstance(holder, ModuleType | Context | type | Tensor)
    name = holder.get("__name__")
    return isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is holder
