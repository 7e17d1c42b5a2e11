"""The processes of a job on this machine, of a program, or by MegEngine's `launcher` of a function."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..runtime import config
from ..runtime.device import get_device_count
from ..runtime.logger import get_logger
from .communicator import chosen
from .errors import LaunchError, RankFailedError
from .group import get_rank, init_process_group

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

_CALL = "call.pickle"


def run(number: int, program: Sequence[str], backend: str | None = None, reads: bool = False) -> int:
    """Run `program` in so many processes, each with its share of the cores.

    Parameters
    ----------
    number : int
    program : sequence of str
        As `Communicator.command` takes it.
    backend : str, optional
        The name of a communicator, for the processes as well.
    reads : bool
        Does it read what this process is given on its standard input? Else nothing comes there, no end
        either: at that, where it comes early, MPICH's launcher fails now and then.

    Returns
    -------
    int
        The status: not 0 when one of them has failed, 75 when one was late.
    """
    found = chosen(backend, joins=False)
    command, wanted = found.command(number, program)
    share = str(max(1, config.processors() // number))
    threads = {"OMP_NUM_THREADS": share, "MGB_NUM_THREADS": share}
    named = {config.DISTRIBUTED_BACKEND.name: found.name} if backend else {}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "status")
        environment = {
            **threads,
            **wanted,
            **os.environ,
            **named,
            config.DISTRIBUTED_STATUS.name: str(written),
        }
        status = subprocess.call(command, env=environment, stdin=None if reads else subprocess.PIPE)
        return int(written.read_text() or status) if status and written.exists() else status


class launcher:
    """Decorator: each call runs the function in so many processes that are one job.

    The function and its arguments go to newly started processes, never forked, by cloudpickle; so it
    may be local, a lambda, or stand in the program that is run, which the processes do not run again.

    Parameters
    ----------
    func : callable
        Calls no `init_process_group`: its processes have joined the job when it begins.
    n_gpus : int, optional
        How many processes; as many as there are devices.
    world_size : int, optional
        That number: jobs over several machines are started by their own launcher.
    rank_start, master_ip, port
        Taken for the sake of MegEngine: the communicator knows them.
    device_type : str
        Of the devices that are counted.
    backend : str
        The name of a communicator; ``"auto"``: as for `init_process_group`.

    Returns
    -------
    callable
        A call of it gives the list of the results, by rank; None for a process that ended early, with 0.

    Raises
    ------
    LaunchError
        Several machines are asked for, or cloudpickle is not installed.
    RankFailedError
        One of the processes failed, with its traceback.

    Examples
    --------
    >>> @mgb.distributed.launcher(n_gpus=2)
    ... def place(base):
    ...     return base + mgb.distributed.get_rank()
    >>> place(10)
    [10, 11]
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls) if args or "func" in kwargs else functools.partial(cls, **kwargs)

    def __init__(
        self,
        func: Callable[..., Any],
        n_gpus: int | None = None,
        world_size: int | None = None,
        rank_start: int = 0,
        master_ip: str = "localhost",
        port: int = 0,
        device_type: str = "xpu",
        backend: str = "auto",
    ) -> None:
        functools.update_wrapper(self, func)
        self.func, self.backend = func, backend
        self.n_gpus = get_device_count(device_type) if n_gpus is None else n_gpus
        if self.n_gpus < 1:
            raise LaunchError(f"launcher: n_gpus must be at least 1, got {self.n_gpus}")
        if world_size not in (None, self.n_gpus) or rank_start:
            raise LaunchError(
                f"launcher starts the {self.n_gpus} processes of this machine, not {world_size} from rank "
                f"{rank_start} on: start a job over several machines by `mpiexec -n {world_size} python x.py`"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Run it, and give the results of all ranks."""
        pickler = _by_value()
        with tempfile.TemporaryDirectory(prefix="mgb-job-") as name:
            folder, call = Path(name), (self.backend, self.func, args, kwargs)
            (folder / _CALL).write_bytes(pickle.dumps(sys.path) + pickler.dumps(call))
            program = ["-c", f"from mgb.distributed.launcher import work; work({name!r})"]
            status = run(self.n_gpus, program, None if self.backend == "auto" else self.backend)
            if status:
                raise RankFailedError(_why(folder, self.n_gpus, status))
            return [_result(folder / f"result-{rank}", rank) for rank in range(self.n_gpus)]


def _by_value() -> Any:
    try:
        import cloudpickle
    except ImportError as error:
        message = "launcher sends functions to other processes by cloudpickle: pip install cloudpickle"
        raise LaunchError(message) from error
    return cloudpickle


def _why(folder: Path, number: int, status: int) -> str:
    """Return the tracebacks of the ranks that failed.

    Of those that failed since another did, only if no other.
    """
    found = [
        (rank, path.read_text()) for rank in range(number) if (path := folder / f"error-{rank}").exists()
    ]
    first = [(rank, text) for rank, text in found if RankFailedError.__name__ not in text] or found
    told = "".join(f"\nrank {rank}:\n{text}" for rank, text in first)
    return f"the job of {number} processes ended with status {status}{told}"


def _result(path: Path, rank: int) -> Any:
    if not path.exists():
        get_logger().warning("rank %d ended with 0 and returned nothing", rank)
        return None
    return pickle.loads(path.read_bytes())


def work(name: str) -> None:
    """Run the work of one process."""
    folder = Path(name)
    try:
        with open(folder / _CALL, "rb") as file:
            sys.path[:] = pickle.load(file)
            backend, function, args, kwargs = pickle.load(file)
        init_process_group(backend=backend)
        content = _by_value().dumps(function(*args, **kwargs))
    except Exception:
        (folder / f"error-{get_rank()}").write_text(traceback.format_exc())
        raise
    (folder / f"result-{get_rank()}").write_bytes(content)
