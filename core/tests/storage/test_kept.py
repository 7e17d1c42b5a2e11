"""Programs in the cache: what an earlier process found for an equal graph serves, and nothing else does."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.optimizer import SGD
from mgb.runtime import cache

compiling: Any = importlib.import_module("mgb.executor.compile")

BACKENDS = ["CPU_LLVM", "eager"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was cut into groups."""
    seen: list[Any] = []
    detect = compiling.detect

    def watched(graph: Any, *others: Any) -> Any:
        seen.append(graph)
        return detect(graph, *others)

    monkeypatch.setattr(compiling, "detect", watched)
    return seen


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("v*/.programs/*/*"))


def training(rate: float = 0.1, **options: Any) -> tuple[Callable[[], float], M.Module]:
    """Return a step, and the model that it trains."""
    mgb.random.seed(3)
    model = M.Sequential(M.Linear(6, 8), M.ReLU(), M.Linear(8, 3))
    manager, update = GradManager().attach(model.parameters()), SGD(model.parameters(), rate, momentum=0.9)
    rng = np.random.default_rng(0)
    x, y = mgb.tensor(rng.standard_normal((5, 6)).astype("float32")), mgb.tensor(np.arange(5) % 3)

    @trace(without_host=True, **options)
    def step(x: Any, y: Any) -> Any:
        with manager:
            loss = F.nn.cross_entropy(model(x), y)
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    return lambda: float(step(x, y)), model


def chain(x: Any) -> Any:
    for number in range(30):
        x = x * 1.5 + number
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_of_a_training_step_are_found_once(folder: Path, fused: list[Any], backend: str) -> None:
    losses, weights = [], []
    for _ in range(2):
        step, model = training(backend=backend)
        losses.append([step() for _ in range(5)])
        weights.append([p.numpy() for p in model.parameters()])
    assert len(fused) == len(kept(folder)) == 1
    assert losses[0] == losses[1]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_loop_is_kept_with_its_body(folder: Path, fused: list[Any], backend: str) -> None:
    found = []
    for _ in range(2):
        mgb.random.seed(3)
        lstm = M.LSTM(4, 5)
        x = mgb.tensor(np.linspace(-1, 1, 20 * 2 * 4).reshape(20, 2, 4).astype("float32"))
        traced = trace(lambda x, lstm=lstm: chain(lstm(x)[0]), backend=backend)
        found.append([traced(x).numpy() for _ in range(3)])
        assert traced.backend.lower() == backend.lower()
    assert len(fused) == 2  # the program, and the body of the loop
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[1][2], found[1][0], rtol=1e-5)


def test_other_options_programs_and_lines_have_their_own(folder: Path, fused: list[Any]) -> None:
    x = mgb.tensor(np.ones(5, "float32"))
    ways: list[tuple[Callable[[Any], Any], dict[str, Any]]] = [
        (chain, {}),
        (chain, {"opt_level": 2, "backend": "CPU_LLVM"}),
        (chain, {"fast_math": True}),
        (chain, {"backend": "eager"}),
        (lambda x: chain(x), {}),  # the same ops
        (lambda x: chain(x) * 2, {}),
    ]
    for count, (function, options) in enumerate(ways, 1):
        options = {"backend": "CPU_LLVM", **options}
        for _ in range(2):
            traced = trace(function, **options)
            for _ in range(2):
                traced(x)
        assert len(kept(folder)) <= count
    assert len(kept(folder)) == 4  # level 2 fuses nothing, and the lambda's ops are those of the chain


def test_source_lines_in_the_report_are_those_of_this_program(folder: Path) -> None:
    x = mgb.tensor(np.ones(5, "float32"))
    text = "def chain(x):\n    for n in range(30):\n        x = x * 1.5 + n\n    return x\n"
    for lines in (0, 40):
        scope: dict[str, Any] = {}
        exec(compile("\n" * lines + text, "moved.py", "exec"), scope)
        traced = trace(scope["chain"], backend="CPU_LLVM")
        for _ in range(2):
            traced(x)
        (program,) = traced.programs()
        assert {node.source for step in program.steps for node in step.graph.nodes if node.source} == {
            f"moved.py:{lines + 3}"
        }


def test_damaged_program_is_compiled_again(folder: Path, fused: list[Any]) -> None:
    x = mgb.tensor(np.ones(5, "float32"))
    for damage in (None, b"", b"MGBGRAPH" + bytes(100)):
        if damage is not None:
            (path,) = kept(folder)
            cache.store(".programs", path.name, damage)
        traced = trace(chain, backend="CPU_LLVM")
        assert [float(traced(x).numpy()[0]) for _ in range(3)] == [float(chain(x).numpy()[0])] * 3
    assert len(fused) == 3


def test_small_and_verified_programs_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = mgb.tensor(np.ones(5, "float32"))
    small = trace(lambda x: x * 2 + 1, backend="CPU_LLVM")
    for _ in range(2):
        small(x)
    monkeypatch.setenv("MGB_VERIFY", "1")
    verified = trace(chain, backend="CPU_LLVM")
    for _ in range(2):
        verified(x)
    assert not kept(folder)


def test_large_constants_are_not_kept(folder: Path) -> None:
    large = np.random.default_rng(0).random((1 << 20) + 1).astype("float32")
    traced = trace(lambda x: chain(x) + large, backend="CPU_LLVM")
    for _ in range(2):
        traced(mgb.tensor(np.ones((1 << 20) + 1, "float32")))
    assert all(path.stat().st_size < 5 << 20 for path in kept(folder))


def test_without_a_cache_nothing_is_packed(
    folder: Path, fused: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_CACHE", "0")
    monkeypatch.setattr("mgb.storage.kept.pack", None)
    for count in (1, 2):
        traced = trace(chain, backend="CPU_LLVM")
        for _ in range(3):
            traced(mgb.tensor(np.ones(5, "float32")))
        assert len(fused) == count
    assert not kept(folder)
