"""The command `mgb`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, MgbError
from ..runtime.shown import WIDE
from .targets import target_of

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status, 2 for what mgb refuses."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except MgbError as error:
        print(f"mgb {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # as by `| head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor does Python's end find it closed
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mgb", description="trace, fuse, compile")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")

    demo = commands.add_parser("demo", help="train a small network on digits, eagerly and compiled")
    demo.add_argument("--quick", action="store_true", help="two epochs, no demand on the accuracy")
    demo.add_argument("--picture", metavar="FILE", help="also write the report to an SVG file")
    demo.set_defaults(run=_demo)

    target = argparse.ArgumentParser(add_help=False)
    target.add_argument("target", metavar="FILE:FUNCTION")
    target.add_argument(
        "--shapes",
        nargs="+",
        default=[],
        metavar="SHAPE",
        help="of the arguments, such as 'f32[64,784]' 'i32[64]'; else FILE's example_inputs()",
    )
    explain = commands.add_parser("explain", parents=[target], help="print every stage of a traced function")
    explain.set_defaults(run=_explain)

    profile = commands.add_parser(
        "profile", parents=[target], help="print what each step of a traced function takes"
    )
    profile.add_argument("--calls", type=int, default=20, help="how many are measured")
    profile.add_argument("--save", metavar="FILE", help="also write a trace that Perfetto shows")
    profile.set_defaults(run=_profile)

    reduce = commands.add_parser(
        "reduce", parents=[target], help="make a small test of what a backend gets wrong in a traced function"
    )
    reduce.add_argument("--backend", required=True, help="the one that is compared with EAGER")
    reduce.add_argument("--output", metavar="FILE", help="the test; else test_FUNCTION_BACKEND.py")
    reduce.add_argument("--seconds", type=float, default=60.0, help="what takes longer hangs")
    reduce.set_defaults(run=_reduce)

    run = commands.add_parser(
        "run", help="run a model or an exported file, or check a model with its own test cases"
    )
    run.add_argument("file", metavar="FILE")
    run.add_argument("--check", action="store_true", help="compare with the test cases in the file")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE", help="an array, as numpy.save writes it"
    )
    run.add_argument("--output", metavar="DIR", help="where the outputs go, each as NAME.npy")
    run.add_argument("--backend", help="overrides MGB_JIT_BACKEND")
    run.add_argument(
        "--allow-code", action="store_true", help="run the machine code in an exported file: do you trust it?"
    )
    run.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="the most work that the file may ask for: see mgb.jit.LoadLimits",
    )
    run.set_defaults(run=_run)

    doctor = commands.add_parser(
        "doctor", help="what is installed, what serves each device, and what is wrong"
    )
    doctor.set_defaults(run=_doctor)

    scaffold = commands.add_parser("new-backend", help="write a distribution with a backend that works")
    scaffold.add_argument("name", metavar="NAME", help="a lower-case word; the folder is mgb-backend-NAME")
    languages = ["c", "llvm", "python"]
    scaffold.add_argument("--language", choices=languages, default="python", help="of its kernels")
    scaffold.set_defaults(run=_new_backend)

    backends = commands.add_parser(
        "backends", help="list the backends and op libraries, and why one cannot run here"
    )
    backends.set_defaults(run=_backends)

    variables = commands.add_parser("env", help="list the environment variables that mgb reads")
    variables.set_defaults(run=_env)

    bench = commands.add_parser("bench", help="time mgb beside its peers, and write a report")
    bench.add_argument("--suite", default="", help="suites, by commas; all of them if none is named")
    bench.add_argument("--backend", default="", help="backends of mgb, by commas")
    bench.add_argument(
        "--peers", default="", help="such as numpy,jax; all that are installed if none is named"
    )
    bench.add_argument(
        "--match", default="", help="only cases whose names have one of these texts, by commas"
    )
    bench.add_argument("--out", default="bench", metavar="DIR", help="where the report goes")
    bench.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    bench.add_argument(
        "--predict", action="store_true", help="with --suite gpu: what machine code promises, and a GPU keeps"
    )
    bench.set_defaults(run=_bench)

    cache = commands.add_parser("cache", help="the on-disk cache of compiled kernels")
    cache.add_argument("action", choices=["info", "clear"])
    cache.set_defaults(run=_cache)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import main as demo

    return demo(quick=arguments.quick, picture=arguments.picture)


def _explain(arguments: argparse.Namespace) -> int:
    from ..jit import trace

    function, inputs = target_of(arguments.target, " ".join(arguments.shapes))
    traced = function if hasattr(function, "explain") else trace(function)
    print(traced.explain(*inputs))
    return 0


def _profile(arguments: argparse.Namespace) -> int:
    import inspect

    from ..jit import trace

    if arguments.calls < 1:
        raise ArgumentError(f"--calls {arguments.calls}: give 1 or more")
    function, inputs = target_of(arguments.target, " ".join(arguments.shapes))
    traced = trace(inspect.unwrap(function), profiling=True)
    for _ in range(1 + arguments.calls):  # the first one records
        traced(*inputs)
    if arguments.save:
        try:
            traced.save_profile(arguments.save)
        except OSError as error:
            print(f"mgb profile: cannot write {arguments.save}: {error.strerror}", file=sys.stderr)
            return 2
    _console().print(traced.profile_table())
    return 0


def _reduce(arguments: argparse.Namespace) -> int:
    reducer = _tool("mgb_conformance.reducer", "the reducer is", "test")
    function, inputs = target_of(arguments.target, " ".join(arguments.shapes))
    path, _, name = arguments.target.rpartition(":")
    output = Path(arguments.output or f"test_{name}_{arguments.backend.lower()}.py")
    origin = f"{Path(path).name}:{name}"
    status: int = reducer.reduce_call(
        function, inputs, arguments.backend, output, origin, path, arguments.seconds
    )
    return status


def _tool(module: str, what: str, extra: str) -> Any:
    """Return a module of a distribution that is installed with `extra`, or the command that installs it."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise ArgumentError(f'{what} not installed: pip install "mgb[{extra}]"')
    return importlib.import_module(module)


