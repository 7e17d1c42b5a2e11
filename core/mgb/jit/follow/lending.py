"""Numbers outside and among the arguments that are replaced, for one call, by what stands for them.

Whoever reads such a place while the body is noted gets the `Scalar`. Afterwards each place has its number
again, unless the body has written there.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...holding import Holder
from ...scalars import FOLLOWED, plain
from ...sizes import tuple_like
from ...tensor import Tensor
from ..arguments import names_of
from ..environment import known
from ..numbers import Numbers
from ..source import Argument, Attribute, Source, found_at
from ..tree import flatten, parts_of, put
from ..watch.undoing import is_place, write


class Lending:
    """Of one call.

    Parameters
    ----------
    numbers : Numbers
    leaves : sequence
        The flattened arguments.
    follows : frozenset of Source
        Where numbers are followed.
    """

    def __init__(self, numbers: Numbers, leaves: Sequence[Any], follows: frozenset[Source]) -> None:
        self._numbers, self._leaves, self._follows = numbers, leaves, follows
        self._places: list[tuple[Source, Any, Any]] = []  # with the number, and what stands for it
        self._containers: list[Any] = []  # among the arguments, that hold what stands for numbers

    # places outside

    def lend(self) -> None:
        """Replace the numbers outside."""
        for source in self._follows:
            if isinstance(source, Argument) or not is_place(source, self._leaves):
                continue
            value = found_at(source, self._leaves)
            if type(value) in FOLLOWED and value == value and not _is_mgbs(source, self._leaves):
                standing = self._numbers.at(source, value)
                self._places.append((source, value, standing))
                write(source, self._leaves, standing)

    def give_back(self, places: dict[Source, Any]) -> None:
        """Have each place hold its number again; `places` says what the body found."""
        while self._containers:
            container = self._containers[-1]
            put(container, [plain(part) for part in parts_of(container) or ()])
            self._containers.pop()
        while self._places:
            source, value, standing = self._places[-1]
            if source in places:
                places[source] = value
            if found_at(source, self._leaves) is standing:
                write(source, self._leaves, value)
            self._places.pop()

    # arguments

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], of_instance: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with what stands for those numbers among them that are followed."""
        if not any(isinstance(source, Argument) for source in self._follows):
            return args, kwargs
        instance, args = args[:of_instance], args[of_instance:]
        words = names_of(flatten((args, kwargs))[1])
        leaves = iter([(Argument(n, words[n]), leaf) for n, leaf in enumerate(self._leaves)])
        shared = _shared([*args, *kwargs.values()])
        args = tuple([self._lent(value, leaves, shared) for value in args])
        return (*instance, *args), {name: self._lent(v, leaves, shared) for name, v in kwargs.items()}

    def _lent(
        self, value: Any, leaves: Iterator[tuple[Argument, Any]], shared: set[int], is_shared: bool = False
    ) -> Any:
        """`value` with what stands for numbers; what `is_shared` by several places keeps its own.

        Later there may be several containers in these places.
        """
        inside = parts_of(value)
        if inside is None:
            source, leaf = next(leaves)
            is_one = type(leaf) in FOLLOWED and source in self._follows and not is_shared
            return self._numbers.at(source, leaf) if is_one else leaf
        is_shared = is_shared or id(value) in shared
        parts = [self._lent(part, leaves, shared, is_shared) for part in inside]
        if all(map(operator.is_, parts, inside)):
            return value
        if isinstance(value, tuple):
            return tuple_like(value, parts)
        self._containers.append(value)
        put(value, parts)
        return value


def _shared(waiting: list[Any]) -> set[int]:
    """The ids of containers that stand in several places."""
    seen: Counter[int] = Counter()
    while waiting:
        inside = parts_of(part := waiting.pop())
        if inside is not None:
            seen[id(part)] += 1
            waiting += inside if seen[id(part)] == 1 else ()
    return {key for key, often in seen.items() if often > 1}


def _is_mgbs(source: Source, leaves: Sequence[Any]) -> bool:
    """May code of mgb's read it?"""
    holder = found_at(source.of, leaves) if isinstance(source, Attribute) else None
    if isinstance(holder, Tensor):
        return True
    kinds = known.added_classes(type(holder)) if isinstance(holder, Holder) else ()
    return any(known.top_of(kind) == "mgb" for kind in kinds)
