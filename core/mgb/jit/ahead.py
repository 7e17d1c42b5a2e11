"""`compile` and `export`: what a traced function needs, made before it is called, and kept in a file."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..errors import ExportError
from ..executor import Options, Program
from ..ir import Graph
from ..tensor import Tensor, active_trace
from .argument_specs import stand_ins
from .arguments import check_tensors, key_of, shapes_of
from .call import CompiledCall, Recorded
from .capture import note
from .captured import Captured, check_pure, graph_of
from .environment import Observer
from .policy import Policy
from .recording import Recording
from .statistics import Statistics
from .tree import LEAF, flatten
from .variant import Compile, Variant
from .variants import Variants


class AheadOfTime(ABC):
    """A traced function that is compiled without being run."""

    __name__: str
    __wrapped__: Callable[..., Any]
    capture_as_const: bool
    record_only: bool
    options: Options
    _statistics: Statistics
    _captured: Captured | None
    _compiler: Compile
    _lock: AbstractContextManager[Any]
    _skips: bool

    @abstractmethod
    def _variants_of(self, taped: bool, args: Any, kwargs: Any) -> Variants:
        """What calls like it are matched against, where the body runs."""

    @abstractmethod
    def _observer(self, leaves: list[Any]) -> Observer:
        """What watches a call with these arguments."""

    @abstractmethod
    def _policy(self, freezes: bool) -> Policy:
        """How a call is only noted."""

    @abstractmethod
    def _session(
        self, args: Any, kwargs: Any, leaves: list[Any], policy: Policy, observer: Observer | None
    ) -> Recording:
        """What records a call."""

    @abstractmethod
    def _compile(self, graph: Graph, updates: Mapping[int, int]) -> Program:
        """Compile with this function's options, and count it."""

    @abstractmethod
    def _body_with(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The body and what it is given by position."""

    @abstractmethod
    def _keep(self, key: Any, leaves: list[Any], shapes: Any, recorded: Recorded) -> None:
        """Keep what was recorded, for calls like it."""

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile a call without running its ops; the next one like it compiles nothing.

        The body runs, as it does when a call is recorded, on Tensors without values. No Tensor outside is
        changed.

        Parameters
        ----------
        *args, **kwargs
            What the function takes. For a Tensor its type does: a Tensor of that type, a `Spec`, or a text
            such as ``"f32[64,784]"``.

        Raises
        ------
        ArgumentSpecError
            A text that is no type.
        SymbolicReadError
            The body looks at values, which only a call that runs has.
        ExportError
            The trace only records, or this is called inside another one.
        """
        if self.record_only:
            raise ExportError(
                f"{self.__name__} only records: trace it without record_only=True to compile it"
            )
        _check_outside()
        args, kwargs = stand_ins((args, kwargs))
        if self.capture_as_const:
            check_tensors(args)
        leaves, structure = flatten((args, kwargs))
        shapes = shapes_of(args, kwargs)
        with self._lock:
            observer = self._observer(leaves) if self._skips else None
            policy = self._policy(freezes=self.capture_as_const)
            session = self._session(args, kwargs, leaves, policy, observer)
            note(session, self._body_with(args), kwargs)
            session.check_changes()
            variant = Variant(session.record, self._compiler)
            for number, segment in enumerate(variant.segments):
                if segment.outputs:
                    variant.program(number)
            self._statistics.recorded()
            if observer is None:
                self._variants_of(False, args, kwargs).keep(shapes, variant)
            else:
                call = CompiledCall(variant, leaves) if session.is_pure else None
                recorded = Recorded(None, variant, call, observer.impurities)
                self._keep(key_of(leaves, structure), leaves, shapes, recorded)

    def export(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Write a file that `load_compiled` runs where no compiler is: the graph, its constants, its kernels.

        Tensors from outside, such as Parameters, become constants with the values that they have now. Shapes
        are those of the arguments. A processor that lacks what this one has, or another version of mgb, makes
        it compile again. The file holds machine code: load only files that you trust.

        Parameters
        ----------
        path : path
            A file there is replaced in one go, or stays as it was.
        *args, **kwargs
            As for `compile`. Left out, they are those of the latest call that was recorded, if the trace has
            ``capture_as_const=True``. Arguments that are not Tensors are frozen too.

        Raises
        ------
        ExportError
            Nothing says what the arguments are, or a parameter of an op is nothing that a file can hold.
        DumpTrainingError, DumpStateError, DumpOutputError
            The function changes Tensors outside, looks at values, or returns something else than Tensors in a
            flat container: what `dump` refuses too.
        """
        from .exported import write

        captured, names = self._to_export(args, kwargs)
        check_pure(captured.record)
        graph, ends = graph_of(captured, names, None, 1)
        write(path, self.__name__, graph, ends, self._compile(graph, {}), self.options)

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]:
        if not args and not kwargs:
            if self.capture_as_const and self._captured is not None:
                return self._captured, None
            if _parameters(self.__wrapped__):
                raise ExportError(
                    f"say the types of the arguments of {self.__name__}, as in export(path, 'f32[64,784]')"
                )
        args, kwargs = stand_ins((args, kwargs))
        _check_outside()
        session = self._session(args, kwargs, flatten((args, kwargs))[0], self._policy(freezes=True), None)
        note(session, self._body_with(args), kwargs)
        if session.record.ends is None:
            raise ExportError(
                f"{self.__name__} looks at values: what Python makes of them would be frozen in the file; "
                "compute it with ops"
            )
        return Captured.of(args, kwargs, session.record), list(_names(self.__wrapped__, args))


def _check_outside() -> None:
    if active_trace() is not None:
        raise ExportError("a function is compiled or exported outside of any trace: call it there")


def _names(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[str]:
    """For each Tensor among the positional arguments the name of its parameter: ``x``, ``pair[0]``."""
    plain = [p.name for p in _parameters(function) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for number, value in enumerate(args):
        name = plain[number] if number < len(plain) else f"arg_{number}"
        leaves, structure = flatten(value)
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                yield name if structure == LEAF else f"{name}[{place}]"


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # of some functions in C it is not known
        return []
