"""Backends of which nearly all tests are skipped: the floor fails them, and lets small honest ones pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

BACKEND = """
import numpy as np

from mgb.backends import *
from mgb.backends import API_VERSION
from mgb.backends.eager_backend import EagerBackend
from mgb.ir import Kind
from mgb.backends.plugins import hookimpl, manager

class Mine(EagerBackend):
    name = "{name}"
    traits = Traits({traits})

@hookimpl
def mgb_backend(name):
    return Mine() if name == "{name}" else None
"""

FIVE = '{"add", "sub", "mul", "div", "neg"}'

MISSED = {
    "a dtype that hardly a test has": (
        f'{FIVE}, dtypes={{"int8"}}, api_version=1',
        "traits.dtypes has no float32, which nearly all tests compute in",
    ),
    "no element-wise ops": (
        f'{FIVE} | {{"reduce_sum"}}, kinds={{Kind.REDUCE}}, api_version=1',
        "traits.kinds has no elementwise",
    ),
    "groups that never come": (f"{FIVE}, min_ops=10**6, api_version=1", "traits.min_ops is 1000000"),
    "words of a dtype that it has not": (
        f'{FIVE} | {{"mulhi"}}, api_version=1',
        "no dtypes, or no kind, to run these words in: mulhi",
    ),
    "words of a kind that it has not": (
        f'{FIVE} | {{"reduce_max"}}, api_version=1',
        "no dtypes, or no kind, to run these words in: reduce_max",
    ),
    "a kind without words": (
        f"{FIVE}, kinds={{Kind.ELEMENTWISE, Kind.REDUCE}}, api_version=1",
        "traits.vocabulary has no op of kind reduce",
    ),
    "no words": ("(), api_version=1", "no word of the vocabulary computes in float32"),
    "inputs that no group is small enough for": (
        '{"add"}, max_inputs=1, api_version=1',
        "nothing in float32 is compiled",
    ),
}

KEPT = {
    "the usual": f"{FIVE}, api_version=1",
    "one dtype": '{"add", "mul"}, dtypes={"float32"}, api_version=1',
    "many dtypes": f"{FIVE}, dtypes=ALL_DTYPES, min_ops=4, api_version=1",
    "reductions": f'{FIVE} | {{"reduce_sum"}}, kinds={{Kind.ELEMENTWISE, Kind.REDUCE}}, api_version=1',
}


LIAR = f"{FIVE}, api_version=API_VERSION"


class Verdict:
    """Return the report of a run for one backend."""

    def __init__(self, told: list[str], cases: list[ElementTree.Element]) -> None:
        self.told = told
        self.failed = [case.get("name") for case in cases if case.find("failure") is not None]
        self.errors = [case.get("name") for case in cases if case.find("error") is not None]
        self.passed = sum(len(case) == 0 for case in cases)
        self.skipped = sum(case.find("skipped") is not None for case in cases)
        self.text = "\n".join("".join(case.itertext()) for case in cases)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """Return the report of the suite for each backend: all in one process, where others find them."""
    folder = tmp_path_factory.mktemp("floor")
    backends = {what: traits for what, (traits, _) in MISSED.items()} | KEPT | {"a liar": LIAR}
    names = {what: f"mine_{number}" for number, what in enumerate(backends)}
    for what, name in names.items():
        (folder / f"{name}.py").write_text(BACKEND.format(name=name, traits=backends[what]))
        tiers = "TestContract, TestFloor" if what in ("the usual", "a liar") else "TestFloor"
        tests = f"from mgb_conformance import {tiers}\nMGB_BACKEND = {name!r}\n"
        (folder / f"test_{name}.py").write_text(tests)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}\n" for name in names.values())
    (info / "entry_points.txt").write_text(f"[mgb.backends]\n{points}")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junit-xml=found"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    cases = ElementTree.parse(folder / "found").findall(".//testcase")
    parts = re.split(r"^test_(mine_\d+)\.py: ", done.stdout.partition(" mgb conformance ")[2], flags=re.M)
    told = {name: text.splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {
        what: Verdict(
            told[name], [case for case in cases if case.get("classname").startswith(f"test_{name}.")]
        )
        for what, name in names.items()
    }


@pytest.mark.parametrize("what", MISSED)
def test_backend_that_runs_almost_no_tests_fails(verdicts, what: str) -> None:
    assert verdicts[what].failed and not verdicts[what].errors
    missed = [line for line in verdicts[what].told if line.startswith("  floor missed: ")]
    assert any(MISSED[what][1] in line for line in missed), missed


@pytest.mark.parametrize("what", KEPT)
def test_small_backend_passes(verdicts, what: str) -> None:
    verdict = verdicts[what]
    assert not verdict.failed and not verdict.errors and verdict.passed > 3
    assert verdict.told[0] == f"{verdict.passed} tests ran, {verdict.skipped} were skipped"


def test_skip_reasons_are_reported_when_the_floor_is_missed(verdicts) -> None:
    told = verdicts["a dtype that hardly a test has"].told
    assert "  1 skipped: traits.dtypes has no bool" in told
    assert not any("skipped:" in line for line in verdicts["the usual"].told)


def test_suite_detects_api_version_copied_from_the_core(verdicts) -> None:
    assert verdicts["a liar"].failed == ["test_api_version_is_declared_by_the_backend"]
    assert "pass api_version=1 to Traits" in verdicts["a liar"].text
