"""The pytest plugin of the suites: options, the fixture `race`, and the progress of a run.

It is loaded by name, ``-p mgb_bench.plugin``, so that no other pytest run sees it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from .arrays import Arrays, aligned_copy
from .case import Case, Size, elements, label
from .limit import limits
from .machine import cores, describe
from .measure import Race, told
from .peers import Peer, choose

#: Each line of progress begins with this; `mgb_bench.cli` reads them.
PROGRESS = "mgb-bench "


@dataclass(frozen=True, slots=True)
class Run:
    """The options of a run.

    Attributes
    ----------
    peers : mapping of str to Peer
        Those that are here, mgb first.
    missing : mapping of str to str
        Why the others are not.
    quick : bool
        Fewer sizes and rounds.
    """

    peers: Mapping[str, Peer]
    missing: Mapping[str, str]
    quick: bool

    @property
    def seconds(self) -> float:
        """The budget of one race."""
        return 0.4 if self.quick else 1.5

    @property
    def rounds(self) -> int:
        """The fewest rounds of a race."""
        return 3 if self.quick else 7


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `mgb bench` passes on."""
    group = parser.getgroup("mgb-bench")
    group.addoption("--bench-backends", default="", help="backends of mgb, by commas")
    group.addoption("--bench-peers", default="", help="peers, by commas; empty: all")
    group.addoption("--bench-quick", action="store_true", help="fewer sizes and rounds")
    group.addoption(
        "--bench-match", default="", help="texts, by commas: only tests whose names have one of them"
    )
    group.addoption("--bench-progress", default="", help="file to which a line is added for each test")


def _run(config: pytest.Config) -> Run:
    names = [config.getoption(option).replace(" ", "") for option in ("--bench-backends", "--bench-peers")]
    peers, missing = choose(*([n for n in text.split(",") if n] for text in names))
    return Run(peers, missing, config.getoption("--bench-quick"))


_RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    """Find out once which peers are here."""
    config.stash[_RUN] = _run(config)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the machine, the versions, and the missing peers to the report."""
    run = config.stash[_RUN]
    machine_info["mgb_bench"] = describe(dict(run.peers), dict(run.missing)) | {"quick": run.quick}


def _tell(config: pytest.Config, **what: Any) -> None:
    path = config.getoption("--bench-progress")
    if path:
        with open(path, "a") as file:
            file.write(PROGRESS + json.dumps(what) + os.linesep)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what ``--bench-match`` names."""
    texts = [text.strip() for text in config.getoption("--bench-match").split(",")]
    chosen = [item for item in items if any(text in item.name for text in texts)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell how many tests there are."""
    _tell(session.config, total=len(session.items))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tell which test runs."""
    _tell(item.config, running=item.name)
    return (yield)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the arguments `case` and `size` for each case in ``CASES`` of its module."""
    if {"case", "size"} <= set(metafunc.fixturenames):
        quick = metafunc.config.stash[_RUN].quick
        pairs = [
            (case, size)
            for case in metafunc.module.CASES
            for size in (case.quick or case.sizes if quick else case.sizes)
        ]
        names = [f"{case.name} {label(size)}" for case, size in pairs]
        metafunc.parametrize("case,size", pairs, ids=names)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Return the options of this run."""
    return request.config.stash[_RUN]


@pytest.fixture
def race(benchmark: Any, run: Run) -> Callable[..., None]:
    """``race(case, size)`` checks every contestant and times all of them in one interleaved race.

    ``race(case, size, peers)`` takes these peers instead of those of the run.
    """

    def start(case: Case, size: Size, peers: Mapping[str, Peer] | None = None) -> None:
        arrays = case.inputs(size)
        found, failed = contestants(case, arrays, run.peers if peers is None else peers)
        traffic = case.traffic(size) if case.traffic else None
        moving = limits(traffic, cores()) if traffic else {}
        timed_race(benchmark, run, found | {name: call for name, (call, _) in moving.items()})
        benchmark.extra_info.update(
            suite=case.suite,
            case=case.name,
            size=label(size),
            elements=elements(size),
            nbytes=traffic.nbytes if traffic else 0,
            limit_nbytes={name: nbytes for name, (_, nbytes) in moving.items()},
            absent=[name for name, peer in run.peers.items() if way_of(case, peer) is None],
            failed=failed | benchmark.extra_info["failed"],
        )
        failed = benchmark.extra_info["failed"]
        broken = {name: why for name, why in failed.items() if name.startswith("mgb:")}
        assert not broken, broken

    return start


def timed_race(benchmark: Any, run: Run, calls: Mapping[str, Callable[[], Any]]) -> None:
    """Race the calls inside `benchmark`, whose round is a round of the race; keep each one's timing.

    ``benchmark.extra_info["timings"]`` maps names to the fields of `measure.Timing`, ``["failed"]`` those who
    raised an exception to it.
    """
    contest = Race(calls)
    rounds = contest.rounds_in(run.seconds, at_least=run.rounds)
    benchmark.pedantic(contest.round, rounds=rounds, iterations=1)
    benchmark.extra_info["timings"] = {name: asdict(timing) for name, timing in contest.timings().items()}
    benchmark.extra_info["failed"] = {name: told(error) for name, error in contest.errors.items()}


def way_of(case: Case, peer: Peer) -> Any:
    """Return the way that `peer` runs `case`, or None."""
    return case.ways.get(peer.name, case.ways.get(peer.dialect))


def contestants(
    case: Case, arrays: Arrays, peers: Mapping[str, Peer]
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Return the calls of peers that have a way and give the right result; and the errors of others.

    Each has inputs of its own: of shared ones, those would profit that come after another reader.
    """
    expected = case.expected(arrays)
    calls, failed = {}, {}
    for name, peer in peers.items():
        way = way_of(case, peer)
        if way is None:
            continue
        try:
            call = peer.prepare(way, tuple(map(aligned_copy, arrays)))
            for _ in range(case.calls):
                value = call()
            case.check(name, peer.get(value), expected)
            calls[name] = call
        except Exception as error:
            failed[name] = told(error)
    return calls, failed
