"""The pool gives memory back when the last view dies, never before, and says truly who owns an array."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb import memory, tensor
from mgb.runtime import ownership

FLOAT = np.dtype(np.float32)
LARGE = (256, 1024)  # 1 MiB of float32


@pytest.fixture(autouse=True, scope="module")
def collector_by_hand() -> Iterator[None]:
    """What others left is gone, and goes at no other time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def clean_pool() -> Iterator[None]:
    gc.collect(1)  # what is new: a look at everything takes as long as a test
    memory.empty_cache()
    yield
    memory.empty_cache()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@given(st.integers(memory.SMALL, 1 << 40))
def test_size_class(nbytes: int) -> None:
    size = memory.size_class(nbytes)
    assert nbytes <= size < nbytes * 9 / 8
    assert size % memory.ALIGNMENT == 0
    assert memory.size_class(size) == size


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (7,), (33, 1025), (1 << 20,), LARGE])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64, ml_dtypes.bfloat16])
def test_empty_returns_aligned_writable_arrays(shape: tuple[int, ...], dtype: type) -> None:
    array = memory.empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype, type(array)) == (shape, np.dtype(dtype), np.ndarray)
    assert array.flags.c_contiguous and array.flags.writeable
    if array.nbytes >= memory.SMALL:
        assert address(array) % memory.ALIGNMENT == 0
    array[...] = 1
    assert (array == 1).all()


def test_large_allocations_start_near_a_large_page_boundary() -> None:
    arrays = [memory.empty((count, memory.LARGE_PAGE), np.dtype(np.uint8)) for count in (1, 1, 3, 4)]
    offsets = [address(array) % memory.LARGE_PAGE for array in arrays]
    assert all(offset < memory.PLACES * memory.STEP for offset in offsets)
    assert len(set(offsets)) == len(arrays)  # not all in the same sets of a cache
    for array in arrays:
        array[...] = 7  # up to the last byte of what was asked for
        assert (array == 7).all()


def test_freed_memory_is_reused() -> None:
    before = memory.stats()
    first = memory.empty(LARGE, FLOAT)
    place = address(first)
    assert memory.stats().live - before.live == first.nbytes
    del first
    after = memory.stats()
    assert (after.live, after.pooled) == (before.live, before.pooled + (1 << 20))
    second = memory.empty((1 << 17,), np.dtype(np.float64))
    assert address(second) == place
    assert memory.stats().hits == before.hits + 1
    assert memory.stats().misses == before.misses + 1
    assert memory.stats().peak >= before.live + (1 << 20)


def test_large_eager_results_take_memory_of_the_pool() -> None:
    """If their operands are row-major; else NumPy finds the order of the axes that is fastest."""
    x, y, row = (tensor(np.ones(shape, FLOAT)) for shape in (LARGE, LARGE, LARGE[1]))
    for function in (lambda: x * y, lambda: -x, lambda: x + row, lambda: x < y):
        function()
        before = memory.stats()
        assert function()._data.flags.c_contiguous and memory.stats().hits == before.hits + 1
    before = memory.stats()
    assert (x.T + y.T)._data.strides == x.T._data.strides and memory.stats() == before


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[3:, ::2],
        lambda a: a.reshape(-1, 4)[1:].T,
        lambda a: a.view(np.int32).view(),
        memoryview,
        lambda a: np.asarray(memoryview(a))[1:],
        lambda a: np.from_dlpack(a),
        lambda a: np.broadcast_to(a, (2, *a.shape)),
    ],
)
def test_views_keep_memory_alive(view: object) -> None:
    live = memory.stats().live
    array = memory.empty(LARGE, FLOAT)
    kept = view(array)  # type: ignore[operator]
    place = address(array)
    del array
    gc.collect()
    assert memory.stats().live == live + (1 << 20)
    assert address(memory.empty(LARGE, FLOAT)) != place
    del kept
    gc.collect()
    assert memory.stats().live == live


