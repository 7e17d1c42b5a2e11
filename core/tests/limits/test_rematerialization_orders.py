"""Orders of steps: each runs after what it reads, none needs more than it says, every search ends."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.executor import DTRConfig, SublinearMemoryConfig
from mgb.executor.remat.checkpoint import Blocks, checkpointed
from mgb.executor.remat.dynamic import TooSmallError, _Play, evicting
from mgb.executor.remat.early import early
from mgb.executor.remat.timeline import Timeline

SETTINGS = settings(max_examples=60)

#: What the heuristic may be told: usual powers, and any that are finite.
POWERS = st.one_of(st.floats(0, 2), st.floats(0, sys.float_info.max))

DTR = DTRConfig(1, evictee_minimum_size=0)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Up to 30 steps with any wiring, results that nobody reads, views, and values that are returned."""
    reads: list[tuple[int, ...]] = []
    writes: list[tuple[int, ...]] = []
    owner: list[int] = []
    nbytes: list[int] = []
    for _ in range(draw(st.integers(1, 30))):
        known = range(len(owner))
        read = draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        view = bool(read) and draw(st.booleans()) and draw(st.booleans())
        count = 1 if view else draw(st.integers(1, 2))
        reads.append(tuple(read))
        writes.append(tuple(range(len(owner), len(owner) + count)))
        for _ in range(count):
            owner.append(owner[read[0]] if view else len(owner))
            nbytes.append(0 if view else draw(st.integers(0, 9)))
    left = draw(st.sets(st.sampled_from(range(len(owner))), min_size=1, max_size=3))
    returned = frozenset(left | {owner[v] for v in left})
    cost = tuple(float(draw(st.integers(1, 9))) for _ in reads)
    return Timeline(tuple(reads), tuple(writes), tuple(owner), tuple(nbytes), cost, returned)


def chain(layers: int, size: int = 1 << 20) -> Timeline:
    """A perceptron: a product and a nonlinearity for each layer, and three steps of its gradient."""
    reads: list[tuple[int, ...]] = []

    def step(*values: int) -> int:
        reads.append(values)
        return len(reads) - 1

    xs = [step()]
    for _ in range(layers):
        xs.append(step(step(xs[-1])))
    gradient, returned = step(xs[-1]), []
    for x, below in zip(xs[:0:-1], xs[-2::-1], strict=True):
        inner = step(x, gradient)
        returned.append(step(inner, below))
        gradient = step(inner)
    count = len(reads)
    nbytes = [0 if v in returned else size for v in range(count)]
    values = tuple(range(count))
    return Timeline(
        tuple(reads), tuple((v,) for v in values), values, tuple(nbytes), (1.0,) * count, frozenset(returned)
    )


# the truth: a memory of runs, and what is alive is what a later run reads


def held(line: Timeline, order: Sequence[int]) -> list[int]:
    """The bytes of each moment, counted apart from `Timeline.live`: by asking who reads what afterwards."""
    buffers: list[tuple[int, int, set[int]]] = []  # born, bytes, when it is used
    current: dict[int, int] = {}
    for now, step in enumerate(order):
        for value in line.reads[step]:
            assert value in current, "a value is read that no step has written"
            buffers[current[value]][2].add(now)
        for value in line.writes[step]:
            if line.owner[value] == value:
                buffers.append((now, line.nbytes[value], {now}))
                buffer = len(buffers) - 1
            else:
                buffer = current[line.reads[step][0]]
            if value not in line.returned or value not in current:
                current[value] = buffer
    for value in line.returned:
        buffers[current[value]][2].add(len(order) - 1)
    moments = range(len(order))
    return [sum(size for born, size, used in buffers if born <= t <= max(used)) for t in moments]


def check(line: Timeline, order: Sequence[int]) -> None:
    """Every step runs once in its turn; what is alive is what `held` says."""
    assert list(dict.fromkeys(order)) == list(range(len(line)))
    assert line.live(order) == held(line, order)


# what orders must be


