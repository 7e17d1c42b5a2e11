"""One program for sequences of deferred ops that differ in lengths, found by comparing two of them.

The *form* of a sequence is all of it but its lengths and its Python numbers. Where two sequences of one form
have different lengths, each pair of different lengths becomes a letter. A parameter that differs must be a
polynomial of letters. The program of the sequence generalized in this way serves every sequence of the form
that agrees with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import MgbError
from ...executor import Program
from ...ir import Node, Spec, const_node, input_node
from ...ir.scalars import Size
from ...ir.sizes import Lengths, Sizes, plain
from ...runtime import forking
from ...tensor.tracing import make_node
from ..entry import Literal, has_same_bits
from .link import Link
from .operands import Varying

#: The most forms that are cached.
_FORMS = 256

#: How many pairs of sequences of one form are compared.
_GENERALS = 4


class _NotEquivalent(Exception):
    """Two sequences of one form differ in more than lengths."""


@dataclass(slots=True)
class Instance:
    """The lengths and numbers that one sequence has besides its form.

    Attributes
    ----------
    lengths : tuple of int
        Of the axes of the external inputs, in order.
    numbers : tuple of int
        Those in parameters, in order.
    literals : list of Literal
        The Python numbers among the operands, in order.
    """

    lengths: tuple[int, ...]
    numbers: tuple[int, ...]
    literals: list[Literal]


class Form:
    """Sequences that are equal except for lengths and numbers.

    Attributes
    ----------
    runs : int
        How often any of them ended without a program.
    generals : list of GeneralSequence
        Those that serve several of them.
    """

    def __init__(self, first: Instance) -> None:
        self.runs = 0
        self.generals: list[GeneralSequence] = []
        self._first = first
        self._tries = _GENERALS

    def generalize(self, sequence: Sequence[Link], instance: Instance) -> GeneralSequence | None:
        """Generalize the first sequence and this one, if their lengths differ and tries are left."""
        if not self._tries or instance.lengths == self._first.lengths:
            return None
        self._tries -= 1
        try:
            return GeneralSequence(self, sequence, self._first, instance)
        except (MgbError, _NotEquivalent):
            return None


class Forms:
    """A cache of forms, the newest last. Streams of several threads may share one."""

    def __init__(self) -> None:
        self._forms: OrderedDict[Hashable, Form] = OrderedDict()
        self._lock = forking.lock()

    def find(
        self, sequence: Sequence[Link], outputs: tuple[int, ...], replaced: Mapping[int, int]
    ) -> tuple[Form, Instance] | None:
        """Return the form of a sequence and its instance; None where a parameter cannot be compared."""
        numbers: list[int] = []
        literals: list[Literal] = []
        try:
            links = tuple([_form_of(link, numbers, literals) for link in sequence])
            key = outputs, tuple(sorted(replaced.items())), links
            hash(key)
        except TypeError:
            return None
        lengths = tuple([length for link in sequence for node in link.feeds for length in node.spec.shape])
        instance = Instance(lengths, tuple(numbers), literals)
        with self._lock:
            form = self._forms.pop(key, None) or Form(instance)
            self._forms[key] = form
            if len(self._forms) > _FORMS:
                self._forms.popitem(last=False)
        return form, instance


def _form_of(link: Link, numbers: list[int], literals: list[Literal]) -> Hashable:
    args: list[Hashable] = []
    for ref in link.args:
        if isinstance(ref, Literal):
            literals.append(ref)
            args.append((ref.array.dtype, ref.device))
        else:
            args.append((ref.number, ref.dtype) if isinstance(ref, Varying) else ref)
    feeds = tuple([(node.spec.ndim, node.spec.dtype, node.spec.device) for node in link.feeds])
    return link.op, tuple(args), feeds, link.signs, _extract_numbers(link.params, numbers)


def _extract_numbers(value: Any, numbers: list[int]) -> Hashable:
    """Return `value` without its integers, which are appended to `numbers`."""
    if type(value) is int:
        numbers.append(value)
        return int
    if type(value) in (tuple, list):
        return (type(value), *[_extract_numbers(part, numbers) for part in value])
    if type(value) is dict:
        return tuple([(key, _extract_numbers(part, numbers)) for key, part in value.items()])
    hash(value)
    return type(value), value


class GeneralSequence:
    """A sequence for all lengths that agree with two examples.

    Parameters
    ----------
    form : Form
    sequence : sequence of Link
        The second example.
    first, second : Instance

    Attributes
    ----------
    program : Program
        Compiled for the second example.
    reads : tuple of int
        The refs of its inputs.

    Raises
    ------
    MgbError
        The ops cannot take letters.
    _NotEquivalent
        A parameter does not depend on the lengths.
    """

    program: Program
    reads: tuple[int, ...]

    def __init__(self, form: Form, sequence: Sequence[Link], first: Instance, second: Instance) -> None:
        self._form = form
        pairs = list(zip(first.lengths, second.lengths))
        letters = {pair: n for n, pair in enumerate(dict.fromkeys(p for p in pairs if p[0] != p[1]))}
        self.sizes = Sizes([now for _, now in letters], prints=True)
        self._letters: list[tuple[tuple[int, int], Any]] = list(zip(letters, self.sizes.letters))
        self._lengths: list[Any] = [self.sizes.letters[letters[p]] if p in letters else p[1] for p in pairs]
        self._numbers = [self._express(*pair) for pair in zip(first.numbers, second.numbers)]
        self._literals = [
            now if has_same_bits(was.array, now.array) else None
            for was, now in zip(first.literals, second.literals)
        ]
        self.nodes: list[Node] = []
        self.boundary: dict[Node, int] = {}  # to the refs of external inputs, and after these of literals
        self._build_nodes(sequence)

    def _express(self, was: int, now: int) -> Any:
        """Return a number in a parameter as a polynomial of letters."""
        if was == now:
            return now
        for (a, b), size in self._letters:
            if a and b and was % a == 0 and now % b == 0 and was // a == now // b:
                return size * (now // b)
            if was and now and a % was == 0 and b % now == 0 and a // was == b // now:
                return size // (a // was)
            if was - a == now - b:
                return size + (now - b)
        for (a, b), one in self._letters:
            for (c, d), other in self._letters:
                if a * c and b * d and was % (a * c) == 0 and now % (b * d) == 0:
                    if was // (a * c) == now // (b * d):
                        return one * other * (now // (b * d))
        raise _NotEquivalent

    def _build_nodes(self, sequence: Sequence[Link]) -> None:
        lengths, numbers, literals = iter(self._lengths), iter(self._numbers), iter(self._literals)
        fed = sum(len(link.feeds) for link in sequence)
        external: list[Node] = []
        for link in sequence:
            for node in link.feeds:
                spec = Spec(
                    tuple([next(lengths) for _ in node.spec.shape]), node.spec.dtype, node.spec.device
                )
                external.append(input_node(spec, node.source))
            inputs: list[Node] = []
            for ref in link.args:
                if isinstance(ref, Literal):
                    constant = next(literals)
                    if constant is not None:
                        inputs.append(const_node(constant.array, constant.array.dtype, constant.device))
                    else:
                        inputs.append(input_node(Spec((), ref.array.dtype, ref.device), link.source))
                        self.boundary[inputs[-1]] = -1 - fed
                        fed += 1
                else:
                    number = ref.number if isinstance(ref, Varying) else -1 - ref
                    inputs.append(external[number] if number >= 0 else self.nodes[-1 - number])
            assert link.op is not None and link.params is not None and link.spec is not None
            params = _insert_numbers(link.params, numbers)
            made = make_node(link.op, tuple(inputs), params, link.source)
            if plain(made.spec.shape) != link.spec.shape or made.spec.dtype != link.spec.dtype:
                raise _NotEquivalent
            self.nodes.append(Node(link.op, tuple(inputs), params, made.spec, link.source))
        self.boundary |= {node: -1 - n for n, node in enumerate(external)}

    def register(self, program: Program) -> None:
        """Let `program`, which was compiled for the second example, serve others."""
        self.program = program
        self._form.generals.append(self)

    def program_for(self, sequence: Sequence[Link], instance: Instance) -> Program | None:
        """Return the program for another `sequence` of the form, if it agrees in all numbers and shapes."""
        values = self._values(instance)
        program = None if values is None else self.program.resized(values)
        if values is None or program is None:
            return None
        at = Lengths(self.sizes, values)
        agrees = all(at(number) == now for number, now in zip(self._numbers, instance.numbers)) and all(
            known is None or has_same_bits(known.array, now.array)
            for known, now in zip(self._literals, instance.literals)
        )
        if not agrees:
            return None
        pairs = zip(self.nodes, sequence)
        are_same = all(link.spec is None or at(node.spec.shape) == link.spec.shape for node, link in pairs)
        return program if are_same else None

    def _values(self, instance: Instance) -> tuple[int, ...] | None:
        """Return the values of the letters in an instance."""
        values: dict[int, int] = {}
        for known, now in zip(self._lengths, instance.lengths):
            if type(known) is not Size:
                if known != now:
                    return None
            elif values.setdefault(id(known), now) != now:
                return None
        return tuple([values[id(size)] for size in self.sizes.letters])

    def extras(self, instance: Instance) -> list[Any]:
        """Return the arrays of the numbers that are inputs, which follow the external ones."""
        pairs = zip(self._literals, instance.literals)
        return [now.array for known, now in pairs if known is None]


def _insert_numbers(value: Any, numbers: Iterator[Any]) -> Any:
    """Return `value` with `numbers` in place of its integers."""
    if type(value) is int:
        return next(numbers)
    if type(value) in (tuple, list):
        return type(value)([_insert_numbers(part, numbers) for part in value])
    if type(value) is dict:
        return {key: _insert_numbers(part, numbers) for key, part in value.items()}
    return value
