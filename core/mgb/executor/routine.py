"""A program's function: one code, and names that stand for other things in calls of other lengths."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.sizes import At

#: What names stand for, for the lengths that it is given.
Recipe = Callable[[At], Mapping[str, Any]]

_numbers = itertools.count()


class Routine:
    """The text of a function and all that it needs.

    Parameters
    ----------
    source : str
        Of a function ``run(arrays)``.
    bound : mapping
        What names stand for, whatever the lengths.
    recipes : sequence of callables
        What the other names stand for.
    """

    def __init__(self, source: str, bound: Mapping[str, Any], recipes: Sequence[Recipe]) -> None:
        name = f"<mgb program {next(_numbers)}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # for tracebacks
        weakref.finalize(self, linecache.cache.pop, name, None)
        self.source = source
        self._code = compile(source, name, "exec")
        self._bound, self._recipes = dict(bound), tuple(recipes)

    def function(self, at: At) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Return the function for the lengths of `at`; it keeps this, and so the text for tracebacks."""
        scope = {**self._bound, "_routine": self}
        for recipe in self._recipes:
            scope.update(recipe(at))
        exec(self._code, scope)
        run: Callable[[Sequence[Any]], tuple[Any, ...]] = scope["run"]
        return run
