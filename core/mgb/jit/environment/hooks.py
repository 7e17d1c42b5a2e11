"""What instrumented code calls. Without an observer in this thread each does the plain thing."""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from ...scalars import known as fixed
from ...sizes import Size
from ...tensor import Tensor
from .. import numbers
from ..guard import PLAIN, is_plain
from ..measured import given
from ..source import Held, Item, Object
from . import attributes, calls, followed, known, operands, reads
from .builtin_calls import text
from .watch import WATCHING, Watch

#: The hooks by their names in `transform`.
HOOKS: dict[str, Callable[..., Any]] = {"slice": slice}

#: Types of values of which there is nothing to know.
_QUIET = frozenset({*PLAIN, Tensor, *known.FOLLOWED})


def _see(do: Callable[..., Any], *args: Any) -> Any:
    watch = WATCHING.watch
    return watch.see(do, *args) if watch is not None else None


def _hook(hook: Callable[..., Any]) -> Callable[..., Any]:
    HOOKS[hook.__name__] = hook
    return hook


def _told(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make hooks that are given a value, have the function look at it, and give it back."""

    def decorate(look: Callable[..., None]) -> Callable[..., None]:
        def hook(value: Any, *args: Any) -> Any:
            if type(value) not in _QUIET:
                _see(look, value, *args)
            return value

        HOOKS.update(dict.fromkeys(names, hook))
        return look

    return decorate


# variables


@_hook
def name(asked: str) -> None:
    """A global is read next."""
    _see(_reading, attributes.name, asked, asked, sys._getframe(1))


@_hook
def cell(code: CodeType, asked: str) -> None:
    """A variable of a function around the one of `code` is read next."""
    _see(_reading, attributes.cell, asked, code, asked)


def _reading(watch: Watch, read: Callable[..., Any], asked: Any, *args: Any) -> None:
    """What is read next may be a number that is followed: see `number`."""
    watch.expect_no_number()
    read(watch, *args)
    watch.expect_number(asked)


@_hook
def number(value: Any) -> Any:
    """What was just read; what stands for it, if it is a number that is followed."""
    watch = WATCHING.watch
    return value if watch is None or watch.busy else watch.number(value)


@_hook
def stored(value: Any) -> Any:
    """It is stored next, where it may stay: no number in it is followed any more."""
    watch = WATCHING.watch
    return value if watch is None or watch.busy or not watch.numbers else numbers.all_fixed(value)


@_hook
def wrote(asked: str) -> None:
    """A variable outside is written next."""
    _see(Watch.impure, f"writes the variable `{asked}` outside", None, True)


@_hook
def imports(module: str, level: int, asked: str) -> None:
    """An import follows."""
    _see(_imports, module, level, asked, sys._getframe(1).f_globals)


def _imports(watch: Watch, module: str, level: int, asked: str, space: dict[str, Any]) -> None:
    if level:
        package = (space.get("__package__") or "").split(".")
        base = package[: len(package) - level + 1]
        module = ".".join([*base, module] if module else base)
    if module not in sys.modules:
        watch.impure(f"imports {module} for the first time", once=True)
        return
    watch.found(Item(Object(Held(sys.modules)), module), sys.modules[module])
    if asked == "*":
        watch.impure(f"imports all of {module}")
    elif asked:
        attributes.attribute(watch, sys.modules[module], asked)


# values


@_told("made")
def _make(watch: Watch, value: Any) -> None:
    """A display, a comprehension, an operator or a function made this."""
    if not isinstance(value, np.ndarray) or value.base is None:
        watch.make(value)


made = HOOKS["made"]


@_told("attribute")
def _attribute(watch: Watch, thing: Any, asked: str) -> None:
    """An attribute of this is read next."""
    _reading(watch, attributes.attribute, asked, thing, asked)


@_hook
def measured(thing: Any, asked: str) -> Any:
    """The shape of this is read next; lengths of an array that the call was given are followed."""
    seen = operands.measured(thing)
    return HOOKS["attribute"](thing, asked) if seen is thing else seen


@_told("store_attribute")
def _store_attribute(watch: Watch, thing: Any, asked: str) -> None:
    """An attribute of this is written or deleted next."""
    watch.arm(thing)
    kind = type(thing)
    raw, _ = known.lookup(kind, asked)
    if known.is_heap(kind) and not known.is_library(kind.__module__):
        attributes.class_fact(watch, kind, "__setattr__")
        if raw is known.MISSING:
            attributes.lacks(watch, kind, asked)
    if known.is_users(known.lookup(kind, "__setattr__")[0]):
        return
    if isinstance(raw, property) or isinstance(getattr(type(raw), "__set__", None), FunctionType):
        attributes.class_fact(watch, kind, asked)
    else:
        watch.wrote(thing, f"attribute {asked}")


@_hook
def item(thing: Any, key: Any) -> Any:
    """``thing[key]``"""
    key = stored(key)
    _see(_reading, reads.item, key, thing, key)
    value = thing[key]
    if type(value) not in _QUIET:
        _see(_got, thing, key, value)
    return number(value)


def _got(watch: Watch, thing: Any, key: Any, value: Any) -> None:
    if isinstance(key, slice):
        watch.make(value) if isinstance(value, (list, bytearray)) else None
    elif watch.is_made(thing):
        watch.found(None, value)


@_told("store_item")
def _store_item(watch: Watch, thing: Any) -> None:
    """An element of this is written or deleted next."""
    if known.is_users(known.lookup(type(thing), "__setitem__")[0]):
        attributes.special(watch, thing, "__setitem__")
    else:
        watch.wrote(thing, "an element")


@_hook
def contains(key: Any, thing: Any) -> bool:
    """``key in thing``"""
    _see(reads.contains, key, thing)
    return key in thing


@_told("operand")
def _operand(watch: Watch, value: Any, *methods: str) -> None:
    """An operator takes this next, which may call these methods of it."""
    attributes.special(watch, value, *methods)
    reads.container(watch, value, reads.DEPTH)


#: What `+=` and such change in place.
_CHANGED = (list, dict, set, bytearray, collections.deque, np.ndarray)


@_hook
def augmented(operation: str, thing: Any, value: Any) -> Any:
    """``thing += value`` and such; gives what it is bound to."""
    if type(thing) not in _QUIET:
        _see(_augmented, thing, operation)
        value = stored(value) if isinstance(thing, _CHANGED) else value
    return made(getattr(operator, operation)(thing, value))


def _augmented(watch: Watch, thing: Any, operation: str) -> None:
    _operand(watch, thing, f"__{operation}__", f"__{operation[1:]}__")
    _changed(watch, [thing])


def _changed(watch: Watch, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, _CHANGED):
            watch.wrote(value, "the contents")


@_hook
def augmented_variable(asked: str, operation: str, thing: Any, value: Any) -> Any:
    """The same of a variable outside, which is written where another object comes of it."""
    result = augmented(operation, thing, value)
    if result is not thing:
        wrote(asked)
    return stored(result)


@_told("augmented_attribute")
def _augmented_attribute(watch: Watch, thing: Any, asked: str) -> None:
    """``thing.asked += value`` follows."""
    attributes.attribute(watch, thing, asked)
    value = attributes.namespace(thing).get(asked)
    if not isinstance(value, Tensor):  # which takes a new value, and stays where it is
        _store_attribute(watch, thing, asked)
        _changed(watch, [value])


@_told("augmented_item")
def _augmented_item(watch: Watch, thing: Any) -> None:
    """``thing[...] += value`` follows."""
    if isinstance(thing, (list, dict, np.ndarray)):
        reads.container(watch, thing)
        watch.arm(known.lookup(type(thing), "__missing__")[0])
        watch.arm(getattr(thing, "default_factory", None))
        if not isinstance(thing, np.ndarray):
            _changed(watch, thing.values() if isinstance(thing, dict) else thing)
    else:
        watch.arm(thing)
    _store_item(watch, thing)


@_told("truth")
def _truth(watch: Watch, value: Any) -> None:
    """It is asked next whether this is true."""
    if is_plain(value) or isinstance(value, (Tensor, FunctionType, type, MethodType)):
        return
    watch.kind(value)
    if isinstance(value, np.ndarray):
        reads.array(watch, value)
    elif isinstance(value, known.CONTAINERS):
        reads.length(watch, value)
    else:
        attributes.special(watch, value, "__bool__", "__len__")


@_hook
def identical(left: Any, right: Any) -> bool:
    """``left is right``"""
    left, right = fixed(left), fixed(right)
    _see(_identical, left, right)
    return left is right


def _identical(watch: Watch, left: Any, right: Any) -> None:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        one, two = watch.known(left), watch.known(right)
        if one is not None and two is not None and left is not right:
            watch.guard(one, "apart", two)
        return
    for value in (left, right):
        if type(value) not in _QUIET:
            _identity(watch, value)


@_told("identity")
def _identity(watch: Watch, value: Any) -> None:
    """It is asked next which object this is."""
    if watch.is_argument(value):
        watch.impure("asks which object a container among the arguments is")
    source = watch.source_of(value)
    if source is not None and not isinstance(source, Object):
        watch.guard(source, "is", Held(value))


#: It is asked next whether this is None, True or False.
_told("kind")(Watch.kind)


@_hook
def compared(value: Any) -> Any:
    """What a comparison gave."""
    return value if type(value) is bool else made(value)


@_told("formatted")
def _formatted(watch: Watch, value: Any) -> None:
    """A text is made of this next."""
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        watch.impure(f"makes a text of a {kind.__name__}, which says its address")
    text(watch, [value])
    reads.container(watch, value, reads.DEPTH)
    watch.arm(value)


# loops


@_hook
def iterated(value: Any, depth: int) -> Any:
    """A loop goes over this next; its target unpacks `depth` levels."""
    _see(reads.iterated, value, depth + 1)
    if depth and WATCHING.watch is not None and not isinstance(value, known.CONTAINERS):
        return map(functools.partial(_each, depth), value)
    return value


def _each(depth: int, value: Any) -> Any:
    return HOOKS["unpacked"](value, depth)


#: Next, so many levels of it are unpacked.
_told("unpacked")(reads.iterated)


@_told("awaited")
def _awaited(watch: Watch, value: Any) -> None:
    """It is waited for."""
    if not watch.is_made(value):
        watch.impure("waits for something outside")


# calls


@_hook
def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What makes the call when it is called itself, in the frame of the user."""
    watch = WATCHING.watch
    if watch is None or watch.busy:
        return functools.partial(function, *args, **kwargs)
    frame = id(sys._getframe(1))
    watch.pending.pop(frame, None)
    if watch.numbers:
        computed = numbers.computed_by(function, args, kwargs)
        if computed is not None:
            return computed
        if not followed.takes(watch, function):
            args, kwargs = numbers.all_fixed(args), numbers.all_fixed(kwargs)
    if followed.is_plain_class(function):
        made = watch.see(_construct, function, args, kwargs, frame)
        if made is not None:
            return made
    watch.expect_no_number()
    then = watch.see(calls.called, function, list(args), kwargs)
    watch.expect_number(followed.asked_by(function, args))
    if then is not None:
        watch.pending[frame] = then
    args, kwargs = operands.given_to(function, args, kwargs)
    return functools.partial(function, *args, **kwargs)


@_hook
def called(value: Any) -> Any:
    """The result of the call."""
    value = given(value)
    watch = WATCHING.watch
    then = watch.pending.pop(id(sys._getframe(1)), None) if watch is not None else None
    if type(then) is _New:
        return then.finish(value)
    if then is not None and type(value) is not Tensor and type(value) not in known.FOLLOWED:
        _see(lambda watch: then(value))
    return int if value is Size else number(value)  # as everything that is asked of a length says


class _New:
    """An instance that is being made."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def finish(self, result: Any) -> Any:
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
        return self.value


def _construct(watch: Watch, kind: type, args: Any, kwargs: Any, frame: int) -> Any:
    """What calls `__init__` with the new instance, which is known before it runs."""
    calls.called(watch, kind, list(args), kwargs)
    maker: Any = kind.__new__
    if known.is_users(maker):
        return None
    initial: Any = known.lookup(kind, "__init__")[0]
    value = maker(kind, *args, **kwargs) if maker is not object.__new__ else maker(kind)
    watch.make(value)
    watch.pending[frame] = _New(value)
    calls.called(watch, initial, [value, *args], kwargs)
    return functools.partial(initial, value, *args, **kwargs)


@_told("raised")
def _raised(watch: Watch, value: Any) -> None:
    """It is raised next."""
    if isinstance(value, BaseException):
        watch.wrote(value, "the traceback")
    elif isinstance(value, type):
        calls.called(watch, value, [], {})


@_told("entered")
def _entered(watch: Watch, value: Any) -> None:
    """A `with` statement enters this next."""
    kind = type(value)
    if isinstance(known.lookup(kind, "__enter__")[0], FunctionType):
        attributes.special(watch, value, "__enter__", "__exit__")
    else:
        watch.impure(f"enters a {kind.__module__}.{kind.__qualname__}")


#: A class is derived from this.
_told("base")(Watch.arm)


@_told("matched")
def _matched(watch: Watch, value: Any, *names: str) -> None:
    """Patterns look at this next, and at these attributes."""
    kind: Any = type(value)
    watch.kind(value)
    if hasattr(kind, "__match_args__") and known.is_heap(kind):
        attributes.attribute(watch, kind, "__match_args__")
    for asked in (*names, *getattr(kind, "__match_args__", ())):
        attributes.attribute(watch, value, asked)
        part = attributes.namespace(value).get(asked)
        if known.is_heap(type(part)):
            _matched(watch, part, *names)
        else:
            reads.container(watch, part, reads.DEPTH)
    if isinstance(value, known.CONTAINERS):
        reads.container(watch, value, reads.DEPTH)


@_hook
def dotted(path: str) -> None:
    """A pattern names this."""
    _see(_dotted, path, sys._getframe(1))


def _dotted(watch: Watch, path: str, frame: Any) -> None:
    first, *rest = path.split(".")
    if not path:
        watch.impure("compares with what a local variable names in a pattern")
        return
    attributes.name(watch, first, frame)
    value = frame.f_globals.get(first, vars(builtins).get(first, known.MISSING))
    for asked in rest:
        attributes.attribute(watch, value, asked)
        value = getattr(value, asked, known.MISSING)
