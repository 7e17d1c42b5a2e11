"""Checks of the arguments of public functions and classes by their annotations, after a call has failed.

A call that succeeds costs a frame more. One that fails inside, by an `AttributeError` or whatever else says
nothing of the call, is looked at: the first argument that is not what its parameter is annotated with is
named. Lists, numbers and buffers where a Tensor is taken are made Tensors, and the call is made again.
"""

from __future__ import annotations

import inspect
import re
import reprlib
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import FunctionType, TracebackType, UnionType
from typing import Any, Union

import numpy as np

from ..errors import IndexOutOfRangeError, MgbError
from ..ir.scalars import SCALARS
from ..runtime.trusted import is_library, is_plugins
from . import Tensor
from .apply import tensors

#: What goes wrong inside, and says so: others mean what they say.
_CAUGHT = (
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, NameError,
    RecursionError,
)  # fmt: skip
_INSIDE = re.compile(r"(?<![\w/])_[a-zA-Z]\w*|has no attribute|NoneType|<lambda>|<locals>")
#: The attribute of an error made here that has the one which it explains.
_FIRST = "__first__"
_SAID: dict[Any, str] = {
    Tensor: "a Tensor", int: "an integer", float: "a number", bool: "True or False", str: "a text",
    tuple: "a tuple", type(None): "None", dict: "a dict", complex: "a number",
}  # fmt: skip


