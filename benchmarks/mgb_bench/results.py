"""The results of a run, read from pytest-benchmark's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Beside the peers each race has these programs, which only move memory.
LIMITS = ("limit", "limit_stream")


@dataclass(frozen=True)
class Entry:
    """One race, or one table of another kind.

    Attributes
    ----------
    suite, case, size : str
    timings : mapping of str to mapping
        Contestant -> the fields of `measure.Timing`.
    nbytes : int
        What has to move, 0 where that is not the point.
    limit_nbytes : mapping of str to int
        What each limit program moved.
    absent : sequence of str
        Peers that have no way to do this.
    failed : mapping of str to str
        Contestant -> what went wrong.
    notes : sequence of str
        Sentences for the reader.
    table : mapping
        ``{"columns": [...], "rows": [[...]]}`` where the entry is not a race.
    """

    suite: str
    case: str
    size: str
    timings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    nbytes: int = 0
    elements: int = 0
    limit_nbytes: Mapping[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    table: Mapping[str, Any] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Return the median, in seconds."""
        return float(self.timings[name]["median"])

    @property
    def ours(self) -> list[str]:
        """The contestants that are mgb."""
        return [name for name in self.timings if name.startswith("mgb")]

    @property
    def peers(self) -> list[str]:
        """The others, without the limits."""
        return [name for name in self.timings if not name.startswith("mgb") and name not in LIMITS]

    @property
    def best_peer(self) -> str | None:
        """The peer with the smallest median."""
        return min(self.peers, key=self.median, default=None)

    def ratio(self, name: str) -> float | None:
        """Return how much faster than the best peer `name` is, by medians."""
        best = self.best_peer
        return None if best is None else self.median(best) / self.median(name)

    def bandwidth(self, name: str) -> float | None:
        """Return bytes per second: what has to move, or for a limit what it moved, by the median."""
        nbytes = self.limit_nbytes.get(name, self.nbytes)
        return nbytes / self.median(name) if nbytes else None

    @property
    def limit(self) -> float | None:
        """The bandwidth of the better limit program."""
        return (
            max((self.bandwidth(name) or 0.0 for name in LIMITS if name in self.timings), default=0.0) or None
        )

    def of_limit(self, name: str) -> float | None:
        """Return the share of the limit that `name` reaches."""
        bandwidth, limit = self.bandwidth(name), self.limit
        return None if bandwidth is None or limit is None else bandwidth / limit


@dataclass(frozen=True)
class Results:
    """All entries of a run and the machine that it ran on (see `machine.describe`)."""

    entries: tuple[Entry, ...]
    machine: Mapping[str, Any]

    @property
    def contestants(self) -> list[str]:
        """Those of mgb that ran, such as ``mgb:cpu_llvm``."""
        return [name for name in self.machine["peers"] if name.startswith("mgb")]

    def suites(self) -> Iterator[tuple[str, list[Entry]]]:
        """Yield each suite with its entries, in the order of the run."""
        for suite in dict.fromkeys(entry.suite for entry in self.entries):
            yield suite, [entry for entry in self.entries if entry.suite == suite]


def parse(data: Mapping[str, Any]) -> Results:
    """Read results from what pytest-benchmark wrote.

    Raises
    ------
    ValueError
        The file is from another program.
    """
    machine = data.get("machine_info", {}).get("mgb_bench")
    if machine is None:
        raise ValueError("this is not the JSON of an mgb bench run: it does not describe the machine")
    return Results(tuple(_entry(b["extra_info"]) for b in data["benchmarks"] if b.get("extra_info")), machine)


def _entry(info: Mapping[str, Any]) -> Entry:
    known = {name: info[name] for name in Entry.__dataclass_fields__ if name in info}
    for name in ("absent", "notes"):
        known[name] = tuple(known.get(name, ()))
    return Entry(**known)
