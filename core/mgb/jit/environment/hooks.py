"""What instrumented code calls. Without an observer in this thread each does the plain thing."""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from ... import device, random
from ...errors import ImpureBodyError
from ...sizes import Size
from ...tensor import Tensor
from ..guard import PLAIN, is_plain
from ..measured import given
from ..source import Attribute, Held, Item, Object
from . import attributes, calls, known, operands, reads
from .observer import HOOKS, WATCHING, Observer

#: Types of values of which there is nothing to know.
_QUIET = frozenset({*PLAIN, Tensor, Size})


def _see(do: Callable[..., Any], *args: Any) -> Any:
    """Have `do(observer, *args)` done; what fails in it is no failure of the body."""
    observer = WATCHING.observer
    if observer is None or observer.busy:  # what the observer itself calls is called once more, natively
        return None
    observer.busy = True
    try:
        return do(observer, *args)
    except ImpureBodyError:
        raise
    except Exception as error:
        observer.impure(f"could not be watched: {type(error).__name__}: {error}")
        return None
    finally:
        observer.busy = False


def begin(observer: Observer, function: Any, args: Any, kwargs: Any) -> None:
    """The call starts."""
    instance = getattr(function, "_method_of", None)  # of a traced method
    if instance is not None:
        function = MethodType(function.__wrapped__, instance())
    calls.called(observer, function, list(args), kwargs)
    for value in (*args, *kwargs.values()):
        observer.arm(value) if not is_plain(value) and not isinstance(value, known.CONTAINERS) else None


#: Settings of mgb that decide which ops a body records.
_SETTINGS = ((device, "_default"), (random, "_generators"))


def end(observer: Observer) -> None:
    """The call is over."""
    for pending in observer.unaccounted.values():
        for _, whole, source, place in pending:
            reads.array_contents(observer, whole, source, place)
    for module, setting in _SETTINGS:
        place, value = Attribute(Object(Held(module)), setting), vars(module)[setting]
        observer.found(place, value)
        reads.container(observer, value)


def enters(observer: Observer, module: Any) -> None:
    """The core calls a Module."""
    calls.module_facts(observer, module)


def calls_next(observer: Observer, function: Any, args: list[Any]) -> None:
    """A function is about to be called by a class of its own."""
    calls.called(observer, function, args, {})


# variables


def name(asked: str) -> None:
    """A global is read next."""
    _see(attributes.name, asked, sys._getframe(1))


def cell(code: CodeType, asked: str) -> None:
    """A variable of a function around the one of `code` is read next."""
    _see(attributes.cell, code, asked)


def wrote(asked: str) -> None:
    """A variable outside is written next."""
    _see(lambda watch: watch.impure(f"writes the variable `{asked}` outside", once=True))


def imports(module: str, level: int, asked: str) -> None:
    """An import follows."""
    _see(_imports, module, level, asked, sys._getframe(1).f_globals)


def _imports(watch: Observer, module: str, level: int, asked: str, space: dict[str, Any]) -> None:
    if level:
        package = (space.get("__package__") or "").split(".")
        base = package[: len(package) - level + 1]
        module = ".".join([*base, module] if module else base)
    there = Held(sys.modules)
    if module not in sys.modules:
        watch.impure(f"imports {module} for the first time", once=True)
        return
    watch.found(Item(Object(there), module), sys.modules[module])
    if asked == "*":
        watch.impure(f"imports all of {module}")
    elif asked:
        attributes.attribute(watch, sys.modules[module], asked)


# values


def made(value: Any) -> Any:
    """A display, a comprehension, an operator or a function made this."""
    if type(value) not in _QUIET:
        observer = WATCHING.observer
        if observer is not None:
            observer.make(value) if not isinstance(value, np.ndarray) or value.base is None else None
    return value


def attribute(thing: Any, asked: str) -> Any:
    """An attribute of this is read next."""
    if type(thing) not in _QUIET:
        _see(attributes.attribute, thing, asked)
    return thing


def measured(thing: Any, asked: str) -> Any:
    """The shape of this is read next; lengths of an array that the call was given are followed."""
    seen = operands.measured(thing)
    return attribute(thing, asked) if seen is thing else seen


def store_attribute(thing: Any, asked: str) -> Any:
    """An attribute of this is written or deleted next."""
    _see(_store_attribute, thing, asked)
    return thing


