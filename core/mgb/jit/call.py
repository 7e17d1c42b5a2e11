"""A call that skips the Python body: feed the inputs, run the program, hand out the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from types import CodeType
from typing import Any

import numpy as np

from .. import device as devices
from ..device import is_gpu, of_array
from ..executor import Program
from ..forking import cached_property
from ..ir import Spec
from ..tensor import Tensor, as_given, converted, wrap
from .environment import Impurity
from .guard import MISS, reader
from .guards import Arguments, Constants, Fits, Same
from .record import Binding, Expected, External, Given, Literal, Outside, Ref, external_ref
from .surroundings import SameContents
from .tree import LEAF, Structure
from .variant import Variant


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
        Those leaves that are no Tensors.
    """

    def __init__(
        self,
        variant: Variant,
        leaves: Sequence[Any],
        structure: Structure,
        results: tuple[Ref | Given | None, ...],
    ) -> None:
        self.variant = variant
        self.structure, self.results = structure, results
        self._leaves = _sketched(leaves)
        self.kept = [leaf for leaf in self._leaves if not isinstance(leaf, _Sketch)]

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """``run(leaves)``: the result, or `MISS` when they are not those of this call."""
        if self.variant.outline.gone() is not None:  # a Tensor that it used: no call is like it any more
            return lambda leaves: MISS
        program, reads = self.variant.program(0) if self.variant.segments[0].outputs else (None, ())
        writer = _Writer(self.variant, program, reads)
        self.source, run = writer.write(self._leaves, self.structure, self.results)
        return run

    def prepare(self) -> None:
        """Compile now: what `run` does when it is asked for first, which one thread must do alone."""
        _ = self.run

    def resized(self, leaves: Sequence[Any]) -> CompiledCall | None:
        """The call for arguments of other lengths, if the body would do the same with them."""
        variant = self.variant.resized(leaves)
        if variant is None or variant.sized is None:
            return None
        at = variant.sized.at(variant.values)
        results = tuple([r.at(at) if isinstance(r, Given) else r for r in self.results])
        return CompiledCall(variant, leaves, self.structure, results)


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


#: From so many arguments on, the guards of all are one call: C asks hundreds in a tenth of the time.
_MANY = 16


@lru_cache(maxsize=64)
def _code(source: str) -> CodeType:
    """Calls for arguments of other lengths have the same text."""
    return compile(source, "<mgb call>", "exec")


@dataclass(frozen=True, slots=True, eq=False)
class _Sketch:
    """A Tensor among the recorded arguments, without its value."""

    kind: type
    spec: Spec


def _sketched(leaves: Sequence[Any]) -> list[Any]:
    """What is to be known of arguments; no Tensor and no array is held for that."""
    sketches = {id(leaf): _Sketch(type(leaf), leaf.spec) for leaf in leaves if isinstance(leaf, Tensor)}
    return [sketches.get(id(leaf), None if isinstance(leaf, np.ndarray) else leaf) for leaf in leaves]


