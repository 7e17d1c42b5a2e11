"""What all tests of the checkout share: examples, the kernels that a run compiles, a small heap to search."""

import functools
import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

#: A busy machine may stop a test for as long as it likes: no example is late, none is slow.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Each run has the same examples, so that the same code has the same verdict; "explore" has others.
settings.register_profile("same", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT)
settings.load_profile("same")

#: Names the folder of kernels, which is kept then; without it each run has one of its own.
KEPT = "MGB_TEST_CACHE"


def pytest_configure(config: pytest.Config) -> None:
    """All tests, workers and processes of a run share one folder of kernels, which nobody else has."""
    if hasattr(config, "workerinput"):
        return  # it inherits what the first process has set
    folder = os.environ.get(KEPT) or tempfile.mkdtemp(prefix="mgb-kernels-")
    os.environ["MGB_CACHE_DIR"] = folder
    bytecode = f"{folder}-bytecode"
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # each process would compile all it imports: a second
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
    if KEPT not in os.environ:
        for one in (folder, bytecode):
            config.add_cleanup(functools.partial(shutil.rmtree, one, ignore_errors=True))


@pytest.fixture(scope="module", autouse=True)
def heap() -> Iterator[None]:
    """What is alive when a module begins is left alone by collections: one of a full heap takes 0.3 s."""
    gc.collect()
    gc.freeze()
    yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="print how long the tests of each folder took")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With ``--times``, a line for each folder: tests, and seconds of all workers."""
    if not config.getoption("--times"):
        return
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for report in (r for rs in terminalreporter.stats.values() for r in rs if hasattr(r, "duration")):
        folder = report.nodeid.partition("::")[0].rpartition("/")[0]
        seconds[folder] += report.duration
        tests[folder] += report.when == "call"
    terminalreporter.section("seconds of all workers, and tests, by folder")
    for folder, taken in seconds.most_common():
        terminalreporter.line(f"{taken:7.1f}  {tests[folder]:6}  {folder}")
