"""What lives outside of a traced function changes between its calls: each must give what eager code gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mgb.jit import trace
from stale_cases import MODES, Outcome, compare, flags, names

CASES = names()
#: Modes whose sweeps are long and whose calls share nearly all with those of another mode.
LONG = ("run_body=True", "without_host", "xla_trace")
#: A file and the number of a line in it.
A_LINE = re.compile(r"\w\.py\D{1,8}\d+")


@pytest.fixture(autouse=True, scope="module")
def eager_steps(kernel_folder: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGB_JIT_BACKEND", "EAGER")
        yield


def frozen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that never runs again."""
    results: list[Any] = []

    def call(*arguments: Any) -> Any:
        if not results:
            results.append(function(*arguments))
        return results[0]

    return call


@pytest.mark.parametrize("file, name", CASES)
def test_each_case_distinguishes_stale_from_eager(file: str, name: str) -> None:
    assert compare(file, name, lambda function: function) == Outcome("right")
    assert compare(file, name, frozen).kind == "stale"


def test_catalogue_has_the_minimum_number_of_cases() -> None:
    assert len(CASES) >= 300
    assert sum(flags(*case).impure for case in CASES) >= 40


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow if mode in LONG else ()) for mode in MODES]
)
@pytest.mark.parametrize("file, name", CASES)
def test_traced_calls_are_never_stale(mode: str, file: str, name: str) -> None:
    known, outcome = flags(file, name), compare(file, name, MODES[mode])
    allowed = {"right"}
    if known.other_ops or mode == "run_body=True":
        allowed.add("mismatch")
    never = mode in ("run_body=False", "without_host")
    if mode in ("partial_trace", "xla_trace") or ((never or mode == "symbolic") and outcome.call == 0):
        allowed.add("refused")
    if never and known.impure:
        allowed = {"refused"}
        assert A_LINE.search(outcome.said), outcome
    assert outcome.kind in allowed, outcome


@pytest.mark.parametrize("file, name", [case for case in CASES if flags(*case).impure])
def test_stats_report_the_line_that_forces_the_body_to_run(file: str, name: str) -> None:
    traced: list[Any] = []

    def wrap(function: Callable[..., Any]) -> Any:
        traced.append(trace(function))
        return traced[0]

    compare(file, name, wrap)
    assert A_LINE.search(str(traced[0].stats())), traced[0].stats()
