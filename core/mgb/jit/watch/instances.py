"""Objects of classes that are written in Python, and those in C that hide what they hold."""

from __future__ import annotations

import decimal
import enum
import logging
from types import FunctionType
from typing import Any

from ...tensor.holding import Holder
from ..source import Attribute, Call, Object, ObjectRef, Result, Source, is_in_argument, lookup
from . import classes, known, pure
from .epochs import Unchanged
from .protocols import Walk

#: Of these what an object is follows from its text, whatever class it has.
_NATIVE = (int, float, str, bytes, complex)


def opaque(walk: Walk, source: Source, value: Any) -> None:
    """Report an object whose state no guard can compare."""
    kind = type(value)
    why = "an iterator from outside" if hasattr(kind, "__next__") else "which hides what stands in it"
    walk.report(f"can reach {source}, a {kind.__module__}.{kind.__qualname__}, {why}")


def context_of_decimals() -> tuple[Any, ...]:
    """Return the context of Decimal operations, and the signals raised so far."""
    context = decimal.getcontext()
    numbers = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return (*numbers, *context.flags.values(), *context.traps.values())


def decimals(walk: Walk) -> None:
    """Guard the context of decimals, which may be computed with."""
    walk.guard(Call(Object(ObjectRef(context_of_decimals))), "same", context_of_decimals())


def enumerated(walk: Walk, source: Source, value: enum.Enum) -> None:
    walk.is_(source, value)
    here = Object(ObjectRef(value))
    walk.visit(Object(ObjectRef(type(value))), type(value))
    walk.visit(Attribute(here, "_value_"), value._value_)
    walk.bear(here, value)


def instance(walk: Walk, source: Source, value: Any) -> None:
    """Visit an object of a class that is written in Python."""
    kind = type(value)
    top = known.top_of(kind)
    if issubclass(kind, Holder) and known.is_trusted_holder(value):
        return holder(walk, source, value)
    if top == "mgb":
        walk.is_(source, value)
        return walk.bear(source, value)
    if issubclass(kind, logging.Logger):
        walk.is_(source, value)
        return walk.bear(Object(ObjectRef(value)), value)
    walk.guard(source, "type", ObjectRef(kind))
    if isinstance(lookup(kind, "__getattribute__")[0], FunctionType):
        walk.report(f"can reach {source}, a {kind.__name__}, whose __getattribute__ is written in Python")
        return None
    if known.reads_elsewhere(kind):
        return opaque(walk, source, value)
    base = next(base for base in kind.__mro__ if not known.is_heap(base))
    if not issubclass(base, known.UNCHANGING) and base is not object:
        return opaque(walk, source, value)
    if not issubclass(base, _NATIVE) and base is not object:
        walk.is_(source, value)
        if base is decimal.Decimal:
            decimals(walk)
    if any(map(_has_trusted_methods, kind.__mro__)):
        walk.loaded.update(known.attributes_of(value))  # by code that is not watched
        for name, part in known.attributes_of(value).items():
            walk.visit(Attribute(source, name), part)
    if issubclass(base, _NATIVE):
        walk.guard(Result(classes.native_of, source), "same", classes.native_of(value))
    walk.visit(Object(ObjectRef(kind)), kind)
    return walk.bear(source, value)


def _has_trusted_methods(base: type) -> bool:
    """Return whether code that is not watched reads its objects."""
    if not known.is_heap(base) or pure.is_users_class(base):
        return False
    return known.top_of(base) == "numpy" or known.is_pure_library(base)


def holder(walk: Walk, source: Source, value: Any) -> None:
    """Visit a layer or an optimizer: the core knows what decides what it does; its class may be a user's."""
    kind = type(value)
    if not is_in_argument(source):
        walk.is_(source, value)
        source = Object(ObjectRef(value))
    walk.guard(source, "type", ObjectRef(kind))
    walk.guard(Object(ObjectRef(kind)), "meets", Unchanged(kind, classes.every_method))
    for _, part in value.__parts__():
        walk.visit(Object(ObjectRef(part)), part)
    if known.top_of(kind) != "mgb":
        walk.visit(Object(ObjectRef(kind)), kind)
    walk.bear(source, value)