@SETTINGS
@given(timelines())
def test_early_order_does_not_increase_the_peak(line: Timeline) -> None:
    order = early(line, {})
    assert sorted(order) == list(range(len(line)))
    assert max(held(line, order)) <= max(held(line, range(len(line))))


@SETTINGS
@given(timelines(), st.data())
def test_early_respects_ordering_constraints(line: Timeline, data: st.DataObject) -> None:
    steps = st.sampled_from(range(len(line)))
    later, first = sorted([data.draw(steps), data.draw(steps)], reverse=True)
    after = {later: frozenset({first} - {later})}
    order = early(line, after)
    assert order.index(first) <= order.index(later)


@SETTINGS
@given(timelines(), st.data())
def test_block_splits_give_valid_orders(line: Timeline, data: st.DataObject) -> None:
    """Any splits give an order; none and the search's choice never run a step more than twice."""
    blocks = Blocks(line)
    splits = data.draw(st.sets(st.integers(0, blocks.turn)))
    order = blocks.order(sorted(splits))
    check(line, order)
    assert all(order.count(step) <= 2 for step in order)
    assert blocks.order(()) == list(range(len(line)))


@SETTINGS
@given(timelines(), st.integers(0, 3), st.integers(0, 4), st.integers(0, 5))
def test_checkpointed_order_is_valid_and_does_not_increase_the_peak(
    line: Timeline, tries: int, rounds: int, pool: int
) -> None:
    config = SublinearMemoryConfig(tries, rounds, pool, num_worker=1)
    order = checkpointed(line, config)
    check(line, order)
    assert max(held(line, order)) <= max(held(line, range(len(line))))
    assert checkpointed(line, replace(config, num_worker=3)) == order


@SETTINGS
@given(timelines(), st.floats(0, 1), POWERS, POWERS, st.integers(0, 5))
def test_evicting_stays_within_its_budget(
    line: Timeline, share: float, memory: float, time: float, minimum: int
) -> None:
    """It keeps to its budget, by a count that is not its own, or says that it cannot."""
    budget = int(share * max(held(line, range(len(line)))))
    config = DTRConfig(1, minimum, memory, time)
    try:
        order = evicting(line, config, budget)
    except TooSmallError:
        assert share < 1
        return
    check(line, order)
    assert max(held(line, order)) <= budget


def of(
    steps: Sequence[tuple[Sequence[int], Sequence[int]]], views: dict[int, int], sizes: Sequence[int]
) -> Timeline:
    """A timeline of what steps read and write, with the owners of views; the last value is returned."""
    reads, writes = (tuple(map(tuple, values)) for values in zip(*steps, strict=True))
    owner = tuple(views.get(v, v) for v in range(len(sizes)))
    return Timeline(reads, writes, owner, tuple(sizes), (1.0,) * len(steps), frozenset({len(sizes) - 1}))


def test_view_keeps_memory_of_the_earlier_run_alive() -> None:
    """A step ran again for one of its results; a view made before lies in the memory of the run before."""
    steps = [((), (0, 1)), ((0,), (2,)), ((2,), (3,)), ((3,), (4,))]
    line = of(steps, {2: 0, 3: 0}, (4, 1, 0, 0, 0))
    order = (0, 1, 0, 2, 3)
    assert line.live(order) == held(line, order) == [5, 4, 4 + 5, 4, 4]


def test_evicting_one_of_two_results() -> None:
    """To have it back its step writes the other one too, of which a view is still to be read."""
    steps = [((), (0, 1)), ((0,), (2,)), ((), (3,)), ((1, 2), (4,)), ((0,), (5,))]
    line = of(steps, {2: 0}, (3, 5, 0, 5, 3, 0))
    order = evicting(line, DTR, 11)
    check(line, order)
    assert max(held(line, order)) <= 11


@SETTINGS
@given(timelines())
def test_sufficient_memory_leaves_the_order_unchanged(line: Timeline) -> None:
    every = list(range(len(line)))
    assert evicting(line, DTR, max(held(line, every))) == every


# how good they are


