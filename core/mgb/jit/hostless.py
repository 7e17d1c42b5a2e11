"""A call that skips the Python body: feed the inputs, run the program, hand out the results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import TraceOutputError
from ..tensor import Tensor, wrap
from .record import Binding, External, external_ref
from .tree import Structure, flatten
from .variant import Variant

Feeder = Callable[[Sequence[Any]], Any]


class HostlessCall:
    """A recorded call that is replayed without its body.

    Parameters
    ----------
    variant : Variant
        Of a single segment.
    structure : Structure
        How the result was nested.
    results : tuple
        For each leaf of the result: the ref of its value, or None for None.
    """

    def __init__(self, variant: Variant, structure: Structure, results: tuple[int | None, ...]) -> None:
        self.variant = variant
        self._structure = structure
        self._results = results
        self._feeders = [feeder(e) for e in variant.record.externals]
        self._specs = [(e.node.spec.shape, e.node.spec.dtype) for e in variant.record.externals]
        self._devices = {s: variant.record.entries[s].spec.device for s in variant.segments[0].outputs}
        self._targets = [(target(b), b.step, b.is_grad) for b in variant.record.bindings]

    def fits(self, fed: Sequence[Any]) -> bool:
        """Do the values that are no arguments still have the recorded specs?"""
        return all(a.shape == s and a.dtype == d for a, (s, d) in zip(fed, self._specs, strict=True))

    def feed(self, leaves: Sequence[Any]) -> list[Any]:
        """The arrays of all external inputs, now."""
        return [f(leaves) for f in self._feeders]

    def run(self, leaves: Sequence[Any], fed: list[Any]) -> Any:
        """One call."""
        values: dict[int, Any] = {}
        self.variant.run(0, fed, values)
        for find, step, is_grad in self._targets:
            tensor = find(leaves)
            if tensor is not None:
                new = wrap(values[step], self._devices[step])
                if is_grad:
                    tensor.grad = new
                else:
                    tensor._reset(new)
        return self._structure.build(iter([self._result(r, fed, values) for r in self._results]))

    def _result(self, ref: int | None, fed: Sequence[Any], values: dict[int, Any]) -> Tensor | None:
        if ref is None:
            return None
        if ref >= 0:
            return wrap(values[ref], self._devices[ref])
        return wrap(fed[-1 - ref], self.variant.record.externals[-1 - ref].node.spec.device)


def feeder(external: External) -> Feeder:
    """How the value of `external` is found at each call."""
    if external.leaf is not None:
        leaf = external.leaf
        return lambda leaves: leaves[leaf]._data
    if external.origin is not None:
        origin = external.origin
        return lambda leaves: np.float32(origin())[...]
    owner = external.owner
    assert owner is not None
    kept = owner()
    assert kept is not None
    return lambda leaves: kept._data


def target(binding: Binding) -> Callable[[Sequence[Any]], Tensor | None]:
    """How the Tensor that takes a new value is found at each call."""
    if binding.leaf is not None:
        leaf = binding.leaf
        return lambda leaves: leaves[leaf]  # type: ignore[no-any-return]
    owner: weakref.ref[Tensor] = binding.owner
    return lambda leaves: owner()


def results_of(result: Any, session: Any, externals: Sequence[Any]) -> tuple[Structure, tuple[int | None, ...]]:
    """How the result of the first call is nested and where each of its values comes from.

    Raises
    ------
    TraceOutputError
        Something in it is neither a Tensor of this trace nor None.
    """
    leaves, structure = flatten(result)
    numbers = {id(a): n for n, a in enumerate(externals)}
    refs: list[int | None] = []
    for leaf in leaves:
        if leaf is None:
            refs.append(None)
        elif isinstance(leaf, Tensor) and leaf._session is session:
            refs.append(leaf._index)
        elif isinstance(leaf, Tensor) and id(leaf._data) in numbers:
            refs.append(external_ref(numbers[id(leaf._data)]))
        else:
            raise TraceOutputError(
                f"return value of traced function must be tensor, get {type(leaf).__name__}: a value that Python "
                "computes would be frozen at its first value; return Tensors, or use trace(without_host=False)"
            )
    return structure, tuple(refs)
