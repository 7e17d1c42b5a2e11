"""Find what installed distributions announce to mgb, and say what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def scanned() -> Mapping[str, Mapping[str, Mapping[str, EntryPoint]]]:
    """Return `announced` for each group of mgb's; a slow scan of all distributions, so done once."""
    from importlib.metadata import entry_points  # slow to import, and `import mgb` does not need it

    every = entry_points()
    found: dict[str, dict[str, dict[str, EntryPoint]]] = {}
    for group in (group for group in every.groups if group.startswith("mgb.")):
        names = found.setdefault(group, {})
        for point in every.select(group=group):
            source = point.dist.name if point.dist is not None else point.value
            names.setdefault(point.name.lower(), {})[source] = point
    return found


def announced(group: str) -> Mapping[str, Mapping[str, EntryPoint]]:
    """Return by lower-case name each distribution that announces it in `group`."""
    return scanned().get(group, {})


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """One group of entry points.

    Parameters
    ----------
    group : str
        The name of the group, as ``"mgb.backends"``.
    kind : str
        What an entry point there gives, for messages, as ``"backend"``.
    extras : mapping of str to str, optional
        Those that this project publishes: the extra of ``mgb`` that installs each.
    """

    group: str
    kind: str
    extras: Mapping[str, str]

    def announced(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        """Return by lower-case name each distribution that announces it."""
        return announced(self.group)

    def source(self, name: str) -> str:
        """Return the distributions that announce `name`; empty where none does."""
        return " and ".join(sorted(self.announced().get(name, ())))

    def install(self, name: str) -> str:
        """Return the command that installs one of `extras`."""
        return f'pip install "mgb[{self.extras[name]}]"'

    def conflict(self, name: str) -> str:
        """Return what is wrong where several distributions announce `name`; empty where only one does."""
        first, *others = sorted(self.announced()[name])
        if not others:
            return ""
        every = " and by ".join((first, *others))
        return f"{self.kind} {name!r} is provided by {every}; keep one: pip uninstall {' '.join(others)}"

    def failure(self, name: str, what: str, error: Exception, source: str = "") -> str:
        """Return what to say if what is announced cannot be imported or made (`what`) because of `error`."""
        source = source or self.source(name) or "registered by hand"
        lacks = isinstance(error, ModuleNotFoundError) and name in self.extras
        remedy = self.install(name) if lacks else f"pip install --force-reinstall {source}"
        cause = f"{type(error).__name__}: {error}"
        return f"{self.kind} {name!r} ({source}) cannot be {what}: {cause}; try: {remedy}"


def version_problem(written: object, newest: int) -> str:
    """Return why something written for a version of an API does not fit; empty where it fits.

    Parameters
    ----------
    written : object
        Its ``api_version``, None if it has none.
    newest : int
        The version of this mgb.
    """
    if written is None:
        return f"not written for any version of this API: give it api_version = {newest}"
    if written == newest:
        return ""
    return f"written for version {written} of this API, this mgb has version {newest}"
