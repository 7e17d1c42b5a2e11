"""The files of `export`, which `load_compiled` turns into a function compiled in another process."""

from __future__ import annotations

import json
import logging
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import NoneType
from typing import Any

from ..autodiff.tape import any_open
from ..backends import Backend, plugins
from ..backends.answers import answer
from ..errors import (
    ArgumentError,
    BackendError,
    BackendUnavailableError,
    ConversionError,
    FileFormatError,
    LoadedFunctionError,
    MgbError,
)
from ..executor import Options, Program, compile_program
from ..ir import CONST, Graph, Node
from ..runtime import config
from ..runtime.device import device_type
from ..runtime.precision import exactly
from ..tensor import Tensor, active_trace, wrap
from ..tensor.apply import apply, constant
from .graph_file import Reader, Writer
from .limits import LoadLimits, Meter
from .model_file import Ends, ValueSpec
from .portable import pack, unpack

logger = logging.getLogger("mgb.jit")

#: How results are handed out, by the kind of container that the function returned.
ARRANGEMENTS: Mapping[str, Callable[[list[Tensor], tuple[str, ...]], Any]] = {
    "tensor": lambda results, _names: results[0],
    "tuple": lambda results, _names: tuple(results),
    "list": lambda results, _names: results,
    "dict": lambda results, names: dict(zip(names, results, strict=True)),
}

#: Of `Options`, those that say what a graph is rewritten to.
_KEPT = ("opt_level", "fuse_reduce", "fuse_dimshuffle", "fast_math")


def write(
    path: str | os.PathLike[str], name: str, graph: Graph, ends: Ends, program: Program, options: Options
) -> None:
    """Write what `load_compiled` reads.

    Parameters
    ----------
    path : path
    name : str
        Of the function.
    graph : Graph
        What was recorded, over all arguments.
    ends : Ends
        What its inputs and outputs are called.
    program : Program
        `graph`, compiled.
    options : Options
        What it was compiled with.

    Raises
    ------
    ExportError
        A parameter of an op is nothing that a file can hold.
    """
    writer = Writer()
    backend = program.backend
    content = {
        "name": name,
        "inputs": ends.inputs,
        "outputs": ends.outputs,
        "structure": ends.structure,
        "options": {key: getattr(options, key) for key in _KEPT},
        "graph": writer.graph(graph),
        "program": pack(program, writer),
        "backend": None if backend is None else backend.name,
        "target": None if backend is None else answer(backend, "target", str),
    }
    writer.write(path, content)


class Exported:
    """A function from a file. Several threads may call it at once.

    Attributes
    ----------
    name : str
        Of the function that was exported.
    inputs, outputs : tuple of ValueSpec
        Name, dtype and shape of each.
    graph : Graph
        What was recorded.
    program : Program
        What a call runs.
    compiled_again : str
        Why the file's own code is not used; empty when it is.
    metadata : dict of str to str
        Empty: what models have there.

    Examples
    --------
    >>> import tempfile
    >>> from mgb.jit import load_compiled, trace
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = trace(lambda x: x * 2).export(f"{folder}/double.mgb", "f32[3]")
    ...     double = load_compiled(f"{folder}/double.mgb", backend="eager")
    >>> isinstance(double, Exported), double([1.0, 2.0, 3.0])
    (True, Tensor([2., 4., 6.], device=xpux:0))
    """

    def __init__(
        self, name: str, graph: Graph, ends: Ends, program: Program, compiled_again: str = ""
    ) -> None:
        self.name, self.graph, self.program, self.compiled_again = name, graph, program, compiled_again
        self.inputs = _specs(ends.inputs, graph.inputs)
        self.outputs = _specs(ends.outputs, graph.outputs)
        self.metadata: dict[str, str] = {}
        self._names = tuple(ends.outputs)
        self._arrange = ARRANGEMENTS[ends.structure]
        self._types = [(n.spec.shape, n.spec.dtype, n.spec.device) for n in graph.inputs]
        self._devices = [n.spec.device for n in graph.outputs]

    @property
    def backend(self) -> str:
        """The backends that compiled something; empty when every op runs eagerly."""
        return ", ".join(self.program.backends)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run it. Inside a trace it is a part of that, and a `GradManager` records it op by op.

        Parameters
        ----------
        *args, **kwargs : Tensor or array-like
            The inputs, in order or by name. Arrays and Tensors have the dtype of the input; numbers and
            lists take it.

        Returns
        -------
        What the exported function returned: a Tensor, or a list, tuple or dict of them.

        Raises
        ------
        ArgumentError
            They are too many or too few, or one has another name, dtype or shape.
        LoadedFunctionError
            An op fails, for a parameter that the file lies about.
        """
        return self._arrange(self._run(args, kwargs), self._names)

    def run(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Call it, and return the results by name."""
        return dict(zip(self._names, self._run(args, kwargs), strict=True))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        inputs = list(args)
        if (
            kwargs
            or [(a.shape, a.dtype, a.device) if isinstance(a, Tensor) else None for a in args] != self._types
        ):
            inputs = self._bound(args, kwargs)
        if active_trace() is not None or any_open():
            return list(exactly(self.graph.fold, _apply, inputs))
        try:
            arrays = self.program.call([t._array() for t in inputs])
        except (MgbError, MemoryError):
            raise
        except Exception as error:
            if type(error) is IndexError:  # an index among the values is out of range
                raise
            raise LoadedFunctionError(
                f"{self.name} fails with {type(error).__name__}: {error}; its file lies about a parameter of "
                "an op: export it again, or use another copy"
            ) from error
        return [wrap(array, device) for array, device in zip(arrays, self._devices, strict=True)]

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        names = [spec.name for spec in self.inputs]
        takes = f"{self.name} takes ({', '.join(map(str, self.inputs))})"
        if len(args) > len(names):
            raise ArgumentError(f"{len(args)} arguments are given; {takes}")
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names or name in given:
                wrong = "is given twice" if name in given else "is none of its inputs"
                raise ArgumentError(f"{name!r} {wrong}; {takes}")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise ArgumentError(f"the input {missing[0]!r} is missing; {takes}")
        return [
            _input(spec, n.spec.device, given[spec.name]) for spec, n in zip(self.inputs, self.graph.inputs)
        ]

    def __repr__(self) -> str:
        ends = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"<exported {self.name} ({next(ends)}) -> ({next(ends)})>"


