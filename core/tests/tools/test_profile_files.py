"""A profile as a file: the Chrome trace format, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import profiling
import pytest
from profiling import profiled


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def check_trace_events(found: Any) -> Iterator[dict[str, Any]]:
    """The rules of the Trace Event Format for what we write; gives the complete events."""
    assert isinstance(found["traceEvents"], list)
    assert found.get("displayTimeUnit", "ms") in {"ms", "ns"}
    for event in found["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert event["ph"] in {"X", "M"}
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0
        assert isinstance(event.get("args", {}), dict)
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert set(event["args"]) == {"name"}
        else:
            assert isinstance(event["dur"], int | float) and event["dur"] >= 0
            assert isinstance(event["cat"], str)
            yield event


def test_saved_profile_is_in_the_chrome_trace_format(tmp_path: Path) -> None:
    traced = profiled(5)
    traced.save_profile(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())
    events = list(check_trace_events(found))
    kinds = [e["cat"] for e in events]
    assert kinds.count("call") == 5 and kinds.count("program") == 4
    (thread,) = {e["tid"] for e in events}
    named = [e for e in found["traceEvents"] if e["name"] == "thread_name"]
    assert [(e["tid"], e["args"]["name"]) for e in named] == [(thread, "MainThread")]
    products = [e["args"] for e in events if e["name"] == "matmul"]
    assert len(products) == 4
    assert products[0]["reads"] == ["float32[8,4]", "float32[4,6]"]
    assert products[0]["sources"][0].startswith(profiling.__file__)
    assert [e["args"]["recorded"] for e in events if e["cat"] == "call"] == [True] + 4 * [False]


def test_trace_slices_are_properly_nested(tmp_path: Path) -> None:
    """Perfetto drops slices that overlap without one being in the other."""
    traced = profiled(20)
    traced.save_profile(tmp_path / "trace.json")
    events = list(check_trace_events(json.loads((tmp_path / "trace.json").read_text())))
    stack: list[tuple[float, str]] = []
    depth = {"call": 0, "program": 1, "step": 2}
    for event in events:
        begin, end = event["ts"], event["ts"] + event["dur"]
        while stack and stack[-1][0] <= begin:
            stack.pop()
        assert len(stack) == depth[event["cat"]]
        assert not stack or end <= stack[-1][0] + 1e-6
        stack.append((end, event["name"]))


def test_profile_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text("what was there")
    traced = profiled()

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space"):
            traced.save_profile(path)
    assert path.read_text() == "what was there" and list(tmp_path.iterdir()) == [path]
    traced.save_profile(str(path))
    assert json.loads(path.read_text())["traceEvents"]