def test_pool_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", str(3 << 20))
    arrays = [memory.empty(LARGE, FLOAT) for _ in range(5)]
    del arrays
    assert memory.stats().pooled == 3 << 20
    memory.empty_cache()
    assert memory.stats().pooled == 0


def test_sizes_that_are_asked_for_no_more_leave_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", str(8 << 20))
    past = [memory.empty((length * 1024,), FLOAT) for length in range(20, 120)]  # each of its own size
    del past
    for _ in range(memory.IDLE_MISSES + 4):
        step = [memory.empty(LARGE, FLOAT) for _ in range(4)]
        del step
    before = memory.stats()
    step = [memory.empty(LARGE, FLOAT) for _ in range(4)]
    assert memory.stats().misses == before.misses
    del step
    assert memory.stats().pooled <= 8 << 20


def test_steps_that_need_more_than_the_pool_keep_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", str(8 << 20))
    for _ in range(3 * memory.IDLE_MISSES):
        before = memory.stats()
        step = [memory.empty((length << 16,), FLOAT) for length in range(1, 9)]  # 9 MiB
        found = memory.stats()
        del step
    assert found.hits - before.hits >= 6


class Holder:
    """Keeps `nbytes`."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.used = nbytes, memory.next_use()
        memory.release_idle(self)

    def idle_bytes(self) -> int:
        return self.nbytes

    def release(self) -> None:
        self.nbytes = 0


def test_empty_cache_releases_idle_buffers() -> None:
    holder = Holder(7)
    memory.empty_cache()
    assert holder.nbytes == 0


def test_trim_releases_least_recently_used_buffers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_POOL_BYTES", "100")
    holders = [Holder(nbytes) for nbytes in (10, 60, 20, 30)]
    memory.trim()
    assert [h.nbytes for h in holders] == [10, 0, 20, 30]
    holders[0].used = memory.next_use()
    large = Holder(1000)
    memory.trim()
    assert [h.nbytes for h in (*holders, large)] == [0, 0, 0, 0, 1000]


def test_threads_never_share_an_array() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            array = memory.empty((16 * 1024,), FLOAT)
            array.fill(number)
            other = memory.empty((16 * 1024,), FLOAT)
            other.fill(-number)
            if not ((array == number).all() and (other == -number).all()):
                wrong.append(number)

    live = memory.stats().live
    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert memory.stats().live == live


def test_memory_in_a_reference_cycle_is_reclaimed() -> None:
    live = memory.stats().live
    cycle: list[object] = [memory.empty(LARGE, FLOAT)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert memory.stats().live == live


class Owner:
    """Holds an array as a Tensor does."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def fresh(pooled: bool) -> np.ndarray:
    return memory.empty(LARGE, FLOAT) if pooled else np.ones(3, FLOAT)


@pytest.mark.parametrize("pooled", [True, False])
def test_single_owner_is_detected(pooled: bool) -> None:
    owner = Owner(fresh(pooled))
    assert ownership.owned_alone([owner.array], 0)
    assert ownership.owned_alone((np.ones(3), owner.array), 1)


#: Ways to hold the memory of an array.
HOLDERS = [
    lambda a: a,
    lambda a: a[1:],
    lambda a: a.reshape(-1)[1:].view(),
    memoryview,
    lambda a: np.asarray(memoryview(a)),
    lambda a: np.from_dlpack(a),
    lambda a: np.broadcast_to(a, (2, *a.shape)),
    lambda a: (a.base if a.base is not None else a)[:1],
]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("hold", HOLDERS)
def test_second_reference_is_detected(pooled: bool, hold: object) -> None:
    owner = Owner(fresh(pooled))
    kept = hold(owner.array)  # type: ignore[operator]
    assert not ownership.owned_alone([owner.array], 0)
    del kept
    gc.collect()
    assert ownership.owned_alone([owner.array], 0)


def test_array_listed_twice_is_not_solely_owned() -> None:
    owner = Owner(fresh(True))
    assert not ownership.owned_alone([owner.array, owner.array], 0)