def _store_attribute(watch: Observer, thing: Any, asked: str) -> None:
    watch.arm(thing)
    raw, _ = known.lookup(type(thing), asked)
    setter = known.lookup(type(thing), "__setattr__")[0]
    if known.is_heap(type(thing)) and not known.is_library(type(thing).__module__):
        attributes.class_fact(watch, type(thing), "__setattr__")
        if raw is known.MISSING and not watch.is_made(type(thing)):
            watch.guard(Object(Held(type(thing))), "lacks", asked)
    if isinstance(setter, FunctionType) and not known.is_trusted(setter.__code__):
        return
    if isinstance(raw, property) or isinstance(getattr(type(raw), "__set__", None), FunctionType):
        attributes.class_fact(watch, type(thing), asked)
    else:
        watch.wrote(thing, f"attribute {asked}")


def item(thing: Any, key: Any) -> Any:
    """``thing[key]``"""
    _see(reads.item, thing, key)
    value = thing[key]
    if type(value) not in _QUIET:
        _see(_got, thing, key, value)
    return value


def _got(watch: Observer, thing: Any, key: Any, value: Any) -> None:
    if isinstance(key, slice):
        watch.make(value) if isinstance(value, (list, bytearray)) else None
    elif watch.is_made(thing):
        watch.found(None, value)


def store_item(thing: Any) -> Any:
    """An element of this is written or deleted next."""
    _see(_store_item, thing)
    return thing


def _store_item(watch: Observer, thing: Any) -> None:
    setter, _ = known.lookup(type(thing), "__setitem__")
    if isinstance(setter, FunctionType) and not known.is_trusted(setter.__code__):
        watch.guard_kind(thing)
        attributes.class_fact(watch, type(thing), "__setitem__")
        watch.arm(thing)
    else:
        watch.wrote(thing, "an element")


def contains(key: Any, thing: Any) -> bool:
    """``key in thing``"""
    _see(reads.contains, key, thing)
    return key in thing


def operand(value: Any, *methods: str) -> Any:
    """An operator takes this next, which may call these methods of it."""
    if type(value) not in _QUIET:
        _see(_operand, value, methods)
    return value


def _operand(watch: Observer, value: Any, methods: tuple[str, ...]) -> None:
    kind = type(value)
    if known.is_heap(kind):
        watch.guard_kind(value)
        for asked in methods:
            attributes.class_fact(watch, kind, asked)
    reads.container(watch, value, reads.DEPTH)


def augmented(operation: str, thing: Any, value: Any) -> Any:
    """``thing += value`` and such; gives what it is bound to."""
    if type(thing) not in _QUIET:
        _see(_augmented, thing, operation)
    return made(getattr(operator, operation)(thing, value))


def augmented_variable(asked: str, operation: str, thing: Any, value: Any) -> Any:
    """The same of a variable outside, which is written where another object comes of it."""
    result = augmented(operation, thing, value)
    if result is not thing:
        wrote(asked)
    return result


#: What `+=` and such change in place.
_CHANGED = (list, dict, set, bytearray, collections.deque, np.ndarray)


def _augmented(watch: Observer, thing: Any, operation: str) -> None:
    _operand(watch, thing, (f"__{operation}__", f"__{operation[1:]}__"))
    if isinstance(thing, _CHANGED):
        watch.wrote(thing, "the contents")
    watch.arm(thing)


def augmented_attribute(thing: Any, asked: str) -> Any:
    """``thing.asked += value`` follows."""
    attribute(thing, asked)
    value = vars(thing).get(asked) if hasattr(thing, "__dict__") else None
    if isinstance(value, Tensor):
        return thing  # it takes a new value, and stays where it is
    store_attribute(thing, asked)
    _see(_augmented_part, [value])
    return thing


def augmented_item(thing: Any) -> Any:
    """``thing[...] += value`` follows."""
    if isinstance(thing, (list, dict, np.ndarray)):
        _see(lambda watch: reads.container(watch, thing))
        if hasattr(type(thing), "__missing__"):
            _see(lambda watch: watch.arm(known.lookup(type(thing), "__missing__")[0]))
            _see(lambda watch: watch.arm(getattr(thing, "default_factory", None)))
        if not isinstance(thing, np.ndarray):
            _see(_augmented_part, thing.values() if isinstance(thing, dict) else thing)
    else:
        _see(lambda watch: watch.arm(thing))
    return store_item(thing)


