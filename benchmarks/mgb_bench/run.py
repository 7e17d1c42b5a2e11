"""`mgb bench`: run suites with pytest in a process of their own, show how far it is, write the report."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .machine import cores
from .page import page
from .peers import PEERS
from .plugin import PROGRESS
from .report import markdown
from .results import Results, parse

#: The suite that is asked for by name, and alone.
GPU = "gpu"

FOLDER = Path(__file__).parent / "suites"

#: Every library that has threads, and what tells it their number.
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "HL_NUM_THREADS", "MGB_NUM_THREADS",
)  # fmt: skip

#: What a run takes over from the environment; the rest could make two runs differ.
KEPT = (
    "PATH", "HOME", "USER", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "PYTHONPATH", "XDG_CACHE_HOME", "MGB_CACHE_DIR", "MGB_JIT_BACKEND", "TORCHINDUCTOR_CACHE_DIR", "CXX",
    "CC",
)  # fmt: skip


#: What pytest returns when no test was chosen.
NOTHING_CHOSEN = 5

#: How a suite ended that was taken to hang; no status of pytest.
HANGS = 124

#: Seconds without news of a suite after which it hangs. Its longest tests take minutes.
PATIENCE = 20 * 60

#: Seconds that a process which is told to end is waited for.
GRACE = 10

#: The columns of the overview that the terminal shows; the report has all.
SHOWN = ("case", "size", "contestant", "median", "of the limit", "best peer", "ratio")


def suites() -> list[str]:
    """Return the names of all suites, in the order in which they run."""
    order = "elementwise reductions patterns updates steps overhead compile growth shapes".split()
    found = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
    return [name for name in order if name in found] + [name for name in found if name not in order]


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a run: what is needed, and the same number of threads for everybody."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return kept | dict.fromkeys(THREADS, str(threads)) | {"JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": "0"}


def command(
    name: str, backends: Sequence[str], peers: Sequence[str], quick: bool, folder: Path, match: str = ""
) -> list[str]:
    """Return the command that runs one suite and leaves its results in `part`."""
    settings = folder / "pytest.ini"  # none of the folder that this is run in
    settings.write_text("[pytest]\n")
    pytest = [sys.executable, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(FOLDER)]
    plugins = ["-p", "mgb_bench.plugin", "-p", "no:cacheprovider", "--import-mode=importlib"]
    wanted = {
        "benchmark-json": part(folder, name),
        "bench-backends": ",".join(backends),
        "bench-peers": ",".join(peers),
        "bench-progress": folder / "progress",
        "bench-match": match,
    }
    options = [f"--{option}={value}" for option, value in wanted.items()] + ["--bench-quick"] * quick
    return [*pytest, *plugins, *options, str(FOLDER / f"test_{name}.py")]


def part(folder: Path, name: str) -> Path:
    """Return the file of one suite's results."""
    return folder / f"results.{name}.json"


def bench(
    names: Sequence[str] = (),
    backends: Sequence[str] = (),
    peers: Sequence[str] = (),
    out: Path = Path("bench"),
    quick: bool = False,
    match: str = "",
    predict: bool = False,
) -> int:
    """Run suites and write ``results.json``, ``report.md``, ``report.html`` and ``log.txt`` into `out`.

    Each suite has a process of its own: where one dies, the report has the others and says so.

    Parameters
    ----------
    names : sequence of str
        Of suites; none means all.
    backends, peers : sequence of str
        See `peers.choose`.
    out : Path
        A folder, made if need be.
    quick : bool
        Fewer sizes and rounds.
    match : str
        Texts, by commas: only the tests whose names have one of them.
    predict : bool
        With the suite ``gpu`` alone: see `gpu_predict.predict`.

    Returns
    -------
    int
        0; 1 when a test failed, the report then has the rest; 2 when there is nothing to report.

    Raises
    ------
    ValueError
        There is no such suite or peer, or ``gpu`` is not asked for alone.
    """
    if GPU in names:
        _check_alone(names)
        if predict:
            found = importlib.import_module(".gpu_predict", __package__)
            return found.predict(out, quick, backends, match)  # type: ignore[no-any-return]
        gpu = importlib.import_module(".gpu", __package__)
        return gpu.bench(out, quick, backends, peers, match)  # type: ignore[no-any-return]
    if predict:
        raise ValueError("--predict is for GPUs: name --suite gpu")
    _check("suite", names, suites())
    _check("peer", peers, list(PEERS))
    out.mkdir(parents=True, exist_ok=True)
    names = list(names) or suites()
    for path in (out / "progress", out / "results.json", *(part(out, name) for name in names)):
        path.unlink(missing_ok=True)
    ended = {}
    with (out / "log.txt").open("w") as log, _terminated_as_exit():
        for name in names:
            ended[name] = _run(command(name, backends, peers, quick, out, match), out, log, name)
    data = merged(out, ended)
    if data is None:
        print(f"nothing was measured; pytest ended with {ended}, see {out / 'log.txt'}", file=sys.stderr)
        return 2
    (out / "results.json").write_text(json.dumps(data, indent=1))
    for name in names:  # not before: they are all there is of what was measured
        part(out, name).unlink(missing_ok=True)
    results = parse(data)
    write(results, out)
    status = int(any(code not in (0, NOTHING_CHOSEN) for code in ended.values()))
    _show(results, out, status)
    return status


