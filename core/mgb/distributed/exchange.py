"""An exchange on its way: announced, agreed on, begun, done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .communicator import Channel, Collective, Ticket

_TO_ALL = Collective("all_gather")


@dataclass(slots=True)
class Line:
    """A group's channel, the one where it announces, and how many exchanges it has seen."""

    channel: Channel
    words: Channel
    ranks: tuple[int, ...]
    count: int = 0


@dataclass(eq=False, slots=True)
class Exchange:
    """An exchange under way.

    Attributes
    ----------
    arrays : tuple
        Its source and target. They are its own until it is done.
    said : str
        What this rank is at, in words.
    place : (str, int) or None
        The group, and which of its exchanges this is; None for messages between two.
    word : bytes
        What all ranks have to say alike; none: it is not announced.
    words : array or None
        What they say.
    ticket : Ticket or None
        That of the announcement, and then that of the exchange.
    """

    line: Line
    what: Collective
    arrays: tuple[Any, Any]
    said: str
    place: tuple[str, int] | None
    word: bytes = b""
    words: Any = None
    ticket: Ticket | None = None
    is_agreed: bool = False
    is_done: bool = False

    def announce(self) -> None:
        """Say what comes."""
        mine = np.frombuffer(self.word, np.uint8)
        self.words = np.empty((len(self.line.ranks), mine.size), np.uint8)
        self.ticket = self.line.words.start(_TO_ALL, mine, self.words)

    def is_announced(self) -> bool:
        """Return whether all ranks have said what comes."""
        return not self.word or (self.ticket is not None and self.ticket.test())

    def is_alike(self) -> bool:
        """Return whether they have said the same."""
        return not self.word or all(bytes(w) == self.word for w in self.words)

    def start(self) -> None:
        """Begin the exchange."""
        self.is_agreed, self.ticket = True, self.line.channel.start(self.what, *self.arrays)
