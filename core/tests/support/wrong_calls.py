"""Calls of public functions and classes with arguments that they cannot take; what is wrong with an error."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import mgb
import numpy as np
from mgb.errors import MgbError

MODULES = "mgb functional functional.nn functional.loss module optimizer random linalg fft data amp".split()

#: They change what is around them.
LEFT_OUT = frozenset({"seed", "set_rng_state", "set_default_device", "set_log_level", "get_logger"})

WRONG: dict[str, Any] = {
    "None": None, "text": "a", "empty text": "", "list": [1.0, 2.0], "list of texts": ["a", None],
    "ragged": [[1.0], 2.0], "dict": {"a": 1}, "nan": float("nan"), "inf": float("inf"), "fraction": 1.5,
    "-1": -1, "0": 0, "huge": 2**62, "beyond": 2**70, "bool": True, "object": object(), "class": int,
    "function": len, "complex": 1j, "tuple": (1, 2), "empty tuple": (), "scalar": mgb.tensor(1.0),
    "vector": mgb.tensor([1.0, 2.0]), "bools": mgb.tensor([[True, False]]),
    "integers": mgb.tensor([[[1, 2]]]), "empty": mgb.tensor(np.zeros((0, 2))),
    "rank 5": mgb.tensor(np.ones((1, 1, 2, 2, 2))), "array": np.ones((2, 3)),
    "array of objects": np.array([None, 1]), "bytes": b"a", "set": {1},
}  # fmt: skip

Call = tuple[str, Any, tuple[Any, ...], dict[str, Any]]


def callables() -> dict[str, Any]:
    """Each public function and class by the name under which it is found first."""
    found: dict[int, tuple[str, Any]] = {}
    for name in MODULES:
        module = mgb if name == "mgb" else importlib.import_module(f"mgb.{name}")
        for shown in dir(module):
            value = getattr(module, shown)
            is_kind = (
                isinstance(value, type) and not issubclass(value, Exception) and not inspect.isabstract(value)
            )
            if (is_kind or inspect.isroutine(value)) and shown not in LEFT_OUT and not shown.startswith("_"):
                found.setdefault(id(value), (f"{name}.{shown}", value))
    return dict(found.values())


def calls(name: str, function: Any) -> Iterator[Call]:
    """Calls by position with one kind of value, and by keyword beside arguments that are right."""
    yield f"{name}()", function, (), {}
    for what, value in WRONG.items():
        for count in (1, 2, 3):
            yield f"{name}({', '.join([what] * count)})", function, (value,) * count, {}
        yield f"{name}(right, {what})", function, (mgb.tensor(np.ones((2, 2))), value), {}
    base = {n: _right(p) for n, p in parameters(function).items() if p.default is p.empty}
    for chosen in parameters(function):
        for what, value in WRONG.items():
            yield f"{name}(..., {chosen}={what})", function, (), {**base, chosen: value}


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """What can be given by name."""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in known.items() if p.kind in by_name}


def _right(parameter: inspect.Parameter) -> Any:
    """Something that such a parameter may well take."""
    said = str(parameter.annotation)
    if said.startswith("int") or parameter.name in ("axis", "k", "size"):
        return 1
    if "Parameter" in said:
        return [mgb.Parameter([1.0])]
    return 0.5 if said.startswith("float") else mgb.tensor(np.ones((2, 2)))


class TookTooLongError(BaseException):
    """The call was broken off."""


def _ring(*_: Any) -> None:
    raise TookTooLongError


def outcome(call: Call) -> BaseException | None:
    """What the call raises, in a folder of its own and for at most 2 s."""
    _, function, args, kwargs = call
    before, home = signal.signal(signal.SIGALRM, _ring), os.getcwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        os.chdir(folder)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            function(*args, **kwargs)
        except (Exception, TookTooLongError) as error:
            return error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            os.chdir(home)
    return None


_PRIVATE = re.compile(r"(?<![\w/])_[a-zA-Z]\w*")
_RAW = re.compile(r"has no attribute|'NoneType'|<lambda>")


def is_internal(error: BaseException, name: str, function: Any) -> bool:
    """Does it speak of what happens inside instead of the call?"""
    text = str(error)
    if names_private(error):
        return True
    if isinstance(error, (MgbError, MemoryError, OSError, TookTooLongError)):
        return False
    if type(error) not in (TypeError, ValueError, AssertionError) or _RAW.search(text):
        return True
    words = set(re.findall(r"\w+", text))
    return not words & {name.rpartition(".")[2], function.__name__, *parameters(function)}


def names_private(error: BaseException) -> bool:
    """Does the message have the name of something private?"""
    return bool(_PRIVATE.search(str(error)))


def internal_share(step: int) -> tuple[float, list[str]]:
    """Of the errors that each `step`-th call raises, the share that are internal, and what these say."""
    raised, found = 0, []
    for place, (name, function, call) in enumerate(every_call()):
        if place % step == 0 and (error := outcome(call)) is not None:
            raised += 1
            if is_internal(error, name, function):
                found.append(f"{call[0]}: {type(error).__name__}: {error}")
    return len(found) / raised, found


def every_call() -> Iterator[tuple[str, Any, Call]]:
    """All calls, with the names and the functions that they are of."""
    for name, function in callables().items():
        for call in calls(name, function):
            yield name, function, call
