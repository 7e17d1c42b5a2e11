"""A graph with names, written to a file: metadata, test cases, statistics."""

from __future__ import annotations

import hashlib
import json
import os
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import dtypes
from ..apply import evaluate
from ..errors import DumpNameError, DumpNameTypeError, DumpOptionError
from ..ir import CONST, Graph, Node
from ..serialization import replace_file
from .export import Style, model_of
from .export_append import append_to
from .export_inference import fold_channels, fuse_convolutions, narrow
from .input_data import read_inputs
from .ours import DUMPED, Dumped
from .package import onnx_package
from .testcases import CASES, Cases

Array = np.ndarray[Any, Any]

#: What `dump` returns.
#:
#: Attributes
#: ----------
#: nr_opr : int
#:     Inputs, constants and nodes of the graph.
#: tot_bytes : int
#:     The size of the file.
#: tensor_value_bytes : int
#:     The size of the constants in it.
#: content_hash : int
#:     64 bits that tell files apart.
#: inputs, outputs, params : list of str
#:     Names.
DumpInfo = namedtuple("DumpInfo", "nr_opr tot_bytes tensor_value_bytes content_hash inputs outputs params")


@dataclass(frozen=True, slots=True)
class Inference:
    """What is done to a graph that will only be run forwards.

    Attributes
    ----------
    enable_io16xc32, enable_ioc16 : bool
        Keep values in float16; the second computes in it too.
    enable_fuse_conv_bias_nonlinearity, enable_fuse_conv_bias_with_z : bool
        See `fuse_convolutions`.
    """

    enable_io16xc32: bool = False
    enable_ioc16: bool = False
    enable_fuse_conv_bias_nonlinearity: bool = False
    enable_fuse_conv_bias_with_z: bool = False

    def __call__(self, graph: Graph) -> Graph:
        """The graph to be written."""
        graph = fold_channels(graph)
        if self.enable_fuse_conv_bias_nonlinearity or self.enable_fuse_conv_bias_with_z:
            graph = fuse_convolutions(
                graph, self.enable_fuse_conv_bias_nonlinearity, self.enable_fuse_conv_bias_with_z
            )
        if self.enable_io16xc32 or self.enable_ioc16:
            graph = narrow(graph, dtypes.float16 if self.enable_ioc16 else dtypes.float32)
        return graph


