"""The pytest plugin: which backend, what may fail, and the report."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: A test module that sets this variable tests that backend, whatever the command line says.
MODULE_VARIABLE = "MGB_BACKEND"

#: The traits that the header shows.
SHOWN = "kinds dtypes devices scope specialize strided max_inputs ieee api_version".split()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mgb", "mgb backend conformance")
    group.addoption("--mgb-backend", metavar="NAME", help="the backend to test")
    group.addoption("--mgb-report", metavar="FOLDER", help="write conformance.json and conformance.md there")
    group.addoption("--mgb-known-failures", metavar="FILE", help='TOML: "test id" = "reason"; each must fail')
    group.addoption("--mgb-timeout", metavar="SECONDS", type=float, default=60.0, help="for one kernel")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: long sweeps, run with `pytest -m slow`")
    if config.getoption("--mgb-report"):
        from .report import Reporter

        config.pluginmanager.register(Reporter(config), "mgb_conformance_report")


def pytest_report_header(config: pytest.Config) -> list[str]:
    name = config.getoption("--mgb-backend")
    if not name:
        return []
    return [f"{key}: {value}" for key, value in describe(name).items()]


def describe(name: str) -> dict[str, str]:
    """The backend, its traits and the ``MGB_*`` variables that are set, as text."""
    from mgb.plugins import load_backend

    backend = load_backend(name)
    shown = [f"{field}={_text(getattr(backend.traits, field))}" for field in SHOWN]
    variables = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("MGB_")]
    return {
        "mgb backend": f"{backend.name} {backend.version()}",
        "mgb traits": ", ".join(shown),
        "mgb vocabulary": f"{len(backend.traits.vocabulary)} ops",
        "mgb variables": " ".join(variables) or "none",
    }


def _text(value: Any) -> str:
    if isinstance(value, frozenset):
        return "+".join(sorted(_text(v) for v in value))
    return str(getattr(value, "value", value))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("-m"):
        _leave_out_sweeps(config, items)
    if config.getoption("--mgb-known-failures"):
        _expect_failures(Path(config.getoption("--mgb-known-failures")), items)


def _leave_out_sweeps(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect our long sweeps, which run when ``-m`` asks for them."""
    sweeps = {i for i in items if i.get_closest_marker("slow") and _is_ours(i)}
    if sweeps:
        config.hook.pytest_deselected(items=list(sweeps))
        items[:] = [i for i in items if i not in sweeps]


def _is_ours(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return getattr(function, "__module__", "").startswith("mgb_conformance.")


def _expect_failures(path: Path, items: list[pytest.Item]) -> None:
    known = tomllib.loads(path.read_text())
    for item in items:
        reason = known.get(test_id(item.nodeid))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def test_id(nodeid: str) -> str:
    """A test's name without the file it was collected through: ``TestCasts::test_bits[int32-float32]``."""
    return nodeid.partition("::")[2]


test_id.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The backend under test, behind guard bands and a clock."""
    from mgb.plugins import installed, load_backend

    from .drive import Driver

    config = request.config
    name = getattr(request.module, MODULE_VARIABLE, None) or config.getoption("--mgb-backend")
    if not name:
        here = ", ".join(sorted(installed()))
        raise pytest.UsageError(f"name a backend: --mgb-backend NAME (installed: {here})")
    drivers = config.stash.setdefault(DRIVERS, {})
    if name not in drivers:
        drivers[name] = Driver(load_backend(name), config.getoption("--mgb-timeout"))
    return drivers[name]


DRIVERS: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
