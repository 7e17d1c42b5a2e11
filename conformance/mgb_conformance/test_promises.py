"""The optional features of a backend: joined calls, chains, kernels for elsewhere, a light probe."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mgb.backends import Backend, Kernel, Turn
from mgb.ir import Graph
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum

from .cases import check, of, require, samples
from .drive import Driver, is_announced
from .judge import judge, problem

#: Asks a backend whether it runs here, and tells what came to be imported by that; argument: its name.
PROBED = """
import json, sys
from mgb.backends.plugins import import_backend
backend = import_backend(sys.argv[1])
before = set(sys.modules)
backend.probe()
backend.mismatch("another machine")
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""

#: What mgb itself needs; a backend may have it imported.
LIGHT = frozenset({"numpy", "scipy", "ml_dtypes", "pluggy", "platformdirs", "rich"})


def softmax(x: Any, y: Any) -> list[Any]:
    e = exp(x - reduce_max(x, axis=(1,)))
    return [e / reduce_sum(e, axis=(1,)), x * y]


class TestPromises:
    def test_probe_does_not_import_a_toolchain(self, driver: Driver) -> None:
        """Check `probe` and `mismatch`: all backends are listed at once, and files load without compilers."""
        if not is_announced(driver.backend.name):
            pytest.skip("another process cannot find this backend")
        command = [sys.executable, "-c", PROBED, driver.backend.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * driver.timeout)
        assert done.returncode == 0, done.stderr
        own = type(driver.backend).__module__.partition(".")[0]
        foreign = set(json.loads(done.stdout.splitlines()[-1])) - sys.stdlib_module_names - LIGHT - {own}
        foreign = {name for name in foreign if not name.startswith(("mgb", "_"))}
        assert not foreign, f"probe() or mismatch() imports {', '.join(sorted(foreign))}"

    def test_kernels_match_only_their_own_target(self, driver: Driver) -> None:
        if type(driver.backend).save is Backend.save:
            pytest.skip("Backend.save returns None: it keeps nothing")
        target = driver.backend.target()
        assert isinstance(target, str) and driver.backend.mismatch(target) is None
        assert driver.backend.target() == target
        for other in ("", "nowhere", target + " or another"):
            reason = driver.backend.mismatch(other)
            assert isinstance(reason, str) and reason, f"kernels for {other!r} would be loaded here"

    def test_hazards_are_pairs_that_could_share_memory(self, driver: Driver) -> None:
        """Check that where they do nevertheless, the results are right."""
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        graph = of(softmax, x, y)
        require(driver, graph)
        hazards = driver.compile(graph).hazards
        for i, k in hazards or ():
            assert graph.inputs[i].spec == graph.outputs[k].spec, (i, k)
        for k in range(2):
            for i in range(2):
                check(driver, graph, [x, y], over={k: i})

    def test_joined_kernels_match_separate_calls(self, driver: Driver) -> None:
        """Check other sizes, the same one twice, and one that writes over its input."""
        if not driver.backend.traits.joins:
            pytest.skip("traits.joins is False")
        arrays = [samples("float32", shape, k) for k, shape in enumerate([(7,), (64, 3), (7,), (1,)])]
        graphs = [of(lambda x: [x * 2 + 1], a) for a in arrays]
        graphs[1] = of(lambda x: [x * x, x - 1], arrays[1])
        for graph in graphs:
            require(driver, graph)
        kernels = [driver.compile(graph) for graph in graphs]
        joined = driver.backend.join(kernels)
        if joined is None:
            pytest.skip("Backend.join returns None for such kernels")
        assert isinstance(joined, Kernel)
        out = [[np.empty(o.spec.shape, o.spec.dtype) for o in graph.outputs] for graph in graphs]
        given = [a.copy() for a in arrays]
        out[3] = [given[3]]
        _run(driver, joined.run, given, [o for outs in out for o in outs], {5: 3})
        for graph, array, outs in zip(graphs, arrays, out, strict=True):
            _judged(driver, graph, [array], outs)

    def test_chain_matches_sequential_kernels(self, driver: Driver) -> None:
        """Check that each reads what the one before has written; the first operand's layout varies."""
        if type(driver.backend).chain is Backend.chain:
            pytest.skip("Backend.chain returns None: kernels are called one by one")
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        first, then = of(lambda x, y: [x * y + 1], x, y), of(lambda z, y: [z - y, z * 0.5], x, y)
        for graph in (first, then):
            require(driver, graph)
        kernels = [driver.compile(first), driver.compile(then)]
        wiring = [((0, 1), (2,)), ((2, 1), (3, 4))]
        modes = [None, False, *([True] if driver.backend.traits.launch_graphs else [])]
        for launch_graph in modes:
            chain = driver.backend.chain(kernels, wiring, [0], launch_graph)
            if chain is None:
                continue
            for given in (x, np.ascontiguousarray(x.T).T):
                arrays = [driver.place.put(a) for a in (given, y, *(np.empty_like(y) for _ in range(3)))]
                chain(arrays)
                found = [driver.place.get(a) for a in arrays]
                _judged(driver, first, [x, y], [found[2]])
                _judged(driver, then, [found[2], y], found[3:])

    def test_sequence_matches_sequential_kernels(self, driver: Driver) -> None:
        """Check windows of arrays that lie otherwise in a later call, copies, and what is in place."""
        if not driver.backend.traits.sequences:
            pytest.skip("traits.sequences is False")
        x, y = samples("float32", (6, 50), 1), samples("float32", (6, 50), 2)
        graph = of(lambda x, y: [x * y + 1], x[1:], y[1:])
        require(driver, graph)
        kernel = driver.compile(graph)

        def layout(arrays: Sequence[Any]) -> list[Turn]:
            a, b, z = arrays
            first = Turn(kernel, ((a[1:], b[:-1], z[1:]),), (0, 0, 0), bases=(0, 1, 2))
            copy = Turn(None, ((b[:1, ::-1], z[:1]),), (0, 0), bases=(1, 2))
            again = Turn(kernel, ((z[:-1], b[1:], z[:-1]),), (0, 0, 0), bases=(2, 1, 2))
            return [first, copy, again]

        run = driver.backend.sequence([kernel], layout, 3, 2)
        if run is None:
            pytest.skip("Backend.sequence returns None for such kernels")
        for given in (x, np.ascontiguousarray(x.T).T, x, x[::-1]):
            z = np.empty_like(x)
            for _ in range(2):
                run(given, y, z)
            first = np.vstack([y[:1, ::-1], given[1:] * y[:-1] + 1])
            (want,) = judge(graph, [first[:-1], y[1:]], driver.backend.traits.denormals)
            assert problem(z[:-1], want) is None
            np.testing.assert_allclose(z[-1], first[-1], rtol=1e-5)


def _run(
    driver: Driver, run: Any, given: list[np.ndarray], out: list[np.ndarray], over: dict[int, int]
) -> None:
    """Call `run` with arrays where the backend takes them; `out` is filled, and with `over` an input."""
    there = [driver.place.put(a) for a in given]
    targets = [there[over[k]] if k in over else driver.place.put(o) for k, o in enumerate(out)]
    run(*there, out=tuple(targets))
    for target, made in zip(out, targets, strict=True):
        target[...] = driver.place.get(made)


def _judged(driver: Driver, graph: Graph, arrays: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> None:
    for got, want in zip(found, judge(graph, arrays, driver.backend.traits.denormals), strict=True):
        assert problem(got, want) is None
