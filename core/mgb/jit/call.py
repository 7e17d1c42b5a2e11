"""A call that skips the Python body: feed the inputs, run the program, return the results."""

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

from ..executor import Program
from ..ir import Spec, dtypes
from ..ir.scalars import FOLLOWED
from ..runtime import device as devices
from ..runtime.device import is_gpu, of_array
from ..runtime.forking import cached_property
from ..tensor import Tensor, as_given, converted, of_handler, wrap
from .arguments import TEXTS
from .deferred.operands import number_to_array
from .entry import Literal, Ref, external_ref
from .generated import MISS, Lines
from .guard import Guard, Guards, is_plain
from .record import Binding, End, External, FixedValue, LiveValue
from .resize import lengths_of
from .source import Argument, Attribute, Grad, Identity, Object, ObjectRef, Source, Sources
from .tensor_guards import CheckArguments, CheckSpecs
from .tree import LEAF, Structure, is_known_by_identity, is_known_by_reads
from .variant import Variant
from .watch import Impurity


class CompiledCall:
    """A recorded call, served by one generated function: check guards, feed inputs, run, return.

    Parameters
    ----------
    variant : Variant
        It has a single segment, and its record has ends.
    leaves : sequence
        The flattened arguments of the recorded call.

    Attributes
    ----------
    lengths : tuple of int
        Of the axes of the Tensors and arrays among the arguments.
    opaque : list
        The leaves that the function does not check: anything but Tensors, numbers and strings.
    """

    def __init__(self, variant: Variant, leaves: Sequence[Any]) -> None:
        self.variant = variant
        self._leaves = _abstract_leaves(leaves)
        self.lengths = lengths_of(leaves)
        self.opaque = [x for x in self._leaves if not isinstance(x, _AbstractTensor) and not is_plain(x)]

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """Serve a call: ``run(leaves)`` returns the result, or `MISS` if a guard fails."""
        return self._generate()

    def _generate(self) -> Callable[[Sequence[Any]], Any]:
        owners = self.variant.abstract_record.owners()  # a reference, as the garbage collector may run
        if any(owner is None for owner in owners) or self.variant.abstract_record.gone() is not None:
            return lambda leaves: MISS  # no later call can find what is gone
        program, reads = self.variant.program(0) if self.variant.segments[0].outputs else (None, ())
        writer = _Writer(self.variant, program, reads)
        self.source, run = writer.write(self._leaves)
        return run

    def resized(self, leaves: Sequence[Any]) -> CompiledCall | None:
        """Return the call for arguments of other lengths, if the body would do the same with them."""
        variant = self.variant.resized(leaves)
        return None if variant is None else CompiledCall(variant, leaves)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call that was recorded: its result, and what serves equal calls.

    Attributes
    ----------
    call : CompiledCall or None
        None: the body must run at each call, because of the `impurities`.
    fed : sequence of array
        The external inputs of the recorded call.
    """

    result: Any
    variant: Variant
    call: CompiledCall | None
    impurities: Sequence[Impurity] = ()
    fed: Sequence[Any] = ()


#: From this many arguments on, one call checks all guards: in C, hundreds take a tenth of the time.
_MANY = 16


@lru_cache(maxsize=64)
def _compile_source(source: str) -> CodeType:
    """Compile `source`. Calls for arguments of other lengths have the same source."""
    return compile(source, "<mgb call>", "exec")


@dataclass(frozen=True, slots=True, eq=False)
class _AbstractTensor:
    """A Tensor among the recorded arguments, without its value."""

    kind: type
    spec: Spec


def _abstract_leaves(leaves: Sequence[Any]) -> list[Any]:
    """Return arguments without values, and without references to objects that the key does not hold."""
    sketches: dict[int, Any] = {id(leaf): Identity(leaf) for leaf in leaves if is_known_by_identity(leaf)}
    sketches |= {id(leaf): type(leaf) for leaf in leaves if is_known_by_reads(leaf)}
    sketches |= {
        id(leaf): _AbstractTensor(type(leaf), leaf.spec) for leaf in leaves if isinstance(leaf, Tensor)
    }
    return [sketches.get(id(leaf), np.ndarray if isinstance(leaf, np.ndarray) else leaf) for leaf in leaves]


class _Writer(Lines):
    """Writes the function of one `CompiledCall`."""

    def __init__(self, variant: Variant, program: Program | None, reads: Sequence[int]) -> None:
        self._record = variant.abstract_record
        super().__init__(self._record.guards.lines)
        run = program.call if program else None
        self.names.update(MISS=MISS, place=devices.place, program=run, wrap=wrap)
        self._in_place = program.updates if program else frozenset()
        self._outputs = variant.segments[0].outputs
        self._reads = reads
        self._updated = frozenset(self._record.updates().values())
        self._live_out: frozenset[Any] = frozenset()  # refs that are needed after the program ran
        self._owners: dict[Source, str] = {}
        self._shared: dict[int | Source, str] = {}  # Tensors that are returned more than once
        self._many = False  # arguments
        self._tensors: list[str] = []  # among the arguments
        self._arrays = {n: f"x{n}" for n in range(len(self._record.externals))}

    def write(self, leaves: Sequence[Any]) -> tuple[str, Callable[[Sequence[Any]], Any]]:
        """Return the source and the function."""
        assert self._record.ends is not None
        structure, results = self._record.ends
        self._live_out = frozenset((*results, *(b.source for b in self._record.bindings)))
        given = [f"if len(leaves) != {len(leaves)}: return MISS"]
        if leaves:
            given.append(f"({''.join(f't{n}, ' for n in range(len(leaves)))}) = leaves")
        self.lines[:0] = given
        known = self._record.guards
        Guards(guard for guard in self._list_argument_guards(leaves) if guard not in known).write(self)
        for number, external in enumerate(self._record.externals):
            self._feed(number, external)
        for live in results:
            if isinstance(live, LiveValue):
                self.local(live.path)
        if self._outputs:
            self._guard_arrays()
        for path, appends in self._record.writes:
            if (place := path if appends else getattr(path, "of", None)) is not None:
                self.local(place)
        # A source that cannot be read any more fails its guard.
        missed = f"if {self.name(of_handler)}(error): raise"
        guarded = ["try:", *(f" {line}" for line in self.lines)]
        self.lines = [*guarded, "except Exception as error:", f" {missed}", " return MISS"]
        if self._outputs:
            self._write(f"{''.join(f'v{s}, ' for s in self._outputs)}= program(arrays)")
        self._make_shared(results)
        for number, binding in enumerate(self._record.bindings):
            self._bind(number, binding)
        self._write_end(structure, results)
        source = "def made(leaves):\n" + "".join(f"    {line}\n" for line in self.lines)
        return source, self.names.define(_compile_source(source))

    def _write(self, line: str) -> None:
        self.lines.append(line)

    def _list_argument_guards(self, leaves: Sequence[Any]) -> Iterator[Guard]:
        """Yield guards of the aliasing and the classes of the arguments."""
        first: dict[int, Argument] = {}  # from the id of a Tensor to its first argument
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, _AbstractTensor):
                same = first.setdefault(id(leaf), Argument(n))
                if same.index != n:
                    yield Guard(Argument(n), "alias", same)
        arguments = tuple(first.values())
        self._many = len(arguments) >= _MANY
        if self._many:
            known = [leaves[argument.index] for argument in arguments]
            kinds, specs = [k.kind for k in known], [k.spec for k in known]
            yield Guard(Sources(arguments), "meets", CheckArguments(kinds, specs))
        else:
            yield from (Guard(one, "type", ObjectRef(leaves[one.index].kind)) for one in arguments)
            if len(arguments) > 1:
                yield Guard(Sources(arguments), "different", len(arguments))
        for n, leaf in enumerate(leaves):  # the observer guards strings, and numbers if some are symbolic
            is_observed = type(leaf) in TEXTS or (type(leaf) in FOLLOWED and self._record.follows)
            if not isinstance(leaf, _AbstractTensor) and is_plain(leaf) and not is_observed:
                yield Guard(Argument(n), "same", leaf)
        fed = {external.leaf for external in self._record.externals}
        self._tensors = [f"t{argument.index}" for argument in arguments]
        for argument in arguments:
            if argument.index not in fed:
                yield Guard(Attribute(argument, "_data"), "spec", leaves[argument.index].spec)

    def _guard(self, array: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Write a check of the shape and dtype of `array`."""
        known = self.name(dtype)
        other = f"{array}.dtype is not {known} and {array}.dtype != {known}"  # `is` is faster
        self._write(f"if {array}.shape != {self.name(shape)} or {other}: return MISS")

    def _feed(self, number: int, external: External) -> None:
        spec = external.node.spec
        if external.made is not None:
            self._arrays[number] = self.name(external.made)
        elif external.origin is not None:
            value = f"{self.name(spec.dtype.type)}({self.name(external.origin)}())[...]"
            self._write(f"x{number} = {_place(value, spec.device)}")
        elif external.converts is not None:
            self._write(f"x{number} = {_place(self._convert(external, spec.dtype), spec.device)}")
        else:
            self._feed_tensor(number, external, spec)

    def _feed_tensor(self, number: int, external: External, spec: Spec) -> None:
        tensor = self._tensor(external.source)
        if external.may_vary:  # it must not be a Tensor that the call uses otherwise
            grads = (guard.source for guard in self._record.guards if isinstance(guard.source, Grad))
            self._write(f"if id({tensor}) in {self.name(self._record.outside)}: return MISS")
            for other in dict.fromkeys([*self._tensors, *map(self._tensor, grads)]):
                self._write(f"if {tensor} is {other}: return MISS")
        if self._needs_no_variable(number):
            self._arrays[number] = f"{tensor}._data"
        else:
            self._write(f"x{number} = {tensor}._data")
        if not self._is_guarded_with_others(number):
            self._guard(self._arrays[number], spec.shape, spec.dtype)
        if external.may_vary or (external.leaf is not None and not self._many):
            self._write(f"if {tensor}._device != {spec.device!r}: return MISS")

    def _convert(self, external: External, dtype: np.dtype[Any]) -> str:
        """Return an expression that converts, and so copies, a NumPy array, or makes an array of a number."""
        assert external.source is not None
        value, kind = self.local(external.source), external.converts
        if isinstance(kind, type):
            if not issubclass(kind, np.generic) or kind is np.float64:
                return self._convert_number(value, dtype)
        elif not isinstance(external.source, Argument):
            self._write(f"if type({value}) is not {self.name(np.ndarray)}: return MISS")
            self._guard(value, external.node.spec.shape, kind)
        return f"{self.name(converted)}({self.name(as_given)}({value}), {self.name(dtype)}, False)"

    def _convert_number(self, value: str, dtype: np.dtype[Any]) -> str:
        """Return an expression for a Python number as an array; only a huge one may warn about infinity."""
        name = self.name(dtype)
        large = f"{self.name(number_to_array)}({value}, {name})"
        if dtype not in dtypes.FLOATS:
            return large
        limit = repr(float(finfo(dtype).max))  # type: ignore[no-untyped-call]
        return f"{self.name(np.array)}({value}, {name}) if -{limit} < {value} < {limit} else {large}"

    def _needs_no_variable(self, number: int) -> bool:
        """Check whether the array needs no variable: a second reference would prevent an in-place update."""
        in_place = number in self._updated or self._is_guarded_with_others(number)
        return in_place and external_ref(number) not in self._live_out

    def _is_guarded_with_others(self, number: int) -> bool:
        """Check whether one call guards it with others: Tensors outside, or one of many arguments."""
        external = self._record.externals[number]
        alone = external.origin is not None or (external.leaf is not None and not self._many)
        alone = alone or external.made is not None or external.converts is not None
        alone = alone or external.may_vary
        return not alone and external_ref(number) in self._reads

    def _guard_arrays(self) -> None:
        """Write the list of arrays that the program reads, and one guard for many of them."""
        self._write(f"arrays = [{', '.join(map(self._value, self._reads))}]")
        groups: dict[tuple[bool, bool], list[int]] = {}
        externals = {p: -1 - r for p, r in enumerate(self._reads) if r < 0}
        for p, number in externals.items():  # apart: arguments change often, replaced arrays always
            if self._is_guarded_with_others(number):
                replaced = number in self._updated and p not in self._in_place
                is_argument = self._record.externals[number].leaf is not None
                groups.setdefault((replaced, is_argument), []).append(p)
        for _, guarded in sorted(groups.items()):
            fits = CheckSpecs(guarded, [self._record.externals[externals[p]].node.spec for p in guarded])
            self._write(f"if not {self.name(fits)}(arrays): return MISS")

    def _tensor(self, source: Source | None) -> str:
        """Return an expression for the Tensor outside at `source`."""
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
        else:  # the Tensor may be collected before this call
            assert isinstance(holder, Object)
            name, condition = f"o{number}", f"if o{number} is not None: "
            tensor = name + "._grad" * (holder is not target)
            self._write(f"{name} = {self.name(holder.thing.get)}()")
        if binding.is_grad:
            self._write(f"{condition}{tensor}._grad = {self._write_part(binding.source, binding.made)}")
            return
        assert isinstance(binding.source, int | Literal)
        if not condition:  # a program that updates in place has written it already
            condition = f"if {tensor}._data is not {self._value(binding.source)} or {tensor}._tape: "
        self._write(f"{condition}{tensor}._reset({self._wrap(binding.source)})")

    def _make_shared(self, results: Sequence[End]) -> None:
        """Make each new Tensor that is returned several times once, and read gradients before they change."""
        handed: list[tuple[int | Source | None, Any]]
        handed = [(b.made, b.source) for b in self._record.bindings if b.is_grad]
        handed += zip(self._record.returned, results, strict=False)
        count = Counter(made for made, _ in handed if isinstance(made, int))
        copies = Counter(end for end in results if isinstance(end, FixedValue) and end.copied)
        for given in (given for given, times in copies.items() if times > 1):
            self._share(id(given), f"{self.name(given.copy)}()")
        for made, source in handed:
            if isinstance(made, int) and count[made] > 1:
                assert isinstance(source, int | Literal)
                self._share(made, self._wrap(source))
        for source in (*(source for _, source in handed), *self._record.returned):
            if isinstance(source, Grad):  # read it before it is replaced
                self._share(source, self._tensor(source))

    def _share(self, key: int | Source, value: str) -> None:
        if key not in self._shared:
            self._shared[key] = f"m{len(self._shared)}"
            self._write(f"{self._shared[key]} = {value}")

    def _write_end(self, structure: Structure, results: Sequence[End]) -> None:
        """Write the effects on variables and attributes, and the return."""
        made = self._build_result(structure, self._list_parts(results))
        if not self._record.writes:
            return self._write(f"return {made}")
        self._write(f"result, {''.join(f'w{n}, ' for n in range(len(self._record.writes)))} = {made}")
        for number, (source, appends) in enumerate(self._record.writes):
            if appends:
                self._write(f"{self.local(source)}.append(w{number})")
            else:
                self._write(f"{source.code(self)} = w{number}")
        return self._write("return result")

    def _list_parts(self, results: Sequence[End]) -> Iterator[str]:
        """Yield an expression for each part of the result."""
        returned = chain(self._record.returned, repeat(None))  # values after the result are new
        for ref, which in zip(results, returned):
            yield self._write_part(which, None) if isinstance(which, Source) else self._write_part(ref, which)

    def _write_part(self, source: End | Source, made: int | None) -> str:
        """Return an expression for one part of the result."""
        if isinstance(source, Source):
            return self._shared.get(source) or self._tensor(source)
        if isinstance(source, FixedValue):
            new = f"{self.name(source.copy)}()" if source.copied else self.name(source.value)
            return self._shared.get(id(source)) or new
        if isinstance(source, LiveValue):
            return self.local(source.path)
        if source is None:
            return "None"
        shared = self._shared.get(made) if made is not None else None
        return shared or self._wrap(source)

    def _build_result(self, structure: Structure, parts: Iterator[str]) -> str:
        if structure == LEAF:
            return next(parts)
        return f"{self.name(structure)}.build(iter(({''.join(f'{part}, ' for part in parts)})))"

    def _wrap(self, ref: Ref) -> str:
        return f"wrap({self._value(ref)}, {self._device(ref)!r})"

    def _device(self, ref: Ref) -> str:
        return of_array(ref.array) if isinstance(ref, Literal) else self._record.spec(ref).device

    def _value(self, ref: Ref) -> str:
        if isinstance(ref, Literal):
            return self.name(ref.array)
        return f"v{ref}" if ref >= 0 else self._arrays[-1 - ref]


def _place(array: str, device: str) -> str:
    return f"place({array}, {device!r})" if is_gpu(device) else array
