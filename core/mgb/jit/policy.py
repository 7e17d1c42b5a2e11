"""What a recording does with ops, with values that the body looks at, and with Tensors outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import TraceError


@dataclass(frozen=True, slots=True)
class Policy:
    """How a call is recorded: `trace` in its modes, `partial_trace` and `xla_trace` differ in this.

    Attributes
    ----------
    runs : bool
        Each op runs when it is recorded; else ops are only noted.
    gives : bool
        The call gives values: what a shape depends on is computed though nothing else is.
    skips : bool
        The body need not run again, if it is watched and does nothing that is against that.
    freezes : bool
        What is no argument, nor in one, is a constant, and so is what the result holds.
    symbolic_shape : bool
        Shapes are Tensors in the body.
    follows : bool
        The lengths of arguments are followed, so that the record serves others.
    mesh : int
        How many devices run the program at once, and exchange values; 0: it is for one.
    refused : callable, optional
        For what needs a value in the body, in words, the error that is raised; None: that is a cut.
    """

    runs: bool = False
    gives: bool = False
    skips: bool = True
    freezes: bool = False
    symbolic_shape: bool = False
    follows: bool = False
    mesh: int = 0
    refused: Callable[[str], TraceError] | None = None
