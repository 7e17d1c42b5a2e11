"""Describe how a sequence of deferred ops differs from an older one, in the user's terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..entry import Literal
from ..reasons import explain_constant, explain_parameter, explain_shape
from .link import Link
from .operands import INEXACT, Varying


def explain_new_sequence(end: Link) -> str | None:
    """Describe where the sequence that ends with `end` diverged from an older one; None: from none.

    One call may have several sequences, which begin at different lines: these are not compared.
    """
    for link in end.sequence():
        assert link.parent is not None
        older = link.parent.children[: link.parent.children.index(link)]
        similar = [other for other in older if other.op is link.op and other.source == link.source]
        if similar or (older and link.index):
            return _difference((similar or older)[-1], link)
    return None


def _difference(older: Link, link: Link) -> str:
    if older.op is not link.op or older.arity != link.arity:
        return f"{_shown(link)} comes where {_shown(older)} was recorded"
    if older.params != link.params:
        return explain_parameter(older, link.params or {})
    for was, now in zip(older.args, link.args):
        if isinstance(was, Literal) and isinstance(now, Varying):
            return f"{_name(link)} has another number than {was}; it is an input now"
        if isinstance(was, Literal) and isinstance(now, Literal) and not was.matches(now.array):
            return explain_constant(older, replace(was, raw=None) if was.raw is INEXACT else was, now.array)
    for before, after in zip(older.feeds, link.feeds):
        if before.spec.shape != after.spec.shape:
            return explain_shape(link.source, before.spec, after.spec)
        if before.spec != after.spec:
            return f"{_name(link)} is given {after.spec}, recorded was {before.spec}"
    return f"{_name(link)} is given other results than recorded"


def _name(link: Link) -> str:
    assert link.op is not None
    return f"{link.op.name} at {link.source}"


def _shown(link: Link) -> Any:
    params = "".join(f", {key}={value}" for key, value in (link.params or {}).items())
    return f"{_name(link)}{params and ' with ' + params[2:]}"