def test_views_and_non_contiguous_or_read_only_arrays_are_not_owned() -> None:
    base = np.ones((4, 4), FLOAT)
    assert not ownership.owned_alone([base[1:]], 0)
    assert not ownership.owned_alone([np.asfortranarray(base)], 0)
    locked = np.ones(3)
    locked.flags.writeable = False
    assert not ownership.owned_alone([locked], 0)


def test_numpy_export_and_detach_count_as_references() -> None:
    parameter = tensor([1.0, 2.0])
    assert ownership.owned_alone([parameter._data], 0)
    seen = parameter.numpy()
    assert not ownership.owned_alone([parameter._data], 0)
    del seen
    alias = parameter.detach()
    assert not ownership.owned_alone([parameter._data], 0)
    del alias
    assert ownership.owned_alone([parameter._data], 0)


# the same, asked for many at once


def updates_of(owners: list[Owner]) -> tuple[ownership.Updates, list[int]]:
    """Updates of the arrays at odd places of a list, and where the owners' arrays lie after a first call."""
    size = owners[0].array.size
    fresh = [lambda: memory.empty((size,), FLOAT)] * len(owners)
    updates = ownership.Updates(range(1, 2 * len(owners), 2), fresh)
    written(updates, owners)
    return updates, [address(o.array) for o in owners]


def written(updates: ownership.Updates, owners: list[Owner]) -> list[int]:
    """One call: the owners get the targets. Where these lie."""
    other = np.ones(3)
    arrays = [x for o in owners for x in (other, o.array)]
    targets = updates.targets(arrays)
    del arrays
    for number, owner in enumerate(owners):
        owner.array = targets[number]
    return [address(t) for t in targets]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_updates_stay_in_place(pooled: bool, count: int) -> None:
    owners = [Owner(fresh(pooled)) for _ in range(count)]
    before = [address(o.array) for o in owners]
    updates, places = updates_of(owners)
    assert places == before
    assert written(updates, owners) == before


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("hold", HOLDERS)
def test_update_with_a_second_reference_allocates_new_memory(pooled: bool, hold: object) -> None:
    owners = [Owner(fresh(pooled)) for _ in range(3)]
    updates, places = updates_of(owners)
    for _ in range(2):
        kept = hold(owners[1].array)  # type: ignore[operator]
        found = written(updates, owners)
        assert found[1] != places[1] and (found[0], found[2]) == (places[0], places[2])
        del kept
        gc.collect()
        places = found
        assert written(updates, owners) == places


def test_updates_of_two_owners_of_one_array_do_not_alias() -> None:
    owners = [Owner(fresh(True)) for _ in range(2)]
    updates, _ = updates_of(owners)
    owners[0].array = owners[1].array
    first, second = written(updates, owners)
    assert first != second


def test_seen_does_not_keep_arrays_alive() -> None:
    seen = ownership.Seen()
    arrays = np.ones(3), np.ones(3)
    assert not seen.same(arrays) and not seen.same(())
    seen.remember(arrays)
    assert seen.same(arrays) and not seen.same(arrays[::-1]) and not seen.same(arrays[:1])
    gone = weakref.ref(arrays[0])
    arrays = np.ones(3), arrays[1]
    assert gone() is None and not seen.same(arrays)


def test_seen_ignores_new_arrays_at_reused_addresses() -> None:
    seen, first = ownership.Seen(), np.ones(3)
    seen.remember((first,))
    places = {id(first)}
    del first
    others = [np.ones(4) for _ in range(1000)]
    again = [other for other in others if id(other) in places]
    if not again:
        pytest.skip("no array came to the address of the one that died")
    assert not any(seen.same((other,)) for other in again)


def test_exception_at_any_line_of_an_allocation_lets_other_threads_allocate() -> None:
    for place in range(1, 40):
        memory.empty_cache()
        left = place

        def trace(frame: Any, event: str, _argument: Any) -> Any:
            nonlocal left
            left -= event == "line"
            if left == 0:
                left = -1
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            memory.empty((1 << 20,), np.dtype("uint8"))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        other = threading.Thread(target=memory.empty, args=((3 << 20,), np.dtype("uint8")), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), place
