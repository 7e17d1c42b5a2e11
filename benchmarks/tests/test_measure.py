"""Properties of the interleaved race, and the limit programs against NumPy."""

from __future__ import annotations

import gc
import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb_bench import measure
from mgb_bench.arrays import Array, aligned
from mgb_bench.case import Case, Traffic
from mgb_bench.limit import LANES, Mover, limits
from mgb_bench.measure import SAMPLE_SECONDS, Race, interleave, told
from mgb_bench.peers import Peer
from mgb_bench.plugin import contestants


def test_each_round_takes_one_sample_per_contestant() -> None:
    timings = interleave({"a": lambda: None, "b": lambda: None}, rounds=4)
    assert list(timings) == ["a", "b"]
    assert all(timing.rounds == 4 for timing in timings.values())
    assert all(0 < timing.min <= timing.median for timing in timings.values())


def test_contestant_order_rotates() -> None:
    calls: list[str] = []

    def slow(name: str) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            time.sleep(0.06)  # long enough that a sample is one call, with none before it

        return call

    race = Race({name: slow(name) for name in "abc"}, warmup=1)
    calls.clear()
    for _ in range(3):
        race.round()
    assert "".join(calls) == "abcbcacab"


def test_all_contestants_are_timed_alike_where_one_is_short() -> None:
    calls: list[str] = []

    def taking(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            time.sleep(seconds)

        return call

    race = Race({"short": taking("short", 0.02), "long": taking("long", 0.06)}, warmup=1)
    calls.clear()
    race.round()
    assert calls == ["short"] * 2 + ["long"] * 2  # one call that is not timed, one that is


def test_short_calls_are_repeated_and_long_ones_are_not() -> None:
    timings = interleave({"short": lambda: None, "long": lambda: time.sleep(0.005)}, rounds=1)
    assert timings["short"].repeats > 10
    assert timings["short"].repeats * timings["short"].median < 100 * SAMPLE_SECONDS
    assert timings["long"].repeats == 1
    assert timings["long"].min >= 0.005


def test_garbage_collector_is_disabled_during_a_race_and_restored() -> None:
    seen: set[bool] = set()
    assert gc.isenabled()
    interleave({"a": lambda: seen.add(gc.isenabled())}, rounds=2)
    assert seen == {False}
    assert gc.isenabled()


def test_garbage_collector_is_restored_after_an_error() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interleave({"a": fail}, rounds=1)
    assert gc.isenabled()


def test_time_budget_determines_the_number_of_rounds() -> None:
    race = Race({"a": lambda: time.sleep(0.01)}, warmup=1)
    assert race.rounds_in(0.0, at_least=7) == 7
    assert race.rounds_in(1e9, at_most=9) == 9
    assert 10 <= race.rounds_in(1.0, at_most=1000) <= 100


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("non_temporal", [False, True])
@pytest.mark.parametrize("streams", [(1, 1, False), (3, 2, False), (4, 3, True), (2, 0, False)])
def test_mover_reads_and_writes_the_declared_streams(
    streams: tuple[int, int, bool], non_temporal: bool, threads: int
) -> None:
    reads, writes, in_place = streams
    length = 5 * 64  # not a multiple of the threads
    inputs = [aligned(length) for _ in range(reads)]
    for place, array in enumerate(inputs):
        array[...] = np.random.default_rng(place).random(length, np.float32)
    total = np.sum([array.astype(np.float64) for array in inputs], axis=0)
    outputs = inputs[:writes] if in_place else [aligned(length) for _ in range(writes)]
    sums = aligned(LANES * threads)
    ends = [] if in_place else outputs or [sums]
    Mover(reads, writes, non_temporal, in_place, threads).bind([*inputs, *ends])()
    for out in outputs:
        np.testing.assert_allclose(out, total, rtol=1e-6)
    if not writes:
        np.testing.assert_allclose(sums.sum(dtype=np.float64), total.sum(), rtol=1e-5)


def test_limits_move_as_many_bytes_as_the_traffic() -> None:
    mebi = 1 << 20
    found = limits(Traffic(3 * mebi, mebi, (3, 1)), threads=2)
    assert list(found) == ["limit", "limit_stream"]
    for call, nbytes in found.values():
        call()
        assert nbytes == 4 * mebi
    assert list(limits(Traffic(mebi, 0, (1, 0)), threads=2)) == ["limit"]


def test_contestants_get_separate_inputs() -> None:
    seen: list[int] = []

    class Seen(Peer):
        def put(self, array: Array) -> Any:
            seen.append(array.ctypes.data)
            return array

    case = Case(
        "twice",
        "none",
        [8],
        lambda n, _: (np.ones(n, np.float32),),
        lambda x: x * 2,
        {"numpy": lambda x: x * 2},
        None,
    )
    calls, failed = contestants(case, case.inputs(8), {"numpy": Seen(), "other": Seen()})
    assert list(calls) == ["numpy", "other"] and not failed
    assert len(set(seen)) == 2


def test_contestant_that_raises_is_reported_and_excluded() -> None:
    calls = 0

    def sometimes() -> None:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise MemoryError("no more")

    def never() -> None:
        raise ValueError("not here")

    race = Race({"sound": lambda: None, "sometimes": sometimes, "never": never}, warmup=1)
    for _ in range(6):
        race.round()
    assert set(race.timings()) == {"sound"}
    assert race.timings()["sound"].rounds == 6
    texts = {name: told(error) for name, error in race.errors.items()}
    assert texts == {"sometimes": "MemoryError: no more", "never": "ValueError: not here"}
    with pytest.raises(ValueError, match="not here") as caught:
        interleave({"sound": lambda: None, "never": never}, rounds=1)
    assert caught.value.__notes__ == ["raised by contestant never"]


def test_settle_waits_for_running_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for one that runs on without a pause, whose time the system may not have counted yet."""
    monkeypatch.setattr(measure, "PAUSES", 100_000)
    done = threading.Event()

    def work() -> None:
        hashlib.sha256(bytes(1 << 25)).digest()
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not measure.running():
        assert not done.is_set()
    measure.settle()
    assert done.is_set() and not measure.running()
    worker.join()
