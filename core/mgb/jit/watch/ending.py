"""Checks after a body: its result, its arguments, the identity of Tensors and objects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...tensor import Tensor
from ...tensor.holding import SETTINGS
from ..guard import is_plain
from ..source import Argument, Attribute, Grad, Object, ObjectRef, Result, Source, Sources, is_in_argument
from ..tree import flatten, own_names, parts_of
from . import known, written
from .protocols import Watcher

#: Of what is compared by ``is``, those of which something else guards which one it is, where that matters.
_GUARDED = (Tensor, np.ndarray, ModuleType, type)


def handling_of_errors() -> tuple[Any, ...]:
    """Return how NumPy handles each kind of floating-point error."""
    return tuple(np.geterr().values())


def settings(observer: Watcher) -> None:
    """Visit the settings that ops depend on without naming them; the first op may create one."""
    walk = observer.walk
    for module, setting in SETTINGS:
        of = Object(ObjectRef(module))
        if callable(setting):
            walk.visit(Result(setting, of), setting(module))
        else:
            walk.visit(Attribute(of, setting), vars(module)[setting])
    walk.drain()


def containers(observer: Watcher, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Guard what containers among the arguments held; nothing else in them is guarded."""
    leaves, arrangement = flatten((args, dict(kwargs)))
    before, arranged = observer.begun
    if arrangement != arranged or any(a is not b for a, b in zip(leaves, before, strict=True)):
        line = observer.walk.stored.get("", observer.line)
        observer.impure("writes an element of an argument", None, True, line, writes=True)
    waiting: list[Any] = [*args, *kwargs.values()]
    while waiting:
        part = waiting.pop()
        extra = own_names(part) if id(part) in observer.walk.given else ()
        if extra and (observer.walk.is_wild or observer.walk.names.intersection(extra)):
            kind = type(part).__name__
            observer.impure(
                f"reads {extra[0]} of a {kind} among the arguments, which is none of its elements",
                line=observer.line,
            )
        waiting += parts_of(part) or ()


def tensors(observer: Watcher) -> None:
    """Guard arguments that are Tensors which are also found outside, or a `grad`."""
    walk, reads_grads = observer.walk, "grad" in observer.walk.loaded or observer.walk.is_wild
    found = [(source, value) for source, value in walk.outside() if issubclass(type(value), Tensor)]
    arguments = [n for n, leaf in enumerate(observer.leaves) if isinstance(leaf, Tensor)]
    for number in arguments:
        if id(observer.leaves[number]) in walk.also:
            walk.is_(Argument(number), observer.leaves[number])
    others = tuple(Argument(n) for n in arguments if id(observer.leaves[n]) not in walk.also)
    staying = [tensor for source, tensor in found if not isinstance(source, Grad)]
    fixed = frozenset(id(tensor) for tensor in staying if walk.changing.path_to(tensor) is None)
    moving = tuple(source for source, _ in walk.changing.tensors.values())
    if fixed and (others or moving):
        walk.guard(Sources((*others, *moving)), "other than", fixed)
    if len(moving) > 1:
        walk.guard(Sources(moving), "different", len(moving))
    for source, tensor in found:
        if reads_grads if isinstance(source, Grad) else walk.changing.path_to(tensor) is not None:
            for other in others:
                walk.guard(other, "apart", source)


def objects(observer: Watcher) -> None:
    """Guard that objects of one class that are compared, or are keys, stay as many."""
    walk = observer.walk
    groups: dict[type, list[tuple[Source, Any]]] = {}
    functions: dict[bool, dict[int, Source]] = {True: {}, False: {}}  # are they in arguments?
    given = frozenset(walk.given.values())
    for source, value in walk.found():
        kind = type(value)  # no user's __class__ is asked
        if issubclass(kind, FunctionType):
            functions[is_in_argument(source)][id(value)] = source
            continue
        by_is = walk.asks_identity and not is_plain(value) and not issubclass(kind, _GUARDED)
        if by_is and kind in given and getattr(source, "name", None) in walk.identified:
            walk.report(f"may compare a {kind.__name__} among the arguments with {source} by its identity")
        if by_is or _may_be_compared(kind, walk.changing.asks_identity):
            groups.setdefault(kind, []).append((source, value))
    if functions[True]:
        sources = tuple(functions[True].values())
        walk.guard(Sources(sources), "other than", frozenset(functions[False]))
        walk.guard(Sources(sources), "different", len(sources))
    for found in groups.values():
        if len(found) > 1 and any(id(value) not in walk.fixed for _, value in found):
            walk.guard(Sources(tuple([source for source, _ in found])), "different", len(found))


def _may_be_compared(kind: type, asks_identity: bool) -> bool:
    """Return whether it has a hash and an ``==`` by its identity, or such of a user's."""
    if kind is np.ndarray:
        return asks_identity
    return kind is functools.partial or (known.is_heap(kind) and not issubclass(kind, (Tensor, type)))


def check_result(observer: Watcher, result: Any) -> None:
    """Report results that are external objects: a call that skips the body would return another one."""
    waiting, seen = [(result, False)], set[int]()
    spaces = _namespaces(observer)
    while waiting:
        part, in_outside = waiting.pop()
        inside = parts_of(part) if id(part) not in seen else None
        seen.add(id(part))
        if isinstance(part, Tensor) and observer.makes(part) and (notes := written.notes_of(part)):
            reason = f"returns a Tensor that it gives the attribute {notes[0]}"
            return observer.impure(reason, line=observer.line)
        is_outside = in_outside or id(part) in spaces or id(part) in observer.walk.given
        is_outside = is_outside or observer.known(part) is not None
        if inside is not None and not isinstance(part, tuple):
            if is_outside:
                return observer.impure(f"returns a {type(part).__name__} from outside", line=observer.line)
        elif inside is None and not is_plain(part) and not isinstance(part, Tensor):
            if (source := observer.known(part)) is not None:
                observer.walk.is_(source, part)
        waiting += [(each, is_outside) for each in inside or ()]
    return None


def _namespaces(observer: Watcher) -> set[int]:
    """Return the ids of what `vars` gives of things outside, where code may have asked for that."""
    walk = observer.walk
    if not walk.is_wild and walk.loaded.isdisjoint(("vars", "__dict__")):
        return set()
    return {id(getattr(thing, "__dict__", None)) for thing, _ in walk.spaces} - {id(None)}