@dataclass(frozen=True, slots=True)
class TestData:
    """The options of `dump` about test cases; see there.

    Raises
    ------
    DumpOptionError
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
                raise DumpOptionError(f"dump({name}={value!r}): it is {words}")


@dataclass(frozen=True, slots=True)
class Request:
    """One dump.

    Attributes
    ----------
    recorded : Graph
        What was recorded: it says what is right for test cases.
    written : Graph
        What goes into the file, with the same inputs and outputs.
    inputs, outputs : sequence of str
        Their names.
    structure : str
        ``"tensor"``, ``"list"``, ``"tuple"`` or ``"dict"``: what the function returned.
    style : Style
    name : str
        Of the function.
    metadata : bool
        Write what only mgb reads: structure, user information, test cases.
    user_info : object
        Anything that JSON can say.
    """

    recorded: Graph
    written: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    structure: str
    style: Style
    name: str
    metadata: bool = True
    user_info: Any = None
    test: TestData = field(default_factory=TestData)


def write(file: str | os.PathLike[str] | BinaryIO, request: Request, append: bool = False) -> DumpInfo:
    """Write a model; a file of this name is replaced in one go, or stays as it was.

    Parameters
    ----------
    file : path, or binary file open for writing
    request : Request
    append : bool
        Add the graph to the model in `file`, beside what it has.

    Raises
    ------
    OnnxExportError
        ONNX cannot say what an op does.
    DumpOptionError, FileCaseError
        The user's information or the test data cannot be written.
    """
    onnx_package()
    model = model_of(request.written, request.inputs, request.outputs, request.style, request.name)
    if request.metadata:
        for key, value in _metadata(request).items():
            model.metadata_props.add(key=key, value=value)
    info_of = _Counts(model)
    if append:
        model = append_to(file, model)
    data = _serialized(model)
    if isinstance(file, str | os.PathLike):
        replace_file(Path(file), [data])
    else:
        file.write(data)
    return info_of(data, request)


def _serialized(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except ValueError as error:
        raise DumpOptionError(
            f"the file would be larger than the 2 GiB of a protobuf message: {error}; split the function"
        ) from error


class _Counts:
    """The statistics of one graph, taken before it is joined with others."""

    def __init__(self, model: Any) -> None:
        graph = model.graph
        self._nodes = len(graph.input) + len(graph.initializer) + len(graph.node)
        self._params = [t.name for t in graph.initializer]
        self._bytes = sum(len(t.raw_data) for t in graph.initializer)

    def __call__(self, data: bytes, request: Request) -> DumpInfo:
        return DumpInfo(
            nr_opr=self._nodes,
            tot_bytes=len(data),
            tensor_value_bytes=self._bytes,
            content_hash=int.from_bytes(hashlib.sha256(data).digest()[:8], "little"),
            inputs=list(request.inputs),
            outputs=list(request.outputs),
            params=self._params,
        )


def _metadata(request: Request) -> dict[str, str]:
    from .. import __version__

    described = Dumped(request.inputs, request.outputs, request.structure, request.user_info)
    found = {"mgb.version": __version__, DUMPED: described.text()}
    if request.test.input_data is not None:
        found[CASES] = _cases(request).text()
    return found


def _cases(request: Request) -> Cases:
    test = request.test
    specs = {name: node.spec for name, node in zip(request.inputs, request.recorded.inputs)}
    inputs = read_inputs(test.input_data, specs, int(test.repeat), test.input_transform)
    outputs = tuple(
        dict(zip(request.outputs, _evaluated(request.recorded, list(case.values())))) for case in inputs
    )
    return Cases(inputs, outputs, float(test.maxerr), bool(test.silent), not test.no_assert)


def _evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of `graph`, op by op."""

    def rule(node: Node, *values: Any) -> Any:
        return node.params["value"] if node.op is CONST else evaluate(node.op, values, dict(node.params))

    return [np.asarray(out) for out in graph.fold(rule, arrays)]


def strip_info(graph: Graph) -> dict[str, Any]:
    """Which ops in which dtypes a file needs."""
    ops = {node.op.name for node in graph.nodes if node.op is not CONST}
    used = {node.spec.dtype.name for node in (*graph.inputs, *graph.nodes)}
    return {"oprs": sorted(ops), "dtypes": sorted(used)}


def strip_info_text(path: str | os.PathLike[str], found: Mapping[str, Any], append: bool) -> bytes:
    """`strip_info` as JSON, joined with what `path` has when `append`.

    Raises
    ------
    DumpOptionError
        The file that is to be added to is no such JSON.
    """
    target = Path(path)
    merged = dict(found)
    if append and target.exists():
        try:
            old = json.loads(target.read_text())
            merged = {k: sorted({*v, *old.get(k, ())}) for k, v in found.items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DumpOptionError(f"strip_info_file {str(path)!r} is not what dump wrote: {error}") from error
    return json.dumps(merged, indent=1).encode()


def named(given: Any, wanted: int, default: Callable[[int], str], what: str) -> list[str]:
    """The names that the user gives, or else default ones.

    Raises
    ------
    DumpNameError
        They are too few or too many, or two are equal.
    DumpNameTypeError
        They are no list of names.
    """
    if not isinstance(given, str | list | tuple | None):
        raise DumpNameTypeError(f"{what}: give a list of names, not {given!r}")
    names = [given] if isinstance(given, str) else [None] * wanted if given is None else list(given)
    if len(names) != wanted:
        raise DumpNameError(f"wrong number of {what}, should be {wanted} values, got {len(names)}")
    found = [default(n) if name is None else name for n, name in enumerate(names)]
    for name in found:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise DumpNameError(f"{what}: {name!r} is not a name")
    for name in found:
        if found.count(name) > 1:
            raise DumpNameError(f"{what}: two are called {name!r}; ONNX wants names that differ")
    return found
