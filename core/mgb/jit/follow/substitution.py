"""Symbolic numbers and proxies of arrays that are put, for one call, where the plain ones stand.

Whoever reads such a location while the body is noted gets the `Scalar`. Afterwards each location has its
number again, unless the body has written there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...ir import Spec
from ...ir.scalars import FOLLOWED, SCALARS, fixed
from ...ir.sizes import tuple_like
from ...tensor import Tensor
from ...tensor.holding import Holder
from ..arguments import names_of
from ..array_proxy import ArrayProxy
from ..guard import Guard, Guards, is_plain, same
from ..numbers import Numbers
from ..source import Argument, Attribute, Item, ObjectRef, Result, Source, try_read
from ..tree import flatten, map_parts, parts_of
from ..watch import known
from ..watch.changing import own_guard
from ..watch.undoing import Snapshot, is_slot, is_writable, write


class Substitution:
    """That of one call.

    Parameters
    ----------
    numbers : Numbers
    guards : Guards
    leaves : sequence
        The flattened arguments.
    follows : frozenset of Source
        Where numbers are followed.
    proxies : dict
        By the ids of arrays, first of those among the arguments, their proxies.
    proxy : callable
        Makes the proxy of an array.
    """

    def __init__(
        self,
        numbers: Numbers,
        guards: Guards,
        leaves: Sequence[Any],
        follows: frozenset[Source],
        proxies: dict[int, Any],
        proxy: Callable[[Any], Any],
    ) -> None:
        self._proxies, self._proxy = proxies, proxy
        self._numbers, self._guards, self._leaves = numbers, guards, leaves
        self._follows = follows
        self._replaced: list[tuple[Source, Any, Any]] = []  # with the number, and what stands there meanwhile
        self._arguments = Snapshot(())

    # locations outside

    def outside(self) -> None:
        """Replace the numbers outside; of a tuple that stands somewhere, the whole."""
        tuples = {s.of for s in self._follows if isinstance(s, Item) and isinstance(self._at(s.of), tuple)}
        for source in self._follows:
            value = self._at(source)
            if isinstance(source, Argument) or getattr(source, "of", None) in tuples:
                continue
            if type(value) in FOLLOWED and value == value and self._may_write(source):
                self._put(source, value, self._numbers.at(source, value))
            elif type(value) is np.ndarray and not value.dtype.hasobject and self._may_write(source):
                self._put(source, value, self._proxy_at(source, value))
        for source in filter(self._may_write, tuples):
            parts = [self._part(Item(source, n), part) for n, part in enumerate(self._at(source))]
            self._put(source, self._at(source), tuple_like(self._at(source), parts))

    def _proxy_at(self, source: Source, array: Any) -> Any:
        """Return the proxy of an array, which may have other values of its type, and stands nowhere else."""
        if id(array) not in self._proxies:
            self._proxies[id(array)] = self._proxy(array)
        self._guards.add(Guard(source, "type", ObjectRef(np.ndarray)))
        self._guards.add(Guard(source, "spec", Spec(array.shape, array.dtype)))
        return self._proxies[id(array)]

    def _at(self, source: Source) -> Any:
        return try_read(source, self._leaves)

    def _may_write(self, source: Source) -> bool:
        return _has(source, self._leaves) and not _is_mgbs(source, self._leaves)

    def _part(self, source: Source, value: Any) -> Any:
        is_one = source in self._follows and type(value) in FOLLOWED
        return self._numbers.at(source, value) if is_one else value

    def _put(self, source: Source, value: Any, symbolic: Any) -> None:
        own = own_guard(source, try_read(source.of, self._leaves)) if isinstance(source, Attribute) else None
        if own is not None:
            self._guards.add(own)
        self._replaced.append((source, value, symbolic))
        write(source, self._leaves, symbolic)

    def restore(self, values: dict[Source, Any]) -> None:
        """Have each location hold its number again; `values` says what the body found."""
        self._arguments.restore()
        self._arguments = Snapshot(())
        while self._replaced:
            source, value, symbolic = self._replaced[-1]
            if values.get(source) is symbolic:
                values[source] = value
            now = try_read(source, self._leaves)
            if now is symbolic:
                write(source, self._leaves, value)
            elif is_plain(now) and same(now, value):  # for other numbers that would be a change
                fixed(symbolic)
            self._replaced.pop()
        for source, value in values.items():
            if type(value) in SCALARS:
                values[source] = value.value
            elif type(value) is ArrayProxy:
                values[source] = value.array

    def forget(self) -> None:
        """Hold nothing of the call."""
        self._leaves = ()

    # arguments

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], of_instance: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with symbolic numbers for those that are followed, and proxies for arrays."""
        self._arguments = Snapshot([*args[of_instance:], *kwargs.values()])
        if not self._proxies and not any(isinstance(source, Argument) for source in self._follows):
            return args, kwargs
        instance, args = args[:of_instance], args[of_instance:]
        words = names_of(flatten((args, kwargs))[1])
        leaves = iter([(Argument(n, words[n]), leaf) for n, leaf in enumerate(self._leaves)])
        shared = _shared([*args, *kwargs.values()])
        args = tuple([self._with_symbols(value, leaves, shared) for value in args])
        kwargs = {name: self._with_symbols(value, leaves, shared) for name, value in kwargs.items()}
        return (*instance, *args), kwargs

    def _with_symbols(
        self, value: Any, leaves: Iterator[tuple[Argument, Any]], shared: set[int], is_shared: bool = False
    ) -> Any:
        """Return `value` with symbolic numbers; what `is_shared` by several places keeps plain ones.

        Later there may be several containers in these places.
        """
        inside = parts_of(value)
        if inside is None:
            return self._symbol(*next(leaves), is_shared)
        is_shared = is_shared or id(value) in shared
        return map_parts(lambda part: self._with_symbols(part, leaves, shared, is_shared), value, inside)

    def _symbol(self, source: Argument, leaf: Any, is_shared: bool) -> Any:
        """Return the symbolic number or proxy for a leaf; itself, where it is not followed."""
        if id(leaf) in self._proxies:
            return self._proxies[id(leaf)]
        if type(leaf) not in FOLLOWED or source not in self._follows:
            return leaf
        if is_shared:
            self._guards.add(Guard(source, "same", leaf))
            return leaf
        return self._numbers.at(source, leaf)


def _shared(waiting: list[Any]) -> set[int]:
    """Return the ids of containers that stand in several places."""
    seen: Counter[int] = Counter()
    while waiting:
        inside = parts_of(part := waiting.pop())
        if inside is not None:
            seen[id(part)] += 1
            waiting += inside if seen[id(part)] == 1 else ()
    return {key for key, often in seen.items() if often > 1}


def _has(source: Source, leaves: Sequence[Any]) -> bool:
    """Return whether it is a location of its own, and no attribute of a class that an object shows."""
    if not is_writable(source, leaves) or (isinstance(source, Item) and isinstance(source.of, Result)):
        return False
    if not isinstance(source, Attribute):
        return True
    holder = try_read(source.of, leaves)
    space = getattr(holder, "__dict__", None)
    return space is None or source.name in space or is_slot(holder, source.name)


def _is_mgbs(source: Source, leaves: Sequence[Any]) -> bool:
    """Return whether code of mgb may read it."""
    holder = try_read(source.of, leaves) if isinstance(source, Attribute) else None
    if isinstance(holder, Tensor):
        return True
    kinds = known.added_classes(type(holder)) if isinstance(holder, Holder) else ()
    return any(known.top_of(kind) == "mgb" for kind in kinds)
