"""What is asked once a body has ended: its result, its arguments, which Tensors and objects are which."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from ...holding import SETTINGS
from ...tensor import Tensor
from ..guard import is_plain
from ..source import Argument, Attribute, Grad, Held, Object, Result, Source, Sources, is_in_argument
from ..tree import flatten, own_names, parts_of
from . import known, written
from .protocols import Watcher


def handling_of_errors() -> tuple[Any, ...]:
    """Whether NumPy ignores, tells or raises each kind of error."""
    return tuple(np.geterr().values())


def settings(observer: Watcher) -> None:
    """What ops depend on without naming it; the first of them may make it."""
    walk = observer.walk
    for module, setting in SETTINGS:
        of = Object(Held(module))
        if callable(setting):
            walk.place(Result(setting, of), setting(module))
        else:
            walk.place(Attribute(of, setting), vars(module)[setting])
    walk.drain()


def containers(observer: Watcher, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Containers among the arguments hold what they held; what else they have nobody guards."""
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
    """An argument may be a Tensor that is also found outside, or a `grad`."""
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
    """Objects of one class that are compared, or are keys, stay as many."""
    groups: dict[type, list[Source]] = {}
    moving: set[type] = set()  # of which there may be others
    functions: dict[bool, dict[int, Source]] = {True: {}, False: {}}  # are they in arguments?
    for source, value in observer.walk.found():
        if issubclass(type(value), FunctionType):  # no user's __class__ is asked
            functions[is_in_argument(source)][id(value)] = source
        elif type(value) is np.ndarray and observer.walk.changing.asks_identity:
            groups.setdefault(np.ndarray, []).append(source)
            moving.add(np.ndarray)
        elif known.is_heap(type(value)) and not issubclass(type(value), (Tensor, type)):
            groups.setdefault(type(value), []).append(source)
            if id(value) not in observer.walk.fixed:
                moving.add(type(value))
    if functions[True]:
        given = tuple(functions[True].values())
        observer.walk.guard(Sources(given), "other than", frozenset(functions[False]))
        observer.walk.guard(Sources(given), "different", len(given))
    for kind, sources in groups.items():
        if len(sources) > 1 and kind in moving:
            observer.walk.guard(Sources(tuple(sources)), "different", len(sources))


def check_result(observer: Watcher, result: Any) -> None:
    """What comes from outside is that very object in the result; a list would be another one."""
    waiting, seen = [(result, False)], set[int]()
    while waiting:
        part, in_outside = waiting.pop()
        inside = parts_of(part) if id(part) not in seen else None
        seen.add(id(part))
        if isinstance(part, Tensor) and observer.makes(part) and (notes := written.notes_of(part)):
            reason = f"returns a Tensor that it gives the attribute {notes[0]}"
            return observer.impure(reason, line=observer.line)
        is_outside = in_outside or id(part) in observer.walk.given or observer.known(part) is not None
        if inside is not None and not isinstance(part, tuple):
            if is_outside:
                return observer.impure(f"returns a {type(part).__name__} from outside", line=observer.line)
        elif inside is None and not is_plain(part) and not isinstance(part, Tensor):
            if (source := observer.known(part)) is not None:
                observer.walk.is_(source, part)
        waiting += [(each, is_outside) for each in inside or ()]
    return None
