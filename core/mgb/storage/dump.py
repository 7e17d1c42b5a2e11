"""`dump`: what a traced function did, as the file of a model."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import passes
from ..errors import ArgumentError, ExportError
from ..executor import Options
from ..ir import CONST, Graph, exact_text
from ..loops import RESULT, nodes_within, unrolled
from ..passes.inference import Inference
from ..profiling import Statistics
from ..runtime.files import replace_file
from . import formats
from .input_data import TestData
from .model_file import DumpInfo, DumpRequest, File, Style
from .open_axes import Captured, DynamicAxes, named_axes, recorded_for

#: What a traced function may call of it: see `holding`.
__tracing__ = {"dump": "impure"}

#: Options of MegEngine's that name what mgb has not.
_LAYOUTS = ("hwcd4", "nchw88", "nchw44", "nchw44_dot", "nchw4", "nchw32", "nchw64", "chwn4")
_FOREIGN = {
    **{f"enable_{name}": "mgb's backends keep images in NCHW" for name in _LAYOUTS},
    "enable_fuse_preprocess": "record the preprocessing in the traced function",
    "enable_fuse_grain": "programs fuse what they run, whatever the file says",
    "resize_input": "input_data are arrays, not images: resize them before",
    "compat_older_version": "files are of one version of their format",
}
_FUSING = ("enable_fuse_conv_bias_nonlinearity", "enable_fuse_conv_bias_with_z")
_NARROWING = ("enable_io16xc32", "enable_ioc16")


class Dumpable(Protocol):
    """A traced function with what `dump` asks of it."""

    __name__: str
    options: Options
    capture_as_const: bool
    _statistics: Statistics

    @property
    def _impurity(self) -> Any: ...

    def _to_dump(self) -> Captured | None: ...

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]: ...


def dump(
    traced: Dumpable,
    file: File,
    *,
    arg_names: str | Sequence[str | None] | None = None,
    output_names: str | Sequence[str | None] | None = None,
    append: bool = False,
    keep_var_name: int = 1,
    keep_opr_name: bool = False,
    keep_param_name: bool = False,
    keep_opr_priority: bool = False,
    no_change_graph: bool = False,
    strip_info_file: str | os.PathLike[str] | None = None,
    append_json: bool = False,
    optimize_for_inference: bool = True,
    user_info: Any = None,
    enable_metadata: bool = True,
    input_data: Any = None,
    repeat: int = 1,
    silent: bool = False,
    no_assert: bool = False,
    maxerr: float = 1e-4,
    input_transform: str | Callable[[Any], Any] | None = None,
    dump_format: str | None = None,
    model_version: int = 2,
    dynamic_axes: DynamicAxes | None = None,
    **options: Any,
) -> DumpInfo:
    """Write what was recorded as the file of a model, which other runtimes run too.

    The trace needs ``capture_as_const=True`` or ``record_only=True``. Shapes are those of the call, but for
    `dynamic_axes`. The format is the one of the file's ending, where that is one of a format; a plugin
    writes it.

    Parameters
    ----------
    file : path, or binary file open for writing
        A file at a path is replaced in one go, or stays as it was.
    arg_names : str or sequence of str, optional
        Names of the positional arguments; ``arg_0``, ``arg_1`` where there is none. Arguments given by
        keyword keep their names.
    output_names : str or sequence of str, optional
        Names of the outputs; where there is none, that of the op in capitals. The outputs of a function
        that returns a dict are called after its keys, in sorted order.
    append : bool
        Add the graph to the model in `file`, beside what it has.
    keep_var_name : int
        0: values are numbered; 1: outputs are named; 2: and values inside.
    keep_opr_name : bool
        Nodes are named, and say the line of the program that they come from.
    keep_param_name : bool
        Constants that are Tensors of a Module are called as its ``named_tensors`` calls them.
    keep_opr_priority : bool
        Nodes say their place in the order, in their metadata ``mgb.priority``.
    no_change_graph : bool
        Write what was recorded, op by op.
    strip_info_file : path, optional
        Also write which ops and dtypes the file needs, as JSON.
    append_json : bool
        Add to `strip_info_file` rather than replace it.
    optimize_for_inference : bool
        Fold what is known, and scales and shifts of channels into the convolutions before them.
    user_info : object
        Kept in the metadata; anything that JSON can say.
    enable_metadata : bool
        False: write the graph only.
    input_data : str, mapping, or sequence of them, optional
        Test cases: ``"x:x.npy;y:y.npy"``, ``"#rand(low, high, length...)"``, ``"@list.txt"`` with such a
        text per line, or arrays by name. They are written with the right outputs, and checked by
        ``mgb run FILE --check``.
    repeat : int
        Each array of `input_data` stands so often along its first axis.
    silent, no_assert : bool
        How ``mgb run`` takes the cases: say nothing of those that pass; do not compare.
    maxerr : float
        How much an output may differ, relative to 1 and to the right value.
    input_transform : str or callable, optional
        Applied to arrays from files: a function, or an expression in ``data`` and ``np``.
    dump_format : str, optional
        The name of the format, whatever the file is called.
    model_version : int
        As it is.
    dynamic_axes : mapping, optional
        The axes whose lengths the file leaves open, by the names of inputs: ``{"x": {0: "batch"}}``, or
        ``{"x": [0]}``. Lengths of one name are equal. The body is recorded for several lengths.
    **options : bool
        ``enable_io16xc32`` keeps values in float16 and computes in float32, ``enable_ioc16`` computes in
        float16 too. ``enable_fuse_conv_bias_nonlinearity`` makes one function of a convolution, its bias
        and the relu, sigmoid, tanh or hswish after them; ``enable_fuse_conv_bias_with_z`` of a
        convolution, its bias and what is added to it. MegEngine's other ones name layouts that mgb has
        not.

    Returns
    -------
    DumpInfo
        ``nr_opr, tot_bytes, tensor_value_bytes, content_hash, inputs, outputs, params``

    Raises
    ------
    ExportError
        Nothing was captured, or the function looks at values, trains, or returns something else than Tensors
        in a flat container.
    ArgumentError
        Names in the wrong number, or twice; an option that means nothing here.
    FileFormatError
        `input_data` cannot be read, or do not fit the inputs.
    UnsupportedError
        The format cannot say what an op does.
    FormatImportError
        What writes it is not installed, or broken.
    """
    _check_files(file, strip_info_file)
    switches = {
        "append": append,
        "keep_opr_name": keep_opr_name,
        "keep_param_name": keep_param_name,
        "keep_opr_priority": keep_opr_priority,
        "no_change_graph": no_change_graph,
        "append_json": append_json,
        "optimize_for_inference": optimize_for_inference,
        "enable_metadata": enable_metadata,
        "silent": silent,
        "no_assert": no_assert,
    }
    _check_switches({**switches, **{n: v for n, v in options.items() if n in _FUSING + _NARROWING}})
    _check_options(options, model_version, keep_var_name)
    if input_data is not None and not enable_metadata:
        raise ArgumentError(
            "input_data needs enable_metadata=True, since test cases are stored in the metadata"
        )
    test = TestData(input_data, repeat, silent, no_assert, maxerr, input_transform)
    captured = _checked(traced)
    chosen = formats.to_write(file, dump_format)
    recorded, names = captured.graph(arg_names, output_names, keep_var_name)
    for name in set(names.inputs).intersection(names.outputs):
        raise ArgumentError(
            f"{name!r} is the name of an input and of an output; names in a file must be unique"
        )

    def finished(graph: Graph) -> Graph:
        written = graph if no_change_graph else _simplified(graph, traced.options)
        inferred = optimize_for_inference and not no_change_graph
        return _inference(unrolled(written), inferred, options)

    axes = named_axes(dynamic_axes, names.inputs, [n.spec for n in recorded.inputs])
    request = DumpRequest(
        graph=finished(recorded),
        inputs=names.inputs,
        outputs=names.outputs,
        structure=names.structure,
        style=_style(captured, keep_var_name, keep_opr_name, keep_param_name, keep_opr_priority),
        name=traced.__name__,
        metadata=enable_metadata,
        user_info=user_info,
        cases=test.cases(recorded, names.inputs, names.outputs),
        axes=axes,
        samples=[
            (lengths, finished(other.graph(arg_names, output_names, keep_var_name)[0]))
            for lengths, other in recorded_for(traced, captured, axes)
        ],
    )
    if strip_info_file is None:
        return chosen.write(file, request, append)
    stripped = _strip_info_text(strip_info_file, _strip_info(request.graph), append_json)
    info = chosen.write(file, request, append)
    replace_file(Path(strip_info_file), [stripped])
    return info


def _checked(traced: Dumpable) -> Captured:
    """Return the recorded call, after a check that a file can represent it."""
    if not traced.capture_as_const:
        raise ExportError("you must specify capture_as_const=True at __init__ to use dump")
    captured = traced._to_dump()
    if captured is None and traced._statistics.records:
        raise ExportError(
            f"the body of {traced.__name__} runs at each call, {traced._impurity}: what Python makes there "
            "would be frozen in the file; compute it with ops"
        )
    if captured is None:
        raise ExportError(f"{traced.__name__} has not been called: call it once, then dump it")
    if not any(r is not None for r in captured.results):
        raise ExportError(
            "the traced function without return values cannot be dumped, the traced function should "
            "return List[Tensor] or Dict[str, Tensor]"
        )
    captured.check()
    return captured


# options


def _check_files(file: Any, strip_info_file: Any) -> None:
    opened = hasattr(file, "write") and not isinstance(file, io.TextIOBase)
    if not _is_path(file) and not opened:
        raise ArgumentError(f"dump({file!r}): give a path, or a binary file open for writing")
    if strip_info_file is not None and not _is_path(strip_info_file):
        raise ArgumentError(f"strip_info_file={strip_info_file!r}: give a path")


def _is_path(value: Any) -> bool:
    """Return whether it is the path of something in a folder."""
    return isinstance(value, str | os.PathLike) and bool(Path(value).name) and "\0" not in os.fspath(value)


def _check_switches(switches: Mapping[str, Any]) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool | int | np.bool_ | None):
            raise ArgumentError(f"dump({name}={value!r}): give True or False")


def _check_options(options: Mapping[str, Any], model_version: Any, keep: Any) -> None:
    for name, value in options.items():
        if name in _FOREIGN:
            if not isinstance(value, bool | int | None) or value:
                raise ArgumentError(f"dump({name}={value!r}) is not supported: {_FOREIGN[name]}")
        elif name not in _FUSING + _NARROWING:
            raise ArgumentError(f"dump has no option {name!r}")
    if all(options.get(name) for name in _NARROWING):
        raise ArgumentError(f"{' and '.join(_NARROWING)} exclude each other: give one of them")
    if not isinstance(model_version, int) or model_version != 2:
        raise ArgumentError("model_version is one of MegEngine's own format; leave it out")
    if not isinstance(keep, int) or keep not in (0, 1, 2):
        raise ArgumentError(f"keep_var_name={keep!r}: it is 0 (none), 1 (outputs) or 2 (all)")


def _inference(graph: Graph, wanted: bool, options: Mapping[str, Any]) -> Graph:
    chosen = {name: bool(options.get(name)) for name in _FUSING + _NARROWING}
    if not wanted:
        for name, on in chosen.items():
            if on:
                raise ArgumentError(
                    f"{name} changes the graph: it needs optimize_for_inference=True, no_change_graph=False"
                )
        return graph
    return Inference(**chosen)(graph)


def _simplified(graph: Graph, options: Options) -> Graph:
    skipped = frozenset() if options.fast_math else frozenset({passes.finite_identities})
    return passes.simplify(graph, options.opt_level, skipped)


def _style(captured: Captured, values: int, nodes: bool, parameters: bool, priorities: bool) -> Style:
    named = captured.parameters() if parameters else {}
    return Style(
        value_names=values == 2,
        node_names=nodes,
        priorities=priorities,
        parameters={exact_text(array): name for name, array in reversed(named.items())},  # the first stays
    )


def _strip_info(graph: Graph) -> dict[str, Any]:
    """Return the ops and dtypes that a file needs."""
    nodes = list(nodes_within(graph))
    ops = {node.op.name for node in (*nodes, *graph.nodes) if node.op not in (CONST, RESULT)}
    used = {node.spec.dtype.name for node in (*graph.inputs, *nodes)}
    return {"oprs": sorted(ops), "dtypes": sorted(used)}


def _strip_info_text(path: str | os.PathLike[str], found: Mapping[str, Any], append: bool) -> bytes:
    """Format the result of `_strip_info` as JSON, joined with the contents of `path` when `append`.

    Raises
    ------
    ArgumentError
        The file to append to does not have such JSON.
    """
    target = Path(path)
    merged = dict(found)
    if append and target.exists():
        try:
            old = json.loads(target.read_text())
            merged = {k: sorted({*v, *old.get(k, ())}) for k, v in found.items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ArgumentError(f"strip_info_file {str(path)!r} is not what dump wrote: {error}") from error
    return json.dumps(merged, indent=1).encode()
