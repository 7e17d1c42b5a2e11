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
from .arguments import TEXTS
from .deferred.operands import number_to_array
from .entry import Literal, Ref, external_ref
from .guard import MISS, Guard, Guards, Lines, is_plain
from .record import Binding, End, External, Given, Live
from .resize import lengths_of
from .source import Argument, Attribute, Grad, Held, Identity, Object, Source, Sources
from .tensor_guards import Arguments, Fits
from .tree import LEAF, Structure, is_itself, is_looked_into
from .variant import Variant
from .watch import Impurity


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
    lengths : tuple of int
        Of the axes of the Tensors and arrays among the arguments.
    opaque : list
        Those leaves that the function does not look at: no Tensors, numbers or texts.
    """

    def __init__(self, variant: Variant, leaves: Sequence[Any]) -> None:
        self.variant = variant
        self._leaves = _sketched(leaves)
        self.lengths = lengths_of(leaves)
        self.opaque = [x for x in self._leaves if not isinstance(x, _Sketch) and not is_plain(x)]

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
    fed : sequence of array
        The external inputs of the record, as it was noted.
    """

    result: Any
    variant: Variant
    call: CompiledCall | None
    impurities: Sequence[Impurity] = ()
    fed: Sequence[Any] = ()


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
    sketches |= {id(leaf): type(leaf) for leaf in leaves if is_looked_into(leaf)}
    sketches |= {id(leaf): _Sketch(type(leaf), leaf.spec) for leaf in leaves if isinstance(leaf, Tensor)}
    return [sketches.get(id(leaf), np.ndarray if isinstance(leaf, np.ndarray) else leaf) for leaf in leaves]