def _run(arguments: argparse.Namespace) -> int:
    from .runs import run_file

    return run_file(
        arguments.file,
        arguments.check,
        arguments.input,
        arguments.output,
        arguments.backend,
        arguments.allow_code,
        arguments.limit,
    )


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import examine

    report = examine()
    width = max(len(subject) for subject, _ in report.facts)
    beside = width + 30 < _console().width  # else what is said of a subject stands below it
    for subject, text in report.facts:
        if beside:
            _print_folded(text, f"{subject:<{width}}  ", " " * (width + 2))
        else:
            print(subject)
            _print_folded(text, "    ", "    ")
    for problem in report.problems:
        _print_folded(problem, "wrong: ", "       ")
    return 1 if report.problems else 0


def _new_backend(arguments: argparse.Namespace) -> int:
    from .scaffold import write

    folder = write(arguments.name, arguments.language, Path.cwd())
    print(f"wrote {folder}; next: pip install -e './{folder.name}[test]' && pytest {folder.name}/tests")
    return 0


def _backends(arguments: argparse.Namespace) -> int:
    from ..backends import plugins
    from ..tensor import libraries

    serving: dict[str, str] = {}  # by kind of device
    for kind in ("cpu", "gpu"):
        with suppress(MgbError):
            serving[kind] = plugins.choose_backend(kind).name
    listed = []
    for b in plugins.status():
        served = " and ".join(kind for kind, name in serving.items() if name == b.name)
        here = b.problem or (f"runs, and serves {served}" if served else "runs")
        here = f"{here}; {b.note}" if b.note else here
        listed.append((b.name, b.distribution, ", ".join(b.devices), here))
    console = _console()
    console.print(_table(["backend", "distribution", "devices", "here"], listed))
    implementing = (
        (line.name, line.distribution, ", ".join(line.ops), line.problem or f"runs, {line.version}")
        for line in libraries.status()
    )
    console.print(_table(["op library", "distribution", "ops", "here"], implementing))
    return 0


def _print_folded(text: str, first: str, other: str) -> None:
    """Print lines that fit in the terminal; paths, commands and other words stay whole."""
    width = max(_console().width, len(other) + 20)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=other,
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    print("\n".join(lines) or first)


def _console() -> Any:
    """Return a console with tables that fit in the terminal, or in ``COLUMNS``; files get full width."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=WIDE)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) or "-" for cell in row))
    return table


def _env(arguments: argparse.Namespace) -> int:
    from . import doctor

    for variable in doctor.variables():
        print(f"{variable.name}={variable.get()}")
        _print_folded(f"{variable.meaning}; default {variable.default!r}", "    ", "    ")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    run = _tool("mgb_bench.run", "the benchmarks are", "bench")
    named = [
        [word.strip() for word in text.split(",") if word.strip()]
        for text in (arguments.suite, arguments.backend, arguments.peers)
    ]
    try:
        given = (Path(arguments.out), arguments.quick, arguments.match, arguments.predict)
        status: int = run.bench(*named, *given)
    except ValueError as error:
        print(f"mgb bench: {error}", file=sys.stderr)
        return 2
    return status


def _cache(arguments: argparse.Namespace) -> int:
    from ..runtime import cache

    print(cache.clear() if arguments.action == "clear" else cache.info())
    return 0
