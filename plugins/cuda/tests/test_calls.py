"""The checks of a call before anything is launched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mgb.ops.primitives import add
from mgb_cuda import Device, Images, Properties
from mgb_cuda.frame import Frame
from mgb_cuda.generated import traits
from mgb_cuda.launch import Unit
from mgb_cuda.pattern import Choice, Pattern, numbers
from mgb_cuda.steps import Steps
from mgb_cuda.testing.arrays import HostArrays
from mgb_cuda.testing.bench import traced


class Counting(HostArrays, Device):
    """Counts launches, and runs nothing."""

    properties = Properties("counting", (9, 0), multiprocessors=1)

    def __init__(self) -> None:
        self.launches = 0

    def key(self) -> str:
        return "counting"

    def toolchain(self) -> str:
        return "none"

    def compile(self, source: str) -> bytes:
        return b""

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple(names)

    def launcher(self, function: Any, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        def launch(stream: int, table: int) -> None:
            self.launches += 1

        return launch


@dataclass(frozen=True)
class Warp(Pattern):
    """Blocks of one warp."""

    threads: int = 32


class Blank(Unit):
    """A kernel without a text, of one block."""

    def choose(self, steps: Steps, askew: Set[int] = frozenset()) -> Choice:
        pattern = Warp(steps.wide, steps.loops.folded, steps.letters, steps.class_of)
        return Choice(pattern, numbers(steps, 0, 1), blocks=int(steps.length > 0), chunks=1)

    def source(self, variant: Any) -> str:
        return ""

    def texts(self, variant: Any) -> Sequence[tuple[str, tuple[str, ...]]]:
        return [("", ("kernel",))]


MATRIX, ROW = np.zeros((37, 45), np.float32), np.zeros((1, 45), np.float32)


@pytest.fixture
def unit() -> Blank:
    """The kernel of a matrix and a row."""
    words = traits(frozenset({"add"}), "gpu", 0)
    return Blank(Frame(traced(add, [MATRIX, ROW], words)), Counting(), Images("counting"))


@pytest.fixture(params=[False, True], ids=["at first", "after other calls"])
def used(request: pytest.FixtureRequest, unit: Blank) -> Blank:
    """The same, also when it has plans."""
    if request.param:
        unit.run(MATRIX, ROW, out=[MATRIX.copy()])
        unit.run(MATRIX.copy(order="F"), ROW, out=[MATRIX.copy()])
        assert unit.device.launches == 2
    return unit


@pytest.mark.parametrize("shape", [(37, 45), (2, 3), (5, 0), (0, 5)])
def test_one_kernel_serves_other_lengths(used: Blank, shape: tuple[int, int]) -> None:
    before = used.device.launches
    x, row = np.zeros(shape, np.float32), np.zeros((1, shape[1]), np.float32)
    used.run(x, row, out=[x.copy()])
    assert used.device.launches == before + (x.size > 0)


@pytest.mark.parametrize(
    ("arrays", "out", "text"),
    [
        ([MATRIX, MATRIX], MATRIX, "x1 has shape (37, 45); the kernel was compiled for (1, 45)"),
        ([ROW, ROW], MATRIX, "x0 has shape (1, 45); the kernel was compiled for (37, 45)"),
        ([MATRIX, ROW], ROW, "y0 has shape (1, 45); the kernel was compiled for (37, 45)"),
        ([MATRIX, ROW[0]], MATRIX, "x1 has shape (45,); the kernel was compiled for (1, 45)"),
        ([MATRIX[None], ROW], MATRIX, "x0 has shape (1, 37, 45); the kernel was compiled for (37, 45)"),
        (
            [MATRIX, ROW[:, 1:]],
            MATRIX,
            "arrays of shapes (37, 45), (1, 44), (37, 45) do not broadcast together",
        ),
        (
            [MATRIX, ROW],
            MATRIX[1:],
            "arrays of shapes (37, 45), (1, 45), (36, 45) do not broadcast together",
        ),
    ],
)
def test_shapes_of_another_kernel_are_rejected(used: Blank, arrays: list[Any], out: Any, text: str) -> None:
    before = used.device.launches
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        used.run(*arrays, out=[out.copy()])
    assert "compile the graph of these arrays" in str(caught.value) and used.device.launches == before
    used.run(MATRIX, ROW, out=[MATRIX.copy()])  # nothing is lost
    assert used.device.launches == before + 1


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "bool"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_dtype_of_another_kernel_is_rejected(unit: Blank, which: int, dtype: str) -> None:
    """Seen where a plan is made: a call like one before is not looked at again."""
    arrays = [MATRIX, ROW, MATRIX.copy()]
    arrays[which] = arrays[which].astype(dtype)
    text = f"{'x0 x1 y0'.split()[which]} has dtype {dtype}; the kernel was compiled for float32"
    with pytest.raises(TypeError, match=text):
        unit.run(*arrays[:2], out=arrays[2:])
    assert unit.device.launches == 0


def test_wrong_number_of_arrays_is_rejected(used: Blank) -> None:
    with pytest.raises(TypeError, match="takes 2 input and 1 output arrays, not 1 and 1"):
        used.run(MATRIX, out=[MATRIX.copy()])
