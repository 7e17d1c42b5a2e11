"""What instrumented code calls. Without an observer in this thread each does the plain thing."""

from __future__ import annotations

import contextlib
import functools
import sys
from _thread import LockType, RLock
from collections.abc import Callable
from types import FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from ...scalars import fixed
from ...tensor import Tensor
from .. import numbers
from ..guard import _SINGLE, PLAIN, is_plain
from ..measured import given
from ..source import Held, Item, Object
from . import attributes, c_calls, calls, known, operands, reads
from .builtin_calls import text
from .reach import calls_no_user
from .value_hooks import HOOKS, QUIET, hook, number, reading, see, stored, told
from .watch import WATCHING, Watch

__all__ = ["HOOKS"]


@hook
def begins() -> None:
    """A function of the user's begins."""
    watch = WATCHING.watch
    if watch is None:
        return
    watch.net.goes_on()
    if watch.beginning:
        _begin_instance(watch, sys._getframe(1))


def _begin_instance(watch: Watch, frame: FrameType) -> None:
    """A function that was assigned as ``__init__``, under whatever name, is given an instance that is new."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    if type(first) is watch.beginning[-1]:
        watch.beginning.pop()
        watch.make(first)


# variables


@hook
def name(asked: str, *within: FunctionType) -> None:
    """A global is read next, or a variable of a function around: the function `within` has that one alone."""
    read = attributes.cell if within else attributes.name
    see(reading, read, asked, asked, *(within or (sys._getframe(1),)))


@hook
def wrote(asked: str, *within: FunctionType) -> None:
    """A global variable is written next, or one of a function around."""
    see(attributes.wrote, sys._getframe(1).f_globals, asked, *within)


@hook
def imports(module: str, level: int, asked: str) -> None:
    """An import follows."""
    see(_imports, module, level, asked, sys._getframe(1).f_globals)


def _imports(watch: Watch, module: str, level: int, asked: str, space: dict[str, Any]) -> None:
    if level:
        package = (space.get("__package__") or "").split(".")
        base = package[: len(package) - level + 1]
        module = ".".join([*base, module] if module else base)
    if module not in sys.modules:
        watch.guard(Object(Held(sys.modules)), "without", module)
        watch.impure(f"imports {module} for the first time", once=True)
        return
    watch.found(Item(Object(Held(sys.modules)), module), sys.modules[module])
    if asked == "*":
        watch.impure(f"imports all of {module}")
    elif asked:
        attributes.attribute(watch, sys.modules[module], asked)


@told("truth")
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
        reads.special(watch, value, "__bool__", "__len__")


@hook
def identical(left: Any, right: Any) -> bool:
    """``left is right``"""
    if type(left) not in _SINGLE and type(right) not in _SINGLE:
        left, right = (v.fixed() if type(v) in known.FOLLOWED else v for v in (left, right))
    see(_identical, left, right)
    return left is right


def _identical(watch: Watch, left: Any, right: Any) -> None:
    sides = [value for value in (left, right) if type(value) not in _SINGLE]
    if len(sides) == 1:  # is it None, True or False?
        watch.kind(sides[0])
    elif isinstance(left, Tensor) and isinstance(right, Tensor):
        one, two = watch.known(left), watch.known(right)
        if left is right:
            watch.same(left)
        elif one is not None and two is not None:
            watch.guard(one, "apart", two)
    else:
        for value in sides:
            _identity(watch, value)


@told("identity")
def _identity(watch: Watch, value: Any) -> None:
    """It is asked next which object this is."""
    if watch.is_argument(value):
        watch.impure("asks which object a container among the arguments is")
    if type(value) not in QUIET:
        watch.identity(value)


@hook
def keyed(value: Any) -> Any:
    """It is next what a dict or set that is made looks for."""
    value = stored(value)
    if type(value) not in QUIET:
        see(c_calls.hashed, value)
    return value


@hook
def formatted(value: Any) -> Any:
    """A text is made of this next."""
    value = fixed(value)
    if type(value) not in PLAIN:
        see(_formatted, value)
    return value


def _formatted(watch: Watch, value: Any) -> None:
    text(watch, [value])
    watch.arm(value)


# loops


@hook
def iterated(value: Any, depth: int) -> Any:
    """A loop goes over this next; its target unpacks `depth` levels."""
    see(reads.iterated, value, depth + 1)
    if depth and WATCHING.watch is not None and not isinstance(value, known.CONTAINERS):
        return map(functools.partial(_each, depth), value)
    return value


@hook
def spread(values: Any, asked: str) -> list[Any]:
    """A display or a class takes ``*values`` next, each of which the hook `asked` is given."""
    return [HOOKS[asked](value) for value in HOOKS["iterated"](values, 0)]


def _each(depth: int, value: Any) -> Any:
    return HOOKS["unpacked"](value, depth)


#: Next, so many levels of it are unpacked.
told("unpacked")(reads.iterated)


@told("awaited")
def _awaited(watch: Watch, value: Any) -> None:
    """It is waited for."""
    if not watch.is_made(value):
        watch.impure("waits for something outside")


# calls


@hook
def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What makes the call when it is called itself, in the frame of the user."""
    watch = WATCHING.watch
    if watch is None or watch.busy:
        return functools.partial(function, *args, **kwargs)
    return watch.net.without(_call, watch, id(sys._getframe(1)), function, args, kwargs)


