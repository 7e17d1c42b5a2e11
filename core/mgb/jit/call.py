"""A call that skips the Python body: feed the inputs, run the program, hand out the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..forking import cached_property
from ..scalars import FOLLOWED
from .environment import Impurity
from .guard import MISS
from .record import End
from .tree import Structure
from .variant import Variant
from .writer import Sketch, Writer, sketched


class CompiledCall:
    """A recorded call, replayed by a generated function: guards first, then feed, run, hand out.

    Parameters
    ----------
    variant : Variant
        Of a single segment.
    leaves : sequence
        The flattened arguments of the recorded call; those that are no Tensors are kept, since they are in
        its key.
    structure : Structure
        How the result was nested.
    results : tuple
        For each leaf of the result: the ref of its value, or None for None.

    Attributes
    ----------
    kept : list
        Those leaves that the function does not look at: no Tensors, and no numbers if it serves any.
    """

    def __init__(
        self,
        variant: Variant,
        leaves: Sequence[Any],
        structure: Structure,
        results: tuple[End, ...],
    ) -> None:
        self.variant = variant
        self.structure, self.results = structure, results
        self._leaves = sketched(leaves)
        asked = FOLLOWED if variant.outline.follows else ()
        self.kept = [x for x in self._leaves if not isinstance(x, Sketch) and type(x) not in asked]

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """``run(leaves)``: the result, or `MISS` when they are not those of this call."""
        if self.variant.outline.gone() is not None:  # a Tensor that it used: no call is like it any more
            return lambda leaves: MISS
        program, reads = self.variant.program(0) if self.variant.segments[0].outputs else (None, ())
        writer = Writer(self.variant, program, reads)
        self.source, run = writer.write(self._leaves, self.structure, self.results)
        return run

    def prepare(self) -> None:
        """Compile now: what `run` does when it is asked for first, which one thread must do alone."""
        _ = self.run

    def resized(self, leaves: Sequence[Any]) -> CompiledCall | None:
        """The call for arguments of other lengths, if the body would do the same with them."""
        variant = self.variant.resized(leaves)
        return None if variant is None else CompiledCall(variant, leaves, self.structure, self.results)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call that was recorded: what it gave, and what serves others like it.

    Attributes
    ----------
    call : CompiledCall or None
        None: the body must run at each call, because of the `impurities`.
    """

    result: Any
    variant: Variant
    call: CompiledCall | None
    impurities: Sequence[Impurity] = ()
