"""A recorded call as a graph with names, for `dump` and `export`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, ExportError
from ..ir import Graph, Node, Spec, const_node, input_node
from ..storage.model_file import Ends, Names, shown
from ..tensor import Parameter, Tensor
from ..tensor.holding import parts_within
from .entry import CUTS, END, Literal
from .holder_state import is_part
from .record import Binding, End, External, FixedValue, Record
from .source import Argument, ObjectRef, try_read
from .tree import LEAF, Structure, flatten
from .variant import extract_graph


@dataclass(frozen=True, slots=True)
class Captured:
    """A recorded call, with all that `storage` needs.

    Attributes
    ----------
    record : Record
        It has ends.
    inputs : tuple
        For each argument that is a Tensor its index among the flattened arguments, its name if it was
        given by keyword, and its type.
    """

    record: Record
    inputs: tuple[tuple[int, str | None, Spec], ...]

    @property
    def structure(self) -> Structure:
        """Return the nesting of the result."""
        assert self.record.ends is not None
        return self.record.ends[0]

    @property
    def results(self) -> tuple[End, ...]:
        """Return where the leaves of the result come from."""
        assert self.record.ends is not None
        return self.record.ends[1]

    @classmethod
    def of(cls, args: Any, kwargs: Any, record: Record) -> Captured:
        """Capture a call with these arguments, before it has ended."""
        leaves, _ = flatten((args, kwargs))
        names = [*(None for _ in flatten(args)[0]), *_keyword_names(kwargs)]
        inputs = [
            (index, name, Spec(t.shape, t.dtype, t._device))
            for index, (t, name) in enumerate(zip(leaves, names, strict=True))
            if isinstance(t, Tensor)
        ]
        return cls(record, tuple(inputs))

    def check(self) -> None:
        """Raise an error for what a file cannot do: change Tensors outside, or read values in Python."""
        _check_pure(self.record)

    def graph(self, arg_names: Any, output_names: Any, keep: int) -> tuple[Graph, Ends]:
        """Return the graph over all arguments, with the current constants, and the names of its ends."""
        nodes = {index: input_node(spec) for index, _, spec in self.inputs}
        boundary = {external.node: self._argument(external) for external in self.record.externals}
        kind, keys = _describe_container(self.structure)
        order = sorted(range(len(self.results)), key=keys.__getitem__) if kind == "dict" else None
        refs = [self.results[n] for n in order or range(len(self.results))]
        ends = tuple(_node(self.record, r) for r in refs)
        graph, leaves = extract_graph(ends, boundary, _update_constants(self.record))
        nodes.update(zip(leaves, graph.inputs))
        graph = Graph(tuple(nodes[index] for index, _, _ in self.inputs), graph.outputs)
        inputs = _name_inputs(self, arg_names)
        if kind == "dict":
            if output_names is not None:
                raise ArgumentError("cannot specify output_names when output is already in dict format")
            output_names = [keys[n] for n in order or ()]
        default = _make_default_names(graph, inputs, keep)
        outputs = _choose_names(output_names, len(refs), default.__getitem__, "output_names")
        return graph, Ends(inputs, outputs, kind)

    def _argument(self, external: External) -> int:
        """Return which argument an input of the record is."""
        source = external.source
        if isinstance(source, Argument) and any(source.index == index for index, _, _ in self.inputs):
            return source.index
        raise ExportError(
            f"the value used first at {external.line} comes from outside and differs from call to "
            "call: pass it as an argument"
        )

    def parameters(self) -> dict[str, Any]:
        """Return the Tensors of the holders that the body used, by their names in the outermost holder."""
        holders = [held.get() for held, _ in self.record.holders if not held.is_gone()]
        inner = {id(part) for holder in holders for _, part in parts_within(holder)}
        return {
            (f"{root.name}.{name}" if getattr(root, "name", None) else name): part.numpy()
            for root in holders
            if id(root) not in inner
            for name, part in parts_within(root)
            if isinstance(part, Tensor) and part.size > 1
        }


def _keyword_names(kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a name for each leaf of the keyword arguments: ``mask``, ``pair[0]``."""
    for key, value in kwargs.items():
        leaves, structure = flatten(value)
        yield from [key] if structure == LEAF else (f"{key}[{n}]" for n in range(len(leaves)))


def _is_allowed_in_file(binding: Binding) -> bool:
    """Check whether a binding clears a ``grad``, or sets that of an argument, which is an array in a file."""
    return binding.is_grad and (isinstance(binding.target, Argument) or binding.source is None)


