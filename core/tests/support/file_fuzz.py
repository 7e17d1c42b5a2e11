"""``python file_fuzz.py KIND FIRST COUNT``: read and run mutated files, and say of each what became of it.

A line before each file, and one after it: a crash, a hang or no memory is told by the line that is missing.
"""

from __future__ import annotations

import base64
import io
import math
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import mgb
import mgb.functional as F
import mutations
import numpy as np
from mgb.backends.plugins import import_backend
from mgb.errors import CompiledFileError, MgbError
from mgb.jit import LoadLimits, load, load_compiled, trace
from mgb.storage.graph_file import MAGIC
from mgb.storage.input_data import read_array
from mgb.storage.testcases import Cases

#: What a mutated file may ask for.
LIMITS = LoadLimits(nodes=3000, turns=100, depth=20, elements=1 << 18, bytes=1 << 26, operations=1 << 26)

#: Of the processor, for one file.
SECONDS = 5.0

#: More memory than before the first file.
MOST_BYTES = 2 << 30

Attempt = Callable[[bytes], object]


def ones(spec: Any) -> np.ndarray:
    shape = [d if isinstance(d, int) and 0 <= d < 100 else 2 for d in spec.shape or ()]
    whole = shape[:8]
    return np.ones(whole if math.prod(whole) < 1 << 16 else [1] * len(whole), spec.dtype or np.float32)


# exported files


def _exported(function: Any, *specs: str, backend: str = "eager") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        trace(function, backend=backend).export(Path(folder) / "f", *specs)
        return (Path(folder) / "f").read_bytes()


@cache
def exported_bases() -> tuple[bytes, ...]:
    w = mgb.Parameter(np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5))
    kernel = mgb.Parameter(np.ones((2, 1, 3, 3), np.float32))
    return (
        _exported(
            lambda x: {"soft": F.softmax(F.matmul(x, w) * 1.5, axis=-1), "t": x.transpose(1, 0)}, "f32[3,4]"
        ),
        _exported(lambda x: F.max_pool2d(F.conv2d(x, kernel), 2), "f32[1,1,8,8]"),
        _exported(lambda x, i: [F.argsort(x)[1], x[i], F.concat([x, x], 0)], "f32[3,4]", "i32[2]"),
        _exported(lambda x: (F.cumsum(x, 0), x.sum(axis=1), F.broadcast_to(x.mean(), (3, 4))), "f32[3,4]"),
    )


def try_exported(data: bytes) -> None:
    path = written(data)
    if data.startswith(MAGIC):
        with suppress(CompiledFileError):
            load(path)
            raise AssertionError("load took an exported file")
    function = load_compiled(path, "eager", limits=LIMITS)
    try:
        function(*(np.zeros(spec.shape, spec.dtype) for spec in function.inputs))
    except IndexError as error:
        if type(error) is not IndexError:
            raise


@cache
def code_bases() -> tuple[bytes, ...]:
    """Made by a backend that keeps machine code: nothing of it may ever run here."""
    found = _exported(lambda x: F.exp(x) * 2 + 1, "f32[3,4]", backend="cpu_llvm")
    assert b"\x7fELF" in found
    return (found,)


def try_code(data: bytes) -> None:
    """By leave too, mutated code is refused by its checksum; and without leave nothing is asked."""

    def never(*_: Any) -> Any:
        raise AssertionError("machine code of a mutated file was loaded")

    type(import_backend("cpu_llvm")).load = never
    try_exported(data)


_FOLDER = tempfile.mkdtemp()
(Path(_FOLDER) / "weights").write_bytes(bytes(100))


def written(data: bytes) -> Path:
    path = Path(_FOLDER) / "file"
    path.write_bytes(data)
    return path


# data


@cache
def saved_bases() -> tuple[bytes, ...]:
    found = []
    state = {
        "w": mgb.tensor([1.0, 2.0]),
        "b": mgb.Parameter([3.0]),
        "step": 7,
        "nest": [("a", None, 1.5), {1: True}],
    }
    for obj in (state, [np.arange(6).reshape(2, 3)], {"half": mgb.tensor([1.0], dtype="bfloat16")}):
        buffer = io.BytesIO()
        mgb.save(obj, buffer)
        found.append(buffer.getvalue())
    return tuple(found)


def try_saved(data: bytes) -> None:
    mgb.load(io.BytesIO(data))


@cache
def array_bases() -> tuple[bytes, ...]:
    one, several = io.BytesIO(), io.BytesIO()
    np.save(one, np.ones((2, 3), np.float32))
    np.savez(several, x=np.ones((2, 3), np.float32))
    return one.getvalue(), several.getvalue()


def try_arrays(data: bytes) -> None:
    read_array(written(data), "--input x")


@cache
def case_bases() -> tuple[bytes, ...]:
    x = np.ones((2, 3), np.float32)
    cases = (Cases(({"a": x, "b": x},), ({"y": x + x},)), Cases((), ()))
    return tuple(base64.b64decode(c.text()) for c in cases)


@cache
def _adding() -> Any:
    return load_compiled(written(_exported(lambda a, b: {"y": a + b}, "f32[2,3]", "f32[2,3]")), "eager")


def try_cases(data: bytes) -> None:
    cases = Cases.from_text(base64.b64encode(data).decode())
    model = _adding()
    for _ in cases.failures(lambda inputs: {k: v.numpy() for k, v in model.run(**inputs).items()}):
        pass


#: The files to mutate, how, and what reads them.
Kind = tuple[Callable[[], tuple[bytes, ...]], Callable[[], mutations.Mutation], Attempt]

KINDS: dict[str, Kind] = {
    "exported": (exported_bases, lambda: mutations.exported, try_exported),
    "code": (code_bases, lambda: mutations.exported, try_code),
    "saved": (saved_bases, lambda: mutations.saved, try_saved),
    "arrays": (array_bases, lambda: mutations.arrays, try_arrays),
    "cases": (case_bases, lambda: mutations.saved, try_cases),
}


def mutant(kinds: Mapping[str, Kind], kind: str, number: int) -> bytes:
    """The file of this number: the same in every process."""
    random = Random(f"{kind} {number}")
    bases, mutation, _ = kinds[kind]
    return mutation()(random.choice(bases()), random)


def outcome(attempt: Attempt, data: bytes) -> str:
    """``ok``, ``refused``, or the exception that should not be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt(data)
    except MgbError:
        return "refused"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        code = place.tb_frame.f_code if place is not None else None
        where = f"{Path(code.co_filename).name}:{place.tb_lineno}" if code and place else "?"
        return f"raised {type(error).__name__} at {where}: {str(error)[:200]!r}"
    return "ok"


@contextmanager
def bounded_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def main(kinds: Mapping[str, Kind], kind: str, first: str, count: str) -> None:
    """The program, with what it is given on the command line."""
    os.environ.setdefault("MGB_CACHE", "0")
    os.environ.setdefault("MGB_NUM_THREADS", "1")
    kinds[kind][0](), kinds[kind][1]()
    with bounded_memory():
        for number in range(int(first), int(first) + int(count)):
            data = mutant(kinds, kind, number)
            print(number, flush=True)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # the system ends the process
            print(outcome(kinds[kind][2], data), flush=True)


if __name__ == "__main__":
    main(KINDS, *sys.argv[1:])
