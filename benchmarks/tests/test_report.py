"""The report from results made here, and the command in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from mgb import plugins
from mgb_bench import gpu, run
from mgb_bench.page import page
from mgb_bench.peers import PEERS, Mgb
from mgb_bench.plots import COLOURS, bars, lines, styles
from mgb_bench.report import duration, markdown
from mgb_bench.results import Results, parse
from mgb_bench.run import environment, merged, part, suites
from mgb_bench.summary import BEGIN, renewed

MACHINE = {
    "processor": "A processor",
    "vectors": "avx2",
    "date": "2026-01-31",
    "cores": 2,
    "caches": {"L2": "2048K"},
    "system": "a system",
    "python": "3.11",
    "peers": {"mgb:x": "mgb 0.1.0", "numpy": "numpy 2.4"},
    "missing": {"torch": "not installed: pip install torch"},
    "quick": False,
}


def _timing(median: float) -> dict[str, Any]:
    return {"min": median * 0.9, "median": median, "mean": median, "rounds": 7, "repeats": 1}


def _race(size: str, elements: int, **medians: float) -> dict[str, Any]:
    timings = {name.replace("_x", ":x"): _timing(median) for name, median in medians.items()}
    return {
        "suite": "elementwise",
        "case": "a*b",
        "size": size,
        "elements": elements,
        "nbytes": 12 * elements,
        "limit_nbytes": {"limit": 24 * elements, "limit_stream": 24 * elements},
        "timings": timings,
        "failed": {"jax": "AssertionError: jax: 2 <b> instead of 1"} if size == "2 Mi" else {},
    }


def _data() -> dict[str, Any]:
    races = [
        _race("1 Mi", 1 << 20, mgb_x=1e-3, numpy=3e-3, numba=2e-3, limit=1e-3, limit_stream=1.6e-3),
        _race("2 Mi", 2 << 20, mgb_x=4e-3, numpy=6e-3, numba=2e-3, limit=4e-3, limit_stream=2e-3),
    ]
    table = {
        "suite": "growth",
        "case": "nodes",
        "size": "",
        "table": {"columns": ["n", "s"], "rows": [[10, 0.5]]},
    }
    benchmarks = [{"extra_info": info} for info in (*races, table)]
    return {"machine_info": {"mgb_bench": MACHINE}, "benchmarks": benchmarks}


def _results() -> Results:
    return parse(json.loads(json.dumps(_data())))


def test_ratio_to_best_peer_and_fraction_of_limit() -> None:
    first, second, _ = _results().entries
    assert first.best_peer == "numba"
    assert first.ratio("mgb:x") == pytest.approx(2.0)
    assert second.ratio("mgb:x") == pytest.approx(0.5)
    assert first.limit == pytest.approx(24 * (1 << 20) / 1e-3)
    assert second.limit == pytest.approx(48 * (1 << 20) / 2e-3)
    assert first.of_limit("mgb:x") == pytest.approx(0.5)


def test_markdown_contains_machine_results_and_failures() -> None:
    text = markdown(_results())
    assert "A processor, 2 cores, avx2; measured on 2026-01-31; L2 2048K" in text
    assert "missing: torch**: not installed: pip install torch" in text
    assert "| a\\*b | 1 Mi | mgb:x | 900 µs | 1 ms | 12.6 | 25.2 | 0.50 | numba | 2 ms | **2.00** |" in text
    assert "jax left out: AssertionError" in text
    assert "### nodes" in text
    assert "| 10 | 0.5 |" in text


def test_markdown_table_rows_have_equal_column_counts() -> None:
    block: list[int] = []
    for line in [*markdown(_results()).splitlines(), ""]:
        if line.startswith("|"):
            block.append(line.count("|"))
        else:
            assert len(set(block)) <= 1
            block = []


def test_html_page_is_self_contained_and_escaped() -> None:
    text = page(_results())
    assert "<svg" in text
    assert "&lt;b&gt;" in text
    assert "<script" not in text and "@import" not in text
    targets = re.findall(r"""(?:\bsrc=|href=|url\()["']?([^"')]*)""", text)
    assert targets and all(target.startswith("#") for target in targets)  # parts of the page itself


def test_plots_are_well_formed_svg() -> None:
    drawn = lines("t & u", {"mgb": [(1, 2.0), (4, 3.0)], "b<c": [(1, 0.0)]}, {1: "1 Ki", 4: "4 Ki"}, "GB/s")
    for text in (drawn, bars("ratios", [("a", 0.5), ("b", 2.0)])):
        assert ElementTree.fromstring(text).tag.endswith("svg")


def test_durations_have_three_digits_and_a_unit() -> None:
    seconds = (2.5, 0.9996, 1.234e-3, 5e-6, 3e-9)
    assert [duration(s) for s in seconds] == ["2.5 s", "1000 ms", "1.23 ms", "5 µs", "3 ns"]


def test_unrelated_json_is_rejected() -> None:
    with pytest.raises(ValueError, match="not the JSON of an mgb bench run"):
        parse({"machine_info": {}, "benchmarks": []})


def test_run_has_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_VERIFY", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONPATH", "/a/checkout")
    made = environment(2)
    assert "MGB_VERIFY" not in made
    assert made["PYTHONPATH"] == "/a/checkout"  # else another mgb would be measured
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == made["MGB_NUM_THREADS"] == "2"


def test_suites_are_listed_in_order() -> None:
    timed = ["elementwise", "reductions", "patterns", "updates", "overhead", "compile"]
    assert [n for n in suites() if n in timed] == timed


def _mgb(*arguments: str, status: int, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mgb", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_bench_command_runs_a_suite_and_writes_the_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [
        "bench",
        "--suite",
        "overhead",
        "--peers",
        "numpy",
        "--match",
        "1 op ",
        "--quick",
        "--out",
        str(out),
    ]
    text = _mgb(*words, status=0)
    assert "1 op" in text
    results = parse(json.loads((out / "results.json").read_text()))
    (entry,) = results.entries
    assert entry.peers == ["numpy"]
    assert len(entry.ours) == 2
    assert "## overhead" in (out / "report.md").read_text()
    assert "<svg" in (out / "report.html").read_text()


def test_crashed_suite_loses_only_its_own_results(tmp_path: Path) -> None:
    whole = {"machine_info": {"mgb_bench": dict(MACHINE)}, "benchmarks": [{"extra_info": {}}]}
    part(tmp_path, "updates").write_text(json.dumps(whole))
    part(tmp_path, "steps").write_text("")
    part(tmp_path, "compile").write_text(json.dumps(whole)[:-40])
    data = merged(tmp_path, {"steps": -6, "updates": 0, "compile": -9, "growth": 0, "overhead": 5})
    assert data is not None and len(data["benchmarks"]) == 1
    assert data["machine_info"]["mgb_bench"]["lost"] == {
        "steps": "killed by signal 6, see log.txt",
        "compile": "killed by signal 9, its results are half written, see log.txt",
        "growth": "its tests ran to their end and measured nothing, see log.txt",
    }
    results = parse(data)
    for text in (markdown(results), page(results)):
        for name in ("steps", "compile", "growth"):
            assert f"no results of suite {name}" in text
    assert merged(tmp_path, {"steps": -6, "compile": -9}) is None


def test_hanging_suite_is_killed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while there is news of it; and also where it does not end when it is told to."""
    stuck = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for name in ('first', 'second', 'stuck'):\n"
        "    with open(sys.argv[1], 'a') as file: file.write(f'mgb-bench {{\"running\": \"{name}\"}}\\n')\n"
        "    time.sleep(600 if name == 'stuck' else 2)\n"
    )
    monkeypatch.setattr(run, "PATIENCE", 3.0)
    monkeypatch.setattr(run, "GRACE", 0.1)
    with (tmp_path / "log.txt").open("w") as log:
        status = run._run([sys.executable, "-c", stuck, str(tmp_path / "progress")], tmp_path, log, "steps")
    assert status == run.HANGS
    told = "ended after 0.05 minutes without progress"
    assert f"steps: {told}, while it ran: stuck" in (tmp_path / "log.txt").read_text()
    whole = {"machine_info": {"mgb_bench": dict(MACHINE)}, "benchmarks": [{"extra_info": {}}]}
    part(tmp_path, "updates").write_text(json.dumps(whole))
    data = merged(tmp_path, {"steps": status, "updates": 0})
    assert data is not None
    assert data["machine_info"]["mgb_bench"]["lost"] == {"steps": f"{told}, see log.txt"}


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_partial_results_are_deleted_only_after_merging(
    disk_is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"machine_info": {"mgb_bench": dict(MACHINE)}, "benchmarks": [{"extra_info": {}}]}

    def ran(words: Any, out: Path, log: Any, name: str) -> int:
        part(out, name).write_text(json.dumps(whole) if name != "steps" else '{"machine_info": {')
        return 0 if name != "steps" else -9

    write = Path.write_text

    def full(path: Path, *text: Any, **options: Any) -> int:
        if disk_is_full and path.name == "results.json":
            raise OSError("no space left")
        return write(path, *text, **options)

    monkeypatch.setattr(run, "_run", ran)
    monkeypatch.setattr(Path, "write_text", full)
    names = ["updates", "steps", "overhead"]
    if disk_is_full:
        with pytest.raises(OSError, match="no space left"):
            run.bench(names, out=tmp_path)
        assert all(part(tmp_path, name).exists() for name in names)
    else:
        assert run.bench(names, out=tmp_path) == 1
        assert len(json.loads((tmp_path / "results.json").read_text())["benchmarks"]) == 2
        assert not list(tmp_path.glob("results.*.json"))


def test_bench_command_reports_unknown_suites_and_peers(tmp_path: Path) -> None:
    text = _mgb("bench", "--suite", "nothing", "--out", str(tmp_path), status=2)
    assert "no suite is called 'nothing'; there are elementwise" in text
    text = _mgb("bench", "--peers", "nobody", "--out", str(tmp_path), status=2)
    assert "no peer is called 'nobody'" in text
    text = _mgb("bench", "--suite", "gpu,steps", "--out", str(tmp_path), status=2)
    assert "the suite 'gpu' runs alone, without steps; run: mgb bench --suite gpu" in text


def test_gpu_suite_receives_all_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(gpu, "bench", lambda *given: asked.append(given) or 0)
    assert run.bench(["gpu"], ["nvrtc", "eager"], ["jax"], tmp_path, True, "chain") == 0
    assert asked == [(tmp_path, True, ["nvrtc", "eager"], ["jax"], "chain")]


def test_gpu_only_backend_is_not_timed_on_host_arrays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All would run op by op, under its name."""
    there = [plugins.Status("nvrtc", "mgb-nvrtc", devices=("gpu",))]
    monkeypatch.setattr(plugins, "status", lambda: there)
    assert Mgb("nvrtc").probe() == "takes arrays of a GPU alone: mgb bench --suite gpu --backend nvrtc"


def test_terminated_run_stops_its_child_process(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "mgb",
        "bench",
        "--suite",
        "overhead",
        "--peers",
        "numpy",
        "--out",
        str(tmp_path),
    ]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "progress").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.terminate()
    assert child.wait(timeout=60) == 143
    assert not (tmp_path / "results.json").exists() or not (tmp_path / "results.json").stat().st_size


def test_each_contestant_has_one_colour() -> None:
    assert len(set(COLOURS.values())) == len(PEERS)
    names = ["mgb:cpu_llvm", "mgb:halide", "jax", "numpy", "limit"]
    assert styles(names)["jax"] == styles(["jax"])["jax"]
    assert len({str(style) for style in styles(names).values()}) == len(names)


def test_readme_table_matches_the_results() -> None:
    root = Path(__file__).parent.parent.parent
    results = parse(json.loads((root / "docs/benchmarks/results.json").read_text()))
    page = (root / "README.md").read_text()
    assert renewed(page, results) == page, f"run {BEGIN.split('`')[1]}"
    with pytest.raises(LookupError, match="no place for the table"):
        renewed("no table here", results)
    with pytest.raises(LookupError, match="run mgb bench --suite elementwise"):
        renewed(page, Results((), results.machine))