def test_checkpointed_chain_needs_square_root_memory() -> None:
    """So many equal values fit in about ``sqrt(2 * 400)`` when each is computed twice at most."""
    line = chain(400)
    order = checkpointed(line, SublinearMemoryConfig())
    assert max(held(line, order)) >> 20 <= math.sqrt(2 * 400) + 6
    assert len(order) / len(line) < 1.4


def test_genetic_search_never_worsens_the_order() -> None:
    line = chain(60)
    worth = [
        (line.peak(order), line.extra(order))
        for rounds in (0, 5, 30)
        if (order := checkpointed(line, SublinearMemoryConfig(thresh_nr_try=2, genetic_nr_iter=rounds)))
    ]
    assert worth == sorted(worth, reverse=True) and worth[-1] < worth[0]


def test_memory_lower_bound_selects_the_cheapest_order_below_it() -> None:
    """Of the orders below it the cheapest is taken."""
    line = chain(100)
    low = checkpointed(line, SublinearMemoryConfig())
    enough = checkpointed(line, SublinearMemoryConfig(lb_memory_mb=50))
    assert line.peak(low) < line.peak(enough) <= 50 << 20
    assert line.extra(enough) < line.extra(low)


@pytest.mark.parametrize("share", [0.5, 0.35, 0.2])
def test_evicting_recomputes_few_steps(share: float) -> None:
    line = chain(100)
    order = evicting(line, DTR, int(share * line.peak(range(len(line)))))
    assert len(order) / len(line) < 1.5


@pytest.mark.parametrize("memory", [0.0, 1.0, 40.0, 1e5])
@pytest.mark.parametrize("time", [0.0, 0.5, 300.0, 1e6])
def test_eviction_heuristic_matches_the_dtr_paper(memory: float, time: float) -> None:
    """Powers of any size, where the quotient itself is no float any more; against numbers without limits."""
    line = chain(12)
    play = _Play(line, DTRConfig(1, 0, memory, time), line.peak(range(len(line))))
    play.clock = 100.0
    values = range(len(line.owner))
    play.used = [float(v * 7 % 90) for v in values]
    for root, used in enumerate(play.used):
        cost = mpmath.mpf(play.dropped.cost_around(root))
        stale = mpmath.mpf(101.0 - used)
        truth = mpmath.log(cost / (mpmath.mpf(max(1, line.nbytes[root])) ** memory * stale**time))
        assert play.heuristic(root) == pytest.approx(float(truth), rel=1e-12, abs=1e-9)
    free = replace(line, cost=tuple(0.0 for _ in line.cost))
    assert _Play(free, DTRConfig(1, 0, memory, time), 1).heuristic(3) == -math.inf


def test_values_below_the_minimum_size_are_not_evicted() -> None:
    line = chain(30)
    budget = line.peak(range(len(line))) // 2
    with pytest.raises(TooSmallError):
        evicting(line, DTRConfig(1, evictee_minimum_size=(1 << 20) + 1), budget)
    evicting(line, DTRConfig(1, evictee_minimum_size=1 << 20), budget)


def test_searches_scale_to_ten_thousand_steps() -> None:
    """The searches recurse into nothing and compare no step with every other one."""
    line = chain(2000)
    assert len(line) > 10_000
    plain = line.peak(range(len(line)))
    assert line.peak(early(line, {})) <= plain
    assert line.peak(checkpointed(line, SublinearMemoryConfig(genetic_nr_iter=2))) < plain / 20
    assert len(evicting(line, DTR, plain // 10)) < 1.5 * len(line)


def test_long_recomputation_chain_does_not_recurse() -> None:
    """All of a chain is gone when its last value is wanted again."""
    count = 5000
    reads = ((), *((v,) for v in range(count - 1)), (), (count - 1, count), (count - 2, count + 1))
    values = tuple(range(len(reads)))
    sizes = tuple(1 if v != count else 3 for v in values)
    last = frozenset({values[-1]})
    line = Timeline(reads, tuple((v,) for v in values), values, sizes, (1.0,) * len(values), last)
    order = evicting(line, DTR, 5)
    assert line.peak(order) <= 5 < line.peak(values)
