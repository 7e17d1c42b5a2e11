"""The suite for GPUs: what it computes, with a stand-in for CuPy; and what it says where there is no GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import jit
from mgb_bench import gpu, run
from mgb_bench import gpu_peers as peers
from scipy import special

standin = pytest.importorskip("mgb_conformance.standin", reason="mgb-conformance is not installed")

SMALL = [replace(case, shape=(70, 40)) for case in gpu.CASES]


@pytest.fixture
def cupy() -> Iterator[Any]:
    yield standin.install(1)
    standin.uninstall()


class Clock:
    """An event of a GPU that notes what happens, in `noted`; a second passes between any two."""

    noted: list[str]

    def record(self) -> None:
        self.noted.append("record")

    def synchronize(self) -> None:
        self.noted.append("synchronize")


@pytest.fixture
def clock(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the log of recorded events, calls and waits."""
    Clock.noted = []
    monkeypatch.setattr(cupy.cuda, "Event", Clock, raising=False)
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda begin, end: 1e3, raising=False)
    return Clock.noted


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["mgb eager", "cupy", "jax"])
def test_correct_contestants_are_timed(
    case: gpu.Case, name: str, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "jax":
        pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    contestant = {"mgb eager": peers.mgb("eager"), "cupy": peers.cupy(False), "jax": peers.jax("cpu")}[name]
    before = dict(os.environ)
    monkeypatch.setattr(gpu, "seconds", lambda way, rounds: 1e-6)
    (line,) = gpu.measure(case, 1e12, [contestant], 1)
    assert line.problem == "" and line.microseconds == 1.0 and line.contestant == name
    assert line.of_copy == round(case.nbytes() / 1e6, 3)
    assert dict(os.environ) == before, "whatever is traced later would have this backend too"


def test_run_on_another_backend_is_not_timed(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason is: only a backend that compiled the case has a time under its name."""
    kept = jit.trace
    monkeypatch.setattr(jit, "trace", lambda f, **options: kept(f, **options | {"backend": "eager"}))
    nvrtc = replace(peers.mgb("nvrtc"), missing=lambda: None)
    (line,) = gpu.measure(SMALL[1], 1e12, [nvrtc], 1)
    assert line.microseconds is None and not line.absent
    assert line.problem == "AnotherBackendError: eager ran, not nvrtc"


def test_each_contestant_requests_its_own_backend(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways of all contestants are alive at once; none may decide for another, nor may the environment."""
    monkeypatch.setenv("MGB_JIT_BACKEND", "nobody")
    (x,) = SMALL[1].arrays()
    asked: list[str] = []
    kept = jit.trace

    def noting(function: Any, **options: Any) -> Any:
        asked.append(options["backend"])
        return kept(function, **options | {"backend": "eager"})

    monkeypatch.setattr(jit, "trace", noting)
    for name in ("NVRTC", "triton"):
        with pytest.raises(peers.AnotherBackendError):
            peers.mgb(name).build(SMALL[1], [x])
    assert asked == ["nvrtc", "triton"]


def test_wrong_result_is_not_timed(cupy: Any) -> None:
    zeros = peers.Way(lambda: np.zeros(SMALL[0].shape), lambda x: x)
    wrong = peers.Contestant("wrong", lambda: None, lambda case, arrays: zeros)
    (line,) = gpu.measure(SMALL[0], 1e12, [wrong], 1)
    assert line.microseconds is None and "AssertionError" in line.problem and not line.absent


def test_timing_waits_for_contestants_with_their_own_stream(clock: list[str]) -> None:
    way = peers.Way(
        lambda: clock.append("call") or len(clock), lambda x: x, lambda last: clock.append(f"wait {last}")
    )
    assert gpu.seconds(way, rounds=1) == 1 / gpu.TOGETHER
    timed = clock[clock.index("record") :]
    last = clock.index("record") + 1 + gpu.TOGETHER
    assert timed == ["record", *["call"] * gpu.TOGETHER, f"wait {last}", "record", "synchronize"]


def test_jax_wait_blocks_until_the_result_is_ready(cupy: Any) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    waited: list[str] = []

    class Result:
        def block_until_ready(self) -> None:
            waited.append("ready")

    peers.jax("cpu").build(SMALL[1], SMALL[1].arrays()).wait(Result())
    assert waited == ["ready"]


class TestMissing:
    def test_uninstalled_peers_report_an_install_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
        for peer in peers.PEERS.values():
            assert str(peer.missing()).startswith("not installed: pip install ")

    def test_jax_without_a_gpu_reports_the_reason(self) -> None:
        jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
        if any(device.platform == "gpu" for device in jax.devices()):
            pytest.skip("JAX has a GPU here")
        reason = peers.jax().missing()
        assert reason is not None and reason.startswith("JAX finds no GPU (") and "jax[cuda13]" in reason

    def test_unusable_backends_report_a_reason(self) -> None:
        assert "takes no arrays of a GPU" in str(peers.mgb("cpu_numba").missing())
        assert "no backend of this name is installed; there are" in str(peers.mgb("nobody").missing())
        assert peers.mgb("eager").missing() is None

    def test_absent_contestant_is_listed_and_broken_one_fails_the_run(
        self, cupy: Any, clock: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A missing contestant is not a failure; an installed one that fails is."""
        monkeypatch.setattr(
            cupy.cuda.runtime, "getDeviceProperties", lambda n: {"name": b"none"}, raising=False
        )
        monkeypatch.setattr(gpu, "CASES", SMALL[:2])
        monkeypatch.setattr(gpu, "copy_bandwidth", lambda: 1e12)
        absent = peers.Contestant("absent", lambda: "pip install it", lambda case, arrays: None)  # type: ignore[arg-type, return-value]
        broken = replace(absent, name="broken", missing=lambda: None)
        here = peers.mgb("eager")
        for chosen, status in (([absent, here], 0), ([broken, here], 1)):
            monkeypatch.setattr(gpu, "contestants", lambda *names, chosen=chosen: chosen)
            assert gpu.bench(tmp_path, quick=True) == status
            lines = json.loads((tmp_path / "gpu.json").read_text())["lines"]
            assert [(x["contestant"], bool(x["problem"])) for x in lines] == [
                (c.name, c is not here) for _ in range(2) for c in chosen
            ]
        assert "| chain | broken | AttributeError" in (tmp_path / "gpu.md").read_text()


class TestChoice:
    def test_default_is_all_contestants(self) -> None:
        names = [c.name for c in peers.contestants()]
        assert names == [
            "mgb nvrtc", "mgb triton", "torch", "torch.compile", "jax", "cupy", "cupy.fuse",
        ]  # fmt: skip

    def test_named_contestants_are_selected(self) -> None:
        assert [c.name for c in peers.contestants(["NVRTC", "eager"], ["jax"])] == [
            "mgb nvrtc",
            "mgb eager",
            "jax",
        ]

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"peers": ["numpy"]}, "is called 'numpy'; there are torch,"),
            ({"match": "nothing"}, "there are chain,"),
        ],
        ids=str,
    )
    def test_unknown_peer_or_case_is_rejected(
        self, options: dict[str, Any], text: str, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match=text):
            run.bench(["gpu"], out=tmp_path, **options)


def test_reference_matches_textbook_formulas() -> None:
    by_name = {case.name: case for case in SMALL}
    (x,) = by_name["softmax"].arrays()
    np.testing.assert_allclose(
        gpu.truth(by_name["softmax"], [x]), special.softmax(x[:64].astype(float), axis=-1)
    )
    a, b = by_name["chain"].arrays()
    assert gpu.truth(by_name["chain"], [a, b]).shape == (64, 40)
    assert by_name["softmax"].nbytes() == 70 * 40 * 8
    a, b = by_name["transposed input"].arrays()
    assert a.shape == (40, 70) and b.shape == (70, 40)
    want = 2 * a.T[:64].astype(float) + b[:64]
    np.testing.assert_allclose(gpu.truth(by_name["transposed input"], [a, b]), want)


def test_bench_without_a_gpu_reports_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    standin.install(0)
    try:
        assert run.bench(["gpu"], out=tmp_path / "out") == 2
    finally:
        standin.uninstall()
    assert "no GPU: CuPy finds no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
