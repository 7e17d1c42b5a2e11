"""The pytest plugin: header, report, known failures."""

from __future__ import annotations

import json

import pytest

pytest_plugins = ["pytester"]

HOW = ("--mgb-backend", "eager", "-p", "no:cacheprovider")
ALL = ("--pyargs", "mgb_conformance", *HOW)
CONTRACT = ("--pyargs", "mgb_conformance.test_contract", *HOW)


def test_header_lists_backend_traits_and_variables(pytester: pytest.Pytester, monkeypatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "1")
    result = pytester.runpytest_subprocess(*ALL, "-k", "TestContract")
    result.stdout.fnmatch_lines(
        [
            "mgb backend: eager 0",
            "mgb traits: kinds=*reduce*, dtypes=*float32*",
            "mgb variables:*MGB_NUM_THREADS=1*",
        ]
    )
    assert result.ret == 0


def test_report_contains_every_test(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*CONTRACT, "mgb_conformance.test_cache", "--mgb-report", "found")
    data = json.loads((pytester.path / "found" / "conformance.json").read_text())
    outcomes = result.parseoutcomes()
    assert len(data["tests"]) == outcomes["passed"] + outcomes["skipped"]
    assert data["backend"]["mgb backend"].startswith("eager")
    text = (pytester.path / "found" / "conformance.md").read_text()
    assert f"| TestContract | {outcomes['passed']} | 0 | 0 | 1 |" in text  # it has memory given to it
    assert "Backend.save returns None" in text


def test_known_failure_that_passes_is_a_failure(pytester: pytest.Pytester) -> None:
    known = pytester.path / "known.toml"
    known.write_text('"TestContract::test_probe_finds_the_backend_usable" = "it could not, once"\n')
    result = pytester.runpytest_subprocess(
        *CONTRACT, "-k", "test_probe_finds_the_backend_usable", "--mgb-known-failures", known
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*it could not, once*"])


def test_known_failure_that_fails_is_xfailed(pytester: pytest.Pytester) -> None:
    (pytester.path / "known.toml").write_text('"TestMine::test_wrong" = "not yet"\n')
    pytester.makepyfile("class TestMine:\n    def test_wrong(self): assert False\n")
    result = pytester.runpytest_subprocess("--mgb-known-failures", "known.toml", "-p", "no:cacheprovider")
    result.assert_outcomes(xfailed=1)


def test_long_sweeps_run_only_when_requested(pytester: pytest.Pytester) -> None:
    choice = ("-k", "TestElementwise and float32-exp", "--collect-only", "-q")
    assert "many_numbers" not in pytester.runpytest_subprocess(*ALL, *choice).stdout.str()
    assert "many_numbers" in pytester.runpytest_subprocess(*ALL, *choice, "-m", "slow").stdout.str()


def test_missing_backend_option_lists_installed_backends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("from mgb_conformance import TestContract")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*name a backend: --mgb-backend NAME (installed:*eager*"])


def test_loading_the_plugin_imports_neither_mgb_nor_hypothesis(pytester: pytest.Pytester) -> None:
    code = "import sys, mgb_conformance.plugin; print('mgb' in sys.modules, 'hypothesis' in sys.modules)"
    result = pytester.runpython_c(code)
    result.stdout.fnmatch_lines(["False False"])
