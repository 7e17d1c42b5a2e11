"""Timing contestants against each other: interleaved rounds, because a shared machine drifts."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = Callable[[], Any]

#: One sample repeats a call until it takes about this long: the clock's own cost is then below 1 %.
SAMPLE_SECONDS = 50e-6

#: Before a sample the threads of the contestant before it get time to stop spinning: pauses of this length,
#: until only the caller's thread runs, and at most so many. Those of GNU's OpenMP take 8 of them.
PAUSE_SECONDS, PAUSES = 1e-3, 100

#: Where the fastest contestant takes longer than this, calls are timed as they come. Else each is timed after
#: a call that is not, so that everybody finds in the caches what a call of its own leaves there, not what its
#: neighbour left. One rule for all of a race: two contestants of 49 and 51 ms would not be timed alike.
LONG_SECONDS = 50e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, over the rounds of a race.

    Attributes
    ----------
    min, median, mean : float
        Seconds.
    rounds : int
        Samples taken.
    repeats : int
        Calls in a sample.
    """

    min: float
    median: float
    mean: float
    rounds: int
    repeats: int


class Race:
    """Contestants that are called in turns.

    In each round every contestant gives one sample: when no thread spins any more, and after a call that is
    not timed where the fastest is short, `repeats` calls are timed together. The order rotates by one from
    round to round. The garbage collector rests meanwhile.

    Parameters
    ----------
    contestants : mapping of str to callable
        At least one; a call returns when its work is done.
    warmup : int
        Calls of each before the first round.

    Attributes
    ----------
    errors : dict
        The exceptions of those who raised one; they are left out from then on.
    """

    def __init__(self, contestants: Mapping[str, Call], warmup: int = 3) -> None:
        self._contestants = dict(contestants)
        self.errors: dict[str, Exception] = {}
        self._samples: dict[str, list[float]] = {name: [] for name in contestants}
        self._order = list(contestants)
        with _gc_off():
            self._seconds = {
                name: seconds
                for name, call in contestants.items()
                if (seconds := self._or_failed(name, lambda call=call: _warmed(call, warmup))) is not None
            }
        self._order = [name for name in self._order if name in self._seconds]
        self._repeats = {
            name: max(1, round(SAMPLE_SECONDS / max(seconds, 1e-9)))
            for name, seconds in self._seconds.items()
        }

    @property
    def round_seconds(self) -> float:
        """Estimate the time of a round from the warm-up."""
        return sum(max(seconds, SAMPLE_SECONDS) + PAUSE_SECONDS for seconds in self._seconds.values())

    def rounds_in(self, seconds: float, at_least: int = 5, at_most: int = 200) -> int:
        """Return how many rounds fit into `seconds`, within bounds."""
        return min(at_most, max(at_least, int(seconds / max(self.round_seconds, 1e-9))))

    def round(self) -> None:
        """Take one sample of every contestant."""
        with _gc_off():
            for name in self._order:
                self._or_failed(name, lambda name=name: self._sample(name))
        self._order = [name for name in self._order[1:] + self._order[:1] if name not in self.errors]

    def _or_failed(self, name: str, act: Callable[[], Any]) -> Any:
        """Return the result of `act`; None when it raised, which is recorded."""
        try:
            return act()
        except Exception as error:
            self.errors[name] = error
            return None

    def _sample(self, name: str) -> None:
        call, repeats = self._contestants[name], self._repeats[name]
        settle()
        if min(self._seconds.values()) < LONG_SECONDS:
            call()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        self._samples[name].append((time.perf_counter() - start) / repeats)

    def timings(self) -> dict[str, Timing]:
        """Return the timings so far, after at least one round, without the contestants that failed."""
        return {
            name: Timing(min(s), statistics.median(s), statistics.fmean(s), len(s), self._repeats[name])
            for name, s in self._samples.items()
            if name not in self.errors
        }


def interleave(
    contestants: Mapping[str, Call], *, rounds: int | None = None, seconds: float = 2.0, warmup: int = 3
) -> dict[str, Timing]:
    """Race the contestants for `rounds`, or for as many rounds as fit into `seconds`.

    Parameters
    ----------
    contestants : mapping of str to callable
        A call returns when its work is done.
    rounds : int, optional
    seconds : float
        The budget where `rounds` is not given; 5 rounds are run whatever they take.
    warmup : int
        Calls of each before the first round.

    Returns
    -------
    dict of str to Timing
        In the order of `contestants`.

    Raises
    ------
    Exception
        Of a call; a note names the contestant.
    """
    race = Race(contestants, warmup)
    for _ in range(race.rounds_in(seconds) if rounds is None else rounds):
        race.round()
    for name, error in race.errors.items():
        error.add_note(f"raised by contestant {name}")
        raise error
    return race.timings()


def told(error: Exception) -> str:
    """Format an exception in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def settle() -> None:
    """Wait until no other thread of this process runs.

    The processor's time will not tell: of a thread that runs on, some systems count it every 4 ms.
    """
    for _ in range(PAUSES):
        time.sleep(PAUSE_SECONDS)
        if not running():
            return


def running() -> list[int]:
    """Return the numbers of the other threads that run or are ready to; none where there is no ``/proc``."""
    found = []
    for task in Path("/proc/self/task").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "R" and int(task.name) != threading.get_native_id():
                found.append(int(task.name))
    return found


def _warmed(call: Call, warmup: int) -> float:
    """Call a few times; the seconds of the quickest call."""
    best = float("inf")
    for _ in range(max(1, warmup)):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def _gc_off() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
