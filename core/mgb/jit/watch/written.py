"""What a body has written outside: the places that have another thing after it than before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...tensor import Tensor
from ..environment.impurity import Impurity
from ..environment.known import namespace
from ..guard import Guard
from ..source import Attribute, Cell, Global, Item, Source, found_at

if TYPE_CHECKING:
    from .observer import Observer


def impurities(observer: Observer) -> Iterator[Impurity]:
    """What has changed, as reasons why the body cannot be skipped."""
    written = {source for source, appends, _ in observer.effects if not appends}
    for guard in list(observer.guards):
        if guard.source not in written and not guard.holds(observer.leaves):
            yield Impurity(_reason(guard, observer), *_line(guard.source, observer), True, True)


def _reason(guard: Guard, observer: Observer) -> str:
    source = guard.source
    if isinstance(source, Global | Cell):
        return f"writes the variable `{source.name}` outside"
    if isinstance(source, Attribute | Item):
        holder = found_at(source.of, observer.leaves)
        what = f"attribute {source.name}" if isinstance(source, Attribute) else "an element"
        return f"writes {what} of a {type(holder).__name__} from outside"
    return f"changes what it reads, or reads what is new each time: {guard.change(observer.leaves)}"


def _line(source: Source, observer: Observer) -> tuple[str, int]:
    """Where `source` may have been written."""
    stored = observer.walk.stored
    while True:
        name = getattr(source, "name", None)
        if name in stored:
            return stored[name]
        if isinstance(source, Item) and source.key in stored:
            return stored[source.key]
        if (line := observer.lines.get(id(found_at(source, observer.leaves)))) is not None:
            return line
        inner = getattr(source, "of", None)
        if not isinstance(inner, Source):
            return stored.get("", observer.line)
        source = inner


def notes_of(tensor: Tensor) -> list[Any]:
    """The attributes that a Tensor has been given."""
    return [*namespace(tensor), *(name for name in ("name", "format") if hasattr(tensor, f"_{name}"))]
