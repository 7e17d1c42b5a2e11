"""The seam between the core and what carries arrays between processes, and how one is found by its name.

A distribution announces a `Communicator` in the entry-point group ``mgb.communicators``, by its name.
``MGB_DISTRIBUTED_BACKEND`` names one; a named one never falls back to another.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Protocol

from ..runtime import config
from ..runtime.entry_points import EntryPoints, version_problem
from .errors import CommunicatorError, LaunchError

GROUP = "mgb.communicators"

_log = logging.getLogger("mgb.distributed")

#: The version of this API; a communicator written for another one is refused.
API_VERSION = 1

#: The communicators that this project publishes, and the extra of ``mgb`` that installs each.
EXTRAS = {"mpi": "mpich"}

_POINTS = EntryPoints(GROUP, "communicator", EXTRAS)
Announced = Mapping[str, Mapping[str, EntryPoint]]


@dataclass(frozen=True, slots=True)
class Collective:
    """One exchange of row-major arrays; counted in blocks, the larger array has one for each rank, in order.

    Attributes
    ----------
    kind : str
        ``all_reduce``, ``reduce``; ``broadcast``, where the root's target has what all get; ``all_gather``,
        ``gather`` (the target has the blocks); ``reduce_scatter``, ``scatter`` (the source has them);
        ``all_to_all`` (both); ``send``, ``recv``.
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
        """Return whether it is done. Also lets it go on; never blocks."""


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
        """Begin an exchange; never blocks, and several may be under way.

        Parameters
        ----------
        what : Collective
            All ranks start the same ones in the same order, but for ``send`` and ``recv``, which meet in the
            order of those between the same two.
        source, target : array or None
            Who only gives, or only gets, has None for the other; without a source ``all_reduce`` is in place.

        Returns
        -------
        Ticket
            It holds both arrays.
        """


class Communicator(ABC):
    """The transport of arrays between the processes of a job.

    Attributes
    ----------
    name : str
        That of its entry point.
    devices : frozenset of str
        Where the arrays lie that it takes: ``"cpu"``, ``"gpu"``.
    api_version : int
        The `API_VERSION` it was written for, as a number.
    extends : str
        The name of another one, by which it starts jobs and exchanges what it does not itself: where nobody
        names one, it goes before that if it can run.
    """

    name: str
    devices: frozenset[str]
    api_version: int
    extends: str = ""

    def probe(self) -> str | None:
        """Return why it cannot run here, with the command that mends it; None when it can."""
        return None

    def command(self, number: int, program: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
        """Return the command that starts a job on this machine; called by a process outside of any job.

        Parameters
        ----------
        number : int
            How many processes.
        program : sequence of str
            What Python is called with in each: a file and its arguments, ``-m module`` or ``-c text``.

        Returns
        -------
        command : list of str
            It ends when all have ended, with 0 if all were well, and ends them all when one is not.
        environment : mapping
            Variables that it wants, where the user has not set them.
        """
        raise LaunchError(f"communicator {self.name!r} starts no processes: its own launcher does")

    @abstractmethod
    def join(self, address: tuple[str, int] | None, size: int | None, rank: int | None) -> Channel:
        """Be a process of the job, and give the channel of all. What the launcher knows is None here."""

    @abstractmethod
    def group(self, ranks: tuple[int, ...]) -> Channel:
        """Return the channel of `ranks`, in this order, which all of them ask for at about the same time.

        Those who ask again get another channel, apart from the first.
        """

    @abstractmethod
    def post(self, rank: int, note: bytes) -> None:
        """Leave a note of at most 4096 bytes for another rank, behind those before; never blocks."""

    @abstractmethod
    def notes(self) -> list[tuple[int, bytes]]:
        """Return the notes that have arrived since the last call, with their senders; never blocks."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """End every process of the job, at once."""


def chosen(name: str | None = None, joins: bool = True) -> Communicator:
    """Return the communicator called `name`, or that ``MGB_DISTRIBUTED_BACKEND`` names, or the only one.

    One that extends another one counts as that, and is taken in its place if it can run here.

    Parameters
    ----------
    name : str, optional
    joins : bool
        Will this process join a job? Else it is not asked whether it can, which may begin to.

    Raises
    ------
    CommunicatorError
        None is installed, or several and none is named; the message has the command that helps.
    """
    wanted = (name or config.DISTRIBUTED_BACKEND.get()).lower()
    points = _POINTS.announced()
    install = _POINTS.install(wanted if wanted in EXTRAS else "mpi")
    if wanted and wanted not in points:
        here = ", ".join(sorted(points)) or "none"
        raise CommunicatorError(f"communicator {wanted!r} is not installed ({here} is): {install}")
    if not points:
        raise CommunicatorError(f"no communicator is installed: {install}")
    if not wanted:
        points = _without_extended(points, joins)
    if not wanted and len(points) > 1:
        listed = " or ".join(sorted(points))
        raise CommunicatorError(f"several communicators: set {config.DISTRIBUTED_BACKEND.name} to {listed}")
    name = wanted or next(iter(points))
    if conflict := _POINTS.conflict(name):
        raise CommunicatorError(conflict)
    return _loaded(name, joins)


def _without_extended(points: Announced, joins: bool) -> Announced:
    """Leave out one of two communicators of which one extends the other: see `chosen`."""
    left = dict(points)
    for name in points if len(points) > 1 else ():
        try:
            found = _loaded(name, joins=False)
            if found.extends in left:
                del left[found.extends if joins and found.probe() is None else name]
        except Exception as error:
            _log.info("communicator %r cannot run here: %s", name, error)
    return left


def _loaded(name: str, joins: bool) -> Communicator:
    point = next(iter(_POINTS.announced()[name].values()))
    try:
        found = point.load()
        if not isinstance(found, Communicator):
            problem = f"{point.value} is not a Communicator"
        else:
            problem = version_problem(getattr(found, "api_version", None), API_VERSION)
            problem = problem or (found.probe() if joins else None) or ""
    except Exception as error:
        raise CommunicatorError(_POINTS.failure(name, "imported", error)) from error
    if problem:
        raise CommunicatorError(f"communicator {name!r} cannot run here: {problem}")
    assert isinstance(found, Communicator)
    return found