def _specs(names: list[str], nodes: tuple[Node, ...]) -> tuple[ValueSpec, ...]:
    return tuple(ValueSpec(name, n.spec.dtype, n.spec.shape) for name, n in zip(names, nodes, strict=True))


def _apply(node: Node, *values: Tensor) -> Tensor:
    """Return the value of a node as the user's own code would compute it."""
    if node.op is CONST:
        return constant(node.params["value"], node.spec.device)
    return apply(node.op, *values, **node.params)


def _input(spec: ValueSpec, device: str, value: Any) -> Tensor:
    typed = hasattr(value, "dtype")
    try:
        tensor = (
            value
            if isinstance(value, Tensor)
            else Tensor(value, value.dtype if typed else spec.dtype, device)
        )
    except (ConversionError, ValueError, TypeError) as error:
        raise ArgumentError(f"input {spec}: {error}") from error
    if tensor.dtype != spec.dtype:
        wanted = spec.dtype.name if spec.dtype is not None else ""
        raise ArgumentError(f"input {spec}: got {tensor.dtype.name}; convert it with .astype({wanted!r})")
    if tensor.shape != spec.shape:
        raise ArgumentError(
            f"input {spec}: got shape {tensor.shape}; the file was exported for that one shape: export "
            "another for this one"
        )
    if tensor.device != device:
        raise ArgumentError(f"input {spec}: it is on {tensor.device}, and should be on {device}")
    return tensor


# reading


