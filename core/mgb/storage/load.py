"""`load`: the file of a model as a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar, Protocol

import numpy as np

from ..errors import (
    ArgumentError,
    ConversionError,
    FileFormatError,
    ImpureBodyError,
    LoadedFunctionError,
    LoadLimitError,
    MgbError,
    SymbolicReadError,
    TraceMismatchError,
    UnsupportedError,
)
from ..ir import Graph
from ..tensor import Outside, Tensor, active_trace
from . import formats
from .limits import LoadLimits
from .model_file import Model, ModelSource, ValueSpec

#: What a traced function may call of it: see `holding`.
__tracing__ = {"load": "impure"}

#: Ways through one model, by branches and turns of loops that depend on data, that are kept compiled.
_PATHS = 16

#: Sets of dtypes and shapes of inputs that are not checked again.
_CHECKED = 1024


#: How the results are handed out, by what `dump` says of the function.
_ARRANGEMENTS: dict[str, Callable[[tuple[Any, ...], tuple[ValueSpec, ...]], Any]] = {
    "": lambda results, _specs: results[0] if len(results) == 1 else results,
    "tensor": lambda results, _specs: results[0],
    "tuple": lambda results, _specs: results,
    "list": lambda results, _specs: list(results),
    "dict": lambda results, specs: {spec.name: result for spec, result in zip(specs, results)},
}


class Traced(Protocol):
    """A function that is recorded and compiled."""

    @property
    def graph(self) -> Graph | None: ...

    @property
    def backend(self) -> str: ...

    def __call__(self, *args: Any) -> Any: ...

    def explain(self, *args: Any) -> str: ...

    def stats(self) -> dict[str, Any]: ...


class Loaded:
    """A model from a file, compiled for each set of input shapes when it is first called with it.

    Attributes
    ----------
    inputs, outputs : tuple of ValueSpec
        Name, dtype and shape of each, as the file gives them.
    metadata : dict of str to str
        What else the file says of itself.

    Examples
    --------
    >>> import io
    >>> from mgb.jit import load, trace
    >>> file, double = io.BytesIO(), trace(lambda x: x * 2, capture_as_const=True)
    >>> _ = double(mgb.tensor([1.0, 2.0]))
    >>> _ = double.dump(file, arg_names=["x"], output_names=["y"])
    >>> model = load(file.getvalue())
    >>> [str(spec) for spec in (*model.inputs, *model.outputs)]
    ['x: float32[2]', 'y: float32[2]']
    """

    #: Makes a function one that is `Traced`; who traces gives it.
    tracer: ClassVar[Callable[..., Traced]]

    def __init__(self, model: Model, backend: str | None, options: dict[str, Any]) -> None:
        self._model = model
        self._arrange = _ARRANGEMENTS[model.structure]
        self.inputs, self.outputs = model.inputs, model.outputs
        self.metadata = dict(model.metadata)
        self._options = {"run_body": False, "backend": backend, "symbolic": True, **options}
        self._checked: set[tuple[Any, ...]] = set()
        self._paths = [self.tracer(self._body, **self._options)]

    def _body(self, *inputs: Any) -> tuple[Any, ...]:
        """Compute the model on `inputs`; the model is data, so it has no external state."""
        result: tuple[Any, ...] = Outside.unwatched(self._model, *inputs)
        return result

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        *args, **kwargs : Tensor or array-like
            The inputs, in order or by name. Arrays and Tensors have the dtype of the input; numbers and
            lists take it.

        Returns
        -------
        What the dumped function returned: a Tensor, or a list, tuple or dict of them. Of other models a
        Tensor, or a tuple of them when there are several.

        Raises
        ------
        ArgumentError
            They are too many or too few, or one has another name, dtype or shape than the file says.
        LoadedFunctionError
            A node cannot be computed on values of these shapes.
        LoadLimitError
            The model asks for more work on values of these shapes than it was allowed.
        """
        return self._arrange(self._run(self._bound(args, kwargs)), self.outputs)

    def run(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Call it, and return the results by name, whatever their structure."""
        results = self._run(self._bound(args, kwargs))
        return {spec.name: result for spec, result in zip(self.outputs, results)}

    def _run(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Return the results of the way through the model that these values take.

        Nothing is computed before the whole call is recorded, and so measured, except where an If or a Loop
        asks for a value that is computed from data. Another call may then go another way: each way has a
        trace of its own, the latest one is tried first.
        """
        if active_trace() is not None:
            return self._body(*inputs)  # part of the trace around it, whose mismatches are its own
        try:
            return self._follow(inputs)
        except (ImpureBodyError, SymbolicReadError) as error:  # nodes ask for values
            of_arguments = isinstance(error, ImpureBodyError)
            self._options = {**self._options, "symbolic": of_arguments, "run_body": True}
            self._paths = [self.tracer(self._body, **self._options)]
            return self._run(inputs)
        except (MgbError, MemoryError):
            raise
        except Exception as error:  # an op on values that it cannot take, such as an index out of range
            self._model(*inputs)  # op by op, which names the node
            raise LoadedFunctionError(f"the model fails with {type(error).__name__}: {error}") from error

    def _follow(self, inputs: list[Any]) -> tuple[Any, ...]:
        paths = self._paths
        for path in paths:
            try:
                results: tuple[Any, ...] = path(*inputs)
            except TraceMismatchError:
                continue
            if path is not paths[0]:
                self._paths = [path, *(p for p in paths if p is not path)]
            return results
        new = self.tracer(self._body, **self._options)
        results = new(*inputs)
        self._paths = [new, *paths][:_PATHS]
        return results

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return the inputs in order, checked.

        Those of dtypes and shapes that were checked before as they are.
        """
        key = tuple([(a.shape, a.dtype) if isinstance(a, Tensor) else None for a in args])
        if key in self._checked and not kwargs:
            return list(args)
        names = [spec.name for spec in self.inputs]
        if len(args) > len(names):
            raise ArgumentError(f"{len(args)} inputs are given, the model takes ({self._signature()})")
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names:
                raise ArgumentError(f"the model has no input {name!r}; it takes ({self._signature()})")
            if name in given:
                raise ArgumentError(f"the input {name!r} is given twice")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            message = f"the input {missing[0]!r} is missing; the model takes ({self._signature()})"
            raise ArgumentError(message)
        lengths: dict[str, tuple[int, str]] = {}
        inputs = [self._input(spec, given[spec.name], lengths) for spec in self.inputs]
        if None not in key and not kwargs and len(self._checked) < _CHECKED:
            self._checked.add(key)
        return inputs

    def _signature(self) -> str:
        return ", ".join(map(str, self.inputs))

    def _input(self, spec: ValueSpec, value: Any, lengths: dict[str, tuple[int, str]]) -> Any:
        if spec.dtype is None and not isinstance(value, np.ndarray | Tensor):
            return _nested(value)
        if value is None:
            raise ArgumentError(f"input {spec}: got None")
        tensor = _tensor(spec, value, self._model.device)
        if spec.shape is not None:
            _check_shape(spec, tensor.shape, lengths)
        return tensor

    # looking at it

    @property
    def graph(self) -> Graph | None:
        """The graph for the first set of shapes; None before the first call."""
        return self._paths[0].graph

    @property
    def backend(self) -> str:
        """The backends that compiled something; empty before the first compiled call."""
        return self._paths[0].backend

    def explain(self, /, *args: Any, **kwargs: Any) -> str:
        """Return every stage of one call as text; nothing is run."""
        return self._paths[0].explain(*self._bound(args, kwargs))

    def stats(self) -> dict[str, Any]:
        """Return counts of calls, records and programs; see `trace.stats`."""
        return self._paths[0].stats()

    def __repr__(self) -> str:
        return f"<loaded model ({self._signature()}) -> ({', '.join(map(str, self.outputs))})>"


def _nested(value: Any) -> Any:
    """Return a sequence of tensors, or nothing."""
    if isinstance(value, list | tuple):
        return [_nested(v) for v in value]
    return Tensor(value, value.dtype) if isinstance(value, np.ndarray) else value


def _tensor(spec: ValueSpec, value: Any, device: str) -> Tensor:
    typed = isinstance(value, Tensor | np.ndarray | np.generic)
    try:
        tensor = (
            value
            if isinstance(value, Tensor)
            else Tensor(value, value.dtype if typed else spec.dtype, device)
        )
    except ConversionError as error:
        raise ArgumentError(f"input {spec}: {error}") from error
    if spec.dtype is not None and tensor.dtype != spec.dtype:
        name = spec.dtype.name
        raise ArgumentError(f"input {spec}: got {tensor.dtype.name}; convert it with .astype({name!r})")
    return tensor


def _check_shape(spec: ValueSpec, shape: tuple[int, ...], lengths: dict[str, tuple[int, str]]) -> None:
    """Check a shape; `lengths` are those that names have so far, with the input that gave them."""
    assert spec.shape is not None
    if len(shape) != len(spec.shape):
        raise ArgumentError(f"input {spec}: it has {len(spec.shape)} axes, got shape {shape}")
    for axis, (wanted, found) in enumerate(zip(spec.shape, shape)):
        if isinstance(wanted, int) and wanted != found:
            raise ArgumentError(f"input {spec}: axis {axis} has length {wanted}, got shape {shape}")
        if isinstance(wanted, str):
            length, other = lengths.setdefault(wanted, (found, spec.name))
            if length != found:
                raise ArgumentError(f"input {spec}: {wanted!r} is {length} in {other!r}, got shape {shape}")


@contextmanager
def _naming(file: Any) -> Iterator[None]:
    """Put the path of the file before the message of an error."""
    try:
        yield
    except (FileFormatError, LoadLimitError, UnsupportedError) as error:
        if isinstance(file, str | os.PathLike):
            error.args = (f"{os.fspath(file)}: {error}",)
        raise


def load(
    file: str | os.PathLike[str] | BinaryIO,
    backend: str | None = None,
    *,
    outputs: Sequence[str] | None = None,
    device: str | None = None,
    limits: LoadLimits | None = None,
    **options: Any,
) -> Loaded:
    """Read the file of a model, one that ``trace.dump`` wrote or any other. It is data: no code in it runs.

    A plugin reads it, of the format that the file's ending says, or else its bytes. What ``trace.export``
    wrote is refused, whatever the file is called: see `load_compiled`.

    Parameters
    ----------
    file : path, binary file object or bytes
    backend : str, optional
        Overrides ``MGB_JIT_BACKEND``.
    outputs : sequence of str, optional
        Names of values in the graph that a call gives; None: the model's own outputs.
    device : str, optional
        Where the weights are; None: the default device.
    limits : LoadLimits, optional
        The most work that loading it, and each call, may ask for; None: what `LoadLimits` has by itself.
    **options
        Of `trace`: ``opt_level``, ``fast_math``, ``symbolic``, ...

    Returns
    -------
    Loaded

    Raises
    ------
    CompiledFileError
        It is what ``trace.export`` wrote.
    LoadLimitError
        It asks for more work than `limits` allow; a call may raise it too.
    ArgumentError
        `limits` are no `LoadLimits`.
    FileFormatError
        It is not a model, it is damaged, or neither its ending nor its bytes have a known format;
        `FileVersionError`: one of a version that is not read.
    UnsupportedError
        Operators or types are lacking; the message names each with its node.
    FormatImportError
        What reads its format is not installed, or broken.

    Examples
    --------
    >>> import io
    >>> from mgb.jit import load, trace
    >>> file, double = io.BytesIO(), trace(lambda x: x * 2, capture_as_const=True)
    >>> _ = double(mgb.tensor([1.0, 2.0]))
    >>> _ = double.dump(file, arg_names=["x"], output_names=["y"])
    >>> load(file.getvalue())([3.0, 4.0])
    Tensor([6., 8.], device=xpux:0)
    """
    with _naming(file):
        source = ModelSource.of(file)
    chosen = formats.of_source(source)
    with _naming(file):
        model = chosen.read(source, outputs, device, limits)
    return Loaded(model, backend, options)


def load_outputs(file: str | os.PathLike[str] | BinaryIO) -> tuple[ValueSpec, ...]:
    """Return the outputs of the model in a file; nothing is built.

    Examples
    --------
    >>> import io
    >>> from mgb.jit import load_outputs, trace
    >>> file, double = io.BytesIO(), trace(lambda x: x * 2, capture_as_const=True)
    >>> _ = double(mgb.tensor([1.0, 2.0]))
    >>> _ = double.dump(file, arg_names=["x"], output_names=["y"])
    >>> [spec.name for spec in load_outputs(file.getvalue())]
    ['y']
    """
    source = ModelSource.of(file)
    return formats.of_source(source).outputs(source)