def _augmented_part(watch: Observer, values: Any) -> None:
    for value in values:
        if isinstance(value, _CHANGED):
            watch.wrote(value, "the contents")


def truth(value: Any) -> Any:
    """It is asked next whether this is true."""
    if type(value) not in _QUIET:
        _see(_truth, value)
    return value


def _truth(watch: Observer, value: Any) -> None:
    kind = type(value)
    if isinstance(value, Tensor):
        return
    if is_plain(value) or isinstance(value, (FunctionType, type, MethodType)):
        return
    if not watch.is_made(value) and id(value) not in watch._given:
        watch.guard_kind(value)
    if isinstance(value, np.ndarray):
        reads.array(watch, value)
    elif known.is_heap(kind) and not isinstance(value, known.CONTAINERS):
        for asked in ("__bool__", "__len__"):
            attributes.class_fact(watch, kind, asked)
        watch.arm(value)
    elif isinstance(value, known.CONTAINERS) and hasattr(kind, "__len__"):
        reads.length(watch, value)


def identity(value: Any) -> Any:
    """It is asked next which object this is."""
    if type(value) not in _QUIET:
        _see(_identity, value)
    return value


def identical(left: Any, right: Any) -> bool:
    """``left is right``"""
    _see(_identical, left, right)
    return left is right


def _identical(watch: Observer, left: Any, right: Any) -> None:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        one, two = watch.known(left), watch.known(right)
        if one is not None and two is not None and left is not right:
            watch.guard(one, "apart", two)
        return
    for value in (left, right):
        if type(value) not in _QUIET:
            _identity(watch, value)


def _identity(watch: Observer, value: Any) -> None:
    if watch.is_argument(value):
        watch.impure("asks which object a container among the arguments is")
    source = watch.source_of(value)
    if source is not None and not isinstance(source, Object):
        watch.guard(source, "is", Held(value))


def kind(value: Any) -> Any:
    """It is asked next whether this is None, True or False."""
    if type(value) not in _QUIET and not isinstance(value, Tensor):
        _see(lambda watch: watch.guard_kind(value))
    return value


def compared(value: Any) -> Any:
    """What a comparison gave."""
    return value if type(value) is bool else made(value)


def formatted(value: Any) -> Any:
    """A text is made of this next."""
    if type(value) not in PLAIN:
        _see(_formatted, value)
    return value


def _formatted(watch: Observer, value: Any) -> None:
    made: Any = type(value)
    if made.__repr__ is object.__repr__ and made.__str__ is object.__str__:
        watch.impure(f"makes a text of a {type(value).__name__}, which says its address")
    if isinstance(value, np.ndarray):
        watch.impure("makes a text of an array, which NumPy's print options decide")
    reads.container(watch, value, reads.DEPTH)
    watch.arm(value)


# loops


def iterated(value: Any, depth: int) -> Any:
    """A loop goes over this next; its target unpacks `depth` levels."""
    _see(reads.iterated, value, depth + 1)
    if depth and WATCHING.observer is not None and not isinstance(value, known.CONTAINERS):
        return map(functools.partial(_each, depth), value)
    return value


def _each(depth: int, value: Any) -> Any:
    return unpacked(value, depth)


def unpacked(value: Any, depth: int) -> Any:
    """Next, `depth` levels of it are unpacked."""
    if type(value) is not Tensor:
        _see(reads.iterated, value, depth)
    return value


def awaited(value: Any) -> Any:
    """It is waited for."""
    _see(lambda watch: None if watch.is_made(value) else watch.impure("waits for something outside"))
    return value


# calls


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What makes the call when it is called itself, in the frame of the user."""
    observer = WATCHING.observer
    if observer is None or observer.busy:
        return functools.partial(function, *args, **kwargs)
    frame = id(sys._getframe(1))
    observer.pending.pop(frame, None)
    if _is_plain_class(function):
        made = _see(_construct, function, args, kwargs, frame)
        if made is not None:
            return made
    then = _see(calls.called, function, list(args), kwargs)
    if then is not None:
        observer.pending[frame] = then
    args, kwargs = operands.given_to(function, args, kwargs)
    return functools.partial(function, *args, **kwargs)


def called(value: Any) -> Any:
    """The result of the call."""
    observer = WATCHING.observer
    value = given(value)
    if observer is not None:
        then = observer.pending.pop(id(sys._getframe(1)), None)
        if type(then) is _New:
            return then.finish(value)
        if (then is not None and type(value) not in _QUIET) or (then is not None and is_plain(value)):
            _see(lambda watch: then(value))
    return int if value is Size else value  # as everything that is asked of a length says


def _is_plain_class(function: Any) -> bool:
    """A user's class whose instances are made and then given to `__init__`, as `type` does it."""
    return (
        isinstance(function, type)
        and type(function).__call__ is type.__call__
        and isinstance(known.lookup(function, "__init__")[0], FunctionType)
        and known.is_heap(function)
        and not known.is_trusted(known.lookup(function, "__init__")[0].__code__)
    )


