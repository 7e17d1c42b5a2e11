"""Ways to change what lives outside of a function between two calls of it.

A case makes a `World`: a plain function and what is done to its surroundings before each call of it. The
files of cases are executed anew for each world, so that two worlds share no variable, class or object, and
one can run eagerly and the other traced, side by side. ``python core/tests/support/stale_cases.py MODE``
prints what became of each.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from mgb import Tensor, tensor
from mgb.errors import MgbError, TraceMismatchError
from mgb.jit import partial_trace, trace, xla_trace

FILES = (
    "values",
    "contents",
    "places",
    "holders",
    "code",
    "flow",
    "classes",
    "modules",
    "training",
    "writes",
    "states",
    "tensors",
    "hidden",
)


class Flags(NamedTuple):
    """What is known of a case.

    Parameters
    ----------
    impure : bool
        The body writes outside itself, or looks at the value of a Tensor.
    other_ops : bool
        Nothing outside explains that the body does other ops: matching them is an error that is right.
    """

    impure: bool = False
    other_ops: bool = False


class World(NamedTuple):
    """A plain function, the steps of its life, what it has written, and how the traced one is called."""

    function: Callable[..., Any]
    steps: list[tuple[Any, ...]]
    written: Callable[[], Any] = lambda: None
    install: Callable[[Any], Callable[..., Any]] = lambda traced: traced


def case(make: Any = None, **flags: bool) -> Any:
    """Mark a function as a case."""
    if make is None:
        return lambda make: case(make, **flags)
    make.flags = Flags(**flags)
    return make


def numbers() -> Tensor:
    return tensor(np.array([1.0, -2.0, 3.0], np.float32))


def changing(function: Callable[..., Any], *changes: Callable[[], object], **more: Any) -> World:
    """Two calls, then each change with two calls after it."""
    steps: list[tuple[Any, ...]] = [(None,), (None,)]
    for change in changes:
        steps += [(change,), (None,)]
    return World(function, steps, **more)


_CODES: dict[str, CodeType] = {}
_COUNT = itertools.count()


def _executed(file: str, number: int) -> ModuleType:
    path = Path(__file__).with_name(f"stale_cases_{file}.py")
    if file not in _CODES:
        _CODES[file] = compile(path.read_text("utf-8"), str(path), "exec")
    module = ModuleType(f"stale_world_{file}_{number}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(_CODES[file], module.__dict__)
    return module


@contextlib.contextmanager
def fresh(file: str) -> Iterator[ModuleType]:
    """The file of cases, and what it shares with others, as modules that nobody else has."""
    number = next(_COUNT)
    try:
        sys.modules["stale_cases_shared"] = _executed("shared", number)
        yield _executed(file, number)
    finally:
        for name in ("stale_cases_shared", f"stale_world_shared_{number}", f"stale_world_{file}_{number}"):
            sys.modules.pop(name, None)


def names() -> list[tuple[str, str]]:
    """Each case as (file, name)."""
    found = []
    for file in FILES:
        with fresh(file) as module:
            found += [
                (file, name)
                for name, value in vars(module).items()
                if isinstance(getattr(value, "flags", None), Flags)
            ]
    return found


def flags(file: str, name: str) -> Flags:
    """What is known of a case."""
    with fresh(file) as module:
        known: Flags = getattr(module, name).flags
    return known


class Seen(NamedTuple):
    """What one call gave, printed, and had written by then."""

    values: Any
    error: type[BaseException] | None
    printed: str
    written: Any
    raised: BaseException | None = None


def plain(value: Any) -> Any:
    """A result as something that can be compared."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def close(left: Any, right: Any) -> bool:
    """Whether results agree as far as float32 lets two orders of the same few operations agree."""
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(close, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and list(left) == list(right)
            and close(list(left.values()), list(right.values()))
        )
    if isinstance(left, (np.ndarray, np.generic, float)):
        a, b = np.asarray(left), np.asarray(right)
        return (
            a.shape == b.shape
            and a.dtype == b.dtype
            and np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        )
    return bool(left == right)


def life(world: World, wrap: Callable[[Any], Any]) -> Iterator[Seen]:
    """Each call of the world's function under `wrap`."""
    called = world.install(wrap(world.function))
    for change, *arguments in world.steps:
        if change is not None:
            change()
        stream, values, raised = io.StringIO(), None, None
        with contextlib.redirect_stdout(stream):
            try:
                values = plain(called(*(arguments or (numbers(),))))
            except Exception as error:
                raised = error
        yield Seen(values, raised and type(raised), stream.getvalue(), plain(world.written()), raised)


class Outcome(NamedTuple):
    """What became of a case: ``right``, ``refused``, ``mismatch``, ``stale`` or ``error``, at which call.

    It is stale if a call gave, printed or wrote something else than eager code, without an error.
    """

    kind: str
    call: int = 0
    said: str = ""


def compare(file: str, name: str, wrap: Callable[[Any], Any]) -> Outcome:
    """Run a case eagerly and under `wrap` in lockstep.

    After a call that was a mismatch, a body that writes nothing goes on being compared; a training step has
    written some parameters before the error.
    """
    outcome = Outcome("right")
    with fresh(file) as one, fresh(file) as other:
        eager = life(getattr(one, name)(), lambda function: function)
        traced = life(getattr(other, name)(), wrap)
        for call, (want, got) in enumerate(zip(eager, traced, strict=True)):
            if want.error is None and isinstance(got.raised, TraceMismatchError):
                outcome = (
                    outcome if outcome.kind == "mismatch" else Outcome("mismatch", call, str(got.raised))
                )
                if want.written is not None or want.printed or file == "training":
                    break
                continue
            if want.error is None and isinstance(got.raised, MgbError):
                return Outcome("refused", call, f"{type(got.raised).__name__}: {got.raised}")
            if want.error is not None and got.error is None:
                return Outcome("stale", call, f"no error, eager {want.raised!r}")
            if want.error is not got.error:
                return Outcome("error", call, f"{got.raised!r}, eager {want.raised!r}")
            for part in ("values", "printed", "written"):
                if not close(getattr(want, part), getattr(got, part)):
                    return Outcome(
                        "stale", call, f"{part}: {getattr(got, part)}, eager {getattr(want, part)}"
                    )
    return outcome


#: How a function is traced, by the name of the mode.
MODES: dict[str, Callable[[Any], Any]] = {
    "trace": trace,
    "run_body=True": lambda function: trace(function, run_body=True),
    "run_body=False": lambda function: trace(function, run_body=False),
    "without_host": lambda function: trace(function, without_host=True),
    "symbolic": lambda function: trace(function, symbolic=True),
    "partial_trace": partial_trace,
    "xla_trace": lambda function: xla_trace(function, backend="EAGER"),
}


def main(mode: str) -> None:
    """Print what becomes of each case."""
    outcomes = {key: compare(*key, MODES[mode]) for key in names()}
    for (file, name), (kind, call, said) in outcomes.items():
        print(f"{kind:9} {call} {file}.{name}: {said.splitlines()[0] if said else ''}")
    kinds = [outcome.kind for outcome in outcomes.values()]
    print(f"{mode}: {len(kinds)} cases,", ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds))))


if __name__ == "__main__":
    from stale_cases import main as print_outcomes  # the module that the cases import, not this copy

    for argument in sys.argv[1:] or list(MODES):
        print_outcomes(argument)
