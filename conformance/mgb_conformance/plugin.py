"""The pytest plugin: which backend or communicator, what may fail, and the report."""

from __future__ import annotations

import tomllib
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from .by_op import PARAMETERS
from .report import Reporter, describe, short_id
from .summary import pytest_terminal_summary  # noqa: F401 - a hook
from .watch import Watch

#: A test module that sets one tests that backend, or communicator, whatever the command line says.
MODULE_VARIABLE, COMMUNICATOR_VARIABLE = "MGB_BACKEND", "MGB_COMMUNICATOR"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mgb", "mgb backend conformance")
    group.addoption("--mgb-backend", metavar="NAME", help="the backend to test")
    group.addoption("--mgb-communicator", metavar="NAME", help="the communicator to test")
    group.addoption("--mgb-report", metavar="FOLDER", help="write conformance.json and conformance.md there")
    group.addoption("--mgb-bench", action="store_true", help="at the end, time it beside EAGER and the best")
    group.addoption("--mgb-known-failures", metavar="FILE", help='TOML: "test id" = "reason"; each must fail')
    group.addoption("--mgb-timeout", metavar="SECONDS", type=float, default=60.0, help="for one kernel")
    group.addoption(
        "--mgb-hang-seconds",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="for one test; then the run ends",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: long sweeps, run with `pytest -m slow`")
    limit = 0.0 if config.getoption("usepdb") else config.getoption("--mgb-hang-seconds")
    watch = config.stash[WATCH] = Watch(limit)
    if config.getoption("--mgb-report"):
        config.pluginmanager.register(Reporter(config, watch.tell), "mgb_conformance_report")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test of ours; where a backend hangs, end the run: its threads compute on."""
    if not _is_ours(item):
        return (yield)
    watch, config = item.config.stash[WATCH], item.config
    if not watch.started:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            watch.start()
    watch.begin(short_id(item.nodeid), str(_backend_name(item)))
    try:
        return (yield)
    finally:
        watch.end()
        if hung := _hung(config):
            item.session.shouldfail = f"backend {hung} hangs in {item.nodeid}, and what follows is not tried"


def pytest_unconfigure(config: pytest.Config) -> None:
    if (watch := config.stash.get(WATCH, None)) is not None:
        watch.close(hung=bool(_hung(config)))


def _hung(config: pytest.Config) -> str:
    """Return the backends that hung, or nothing."""
    return ", ".join(name for name, driver in config.stash.get(DRIVERS, {}).items() if driver.hang)


def pytest_report_header(config: pytest.Config) -> list[str]:
    name = config.getoption("--mgb-backend")
    if not name:
        return []
    return [f"{key}: {value}" for key, value in describe(name).items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("-m"):
        _leave_out(config, items, {i for i in items if i.get_closest_marker("slow") and _is_ours(i)})
    ours = [i for i in items if _is_ours(i)]
    if any(map(_is_named, ours)):
        _leave_out(config, items, {i for i in ours if not _is_named(i)})
    _put_together(items)
    for item in items:
        if _is_ours(item) and (name := _op_of(item)):
            item.user_properties.append(("mgb_op", name))
    if config.getoption("--mgb-known-failures"):
        _expect_failures(Path(config.getoption("--mgb-known-failures")), items)


def _leave_out(config: pytest.Config, items: list[pytest.Item], unwanted: set[pytest.Item]) -> None:
    """Deselect our long sweeps, which run when ``-m`` asks for them, and tests of what nobody has named."""
    if unwanted:
        config.hook.pytest_deselected(items=list(unwanted))
        items[:] = [i for i in items if i not in unwanted]


def _is_named(item: pytest.Item) -> bool:
    """Return whether there is a name for what a test of ours tries: a backend or a communicator."""
    is_job = item.function.__module__.endswith(".test_communicators")  # type: ignore[attr-defined]
    return bool(_communicator_name(item) if is_job else _backend_name(item))


def _put_together(items: list[pytest.Item]) -> None:
    """Order tests of ops dtype by dtype, in all tiers: what shares kernels shares a worker."""
    places = [k for k, i in enumerate(items) if _is_ours(i) and {"dtype", "name"} <= _parameters(i).keys()]
    found: dict[tuple[str | None, str], list[pytest.Item]] = {}
    for k in places:
        found.setdefault((_backend_name(items[k]), _parameters(items[k])["dtype"]), []).append(items[k])
    for k, item in zip(places, [item for group in found.values() for item in group], strict=True):
        items[k] = item


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _op_of(item: pytest.Item) -> str:
    """Return the op that a test is about, if it is about one."""
    given = _parameters(item)
    return next((given[p] for p in PARAMETERS if isinstance(given.get(p), str)), "")


def _is_ours(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return getattr(function, "__module__", "").startswith("mgb_conformance.")


def _expect_failures(path: Path, items: list[pytest.Item]) -> None:
    known = tomllib.loads(path.read_text())
    for item in items:
        reason = known.get(short_id(item.nodeid))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the backend under test, behind guard bands and a clock."""
    from mgb.backends.plugins import installed, load_backend

    from .drive import Driver

    config = request.config
    name = _backend_name(request.node)
    if not name:
        here = ", ".join(sorted(installed()))
        raise pytest.UsageError(f"name a backend: --mgb-backend NAME (installed: {here})")
    drivers = config.stash.setdefault(DRIVERS, {})
    if name not in drivers:
        watch = config.stash[WATCH]
        drivers[name] = Driver(load_backend(name), config.getoption("--mgb-timeout"), watch)
    return drivers[name]


@pytest.fixture(scope="module")
def communicator(request: pytest.FixtureRequest) -> str:
    """Return the name of the communicator under test, which is loaded in the processes of jobs alone."""
    from mgb.distributed.communicator import chosen

    name = _communicator_name(request.node)
    if not name:
        raise pytest.UsageError("name a communicator: --mgb-communicator NAME")
    chosen(name, joins=False)
    return name


def _backend_name(node: pytest.Item | pytest.Collector) -> str | None:
    return _name(node, MODULE_VARIABLE, "--mgb-backend")


def _communicator_name(node: pytest.Item | pytest.Collector) -> str | None:
    return _name(node, COMMUNICATOR_VARIABLE, "--mgb-communicator")


def _name(node: pytest.Item | pytest.Collector, variable: str, option: str) -> str | None:
    module = node.getparent(pytest.Module)
    name: str | None = getattr(getattr(module, "obj", None), variable, None)
    return name or node.config.getoption(option)


DRIVERS: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
WATCH: pytest.StashKey[Watch] = pytest.StashKey()
