"""What a call was given: the keys that records are found under, and the arguments' names in messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import TraceInputError
from ..forking import cached_property
from ..scalars import FOLLOWED
from ..tensor import Tensor
from .source import Identity
from .tree import Structure, exactly, flatten, is_looked_into

#: Types of numbers that a call may be recorded for whatever they are.
_NUMBERS = FOLLOWED

#: What has axes whose lengths are followed.
ARRAYS = (Tensor, np.ndarray)

#: Types of texts.
TEXTS = (str, bytes)

#: What holds no Tensor.
_PLAIN = (int, float, str, type(None))


def shapes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shapes of the Tensors and arrays among the arguments, in containers too."""
    shapes: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            shapes.append(value.spec.shape if value._data is None else value._data.shape)
        elif not isinstance(value, _PLAIN):
            shapes += [t.shape for t in flatten(value)[0] if isinstance(t, ARRAYS)]
    return tuple(shapes)


def arrays_among(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, ...]:
    """For each leaf of the arguments, is it an array of NumPy's? Empty where none is."""
    for value in args if not kwargs else (None,):
        if not isinstance(value, Tensor):
            break
    else:
        return ()
    found = tuple([isinstance(leaf, np.ndarray) for leaf in flatten((args, kwargs))[0]])
    return found if any(found) else ()


class Key(tuple[Any, ...]):
    """What must be equal for a recorded call to serve another: nesting, aliasing, one key for each leaf."""

    @cached_property
    def form(self) -> Key:
        """Without the lengths of axes, of which only the numbers are left."""
        structure, shared, *leaves = self
        return Key((structure, shared, *map(_form, leaves)))

    @cached_property
    def pattern(self) -> Key:
        """The form without the values of numbers."""
        return self.form.without_numbers()

    def without_numbers(self, free: Sequence[int] | None = None) -> Key:
        """Without the values of all numbers, or of those at the indices `free`."""
        structure, shared, *leaves = self
        numbers = [n for n, leaf in enumerate(leaves) if leaf[0] in _NUMBERS] if free is None else free
        for index in numbers:
            leaves[index] = leaves[index][:1]
        return Key((structure, shared, *leaves))


def key_of(leaves: Sequence[Any], structure: Structure) -> Key:
    """Of a call with these arguments."""
    keys = list(map(_leaf_key, leaves))
    for index in texts_within(leaves, structure):
        keys[index] = type(leaves[index]), None
    return Key((structure, _first_indices(leaves), *keys))


def texts_within(leaves: Sequence[Any], structure: Structure) -> list[int]:
    """The indices of texts that stand in lists and dicts, of which only what the body reads has to stay.

    Nobody sees the body read a text that is an argument itself. What Python makes for tuples and dataclasses,
    such as comparisons, reads all that stands in these.
    """
    if not any(type(leaf) in TEXTS for leaf in leaves):
        return []
    numbered = iter(enumerate(leaves))
    positional, named = structure.children
    return [n for part in (*positional.children, *named.children) for n in _texts(part, numbered, True)]


def _texts(structure: Structure, numbered: Iterator[tuple[int, Any]], is_value: bool) -> list[int]:
    if structure.kind is None:
        index, leaf = next(numbered)
        return [index] if type(leaf) in TEXTS and not is_value else []
    is_value = not issubclass(structure.kind, list | dict)
    return [n for part in structure.children for n in _texts(part, numbered, is_value)]


def _form(key: tuple[Any, ...]) -> tuple[Any, ...]:
    if type(key) is not ArrayKey:
        return key
    kind, shape, dtype, device = key
    return kind, len(shape), dtype, device


class ArrayKey(tuple[Any, ...]):
    """The key of a Tensor or an array: its class, shape, dtype and device."""

    __slots__ = ()


def numbers_in(leaves: Sequence[Any]) -> dict[int, Any]:
    """The Python numbers among the arguments, as `exactly` has them, by their indices."""
    return {index: exactly(leaf) for index, leaf in enumerate(leaves) if type(leaf) in _NUMBERS}


def _first_indices(leaves: Sequence[Any]) -> tuple[int, ...]:
    """For each Tensor and array the first index where it stands itself; empty when all differ."""
    tensors = [id(t) for t in leaves if isinstance(t, ARRAYS) or is_looked_into(t)]
    return tuple(map(tensors.index, tensors)) if len(set(tensors)) < len(tensors) else ()


def _leaf_key(leaf: Any) -> Any:
    """The type of a Tensor or an array; of other leaves what tells them from others."""
    if isinstance(leaf, Tensor):
        return ArrayKey((type(leaf), leaf.shape, leaf.dtype, leaf._device))
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        return ArrayKey((np.ndarray, leaf.shape, leaf.dtype, ""))
    if not is_looked_into(leaf):
        return exactly(leaf)
    return type(leaf), Identity(leaf.__code__) if isinstance(leaf, FunctionType) else None


def names_of(arrangement: Structure) -> list[str]:
    """For each leaf of ``flatten((args, kwargs))`` its name: ``argument 0['x'][1]``, ``argument `lr```."""
    positional, named = arrangement.children
    names = [*map(str, range(len(positional.children))), *(f"`{key}`" for key in named.keys)]
    parts = zip(names, (*positional.children, *named.children), strict=True)
    return [leaf for name, part in parts for leaf in _names(part, f"argument {name}")]


def leaf_names(structure: Structure, name: str) -> list[str]:
    """For each leaf of what is called `name` how it is reached: ``carry['h'][0]``."""
    return list(_names(structure, name))


def _names(structure: Structure, name: str) -> Iterator[str]:
    if structure.kind is None:
        yield name
    for n, part in enumerate(structure.children):
        key = structure.keys[n] if structure.keys else n
        is_field = bool(structure.keys) and not issubclass(structure.kind or dict, dict)
        yield from _names(part, f"{name}.{key}" if is_field else f"{name}[{key!r}]")


def check_tensors(args: tuple[Any, ...]) -> None:
    """Refuse positional arguments that are no Tensors.

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
