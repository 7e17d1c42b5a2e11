"""The running body: each Python function that starts, and each function in C that it calls."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import string
import sys
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from ...errors import ImpureBodyError
from ...tensor import of_handler
from ...tensor.holding import Holder
from ..source import Attribute, Call, Object, ObjectRef
from . import known, pure
from .codes import FORMATS, READING, Codes, Kind
from .impurity import line_of
from .protocols import Watcher

#: Functions of NumPy's that tell of its state.
_STATES = frozenset({"geterr", "geterrcall", "getbufsize", "get_printoptions"})
#: Parts of Python's library that read all attributes of what they are given.
_WILD = frozenset({"copy", "dataclasses", "pprint", "inspect"})
_SIGNATURE = inspect.signature.__code__
#: Modules of mgb whose functions are given no holders.
_WITHOUT_HOLDERS = (
    "mgb.autodiff.tape", "mgb.ir.dtypes", "mgb.ir.scalars", "mgb.ir.sizes", "mgb.ops.",
    "mgb.runtime.precision", "mgb.tensor.apply", "mgb.tensor.conversion", "mgb.tensor.float_errors",
    "mgb.tensor.rounding", "mgb.tensor.session", "mgb.tensor.tensor",
    "mgb.jit.provenance", "mgb.jit.recording", "mgb.jit.session",
)  # fmt: skip


class Running:
    """Tells an observer what the body does that it watches."""

    def __init__(self, observer: Watcher) -> None:
        self._observer, self.walk = observer, observer.walk
        self.impure = observer.impure
        self._handled = sys.exception()
        #: The ids of what was initialized meanwhile.
        self.made: set[int] = set()
        #: By copies of code that run in its place: the code.
        self.originals: Mapping[CodeType, CodeType] = {}
        self.codes = Codes()
        #: By the ids of what a method in C was called of: which, and where.
        self.lines: dict[int, tuple[str, tuple[str, int]]] = {}

    def forget(self) -> None:
        """Hold nothing of the call."""
        self.lines.clear()
        self.codes.forget()

    def see(self, do: Callable[..., object], *args: Any) -> None:
        """Call `do`; a failure of the observer is not a failure of the body."""
        try:
            do(*args)
        except Exception as error:
            self._fails(error)

    def _fails(self, error: Exception) -> None:
        if isinstance(error, ImpureBodyError) or of_handler(error):
            raise error
        self.impure(f"could not be watched: {type(error).__name__}: {error}", line=self._observer.line)

    def starts(self, frame: FrameType) -> None:
        """Note that a Python function starts, or a generator resumes."""
        code = frame.f_code
        if code.co_name == "__init__" and code.co_varnames:
            self.made.add(id(frame.f_locals.get(code.co_varnames[0])))
        if not self.codes.is_seen(frame):
            try:
                self._starts(frame)
            except Exception as error:
                self._fails(error)

    def calls(self, function: Any, frame: FrameType) -> None:
        """Note that `frame` calls a function in C."""
        owner = getattr(function, "__self__", None)
        kind = type(owner)
        if kind in READING:
            if id(owner) not in self.walk.kept or function.__name__ in READING[kind]:
                return
        elif self.codes.is_pure(function, kind, frame.f_code):
            return
        try:
            self._calls(function, frame)
        except Exception as error:
            self._fails(error)

    def _starts(self, frame: FrameType) -> None:
        code = self.originals.get(frame.f_code, frame.f_code) if self.originals else frame.f_code
        kind = self.codes.kind(code)
        if kind is not Kind.TRUSTED and self.walk.has_run(code, frame.f_globals):
            self._goes_on(frame, code)
        elif code is known.SHOWS_WARNING:
            self._warns(frame)
        elif code is known.MAKES_WARNING:
            self.codes.sees(frame)
        elif code is known.CHECKS_PROTOCOL:
            self.walk.handles_errors = True  # it asks whether there are attributes
            self.walk.add_names(known.names_of_protocol(frame.f_locals["cls"]))
        elif kind is Kind.IMPORTS:
            self.codes.imports = True
        elif kind is Kind.TRUSTED or _is_made_by_library(frame, code):
            self._library(frame, code)
        elif not self._is_part_of_another(frame, code):
            if not self.walk.starts(code, frame.f_globals) and kind is Kind.USERS:
                self.impure(f"calls {code.co_qualname}, which nothing leads to", frame)
            self._goes_on(frame, code)

    def _goes_on(self, frame: FrameType, code: CodeType) -> None:
        """Handle a new frame of known code, which may look up other modules each time."""
        self.walk.modules.given(code, frame)
        if not self.walk.modules.asks(code):
            self.codes.sees(frame)

    def _is_part_of_another(self, frame: FrameType, code: CodeType) -> bool:
        """Return whether an import, trusted code for itself, or the garbage collector calls it."""
        is_evaluated = code.co_filename == "<string>" and code.co_name in ("<module>", "__create_fn__")
        if is_evaluated or self.codes.kind(code) is not Kind.USERS:
            if self.codes.is_within_trusted(frame.f_back):
                return True
        return self.codes.is_import(frame) or self._is_collected(frame, code)

    def _is_collected(self, frame: FrameType, code: CodeType) -> bool:
        """Return whether something is finalized that the body has not made."""
        is_end = code.co_name == "__del__" and bool(code.co_varnames)
        if is_end and id(frame.f_locals.get(code.co_varnames[0])) in self.made:
            return False
        return _is_collecting(code, frame)

    def _warns(self, frame: FrameType) -> None:
        caller = frame.f_back
        of_mgb = caller is not None and caller.f_globals.get("__name__", "").startswith("mgb.")
        if not self._observer.refuses and not of_mgb:
            self.impure("gives a warning", caller, once=True)

    def _library(self, frame: FrameType, code: CodeType) -> None:
        """Note that a trusted function starts."""
        module = frame.f_globals.get("__name__") or ""
        top = module.partition(".")[0]
        words = (code.co_name, code.co_qualname.partition(".")[0])
        is_silent = _is_silent(module, *words)
        if is_silent and (top != "mgb" or module.startswith(_WITHOUT_HOLDERS)):
            return self.codes.sees(frame)
        back = _caller(frame) if top == "mgb" else frame.f_back
        if back is None or self.codes.is_within_trusted(back):
            return None
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
        if isinstance(first, Holder) and self._is_read(first, known.said_of(module, code.co_name)):
            self.walk.visit_holder(first)
        if is_silent or (code is _SIGNATURE and self._has_own_signature(first)):
            return None
        if top == "numpy" and code.co_name in _STATES and getattr(np, code.co_name, None) in known.AGAIN:
            self._tells_numpy(getattr(np, code.co_name))
        if top == "logging":
            return self._logs(frame, back)
        if top in _WILD:
            self.walk.goes_wild()
        for word in words:
            why = pure.trouble_of_library(module, word, first, self._is_outside)
            if why is not None and not self.codes.is_said(why, back) and not self.codes.is_import(frame):
                changes = "changes of a" in why
                self.impure(why, back, once=changes, writes=changes)
        return None

    def _is_read(self, holder: Holder, said: str | None) -> bool:
        """Return whether a method, of which `said` is known, may read all of an outside holder."""
        if said == "changes" and self._is_outside(holder):
            return False  # for which the body runs at each call
        return said != "tells" and (id(holder) not in self.made or self._is_outside(holder))

    def _has_own_signature(self, function: Any) -> bool:
        """Return whether only this outside function itself gives its parameters, which must stay."""
        source = self.walk.where(function)
        if not isinstance(function, FunctionType) or function.__dict__ or source is None:
            return False
        self.walk.activate(source, function)
        self.walk.add_names(["__annotations__"])
        self.walk.guard(
            Attribute(source, "__dict__"), "disjoint", frozenset({"__wrapped__", "__signature__"})
        )
        return True

    def _tells_numpy(self, function: Callable[[], Any]) -> None:
        """Guard NumPy's error state as it was at the beginning, when a function reads it."""
        self.walk.sees_numpy = True
        if function is not np.geterr:
            self.walk.visit(Call.given(Object(ObjectRef(function)), ()), function())
            self.walk.drain()

    def _is_outside(self, thing: Any) -> bool:
        return self.walk.where(thing) is not None

    def _logs(self, frame: FrameType, back: FrameType) -> None:
        """Guard the level of a logger whose message is not shown, and so has no effect."""
        name = frame.f_code.co_name
        logger = frame.f_locals.get("self", logging.root)
        if name == "getLogger":
            return
        if not isinstance(logger, logging.Logger):
            return self.impure(f"calls logging.{name}", back)
        asks = name in ("isEnabledFor", "getEffectiveLevel")
        level = frame.f_locals.get("level", 0) if asks else getattr(logging, name.upper(), None)
        if not isinstance(level, int) or (logger.isEnabledFor(level) and not asks):
            return self.impure(f"calls logging.{name}", back)
        if self.codes.is_said(f"asks logger {id(logger)} for {level}", back):
            return None
        asked = Attribute(Object(ObjectRef(logger)), "isEnabledFor")
        return self.walk.guard(Call.given(asked, (level,)), "same", logger.isEnabledFor(level))

    def _calls(self, function: Any, frame: FrameType) -> None:
        if not isinstance(function, known.IN_C):
            return
        codes = self.codes
        if codes.kind(frame.f_code) is Kind.TAME or codes.is_within_trusted(frame) or codes.is_import(frame):
            return
        owner = getattr(function, "__self__", None)
        if self.walk.where(owner) is not None and not issubclass(type(owner), type):
            if issubclass(type(owner), known.CONTAINERS) and not pure.only_reads(owner, function.__name__):
                self.lines[id(owner)] = function.__name__, line_of(frame)
        if pure.asks_any_name(function):
            self.walk.goes_wild()
        if type(owner) is str and function.__name__ in FORMATS and not codes.is_said(owner, frame):
            self.walk.add_names(_names_in_format(owner))
        if function is hash:
            self.walk.tells_addresses = True
        if function in (isinstance, issubclass):
            self.walk.asks_classes()
        elif function is globals:
            self.walk.visit(Object(ObjectRef(frame.f_globals)), frame.f_globals)
            self.walk.drain()
        elif function in (sys.exception, sys.exc_info) and sys.exception() is self._handled:
            if self._handled is not None:
                self.impure("asks for an exception that is handled outside", frame)
            self.walk.guard(Call(Object(ObjectRef(sys.exception))), "same", None)
        elif why := pure.trouble_of(function, self._is_outside):
            if not codes.is_said(why, frame) and not _is_collecting(frame.f_code, frame.f_back):
                self.impure(why, frame)
        else:
            codes.says_nothing(function)