def load_compiled(
    path: str | os.PathLike[str], backend: str | None = None, *, limits: LoadLimits | None = None
) -> Exported:
    """Read what ``trace.export`` wrote, and run the machine code in it: load only files that you trust.

    Before any of it is run, the logger ``mgb.jit`` warns whose code it is: the file, the backend that made
    it, and for what it was made. `load` reads models, which hold none.

    Parameters
    ----------
    path : path
        Constants are mapped from the file.
    backend : str, optional
        Compile the graph with this one, and leave the code in the file alone if it is another one's. With
        ``"eager"`` nothing but NumPy runs.
    limits : LoadLimits, optional
        The most work that a call may ask for, as the graph says; machine code does what it likes.

    Returns
    -------
    Exported

    Raises
    ------
    FileFormatError, FileVersionError
        The file is damaged, or newer than this mgb.
    BackendUnavailableError
        Its code cannot run here, nor be compiled again; the message says what to install.
    LoadLimitError
        It asks for more work than `limits` allow.
    ArgumentError
        `limits` are no `LoadLimits`.

    Examples
    --------
    >>> import tempfile
    >>> from mgb.jit import trace
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = trace(lambda x: x * 2).export(f"{folder}/double.mgb", "f32[3]")
    ...     double = load_compiled(f"{folder}/double.mgb", backend="eager")
    >>> double([1.0, 2.0, 3.0])
    Tensor([2., 4., 6.], device=xpux:0)
    """
    if not isinstance(path, str | os.PathLike):
        raise FileFormatError(f"load_compiled takes the path of a file, not a {type(path).__name__}")
    meter, file = Meter(limits, load_compiled.__name__), Reader(path)
    with file.reading("the header"):
        content = file.content
        name, own, target = str(content["name"]), content["backend"], content["target"]
        recorded, program = content["graph"], content["program"]
        ends = Ends([*map(str, content["inputs"])], [*map(str, content["outputs"])], content["structure"])
        options = Options(**{key: content["options"][key] for key in _KEPT}, backend=backend)
        _check_texts(own, target)
        _check_options(options)
    graph = file.graph(recorded, "the graph")
    with file.reading("the header"):
        _check_ends(ends, graph)
    meter.graph(graph)
    wanted = [n.strip().lower() for n in (backend or "").split(",") if n.strip()]
    if wanted and own not in wanted[:1]:
        return Exported(name, graph, ends, _compiled(file, graph, options), f"{backend} is asked for")
    try:
        maker = _backend(own, target)
        if _has_code(program, file):
            logger.warning(
                "%s holds machine code, which runs now: backend %r made it for %s",
                file.name,
                own,
                _in_short(str(target)),
            )
        return Exported(name, graph, ends, unpack(program, file, graph, maker))
    except FileFormatError:
        raise
    except Exception as error:  # whatever a backend says of code that it cannot use
        reason = str(error)
    logger.info("%s is compiled again: %s", file.name, reason)
    return Exported(name, graph, ends, _compiled_again(file, graph, options, own, reason), reason)


def _backend(name: str | None, target: Any) -> Backend | None:
    """Return the backend called `name`, if code for `target` runs here."""
    if name is None:
        return None
    backend = plugins.import_backend(name)
    reason = answer(backend, "mismatch", (str, NoneType), str(target))
    if reason is not None:
        raise BackendUnavailableError(reason)
    return backend


def _in_short(target: str) -> str:
    """Describe the target of code in a line: of a JSON object its strings, without the long lists."""
    try:
        told = json.loads(target)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict):
        target = ", ".join(f"{name} {text}" for name, text in told.items() if isinstance(text, str))
    return textwrap.shorten(target, 160, placeholder=" ...")


def _has_code(program: Any, file: Reader) -> bool:
    with file.reading("the program"):
        return _any_code(program)


def _any_code(program: Any) -> bool:
    """Return whether there is a kernel in it, or in what its loops run."""
    return any(
        any(map(_any_code, saved)) if isinstance(saved, list) else saved is not None
        for _, saved in program["kernels"]
    )


def _compiled(file: Reader, graph: Graph, options: Options) -> Program:
    """Compile `graph`; an op may still reject a wrong parameter, which `infer` does not check."""
    try:
        return compile_program(graph, options)
    except MgbError:
        raise
    except Exception as error:
        raise file.error("the graph", f"{type(error).__name__}: {error}") from error


def _compiled_again(file: Reader, graph: Graph, options: Options, own: str | None, reason: str) -> Program:
    names = options.backend or config.BACKEND.get() or own or ""
    try:
        nodes = (*graph.outputs, *graph.inputs)
        plugins.choose_backend(device_type(nodes[0].spec.device if nodes else "xpux:0"), names)
    except BackendError as error:
        raise BackendUnavailableError(
            f"the code in {file.name} cannot be used: {reason}; and it cannot be compiled again: {error}; or "
            f"run it op by op: mgb.jit.load_compiled({file.name!r}, backend='eager')"
        ) from error
    return _compiled(file, graph, replace(options, backend=names))


def _check_texts(*texts: Any) -> None:
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError(f"{texts} are not strings")


def _check_options(options: Options) -> None:
    switches = options.fuse_reduce, options.fuse_dimshuffle
    fits = type(options.opt_level) is int and isinstance(options.fast_math, bool)
    if not fits or not all(isinstance(switch, bool | None) for switch in switches):
        raise ValueError(f"{options} are not valid options")


def _check_ends(ends: Ends, graph: Graph) -> None:
    if len(ends.inputs) != len(graph.inputs) or len(ends.outputs) != len(graph.outputs):
        raise ValueError("there are more or fewer names than inputs and outputs")
    if ends.structure not in ARRANGEMENTS or (ends.structure == "tensor" and len(graph.outputs) != 1):
        raise ValueError(f"{ends.structure!r} is not a structure of {len(graph.outputs)} outputs")
