"""The interpreter finds wrong kernels: a wrong mask, an index off by one, a missing fold are each caught."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mgb.ir import Spec
from mgb.ops.primitives import lt, where
from mgb.ops.reduce import reduce_max, reduce_min, reduce_sum
from mgb.ops.transcendental import exp
from mgb.tracing import graph_of
from mgb_conformance.drive import ConformanceError, Driver
from mgb_conformance.judge import judge, problem
from mgb_cuda import Properties
from mgb_triton.testing.interpreter import Interpreter, missing
from triton_helpers import OnInterpreter

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def rows(x: Any) -> list[Any]:
    """A softmax that shows its folds, and some that have no use for what nobody has loaded."""
    top = reduce_max(x, axis=(1,))
    e = exp(x - top)
    whole = reduce_sum(e, axis=(1,))
    return [e / whole, top, whole, reduce_sum(x * top, axis=(1,)), reduce_min(x, axis=(1,))]


def online(x: Any) -> list[Any]:
    top = reduce_max(x, axis=(1,))
    return [reduce_sum(exp(x - top), axis=(1,)), top]


def columns(x: Any) -> list[Any]:
    first = reduce_sum(x, axis=(0,))
    second = reduce_sum(x * (first * 0.0001), axis=(0,))
    return [x * second, first, second]


def row_sum(x: Any) -> Any:
    return reduce_sum(x * 2, axis=(0,))


def pieces(x: Any) -> Any:
    return where(lt(x, 0.75), x * 2 + 1, x)


#: What each row is multiplied by.
TABLE = np.linspace(1, 2, 100, dtype=np.float32)

#: What is run, on arrays of this shape, and on how many multiprocessors.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "rows": (rows, (5, 1000), 4),
    "short rows": (rows, (70, 50), 4),
    "rows that do not stay": (online, (6, 40_000), 1),
    "shared rows": (rows, (2, 21_000), 4),
    "columns": (columns, (65, 36), 4),
    "shared columns": (columns, (9000, 12), 4),
    "pieces": (pieces, (5003,), 4),
    "an odd row": (row_sum, (14_001,), 4),
    "a broadcast": (lambda x: x * TABLE + 1, (37, 100), 4),
}

#: What is changed, and into what; each place where the pattern stands is tried on its own.
MUTATIONS: dict[str, tuple[str, str]] = {
    "an element too many is stored": (r"(?<=inside = )(.*)at < end", r"\1at <= end"),
    "an element too few": (r"(?<=inside = )(.*)at < end", r"\1at + 1 < end"),
    "a row too many": (
        r"(row = .* \* (?!1 )\d+ \+ .*\n +live = .*)row < rows",
        r"\1row <= rows",
    ),
    "a row too few": (r"(?<=live = )(.*)row < rows", r"\1row + 1 < rows"),
    "an index off by one": (r"at = (\w+) \+ ", r"at = \1 + 1 + "),
    "a tile too long": (r"begin = (.*) \* (\d+)$", r"begin = \1 * (\2 + 1)"),
    "the last tile left out": (r"range\(last, end", "range(end, end"),
    "the last tile unmasked": (r"begin \+ (\d+) <= end", r"begin + \1 // 2 <= end"),
    "a step too long": (r"range\(begin, end, (\d+)\)", r"range(begin, end, \1 + 1)"),
    "a tile left out": (r"range\(begin, end", r"range(begin + 1, end - 1"),
    "a mask of folds left out": (r"tl\.where\(mask, (\w+), [^)]*\)[^)]*\)", r"\1"),
    "a removed step of a fold": (r"(a\d_\d) = \(\1 \+ (tl\.where.*)\)$", r"\1 = \2"),
    "a fold of lanes left out": (r"= tl\.reduce\((\w+), 1, fold_\w+, keep_dims=True\)", r"= \1"),
    "the wrong fold": (r"fold_maximum", "fold_minimum"),
    "a fold that starts wrong": (r"(tl\.full\(\[.*\]), 0, tl\.float32", r"\1, 1, tl.float32"),
    "a chunk left out": (r"range\(0, chunks, 128\)", "range(1, chunks, 128)"),
    "partial results beyond the last": (r"mask=live & \(part < chunks\)", "mask=live & (part < chunks - 1)"),
    "the wrong part": (r"part \* rows \+ row", "(part + 1) * rows + row"),
    "the wrong place of a part": (r"tl\.program_id\(1\)\.to\(tl\.int32\) \* rows", "0 * rows"),
    "the wrong row": (r"b(\d) = (.*)\bi0\b", r"b\1 = \2(i0 // 2)"),
    "a maximum of the wrong lane": (r"(settled_exponentials\(\w+, )a0_0", r"\1v1"),
    "a quotient too high": (r"i(\d) = (\w+) - q(\d)", r"i\1 = \2 + 1 - q\3"),
}


class Mutant(Interpreter):
    """Changes one place of each kernel before it is run."""

    def __init__(self, properties: Properties, pattern: str, into: str, which: int) -> None:
        super().__init__(properties)
        self.pattern, self.into, self.which = re.compile(pattern, re.MULTILINE), into, which
        self.changed = 0

    def compile(self, source: str) -> bytes:
        found = list(self.pattern.finditer(source))
        if self.which < len(found):
            place = found[self.which]
            changed = source[: place.start()] + place.expand(self.into) + source[place.end() :]
            self.changed += changed != source
            source = changed
        return super().compile(source)


def sample(program: str) -> np.ndarray:
    """An array in which the place of each element matters: that of the largest is all over the rows."""
    shape = PROGRAMS[program][1]
    size = int(np.prod(shape))
    memory = np.full(size + 64, np.nan, np.float32)  # what lies beyond its end shows
    x = memory[:size].reshape(shape)
    x[...] = np.random.default_rng(5).uniform(0.5, 1, shape)
    if "columns" in program:
        x.sort(axis=0)
        return x
    if x.ndim == 1:
        x[::4096] *= 100
    if x.ndim == 2:
        x *= 1 + np.arange(len(x), dtype=np.float32)[:, None] % 5
        x[::2].sort(axis=1)
    return x


def faults(program: str, device: Interpreter) -> Iterator[str]:
    """What is wrong with the results, programs run in either order."""
    x = sample(program)
    graph = graph_of(PROGRAMS[program][0], Spec(x.shape, x.dtype))
    driver = Driver(OnInterpreter(device))
    for device.reverse in (False, True):
        try:
            found = driver.run(graph, [x])
        except ConformanceError as error:
            yield str(error)
        except Exception as error:  # the interpreter raises what it likes
            yield f"{type(error).__name__}: {error}"
        else:
            yield from filter(None, (problem(g, w) for g, w in zip(found, judge(graph, [x]), strict=True)))


QUICK = ("rows", "columns", "pieces")
TIERS = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]


@pytest.mark.parametrize("program", TIERS)
class TestMutations:
    def properties(self, program: str) -> Properties:
        return Properties("interpreter", (9, 0), PROGRAMS[program][2])

    def test_the_kernel_itself_is_right(self, program: str) -> None:
        assert not list(faults(program, Interpreter(self.properties(program))))

    @pytest.mark.parametrize("mutation", MUTATIONS)
    def test_each_mutant_is_caught(self, program: str, mutation: str) -> None:
        device = Interpreter(self.properties(program))
        list(faults(program, device))
        pattern = re.compile(MUTATIONS[mutation][0], re.MULTILINE)
        count = max(len(pattern.findall(source)) for source in device.sources)
        if not count:
            pytest.skip(f"the kernel has no place for it: {pattern.pattern}")
        mutants = [Mutant(self.properties(program), *MUTATIONS[mutation], which=k) for k in range(count)]
        missed = [
            k for k, mutant in enumerate(mutants) if not any(faults(program, mutant)) and mutant.changed
        ]
        assert not missed, f"of {count} places these are not caught: {missed}\n{device.sources[-1]}"


class TestEveryMutation:
    def test_has_a_kernel_that_it_changes(self) -> None:
        """A pattern that stands nowhere would catch nothing."""
        sources = []
        for program in PROGRAMS:
            device = Interpreter(Properties("interpreter", (9, 0), PROGRAMS[program][2]))
            list(faults(program, device))
            sources += device.sources
        for name, (pattern, _) in MUTATIONS.items():
            assert any(re.search(pattern, source, re.MULTILINE) for source in sources), name