class _Writer:
    """Writes the function of one `CompiledCall`."""

    def __init__(
        self,
        variant: Variant,
        program: Program | None,
        reads: Sequence[int],
    ) -> None:
        self._in_place = program.updates if program else frozenset()
        self._record = variant.outline
        self._pins = self._record.pins
        self._outputs = variant.segments[0].outputs
        self._reads = reads
        self._updated = frozenset(self._record.updates().values())
        self._kept: frozenset[Any] = frozenset()  # refs that are wanted after the program ran
        self._owners: dict[int, str] = {}
        self._made: dict[int, str] = {}  # Tensors that are handed on to more than one place
        self._many = False  # arguments
        self._names: dict[str, Any] = {
            "MISS": MISS,
            "place": devices.place,
            "program": program.call if program else None,
            "wrap": wrap,
        }
        self._lines: list[str] = []
        self._arrays = {n: f"x{n}" for n in range(len(self._record.externals))}

    def write(
        self, leaves: Sequence[Any], structure: Structure, results: Sequence[Ref | Given | None]
    ) -> tuple[str, Callable[[Sequence[Any]], Any]]:
        """The source and the function."""
        self._kept = frozenset((*results, *(b.source for b in self._record.bindings)))
        self._guard_arguments(leaves)
        for expected in self._record.expected:
            tensor = self._tensor(expected)
            self._lines.append(f"if {tensor}._grad is {'not ' * expected.is_none}None: return MISS")
        self._guard_grads(leaves)
        if self._record.captured:
            constants = {id(x.owner): x for x in self._record.captured.values()}
            self._lines.append(f"if not {self._name(Constants(list(constants.values())))}(): return MISS")
        if self._record.guards is not None:
            self._lines.extend(self._record.guards.lines(self._name))
        for module, attributes in self._record.modules:
            self._guard_attributes(module, attributes)
        for reference, revision in self._record.trainers:
            self._lines.append(f"if {self._name(reference())}._revision != {revision}: return MISS")
        for optimizer in self._record.optimizers:
            self._lines.append(f"if {self._name(optimizer)}() is not None: return MISS")
        if self._record.contents:
            contents = self._name(SameContents(self._record.contents))
            self._lines.append(f"if not {contents}(): return MISS")
        for number, external in enumerate(self._record.externals):
            self._feed(number, external)
        if self._outputs:
            self._run()
        else:
            self._end_guards()
        self._make_shared(results)
        for number, binding in enumerate(self._record.bindings):
            self._bind(number, binding)
        self._lines.append(f"return {self._result(structure, self._handed(results))}")
        source = "def call(leaves):\n" + "".join(f"    {line}\n" for line in self._lines)
        exec(_code(source), self._names)
        function: Callable[[Sequence[Any]], Any] = self._names["call"]
        return source, function

    def _guard_arguments(self, leaves: Sequence[Any]) -> None:
        """Miss when a Tensor is none, or the same as another one, other than recorded; name each ``t<n>``."""
        self._lines.append(f"if len(leaves) != {len(leaves)}: return MISS")
        if leaves:
            self._lines.append(f"({''.join(f't{n}, ' for n in range(len(leaves)))}) = leaves")
        first: dict[int, int] = {}  # from the id of a Tensor to its first place
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, _Sketch):
                place = first.setdefault(id(leaf), n)
                if place != n:
                    self._lines.append(f"if t{n} is not t{place}: return MISS")
        places = tuple(first.values())
        self._many = len(places) >= _MANY
        outside = self._outside()
        if self._many:
            guard = self._name(Arguments(places, leaves, outside))
            self._lines.append(f"if not {guard}(leaves): return MISS")
        else:
            classes = {n: self._name(leaves[n].kind) for n in places}
            self._lines.extend(f"if t{n}.__class__ is not {classes[n]}: return MISS" for n in places)
            if len(places) > 1:
                ids = ", ".join(f"id(t{n})" for n in places)
                self._lines.append(f"if len({{{ids}}}) != {len(places)}: return MISS")
        for pin in self._pins:
            if not pin.place.of_grad:
                tensor, pinned = self._tensor(pin.place), self._name(pin.tensor)
                self._lines.append(f"if {tensor} is not {pinned}(): return MISS")
        if outside and places and not self._many:
            ids = ", ".join(f"id(t{n})" for n in places)
            self._lines.append(f"if not {self._name(outside)}.isdisjoint(({ids},)): return MISS")
        fed = {e.leaf for e in self._record.externals}
        for n in places:
            if n not in fed:
                self._guard(f"t{n}._data", leaves[n].spec)

    def _guard_grads(self, leaves: Sequence[Any]) -> None:
        """Miss when a ``grad`` that is used is the same Tensor as another, other than recorded."""
        first: dict[int, int] = {}
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, _Sketch):
                first.setdefault(id(leaf), n)
        used = [self._tensor(e) + "._grad" for e in self._record.expected if e.is_used]
        if not used:
            return
        places = [*(f"t{n}" for n in first.values()), *used]
        pins = [(places.index(f"{self._tensor(p.place)}._grad"), p) for p in self._pins if p.place.of_grad]
        guard = Same(self._record.same, pins, self._outside(), apart=bool(self._record.bindings))
        self._lines.append(f"if not {self._name(guard)}(({', '.join(places)},)): return MISS")

    def _outside(self) -> frozenset[int]:
        """The ids of Tensors outside none of which may be an argument.

        These are those that a tape of the body watched, and those that the body found, where it changes some.
        """
        record = self._record
        found = [w.owner for w in record.watched if w.leaf is None]
        if record.bindings:
            found += [e.owner for e in record.externals if e.leaf is None and e.owner is not None]
            found += [e.owner for e in record.expected if e.leaf is None]
            found += [b.owner for b in record.bindings if b.leaf is None]
        pinned = {id(pin.tensor()) for pin in self._pins}  # these stand where they were
        return frozenset(id(owner) for r in found if (owner := r()) is not None) - pinned

    def _guard(self, array: str, spec: Spec) -> None:
        """Miss when the spec of `array` is another one."""
        shape, dtype = self._name(spec.shape), self._name(spec.dtype)
        other = f"{array}.dtype is not {dtype} and {array}.dtype != {dtype}"  # `is` is the faster one
        self._lines.append(f"if {array}.shape != {shape} or {other}: return MISS")

    def _guard_attributes(self, module: Any, attributes: Mapping[str, Any]) -> None:
        """Miss when an attribute that decides what `module` does is another object."""
        now = f"{self._name(module)}.__dict__.get"
        self._lines.append(f"get = {now}")
        if "forward" not in attributes:  # as it would be called instead of that of the class
            self._lines.append("if get('forward') is not None: return MISS")
        for name, value in attributes.items():
            self._lines.append(f"if get({name!r}) is not {self._name(value)}: return MISS")

    def _feed(self, number: int, external: External) -> None:
        spec = external.node.spec
        if external.origin is not None:
            asked, device = f"{self._name(external.origin)}()", spec.device
            value = f"{self._name(spec.dtype.type)}({asked})[...]"
            self._lines.append(f"x{number} = " + (f"place({value}, {device!r})" if is_gpu(device) else value))
            return
        if external.converts is not None:
            self._feed_array(number, external)
            return
        if external.made is not None:
            self._arrays[number] = self._name(external.made)
            return
        array = self._tensor(external) + "._grad" * external.of_grad + "._data"
        if self._is_bare(number):
            self._arrays[number] = array
        else:
            self._lines.append(f"x{number} = {array}")
        if not self._is_guarded_with_others(number):
            self._guard(self._arrays[number], spec)
        if external.leaf is not None and not self._many:
            self._lines.append(f"if {self._tensor(external)}._device != {spec.device!r}: return MISS")

    def _feed_array(self, number: int, external: External) -> None:
        """An array of NumPy's is converted, and so copied."""
        spec = external.node.spec
        array = f"t{external.leaf}"
        if external.path is not None:
            lines, array = reader(external.path, self._name)
            kind = f"type({array}) is {self._name(np.ndarray)}"
            shape, dtype = self._name(spec.shape), self._name(external.converts)
            guard = f"{kind} and {array}.shape == {shape} and {array}.dtype == {dtype}"
            self._lines += [*lines, f"if not ({guard}): return MISS"]
        as_dtype = (
            f"{self._name(converted)}({self._name(as_given)}({array}), {self._name(spec.dtype)}, False)"
        )
        self._lines.append(f"x{number} = place({as_dtype}, {spec.device!r})")

    def _is_bare(self, number: int) -> bool:
        """Has no variable its array? A variable is a holder, and then it is not updated in place."""
        in_place = number in self._updated or self._is_guarded_with_others(number)
        return in_place and external_ref(number) not in self._kept

    def _is_guarded_with_others(self, number: int) -> bool:
        """Does it come from a Tensor outside the arguments, or one of many? Such ones are seldom new."""
        external = self._record.externals[number]
        alone = external.origin is not None or (external.leaf is not None and not self._many)
        alone = alone or external.made is not None or external.converts is not None
        return not alone and external_ref(number) in self._reads

    def _run(self) -> None:
        arguments = ", ".join(self._value(r) for r in self._reads)
        self._lines.append(f"arrays = [{arguments}]")
        externals = {
            p: self._record.externals[-1 - r]
            for p, r in enumerate(self._reads)
            if r < 0 and self._is_guarded_with_others(-1 - r)
        }
        alike: dict[tuple[bool, bool], list[int]] = {}
        for p, external in externals.items():  # apart: arguments are new more often, what is replaced always
            replaced = -1 - self._reads[p] in self._updated and p not in self._in_place
            alike.setdefault((replaced, external.leaf is not None), []).append(p)
        for _, guarded in sorted(alike.items()):
            fits = Fits(guarded, [externals[p].node.spec for p in guarded])
            self._lines.append(f"if not {self._name(fits)}(arrays): return MISS")
        self._end_guards()
        self._lines.append(f"{''.join(f'v{s}, ' for s in self._outputs)}= program(arrays)")

    def _end_guards(self) -> None:
        """What cannot be asked for any more, or has no value, is another call."""
        self._lines = ["try:", *(f" {line}" for line in self._lines), "except Exception: return MISS"]

    def _tensor(self, place: External | Expected | Outside) -> str:
        """The Tensor outside that `place` is about."""
        if place.leaf is not None:
            return f"t{place.leaf}"
        owner = place.owner() if place.owner is not None else None
        assert owner is not None
        if id(owner) not in self._owners:
            self._owners[id(owner)] = self._name(owner)
        return self._owners[id(owner)]

    def _bind(self, number: int, binding: Binding) -> None:
        tensor = f"t{binding.leaf}" if binding.leaf is not None else self._owners.get(id(binding.owner()))
        condition = ""
        if tensor is None:
            tensor, condition = f"o{number}", f"if o{number} is not None: "
            self._lines.append(f"{tensor} = {self._name(binding.owner)}()")
        if binding.is_grad:
            self._lines.append(f"{condition}{tensor}._grad = {self._bound(binding.source, binding.made)}")
            return
        assert isinstance(binding.source, int | Literal)
        place = f"{tensor}._grad" if binding.of_grad else tensor
        if not condition:  # written in place, it is there already
            condition = f"if {place}._data is not {self._value(binding.source)} or {place}._tape: "
        self._lines.append(f"{condition}{place}._reset({self._wrapped(binding.source)})")

    def _make_shared(self, results: Sequence[Ref | Given | None]) -> None:
        """Make each Tensor once that is handed on to several places, and find those outside that are."""
        handed: list[tuple[int | Outside | None, Any]]
        handed = [(b.made, b.source) for b in self._record.bindings if b.is_grad]
        handed += zip(self._record.returned, results, strict=False)
        count = Counter(made for made, _ in handed if isinstance(made, int))
        for made, source in handed:
            if isinstance(made, int) and count[made] > 1 and made not in self._made:
                assert isinstance(source, int | Literal)
                self._made[made] = f"m{len(self._made)}"
                self._lines.append(f"{self._made[made]} = {self._wrapped(source)}")
        for place in (*(source for _, source in handed), *self._record.returned):
            if isinstance(place, Outside) and place.of_grad:  # before it is replaced
                self._made[id(place)] = f"m{len(self._made)}"
                self._lines.append(f"{self._made[id(place)]} = {self._tensor(place)}._grad")

    def _handed(self, results: Sequence[Ref | Given | None]) -> Iterator[str]:
        """What the result is made of."""
        returned = chain(self._record.returned, repeat(None))  # what comes after the result is new
        for ref, which in zip(results, returned):
            yield self._bound(which, None) if isinstance(which, Outside) else self._bound(ref, which)

    def _bound(self, source: Ref | Outside | Given | None, made: int | None) -> str:
        """A Tensor, None, or what is given."""
        if isinstance(source, Outside):
            return self._made.get(id(source)) or self._tensor(source)
        if isinstance(source, Given):
            return self._name(source.value) + ".copy()" * source.copied
        if source is None:
            return "None"
        shared = self._made.get(made) if made is not None else None
        return shared or self._wrapped(source)

    def _result(self, structure: Structure, parts: Iterator[str]) -> str:
        if structure == LEAF:
            return next(parts)
        return f"{self._name(structure)}.build(iter(({''.join(f'{part}, ' for part in parts)})))"

    def _wrapped(self, ref: Ref) -> str:
        return f"wrap({self._value(ref)}, {self._device(ref)!r})"

    def _device(self, ref: Ref) -> str:
        if isinstance(ref, Literal):
            return of_array(ref.array)
        return (
            self._record.entries[ref].spec if ref >= 0 else self._record.externals[-1 - ref].node.spec
        ).device

    def _value(self, ref: Ref) -> str:
        if isinstance(ref, Literal):
            return self._name(ref.array)
        return f"v{ref}" if ref >= 0 else self._arrays[-1 - ref]

    def _name(self, value: Any) -> str:
        """A global of the generated function that holds `value`."""
        name = f"g{len(self._names)}"
        self._names[name] = value
        return name