@functools.cache
def _is_silent(module: str, *words: str) -> bool:
    """Return whether a trusted function with such names needs no report, whatever it is given."""
    top = module.partition(".")[0]
    tells = top in ("logging", *_WILD) or (top == "numpy" and not _STATES.isdisjoint(words))
    return not tells and not any(pure.trouble_of_library(module, w, None, lambda _: True) for w in words)


def _names_in_format(text: str) -> list[str]:
    """Return the attributes that a format asks for."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError:
        return []
    words = [word for field in fields for word in field.replace("[", ".").split(".")[1:]]
    return [word for word in words if word.isidentifier()]


def _is_made_by_library(frame: FrameType, code: CodeType) -> bool:
    """Return whether it is a method that `dataclass` has made for a class of a library."""
    return code.co_filename == "<string>" and pure.is_library(frame.f_globals.get("__name__"))


def _caller(frame: FrameType) -> FrameType | None:
    """Return the frame that calls a function, without wrappers that explain its failures."""
    back = frame.f_back
    while back is not None and back.f_globals.get("__name__") == "mgb.tensor.arguments":
        back = back.f_back
    return back


def _is_collecting(code: CodeType, frame: FrameType | None) -> bool:
    """Return whether the garbage collector calls back or something is finalized: not part of the body."""
    told = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    told.add(weakref.finalize.__call__.__code__)
    while frame is not None and code not in told and code.co_name != "__del__":
        code, frame = frame.f_code, frame.f_back
    return frame is not None or code in told
