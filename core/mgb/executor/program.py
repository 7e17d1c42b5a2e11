"""A Program: a compiled graph, as a straight-line Python function over arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backends import Backend, Kernel
from ..fusion import Step
from ..ir import Graph, Spec
from ..ir.sizes import At, Lengths, plain
from ..runtime.forking import cached_property
from .plan import MemoryPlan
from .resized import Resizer, Stages, spec_at
from .routine import Routine
from .schedule import Call, is_loop


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
    at : callable, optional
        Other lengths for those that `stages` have.

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
        `runtime.ownership.owned_alone`. Before the first one is, `arrays` is emptied: a call that raises and
        leaves it full has changed nothing, and after one that leaves it empty each input that is replaced is
        as it was or has its new value, whole. Several threads may call it at once. One that was compiled with
        `into` takes the arrays of its results as well, and gives nothing.
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
        at: At = plain,
    ) -> None:
        self._sized, self._routine, self._fits, self._at = stages, routine, fits, at
        self.kernels, self.backend, self.planned_bytes = kernels, backend, planned_bytes
        self.source = routine.source
        self.call: Callable[..., tuple[Any, ...]] = routine.function(self._at)

    @property
    def is_resizable(self) -> bool:
        """Return whether it may serve other lengths."""
        return self._fits is not None

    def resized(self, values: Sequence[int]) -> Program | None:
        """Return the program for arguments of other lengths, if what was decided holds for them."""
        if self._fits is None or not self._fits(values):
            return None
        sizes = self._sized.recorded.sizes
        return self if sizes is None else self.at(Lengths(sizes, values))

    def at(self, at: At) -> Program:
        """Return the program where lengths are those of `at`, for which what was decided holds."""
        if at is self._at or self._sized.recorded.sizes is None:
            return self
        stages, planned = self._sized, self.planned_bytes
        return Program(stages, self._routine, self.kernels, self.backend, planned, self._fits, at)

    @cached_property
    def _stages(self) -> Stages:
        sized = self._sized.recorded.sizes is not None
        return Resizer(self._at).stages(self._sized) if sized else self._sized

    @property
    def recorded(self) -> Graph:
        """The graph as it was recorded."""
        return self._stages.recorded

    @property
    def simplified(self) -> Graph:
        """The graph after the passes."""
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
        """Return where results lie."""
        return self._stages.memory_plan

    @property
    def updates(self) -> frozenset[int]:
        """The inputs that may be written over."""
        return self._sized.memory_plan.updates

    def run(self, *arrays: Any) -> tuple[Any, ...]:
        """Return `call`, with the arrays one by one; nothing is ever written in place."""
        return self.call(list(arrays))  # with `arrays` a second holder

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """The specs of the inputs."""
        return tuple(spec_at(n.spec, self._at) for n in self._sized.recorded.inputs)

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """The specs of the outputs."""
        return tuple(spec_at(n.spec, self._at) for n in self._sized.recorded.outputs)

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of the backends that compiled a step, those in loops among them."""
        found = [s.backend for s in self.steps if s.backend is not None]
        loops = [k for s, k in zip(self.steps, self.kernels, strict=True) if is_loop(s)]
        found += [name for k in loops if k is not None for program in k.state for name in program.backends]
        return tuple(dict.fromkeys(found))

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
            head = f"step {number}: {f'fused by {step.backend}' if step.fused else step.by}"
            lines.append(head + (f" ({step.reason})" if step.reason else ""))
            lines += [f"  {line}" for line in str(step.graph).splitlines()]
        lines += self._expectations()
        return "\n".join([*lines, self.joined, str(self.memory_plan), self.source])

    def _expectations(self) -> list[str]:
        """Return the backend's predictions for its kernels, one line each."""
        if self.backend is None:
            return []
        said = [(n, self.backend.expectation(k)) for n, k in enumerate(self.kernels) if k is not None]
        return [f"kernel {number}: {text}" for number, text in said if text]
