"""The summary at the end of a run: how much of the suite ran, what was skipped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from . import by_op
from .report import record_of, short_id

#: Reasons for skipped tests that are told, the most frequent.
_REASONS = 8


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell it for each test module; with the reasons where one backend was named, or a floor is missed."""
    from . import __all__ as tiers

    modules: dict[str, dict[str, list[Any]]] = {}
    for outcome in ("passed", "failed", "xfailed", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            module, tier = report.nodeid.partition("::")[0], short_id(report.nodeid).partition("::")[0]
            if tier in tiers:
                found = modules.setdefault(_suite(module), {})
                found.setdefault("skipped" if outcome == "skipped" else "ran", []).append(report)
                if outcome == "failed" and tier == "TestFloor":
                    found.setdefault("missed", []).append(report)
    if modules:
        terminalreporter.section("mgb conformance")
    name = config.getoption("--mgb-backend")
    for module, found in modules.items():
        for line in _lines(module, found, bool(name)):
            terminalreporter.line(line)
        if name:
            reports = (*found.get("ran", ()), *found.get("skipped", ()))
            for line in by_op.lines([record_of(report) for report in reports]):
                terminalreporter.line(line)
    if name and config.getoption("--mgb-bench"):
        from .bench import lines

        terminalreporter.section("mgb conformance: speed")
        for line in lines(name):
            terminalreporter.line(line)


def _suite(module: str) -> str:
    """Return the tiers that a run of the package itself collects are one suite."""
    return "mgb_conformance" if "mgb_conformance/test_" in module else module


def _lines(module: str, found: dict[str, list[Any]], is_named: bool) -> Iterable[str]:
    skipped, missed = found.get("skipped", []), found.get("missed", [])
    yield f"{module}: {len(found.get('ran', []))} tests ran, {len(skipped)} were skipped"
    if is_named or missed:
        reasons = Counter(_reason(report) for report in skipped)
        yield from (f"  {count} skipped: {reason}" for reason, count in reasons.most_common(_REASONS))
    yield from (f"  floor missed: {_crash(report)}" for report in missed)


def _reason(report: Any) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""


def _crash(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash is not None else report.nodeid
