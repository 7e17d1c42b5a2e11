"""Refusals: effects that end a call with symbolic numbers, as they cannot be undone or followed."""

from __future__ import annotations

import dis
import warnings
from collections import deque
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ..watch import pure
from ..watch.names import names_of


class NotFollowed(BaseException):
    """Raised when a body does what cannot be undone, or needs the plain value of a symbolic number.

    It is no `Exception`, so that no body takes it for an error of its own.
    """


#: Methods that change an array otherwise than by its elements, or large ones.
_CHANGING_ARRAYS = frozenset(
    "resize fill sort partition put itemset setfield setflags byteswap __setitem__ __setstate__".split()
)
#: What methods in C change.
_CHANGEABLE = (list, dict, set, bytearray, deque)
#: Those that can always be undone.
_UNDONE = ((list, "append"), (dict, "setdefault"))
#: Attributes that Python code writes, and that are not locations.
_SPECIAL = frozenset(
    "__class__ __dict__ __bases__ __code__ __defaults__ __kwdefaults__ __closure__ __name__ __qualname__ "
    "__annotations__ __doc__ shape dtype strides writeable flat real imag".split()
)
#: How code deletes what may stand outside.
_DELETING = frozenset({"DELETE_ATTR", "DELETE_DEREF", "DELETE_GLOBAL"})


def changes_for_good(owner: Any, name: str) -> bool:
    """Return whether a method in C changes its owner in a way that cannot always be undone."""
    if isinstance(owner, np.ndarray):
        return name in _CHANGING_ARRAYS
    if (type(owner), name) in _UNDONE:
        return False
    return isinstance(owner, _CHANGEABLE) and not pure.only_reads(owner, name)


def writes_for_good(code: CodeType) -> bool:
    """Return whether code writes what cannot be written back, or deletes outside attributes or variables."""
    return names_of(code).stored != {} and any(
        step.opname in _DELETING or (step.opname == "STORE_ATTR" and step.argval in _SPECIAL)
        for step in dis.get_instructions(code)
    )


def asks_what_it_is(code: CodeType) -> bool:
    """Return whether code asks for types or identities, which only hooks report."""
    if "type" in code.co_names:
        return True
    steps = list(dis.get_instructions(code))
    return any(then.opname == "IS_OP" and step.opname != "LOAD_CONST" for step, then in pairwise(steps))


def forget_warning(frame: FrameType) -> None:
    """Forget a warning that is about to be shown, so that it is shown when it comes."""
    message = frame.f_locals["msg"]
    text, kind = str(message.message), message.category
    above: FrameType | None = frame
    while above is not None:
        registry = above.f_globals.get("__warningregistry__", {})
        if above.f_code.co_filename == message.filename:
            registry.pop((text, kind, message.lineno), None)
            registry.pop((text, kind, 0), None)
        above = above.f_back
    getattr(warnings, "onceregistry", {}).pop((text, kind), None)
