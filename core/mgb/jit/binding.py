"""A traced function as a Python object: it binds to instances, and is pickled and copied as functions are."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import sys
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from ..errors import TraceInputError, TracePicklingError
from ..runtime import forking

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Instance = TypeVar("Instance")


class Bindable(Generic[P, R]):
    """Base class of traced functions, with the interface of Python functions and of decorators.

    Parameters
    ----------
    function : callable
        The wrapped function.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]
    _settings: dict[str, Any]  # the keyword arguments, for a trace of another function

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        if not args and "function" not in settings:
            return functools.partial(cls, **settings)
        made = super().__new__(cls)
        made._settings = {name: value for name, value in settings.items() if name != "function"}
        return made

    def __init__(self, function: Callable[P, R]) -> None:
        check_function(function)
        functools.update_wrapper(cast(Callable[..., Any], self), function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._bound: dict[int, tuple[weakref.ref[Any], Self]] = {}  # by id: an instance may have no hash
        self._binding = forking.lock()
        self._body = function
        self._instance: weakref.ref[Any] | None = None  # of a method

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Bindable[Concatenate[Instance, Q], R], instance: Instance, owner: type | None = None
    ) -> BoundTrace[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a method, which has records of its own for each instance."""
        if instance is None:
            return self
        if type(instance).__itemsize__:  # a tuple or an int has no weak references: it is an argument
            return MethodType(cast(Callable[..., Any], self), instance)
        key = id(instance)
        with self._binding:
            if key not in self._bound:
                self._bound[key] = cast(Any, self)._bind(instance)
            return BoundTrace(instance, self._bound[key][1], self.__name__)

    def _bind(self, instance: Any) -> tuple[weakref.ref[Any], Self]:
        key = id(instance)
        try:
            reference = weakref.ref(instance, lambda _: self._bound.pop(key, None))
        except TypeError as error:
            raise TraceInputError(
                f"{type(instance).__name__} has __slots__ without '__weakref__': add it, so that each can "
                "have its record; of a class that cannot be changed, trace a function that takes the instance"
            ) from error
        another: Callable[..., Self] = type(self)
        bound = another(make_method(self.__wrapped__, reference), **self._settings)
        bound._instance, bound._body = reference, self.__wrapped__
        return reference, bound

    def _get_instance(self) -> Any:
        """Return the instance of a method, or None."""
        return self._instance() if self._instance is not None else None

    def _bind_body(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the user's function and its positional arguments, for a method with the instance."""
        instance = () if self._instance is None else (self._instance(),)
        return self._body, *instance, *args

    def __reduce_ex__(self, _protocol: Any) -> str | tuple[Any, ...]:
        """Pickle by name, as functions are pickled, or by value where the pickler does so with functions."""
        is_found = is_found_by_name(self)
        if _functions_go_by_value() and (not is_found or self.__module__ == "__main__"):
            return _rebuild, (type(self), self.__wrapped__, self._settings)
        if not is_found:
            raise TracePicklingError(_explain_unpicklable(self))
        return self.__qualname__

    def __copy__(self, memo: Any = None) -> Self:
        """Return itself, as functions do."""
        return self

    __deepcopy__ = __copy__


class BoundTrace(Generic[P, R]):
    """A traced method of one instance. All attributes are those of the instance's traced function."""

    def __init__(self, instance: Any, traced: Any, name: str) -> None:
        self.__self__ = instance
        self.__doc__ = traced.__doc__
        self.__module__ = traced.__module__
        self._traced = traced
        self._name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._traced(*args, **kwargs)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traced, name)

    def __repr__(self) -> str:
        return f"{self._traced!r} of a {type(self.__self__).__name__}"

    @property
    def __signature__(self) -> inspect.Signature:
        """Return the signature without ``self``."""
        return inspect.signature(MethodType(inspect.unwrap(self._traced.__wrapped__), self.__self__))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as bound methods do: by the instance and the name."""
        return getattr, (self.__self__, self._name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the method of the copied instance."""
        return getattr(copy.deepcopy(self.__self__, memo), self._name)


def make_method(function: Callable[..., Any], reference: weakref.ref[Any]) -> Callable[..., Any]:
    """Return `function` as a method that does not keep its instance alive."""

    @functools.wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(reference(), *args, **kwargs)

    method.__signature__ = inspect.signature(MethodType(function, reference))  # type: ignore[attr-defined]
    return method


#: Functions whose body does not run when they are called.
_LATER = {
    inspect.isgeneratorfunction: "a generator function",
    inspect.iscoroutinefunction: "an async function",
    inspect.isasyncgenfunction: "an async generator function",
}


def check_function(function: Any) -> None:
    """Raise an error for what is not a plain function, such as a classmethod or a generator function.

    Raises
    ------
    TraceInputError
    """
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise TraceInputError(f"@trace above @{kind}: write @{kind} in the line above @trace")
    if not callable(function):
        raise TraceInputError(f"trace needs a function, got a {type(function).__name__}")
    for is_one, kind in _LATER.items():
        if is_one(function):
            raise TraceInputError(
                f"{getattr(function, '__name__', 'this')} is {kind}: its body runs after the call has ended, "
                "so that nothing of it would be traced; trace the functions that it calls, or return a list"
            )


def is_found_by_name(traced: Bindable[..., Any]) -> bool:
    """Check whether the module of `traced` has it under its name."""
    found: Any = sys.modules.get(traced.__module__)
    for part in getattr(traced, "__qualname__", "").split("."):  # a callable object has no name
        found = getattr(found, part, None)
    return found is traced


def _functions_go_by_value() -> bool:
    """Check whether the pickler in use pickles functions by value.

    cloudpickle's picklers do, under any name that Dask, Ray and others give them. Their hook
    `reducer_override` identifies them. `__reduce_ex__` does not receive the pickler, so it is looked up in
    the calling frame.
    """
    pickler = sys._getframe(2).f_locals.get("self")
    return isinstance(pickler, pickle.Pickler) and hasattr(pickler, "reducer_override")


def _rebuild(kind: type, function: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """Rebuild a traced function that was pickled by value."""
    return kind(function, **settings)


def _explain_unpicklable(traced: Bindable[..., Any]) -> str:
    """Explain why `traced` cannot be pickled by name, and what helps."""
    if not hasattr(traced, "__qualname__"):
        kind = type(traced.__wrapped__).__name__
        return f"a traced {kind} cannot be pickled: it has no name; pickle the {kind}, and trace it again"
    full = f"{traced.__module__}.{traced.__qualname__}"
    if "<" in traced.__qualname__:  # <locals>, <lambda>
        return (
            f"{full} cannot be pickled: a traced function is found again by its name, and a local one has "
            "none that a module knows; define it at the top of a module, or pickle it by value: "
            "cloudpickle.dumps"
        )
    return (
        f"{full} cannot be pickled: a traced function is found again by its name, and there is something "
        f"else under this one; decorate it with @trace, or bind trace({traced.__name__}) to that very name"
    )