def _call(watch: Watch, frame: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    watch.pending.pop(frame, None)
    computed = numbers.computed_by(function, args, kwargs)
    if computed is not None:
        return computed
    watch.changing.begin()
    then = watch.see(calls.called, function, list(args), kwargs)
    watch.changing.expect(operands.asked_by(function, args))
    if then is not None:
        watch.pending[frame] = then
    args, kwargs = operands.given_to(watch, function, args, kwargs)
    if watch.net.can_rest and calls_no_user(function, args, kwargs, watch.quiet):
        return functools.partial(watch.net.without, function, *args, **kwargs)
    return functools.partial(function, *args, **kwargs)


@hook
def called(value: Any) -> Any:
    """The result of the call."""
    value = given(value)
    watch = WATCHING.watch
    then = watch.pending.pop(id(sys._getframe(1)), None) if watch is not None else None
    if then is not None and type(value) not in known.FOLLOWED:
        see(lambda watch: then(value))
    return number(value)


@hook
def decorator(function: Any) -> Any:
    """What decorates is called next with the function or class that is defined."""
    return function if WATCHING.watch is None else functools.partial(_decorated, function)


def _decorated(function: Any, value: Any) -> Any:
    then = see(calls.called, function, [value], {})
    result = function(value)
    if then is not None:
        see(lambda watch: then(result))
    return result


#: By frame: what is called next, perhaps a debugger.
_ASKED: dict[int, Any] = {}


@hook
def debugs(function: Any) -> bool:
    """Does `function`, which is called next, stop at the line after that?"""
    _ASKED[id(sys._getframe(1))] = function
    if not known.is_debugger(function):
        return False
    see(lambda watch: watch.impure("starts a debugger"))
    return True


@hook
def asked() -> Any:
    """The function that `debugs` was given."""
    return _ASKED.pop(id(sys._getframe(1)))


@told("raised")
def _raised(watch: Watch, value: Any) -> None:
    """It is raised next."""
    if isinstance(value, BaseException):
        watch.writing.wrote(value, "the traceback")
    elif isinstance(value, type):
        calls.called(watch, value, [], {})


@told("entered")
def _entered(watch: Watch, value: Any) -> None:
    """A `with` statement enters this next."""
    kind = type(value)
    for enter, leave in (("__enter__", "__exit__"), ("__aenter__", "__aexit__")):
        if isinstance(known.lookup(kind, enter)[0], FunctionType):
            return attributes.special(watch, value, enter, leave)
    if not (isinstance(value, _LOCKS) and _is_librarys()):
        watch.impure(f"enters a {kind.__module__}.{kind.__qualname__}")
    return None


#: Locks, which keep others out as long as a body runs.
_LOCKS = (LockType, RLock)


def _is_librarys() -> bool:
    """Does Python's library do it, for itself?"""
    frame: Any = sys._getframe(1)
    while known.is_trusted(frame.f_code):
        frame = frame.f_back
    return known.is_library_code(frame.f_code)


#: A class is derived from this.
told("base")(Watch.arm)


@hook
def matched(value: Any, names: str, *dotted: Callable[[], Any]) -> Any:
    """Patterns look at this next, and at these attributes; they name what these functions give."""
    value = stored(value)
    for read in dotted if WATCHING.watch is not None else ():
        with contextlib.suppress(AttributeError, NameError):  # perhaps no pattern comes so far
            read()
    if type(value) not in PLAIN:
        see(_matched, value, names.split(), reads.DEPTH)
    return value


def _matched(watch: Watch, value: Any, names: list[str], deep: int) -> None:
    kind: Any = type(value)
    if value is known.MISSING or is_plain(value) or kind in known.FOLLOWED:
        return
    watch.kind(value)
    parts: list[Any] = []
    if isinstance(value, known.CONTAINERS):
        reads.container(watch, value, max(deep, 0))
        parts = [] if isinstance(value, np.ndarray) else reads.elements_of(value)
    if known.is_heap(kind):
        if hasattr(kind, "__match_args__"):
            attributes.attribute(watch, kind, "__match_args__")
        for asked in (*names, *getattr(kind, "__match_args__", ())):
            attributes.attribute(watch, value, asked)
            parts.append(known.attributes_of(value).get(asked, known.lookup(kind, asked)[0]))
    for part in parts:
        _matched(watch, part, names, deep - 1)
