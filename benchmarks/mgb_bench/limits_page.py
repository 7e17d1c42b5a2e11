"""Renews the figures of docs/benchmarks/limits.md: ``python -m mgb_bench.limits_page PAGE.md [PROGRAM ...]``.

The page has the output of programs of this package between ``<!-- python -m mgb_bench.NAME -->`` and
``<!-- end -->``. Each is run in a process of its own; what one that fails had there stays.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .machine import cores
from .run import environment

#: Where the output of a program stands.
PLACE = re.compile(r"(<!-- python -m mgb_bench\.(\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def programs(page: str) -> list[str]:
    """The names of the programs whose output `page` has."""
    return [found[2] for found in PLACE.finditer(page)]


def renewed(page: str, outputs: dict[str, str]) -> str:
    """`page` with new outputs of some of its programs."""

    def block(found: re.Match[str]) -> str:
        begin, name, old, end = found.groups()
        return (
            f"{begin}```text\n{outputs[name].rstrip()}\n```\n{end}" if name in outputs else begin + old + end
        )

    return PLACE.sub(block, page)


def output(name: str) -> str | None:
    """What a program prints; None when it fails."""
    words = [sys.executable, "-m", f"mgb_bench.{name}"]
    done = subprocess.run(words, env=environment(cores()), stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """Run the programs, all of the page's or those that are named, and write the page."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    path, named = Path(arguments[0]), arguments[1:]
    known = programs(path.read_text("utf-8"))
    unknown = [name for name in named if name not in known]
    if unknown:
        print(f"{path} has no output of {', '.join(unknown)}; it has {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in named or known:
        print(f"python -m mgb_bench.{name}", flush=True)
        text = output(name)
        if text is None:
            failed.append(name)
        else:
            path.write_text(renewed(path.read_text("utf-8"), {name: text}), "utf-8")
    if failed:
        print(f"these failed, and their figures are the former ones: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
