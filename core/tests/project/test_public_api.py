"""Public names of an earlier version stay, and calls that were valid for them are valid."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mgb
import pytest

#: A line for each name of the first public version, with its signature as it was.
FORMER = (Path(__file__).parent / "public_api.txt").read_text().splitlines()

#: Parameters that changed on purpose, by the name before the bracket.
CHANGED = {
    "mgb.backend.Traits": dict.fromkeys(
        "joins launch_graphs hands_over products min_ops max_inputs short_folds ieee denormals "
        "priority".split(),
        "by keyword: fields were added before it; `short_folds` is `short_rows`, which counts rows",
    ),
    "mgb.distributed.functional.remote_recv": {"shape": "() is a shape: None says that none is given"},
    "mgb.functional.ones": {"dtype": "None is the default dtype, float32 at first"},
    "mgb.functional.zeros": {"dtype": "None is the default dtype, float32 at first"},
}

_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CATCHING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN = (str, int, float, bool, type(None), tuple)


def find(path: str) -> Any:
    """The thing of a dotted name; a class comes before a module of its name."""
    found: Any = mgb
    for at, name in enumerate(path.split(".")[1:], 1):
        found = getattr(found, name, None) or importlib.import_module(".".join(path.split(".")[: at + 1]))
    return found


def former_signature(text: str) -> inspect.Signature:
    scope: dict[str, Any] = {"nan": float("nan"), "inf": float("inf")}
    exec(f"def former{text}: ...", scope)
    return inspect.signature(scope["former"])


def differences(name: str, former: inspect.Signature, now: inspect.Signature) -> Iterator[str]:
    """What a call that was valid stumbles over."""
    left = {n: p for n, p in former.parameters.items() if p.kind not in _CATCHING}
    positional = [n for n, p in now.parameters.items() if p.kind in _POSITIONAL]
    kinds = {p.kind for p in now.parameters.values()}
    accepted = CHANGED.get(name, {})
    for place, (n, p) in enumerate(left.items()):
        if n in accepted:
            continue
        if n in now.parameters:
            yield from changes_of_default(n, p.default, now.parameters[n].default)
        elif p.kind is not p.POSITIONAL_ONLY and p.VAR_KEYWORD not in kinds:
            yield f"{n} is gone"
            continue
        if p.kind in _POSITIONAL and p.VAR_POSITIONAL not in kinds and positional[place : place + 1] != [n]:
            yield f"{n} was number {place}"
    for n, p in now.parameters.items():
        if n not in former.parameters and p.default is _EMPTY and p.kind not in _CATCHING:
            yield f"{n} is required"


def changes_of_default(name: str, former: Any, now: Any) -> Iterator[str]:
    if former is not _EMPTY and now is _EMPTY:
        yield f"{name} has no default"
    elif isinstance(former, _PLAIN) and repr(former) != repr(now):
        yield f"{name} defaults to {now!r}, which was {former!r}"


@pytest.mark.parametrize("line", FORMER, ids=[line.partition("(")[0] for line in FORMER])
def test_former_name_serves_the_calls_that_it_served(line: str) -> None:
    name, bracket, rest = line.partition("(")
    now = find(name)
    if bracket and callable(now):
        found = list(differences(name, former_signature(bracket + rest), inspect.signature(now)))
        assert not found, f"{name}{inspect.signature(now)}: {', '.join(found)}"


def test_every_change_is_of_a_name_that_is_listed() -> None:
    assert CHANGED.keys() <= {line.partition("(")[0] for line in FORMER}


@pytest.mark.parametrize(
    "former, now, found",
    [
        ("(x, y)", "(x)", ["y is gone"]),
        ("(x, y=1)", "(x, y=2)", ["y defaults to 2, which was 1"]),
        ("(x, y=1)", "(x, y)", ["y has no default"]),
        ("(x, y)", "(y, x)", ["x was number 0", "y was number 1"]),
        ("(x)", "(x, y)", ["y is required"]),
        ("(x, y=1)", "(x, *, y=1)", ["y was number 1"]),
        ("(x, y=1)", "(x, y=1, *, z=2)", []),
        ("(x, y=1)", "(*args, **kwargs)", []),
    ],
)
def test_check_finds_what_breaks_a_call(former: str, now: str, found: list[str]) -> None:
    assert list(differences("name", former_signature(former), former_signature(now))) == found
