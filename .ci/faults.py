"""Planted faults: do the tests notice when one of our own lines is wrong?

``python .ci/faults.py`` plants the faults of faults.toml, one after the other, in a copy of this checkout,
runs the tests that have to notice, and says which did; it ends with 1 if a fault was not caught. What stands
in the checkout, committed or not, is what is judged; it is never changed.

A row of faults.toml has the name of the fault as its key, and

| key | meaning |
| --- | --- |
| file | where it is planted |
| old | what stands there, exactly once |
| new | what a tired programmer would have written |
| tests | files or tests of the default run, as pytest takes them, one of which has to fail |
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / ".ci" / "faults.toml"

#: Longer than this no row may take; a fault that makes a test hang is caught as well.
SECONDS = 240

#: The parts whose faults are in the text of kernels, which are compiled anew for each of these. The kernels
#: of other rows are right for what they are found under, and are kept.
IN_KERNELS = frozenset({"codegen", "cache", "native", "printers", "reductions"})

#: A plugin of pytest that sees to it that the copy is judged, not what is installed, nor the checkout.
WITNESS = "faults_witness"
WITNESS_TEXT = """
import sys
from pathlib import Path

import pytest

COPY, PACKAGES = Path({copy!r}), {packages!r}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    places = {{p: Path(sys.modules[p].__file__) for p in PACKAGES if p in sys.modules}}
    elsewhere = {{p: str(place) for p, place in places.items() if COPY not in place.parents}}
    if elsewhere:
        pytest.exit(f"not the copy was tested: {{elsewhere}}", returncode=64)
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table."""

    name: str
    part: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, text: str) -> str:
        """The text of its file with the fault.

        Raises
        ------
        ValueError
            The line has been changed since: the row has to follow.
        """
        count = text.count(self.old)
        if count != 1 or self.old == self.new:
            raise ValueError(
                f"{self.name!r}: {self.file} has its text {count} times, wanted is once: mend faults.toml"
            )
        return text.replace(self.old, self.new)


def table() -> list[Fault]:
    """All rows, in their order."""
    parts = tomllib.loads(TABLE.read_text())
    return [
        Fault(name, part, row["file"], row["old"], row["new"], tuple(row["tests"]))
        for part, rows in parts.items()
        for name, row in rows.items()
    ]


class Copy:
    """A copy of the checkout, in which tests run."""

    def __init__(self, folder: Path) -> None:
        self.root, self.beside = folder / "copy", folder / "beside"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
            if (ROOT / name).is_file():  # one may have been removed and not committed
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        sources = [path.parent for path in self.root.glob("**/pyproject.toml") if path.parent != self.root]
        sources = [self.root / "core", *sorted(sources)]
        packages = [init.parent.name for source in sources for init in source.glob("mgb*/__init__.py")]
        self.beside.mkdir()
        text = WITNESS_TEXT.format(copy=str(self.root), packages=packages)
        (self.beside / f"{WITNESS}.py").write_text(text)
        self.variables = {k: v for k, v in os.environ.items() if not k.startswith("MGB_")}
        self.variables |= {
            "PYTHONPATH": os.pathsep.join(map(str, (self.beside, *sources))),
            "OMP_WAIT_POLICY": "passive",
        }
        self.check(packages)
        self.kernels = {"MGB_TEST_CACHE": os.environ.get("MGB_TEST_CACHE") or str(folder / "kernels")}

    def check(self, packages: Iterable[str]) -> None:
        """Processes that tests start import from the copy, too."""
        code = f"import importlib.util as u; [print(u.find_spec(p).origin) for p in {packages!r}]"
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.variables, capture_output=True, text=True, check=True
        )
        elsewhere = [place for place in done.stdout.splitlines() if self.root not in Path(place).parents]
        if elsewhere:
            raise RuntimeError(f"imported from elsewhere than {self.root}: {elsewhere}")

    def run(self, tests: Iterable[str], fault: Fault | None = None) -> tuple[int, str]:
        """The status of pytest, and what it printed; below 0 it died or hung."""
        words = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", WITNESS]
        fresh = fault is not None and fault.part in IN_KERNELS
        try:
            done = subprocess.run(
                [*words, *(["-x"] if fault else []), *tests],
                cwd=self.root, env=self.variables | ({} if fresh else self.kernels),
                timeout=SECONDS if fault else None,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"it did not end within {SECONDS} s"
        return done.returncode, done.stdout

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """The copy with `fault` in it, for a while."""
        path = self.root / fault.file
        right = path.read_text()
        path.write_text(fault.planted(right))
        try:
            yield
        finally:
            path.write_text(right)


def verdict(status: int, output: str) -> tuple[bool, str]:
    """Did a test notice, and which one, or why it is not known."""
    if status < 0:
        return True, "the process died or hung"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    if status == 1 and found is not None:
        return True, found[1]
    return False, "NOT CAUGHT" if not status else f"THE TESTS DID NOT RUN\n{output}"


def judged(copy: Copy, faults: Sequence[Fault]) -> int:
    """How many of the faults no test caught; prints a line for each of all."""
    missed = 0
    for number, fault in enumerate(faults, 1):
        start = time.monotonic()
        with copy.with_fault(fault):
            caught, said = verdict(*copy.run(fault.tests, fault))
        missed += not caught
        seconds = time.monotonic() - start
        print(f"{number:3}  {fault.part:12}  {fault.name:62}  {seconds:5.1f} s  {said}", flush=True)
    return missed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose part, name or file match")
    parser.add_argument("--list", action="store_true", help="print the rows, plant nothing")
    parser.add_argument("--sure", action="store_true", help="do not ask first that the tests pass as it is")
    asked = parser.parse_args(arguments)
    rows = [f for f in table() if re.search(asked.only, f"{f.part}: {f.name}: {f.file}")]
    for fault in rows:
        fault.planted((ROOT / fault.file).read_text())
        if asked.list:
            print(f"{fault.part:12}  {fault.name:62}  {fault.file}")
    if asked.list or not rows:
        return 0 if rows else f"no row matches {asked.only!r}" and 1
    with tempfile.TemporaryDirectory(prefix="mgb-faults-") as folder:
        copy = Copy(Path(folder).resolve())
        if not asked.sure:
            status, output = copy.run(dict.fromkeys(test for fault in rows for test in fault.tests))
            if status:
                print(output, "\nthe tests do not pass without a fault, so they say nothing", sep="")
                return 1
        missed = judged(copy, rows)
    print(f"{len(rows) - missed} of {len(rows)} faults were caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
