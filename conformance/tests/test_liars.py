"""Backends that lie: the suite must catch each of them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

BACKEND = """
from dataclasses import replace
import numpy as np
from mgb.backends import Backend
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl, manager

class Liar(EagerBackend):
    name = "{name}"

    def compile(self, graph):
        honest = EagerBackend.compile(self, graph)
        def run(*arrays, out):
{lie}
        return replace(honest, run=run)

class Plugin:
    @hookimpl
    def mgb_backend(self, name):
        return Liar() if name == "{name}" else None

manager.register(Plugin(), name="{name}")
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
}


COMPUTED = """
from mgb.tensor.apply import evaluate
def rule(node, *xs):
    if node.op.name == "const":
        return node.params["value"]
    if {condition}:
        xs = ({operand}, *xs[1:])
    return evaluate(node.op, xs, dict(node.params))
for o, value in zip(out, graph.fold(rule, arrays)):
    o[...] = value
"""

#: Lies that one test alone looks for: the lie, the tier and the test, and what is said.
SUBTLE = {
    "a result in two parts": (
        "whole = tuple(np.empty_like(o) for o in out); honest.run(*arrays, out=whole)\n"
        "for o, w in zip(out, whole): o[:1] = w[:1]\n"
        "for o, w in zip(out, whole): o[1:] = w[1:]",
        "TestInterrupts.test_interrupted_result_is_untouched_or_complete[shape0]",
        "neither untouched nor whole",
    ),
    "a worker for which nobody waits": (
        "import threading\n"
        "parts = tuple(np.empty_like(o) for o in out); honest.run(*arrays, out=parts)\n"
        "for o, p in zip(out, parts):\n"
        "    o, p, half = o.reshape(-1), p.reshape(-1), o.size // 2 if o.size > 1 << 20 else o.size\n"
        "    np.copyto(o[:half], p[:half])\n"
        "    late = threading.Timer(1, np.copyto, (o[half:], p[half:])); late.daemon = True; late.start()",
        "TestThreads.test_outputs_are_complete_when_the_call_returns",
        r"returned with \d+% of an output unwritten",
    ),
    "a float64 rounded twice": (
        COMPUTED.format(
            condition="node.op.name == 'cast' and node.spec.dtype == 'float16' and xs[0].dtype == 'float64'",
            operand="xs[0].astype('float32')",
        ),
        "TestCasts.test_cast_to_every_dtype[float64]",
        "float64 -> float16: .* are wrong",
    ),
    "a cast that is another one where it is computed with": (
        COMPUTED.format(
            condition="node.spec.dtype == 'int32' and xs and node.inputs[0].op.name == 'cast'"
            " and node.inputs[0].inputs[0].spec.dtype == 'float32'",
            operand="np.maximum(xs[0], 0)",
        ),
        "TestCasts.test_cast_to_every_dtype[float32]",
        "of float32 -> int32: .* are wrong",
    ),
}


#: Those who keep to the contract, and one who was written for another version of it.
HONEST = "honest.run(*arrays, out=out)"
OTHER_API = """
from dataclasses import replace
Liar.traits = replace(EagerBackend().traits, api_version=99)
"""

MODULE = """
import {name}
from mgb_conformance import {tier}
MGB_BACKEND = "{name}"
"""


def write(folder: Path, name: str, body: str, tier: str, more: str) -> None:
    """A backend that does `body` where it should run a kernel, and a test module for it."""
    source = BACKEND.format(name=name, lie=textwrap.indent(body, " " * 12))
    (folder / f"{name}.py").write_text(source + more)
    (folder / f"test_{name}.py").write_text(MODULE.format(name=name, tier=tier))


class Verdict:
    """Return the report of the suite for one backend."""

    def __init__(self, cases: list[ElementTree.Element]) -> None:
        self.passed = sum(len(case) == 0 for case in cases)
        self.failed = sum(case.find("failure") is not None for case in cases)
        self.errors = sum(case.find("error") is not None for case in cases)
        self.names = {case.get("name") for case in cases if case.find("failure") is not None}
        self.text = "\n".join("".join(case.itertext()) for case in cases)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """Return the report of the suite for each backend: all in one process, with a backend for each."""
    folder = tmp_path_factory.mktemp("liars")
    bodies = {lie: body for lie, (body, *_) in (LIES | SUBTLE).items()}
    bodies |= {"honest": HONEST, "another api": HONEST}
    names = {lie: f"liar_{number}" for number, lie in enumerate(bodies)}
    for lie, name in names.items():
        tier = SUBTLE[lie][1].partition(".")[0] if lie in SUBTLE else "TestContract"
        write(folder, name, bodies[lie], tier, OTHER_API * (lie == "another api"))
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junit-xml=found"]
    words += ["-k", "not TestCasts or float32 or float64"]
    subprocess.run(words, cwd=folder, capture_output=True, timeout=300, check=False)
    cases = ElementTree.parse(folder / "found").findall(".//testcase")
    return {
        lie: Verdict([case for case in cases if f"test_{name}." in f"{case.get('classname')}."])
        for lie, name in names.items()
    }


@pytest.mark.parametrize("lie", SUBTLE)
def test_subtle_lie_fails_the_expected_test(verdicts: dict[str, Verdict], lie: str) -> None:
    _, test, said = SUBTLE[lie]
    assert test.partition(".")[2] in verdicts[lie].names
    assert re.search(said, verdicts[lie].text)


@pytest.mark.parametrize("lie", LIES)
def test_lying_backend_fails_the_suite(verdicts: dict[str, Verdict], lie: str) -> None:
    assert verdicts[lie].failed > 0
    assert re.search(LIES[lie][1], verdicts[lie].text)


def test_backend_of_another_api_version_is_an_error(verdicts: dict[str, Verdict]) -> None:
    assert verdicts["another api"].errors > 0
    assert "was written for version 99 of the backend API" in verdicts["another api"].text


def test_honest_backend_passes(verdicts: dict[str, Verdict]) -> None:
    honest = verdicts["honest"]
    assert honest.failed == honest.errors == 0 and honest.passed >= 8
