"""Recording policy: how a recording treats ops, values that the body reads, and captured Tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import TraceError


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a recording, in which the modes of `trace`, `partial_trace` and `xla_trace` differ.

    Attributes
    ----------
    runs : bool
        Each op runs when it is recorded; otherwise ops are only noted.
    gives : bool
        The call returns values: if ops are only noted, what a shape depends on is computed all the same.
    skips : bool
        Later calls skip the body, if it is observed and has no side effects.
    freezes : bool
        Tensors that are neither arguments nor in one are constants, and so are values in the result.
    symbolic_shape : bool
        Shapes are Tensors in the body.
    follows : bool
        The lengths of arguments are symbolic, so that the record serves other lengths.
    mesh : int
        The number of devices that run the program together and exchange values; 0: the program is for one.
    make_error : callable, optional
        Returns the error for a body that needs a value, given what it does as text; None: there is a cut.
    """

    runs: bool = False
    gives: bool = False
    skips: bool = True
    freezes: bool = False
    symbolic_shape: bool = False
    follows: bool = False
    mesh: int = 0
    make_error: Callable[[str], TraceError] | None = None
