"""``mgb run``: a file on arrays from other files, or on its own test cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, FileFormatError
from ..jit import load, load_compiled
from ..storage.graph_file import is_graph_file
from ..storage.input_data import read_array
from ..storage.limits import LoadLimits
from ..storage.testcases import CASES, Cases

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

Array = np.ndarray[Any, Any]


def run_file(
    file: str,
    check: bool,
    inputs: Sequence[str],
    output: str | None,
    backend: str | None = None,
    allow_code: bool = False,
    limits: Sequence[str] = (),
) -> int:
    """Run a file, print what it gives, and return the exit status: 1 when a test case fails.

    Parameters
    ----------
    file : str
        What `load` takes, or with `allow_code` what `load_compiled` takes.
    check : bool
        Run the file's test cases.
    inputs : sequence of str
        ``NAME=FILE``, each with an array that ``numpy.save`` wrote.
    output : str, optional
        The folder where outputs go: a tensor as ``NAME.npy``, a sequence of them as ``NAME.npz``.
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND``.
    allow_code : bool
        May machine code in the file run?
    limits : sequence of str
        ``NAME=NUMBER`` for fields of `LoadLimits`; a number may be a power, ``2**40``.

    Raises
    ------
    ArgumentError
        The arguments do not fit together, or name something that cannot be read or written.
    FileFormatError
        A file holds no array, or the model no test cases.
    """
    if check and (inputs or output):
        raise ArgumentError("--check runs the test cases in the file: leave --input and --output out")
    given: dict[str, Array] = {}
    for text in inputs:
        name, array = _input(text)
        if name in given:
            raise ArgumentError(f"--input {text}: {name!r} is given twice")
        given[name] = array
    try:
        read = load_compiled if allow_code and is_graph_file(file) else load
        model: Any = read(file, backend, limits=_limits(limits))
    except OSError as error:
        raise ArgumentError(str(error)) from error
    if check:
        return _check(model)
    results = _outputs(model, given)
    if output:
        _save(Path(output), results)
    for name, value in results.items():
        print(f"{name}: {_shown(value)}")
    return 0


def _limits(texts: Sequence[str]) -> LoadLimits:
    try:
        return LoadLimits(**{name: _number(text) for name, _, text in (t.partition("=") for t in texts)})
    except (TypeError, ValueError) as error:
        names = ", ".join(field.name for field in fields(LoadLimits))
        raise ArgumentError(f"--limit {' '.join(texts)}: give NAME=NUMBER, where NAME is {names}") from error


def _number(text: str) -> int:
    """Return a whole number, or a power of one, as messages print large ones."""
    base, power, exponent = text.partition("**")
    found: int = int(base) ** (int(exponent) if power else 1)
    return found


def _input(text: str) -> tuple[str, Array]:
    name, equals, path = text.partition("=")
    if not equals:
        raise ArgumentError(f"--input {text}: give NAME=FILE")
    return name, read_array(path, f"--input {text}")


def _outputs(model: Any, inputs: dict[str, Array]) -> dict[str, Any]:
    """Run the model on `inputs`: return arrays, nests of them in lists, None for an optional output."""
    results = model.run(**inputs)
    return {name: _as_arrays(value) for name, value in results.items()}


def _as_arrays(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_arrays(v) for v in value]
    return None if value is None else value.numpy()


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return "nothing" if value is None else f"{value.dtype}{list(value.shape)}"


def _save(folder: Path, results: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in results.items():
            stem = _file_name(name)
            if isinstance(value, list):
                parts: dict[str, Any] = dict(_parts(value))
                np.savez(folder / f"{stem}.npz", **parts)
            elif value is not None:
                np.save(folder / f"{stem}.npy", value)
    except OSError as error:
        raise ArgumentError(f"--output {folder}: {error}; give a folder that can be written to") from error


def _file_name(name: str) -> str:
    """Return `name` without what a file's name cannot hold; different names stay different."""
    return "".join(f"%{ord(c):02X}" if c in "%/\\\0" else c for c in name)


def _parts(values: list[Any], prefix: str = "") -> Iterator[tuple[str, Array]]:
    """Yield the arrays in a nest of lists, by their places: ``"0"``, ``"1.0"``."""
    for number, value in enumerate(values):
        if isinstance(value, list):
            yield from _parts(value, f"{prefix}{number}.")
        elif value is not None:
            yield f"{prefix}{number}", value


def _check(model: Any) -> int:
    """Replay the test cases in a file; status 1 when one fails."""
    if CASES not in model.metadata:
        raise FileFormatError("the file has no test cases: write them with dump(..., input_data=...)")
    cases = Cases.from_text(model.metadata[CASES])
    failed = 0
    for number, lines in enumerate(cases.failures(lambda inputs: _outputs(model, dict(inputs)))):
        failed += bool(lines)
        for line in lines:
            print(f"case {number}: {line}", file=sys.stderr)
        if not lines and not cases.silent:
            print(f"case {number}: passed" if cases.check else f"case {number}: ran")
    print(f"{len(cases.inputs) - failed} of {len(cases.inputs)} cases passed")
    return int(failed > 0)