def _run(words: Sequence[str], out: Path, log: IO[str], name: str) -> int:
    """Run one suite to its end; pytest's status, `HANGS`, or minus the signal that ended it."""
    (out / "progress").unlink(missing_ok=True)
    child = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment(cores()))
    try:
        running = _watch(child, out / "progress", name)
    finally:
        _end(child)  # nothing where it has ended; else it would go on without us
    if running is None:
        return child.returncode
    log.write(f"\n{name}: ended after {PATIENCE / 60:g} minutes without progress, while it ran: {running}\n")
    log.flush()
    return HANGS


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def merged(out: Path, ended: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the results of all suites as one; None when there are none.

    Parameters
    ----------
    out : Path
        Where their files are; they stay.
    ended : mapping of str to int
        How each ended. ``machine_info["mgb_bench"]["lost"]`` says which left no results, and why.
    """
    found: dict[str, Any] | None = None
    lost = {}
    for name, status in ended.items():
        path = part(out, name)
        text = path.read_text() if path.exists() else ""
        try:
            data = json.loads(text)
        except ValueError:  # there is none, or it ended while it wrote
            if text or status != NOTHING_CHOSEN:
                lost[name] = f"{_ending(status, bool(text))}, see log.txt"
            continue
        found = data if found is None else found | {"benchmarks": found["benchmarks"] + data["benchmarks"]}
    if found is not None:
        found["machine_info"]["mgb_bench"]["lost"] = lost
    return found


def _ending(status: int, begun: bool) -> str:
    """Describe how a suite ended of which there are no results, or which had `begun` to write them."""
    if status == HANGS:
        return f"ended after {PATIENCE / 60:g} minutes without progress"
    how = f"killed by signal {-status}" if status < 0 else f"pytest ended with {status}"
    if begun:
        return f"{how}, its results are half written"
    return "its tests ran to their end and measured nothing" if status == 0 else how


def write(results: Results, out: Path) -> None:
    """Write ``report.md`` and ``report.html``."""
    (out / "report.md").write_text(markdown(results), encoding="utf-8")
    (out / "report.html").write_text(page(results), encoding="utf-8")


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM, so that what has to be cleaned up is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"no {kind} is called {name!r}; there are {', '.join(known)}")


def _check_alone(names: Sequence[str]) -> None:
    """Check that the suite for GPUs, which has peers, a clock and a limit of its own, runs alone."""
    others = [name for name in names if name != GPU]
    if others:
        instead = f"run: mgb bench --suite {GPU}"
        raise ValueError(f"the suite {GPU!r} runs alone, without {', '.join(others)}; {instead}")


def _watch(child: subprocess.Popen[bytes], path: Path, name: str) -> str | None:
    """Show a progress bar until the child ends, or hangs: then return its test, "" before the first."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as bar:
        task, seen, since = bar.add_task(name, total=None), -1, time.monotonic()
        while child.poll() is None:
            time.sleep(0.2)
            news = _news(path)
            running = [n["running"] for n in news if "running" in n]
            if len(news) == seen:
                if time.monotonic() - since > PATIENCE:
                    return " ".join(running[-1:])
                continue
            seen, since = len(news), time.monotonic()
            bar.update(
                task,
                total=next((n["total"] for n in news if "total" in n), None),
                completed=max(len(running) - 1, 0),
                description=f"{name}: {' '.join(running[-1:])}",
            )
        bar.update(task, completed=sum("running" in n for n in _news(path)), description=f"{name}: done")
    return None


def _news(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    whole = path.read_text().rpartition(os.linesep)[0]
    return [json.loads(line.removeprefix(PROGRESS)) for line in whole.splitlines()]


def _show(results: Results, out: Path, status: int) -> None:
    """Show the overviews on the terminal."""
    from rich.console import Console
    from rich.table import Table

    from .report import notes, overview

    console = Console()
    for suite, entries in results.suites():
        races = [entry for entry in entries if entry.timings]
        if races:
            _, head, rows = overview(races)
            shown = [place for place, name in enumerate(head) if name in SHOWN]
            table = Table(*(head[place] for place in shown), title=suite)
            for row in rows:
                table.add_row(*(row[place].replace("**", "") for place in shown))
            console.print(table)
        for note in notes(entries):
            console.print("-", note, markup=False)
    for name, reason in results.machine["missing"].items():
        console.print(f"missing: {name}: {reason}", markup=False)
    for suite, reason in results.machine.get("lost", {}).items():
        console.print(f"no results of suite {suite}: {reason}", markup=False)
    console.print(f"report: {out / 'report.html'}, {out / 'report.md'}, {out / 'results.json'}", markup=False)
    if status:
        console.print(f"some tests failed: see {out / 'log.txt'}", markup=False)
