"""Backends that break what they promise beside kernels: each is caught, and the honest twin passes."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

BACKEND = """
from dataclasses import replace
import numpy as np
from mgb.backends import Kernel
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl

class Mine(EagerBackend):
    name = "mine"

    @property
    def traits(self):
        facts = super().traits
        return replace(facts, joins=True, sequences=True, specialize=type(facts.specialize).SHAPE)

    def probe(self):
        {probe}

    def mismatch(self, target):
        {mismatch}

    def save(self, kernel):
        return b"kept"

    def join(self, kernels):
        kernels = list(kernels)
        def run(*arrays, out):
            for kernel, given, targets in {joined}:
                kernel.run(*given, out=targets)
        return Kernel(run)

    def chain(self, kernels, wiring, varying, launch_graph=None):
        def run(arrays):
            for kernel, (reads, writes) in {order}:
                kernel.run(*(arrays[i] for i in reads), out=tuple(arrays[k] for k in writes))
        return run

    def sequence(self, kernels, layout, count, checked):
        before = []
        def run(*arrays):
            before.append(arrays)
            for turn in layout({followed}):
                (given,) = turn.arrays
                if turn.kernel is None:
                    np.copyto(given[1], given[0])
                else:
                    turn.kernel.run(*given[:-1], out=given[-1:])
        return run

    def compile(self, graph):
        return replace(super().compile(graph), hazards=frozenset({hazards}))

def parts(kernels, arrays, out):
    counts = [1 for kernel in kernels]
    given = [arrays[k:k + 1] for k in range(len(kernels))]
    ends = [0, 1, 3, 4, 5]
    return zip(kernels, given, [out[a:b] for a, b in zip(ends, ends[1:])])

@hookimpl
def mgb_backend(name):
    return Mine() if name == "mine" else None
"""

HONEST = {
    "probe": "return None",
    "mismatch": "return None if target == self.target() else 'another'",
    "joined": "parts(kernels, arrays, out)",
    "order": "zip(kernels, wiring)",
    "followed": "arrays",
    "hazards": "()",
}

#: What is changed, the test that catches it, and what that says.
LIES = {
    "a heavy probe": ({"probe": "import toolchain"}, "probe_does_not_import", "imports toolchain"),
    "kernels for any machine": (
        {"mismatch": "return None"},
        "match_only_their_own_target",
        "would be loaded here",
    ),
    "a joined call that leaves one out": (
        {"joined": "list(parts(kernels, arrays, out))[:-1]"},
        "joined_kernels",
        "elements are wrong",
    ),
    "a chain in the wrong order": (
        {"order": "zip(kernels[::-1], wiring[::-1])"},
        "chain_matches",
        "elements are wrong",
    ),
    "a sequence on the arrays of the first call": (
        {"followed": "before[0]"},
        "sequence_matches",
        "elements are wrong",
    ),
    "hazards of other shapes": ({"hazards": "{(0, 9)}"}, "hazards_are_pairs", "IndexError"),
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_broken_promise_is_detected(
    lie: str | None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, test, said = LIES[lie] if lie else ({}, "TestPromises", "")
    pytester.makepyfile(mine=BACKEND.format(**(HONEST | changes)), toolchain="")
    info = pytester.path / "mgb_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mgb-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mgb.backends]\nmine = mine\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    tiers = ("--pyargs", "mgb_conformance.test_promises", "-p", "no:cacheprovider")
    found = pytester.runpytest_subprocess(*tiers, "--mgb-backend", "mine", "-k", test)
    if lie is None:
        assert found.parseoutcomes() == {"passed": 6}
    else:
        assert found.parseoutcomes() == {"failed": 1, "deselected": 5}
        assert said in found.stdout.str()