class _Writer(Lines):
    """Writes the function of one `CompiledCall`."""

    def __init__(self, variant: Variant, program: Program | None, reads: Sequence[int]) -> None:
        self._record = variant.outline
        super().__init__(self._record.guards.lines)
        run = program.call if program else None
        self.names.update(MISS=MISS, place=devices.place, program=run, wrap=wrap)
        self._in_place = program.updates if program else frozenset()
        self._outputs = variant.segments[0].outputs
        self._reads = reads
        self._updated = frozenset(self._record.updates().values())
        self._kept: frozenset[Any] = frozenset()  # refs that are wanted after the program ran
        self._owners: dict[Source, str] = {}
        self._made: dict[int | Source, str] = {}  # what is handed on more than once
        self._many = False  # arguments
        self._tensors: list[str] = []  # among the arguments
        self._arrays = {n: f"x{n}" for n in range(len(self._record.externals))}

    def write(self, leaves: Sequence[Any]) -> tuple[str, Callable[[Sequence[Any]], Any]]:
        """The source and the function."""
        assert self._record.ends is not None
        structure, results = self._record.ends
        self._kept = frozenset((*results, *(b.source for b in self._record.bindings)))
        given = [f"if len(leaves) != {len(leaves)}: return MISS"]
        if leaves:
            given.append(f"({''.join(f't{n}, ' for n in range(len(leaves)))}) = leaves")
        self.lines[:0] = given
        known = self._record.guards
        Guards(guard for guard in self._guards_of_arguments(leaves) if guard not in known).write(self)
        for number, external in enumerate(self._record.externals):
            self._feed(number, external)
        for live in results:
            if isinstance(live, Live):
                self.local(live.path)
        if self._outputs:
            self._guard_arrays()
        for path, appends in self._record.writes:
            if (place := path if appends else getattr(path, "of", None)) is not None:
                self.local(place)
        # what cannot be asked for any more, or has no value, is another call
        self.lines = ["try:", *(f" {line}" for line in self.lines), "except Exception: return MISS"]
        if self._outputs:
            self._write(f"{''.join(f'v{s}, ' for s in self._outputs)}= program(arrays)")
        self._make_shared(results)
        for number, binding in enumerate(self._record.bindings):
            self._bind(number, binding)
        self._end(structure, results)
        source = "def made(leaves):\n" + "".join(f"    {line}\n" for line in self.lines)
        return source, self.names.made_by(_code(source))

    def _write(self, line: str) -> None:
        self.lines.append(line)

    def _guards_of_arguments(self, leaves: Sequence[Any]) -> Iterator[Guard]:
        """That the same arguments are the same Tensor, all others different ones, of the recorded classes."""
        first: dict[int, Argument] = {}  # from the id of a Tensor to its first argument
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, _Sketch):
                same = first.setdefault(id(leaf), Argument(n))
                if same.index != n:
                    yield Guard(Argument(n), "alias", same)
        arguments = tuple(first.values())
        self._many = len(arguments) >= _MANY
        if self._many:
            known = [leaves[argument.index] for argument in arguments]
            kinds, specs = [k.kind for k in known], [k.spec for k in known]
            yield Guard(Sources(arguments), "meets", Arguments(kinds, specs))
        else:
            yield from (Guard(one, "type", Held(leaves[one.index].kind)) for one in arguments)
            if len(arguments) > 1:
                yield Guard(Sources(arguments), "different", len(arguments))
        for n, leaf in enumerate(leaves):  # the observer tells of texts, and of numbers if some are followed
            told = type(leaf) in TEXTS or (type(leaf) in FOLLOWED and self._record.follows)
            if not isinstance(leaf, _Sketch) and is_plain(leaf) and not told:
                yield Guard(Argument(n), "same", leaf)
        fed = {external.leaf for external in self._record.externals}
        self._tensors = [f"t{argument.index}" for argument in arguments]
        for argument in arguments:
            if argument.index not in fed:
                yield Guard(Attribute(argument, "_data"), "spec", leaves[argument.index].spec)

    def _guard(self, array: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Miss when those of `array` are others."""
        known = self.name(dtype)
        other = f"{array}.dtype is not {known} and {array}.dtype != {known}"  # `is` is the faster one
        self._write(f"if {array}.shape != {self.name(shape)} or {other}: return MISS")

    def _feed(self, number: int, external: External) -> None:
        spec = external.node.spec
        if external.made is not None:
            self._arrays[number] = self.name(external.made)
        elif external.origin is not None:
            value = f"{self.name(spec.dtype.type)}({self.name(external.origin)}())[...]"
            self._write(f"x{number} = {_placed(value, spec.device)}")
        elif external.converts is not None:
            self._write(f"x{number} = {_placed(self._converted(external, spec.dtype), spec.device)}")
        else:
            self._feed_tensor(number, external, spec)

    def _feed_tensor(self, number: int, external: External, spec: Spec) -> None:
        tensor = self._tensor(external.source)
        if external.is_looked_for:  # another one at each call, and none of those that the call works with
            grads = (guard.source for guard in self._record.guards if isinstance(guard.source, Grad))
            self._write(f"if id({tensor}) in {self.name(self._record.outside)}: return MISS")
            for other in dict.fromkeys([*self._tensors, *map(self._tensor, grads)]):
                self._write(f"if {tensor} is {other}: return MISS")
        if self._is_bare(number):
            self._arrays[number] = f"{tensor}._data"
        else:
            self._write(f"x{number} = {tensor}._data")
        if not self._is_guarded_with_others(number):
            self._guard(self._arrays[number], spec.shape, spec.dtype)
        if external.is_looked_for or (external.leaf is not None and not self._many):
            self._write(f"if {tensor}._device != {spec.device!r}: return MISS")

    def _converted(self, external: External, dtype: np.dtype[Any]) -> str:
        """An array of NumPy's is converted, and so copied; a number becomes an array."""
        assert external.source is not None
        value, kind = self.local(external.source), external.converts
        if isinstance(kind, type):
            if not issubclass(kind, np.generic) or kind is np.float64:
                return self._number(value, dtype)
        elif not isinstance(external.source, Argument):
            self._write(f"if type({value}) is not {self.name(np.ndarray)}: return MISS")
            self._guard(value, external.node.spec.shape, kind)
        return f"{self.name(converted)}({self.name(as_given)}({value}), {self.name(dtype)}, False)"

    def _number(self, value: str, dtype: np.dtype[Any]) -> str:
        """A Python number as an array; that one may become infinite is said only where it is so large."""
        name = self.name(dtype)
        large = f"{self.name(number_to_array)}({value}, {name})"
        if dtype not in dtypes.FLOATS:
            return large
        limit = repr(float(finfo(dtype).max))  # type: ignore[no-untyped-call]
        return f"{self.name(np.array)}({value}, {name}) if -{limit} < {value} < {limit} else {large}"

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

    def _guard_arrays(self) -> None:
        """List what the program reads, and ask the arrays of many Tensors at once."""
        self._write(f"arrays = [{', '.join(map(self._value, self._reads))}]")
        alike: dict[tuple[bool, bool], list[int]] = {}
        externals = {p: -1 - r for p, r in enumerate(self._reads) if r < 0}
        for p, number in externals.items():  # apart: arguments are new more often, what is replaced always
            if self._is_guarded_with_others(number):
                replaced = number in self._updated and p not in self._in_place
                is_argument = self._record.externals[number].leaf is not None
                alike.setdefault((replaced, is_argument), []).append(p)
        for _, guarded in sorted(alike.items()):
            fits = Fits(guarded, [self._record.externals[externals[p]].node.spec for p in guarded])
            self._write(f"if not {self.name(fits)}(arrays): return MISS")

    def _tensor(self, source: Source | None) -> str:
        """The Tensor outside that is found at `source`."""
        assert source is not None
        if isinstance(source, Grad):
            return f"{self._tensor(source.of)}._grad"
        if not isinstance(source, Object):
            return self.local(source)
        if source not in self._owners:
            self._owners[source] = self.name(source.read(()))
        return self._owners[source]

    def _bind(self, number: int, binding: Binding) -> None:
        target, condition = binding.target, ""
        holder = target.of if isinstance(target, Grad) else target
        if isinstance(holder, Argument) or holder in self._owners:
            tensor = self._tensor(target)
        else:  # it may go before this call does
            assert isinstance(holder, Object)
            name, condition = f"o{number}", f"if o{number} is not None: "
            tensor = name + "._grad" * (holder is not target)
            self._write(f"{name} = {self.name(holder.thing.get)}()")
        if binding.is_grad:
            self._write(f"{condition}{tensor}._grad = {self._bound(binding.source, binding.made)}")
            return
        assert isinstance(binding.source, int | Literal)
        if not condition:  # written in place, it is there already
            condition = f"if {tensor}._data is not {self._value(binding.source)} or {tensor}._tape: "
        self._write(f"{condition}{tensor}._reset({self._wrapped(binding.source)})")

    def _make_shared(self, results: Sequence[End]) -> None:
        """Make each Tensor once that is handed on several times, and find those outside that are."""
        handed: list[tuple[int | Source | None, Any]]
        handed = [(b.made, b.source) for b in self._record.bindings if b.is_grad]
        handed += zip(self._record.returned, results, strict=False)
        count = Counter(made for made, _ in handed if isinstance(made, int))
        copies = Counter(end for end in results if isinstance(end, Given) and end.copied)
        for given in (given for given, times in copies.items() if times > 1):
            self._share(id(given), f"{self.name(given.copy)}()")
        for made, source in handed:
            if isinstance(made, int) and count[made] > 1:
                assert isinstance(source, int | Literal)
                self._share(made, self._wrapped(source))
        for source in (*(source for _, source in handed), *self._record.returned):
            if isinstance(source, Grad):  # before it is replaced
                self._share(source, self._tensor(source))

    def _share(self, key: int | Source, value: str) -> None:
        if key not in self._made:
            self._made[key] = f"m{len(self._made)}"
            self._write(f"{self._made[key]} = {value}")

    def _end(self, structure: Structure, results: Sequence[End]) -> None:
        """Write outside what the body writes there, and return."""
        made = self._result(structure, self._handed(results))
        if not self._record.writes:
            return self._write(f"return {made}")
        self._write(f"result, {''.join(f'w{n}, ' for n in range(len(self._record.writes)))} = {made}")
        for number, (source, appends) in enumerate(self._record.writes):
            if appends:
                self._write(f"{self.local(source)}.append(w{number})")
            else:
                self._write(f"{source.code(self)} = w{number}")
        return self._write("return result")

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
            new = f"{self.name(source.copy)}()" if source.copied else self.name(source.value)
            return self._made.get(id(source)) or new
        if isinstance(source, Live):
            return self.local(source.path)
        if source is None:
            return "None"
        shared = self._made.get(made) if made is not None else None
        return shared or self._wrapped(source)

    def _result(self, structure: Structure, parts: Iterator[str]) -> str:
        if structure == LEAF:
            return next(parts)
        return f"{self.name(structure)}.build(iter(({''.join(f'{part}, ' for part in parts)})))"

    def _wrapped(self, ref: Ref) -> str:
        return f"wrap({self._value(ref)}, {self._device(ref)!r})"

    def _device(self, ref: Ref) -> str:
        return of_array(ref.array) if isinstance(ref, Literal) else self._record.spec(ref).device

    def _value(self, ref: Ref) -> str:
        if isinstance(ref, Literal):
            return self.name(ref.array)
        return f"v{ref}" if ref >= 0 else self._arrays[-1 - ref]


def _placed(array: str, device: str) -> str:
    return f"place({array}, {device!r})" if is_gpu(device) else array
