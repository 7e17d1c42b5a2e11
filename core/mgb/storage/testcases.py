"""Test cases inside a file: inputs, and what the traced function made of them.

They stand in the metadata of the model, as the text of a safetensors file (base64), where they take no part
in the graph and hinder no reader.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FileFormatError
from .tensor_file import decoded, encoded

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

#: The entry of a model's metadata that holds its test cases.
CASES = "mgb.testcases"

Array = np.ndarray[Any, Any]
Named = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Cases:
    """Inputs with the outputs that are right for them.

    Attributes
    ----------
    inputs, outputs : tuple of dict
        For each case the arrays by name.
    maxerr : float
        How much an output may differ, relative to 1 and to the right value.
    silent : bool
        Say nothing of cases that pass.
    check : bool
        False: outputs are shown, not compared.
    """

    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]
    maxerr: float = 1e-4
    silent: bool = False
    check: bool = True

    @property
    def settings(self) -> str:
        """The settings of the comparison, with the names that `dump` gives them."""
        return f"maxerr={self.maxerr:g}, silent={self.silent}, no_assert={not self.check}"

    def text(self) -> str:
        """Return the string for the metadata."""
        cases = [list(pair) for pair in zip(self.inputs, self.outputs)]
        settings = {"maxerr": self.maxerr, "silent": self.silent, "check": self.check}
        return base64.b64encode(b"".join(encoded({"cases": cases, **settings}))).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Cases:
        """Read what `text` gave.

        Raises
        ------
        FileFormatError
            It is damaged.
        """
        try:
            found = decoded(base64.b64decode(text, validate=True), CASES, lambda _device: None)
            pairs = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in found["cases"]]
            inputs, outputs = zip(*pairs) if pairs else ((), ())
            return cls(inputs, outputs, float(found["maxerr"]), bool(found["silent"]), bool(found["check"]))
        except Exception as error:  # what a file says may be wrong in any way
            raise FileFormatError(f"the test cases in the file ({CASES}) are damaged: {error}") from error

    def beside(self, other: Cases) -> Cases:
        """Return cases of two graphs side by side; those of the graph that has fewer are repeated."""
        count = max(len(self.inputs), len(other.inputs)) if self.inputs and other.inputs else 0

        def joined(mine: Sequence[Named], others: Sequence[Named]) -> tuple[Named, ...]:
            return tuple({**mine[k % len(mine)], **others[k % len(others)]} for k in range(count))

        inputs, outputs = joined(self.inputs, other.inputs), joined(self.outputs, other.outputs)
        return replace(self, inputs=inputs, outputs=outputs)

    def failures(self, run: Callable[[Named], Mapping[str, Any]]) -> Iterator[list[str]]:
        """Run each case; what is wrong with its outputs, a line for each."""
        for inputs, outputs in zip(self.inputs, self.outputs):
            got = run(inputs)
            lines = [_difference(name, got.get(name), want, self.maxerr) for name, want in outputs.items()]
            yield [line for line in lines if line] if self.check else []


def _arrays(found: Any) -> Named:
    """Return the arrays of a test case."""
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise ValueError(f"{name!r} is not the name of an array")
    named: Named = found
    return named


def _difference(name: str, got: Any, want: Array, maxerr: float) -> str:
    wanted = f"expected {want.dtype}{list(want.shape)}"
    if not isinstance(got, np.ndarray):
        return f"{name} is {'no output of the model' if got is None else 'a sequence'}, {wanted}"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{name} is {got.dtype}{list(got.shape)}, {wanted}"
    wide, right = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(wide - right) / np.maximum(np.abs(right), 1)
    error = np.where((wide == right) | (np.isnan(wide) & np.isnan(right)), 0, error)
    worst = float(np.max(error, initial=0))
    if worst <= maxerr:
        return ""
    place = np.unravel_index(int(np.nanargmax(error)), error.shape) if not np.isnan(worst) else "NaN"
    at = tuple(int(i) for i in place) if isinstance(place, tuple) else place
    return f"{name} differs by {worst:.3g}, more than {maxerr:g}, at {at}"
