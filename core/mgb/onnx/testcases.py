"""Test cases inside a file: inputs, and what the traced function made of them.

They stand in the metadata of the model, as the text of a safetensors file (base64), where they take no part
in the graph and hinder no reader. MegEngine's ways to write them are taken: ``"x:x.npy;y:y.npy"`` names a
file for each input, ``"#rand(0,255)"`` draws numbers, ``"@list.txt"`` names a file with one such text per
line.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileCaseError, FileFormatError
from ..ir import Spec
from ..serialization import load, save

#: The entry of a model's metadata that holds its test cases.
CASES = "mgb.testcases"

Array = np.ndarray[Any, Any]

_RAND = re.compile(r"#rand\((.*)\)$")


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

    inputs: tuple[dict[str, Array], ...]
    outputs: tuple[dict[str, Array], ...]
    maxerr: float = 1e-4
    silent: bool = False
    check: bool = True

    def text(self) -> str:
        """What stands in the metadata."""
        buffer = io.BytesIO()
        cases = [list(pair) for pair in zip(self.inputs, self.outputs)]
        settings = {"maxerr": self.maxerr, "silent": self.silent, "check": self.check}
        save({"cases": cases, **settings}, buffer)
        return base64.b64encode(buffer.getvalue()).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Cases:
        """Read what `text` gave.

        Raises
        ------
        FileCaseError
            It is damaged.
        """
        try:
            found = load(io.BytesIO(base64.b64decode(text, validate=True)))
            inputs, outputs = zip(*found["cases"]) if found["cases"] else ((), ())
            return cls(inputs, outputs, float(found["maxerr"]), bool(found["silent"]), bool(found["check"]))
        except (binascii.Error, FileFormatError, KeyError, TypeError, ValueError) as error:
            raise FileCaseError(f"the test cases in the file ({CASES}) are damaged: {error}") from error

    def failures(self, run: Callable[[Mapping[str, Array]], Mapping[str, Array]]) -> Iterator[list[str]]:
        """Run each case; what is wrong with its outputs, a line for each."""
        for inputs, outputs in zip(self.inputs, self.outputs):
            got = run(inputs)
            lines = [_difference(name, got[name], want, self.maxerr) for name, want in outputs.items()]
            yield [line for line in lines if line] if self.check else []


def _difference(name: str, got: Array, want: Array, maxerr: float) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{name} is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
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


def read_inputs(
    given: Sequence[Any], specs: Mapping[str, Spec], repeat: int, transform: Any
) -> tuple[dict[str, Array], ...]:
    """The inputs that `given` describes, for each case an array by name.

    Parameters
    ----------
    given : sequence
        MegEngine's texts, or for each case a mapping or a sequence of arrays.
    specs : mapping of str to Spec
        The inputs of the graph in order.
    repeat : int
        Each array stands so often along its first axis.
    transform : str, callable or None
        Applied to each array that is read from a file: a function, or an expression in `data` and `np`.

    Raises
    ------
    FileCaseError
        A file is missing, no array, or does not fit the input.
    """
    texts = [given] if isinstance(given, str | Mapping) else list(given)
    change = _transform(transform)
    found = []
    for case in [line for text in texts for line in _lines(text)]:
        arrays = _case(case, specs, change)
        found.append({n: _fitted(n, arrays.get(n), s, repeat) for n, s in specs.items()})
    return tuple(found)


def _transform(given: Any) -> Callable[[Array], Array]:
    if given is None:
        return lambda data: data
    if callable(given):
        return lambda data: np.asarray(given(data))
    code = compile(given, "input_transform", "eval")  # the caller's own words, never those of a file
    return lambda data: np.asarray(eval(code, {"np": np, "data": data}))


def _lines(case: Any) -> list[Any]:
    if not isinstance(case, str) or not case.startswith("@"):
        return [case]
    try:
        return [line.strip() for line in Path(case[1:]).read_text().splitlines() if line.strip()]
    except OSError as error:
        raise FileCaseError(f"input_data {case!r}: {error}") from error


def _case(case: Any, specs: Mapping[str, Spec], change: Callable[[Array], Array]) -> dict[str, Array]:
    if isinstance(case, Mapping):
        unknown = [str(name) for name in case if name not in specs]
        if unknown:
            raise FileCaseError(f"input_data has {unknown[0]!r}; the inputs are {', '.join(specs)}")
        return {name: _array(value) for name, value in case.items()}
    if not isinstance(case, str):
        return dict(zip(specs, map(_array, case)))
    parts = [part for part in case.split(";") if part]
    if len(parts) == 1 and ":" not in parts[0]:
        return {name: _value(parts[0], spec, change) for name, spec in specs.items()}
    found = {}
    for part in parts:
        name, _, text = part.partition(":")
        if name not in specs:
            raise FileCaseError(f"input_data {part!r}: the inputs are {', '.join(specs)}")
        found[name] = _value(text, specs[name], change)
    return found


def _array(value: Any) -> Array:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _value(text: str, spec: Spec, change: Callable[[Array], Array]) -> Array:
    drawn = _RAND.match(text)
    if drawn is not None:
        return _random(drawn[1], spec, text)
    try:
        array = np.load(text, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileCaseError(
            f"input_data {text!r}: {error}; files are arrays in NumPy's format (numpy.save), not images"
        ) from error
    return change(array)


def _random(text: str, spec: Spec, whole: str) -> Array:
    """``#rand(low, high, length...)``; a length that is ``...``, or left out, is the input's."""
    words = [w.strip() for w in text.split(",") if w.strip()]
    try:
        low, high = (float(w) for w in words[:2])
        lengths = [s if w == "..." else int(w) for w, s in zip(words[2:], spec.shape)]
    except ValueError as error:
        raise FileCaseError(f"input_data {whole!r}: it is #rand(low, high, length...)") from error
    shape = (*lengths, *spec.shape[len(lengths) :])
    drawn = np.random.default_rng(0).uniform(low, high, shape)
    return np.asarray(drawn if spec.dtype.kind in "fV" else np.floor(drawn)).astype(spec.dtype)


def _fitted(name: str, array: Array | None, spec: Spec, repeat: int) -> Array:
    if array is None:
        raise FileCaseError(f"input_data says nothing of the input {name!r}")
    if repeat > 1 and array.ndim:
        array = np.concatenate([array] * repeat)
    if array.shape != spec.shape:
        raise FileCaseError(
            f"input_data for {name!r} has shape {array.shape}, the file takes {spec.shape}"
            + (f" (it is repeated {repeat} times)" if repeat > 1 else "")
        )
    if not np.can_cast(array.dtype, spec.dtype, "same_kind") and array.dtype != spec.dtype:
        raise FileCaseError(f"input_data for {name!r} is {array.dtype}, the file takes {spec.dtype}")
    return array.astype(spec.dtype)
