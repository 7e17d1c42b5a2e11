"""A call that skips the Python body: feed the inputs, run the program, hand out the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from types import CodeType
from typing import Any

import numpy as np
from ml_dtypes import finfo

from .. import device as devices
from .. import dtypes
from ..device import is_gpu, of_array
from ..executor import Program
from ..forking import cached_property
from ..ir import Spec
from ..scalars import FOLLOWED
from ..tensor import Tensor, as_given, converted, wrap
from .deferral.operands import array_of_number
from .environment import Impurity
from .guard import MISS, Guard, Guards, is_plain, reader
from .record import Binding, End, External, Given, Literal, Live, Ref, external_ref
from .source import Argument, Attribute, Grad, Held, Object, Places, Source
from .tensor_guards import Arguments, Fits
from .tree import LEAF, Identity, Structure, is_itself
from .variant import Variant


class CompiledCall:
    """A recorded call, replayed by a generated function: guards first, then feed, run, hand out.

    Parameters
    ----------
    variant : Variant
        Of a single segment, whose record has ends.
    leaves : sequence
        The flattened arguments of the recorded call; those that its key holds are kept.

    Attributes
    ----------
    kept : list
        Those leaves that the function does not look at: no Tensors, numbers or texts.
    """

    def __init__(self, variant: Variant, leaves: Sequence[Any]) -> None:
        self.variant = variant
        self._leaves = _sketched(leaves)
        self.kept = [x for x in self._leaves if not isinstance(x, _Sketch) and not is_plain(x)]

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """``run(leaves)``: the result, or `MISS` when they are not those of this call."""
        return self._written()

    def _written(self) -> Callable[[Sequence[Any]], Any]:
        owners = self.variant.outline.owners()  # held meanwhile: the garbage collector may run
        if any(owner is None for owner in owners) or self.variant.outline.gone() is not None:
            return lambda leaves: MISS  # without what it used no call is like it any more
        program, reads = self.variant.program(0) if self.variant.segments[0].outputs else (None, ())
        writer = _Writer(self.variant, program, reads)
        self.source, run = writer.write(self._leaves)
        return run

    def resized(self, leaves: Sequence[Any]) -> CompiledCall | None:
        """The call for arguments of other lengths, if the body would do the same with them."""
        variant = self.variant.resized(leaves)
        return None if variant is None else CompiledCall(variant, leaves)


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
    """What is to be known of arguments; nothing is held for that which its key does not hold."""
    sketches: dict[int, Any] = {id(leaf): Identity(leaf) for leaf in leaves if is_itself(leaf)}
    sketches |= {id(leaf): _Sketch(type(leaf), leaf.spec) for leaf in leaves if isinstance(leaf, Tensor)}
    return [sketches.get(id(leaf), np.ndarray if isinstance(leaf, np.ndarray) else leaf) for leaf in leaves]


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
        self._outputs = variant.segments[0].outputs
        self._reads = reads
        self._updated = frozenset(self._record.updates().values())
        self._kept: frozenset[Any] = frozenset()  # refs that are wanted after the program ran
        self._owners: dict[Source, str] = {}
        self._made: dict[int | Source, str] = {}  # Tensors that are handed on to more than one place
        self._many = False  # arguments
        self._tensors: list[str] = []  # among the arguments
        self._names: dict[str, Any] = {
            "MISS": MISS,
            "place": devices.place,
            "program": program.call if program else None,
            "wrap": wrap,
        }
        self._lines: list[str] = []
        self._arrays = {n: f"x{n}" for n in range(len(self._record.externals))}

    def write(self, leaves: Sequence[Any]) -> tuple[str, Callable[[Sequence[Any]], Any]]:
        """The source and the function."""
        assert self._record.ends is not None
        structure, results = self._record.ends
        self._kept = frozenset((*results, *(b.source for b in self._record.bindings)))
        self._lines.append(f"if len(leaves) != {len(leaves)}: return MISS")
        if leaves:
            self._lines.append(f"({''.join(f't{n}, ' for n in range(len(leaves)))}) = leaves")
        guards = Guards(self._guards_of_arguments(leaves))
        guards.add(*self._record.guards)
        self._lines += guards.lines(self._name)
        for number, external in enumerate(self._record.externals):
            self._feed(number, external)
        for live in dict.fromkeys(result for result in results if isinstance(result, Live)):
            lines, value = reader(live.path, self._name)
            self._made[id(live)] = f"m{len(self._made)}"
            self._lines += [*lines, f"{self._made[id(live)]} = {value}"]
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

    def _guards_of_arguments(self, leaves: Sequence[Any]) -> Iterator[Guard]:
        """That the same places hold the same Tensors, all others different ones, of the recorded classes."""
        first: dict[int, Argument] = {}  # from the id of a Tensor to its first place
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, _Sketch):
                place = first.setdefault(id(leaf), Argument(n))
                if place.place != n:
                    yield Guard(Argument(n), "alias", place)
        places = tuple(first.values())
        self._many = len(places) >= _MANY
        if self._many:
            known = [leaves[place.place] for place in places]
            yield Guard(Places(places), "meets", Arguments([k.kind for k in known], [k.spec for k in known]))
        else:
            yield from (Guard(place, "type", Held(leaves[place.place].kind)) for place in places)
            if len(places) > 1:
                yield Guard(Places(places), "different", len(places))
        for n, leaf in enumerate(leaves):  # the observer has told of numbers, where some are followed
            told = type(leaf) in FOLLOWED and self._record.follows
            if not isinstance(leaf, _Sketch) and is_plain(leaf) and not told:
                yield Guard(Argument(n), "same", leaf)
        fed = {external.leaf for external in self._record.externals}
        self._tensors = [f"t{place.place}" for place in places]
        for place in places:
            if place.place not in fed:
                yield Guard(Attribute(place, "_data"), "spec", leaves[place.place].spec)

    def _guard(self, array: str, spec: Spec) -> None:
        """Miss when the spec of `array` is another one."""
        shape, dtype = self._name(spec.shape), self._name(spec.dtype)
        other = f"{array}.dtype is not {dtype} and {array}.dtype != {dtype}"  # `is` is the faster one
        self._lines.append(f"if {array}.shape != {shape} or {other}: return MISS")

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
        if external.is_looked_for:
            self._look_for(number, external)
            return
        tensor = self._tensor(external.place)
        array = f"{tensor}._data"
        if self._is_bare(number):
            self._arrays[number] = array
        else:
            self._lines.append(f"x{number} = {array}")
        if not self._is_guarded_with_others(number):
            self._guard(self._arrays[number], spec)
        if external.leaf is not None and not self._many:
            self._lines.append(f"if {tensor}._device != {spec.device!r}: return MISS")

    def _look_for(self, number: int, external: External) -> None:
        """A Tensor outside that is another one at each call, and none of those that the call works with."""
        assert external.place is not None
        lines, tensor = reader(external.place, self._name)
        others = self._name(self._record.outside)
        self._lines += [*lines, f"x{number} = {tensor}._data", f"if id({tensor}) in {others}: return MISS"]
        grads = (guard.source for guard in self._record.guards if isinstance(guard.source, Grad))
        same = dict.fromkeys([*self._tensors, *map(self._tensor, grads)])
        self._lines.extend(f"if {tensor} is {other}: return MISS" for other in same)
        self._guard(f"x{number}", external.node.spec)
        self._lines.append(f"if {tensor}._device != {external.node.spec.device!r}: return MISS")

    def _feed_array(self, number: int, external: External) -> None:
        """An array of NumPy's is converted, and so copied; a number becomes an array."""
        spec = external.node.spec
        assert external.place is not None
        lines, array = reader(external.place, self._name)
        if isinstance(external.converts, type):
            is_array = issubclass(external.converts, np.generic) and external.converts is not np.float64
            made = self._converted(array, spec.dtype) if is_array else self._number(array, spec.dtype)
            made = f"place({made}, {spec.device!r})" if is_gpu(spec.device) else made
            self._lines += [*lines, f"x{number} = {made}"]
            return
        if not isinstance(external.place, Argument):
            kind = f"type({array}) is {self._name(np.ndarray)}"
            shape, dtype = self._name(spec.shape), self._name(external.converts)
            guard = f"{kind} and {array}.shape == {shape} and {array}.dtype == {dtype}"
            self._lines += [*lines, f"if not ({guard}): return MISS"]
        self._lines.append(f"x{number} = place({self._converted(array, spec.dtype)}, {spec.device!r})")

    def _converted(self, array: str, dtype: np.dtype[Any]) -> str:
        return f"{self._name(converted)}({self._name(as_given)}({array}), {self._name(dtype)}, False)"

    def _number(self, value: str, dtype: np.dtype[Any]) -> str:
        """A Python number as an array; that one may become infinite is said only where it is so large."""
        name = self._name(dtype)
        large = f"{self._name(array_of_number)}({value}, {name})"
        if dtype not in dtypes.FLOATS:
            return large
        limit = repr(float(finfo(dtype).max))  # type: ignore[no-untyped-call]
        return f"{self._name(np.array)}({value}, {name}) if -{limit} < {value} < {limit} else {large}"

    def _is_bare(self, number: int) -> bool:
        """Has no variable its array? A variable is a holder, and then it is not updated in place."""
        in_place = number in self._updated or self._is_guarded_with_others(number)
        return in_place and external_ref(number) not in self._kept

    def _is_guarded_with_others(self, number: int) -> bool:
        """Does it come from a Tensor outside the arguments, or one of many? Such ones are seldom new."""
        external = self._record.externals[number]
        alone = external.origin is not None or (external.leaf is not None and not self._many)
        alone = alone or external.made is not None or external.converts is not None
        alone = alone or external.is_looked_for
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

    def _tensor(self, place: Source | None) -> str:
        """The Tensor outside that stands at `place`."""
        if isinstance(place, Grad):
            return f"{self._tensor(place.of)}._grad"
        if isinstance(place, Argument):
            return f"t{place.place}"
        assert isinstance(place, Object)
        if place not in self._owners:
            self._owners[place] = self._name(place.read(()))
        return self._owners[place]

    def _bind(self, number: int, binding: Binding) -> None:
        target, condition = binding.target, ""
        holder = target.of if isinstance(target, Grad) else target
        if isinstance(holder, Argument) or holder in self._owners:
            tensor = self._tensor(target)
        else:  # it may go before this call does
            assert isinstance(holder, Object)
            name, condition = f"o{number}", f"if o{number} is not None: "
            tensor = name + "._grad" * (holder is not target)
            self._lines.append(f"{name} = {self._name(holder.thing.get)}()")
        if binding.is_grad:
            self._lines.append(f"{condition}{tensor}._grad = {self._bound(binding.source, binding.made)}")
            return
        assert isinstance(binding.source, int | Literal)
        if not condition:  # written in place, it is there already
            condition = f"if {tensor}._data is not {self._value(binding.source)} or {tensor}._tape: "
        self._lines.append(f"{condition}{tensor}._reset({self._wrapped(binding.source)})")

    def _make_shared(self, results: Sequence[End]) -> None:
        """Make each Tensor once that is handed on to several places, and find those outside that are."""
        handed: list[tuple[int | Source | None, Any]]
        handed = [(b.made, b.source) for b in self._record.bindings if b.is_grad]
        handed += zip(self._record.returned, results, strict=False)
        count = Counter(made for made, _ in handed if isinstance(made, int))
        copies = Counter(end for end in results if isinstance(end, Given) and end.copied)
        for given in (given for given, places in copies.items() if places > 1):
            self._made[id(given)] = f"m{len(self._made)}"
            self._lines.append(f"{self._made[id(given)]} = {self._name(given.value)}.copy()")
        for made, source in handed:
            if isinstance(made, int) and count[made] > 1 and made not in self._made:
                assert isinstance(source, int | Literal)
                self._made[made] = f"m{len(self._made)}"
                self._lines.append(f"{self._made[made]} = {self._wrapped(source)}")
        for place in (*(source for _, source in handed), *self._record.returned):
            if isinstance(place, Grad) and place not in self._made:  # before it is replaced
                self._made[place] = f"m{len(self._made)}"
                self._lines.append(f"{self._made[place]} = {self._tensor(place)}")

    def _handed(self, results: Sequence[End]) -> Iterator[str]:
        """What the result is made of."""
        returned = chain(self._record.returned, repeat(None))  # what comes after the result is new
        for ref, which in zip(results, returned):
            yield self._bound(which, None) if isinstance(which, Source) else self._bound(ref, which)

    def _bound(self, source: End | Source, made: int | None) -> str:
        """A Tensor, None, or what is given."""
        if isinstance(source, Source):
            return self._made.get(source) or self._tensor(source)
        if isinstance(source, Given):
            return self._made.get(id(source)) or self._name(source.value) + ".copy()" * source.copied
        if isinstance(source, Live):
            return self._made[id(source)]
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
