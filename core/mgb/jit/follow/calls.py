"""Hooks at calls: symbolic numbers and lengths go through what computes with them in C."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from ...ir.scalars import SCALARS
from ...tensor import Tensor
from .. import numbers
from ..array_proxy import ArrayProxy, each
from ..source import MISSING, lookup
from ..symbolic_array import SymbolicArray, given, unwrap_array
from .code import codes_in, instrumented, with_hooks
from .operands import given_to, is_of_mgb, is_plain_class, is_users, profiled
from .refused import NotFollowed
from .transform import CALL, IDENTICAL, IDENTITY, RESULT

#: What a function has beside its code, its variables and its defaults.
_NOTES = ("__kwdefaults__", "__qualname__", "__dict__", "__doc__", "__module__", "__type_params__")


#: Says False of None, and raises a TypeError for all else.
_IS_TRUE: Any = vars(type(None))["__bool__"]


class Calls:
    """Hooks at the calls of one body that is noted with symbolic numbers and lengths.

    They are in copies of functions: no function changes, and no other thread comes to them. A copy that is
    called when this is gone calls as any function does.

    Parameters
    ----------
    report_call : callable
        Told each function in C that is about to be called, and the frame that calls it: hooks make these
        calls, so that no profiler sees them.
    measured : callable
        Gives a value as code of mgb's is given it: in place of an array a view that has lengths which are
        followed.
    without : callable
        Calls a function with arguments while nobody is told of what runs.

    Attributes
    ----------
    originals : dict
        Code with hooks, and that of functions inside it, by which each is the code without.
    """

    def __init__(
        self,
        report_call: Callable[[Any, FrameType], None],
        measured: Callable[[Any], Any],
        without: Callable[..., Any] = lambda function, *args: function(*args),
    ) -> None:
        self.originals: dict[CodeType, CodeType] = {}
        self._without = without
        self._report_call, self._measured = report_call, measured
        self._codes: dict[int, tuple[CodeType, CodeType | None]] = {}  # by the id of what is kept with it
        self._copies: dict[int, tuple[FunctionType, FunctionType]] = {}

    # copies

    def copy_of(self, function: Any) -> Any:
        """Return `function` with hooks, if it is one of a user's that has a source; else itself."""
        kind = type(function)
        if kind is MethodType:
            inner = self.copy_of(function.__func__)
            return function if inner is function.__func__ else MethodType(inner, function.__self__)
        if kind is functools.partial:
            inner = self.copy_of(function.func)
            if inner is function.func:
                return function
            return functools.partial(inner, *function.args, **function.keywords)
        return self._copy(function) if kind is FunctionType and is_users(function) else function

    def _copy(self, function: FunctionType) -> FunctionType:
        code = self._code(function)
        if code is None:
            return function
        known = self._copies.get(id(function))
        if known is None or known[1].__code__ is not code:
            known = self._copies[id(function)] = function, _with_code(function, code)
        known[1].__defaults__, known[1].__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return known[1]

    def _code(self, function: FunctionType) -> CodeType | None:
        """Return the code of `function` with hooks; None where it has none, or has those of this object."""
        code = function.__code__
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = code, self._hooked(code, function)
        return known[1]

    def _hooked(self, code: CodeType, function: FunctionType) -> CodeType | None:
        maker = _maker_of(code)
        if maker is self:
            return None
        own = code if maker is None else maker.originals.get(code, code)
        made = instrumented(own, function.__globals__)
        if made is None:
            return None
        hooks = {
            CALL: functools.partial(_call, weakref.ref(self)),  # another one for each: no two codes are equal
            RESULT: given,
            IDENTICAL: _identical,
            IDENTITY: _identity,
        }
        return with_hooks(made, own, hooks, self.originals.__setitem__)

    # calls

    def _prepared(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[[], Any], Any]:
        """Return a callable for ``function(*args, **kwargs)``, and the function in C to report."""
        in_c = profiled(function, args)
        while type(function) is functools.partial:
            args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
            function = function.func
        computed = self._computed(function, args, kwargs)
        if computed is not None:
            return computed, in_c
        args, kwargs = given_to(self._measured, function, args, kwargs)
        return self._made_by(function, args, kwargs), in_c

    def _computed(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any] | None:
        """Return a callable that keeps numbers or lengths symbolic through this call, or None."""
        if len(args) == 1 and not kwargs:
            (value,) = args
            if function is len and (shape := self._shape_of(value)):
                return functools.partial(operator.getitem, shape, 0)
            if function is type and type(value) in (SymbolicArray, ArrayProxy):
                return functools.partial(type, unwrap_array(value))
        return numbers.computed_by(function, args, kwargs)

    def _shape_of(self, value: Any) -> tuple[Any, ...]:
        """Return the lengths of the axes of a Tensor or of an array that is measured; of others none."""
        if issubclass(type(value), Tensor) and lookup(type(value), "__len__")[0] is Tensor.__len__:
            return value._tuple_shape  # type: ignore[no-any-return]
        if type(value) is ArrayProxy:
            return value.shape
        if type(value) in (np.ndarray, SymbolicArray):
            measured = self._measured(value)
            return measured.shape if type(measured) is SymbolicArray else ()
        return ()

    def _made_by(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        """Return the call itself, of a copy."""
        if is_plain_class(function):
            begin = lookup(function, "__init__")[0]
            copy = self.copy_of(begin)
            if copy is not begin:
                made = object.__new__(function)
                return _initialized(made, functools.partial(copy, made, *args, **kwargs))
        if type(function) is BuiltinFunctionType and type(function.__self__) is SymbolicArray:
            function = getattr(given(function.__self__), function.__name__)
        return functools.partial(self._called(function), *args, **kwargs)

    def _called(self, function: Any) -> Any:
        """Return the function to call in place of `function`."""
        if type(function) in (FunctionType, MethodType) or issubclass(type(function), type):
            return self.copy_of(function)
        method = lookup(type(function), "__call__")[0]
        if is_users(method) or (is_of_mgb(method) and hasattr(type(function), "__calls__")):
            # between the call of a Module and its `forward` comes code of mgb's, which calls that
            copy = self._copy(method)
            return MethodType(copy, function) if copy is not method else function
        return function


def _call(calls: weakref.ref[Calls], function: Any, /, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a callable that makes the call in the frame of the user."""
    here = calls()
    if here is None:
        return functools.partial(function, *args, **kwargs)
    made, in_c = here._without(here._prepared, function, args, kwargs)
    if in_c is not MISSING:
        here._report_call(in_c, sys._getframe(1))
    return made  # type: ignore[no-any-return]


def _identical(left: Any, right: Any) -> bool:
    """Return ``left is right``"""
    if ArrayProxy in (type(left), type(right)):  # later they may be one, or none of those they are now
        left, right = each(left), each(right)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            raise NotFollowed("asks whether two arrays are one")
    left, right = given(left), given(right)
    kinds = {type(value.value) if type(value) in SCALARS else type(value) for value in (left, right)}
    if left is right or len(kinds) > 1:
        return left is right
    return _identity(left) is _identity(right)


def _identity(value: Any) -> Any:
    """Return the object that ``is`` compares: the plain number or array of a symbolic one or a proxy."""
    return value.fixed() if type(value) in SCALARS else unwrap_array(value)


def _initialized(made: Any, begin: Callable[[], None]) -> Callable[[], Any]:
    """Return a callable that calls `begin` and returns `made`, in the frame of the user: so in C.

    What begins gives None, whose method says False; of anything else that raises the TypeError of Python.
    """
    given_none = map(operator.not_, map(_IS_TRUE, iter(begin, MISSING)))
    return functools.partial(next, itertools.compress([made], given_none))


def _with_code(function: FunctionType, code: CodeType) -> FunctionType:
    """Return another function like `function`, with this code."""
    made = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    annotations = "__annotate__" if hasattr(function, "__annotate__") else "__annotations__"
    for name in (*_NOTES, annotations):
        if hasattr(function, name):
            setattr(made, name, getattr(function, name))
    return made


def _maker_of(code: CodeType) -> Calls | None:
    """Return the owner of the hooks in `code`, or in the code of a function inside it."""
    for constant in code.co_consts:
        if type(constant) is functools.partial and constant.func is _call:
            maker: Calls | None = constant.args[0]()
            return maker
    return next(filter(None, map(_maker_of, codes_in(code))), None)