def explain(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Have public functions and classes name what a call got wrong.

    Parameters
    ----------
    namespace : dict
        The ``globals()`` of the module that shows them.
    names : iterable of str
        What is public there.
    """
    for name in names:
        value = namespace[name]
        if not (getattr(value, "__module__", None) or "").startswith("mgb."):
            continue
        if isinstance(value, FunctionType) and not _is_plain(value):
            namespace[name] = _explaining_function(value)
        elif isinstance(value, type) and not issubclass(value, Exception):
            for kind in value.__mro__:
                _explain_class(kind)


def _is_plain(function: FunctionType) -> bool:
    """Return whether it is an op, or hands its arguments on to ops, whose errors explain themselves."""
    said: dict[str, str] = vars(sys.modules[function.__module__]).get("__tracing__", {})
    return hasattr(function, "op") or said.get("*") == "elementwise"


def _explain_class(kind: type) -> None:
    made = vars(kind).get("__init__")
    if kind.__module__.startswith("mgb.") and isinstance(made, FunctionType):
        if not hasattr(made, "__explains__"):
            kind.__init__ = _explaining(made)  # type: ignore[misc]


def _explaining_function(function: FunctionType) -> Any:
    """Return `function`, or what explains its failures, which is then found where it was defined, too."""
    home = vars(sys.modules[function.__module__])
    if hasattr(function, "__explains__"):
        return function
    found: Any = home.get(function.__name__)
    if hasattr(found, "__explains__"):
        return found if found.__wrapped__ is function else function
    made = _explaining(function)
    if found is function:
        home[function.__name__] = made
    return made


def _explaining(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _CAUGHT as error:
            again = _answer(function, args, kwargs, error)
            if again is None:
                raise
        return again()

    called.__explains__ = True  # type: ignore[attr-defined]
    return called


def _answer(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Callable[[], Any] | None:
    """Return what to do after `error`: the call with Tensors, or a better error; None to let it pass."""
    name = type(args[0]).__name__ if function.__name__ == "__init__" and args else function.__name__
    signature, first = inspect.signature(function), getattr(error, _FIRST, None)
    is_clear = first is None and _says_enough(error, {name, *signature.parameters, *kwargs})
    if is_clear or _is_of_user(error.__traceback__):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as refusal:
        if not isinstance(error, TypeError):  # a decorator takes more than what it decorates
            return None
        return partial(_raise, TypeError(f"{name}() takes no such arguments: {refusal}"), error)
    hints = _hints(function)
    if function.__name__ != "__init__" and _with_tensors(name, bound, hints):
        return partial(_again, function, bound.args, bound.kwargs)
    if wrong := _wrong_one(bound, hints):
        return partial(_raise, TypeError(f"{name}: {wrong}"), first or error)
    return None if first else partial(_raise, _of_all(name, bound, error), error)


def _wrong_one(bound: inspect.BoundArguments, hints: dict[str, Any]) -> str:
    """Return the first argument that is not what its parameter takes, in words."""
    for name, value in bound.arguments.items():
        parameter, hint = bound.signature.parameters[name], hints.get(name, Any)
        if value is not parameter.default and not _is_variadic(parameter) and not _fits(value, hint):
            return f"{name} is {_words(hint)}, and got {_shown(value)}"
    return ""


def _of_all(name: str, bound: inspect.BoundArguments, error: Exception) -> Exception:
    """Return an error that the arguments are invalid together, where each by itself is valid."""
    listed = ", ".join(f"{n}={_shown(v)}" for n, v in bound.arguments.items() if n != "self")
    why = "" if _INSIDE.search(str(error)) or not str(error) else f": {error}"
    kind: type[Exception] = TypeError if isinstance(error, TypeError | AttributeError) else ValueError
    if isinstance(error, IndexError):
        kind = IndexOutOfRangeError
    return kind(f"{name}: it cannot be computed of {listed}{why}")


def _raise(better: Exception, error: Exception) -> typing.NoReturn:
    setattr(better, _FIRST, error)
    raise better from error


def _again(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the call with Tensors; what goes wrong now is explained, too."""
    try:
        return function(*args, **kwargs)
    except _CAUGHT as error:
        again = _answer(function, args, kwargs, error)
        if again is None:
            raise
    return again()


def _says_enough(error: Exception, names: set[str]) -> bool:
    """Return whether it speaks of the call, by the name of the function or of an argument."""
    text = str(error)
    if _INSIDE.search(text):
        return False
    if isinstance(error, MgbError):
        return True
    if isinstance(error, AssertionError):
        return bool(text)
    is_refusal = type(error) in (TypeError, ValueError)
    return is_refusal and not names.isdisjoint(re.findall(r"\w+", text))


def _is_of_user(traceback: TracebackType | None) -> bool:
    """Return whether it was raised in what a user wrote, which the call has called."""
    frame = traceback
    while frame is not None:
        module = frame.tb_frame.f_globals.get("__name__", "")
        if not is_library(module) and not is_plugins(frame.tb_frame.f_code.co_filename):
            return True
        frame = frame.tb_next
    return False


# what parameters take


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that is known to type checkers alone
        return {}


def _with_tensors(name: str, bound: inspect.BoundArguments, hints: dict[str, Any]) -> bool:
    """Make Tensors of what stands where Tensors are taken; was there anything?"""
    found = False
    for parameter, value in bound.arguments.items():
        hint = hints.get(parameter)
        kinds = _parts(hint)
        if Tensor in kinds and not isinstance(value, Tensor) and _is_array(value):
            if hint is Tensor or not _fits_one(value, kinds - {Tensor}):
                (bound.arguments[parameter],) = tensors(name, [value])
                found = True
    return found


def _is_array(value: Any) -> bool:
    """Return whether it is what ops take in place of a Tensor."""
    kind = type(value)
    is_lent = isinstance(value, np.ndarray | np.generic | memoryview) or kind.__module__ == "array"
    return is_lent or isinstance(value, list) or kind in (bool, int, float, complex) or kind in SCALARS


def _parts(hint: Any) -> frozenset[Any]:
    is_union = typing.get_origin(hint) in (Union, UnionType)
    return frozenset(typing.get_args(hint)) if is_union else frozenset({hint})


def _fits(value: Any, hint: Any) -> bool:
    return _fits_one(value, _parts(hint))


def _fits_one(value: Any, kinds: Iterable[Any]) -> bool:
    return any(_is_one(value, kind) for kind in kinds)


def _is_one(value: Any, kind: Any) -> bool:
    """Return whether `value` is what an annotation with `kind` takes. What is not known is taken."""
    origin = typing.get_origin(kind) or kind
    if origin is Any:
        return True
    if origin is int:
        return hasattr(value, "__index__") and (not isinstance(value, Tensor) or value.dtype.kind in "iu")
    if origin is float:
        return hasattr(value, "__float__") and not isinstance(value, str)
    if origin is bool:
        return isinstance(value, bool | np.bool_)
    if origin is Callable:
        return callable(value)
    if origin is typing.Literal:
        return type(value) is str and value in typing.get_args(kind)
    if origin in (Sequence, Iterable, list, tuple):
        return _are(value, origin, typing.get_args(kind))
    return not isinstance(origin, type) or isinstance(value, origin)


def _are(value: Any, origin: Any, kinds: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return False
    if origin is Iterable or not isinstance(value, list | tuple):
        return True
    fixed = origin is tuple and Ellipsis not in kinds
    if fixed and len(kinds) != len(value):
        return False
    return all(_fits(v, k) for v, k in zip(value, kinds if fixed else kinds[:1] * len(value), strict=False))


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


# words


def _words(hint: Any) -> str:
    if typing.get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_words, typing.get_args(hint))))
    origin = typing.get_origin(hint) or hint
    if origin in (Sequence, Iterable, list, tuple):
        inner = [k for k in typing.get_args(hint) if k is not Ellipsis]
        return "a sequence" + (f" ({', '.join(map(_words, inner))}, ...)" if inner else "")
    if origin is Callable:
        return "a function"
    if origin is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    name = getattr(origin, "__name__", str(origin))
    return _SAID.get(origin) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _shown(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__} of shape {tuple(value.shape)}, {value.dtype}"
    return _INSIDE.sub("...", reprlib.repr(value))
