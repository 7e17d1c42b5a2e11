"""`input_data` of `dump`: texts that describe test cases, as arrays.

MegEngine's ways to write them are taken: ``"x:x.npy;y:y.npy"`` names a file for each input,
``"#rand(0,255)"`` draws numbers, ``"@list.txt"`` names a file with one such text per line.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ArgumentError, FileFormatError
from ..ir import CONST, Graph, Node, Spec, dtypes
from ..tensor.apply import evaluate
from .testcases import Cases

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

Array = np.ndarray[Any, Any]

_RAND = re.compile(r"#rand\((.*)\)$")


@dataclass(frozen=True, slots=True)
class TestData:
    """The options of `dump` about test cases; see there.

    Raises
    ------
    ArgumentError
        A number of them is none, or too small.
    """

    __test__ = False  # no test of pytest's

    input_data: Any = None
    repeat: int = 1
    silent: bool = False
    no_assert: bool = False
    maxerr: float = 1e-4
    input_transform: Any = None

    def __post_init__(self) -> None:
        for name, kind, least, words in (
            ("repeat", Integral, 1, "how often each array stands, a whole number from 1 on"),
            ("maxerr", Real, 0, "how much an output may differ, a number from 0 on"),
        ):
            value: Any = getattr(self, name)
            number = isinstance(value, kind) and not isinstance(value, bool)
            if not number or not value >= least:
                raise ArgumentError(f"dump({name}={value!r}): it is {words}")

    def cases(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> Cases | None:
        """Test cases with what `graph`, whose ends have these names, makes of the inputs, op by op."""
        if self.input_data is None:
            return None
        specs = {name: node.spec for name, node in zip(inputs, graph.inputs)}
        given = read_inputs(self.input_data, specs, int(self.repeat), self.input_transform)
        right = tuple(dict(zip(outputs, _evaluated(graph, list(case.values())))) for case in given)
        return Cases(given, right, float(self.maxerr), bool(self.silent), not self.no_assert)


def _evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs of `graph`, op by op."""

    def rule(node: Node, *values: Any) -> Any:
        return node.params["value"] if node.op is CONST else evaluate(node.op, values, dict(node.params))

    return [np.asarray(out) for out in graph.fold(rule, arrays)]


def read_inputs(
    given: Any, specs: Mapping[str, Spec], repeat: int, transform: Any
) -> tuple[dict[str, Array], ...]:
    """Return the inputs that `given` describes, for each case an array by name.

    Parameters
    ----------
    given : str, mapping, or sequence of them and of sequences of arrays
        MegEngine's texts, or for each case arrays by name or in order.
    specs : mapping of str to Spec
        The inputs of the graph in order.
    repeat : int
        Each array stands so often along its first axis.
    transform : str, callable or None
        Applied to each array that is read from a file: a function, or an expression in `data` and `np`.

    Raises
    ------
    FileFormatError
        A file is missing, no array, or does not fit the input.
    ArgumentError
        `transform` is neither a function nor an expression.
    """
    cases = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(cases, Sequence):
        raise FileFormatError(
            f"input_data is {_shown(given)}: give a text such as 'x:x.npy;y:y.npy', arrays by name, or a "
            "list of cases"
        )
    change = _transform(transform)
    found = []
    for case in [line for text in cases for line in _lines(text)]:
        arrays = _case(case, specs, change)
        found.append({n: _fitted(n, arrays.get(n), s, repeat) for n, s in specs.items()})
    return tuple(found)


def read_array(path: str | os.PathLike[str], what: str) -> Array:
    """Return the array in a file of NumPy's.

    Raises
    ------
    FileFormatError
        There is none; the message begins with `what`.
    """
    remedy = "files are arrays in NumPy's format, one in each (numpy.save), not images"
    try:
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged file is refused by many parts of NumPy and Python
        raise FileFormatError(f"{what}: {error or type(error).__name__}; {remedy}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise FileFormatError(f"{what}: the file holds several arrays; {remedy}")
    return array


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def _transform(given: Any) -> Callable[[Array], Array]:
    if given is None:
        return lambda data: data
    try:
        apply = given if callable(given) else _expression(given)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"input_transform={given!r}: {error}; give a function, or an expression in data and np"
        ) from error

    def change(data: Array) -> Array:
        try:
            return np.asarray(apply(data))
        except Exception as error:  # the caller's own function may raise anything
            name = getattr(given, "__name__", repr(given))
            message = f"input_transform {name} fails on {data.dtype}{list(data.shape)}"
            raise FileFormatError(f"{message}: {type(error).__name__}: {error}") from error

    return change


def _expression(text: str) -> Callable[[Array], Any]:
    code = compile(text, "input_transform", "eval")  # the caller's own words, never those of a file
    return lambda data: eval(code, {"np": np, "data": data})