def _check_pure(record: Record) -> None:
    changed = {id(try_read(binding.target)) for binding in record.bindings if not binding.is_grad}
    for held, _ in record.holders:
        holder = held.get()
        parts = () if holder is None else (p for _, p in holder.__parts__() if not isinstance(p, Parameter))
        if getattr(holder, "training", False) and any(id(part) in changed for part in parts):
            raise ExportError(
                f"can not dump {type(holder).__name__} in training mode, maybe you forget to do model.eval()?"
            )
    if not all(map(_is_allowed_in_file, record.bindings)):
        raise ExportError(
            "the function gives Tensors outside of it new values or gradients, or draws random numbers, "
            "which a file cannot: dump a function that only computes, set each `grad` of a Parameter to None "
            "before it returns, and call eval() on its modules"
        )
    for entry in record.entries:
        if entry.op is not END and entry.op in CUTS:
            raise ExportError(
                f"the function looks at values ({entry.op.name} at {entry.source}): what Python makes of "
                "them would be frozen in the file; compute it with ops"
            )


def _update_constants(record: Record) -> dict[Node, Node]:
    """Map each constant that was the value of a Tensor outside to a constant of its current value."""
    found = {}
    instead = _find_replacements(record) if record.captured else {}
    for node, literal in record.captured.items():
        owner = literal.owner() if literal.owner is not None else None
        owner = instead.get(id(owner), owner)
        if owner is None or owner._data is literal.array:
            continue
        if owner.spec != Spec(node.spec.shape, node.spec.dtype, owner.device):
            raise ExportError(
                f"a Tensor from outside that is a constant in the file was {node.spec} when the function was "
                f"called, and is {owner.spec} now: call the function again, then write it"
            )
        found[node] = const_node(owner._array(), node.spec.dtype, node.spec.device)
    return found


def _find_replacements(record: Record) -> dict[int, Tensor]:
    """Map the ids of Tensors that decided what holders do to the Tensors that are there now."""
    now: dict[int, Tensor] = {}
    for held, parts in record.holders:
        for source, then in parts if not held.is_gone() else ():
            value = try_read(source)
            if isinstance(then, Tensor) and isinstance(value, Tensor):
                if now.setdefault(id(then), value) is not value:
                    raise _make_change_error(f"{source} is another Tensor")
            elif value is not then:
                raise _make_change_error(f"{source} is another object")
    for guard in record.guards:
        if guard.test == "items" and any(map(_is_held_part, guard.value)) and not guard.holds(()):
            raise _make_change_error(guard.change(()))
    return now


def _is_held_part(held: Any) -> bool:
    return isinstance(held, ObjectRef) and (held.is_gone() or is_part(held.get()))


def _make_change_error(what: str) -> ExportError:
    return ExportError(f"{what} than in the recorded call: make a new trace, call that, and write it")


def _name_inputs(captured: Captured, arg_names: Any) -> list[str]:
    by_keyword = [name for _, name, _ in captured.inputs if name is not None]
    count = len(captured.inputs) - len(by_keyword)
    given = _choose_names(arg_names, count, "arg_{}".format, "arg_names")
    return _choose_names([*given, *by_keyword], len(captured.inputs), str, "arg_names")


def _choose_names(given: Any, count: int, default: Callable[[int], str], what: str) -> list[str]:
    """Return the names that the user gave, or default ones.

    Raises
    ------
    ArgumentError
        Their number is wrong, two are equal, or they are not a list of names.
    """
    if not isinstance(given, str | list | tuple | None):
        raise ArgumentError(f"{what}: give a list of names, not {given!r}")
    names = [given] if isinstance(given, str) else [None] * count if given is None else list(given)
    if len(names) != count:
        raise ArgumentError(f"wrong number of {what}, should be {count} values, got {len(names)}")
    found = [default(n) if name is None else name for n, name in enumerate(names)]
    for name in found:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ArgumentError(f"{what}: {name!r} is not a name")
    for name in found:
        if found.count(name) > 1:
            raise ArgumentError(f"{what}: {name!r} is given twice; names in a file must be unique")
    return found


def _make_default_names(graph: Graph, taken: list[str], keep: int) -> list[str]:
    names = Names(taken)
    return [names.new(shown(o.op) if keep else "output") for o in graph.outputs]


def _describe_container(structure: Structure) -> tuple[str, tuple[Any, ...]]:
    """Return the kind of container of the outputs, and its keys."""
    flat = all(child == LEAF for child in structure.children)
    if structure.kind is None:
        return "tensor", ()
    if flat and issubclass(structure.kind, Mapping):
        if not all(isinstance(key, str) for key in structure.keys):
            raise ExportError(f"the keys of the outputs are their names: give strings, not {structure.keys}")
        return "dict", structure.keys
    if flat:
        return ("list" if issubclass(structure.kind, list) else "tuple"), ()
    raise ExportError(
        f"Unsupport outputs type, a nested {structure.kind.__name__}: return a Tensor, a flat list or tuple "
        "of Tensors, or a dict of Tensors"
    )


def _node(record: Record, ref: End) -> Node:
    if not isinstance(ref, int | Literal):
        got = type(ref.value).__name__ if isinstance(ref, FixedValue) else "None"
        raise ExportError(f"Only support return tensors when capture_as_const is enabled: got {got}")
    return record.node(ref)
