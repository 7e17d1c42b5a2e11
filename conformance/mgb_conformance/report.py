"""The report of a run, as JSON for machines and Markdown for people."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from . import by_op

#: The traits that the header shows.
SHOWN = "kinds dtypes devices scope specialize strided max_inputs ieee api_version".split()


def short_id(nodeid: str) -> str:
    """Return a test's name without the file it was collected through.

    ``TestCasts::test_bitcast[int32-float32]``.
    """
    return nodeid.partition("::")[2]


def describe(name: str) -> dict[str, str]:
    """Return the backend, its traits and the ``MGB_*`` variables that are set, as text."""
    from mgb.backends.plugins import load_backend

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


def record(name: str, outcome: str, reason: str, seconds: float, op: str = "") -> dict[str, Any]:
    """Make the record of one test."""
    found = {"id": name, "tier": name.partition("::")[0], "outcome": outcome, "reason": reason}
    return found | {"seconds": round(seconds, 4)} | ({"op": op} if op else {})


def op_of(report: pytest.TestReport) -> str:
    """Return the op that a test is about, if it is about one of mgb's."""
    name = dict(report.user_properties).get("mgb_op", "")
    return str(name) if name in _ops() else ""


@cache
def _ops() -> frozenset[str]:
    from mgb.ops.declare import OPS

    return frozenset(OPS)


def write(folder: Path, head: dict[str, str], tests: list[dict[str, Any]]) -> None:
    """Write ``conformance.json`` and ``conformance.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"backend": head, "tests": tests}
    (folder / "conformance.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / "conformance.md").write_text(_markdown(head, tests))


class Reporter:
    """Collects outcomes and writes them down; who watches for hangs is told of each by `tell`."""

    def __init__(self, config: pytest.Config, tell: Callable[..., None]) -> None:
        self._folder = Path(config.getoption("--mgb-report"))
        self._backend = config.getoption("--mgb-backend")
        self._tell = tell
        self._head: dict[str, str] | None = None
        self._tests: list[dict[str, Any]] = []

    def pytest_runtest_logstart(self) -> None:
        """Report the head before the first test, which may hang."""
        if self._head is None:
            self._head = describe(self._backend) if self._backend else {}
            self._tell(folder=str(self._folder.resolve()), head=self._head)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the call of each test, or whatever ended it earlier."""
        if report.when != "call" and report.outcome == "passed":
            return
        self._tests.append(record_of(report))
        self._tell(record=self._tests[-1])

    def pytest_sessionfinish(self) -> None:
        """Write both files."""
        write(self._folder, self._head or {}, self._tests)


def record_of(report: pytest.TestReport) -> dict[str, Any]:
    """Make the record of the test of a report of pytest."""
    outcome = "known failure" if hasattr(report, "wasxfail") else report.outcome
    return record(short_id(report.nodeid), outcome, _reason(report), report.duration, op_of(report))


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash is not None else ""


def _markdown(head: dict[str, str], tests: list[dict[str, Any]]) -> str:
    outcomes = ("passed", "failed", "known failure", "skipped")
    lines = ["# Conformance", "", *(f"* {key}: {value}" for key, value in head.items()), ""]
    lines += [f"| tier | {' | '.join(outcomes)} |", "| --- |" + " --- |" * len(outcomes)]
    for tier in dict.fromkeys(t["tier"] for t in tests):
        count = Counter(t["outcome"] for t in tests if t["tier"] == tier)
        lines.append(f"| {tier} | {' | '.join(str(count[o]) for o in outcomes)} |")
    for outcome in ("failed", "known failure"):
        found = [t for t in tests if t["outcome"] == outcome]
        if found:
            lines += ["", f"## {outcome}", "", *(f"* `{t['id']}`: {t['reason']}" for t in found)]
    skipped = Counter(t["reason"] for t in tests if t["outcome"] == "skipped")
    if skipped:
        lines += ["", "## skipped", "", *(f"* {reason} ({n} tests)" for reason, n in skipped.items())]
    if any(t.get("op") for t in tests):
        lines += ["", "## ops", "", *by_op.markdown(tests)]
    return "\n".join(lines) + "\n"
