"""Axes whose lengths a file leaves open: their names, and what is recorded for other lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..errors import ArgumentError
from ..ir import Graph, Spec
from .model_file import Ends

DynamicAxes = Mapping[str, Mapping[int, str] | Sequence[int]]

#: Lengths that stand for any: none is a number that a model has for another reason. The third tests what
#: was found of the others.
_LENGTHS = ((37, 53, 71), (43, 59, 73), (41, 61, 79))


class Captured(Protocol):
    """A recorded call that becomes the graph of a file.

    Attributes
    ----------
    inputs : tuple
        For each argument that is a Tensor its index among the flattened arguments, its name if it was
        given by keyword, and its type.
    results : tuple
        What it gives; None for a leaf that is None.
    """

    @property
    def inputs(self) -> tuple[tuple[int, str | None, Spec], ...]: ...

    @property
    def results(self) -> tuple[Any, ...]: ...

    def check(self) -> None:
        """Refuse what a file cannot do."""

    def graph(self, arg_names: Any, output_names: Any, keep: int) -> tuple[Graph, Ends]:
        """Return the graph over all arguments, and the names of its ends."""

    def parameters(self) -> dict[str, Any]:
        """Return the Tensors of the holders that worked in it, by their names."""


class Recording(Protocol):
    """A traced function that can be recorded again."""

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]: ...


def named_axes(
    given: DynamicAxes | None, inputs: Sequence[str], specs: Sequence[Spec]
) -> dict[tuple[int, int], str]:
    """Return the names of the axes of inputs that are left open.

    Raises
    ------
    ArgumentError
        No input is called so, an input has no such axis, or there are too many names.
    """
    found: dict[tuple[int, int], str] = {}
    for name, axes in (given or {}).items():
        if name not in inputs:
            raise ArgumentError(f"dynamic_axes: no input is called {name!r}: they are {', '.join(inputs)}")
        place = list(inputs).index(name)
        count = specs[place].ndim
        named = axes if isinstance(axes, Mapping) else {a: f"{name}_{a % max(count, 1)}" for a in axes}
        for axis, text in named.items():
            if not isinstance(axis, int) or not -count <= axis < count:
                raise ArgumentError(
                    f"dynamic_axes: {name!r} of shape {specs[place].shape} has no axis {axis!r}"
                )
            if not isinstance(text, str) or not text.isidentifier():
                raise ArgumentError(f"dynamic_axes: {text!r} is not a name of a length: give an identifier")
            found[place, axis % count] = text
    if len(set(found.values())) > len(_LENGTHS):
        raise ArgumentError(f"dynamic_axes: lengths of {len(_LENGTHS)} names at most are left open")
    return found


def recorded_for(
    traced: Recording, captured: Captured, axes: Mapping[tuple[int, int], str]
) -> Iterator[tuple[dict[str, int], Captured]]:
    """Iterate over recordings for all corners of a box of lengths, and for one more set of them."""
    names = list(dict.fromkeys(axes.values()))
    if not names:
        return
    choices = list(itertools.product((0, 1), repeat=len(names)))
    for chosen in (*choices, (2,) * len(names)):
        lengths = {n: own[k] for n, own, k in zip(names, _LENGTHS, chosen)}
        args: list[Spec] = []
        kwargs: dict[str, Spec] = {}
        for place, (leaf, name, spec) in enumerate(captured.inputs):
            shape = tuple(lengths.get(axes.get((place, i), ""), d) for i, d in enumerate(spec.shape))
            other = Spec(shape, spec.dtype, spec.device)
            if name is None and leaf == len(args):
                args.append(other)
            elif name is not None and name.isidentifier():
                kwargs[name] = other
            else:
                raise ArgumentError("dynamic_axes= is for functions whose arguments are Tensors alone")
        found, _ = traced._to_export(tuple(args), kwargs)
        found.check()
        yield lengths, found