class _New:
    """An instance that is being made."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def finish(self, result: Any) -> Any:
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
        return self.value


def _construct(watch: Observer, kind: type, args: Any, kwargs: Any, frame: int) -> Any:
    """What calls `__init__` with the new instance, which is known before it runs."""
    calls.called(watch, kind, list(args), kwargs)
    maker: Any = kind.__new__
    if isinstance(maker, FunctionType) and not known.is_trusted(maker.__code__):
        return None
    initial: Any = known.lookup(kind, "__init__")[0]
    value = maker(kind, *args, **kwargs) if maker is not object.__new__ else maker(kind)
    watch.make(value)
    watch.pending[frame] = _New(value)
    calls.called(watch, initial, [value, *args], kwargs)
    return functools.partial(initial, value, *args, **kwargs)


def raised(value: Any) -> Any:
    """It is raised next."""
    if isinstance(value, BaseException):
        _see(lambda watch: watch.wrote(value, "the traceback"))
    elif isinstance(value, type):
        _see(lambda watch: calls.called(watch, value, [], {}))
    return value


def entered(value: Any) -> Any:
    """A `with` statement enters this next."""
    _see(_entered, value)
    return value


def _entered(watch: Observer, value: Any) -> None:
    kind = type(value)
    enter, _ = known.lookup(kind, "__enter__")
    if not isinstance(enter, FunctionType):
        watch.impure(f"enters a {kind.__module__}.{kind.__qualname__}")
        return
    if not watch.is_made(value):
        watch.guard_kind(value)
    for asked in ("__enter__", "__exit__"):
        attributes.class_fact(watch, kind, asked)
    watch.arm(value)


def base(value: Any) -> Any:
    """A class is derived from this."""
    _see(lambda watch: watch.arm(value))
    return value


def matched(value: Any, *names: str) -> Any:
    """Patterns look at this next, and at these attributes."""
    if type(value) not in _QUIET:
        _see(_matched, value, names)
    return value


def _matched(watch: Observer, value: Any, names: tuple[str, ...]) -> None:
    if not watch.is_made(value):
        watch.guard_kind(value)
    if hasattr(type(value), "__match_args__") and known.is_heap(type(value)):
        attributes.attribute(watch, type(value), "__match_args__")
    for asked in (*names, *getattr(type(value), "__match_args__", ())):
        attributes.attribute(watch, value, asked)
        watch.guard_kind(value)
        part = getattr(value, "__dict__", {}).get(asked)
        if part is not None:
            _matched(watch, part, names) if known.is_heap(type(part)) else reads.container(
                watch, part, reads.DEPTH
            )
    if isinstance(value, known.CONTAINERS):
        reads.container(watch, value, reads.DEPTH)


def dotted(path: str) -> None:
    """A pattern names this."""
    _see(_dotted, path, sys._getframe(1))


def _dotted(watch: Observer, path: str, frame: Any) -> None:
    first, *rest = path.split(".")
    if not path:
        watch.impure("compares with what a local variable names in a pattern")
        return
    attributes.name(watch, first, frame)
    value = frame.f_globals.get(first, vars(builtins).get(first, known.MISSING))
    for asked in rest:
        attributes.attribute(watch, value, asked)
        value = getattr(value, asked, known.MISSING)


_HOOKS = (
    name,
    cell,
    wrote,
    imports,
    made,
    attribute,
    measured,
    store_attribute,
    item,
    store_item,
    contains,
    operand,
    augmented,
    augmented_variable,
    augmented_attribute,
    augmented_item,
    truth,
    identity,
    identical,
    kind,
    compared,
    formatted,
    iterated,
    unpacked,
    awaited,
    call,
    called,
    raised,
    entered,
    base,
    matched,
    dotted,
    begin,
    end,
    enters,
)
HOOKS.update({hook.__name__: hook for hook in _HOOKS}, slice=slice, calls=calls_next)
