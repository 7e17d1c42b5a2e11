"""The first call: run the ops, or only note them, and keep the sequence."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import dtypes
from ..apply import caller, evaluate
from ..autodiff import GradManager
from ..errors import RecordOnlyError, SymbolicReadError, TraceError
from ..ir import Op, Spec, input_node
from ..optimizer import Optimizer
from ..sizes import Size, fixed, plain
from ..tensor import CONSTANT, Tensor, place, run_in, wrap
from .belongings import OptimizerGuard
from .environment import Observer
from .measured import Measured, given, is_handed_on, with_views
from .observing import Observing
from .record import (
    CUTS,
    END,
    EXCLUDE,
    READ,
    Entry,
    External,
    Given,
    Literal,
    Outside,
    Record,
    Ref,
    external_ref,
)
from .resize import Followed
from .source import Argument, Source
from .surroundings import State, tensors_of
from .tree import flatten

#: What nobody can change.
_CONSTANT = (bool, int, float, complex, str, bytes, type(None), type, np.generic, np.dtype)

P = ParamSpec("P")
R = TypeVar("R")


_RAW = frozenset((*dtypes.WEAK, Size))


class Recording(Observing):
    """A session that writes a `Record`.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    symbolic : bool
        Note the ops and run none of them.
    capture_as_const : bool
        Tensors that are not arguments become constants.
    symbolic_shape : bool
        Shapes are Tensors in the body.
    observer : Observer, optional
        Watches what the body reads and writes outside, so that it need not run again.

    Attributes
    ----------
    is_call : bool
        Is this a call that gives values, and not a note of one? Then what a shape depends on is computed
        although nothing else is.
    """

    is_call = False

    def __init__(
        self,
        leaves: Sequence[Any],
        *,
        symbolic: bool,
        capture_as_const: bool,
        symbolic_shape: bool = False,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(leaves)
        self.leaves = leaves
        self._followed: Followed | None = None
        self.symbolic_shape, self._symbolic = symbolic_shape, symbolic
        self._capture_as_const, self.observer = capture_as_const, observer
        self._undone = self._saw_outside = False
        self._leaf_arrays = {id(t): t._data for t in leaves if isinstance(t, Tensor)}
        self._numbers: dict[tuple[int, int], int] = {}  # of two Tensors of one array, one may change
        self._leaf_data = {id(v): n for n, v in enumerate(leaves) if isinstance(v, np.ndarray)}
        self._converted: dict[
            int, tuple[int | Source, Any, Any]
        ] = {}  # by the id of an array: of what it is made
        self._views: list[tuple[Any, Measured]] = []  # of arrays among the arguments
        self._made: dict[int, Any] = {}
        self._origins: dict[int, Callable[[], float]] = {}
        self._raw: tuple[Op, list[Any]] | None = None  # the numbers among the operands of the op to come
        self._readable: set[int] = set()
        self._modules: dict[int, Any] = {}
        self._states: list[State] = []  # of the modules, as the body found them
        self._instance: Any = None  # what the body is a method of
        self._trainers: dict[int, weakref.ref[Any]] = {}

    def follow(self, leaves: Sequence[Any]) -> None:
        """Know what follows from the lengths of `leaves`, the flattened arguments."""
        self._followed, self.spec_of = Followed(leaves), self._spec_of
        arrays = ((n, leaf) for n, leaf in enumerate(leaves) if type(leaf) is np.ndarray)
        self._views = [(leaf, Measured.of(leaf, self._followed.shapes[n])) for n, leaf in arrays]

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        self._raw = (op, [plain(a) if type(a) in _RAW else None for a in args])
        return None

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        index = len(self.record.entries)
        spec = self.record.step(op, self._refs(op, inputs), params).spec
        if self._symbolic:
            out = place(self, index, spec)
        else:
            params = plain(params) if self._followed is not None else params
            out = wrap(evaluate(op, [t._data for t in inputs], params, spec.device), spec.device)
            out._session, out._index = self, index
        self._tensors.append(self._made_by_body(out))
        return out

    def _spec_of(self, tensor: Tensor) -> Spec:
        """The type of `tensor`, with the lengths that are followed."""
        if tensor._session is self:
            return self.record.entries[tensor._index].spec
        if tensor._session is not None:
            assert tensor._spec is not None
            return tensor._spec
        array, root = tensor._data, self._root(tensor)
        if self._followed is not None and self._is_grad_of_argument(root):
            self._followed.fix()  # it would have the lengths of another argument
        if id(array) in self._converted:
            place = self._converted[id(array)][0]
            return self._spec_outside(array, tensor._device, place if isinstance(place, int) else None)
        return self._spec_outside(array, tensor._device, self._leaf_of(root, array))

    def measured(self, value: Any) -> Any:
        return with_views(value, self._views)

    def _is_grad_of_argument(self, tensor: Tensor) -> bool:
        found = self._grads.values()
        return any(grad is tensor and id(holder) in self._leaf_tensors for holder, grad, _ in found)

    def _size_of(self, tensor: Tensor) -> Size | None:
        """Which length that is followed a constant is."""
        return None if self._followed is None else self._followed.sizes.noted(tensor._data)

    def _spec_outside(self, array: Any, device: str, leaf: int | None) -> Spec:
        shape: Any = array.shape if self._followed is None or leaf is None else self._followed.shapes[leaf]
        return Spec(shape, array.dtype, device)

    def _leaf_of(self, tensor: Tensor, array: Any) -> int | None:
        """The place of `tensor` among the arguments, if it still has their value `array`."""
        leaf = self._leaf_tensors.get(id(tensor))
        return leaf if leaf is not None and self._leaf_arrays[id(tensor)] is array else None

    def read(self, tensor: Tensor) -> Any:
        if self.ended_early:
            return self.late(tensor)
        if tensor._index in self.record.statics:
            if self._followed is not None:
                self._followed.fix()
            return tensor._data if tensor._data is not None else self.record.static_value(tensor._index)
        if self._symbolic and tensor._data is None:
            if self._finished:
                raise self.unreadable(tensor)
            raise SymbolicReadError(
                "tensor invalid, can not infer value of this tensor under trace(symbolic=True) "
                f"({caller()}). You can try to use trace(symbolic=False) to avoid this issue."
            )
        if not self.paused and tensor._index not in self._readable:
            self.must_run(f"reads the value of {self.entry(tensor._index)}")
            self._cut(READ, (tensor._index,))
        return tensor._data

    def shapes_follow(self, tensor: Tensor) -> None:
        if self._symbolic and self.is_call and tensor._data is None and not self.paused:
            self.evaluate((tensor._index,))
            tensor._data = self.values[tensor._index]

    def seen(self, tensor: Tensor) -> None:
        fixed(self._size_of(tensor))
        if tensor._index != CONSTANT and id(tensor._data) not in self._made:
            self._saw_outside = True
            self.must_run("reads the value of a Tensor")

    def created(self, tensor: Tensor, data: Any) -> None:
        if isinstance(data, np.ndarray) and not self._capture_as_const:
            is_followed, data = data is not given(data) or is_handed_on(), given(data)
            place = self._place_of_array(data)
            if self._followed is not None and isinstance(place, int) and not is_followed:
                fixed(self._followed.shapes[place])
            if place is not None:
                self._converted[id(tensor._data)] = place, tensor._data, data
        if tensor._index != CONSTANT:
            self._made_by_body(tensor)
            self._made[id(tensor._data)] = tensor._data

    def live(self, tensor: Tensor, source: Callable[[], float]) -> None:
        self._origins[id(tensor._data)] = source

    def entered(self, module: Any) -> None:
        if isinstance(module, GradManager | Optimizer):
            self._trainers[id(module)] = weakref.ref(module)
        elif id(module) not in self._modules:
            self._modules[id(module)] = weakref.proxy(module) if module is self._instance else module
            self._states.append(State(module))
            if self.observer is not None:
                self.observer.enters(module)

    def surround(self, instance: Any) -> None:
        """Told of what the body is a method, or None; the record does not keep that alive."""
        self._instance = instance
        if hasattr(instance, "forward"):
            self.entered(instance)

    def must_run(self, reason: str, once: bool = False) -> None:
        """Told why the body has to run at each call; where it must not, this raises an error."""
        if self.observer is not None:
            self.observer.impure(reason, once=once)

    # cuts

    def _cut(self, op: Op, steps: tuple[int, ...]) -> None:
        self._readable.update(steps)
        self.record.cut(Entry(op, (), {}, None, caller(), steps))

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything alive gets its value."""
        self.must_run("leaves the trace by exclude_from_trace")
        wanted = tuple(sorted({t._index for t in self.alive()}))
        if self._symbolic:
            self.evaluate(wanted)
        self.release()
        self._cut(EXCLUDE, wanted)
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    # the end

    @property
    def reads(self) -> bool:
        """Does the body look at values?"""
        return self._saw_outside or any(entry.op in CUTS for entry in self.record.entries)

    def finish(self) -> Record:
        """Close the sequence: what is alive now leaves the program at every call."""
        alive = self.alive()
        self.found_elsewhere = self._also_found()
        self.record.bindings = [*self._value_bindings(), *self._grad_bindings()]
        self.record.returned = tuple(map(self._identity, self._returned))
        used = self._used(self._returned)
        self._returned.clear()
        self._expect_grads(used)
        self._pin(used)
        if any((t := r()) is not None and t._grad is not None for r in self._own_grads):
            self.must_run("leaves a Tensor that it makes with a grad")
        watched = ((key, r) for key, r in self._watched.items() if r() is not None)
        self.record.watched = [Outside(r, self._leaf_tensors.get(key)) for key, r in watched]
        trainers = [(r, trainer._revision) for r in self._trainers.values() if (trainer := r()) is not None]
        self.record.trainers = trainers
        optimizers = [o for r in self._trainers.values() if isinstance(o := r(), Optimizer)]
        self.record.optimizers = list(map(OptimizerGuard, optimizers))
        self.record.note(list(self._modules.values()), self._states)
        self._cut(END, tuple(sorted({t._index for t in alive})))
        if self._followed is not None:
            self.spec_of = None
            self._followed.end(self.record)
        return self.record

    def forget(self) -> None:
        super().forget()
        self.leaves = ()
        self._leaf_arrays.clear()
        self._leaf_data.clear()
        self._views.clear()
        self._converted.clear()
        if self.observer is not None:
            self.observer.forget()

    def _also_found(self) -> frozenset[int]:
        """The ids of Tensors that the body met in variables, objects, or what it called or worked with."""
        if self.observer is None:
            return frozenset()
        found = [guard.value.get() for guard in self.observer.guards if guard.test == "is"]
        for module in self._modules.values():
            found += tensors_of(module)
        trainers = [trainer for reference in self._trainers.values() if (trainer := reference()) is not None]
        for trainer in trainers:
            found += tensors_of(trainer) if not self.observer.is_made(trainer) else []
        return frozenset([id(value) for value in found if isinstance(value, Tensor)])

    def given(self, value: Any) -> Given | None:
        """What is no Tensor in the result, at each call that skips the body."""
        if type(value) is Size:
            return Given(value.value, size=value)
        if isinstance(value, _CONSTANT) or self.observer is None or not self.observer.is_made(value):
            return Given(value)
        if isinstance(value, np.ndarray):
            return Given(value.copy(), copied=True)
        self.must_run(f"returns an object that it makes, a {type(value).__name__}")
        return None

    def handed_out(self, result: Any) -> Any:
        """The result with new Tensors in place of those that the body made, which nothing holds then."""
        leaves, structure = flatten(result)
        given = {id(t._grad) for key, (t, _, _) in self._grads.items() if key in self._given_grads}
        new: dict[int, Any] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and self.is_own(leaf) and id(leaf) not in given:
                new[id(leaf)] = wrap(leaf._data, leaf._device)
        return structure.build(iter([new.get(id(leaf), plain(leaf)) for leaf in leaves]))

    def check_skippable(self) -> None:
        """What shows after the call: reasons why the body must run again although it seemed pure."""
        if self.record.changes is not None:
            self.must_run(self.record.changes, once=True)
        self.check_kept()

    def check_kept(self) -> None:
        """Tensors that the body keeps elsewhere than in its result, and those that it let go of."""
        if (where := self.record.gone()) is not None:
            self.must_run(f"takes the Tensor used at {where} from where it leaves none or another one")
        if (where := self.escaped()) is not None:
            self.must_run(f"keeps a Tensor that it makes at {where}")

    def release(self) -> None:
        for tensor in self.alive():
            if tensor._data is not None:
                self.values[tensor._index] = tensor._data
        super().release()

    def note(self, body: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``body(*args, **kwargs)`` in this session, which leaves every Tensor outside as it was."""
        try:
            result = run_in(self, body, *args, **kwargs)
            self.undo()
        except BaseException:
            self.undo()
            raise
        return result

    def undo(self) -> None:
        """Leave every Tensor outside as it was before the call: it was noted, not run."""
        self._undone = True
        rebound = {id(reference()) for reference in self._rebound}
        for tensor, data, tape in self._before.values():
            if id(tensor) not in rebound:  # another thread may have begun to watch it
                continue
            tensor._data, tensor._tape = data, tape
            tensor._session, tensor._index, tensor._spec = None, -1, None
        for tensor, grad, _ in self._grads.values():
            tensor._grad = grad
        self.settle()

    def unreadable(self, tensor: Tensor) -> TraceError:
        if self._undone:
            return RecordOnlyError(
                f"the result of step {tensor._index} ({self.entry(tensor._index)}) has no value: the call "
                "was only recorded, as by trace(record_only=True); trace without that option to run it"
            )
        return super().unreadable(tensor)

    # operands

    def _refs(self, op: Op, inputs: tuple[Tensor, ...]) -> tuple[Ref, ...]:
        raw: list[Any] = []
        if self._raw is not None and self._raw[0] is op and len(self._raw[1]) == len(inputs):
            raw = self._raw[1]
        self._raw = None
        refs = []
        for position, tensor in enumerate(inputs):
            ref = self.ref(tensor)
            if raw and isinstance(ref, Literal) and raw[position] is not None:
                ref.raw = raw[position]
            refs.append(ref)
        return tuple(refs)

    def ref(self, tensor: Tensor) -> Ref:
        """Where the value of `tensor` comes from."""
        if tensor._session is self:
            return tensor._index
        if id(tensor._data) in self._converted:
            return self._converted_ref(tensor)
        if tensor._index == CONSTANT:
            return Literal(tensor._data, device=tensor._device, size=self._size_of(tensor))
        self.check_foreign(tensor)
        array, tensor = tensor._data, self._root(tensor)
        number = self._numbers.get((id(tensor), id(array)))
        if number is not None:
            return external_ref(number)
        leaf = self._leaf_of(tensor, array)
        if self._capture_as_const and leaf is None:
            owner = None if id(array) in self._made else weakref.ref(tensor)
            return Literal(array, owner=owner, device=tensor._device)
        return external_ref(self._new_external(tensor, array, leaf))

    def _place_of_array(self, data: Any) -> int | Source | None:
        """Where an array stands that an op takes: among the arguments, or outside; None: the body made it."""
        if self.observer is None:
            return self._leaf_data.get(id(data))
        source = self.observer.takes_array(data)
        return source.place if isinstance(source, Argument) else source

    def _converted_ref(self, tensor: Tensor) -> Ref:
        """Where the value of a Tensor or constant comes from that was made of an array outside."""
        place, array, data = self._converted[id(tensor._data)]
        number = self._numbers.get((hash(place), id(array)))
        if number is None:
            line = caller()
            leaf, path = (place, None) if isinstance(place, int) else (None, place)
            external = External(
                input_node(self._spec_outside(array, tensor._device, leaf), line), leaf, source=line
            )
            external.converts, external.path = data.dtype, path
            self.record.externals.append(external)
            self.fed.append(array)
            number = self._numbers[hash(place), id(array)] = len(self.fed) - 1
        return external_ref(number)

    def _new_external(self, tensor: Tensor, array: Any, leaf: int | None) -> int:
        made_here = id(array) in self._made
        origin = self._origins.get(id(array))
        owner = None if made_here else weakref.ref(tensor)
        if not made_here:
            self._remember(tensor)
        spec = self._spec_outside(array, tensor._device, leaf)
        source = caller()
        external = External(input_node(spec, source), leaf, owner, origin, source)
        external.made = array if made_here and origin is None else None
        self.record.externals.append(external)
        self.fed.append(array)
        self._numbers[id(tensor), id(array)] = len(self.fed) - 1
        return len(self.fed) - 1
