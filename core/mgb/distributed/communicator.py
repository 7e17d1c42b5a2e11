"""The seam between the core and what carries arrays between processes, and how one is found by its name.

A distribution announces a `Communicator` in the entry-point group ``mgb.communicators``, by its name.
``MGB_DISTRIBUTED_BACKEND`` names one; a named one never falls back to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .. import config
from .errors import CommunicatorConflictError, CommunicatorNotInstalledError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mgb.communicators"

#: The version of this API; a communicator written for another one is refused.
API_VERSION = 1

#: The communicators that this project publishes, and the extra of ``mgb`` that installs each.
EXTRAS = {"mpi": "mpich"}


@dataclass(frozen=True, slots=True)
class Collective:
    """One exchange of row-major arrays; counted in blocks, the larger array has one for each rank, in order.

    Attributes
    ----------
    kind : str
        ``all_reduce``, ``reduce``, ``broadcast``; ``all_gather``, ``gather`` (the target has the blocks);
        ``reduce_scatter``, ``scatter`` (the source has them); ``all_to_all`` (both); ``send``, ``recv``.
    reduce : str
        ``sum``, ``max`` or ``min`` where elements are reduced: integers, float32 or float64. Else arrays are
        bytes.
    peer : int
        The root, by its rank in the group, or the other one of ``send`` and ``recv``.
    """

    kind: str
    reduce: str = ""
    peer: int = 0


class Ticket(Protocol):
    """An exchange under way; the arrays belong to it until it is done."""

    def test(self) -> bool:
        """Is it done? Also lets it go on; never blocks."""


class Channel(ABC):
    """A group of ranks that exchange arrays, apart from all other traffic.

    Attributes
    ----------
    rank, size : int
        The place of this process in the group, and how many there are.
    """

    rank: int
    size: int

    @abstractmethod
    def start(self, what: Collective, source: Any, target: Any) -> Ticket:
        """Begin an exchange; never blocks. Who only gives, or only gets, has None for the other array."""


class Communicator(ABC):
    """What carries arrays between the processes of a job.

    Attributes
    ----------
    name : str
        That of its entry point.
    devices : frozenset of str
        Where the arrays lie that it takes: ``"cpu"``, ``"gpu"``.
    api_version : int
        The `API_VERSION` it was written for, as a number.
    """

    name: str
    devices: frozenset[str]
    api_version: int

    def probe(self) -> str | None:
        """Why it cannot run here, with the command that mends it; None when it can."""
        return None

    @abstractmethod
    def join(self, address: tuple[str, int] | None, size: int | None, rank: int | None) -> Channel:
        """Be a process of the job, and give the channel of all. What the launcher knows is None here."""

    @abstractmethod
    def group(self, ranks: tuple[int, ...]) -> Channel:
        """The channel of `ranks`, in this order, which all of them ask for at about the same time."""

    @abstractmethod
    def post(self, rank: int, note: bytes) -> None:
        """Leave a note of at most 4096 bytes for another rank; never blocks."""

    @abstractmethod
    def notes(self) -> list[tuple[int, bytes]]:
        """What has come since, with who wrote it; never blocks."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """End every process of the job, at once."""


def _points() -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # slow to import

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name.lower(), []).append(point)
    return found


def chosen(name: str | None = None) -> Communicator:
    """The communicator called `name`, or that ``MGB_DISTRIBUTED_BACKEND`` names, or the only one.

    Raises
    ------
    CommunicatorNotInstalledError, CommunicatorConflictError
        With the command that mends it.
    """
    wanted = (name or config.DISTRIBUTED_BACKEND.get()).lower()
    points = _points()
    extra = EXTRAS.get(wanted, EXTRAS["mpi"])
    if wanted and wanted not in points:
        here = ", ".join(sorted(points)) or "none"
        message = f'communicator {wanted!r} is not installed ({here} is): pip install "mgb[{extra}]"'
        raise CommunicatorNotInstalledError(message)
    if not points:
        raise CommunicatorNotInstalledError(f'no communicator is installed: pip install "mgb[{extra}]"')
    if not wanted and len(points) > 1:
        listed = " or ".join(sorted(points))
        raise CommunicatorConflictError(
            f"several communicators: set {config.DISTRIBUTED_BACKEND.name} to {listed}"
        )
    name = wanted or next(iter(points))
    if len(points[name]) > 1:
        sources = " and ".join(p.dist.name if p.dist is not None else p.value for p in points[name])
        raise CommunicatorConflictError(f"communicator {name!r} is provided by {sources}: uninstall one")
    return _loaded(name, points[name][0])


def _loaded(name: str, point: EntryPoint) -> Communicator:
    try:
        found = point.load()
        problem = found.probe() if isinstance(found, Communicator) else f"{point.value} is no Communicator"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        version = getattr(found, "api_version", None)
        if not problem and version != API_VERSION:
            problem = f"it was written for version {version} of this API, this mgb has {API_VERSION}"
    if problem:
        raise CommunicatorNotInstalledError(f"communicator {name!r} cannot run here: {problem}")
    assert isinstance(found, Communicator)
    return found
