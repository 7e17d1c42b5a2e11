"""Backends that lie: the suite must catch each of them."""

from __future__ import annotations

import re
import textwrap

import pytest

pytest_plugins = ["pytester"]

BACKEND = """
import numpy as np
from mgb.backend import Backend, Kernel
from mgb.eager_backend import EagerBackend
from mgb.plugins import hookimpl, manager

class Liar(EagerBackend):
    name = "liar"

    def compile(self, graph):
        honest = EagerBackend.compile(self, graph)
        def run(*arrays, out):
{lie}
        return Kernel(run, honest.source)

class Plugin:
    @hookimpl
    def mgb_backend(self, name):
        return Liar() if name == "liar" else None

if not manager.has_plugin("liar"):
    manager.register(Plugin(), name="liar")
"""

LIES = {
    "a wrong result": (
        "honest.run(*arrays, out=out); out[0][...] = out[0] + out[0].dtype.type(1)",
        "elements are wrong",
    ),
    "one wrong element at the end": (
        "honest.run(*arrays, out=out); out[-1].reshape(-1)[-1:] = 77",
        "elements are wrong",
    ),
    "a rounding too many": (
        "honest.run(*arrays, out=out)\n"
        "if out[0].dtype == np.float32: out[0][...] = out[0] * np.float32(1 + 2e-7)",
        "elements are wrong",
    ),
    "an output that is not filled": (
        "parts = tuple(np.empty_like(o) for o in out); honest.run(*arrays, out=parts)\n"
        "for o, p in zip(out, parts): o.reshape(-1)[:-1] = p.reshape(-1)[:-1]",
        "wrong|never written",
    ),
    "a result of another shape": (
        "parts = tuple(np.empty_like(o) for o in out); honest.run(*arrays, out=parts)\n"
        "for o, p in zip(out, parts): o[...] = p.reshape(-1)[:1].reshape((1,) * o.ndim)",
        "elements are wrong",
    ),
    "a write past the end": (
        "honest.run(*arrays, out=out)\n"
        "import ctypes; ctypes.memset(out[0].ctypes.data + out[0].nbytes, 0, 4)",
        "past the end",
    ),
    "a write before the start": (
        "honest.run(*arrays, out=out)\nimport ctypes; ctypes.memset(out[0].ctypes.data - 4, 0, 4)",
        "before the start",
    ),
    "a write into an input": (
        "honest.run(*arrays, out=out); arrays[0].reshape(-1)[:1] = 3",
        "into input 0",
    ),
    "an output written before the inputs are read": (
        "for k, o in enumerate(out):\n"
        "    parts = tuple(np.empty_like(p) for p in out); honest.run(*arrays, out=parts); o[...] = parts[k]",
        "elements are wrong",
    ),
    "an exception": ("raise ValueError('the toolchain fell over')", "the toolchain fell over"),
    "a hang": ("import time\nwhile True: time.sleep(0.05)", "hangs: run took more than"),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_suite_catches(pytester: pytest.Pytester, lie: str) -> None:
    body, message = LIES[lie]
    pytester.makepyfile(liar=BACKEND.format(lie=textwrap.indent(body, " " * 12)))
    result = _run(pytester)
    failed = result.parseoutcomes().get("failed", 0)
    assert failed > 0
    assert re.search(message, result.stdout.str())


def test_the_suite_catches_a_backend_of_another_api(pytester: pytest.Pytester) -> None:
    source = BACKEND.format(lie=" " * 12 + "honest.run(*arrays, out=out)")
    source += (
        "\nfrom dataclasses import replace\nLiar.traits = replace(EagerBackend().traits, api_version=99)\n"
    )
    pytester.makepyfile(liar=source)
    result = _run(pytester)
    assert result.parseoutcomes().get("errors", 0) > 0
    result.stdout.fnmatch_lines(["*was written for version 99 of the backend API*"])


def test_an_honest_backend_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(liar=BACKEND.format(lie=" " * 12 + "honest.run(*arrays, out=out)"))
    outcomes = _run(pytester).parseoutcomes()
    assert outcomes.get("failed", 0) == outcomes.get("errors", 0) == 0
    assert outcomes["passed"] > 8


def _run(pytester: pytest.Pytester) -> pytest.RunResult:
    pytester.makepyfile(
        test_liar="""
        import liar
        from mgb_conformance import TestContract
        MGB_BACKEND = "liar"
        """
    )
    return pytester.runpytest_subprocess("--mgb-timeout=2", "-p", "no:cacheprovider")
