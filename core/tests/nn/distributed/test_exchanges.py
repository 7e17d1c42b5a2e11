"""Several exchanges under way: they start in their order, whatever comes first, and a quarrel is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb.distributed import world as module
from mgb.distributed.communicator import Channel, Collective, Communicator
from mgb.distributed.errors import CollectiveMismatchError
from mgb.distributed.exchange import Exchange, Line
from mgb.distributed.world import World

SUM = Collective("all_reduce", "sum")


class Awaited:
    """Done when the test says so."""

    def __init__(self, what: Collective, source: Any, target: Any) -> None:
        self.what, self.source, self.target, self.done = what, source, target, False

    def test(self) -> bool:
        return self.done

    def come(self, other: bytes = b"") -> None:
        """All ranks have said the same, or rank 1 this."""
        self.target[0] = self.source
        self.target[1] = np.frombuffer(other, np.uint8) if other else self.source
        self.done = True


class Scripted(Channel):
    """A group of two, of whom this is the first."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.started: list[Awaited] = []

    def start(self, what: Collective, source: Any, target: Any) -> Awaited:
        self.started.append(Awaited(what, source, target))
        return self.started[-1]


class Told(Communicator):
    """The other one's note is there at once."""

    name, devices, api_version = "told", frozenset({"cpu"}), 1

    def __init__(self, *notes: bytes) -> None:
        self.posted: list[bytes] = []
        self._notes = [(1, note) for note in notes]

    def join(self, address: Any, size: Any, rank: Any) -> Channel:
        raise NotImplementedError

    group = join  # type: ignore[assignment]

    def post(self, rank: int, note: bytes) -> None:
        self.posted.append(note)

    def notes(self) -> list[tuple[int, bytes]]:
        found, self._notes = self._notes, []
        return found

    def abort(self, code: int) -> None:
        raise NotImplementedError


def made(*notes: bytes, checks: bool = True) -> tuple[World, Line]:
    line = Line(Scripted(), Scripted(), (0, 1), 1000)
    return World(Told(*notes), 0, 2, {"world": line}, checks=checks), line


def begun(world: World, name: str, what: Collective = SUM) -> Exchange:
    return world.begin("world", what, np.ones(3), np.zeros(3), name, " at x.py:1")


@pytest.mark.parametrize("checks", [True, False])
def test_exchanges_start_in_order(checks: bool) -> None:
    world, line = made(checks=checks)
    one, two = begun(world, "one"), begun(world, "two")
    if checks:
        first, second = line.words.started
        assert line.channel.started == []
        second.come()
        assert not world.test(two) and line.channel.started == []
        message = begun(world, "a message", Collective("send", peer=1))
        assert [ticket.what.kind for ticket in line.channel.started] == ["send"]  # nobody holds that up
        line.channel.started.pop().done = True
        assert world.test(message)
        first.come()
        world.test(two)
    assert [ticket.source is e.arrays[0] for ticket, e in zip(line.channel.started, (one, two), strict=True)]
    line.channel.started[1].done = True
    assert world.test(two) and not world.test(one) and world.flying == [one]
    line.channel.started[0].done = True
    world.finish(one)
    assert world.flying == []


def test_mismatch_of_a_later_exchange_is_found_while_waiting() -> None:
    world, line = made(b"at two of float64[3] at y.py:2")
    one, two = begun(world, "one"), begun(world, "two")
    first, second = line.words.started
    first.come()
    world.test(one)
    second.come(b"12345678")
    with pytest.raises(
        CollectiveMismatchError, match=r"(?s)rank 0: two \(number 1002.*rank 1: two of float64"
    ):
        world.finish(one)
    assert any(b"two (number 1002" in note for note in world.communicator.posted)  # type: ignore[attr-defined]
    with pytest.raises(CollectiveMismatchError):
        world.test(two)
    assert world.flying == [one, two]  # their memory is nobody else's


def test_wait_polls_rarely_before_and_often_during_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    world, line = made()
    one = begun(world, "one")
    (word,), tests, sleeps, now = line.words.started, [0], list[tuple[int, float]](), [0.0]

    def test() -> bool:
        tests[0] += 1
        return one.is_done

    def sleep(seconds: float) -> None:
        sleeps.append((tests[0], seconds))
        tests[0], now[0] = 0, now[0] + seconds
        if len(sleeps) == 80:
            word.come()
        elif len(sleeps) == 90:
            line.channel.started[0].done = True
        world.test(one)

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    world.wait(test, (0, 1))
    assert sleeps[0] == (200, 50e-6)
    assert {number for number, _ in sleeps[1:80]} == {2} and 5e-4 < sleeps[79][1] <= 1e-3
    assert sleeps[82:] == [(200, 50e-6)] * 8
