"""A Program: a compiled graph, as a straight-line Python function over arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backend import Backend, Kernel
from ..forking import cached_property
from ..fusion import Step
from ..ir import Graph, Spec
from ..sizes import At, Lengths, plain
from .plan import MemoryPlan
from .resized import Resizer, Stages, sizes_of, spec_at
from .routine import Routine
from .schedule import Call


class Program:
    """A compiled graph, with what each stage made of it.

    Parameters
    ----------
    stages : Stages
        They may hold sizes.
    routine : Routine
    backend, kernels, planned_bytes
        As the attributes.
    fits : callable, optional
        Does what was decided hold for arguments of other lengths? Without it the program is for one set.
    values : sequence of int, optional
        Other values of the letters that `stages` have.

    Attributes
    ----------
    backend : Backend or None
        None: nothing was to be fused.
    kernels : tuple of Kernel or None
        For each step; None where it runs eagerly.
    source : str
        The text of `call`.
    call : callable
        ``call(arrays) -> tuple of arrays``, over a list of arrays as `inputs` says. An input that is to be
        replaced is written in place only if `arrays` and one owner are all that refers to it: see
        `mgb.ownership.owned_alone`. Before the first one is, `arrays` is emptied: a call that raises and
        leaves it full has changed nothing, and after one that leaves it empty each input that is replaced is
        as it was or has its new value, whole. Several threads may call it at once.
    planned_bytes : int or None
        What a call would hold at most if each step ran once; None: each does. See `executor.peak`.
    """

    def __init__(
        self,
        stages: Stages,
        routine: Routine,
        kernels: tuple[Kernel | None, ...],
        backend: Backend | None,
        planned_bytes: int | None = None,
        fits: Callable[[Sequence[int]], bool] | None = None,
        values: Sequence[int] | None = None,
    ) -> None:
        self._sized, self._routine, self._fits = stages, routine, fits
        sizes = sizes_of(stages.recorded)
        self._at: At = plain if sizes is None or values is None else Lengths(sizes, values)
        self.kernels, self.backend, self.planned_bytes = kernels, backend, planned_bytes
        self.source = routine.source
        self.call: Callable[[Sequence[Any]], tuple[Any, ...]] = routine.function(self._at)

    @property
    def is_resizable(self) -> bool:
        """May it serve other lengths?"""
        return self._fits is not None

    def resized(self, values: Sequence[int]) -> Program | None:
        """The program for arguments of other lengths, if what was decided holds for them."""
        if self._fits is None or not self._fits(values):
            return None
        if sizes_of(self._sized.recorded) is None:
            return self
        stages, planned = self._sized, self.planned_bytes
        return Program(stages, self._routine, self.kernels, self.backend, planned, self._fits, values)

    @cached_property
    def _stages(self) -> Stages:
        sized = sizes_of(self._sized.recorded) is not None
        return Resizer(self._at).stages(self._sized) if sized else self._sized

    @property
    def recorded(self) -> Graph:
        """What was to be computed."""
        return self._stages.recorded

    @property
    def simplified(self) -> Graph:
        """What the passes made of it."""
        return self._stages.simplified

    @property
    def steps(self) -> tuple[Step, ...]:
        """In the order in which they run."""
        return self._stages.steps

    @property
    def calls(self) -> tuple[Call, ...]:
        """The steps as they run: some share a call."""
        return self._stages.calls

    @property
    def memory_plan(self) -> MemoryPlan:
        """Where results lie."""
        return self._stages.memory_plan

    @property
    def updates(self) -> frozenset[int]:
        """The inputs that may be written over."""
        return self._sized.memory_plan.updates

    def run(self, *arrays: Any) -> tuple[Any, ...]:
        """`call`, with the arrays one by one; nothing is ever written in place."""
        return self.call(list(arrays))  # with `arrays` a second holder

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """What it takes."""
        return tuple(spec_at(n.spec, self._at) for n in self._sized.recorded.inputs)

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """What it gives."""
        return tuple(spec_at(n.spec, self._at) for n in self._sized.recorded.outputs)

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of the backends that compiled a step."""
        return tuple(dict.fromkeys(s.backend for s in self.steps if s.backend is not None))

    @property
    def joined(self) -> str:
        """In words: which steps share a call."""
        number = {id(step): n for n, step in enumerate(self.steps)}
        shared = [[number[id(s)] for s in c.steps] for c in self.calls if len(c.steps) > 1]
        texts = [f"steps {', '.join(map(str, sorted(steps)))} share one call" for steps in shared]
        return "; ".join(texts) or "each step has a call of its own"

    def __str__(self) -> str:
        lines = [f"program on {', '.join(self.backends) or 'no backend'}"]
        for number, step in enumerate(self.steps):
            head = f"step {number}: fused by {step.backend}" if step.fused else f"step {number}: eager"
            lines.append(head + (f" ({step.reason})" if step.reason else ""))
            lines += [f"  {line}" for line in str(step.graph).splitlines()]
        return "\n".join([*lines, self.joined, str(self.memory_plan), self.source])
