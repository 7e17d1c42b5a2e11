"""What is told of ops at the end of a run."""

from __future__ import annotations

import pytest
from mgb_conformance.by_op import lines, words_by_gain

pytest_plugins = ["pytester"]

NO = "traits.vocabulary has no "


def test_missing_ops_are_ordered_by_skips_they_resolve() -> None:
    """Worked by hand: shl alone ends two skips, then mulhi one, then exp none without log, and log both."""
    reasons = [
        NO + "shl",
        NO + "shl",
        NO + "mulhi, shl",
        NO + "exp, log",
        NO + "exp, log",
        "traits.ieee is False",
    ]
    assert words_by_gain(reasons) == [("shl", 2, 3), ("mulhi", 1, 1), ("exp", 0, 2), ("log", 2, 2)]


def test_ops_with_equal_outcomes_are_listed_together() -> None:
    def test(op: str, outcome: str, reason: str = "") -> dict[str, str]:
        return {"op": op, "outcome": outcome, "reason": reason}

    dtypes = [
        test(op, "skipped", f"traits.dtypes has no {d}") for op in ("add", "mul") for d in ("int8", "bool")
    ]
    tests = [
        test("exp", "passed"),
        test("add", "passed"),
        test("mul", "passed"),
        test("neg", "failed"),
        *dtypes,
    ]
    tests += [{"op": "", "outcome": "passed", "reason": ""}, test("log", "skipped", NO + "log")]
    assert list(lines(tests)) == [
        "1 op, 1 passed",
        "  exp",
        f"1 op, 0 passed, 1 skipped: {NO}log",
        "  log",
        "2 ops, 2 passed, 4 skipped: traits.dtypes has no bool, int8",
        "  add, mul",
        "1 op, 0 passed, 1 failed",
        "  neg",
        "missing words; the skipped tests that each lets run after those before it (that want it):",
        "  log +1 (1)",
    ]


def test_run_ends_with_op_summary_and_speed_table(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mgb_conformance import bench

    assert bench._ROUNDS > 1
    how = ("--pyargs", "mgb_conformance.test_reductions", "--mgb-backend", "eager", "-p", "no:cacheprovider")
    found = pytester.runpytest_subprocess(*how, "-k", "test_op", "--mgb-bench")
    found.stdout.fnmatch_lines(
        [
            "*ops, * passed",
            "*argmax, argmin, extent, *",
            "*mgb conformance: speed*",
            "medians, microseconds*eager*",
            "softmax, 2 Mi *",
        ]
    )
