"""Calls of a compiled program: arrays in, arrays out, no copies where memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any

import numpy as np
from mgb.backends import Adopted, adopter
from mgb.ir import Node

from .client import calling, one
from .program import Program, eager
from .target import DONATE

#: A result, and the array whose memory it takes over.
Taken = list[tuple[int, Any]]


class DonationError(RuntimeError):
    """A call failed when XLA had taken the memory of parameters; the message says which values are lost."""


class Launcher:
    """The function of a kernel.

    Results stay in the memory that XLA gave them, as arrays that keep it alive. Such an array is handed to
    the next program as what JAX knows it by, which costs less than an array from elsewhere, and its memory
    may be taken over by a result.

    Parameters
    ----------
    program : Program
    compiled : jax.stages.Compiled
        Of `program`.
    """

    def __init__(self, program: Program, compiled: Any) -> None:
        self._program, self._compiled = program, compiled
        self._call: Callable[..., Any] = compiled  # until it was called once
        places = {node: k for k, node in enumerate(program.results)}
        self._takes = {node: k for k, node in enumerate(program.graph.inputs)}
        self._wrap = [adopter(n.spec.shape, n.spec.dtype) for n in program.results]
        self._order = [places.get(n, -1) for n in program.graph.outputs]
        self._is_plain = self._order == list(range(len(places)))
        self._is_wide = any(n.spec.dtype.itemsize == 8 for n in program.graph.inputs)
        self._checks, self._replaces = program.checks, program.replaces
        self._one, self._calling = one(), calling()

    def run(self, *arrays: Any, out: tuple[Any, ...]) -> None:
        """Fill `out`."""
        for target, value in zip(out, self.results(*arrays), strict=True):
            target[...] = value

    def results(self, *arrays: Any, spare: tuple[bool, ...] = ()) -> tuple[Any, ...]:
        """Return the results, as `mgb.backends.Kernel.results`.

        Raises
        ------
        IndexError
            An index is out of range.
        DonationError
            XLA failed, and has not given back the memory of a parameter.
        ForkedProcessError
            See there.
        """
        given = [a.base.owner if isinstance(a.base, Adopted) else a for a in arrays]
        taken = self._taken(arrays, given, spare) if self._replaces else []
        given.append(self._one)
        box: list[tuple[Any, ...]] = []
        try:
            # In one call of C: when a signal arrives, either nothing has run or `box` holds the results.
            with self._calling(self._is_wide and any(type(a) is np.ndarray for a in given)):
                box.extend(starmap(self._call, (given,)))
            for found in box:
                found[-1].block_until_ready()
        except Exception as error:
            _rescue(taken, error)
            raise
        finally:
            if box:
                for k, array in taken:
                    _hand_over(array, box[0][k])
        return self._wrapped(arrays, box[0], taken)

    def _taken(self, arrays: Any, given: list[Any], spare: tuple[bool, ...]) -> Taken:
        """Return the results that take over memory, and whose; other inputs go in as what XLA must copy."""
        taken = []
        is_warm = self._call is not self._compiled
        for k, (_, place) in enumerate(self._replaces):
            if spare and spare[k] and is_warm and given[place] is not arrays[place]:
                taken.append((k, arrays[place]))
            else:
                given[place] = arrays[place]
        return taken

    def _wrapped(self, arrays: Any, found: tuple[Any, ...], taken: Taken) -> tuple[Any, ...]:
        if self._call is self._compiled:
            self._call = getattr(self._compiled, "_call", None) or self._compiled
        if self._checks and _flag(found[-1].unsafe_buffer_pointer(), found[-1]):
            eager(self._program.graph, arrays)
            raise IndexError("an index is out of range")
        kept = {k: array for k, array in taken if isinstance(array.base, Adopted)} if taken else _NONE
        wrapped = [
            kept[k] if k in kept else wrap(array.unsafe_buffer_pointer(), array)
            for k, (wrap, array) in enumerate(zip(self._wrap, found))
        ]
        return tuple(wrapped) if self._is_plain else self._arranged(arrays, wrapped)

    def _arranged(self, arrays: Any, wrapped: list[Any]) -> tuple[Any, ...]:
        """Return results in the order of the outputs; copies of what occurs twice, or is an input."""
        seen: set[int] = set()
        out = []
        outputs: tuple[Node, ...] = self._program.graph.outputs
        for place, node in zip(self._order, outputs, strict=True):
            value = arrays[self._takes[node]] if place < 0 else wrapped[place]
            out.append(np.array(value) if place < 0 or place in seen else value)
            seen.add(place)
        return tuple(out)


def _hand_over(array: Any, new: Any) -> None:
    """Let `array` keep what took its memory; a copy, where that went elsewhere."""
    if array.base.address == new.unsafe_buffer_pointer():
        array.base.owner = new
    else:
        _renew(array, np.asarray(new))


def _rescue(taken: Taken, error: Exception) -> None:
    """Give arrays whose memory XLA has not returned after a failure their own memory, and NaN or 0."""
    lost = [array for _, array in taken if array.base.owner.is_deleted()]
    taken.clear()
    for array in lost:
        _renew(array, np.full(array.shape, np.nan if array.dtype.kind in "fV" else 0, array.dtype))
    if lost:
        kinds = ", ".join(f"{array.dtype}{list(array.shape)}" for array in lost)
        raise DonationError(
            f"XLA failed when it had taken the memory of {len(lost)} parameters ({kinds}), "
            "which are NaN or 0 now: load their values again, from a checkpoint for one; "
            f"with {DONATE.name}=0 a call that fails changes nothing"
        ) from error


def _renew(array: Any, values: Any) -> None:
    """Give the very array other memory: that which it lies on may be gone."""
    array.__setstate__((1, array.shape, array.dtype, False, values.tobytes()))


_NONE: dict[int, Any] = {}
_flag = adopter((), np.dtype(np.bool_))
