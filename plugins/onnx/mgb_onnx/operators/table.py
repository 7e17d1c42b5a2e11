"""The table of operators: one row for each ONNX operator that mgb spells itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Row:
    """How one operator is computed.

    Attributes
    ----------
    function : callable
        ``(*inputs, **attributes)``; an input that the node leaves out is None. One result, or a tuple.
    kinds : tuple of str
        For each input how it is given: ``"Tensor"``, ``"Host"`` (an array; a Tensor is read) or ``"Value"``
        (as it is). They are the annotations of the function's parameters.
    rest : str or None
        The same for any further inputs; None: there are none.
    attributes : frozenset of str
        The names that it knows.
    needs_count : bool
        Is the number of results that the node names passed as ``wanted``?
    folds : bool
        May it be worked out before the model runs, where all inputs are known by then?
    """

    function: Callable[..., Any]
    kinds: tuple[str, ...]
    rest: str | None
    attributes: frozenset[str]
    needs_count: bool
    folds: bool


#: By (domain, operator); the domain of ONNX itself is "".
TABLE: dict[tuple[str, str], Row] = {}

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def operator(*names: str, folds: bool = True) -> Callable[[Function], Function]:
    """Declare that the decorated function computes the ONNX operators `names`."""

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        variadic = [_kind(p) for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
        accepted = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL}
        row = Row(
            function,
            tuple(_kind(p) for p in parameters if p.kind in _POSITIONAL),
            variadic[0] if variadic else None,
            frozenset(accepted - {"wanted"}),
            "wanted" in accepted,
            folds,
        )
        for name in names:
            assert ("", name) not in TABLE, f"{name} has two rows"
            TABLE["", name] = row
        return function

    return decorate


def _kind(parameter: inspect.Parameter) -> str:
    """Return ``Tensor`` for ``Tensor | None``: what is left out stays None."""
    kind = str(parameter.annotation).split(" ", maxsplit=1)[0]
    assert kind in ("Tensor", "Host", "Value"), f"{parameter.name} is annotated as {kind}"
    return kind
