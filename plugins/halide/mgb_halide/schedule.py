"""A schedule: how much is done at once, in one small object that can be printed, read and searched."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum

from mgb_native.plan import STREAM

#: Elements of a row up to which it is worked on by single vectors.
FEW = 256


class Form(IntEnum):
    """The rows, or columns, that code is for."""

    LONG = 0  #: all
    SHORT = 1  #: those of one piece, or one group: there are no parts to be added up
    TINY = 2  #: rows of few elements, in vectors one by one


#: The autoschedulers of the wheel, by the names that Halide gives them.
AUTOSCHEDULERS = ("Adams2019", "Anderson2021", "Li2018", "Mullapudi2016")


@dataclass(frozen=True, slots=True)
class HalideSchedule:
    """The choices of `pipeline` that leave the results the same, but for the order of additions.

    Attributes
    ----------
    vector : int
        Lanes; 0: as many as the widest register holds of what the kernel computes most.
    unroll : int
        Vectors that a loop along a row works on side by side: one would leave the processor idle. Rows of
        few elements have one.
    piece : int
        Elements of the innermost axis that are worked on at once, and that a row is summed in.
    task : int
        Elements that one thread takes at a time.
    tile : int
        Columns that are folded at once.
    fits : int
        Elements of a tile that several passes find in cache; a tile of columns is narrowed to it.
    group : int
        Rows of columns that are summed before the sums are.
    keep : int
        A value that a later pass reads is kept when making it again takes this many ops.
    stream : int
        MiB that a call reads and writes from which its outputs go past the caches; 0: always.
    auto : str
        The autoscheduler that replaces all of these, or an empty text.
    """

    vector: int = 0
    unroll: int = 4
    piece: int = 16384
    task: int = 16384
    tile: int = 512
    fits: int = 32768
    group: int = 128
    keep: int = 4
    stream: int = STREAM >> 20
    auto: str = ""

    def __str__(self) -> str:
        """Return only what differs from the default; `parse` reads it."""
        words = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return " ".join(f"{name}={value}" for name, value, usual in words if value != usual)

    def full(self) -> str:
        """Return all of it, as `parse` reads it, for people."""
        words = ((f.name, getattr(self, f.name)) for f in fields(self))
        return " ".join(f"{name}={value}" for name, value in words if value != "")


def parse(text: str) -> HalideSchedule:
    """Return the schedule that ``"vector=8 task=65536"`` describes; what is not said is as usual.

    Raises
    ------
    ValueError
        A word is unknown, or its value makes no sense.
    """
    known = {f.name: f.type for f in fields(HalideSchedule)}
    given: dict[str, int | str] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name not in known:
            raise ValueError(f"a Halide schedule has no {name!r}; it has {', '.join(known)}")
        given[name] = _scheduler(value) if name == "auto" else _number(name, value)
    return replace(HalideSchedule(), **given)  # type: ignore[arg-type]


def _scheduler(value: str) -> str:
    for name in AUTOSCHEDULERS:
        if value.lower() == name.lower():
            return name
    raise ValueError(f"autoscheduler={value!r} is unknown; choose one of {', '.join(AUTOSCHEDULERS)}")


def _number(name: str, value: str) -> int:
    least = 0 if name in ("vector", "keep", "stream") else 1
    if not value.isdecimal() or not least <= int(value) <= 1 << 20:
        raise ValueError(f"{name}={value!r} of a Halide schedule is not a number from {least} to {1 << 20}")
    number = int(value)
    if name in ("vector", "unroll", "piece") and number & (number - 1):
        raise ValueError(f"{name}={number} of a Halide schedule is not a power of two")
    return number
