"""`xla_trace`: a whole training step as one executable, which Python is out of."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import random
from ..apply import caller
from ..autodiff.stretch import recording
from ..errors import (
    CallerTapeError,
    ExportError,
    HeldConstantError,
    SymbolicReadError,
    TraceError,
    TraceInputError,
    UnknownInputError,
)
from ..forking import cached_property
from ..ir import Spec
from ..tensor import CONSTANT, Tensor, active_trace
from .argument_specs import stand_ins
from .arguments import key_of, shapes_of
from .belongings import Belongings
from .call import CompiledCall, Recorded
from .captured import Captured
from .environment import Observer
from .guard import MISS
from .guards import Constants
from .record import End, External, Literal, Ref
from .results import results_of
from .source import Source
from .trace import trace
from .tree import Structure, flatten
from .unrun import UnrunRecording
from .variant import Variant


class WholeRecording(UnrunRecording):
    """A recording that runs nothing, and in which all that comes from outside is an argument or in one.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    observer : Observer
    instance : object
        What the function is a method of; it counts as an argument, and is not kept alive.
    capture_as_const : bool
        Other Tensors are constants; without it, they are an error.
    """

    subject = "the function"

    def __init__(
        self, leaves: Sequence[Any], observer: Observer, instance: Any, *, capture_as_const: bool
    ) -> None:
        super().__init__(leaves, symbolic=True, capture_as_const=False, observer=observer)
        self.belongings = Belongings(leaves, instance)
        self._held: dict[int, Tensor] = {}  # Tensors from outside that are constants now
        self.surround(instance)
        self.takes_data = capture_as_const
        for module in self.belongings.modules:
            self.entered(module)

    def ref(self, tensor: Tensor) -> Ref:
        if self.takes_data and tensor._session is not self and tensor._index != CONSTANT:
            self.check_foreign(tensor)
            root = self._root(tensor)
            if id(tensor._data) not in self._origins and not self._is_known(root):
                made = id(tensor._data) in self._made
                if not made:
                    self._held[id(root)] = root
                owner = None if made else weakref.ref(root)
                return Literal(tensor._data, owner=owner, device=tensor._device)
        return super().ref(tensor)

    def forget(self) -> None:
        super().forget()
        self.belongings = Belongings(())
        self._states.clear()

    def _is_known(self, tensor: Tensor) -> bool:
        """Is it an argument, in one, the ``grad`` of such a Tensor, or the state of a generator?"""
        return self._belongs(tensor) or self._belongs(self._holders().get(id(tensor), tensor))

    def _belongs(self, tensor: Tensor) -> bool:
        return (
            id(tensor) in self._leaf_tensors
            or tensor in self.belongings
            or any(tensor is state for state in random.states())
        )

    def reading(self, what: str) -> TraceError:
        return SymbolicReadError(
            f"the function {what} at {caller()}, but it is compiled whole and Python does not run again: "
            "return the tensor and look at it outside, or compute with ops; of a step that must look at "
            "values, compile the parts by partial_trace"
        )

    def check_known(self) -> None:
        """Refuse what is neither an argument nor in one, and new values for what is constant."""
        for external in self.record.externals:
            if not self._is_argument(external):
                raise UnknownInputError(
                    f"have some unknown input tensors in trace result: the one used at {external.source} is "
                    "neither an argument nor part of a Module or Optimizer that is one. Pass it, or what "
                    "holds it, as an argument, or set `capture_as_const=True` to make it a constant"
                )
        for binding in self.record.bindings:
            held = self._held.get(id(binding.owner()))
            if held is not None and not binding.is_grad:
                raise HeldConstantError(
                    f"the function gives a tensor of {held.spec} from outside a new value, while "
                    "capture_as_const=True holds it constant: pass it, or the Module or Optimizer that it "
                    "belongs to, as an argument"
                )

    def _is_argument(self, external: External) -> bool:
        owner = external.owner() if external.owner is not None else None
        made = external.made is not None or external.path is not None
        told = external.leaf is not None or external.origin is not None or made
        return told or (owner is not None and self._belongs(owner))


class WholeCall(CompiledCall):
    """A `CompiledCall` that also asks whether Modules and Optimizers among the arguments are as they were."""

    guards: Sequence[Callable[[], str | None]] = ()

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """``run(leaves)``: the result, or `MISS` when they are not those of this call."""
        guards, run = tuple(self.guards), super().run
        if not guards:
            return run

        def guarded(leaves: Sequence[Any]) -> Any:
            for guard in guards:
                if guard() is not None:
                    return MISS
            return run(leaves)

        return guarded

    def changed(self) -> str | None:
        """What has changed in an argument or a constant, in words."""
        if not Constants(list(self.variant.record.captured.values()))():
            return "a Tensor that capture_as_const=True holds constant has another value"
        return next((words for guard in self.guards if (words := guard()) is not None), None)


class xla_trace(trace):
    """Decorator that compiles a whole function, such as a training step, to one executable.

    Each call runs the executable; the body runs once for each set of shapes, to be recorded, and computes
    nothing then; it runs again when something outside that it was seen to read has changed. Modules and
    Optimizers among the arguments are looked into: their Parameters, buffers and states go in and out, and so
    do gradients, the numbers of the Optimizer and the states of random generators. Shapes are static: with
    new ones the function is recorded and compiled again, which one line in the log says. So it is when a
    Module or an Optimizer among the arguments works otherwise than before, by ``eval()`` or
    ``add_param_group``.

    Parameters
    ----------
    function : callable
        Takes Tensors, Modules, Optimizers and other values, in nested lists, tuples, dicts and dataclasses
        too; returns Tensors and other values, likewise nested. Every Tensor that it uses is an argument, or
        in one. Methods work too: the instance counts as an argument.
    without_host : bool
        Always True.
    symbolic_shape : bool
        Always False.
    capture_as_const : bool
        Tensors that are neither arguments nor in one become constants. With other values than when it was
        recorded the function is compiled again.
    backend : str
        Who makes the executable.
    **options
        As for `trace`.

    Raises
    ------
    TraceInputError
        An option that this cannot take.
    UnknownInputError
        On a call: a Tensor is neither an argument nor in one, without ``capture_as_const=True``.
    HeldConstantError
        On a call: the body gives a constant a new value.
    SymbolicReadError
        On a call: the body looks at values.
    CallerTapeError
        On a call: a `GradManager` outside records the arguments; see `partial_trace`.
    ImpureBodyError
        On a call: the body writes outside itself, as where it keeps a Tensor elsewhere than in its result, or
        calls what is not known to be pure.
    BackendNotInstalledError
        On a call: the backend is not there.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        without_host: bool = True,
        symbolic_shape: bool = False,
        backend: str | None = "xla",
        **options: Any,
    ) -> None:
        name = type(self).__name__
        if without_host is not True:
            raise TraceInputError(f"{name} always skips the body: leave without_host out, or use @trace")
        if symbolic_shape:
            raise TraceInputError(f"{name} has static shapes: leave symbolic_shape out, or use @trace")
        for option in ("imperative", "record_only"):
            if options.get(option):
                raise TraceInputError(f"{name} has no option {option!r}: use @trace for that")
        super().__init__(function, without_host=True, backend=backend, **options)
        if not self.options.fuses:
            raise TraceInputError(
                f"{name} compiles the whole function, and opt_level={self.options.opt_level} compiles "
                "nothing: leave it out, or use @trace"
            )
        self._given: tuple[Any, Any] | None = None  # of the latest call that was recorded, Specs for Tensors

    # calling

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        if taped:
            self._check_tapes(flatten((args, kwargs))[0])
        return self._call_skipping(args, kwargs)

    def _call_skipping(self, args: Any, kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        key = key_of(leaves, structure)
        result = self._served(key, leaves, args, kwargs)
        if result is MISS:
            with self._lock:
                result = self._served(key, leaves, args, kwargs)  # another thread may have been faster
                if result is MISS:
                    result = self._record_call(key, leaves, args, kwargs)
        assert result is not MISS, "a call that was just recorded does not serve its own arguments"
        return result

    def _record_call(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """Record a call, compile it if no other did the same, say why, and run it."""
        reason = self._reason_of(key, leaves, args, kwargs)
        call = self._noted_call(args, kwargs, leaves, self._calls.follows(key, leaves))
        if call.variant.record.changes is None:
            self._keep(key, leaves, shapes_of(args, kwargs), Recorded(None, call.variant, call))
        result = call.run(leaves)
        if reason is not None and call.variant.programs:
            self._statistics.again(f"{reason}: it is compiled again", logging.WARNING)
        elif reason is not None:
            self._statistics.again(reason)
        return result

    def _check_tapes(self, leaves: Sequence[Any]) -> None:
        """Refuse to lose a gradient that the caller's tapes would want."""
        tapes = frozenset(recording())
        tensors = (*(t for t in leaves if isinstance(t, Tensor)), *self._belongings(leaves).tensors)
        if any(t._tape and not tapes.isdisjoint(t._tape) for t in tensors):
            raise CallerTapeError(
                f"a GradManager outside of {self.__name__} records its arguments, but a function that is "
                "compiled whole has no gradient: open the GradManager inside of it, or use partial_trace"
            )

    def _belongings(self, leaves: Sequence[Any]) -> Belongings:
        return Belongings(leaves, self._is_method_of())

    def _noted_call(
        self, args: Any, kwargs: Any, leaves: list[Any], follows: frozenset[Source] = frozenset()
    ) -> WholeCall:
        variant, structure, refs = self._noted(args, kwargs, leaves, follows)
        call = WholeCall(variant, leaves, structure, refs)
        call.guards = self._belongings(leaves).guards()
        self._statistics.body_runs += 1
        self._statistics.recorded()
        self._given = _without_values(args, kwargs)
        return call

    def _noted(
        self, args: Any, kwargs: Any, leaves: list[Any], follows: frozenset[Source] = frozenset()
    ) -> tuple[Variant, Structure, tuple[End, ...]]:
        """One call, of which nothing is run."""
        session = WholeRecording(
            leaves,
            Observer(leaves, True, self._instance is not None, follows),
            self._is_method_of(),
            capture_as_const=self.capture_as_const,
        )
        record, structure, refs = session.note(self._noted_whole, session, args, kwargs)
        return Variant(record, self._compiler), structure, refs

    def _noted_whole(self, session: Any, args: Any, kwargs: Any) -> Any:
        try:
            structure, refs = results_of(session.observer.run(*self._body_with(args), **kwargs), session)
            record = session.finish()
            record.guards = session.observer.guards
            session.check_known()
            session.check_skippable()
        except Exception:
            session.compute_living()
            raise
        return record, structure, refs

    def _reason_of(self, key: tuple[Any, ...], leaves: list[Any], args: Any, kwargs: Any) -> str | None:
        newest: Any = next(iter(self._calls.of(key)), None)
        reason = newest.changed() if newest is not None else None
        return reason or super()._reason_of(key, leaves, args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile a call without running it; the next one like it compiles nothing.

        Parameters
        ----------
        *args, **kwargs
            What the function takes. For a Tensor its type does: a Tensor of that type, a `Spec`, or a text
            such as ``"f32[64,784]"``.

        Raises
        ------
        ArgumentSpecError
            A text that is no type.
        ExportError
            This is called inside a trace.
        """
        if active_trace() is not None:
            raise ExportError(f"{self.__name__} is compiled outside of any trace: call compile there")
        args, kwargs = stand_ins((args, kwargs))
        leaves, structure = flatten((args, kwargs))
        with self._lock:
            call = self._noted_call(args, kwargs, leaves)
            call.prepare()
            self._keep(
                key_of(leaves, structure), leaves, shapes_of(args, kwargs), Recorded(None, call.variant, call)
            )

    # looking at it

    def dry_run(self, *args: Any, **kwargs: Any) -> Variant:
        """Record one call; the body runs, no Tensor outside is changed."""
        return self._noted(args, kwargs, flatten((args, kwargs))[0])[0]

    # files: Tensors that are not arguments themselves are constants there, with the values that they have now

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]:
        if not args and not kwargs and self._given is not None:
            args, kwargs = self._given
        return super()._to_export(args, kwargs)

    def _checked(self) -> Captured:
        if self.capture_as_const and self._given is not None:
            self._captured = self._to_export((), {})[0]
        return super()._checked()


def _without_values(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments with the types of Tensors in their places."""
    leaves, structure = flatten((args, dict(kwargs)))
    found: tuple[Any, Any] = structure.build(iter([_type_of(leaf) for leaf in leaves]))
    return found


def _type_of(leaf: Any) -> Any:
    return Spec(leaf.shape, leaf.dtype, leaf._device) if isinstance(leaf, Tensor) else leaf