def _lines(case: Any) -> list[Any]:
    if not isinstance(case, str) or not case.startswith("@"):
        return [case]
    try:
        return [line.strip() for line in Path(case[1:]).read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:  # no such file, no text
        raise FileFormatError(f"input_data {case!r}: {error}") from error


def _case(case: Any, specs: Mapping[str, Spec], change: Callable[[Array], Array]) -> dict[str, Array]:
    if isinstance(case, Mapping):
        unknown = [str(name) for name in case if name not in specs]
        if unknown:
            raise FileFormatError(f"input_data has {unknown[0]!r}; the inputs are {', '.join(specs)}")
        return {name: _array(name, value) for name, value in case.items()}
    if not isinstance(case, str):
        return _in_order(case, specs)
    parts = [part for part in case.split(";") if part]
    if len(parts) == 1 and ":" not in parts[0]:
        return {name: _value(parts[0], spec, change) for name, spec in specs.items()}
    found = {}
    for part in parts:
        name, _, text = part.partition(":")
        if name not in specs or name in found:
            wrong = "is given twice" if name in found else f"the inputs are {', '.join(specs)}"
            raise FileFormatError(f"input_data {part!r}: {wrong}")
        found[name] = _value(text, specs[name], change)
    return found


def _in_order(case: Any, specs: Mapping[str, Spec]) -> dict[str, Array]:
    if not isinstance(case, Sequence):
        raise FileFormatError(
            f"input_data has the case {_shown(case)}: a case is a text, arrays by name, or a list of arrays "
            "in order"
        )
    if len(case) != len(specs):
        raise FileFormatError(f"input_data gives {len(case)} arrays; the inputs are {', '.join(specs)}")
    return {name: _array(name, value) for name, value in zip(specs, case)}


def _array(name: str, value: Any) -> Array:
    try:
        return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"input_data for {name!r} is not an array: {error}") from error


def _value(text: str, spec: Spec, change: Callable[[Array], Array]) -> Array:
    drawn = _RAND.match(text)
    if drawn is not None:
        return _random(drawn[1], spec, text)
    return change(read_array(text, f"input_data {text!r}"))


def _random(text: str, spec: Spec, whole: str) -> Array:
    """Draw ``#rand(low, high, length...)``; a length that is ``...``, or left out, is the input's."""
    words = [w.strip() for w in text.split(",") if w.strip()]
    try:
        low, high = (float(w) for w in words[:2])
        lengths = [s if w == "..." else int(w) for w, s in zip(words[2:], spec.shape)]
        _check_range(low, high, spec.dtype)
        if len(words) - 2 > len(spec.shape) and (
            spec.shape or words[2:] != ["1"]
        ):  # one number: MegEngine's (1,)
            raise ValueError(f"the input has {len(spec.shape)} axes")
        if any(not 0 <= length <= most for length, most in zip(lengths, spec.shape)):
            raise ValueError(f"the input has shape {spec.shape}")
    except ValueError as error:
        raise FileFormatError(f"input_data {whole!r}: it is #rand(low, high, length...); {error}") from error
    shape = (*lengths, *spec.shape[len(lengths) :])
    drawn = np.random.default_rng(0).uniform(low, high, shape)
    return np.asarray(drawn if spec.dtype.kind in "fV" else np.floor(drawn)).astype(spec.dtype)


def _check_range(low: float, high: float, dtype: np.dtype[Any]) -> None:
    """Check that numbers can be drawn from `low` to `high`."""
    if dtype in dtypes.INTEGERS:
        least, most = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max) + 1
    else:
        most = 2.0 if dtype == dtypes.bool_ else float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        least = 0.0 if dtype == dtypes.bool_ else -most
    if not least <= low <= high <= most or not math.isfinite(high - low):
        raise ValueError(f"low and high are numbers of {dtype}, and low is not above high")


def _fitted(name: str, array: Array | None, spec: Spec, repeat: int) -> Array:
    if array is None:
        raise FileFormatError(f"input_data has no array for the input {name!r}")
    lengths = (array.shape[0] * repeat, *array.shape[1:]) if array.ndim else ()
    if lengths != spec.shape:
        raise FileFormatError(
            f"input_data for {name!r} has shape {lengths}, the file takes {spec.shape}"
            + (f" (it is repeated {repeat} times)" if repeat > 1 else "")
        )
    if not np.can_cast(array.dtype, spec.dtype, "same_kind") and array.dtype != spec.dtype:
        raise FileFormatError(f"input_data for {name!r} is {array.dtype}, the file takes {spec.dtype}")
    with np.errstate(over="ignore"):
        fitted = array.astype(spec.dtype)
    exact = spec.dtype in dtypes.INTEGERS
    if not np.array_equal(*((fitted, array) if exact else (np.isfinite(fitted), np.isfinite(array)))):
        raise FileFormatError(f"input_data for {name!r} has numbers that {spec.dtype} cannot hold")
    return np.concatenate([fitted] * repeat) if repeat > 1 and array.ndim else fitted
