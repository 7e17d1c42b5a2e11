"""The arguments of a call: the keys of records, and the names of arguments in messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import TraceInputError
from ..ir.scalars import FOLLOWED
from ..runtime.forking import cached_property
from ..tensor import Tensor
from .source import Identity
from .tree import Structure, exact_key, flatten, is_known_by_reads

#: Types of numbers that can be symbolic.
_NUMBERS = FOLLOWED

#: Classes with axes, whose lengths can be symbolic.
ARRAYS = (Tensor, np.ndarray)

#: Types of strings.
TEXTS = (str, bytes)

#: Common types that contain no Tensor.
_PLAIN = (int, float, str, type(None))


def shapes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the shapes of the Tensors and arrays among the arguments, also in containers."""
    shapes: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            shapes.append(value.spec.shape if value._data is None else value._data.shape)
        elif not isinstance(value, _PLAIN):
            shapes += [t.shape for t in flatten(value)[0] if isinstance(t, ARRAYS)]
    return tuple(shapes)


def arrays_among(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, ...]:
    """Return for each leaf of the arguments whether it is a NumPy array; () if there is none."""
    for value in args if not kwargs else (None,):
        if not isinstance(value, Tensor):
            break
    else:
        return ()
    found = tuple([isinstance(leaf, np.ndarray) for leaf in flatten((args, kwargs))[0]])
    return found if any(found) else ()


class Key(tuple[Any, ...]):
    """The key of a record: nesting, aliasing and a key for each leaf; equal keys share a record."""

    @cached_property
    def form(self) -> Key:
        """Return the key without the lengths of axes."""
        structure, shared, *leaves = self
        return Key((structure, shared, *map(_form, leaves)))

    @cached_property
    def pattern(self) -> Key:
        """Return the form without the values of numbers."""
        return self.form.without_numbers()

    def without_numbers(self, free: Sequence[int] | None = None) -> Key:
        """Return the key without the values of all numbers, or of those at the indices `free`."""
        structure, shared, *leaves = self
        numbers = [n for n, leaf in enumerate(leaves) if leaf[0] in _NUMBERS] if free is None else free
        for index in numbers:
            leaves[index] = leaves[index][:1]
        return Key((structure, shared, *leaves))


def key_of(leaves: Sequence[Any], structure: Structure) -> Key:
    """Return the key of a call with these arguments."""
    keys = list(map(_leaf_key, leaves))
    for index in texts_within(leaves, structure):
        keys[index] = type(leaves[index]), None
    return Key((structure, _find_aliases(leaves), *keys))


def texts_within(leaves: Sequence[Any], structure: Structure) -> list[int]:
    """Return the indices of strings in lists and dicts, where only those that the body reads are guarded.

    A string that is an argument itself is part of the key: no hook sees the body read it. Nor does one see
    what Python generates for tuples and dataclasses, such as comparisons, read their parts.
    """
    if not any(type(leaf) in TEXTS for leaf in leaves):
        return []
    numbered = iter(enumerate(leaves))
    positional, named = structure.children
    return [n for part in (*positional.children, *named.children) for n in _find_texts(part, numbered, True)]


def _find_texts(structure: Structure, numbered: Iterator[tuple[int, Any]], is_value: bool) -> list[int]:
    if structure.kind is None:
        index, leaf = next(numbered)
        return [index] if type(leaf) in TEXTS and not is_value else []
    is_value = not issubclass(structure.kind, list | dict)
    return [n for part in structure.children for n in _find_texts(part, numbered, is_value)]


def _form(key: tuple[Any, ...]) -> tuple[Any, ...]:
    if type(key) is not ArrayKey:
        return key
    kind, shape, dtype, device = key
    return kind, len(shape), dtype, device


class ArrayKey(tuple[Any, ...]):
    """The key of a Tensor or an array: its class, shape, dtype and device."""

    __slots__ = ()


def numbers_in(leaves: Sequence[Any]) -> dict[int, Any]:
    """Return the Python numbers among the arguments, as `exact_key` returns them, by their indices."""
    return {index: exact_key(leaf) for index, leaf in enumerate(leaves) if type(leaf) in _NUMBERS}


def _find_aliases(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return for each Tensor and array the index of its first occurrence; () if all are different."""
    tensors = [id(t) for t in leaves if isinstance(t, ARRAYS) or is_known_by_reads(t)]
    return tuple(map(tensors.index, tensors)) if len(set(tensors)) < len(tensors) else ()


def _leaf_key(leaf: Any) -> Any:
    """Return the type of a Tensor or an array, and a key of any other leaf."""
    if isinstance(leaf, Tensor):
        return ArrayKey((type(leaf), leaf.shape, leaf.dtype, leaf._device))
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        return ArrayKey((np.ndarray, leaf.shape, leaf.dtype, ""))
    if not is_known_by_reads(leaf):
        return exact_key(leaf)
    return type(leaf), Identity(leaf.__code__) if isinstance(leaf, FunctionType) else None


def names_of(arrangement: Structure) -> list[str]:
    """Return the name of each leaf of ``flatten((args, kwargs))``: such as ``argument 0['x'][1]``."""
    positional, named = arrangement.children
    names = [*map(str, range(len(positional.children))), *(f"`{key}`" for key in named.keys)]
    parts = zip(names, (*positional.children, *named.children), strict=True)
    return [leaf for name, part in parts for leaf in leaf_names(part, f"argument {name}")]


def leaf_names(structure: Structure, name: str) -> Iterator[str]:
    """Yield for each leaf of the value `name` how it is reached: ``carry['h'][0]``."""
    if structure.kind is None:
        yield name
    for n, part in enumerate(structure.children):
        key = structure.keys[n] if structure.keys else n
        is_field = bool(structure.keys) and not issubclass(structure.kind or dict, dict)
        yield from leaf_names(part, f"{name}.{key}" if is_field else f"{name}[{key!r}]")


def check_tensors(args: tuple[Any, ...]) -> None:
    """Raise an error for positional arguments that are not Tensors.

    Raises
    ------
    TraceInputError
    """
    for position, value in enumerate(args):
        if not isinstance(value, Tensor):
            raise TraceInputError(
                "Only support tensor type args when capture_as_const is enabled: "
                f"args[{position}] is a {type(value).__name__}; pass it by keyword"
            )
