"""Protocols of the walk and the observer, as the other modules of this folder use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, Protocol

from ..guard import Guards
from ..source import Source
from .changing import Changing


class Modules(Protocol):
    """Lookups in ``sys.modules``, see `modules.Modules`."""

    def asks(self, code: CodeType) -> bool:
        """Return whether it looks up what is given to it."""

    def given(self, code: CodeType, frame: FrameType) -> None:
        """Note that `code` starts as `frame`."""


class Unread(Protocol):
    """Tensors that stand where code only writes, see `unread.Unread`."""

    def guard_unchanged(self) -> None:
        """Guard that a Tensor is unchanged where it may have been put back."""


class Walk(Protocol):
    """The walk, see `walk.Walk`."""

    guards: Guards
    leaves: Sequence[Any]
    changing: Changing
    names: set[str]
    loaded: set[str]
    used: set[str]
    stored: dict[str, tuple[str, int]]
    values: dict[Source, Any]
    is_wild: bool
    may_follow: bool
    number_owners: set[int]
    caches: list[tuple[Any, int]]
    handles_errors: bool
    tells_addresses: bool
    sees_numpy: bool
    also: set[int]
    given: dict[int, type]
    fixed: set[int]
    asks_identity: bool
    identified: set[str]
    kept: dict[int, tuple[Source, Callable[[], Any]]]
    spaces: list[tuple[Any, tuple[str, ...]]]
    report: Callable[[str], object]

    @property
    def modules(self) -> Modules:
        """The lookups of code in ``sys.modules``."""

    @property
    def unread(self) -> Unread:
        """Tensors that stand where code only writes."""

    def guard(self, source: Source, test: str, value: Any) -> None:
        """Add one more guard."""

    def is_(self, source: Source, value: Any) -> None:
        """Guard the identity of this object."""

    def where(self, value: Any) -> Source | None:
        """Return where it was found."""

    def visit(self, source: Source, value: Any) -> None:
        """Visit `value` at `source`, and what can be named from it."""

    def named(self, source: Source, value: Any) -> None:
        """Visit `value` at `source`, where code finds it by its name alone."""

    def bear(self, source: Source, thing: Any) -> None:
        """Note that attributes of `thing` can be named."""

    def add_names(self, names: Iterable[str]) -> None:
        """Note that these attributes can be named."""

    def goes_wild(self) -> None:
        """Note that any attribute of anything may be read next."""

    def function(self, source: Source, function: FunctionType) -> None:
        """Note that `function` can be called."""

    def activate(self, source: Source, function: FunctionType) -> None:
        """Visit `function`, which `source` gives, when it is called or inspected."""

    def drain(self) -> None:
        """Go on until nothing is left."""

    def visit_holder(self, holder: Any) -> None:
        """Visit all that is in a holder, since it may be read."""

    def has_run(self, code: Any, space: dict[str, Any]) -> bool:
        """Return whether it has started before, with these globals."""

    def starts(self, code: Any, space: dict[str, Any]) -> bool:
        """Note that `code` starts; return False if nothing has led to it."""

    def asks_classes(self) -> None:
        """Note that the class of something is checked."""

    def found(self) -> Iterator[tuple[Source, Any]]:
        """Iterate over the objects found, each with its first location."""

    def outside(self) -> Iterator[tuple[Source, Any]]:
        """Yield the same, but for arguments."""


class Called(Protocol):
    """The calls of a body, see `running.Running`."""

    lines: dict[int, tuple[str, tuple[str, int]]]


class Effect(NamedTuple):
    """A write that a call repeats though it skips the body.

    Attributes
    ----------
    source : Source
        Where; of what `appends`, the list.
    appends : bool
        Is it put at the end of a list?
    value : object
        A Tensor that the body makes, a number that is followed, or a plain value.
    """

    source: Source
    appends: bool
    value: Any


class Writes:
    """The external writes of a body that calls repeat though they skip it.

    Attributes
    ----------
    effects : list of Effect
        Complete when the body has ended.
    has_effects : bool
        May there be any?
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.has_effects = False


class Watcher(Protocol):
    """The observer, see `observer.Observer`."""

    leaves: Sequence[Any]
    writing: Writes
    refuses: bool
    line: tuple[str, int]
    begun: tuple[list[Any], Any]

    @property
    def walk(self) -> Walk:
        """The walk."""

    @property
    def running(self) -> Called:
        """The calls of the body."""

    @property
    def guards(self) -> Guards:
        """The guards of the call."""

    @property
    def makes(self) -> Callable[[Any], bool]:
        """Return whether the body made this Tensor."""

    def can_write(self, value: Any) -> bool:
        """Return whether a call that skips the body may write it, which is no Tensor."""

    def known(self, value: Any) -> Source | None:
        """Return where it was found."""

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        line: tuple[str, int] | None = None,
        writes: bool = False,
    ) -> None:
        """Note that the body cannot be skipped."""
