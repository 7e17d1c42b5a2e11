"""``python -m mgb.distributed.run -n 4 x.py``: the processes of a job on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..runtime import config
from .errors import DistributedError
from .launcher import run


def main(arguments: Sequence[str]) -> int:
    """Run a program in so many processes; its status is that of the first that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m mgb.distributed.run",
        usage="%(prog)s [-n PROCESSES] (x.py | -m module | -c text) [arguments]",
        description=__doc__,
    )
    parser.add_argument("-n", type=int, default=2, metavar="PROCESSES")
    first = arguments[0] if arguments else ""
    own = 2 if first == "-n" else int(first.startswith("-n") or first in ("-h", "--help"))
    number, program = parser.parse_args(arguments[:own]).n, arguments[own:]
    if number < 1 or not program:
        parser.error("say how many processes, at least 1, and which program")
    if number > (cores := config.processors()):
        print(f"{number} processes share {cores} cores: they will wait for each other", file=sys.stderr)
    try:
        return run(number, program, reads=True)
    except DistributedError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
