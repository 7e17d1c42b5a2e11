"""An exchange that an interrupt ends is no exchange, and its memory is nobody else's."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from mgb.distributed.communicator import Channel, Collective, Communicator
from mgb.distributed.errors import RankFailedError
from mgb.distributed.world import Line, World


class Interrupted:
    """An exchange that never ends; somebody presses Ctrl-C at the third look at it."""

    looks = 0

    def test(self) -> bool:
        self.looks += 1
        if self.looks == 3:
            raise KeyboardInterrupt
        return False


class Nobody(Channel):
    """A group whose other rank says nothing."""

    rank, size = 0, 2

    def start(self, what: Collective, source: Any, target: Any) -> Interrupted:
        return Interrupted()


class Silence(Communicator):
    """Between such ranks."""

    name, devices, api_version = "silence", frozenset({"cpu"}), 1

    def probe(self) -> str | None:
        return None

    def join(self, address: Any, size: Any, rank: Any) -> Channel:
        return Nobody()

    def group(self, ranks: tuple[int, ...]) -> Channel:
        return Nobody()

    def post(self, rank: int, note: bytes) -> None:
        pass

    def notes(self) -> list[tuple[int, bytes]]:
        return []

    def abort(self, code: int) -> None:
        raise AssertionError("nothing is to be aborted")


class Never:
    """One that does not end."""

    def test(self) -> bool:
        return False


class Late:
    """An exchange that ends at the 900th look at it."""

    looks = 0

    def test(self) -> bool:
        self.looks += 1
        return self.looks > 900


@pytest.mark.parametrize("made", [1000, 1001])
def test_rank_that_exited_after_an_exchange_took_part_in_it(
    made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [(1, f'left [{{"world": {made}}}, "has ended its program"]'.encode())]
    monkeypatch.setattr(Silence, "notes", lambda self: [notes.pop()] if notes else [])
    monkeypatch.setattr(Nobody, "start", lambda self, *_: Late() if made > 1000 else Never())
    world = World(Silence(), 0, 2, {"world": Line(Nobody(), Nobody(), (0, 1), count=1000)}, checks=False)
    arrays = map(np.zeros, (4, 4))
    if made > 1000:
        world.exchange("world", Collective("all_reduce", "sum"), *arrays, "all_reduce_sum", "")
    else:
        with pytest.raises(RankFailedError, match="rank 1 has ended its program"):
            world.exchange("world", Collective("all_reduce", "sum"), *arrays, "all_reduce_sum", "")


@pytest.mark.parametrize("checks", [True, False], ids=["announced", "at once"])
def test_interrupted_exchange_makes_later_exchanges_fail(checks: bool) -> None:
    world = World(Silence(), 0, 2, {"world": Line(Nobody(), Nobody(), (0, 1), count=1000)}, checks=checks)
    source, target = np.ones(4, np.float32), np.zeros(4, np.float32)
    arrays = list(map(weakref.ref, (source, target)))
    with pytest.raises(KeyboardInterrupt):
        world.exchange("world", Collective("all_reduce", "sum"), source, target, "all_reduce_sum", " of 4")
    del source, target
    gc.collect()
    assert all(array() is not None for array in arrays)
    for _ in range(2):
        with pytest.raises(
            RankFailedError, match=r"KeyboardInterrupt ended all_reduce_sum .* of 4 on this rank"
        ):
            world.exchange(
                "world", Collective("all_reduce", "sum"), *map(np.zeros, (4, 4)), "all_reduce_sum", ""
            )
