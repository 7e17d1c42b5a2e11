"""Cases of what a body reads and does outside: each is a module with a function `f`, and a change.

Python itself is the judge: after the change the function is called once more, and where its result is another
one the guards must not hold.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import linecache
import math
import os
import string
import sys
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from mgb.jit.watch import Observer

_numbers = itertools.count()
#: What the modules of all cases begin with.
PRELUDE = compile(
    """
import abc, array, builtins, collections, contextlib, contextvars, copy, ctypes, dataclasses, datetime, enum
import functools, heapq, io, itertools, json, logging, math, operator, os, random, re, struct, sys, threading
import time, types, warnings, weakref
from abc import ABC
from bisect import insort
from collections import ChainMap, Counter, OrderedDict, UserList, defaultdict, deque, namedtuple
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial, partialmethod, reduce
from operator import attrgetter, itemgetter, methodcaller
from pathlib import PurePath
from string import Template
from types import SimpleNamespace
import numpy as np
import mgb, mgb.functional as F, mgb.module as M, mgb.optimizer as O
from mgb import Parameter, Tensor, tensor
class A: pass
""",
    "<watched>",
    "exec",
)


@dataclass(frozen=True)
class Case:
    """A module with a function `f`, and what is changed, or told."""

    name: str
    text: str
    change: str = ""


def module_of(text: str, name: str = "") -> ModuleType:
    """A module made of `text`, whose source can be found."""
    made = ModuleType(name or f"watched_{next(_numbers)}")
    file, text = f"<{made.__name__}>", textwrap.dedent(text)
    made.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[made.__name__] = made
    exec(PRELUDE, vars(made))
    exec(compile(text, file, "exec", dont_inherit=True), vars(made))
    return made


def observed(text: str) -> tuple[ModuleType, Observer, Any]:
    """The module, what was seen, and the result of its `f`."""
    module = module_of(text)
    observer = Observer([])
    return module, observer, observer.run(module.f)


def cases(table: str) -> list[Any]:
    """Cases from a table: ``### name``, the module, ``#->`` and the change."""
    found = []
    for block in table.split("\n### ")[1:]:
        name, _, text = block.partition("\n")
        body, _, change = text.partition("\n#->")
        found.append(pytest.param(Case(name, body, textwrap.dedent(change)), id=name.strip()))
    return found


@pytest.fixture(autouse=True)
def everything_is_undone() -> Iterator[None]:
    """For the modules that import it: nothing watches after a test."""
    before = sys.getprofile()
    yield
    assert sys.getprofile() is before
    if hasattr(sys, "monitoring"):
        assert not any((sys.monitoring.get_tool(n) or "").startswith("mgb") for n in range(6))


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """What cases change in Python's own modules is put back."""
    kept = math.tau, collections.OrderedDict, dict(os.environ), string.digits, len(sys.argv)
    limit, options, errors = sys.getrecursionlimit(), np.get_printoptions(), np.geterr()
    try:
        yield
    finally:
        math.tau, collections.OrderedDict, string.digits = *kept[:2], kept[3]
        del sys.argv[kept[4] :]
        sys.setrecursionlimit(limit)
        np.set_printoptions(**options)
        np.seterr(**errors)
        sys.modules.pop("watched_nowhere", None)
        for name in set(os.environ) - set(kept[2]):
            del os.environ[name]


def is_seen(case: Case) -> None:
    """The body is pure, and its guards hold until the change, which makes the result another one."""
    with as_before():
        module, observer, result = observed(case.text)
        assert not observer.impurities, [str(i) for i in observer.impurities]
        check = observer.guards.compile()
        assert observer.guards.why([]) is None
        assert check([])
        assert module.f() == result
        assert check([])  # running it changed nothing
        exec(case.change, vars(module))
        assert module.f() != result, "the case changes nothing"
        assert not check([])
        assert observer.guards.why([])


def is_never_stale(case: Case) -> None:
    """After the change the result is the same, or the guards do not hold, or the body is impure."""
    with as_before():
        module, observer, result = observed(case.text)
        shown, check = repr(result), observer.guards.compile()
        assert observer.impurities or check([]), observer.guards.why([])
        exec(case.change, vars(module))
        try:
            stays = repr(module.f()) == shown
        except Exception:
            stays = False
        assert stays or observer.impurities or not check([])


def is_told(case: Case) -> None:
    """The body is impure for the reason that the case names, with the line."""
    with as_before():
        module, observer = module_of(case.text), Observer([])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            observer.run(module.f)
        told = [i for i in observer.impurities if case.change.strip() in i.reason]
        assert told, [str(i) for i in observer.impurities]
        assert told[0].file == module.__file__
        assert told[0].line > 0


def is_pure(case: Case) -> None:
    """The body is pure and gives the same again."""
    with as_before():
        module, observer, result = observed(case.text)
        assert not observer.impurities, [str(i) for i in observer.impurities]
        assert repr(module.f()) == repr(result)
        assert observer.guards.compile()([]), observer.guards.why([])
