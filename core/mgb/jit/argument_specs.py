"""Types in place of arguments: what `compile`, `export` and the command line accept."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import ConversionError, TraceInputError
from ..ir import Spec, dtypes
from ..tensor import Tensor
from .tree import LEAF, flatten

_SHORT = {dtypes.short(d): d.name for d in dtypes.BY_NAME.values()}

#: As NumPy allows.
MOST_AXES = 64

_TEXT = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*")


def spec_of(text: str) -> Spec:
    """Parse a type such as ``"f32[64,784]"`` or ``"int32[]"``.

    Raises
    ------
    TraceInputError
    """
    found = _TEXT.fullmatch(text)
    try:
        if found is None:
            raise ValueError("it is not a dtype with lengths in brackets")
        lengths = [int(n) for n in found[2].split(",") if n.strip()]
        if any(n < 0 for n in lengths):
            raise ValueError("a length is negative")
        dtype = dtypes.as_dtype(_SHORT.get(found[1], found[1]))
        if len(lengths) > MOST_AXES:
            raise ValueError(f"it has more than {MOST_AXES} axes")
        if dtype.itemsize * math.prod(n for n in lengths if n) > sys.maxsize:
            raise ValueError("no memory holds so many elements")
        return Spec(tuple(lengths), dtype)
    except (ValueError, ConversionError) as error:
        raise TraceInputError(f"{text!r} is not a type: {error}; write it as 'f32[64,784]'") from error


def make_placeholders(arguments: Any) -> Any:
    """Return `arguments` with a Tensor of undefined value in place of each type among them.

    A `Spec` and a string with brackets are types; a Tensor stands for its type. Other values stay themselves.

    Raises
    ------
    TraceInputError
    """
    leaves, structure = flatten(arguments)
    return structure.build(iter([_make_placeholder(leaf) for leaf in leaves]))


def _make_placeholder(leaf: Any) -> Any:
    if isinstance(leaf, str) and "[" in leaf:
        leaf = spec_of(leaf)
    if isinstance(leaf, Tensor):
        leaf = leaf.spec
    if not isinstance(leaf, Spec):
        return leaf
    try:
        return Tensor(np.empty(leaf.shape, leaf.dtype), leaf.dtype, leaf.device)
    except (MemoryError, ValueError) as error:
        raise TraceInputError(f"{leaf} is an argument that cannot be made here: {error}") from error


def names_of_tensors(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[str]:
    """Yield for each Tensor among the positional arguments the name of its parameter: ``x``, ``pair[0]``."""
    plain = [
        p.name for p in parameters_of(function) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    for number, value in enumerate(args):
        name = plain[number] if number < len(plain) else f"arg_{number}"
        leaves, structure = flatten(value)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                yield name if structure == LEAF else f"{name}[{index}]"


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of `function`; an empty list if they are unknown."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # of some functions in C
        return []
