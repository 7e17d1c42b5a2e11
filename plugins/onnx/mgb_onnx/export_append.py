"""Adding a graph to a model that a file holds already."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from mgb.errors import ArgumentError, DumpWarning, FileFormatError
from mgb.storage.testcases import CASES, Cases

from .export_loops import graphs_within, nodes_within
from .ours import DOMAIN, DUMPED, OWN_OP, Dumped, dumped
from .sheet import OPSET


def append_to(file: Any, model: Any) -> Any:
    """Return the model in `file` with the graph of `model` beside its own.

    Both keep the names of their inputs and outputs; values inside the new one get a prefix.

    Raises
    ------
    ArgumentError
        `file` is not a path, its model is of an older opset, or both say something that only one can, or
        have an input, an output or a function of one name.
    FileFormatError
        The file is not an ONNX model, or its test cases are damaged.
    """
    if not isinstance(file, str | os.PathLike):
        raise ArgumentError("append=True adds to a file: give its path, not a file object")
    path = Path(file)
    if not path.exists():
        return model
    old = onnx.ModelProto()
    try:
        old.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise FileFormatError(
            f"{path} is not an ONNX file, nothing can be appended to it: {error}"
        ) from error
    if not old.HasField("graph"):
        raise FileFormatError(f"{path} is not an ONNX file, nothing can be appended to it: it holds no graph")
    _check_opset(path, old)
    taken = _names(old.graph)
    for value in (*model.graph.input, *model.graph.output):
        if value.name in taken:
            raise ArgumentError(
                f"{path} has a value {value.name!r} already: give other arg_names and output_names"
            )
    prefixes = (f"graph{number}/" for number in count(1))
    _prefix(model.graph, next(p for p in prefixes if not any(name.startswith(p) for name in taken)))
    _join(old, model, path)
    return old


def _names(graph: Any) -> set[str]:
    """Return the names of all values in the graph: inputs, outputs, constants and what nodes make."""
    ends = {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    sparse = {v.values.name for v in graph.sparse_initializer}
    return ends | sparse | {name for node in graph.node for name in node.output}


def _check_opset(path: Path, old: Any) -> None:
    """Check the opset: operators of older ones would mean something else beside the new ones."""
    for opset in old.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version < OPSET:
            raise ArgumentError(
                f"{path} is of opset {opset.version}, what is appended of {OPSET}: bring it there first, "
                "with onnx.version_converter.convert_version"
            )


def _prefix(graph: Any, prefix: str) -> None:
    """Rename what is inside the graph, and in the graphs that its nodes hold."""
    kept = {v.name for v in (*graph.input, *graph.output)}

    def renamed(name: str) -> str:
        return name if name in kept or not name else prefix + name

    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for node in nodes_within(graph.node):
        node.input[:] = [renamed(n) for n in node.input]
        node.output[:] = [renamed(n) for n in node.output]
        for value in (v for inner in graphs_within(node) for v in (*inner.input, *inner.output)):
            value.name = renamed(value.name)


def _join(old: Any, new: Any, path: Path) -> None:
    """Add what is in `new` to `old`, which is in `path`."""
    metadata = _joined_metadata(old, new, path)
    for name in ("input", "output", "initializer", "node"):
        getattr(old.graph, name).extend(getattr(new.graph, name))
    _join_functions(old, new, path)
    _join_opsets(old, new)
    old.ir_version = max(old.ir_version, new.ir_version)
    del old.metadata_props[:]
    for key, value in metadata.items():
        old.metadata_props.add(key=key, value=value)


def _join_functions(old: Any, new: Any, path: Path) -> None:
    """Add the functions of `new`; raise if the file has another one of the same name."""
    known = {(f.domain, f.name, f.overload): f for f in old.functions}
    for function in new.functions:
        same = known.get((function.domain, function.name, function.overload))
        if same is None:
            old.functions.append(function)
        elif _meaning(same) != _meaning(function):
            raise ArgumentError(
                f"{path} has another function {function.domain}:{function.name}: dump into a file of its own"
            )


def _meaning(function: Any) -> Any:
    """Return our op and its parameters, where a function is one of ours, else its body."""
    own = {p.key: p.value for p in function.metadata_props}.get(OWN_OP)
    return own or [list(part) for part in (function.input, function.output, function.node)]


def _join_opsets(old: Any, new: Any) -> None:
    """Set the newest opset of both for the graph and our functions; other functions keep their own."""
    versions = {_domain(o.domain): o.version for o in old.opset_import}
    for opset in new.opset_import:
        versions[opset.domain] = max(opset.version, versions.get(opset.domain, 0))
    imports = [type(new.opset_import[0])(domain=d, version=v) for d, v in versions.items()]
    for holder in (old, *(f for f in old.functions if f.domain == DOMAIN)):
        del holder.opset_import[:]
        holder.opset_import.extend(imports)


def _domain(name: str) -> str:
    """Return one name for ONNX's own domain, which has two."""
    return "" if name == "ai.onnx" else name


def _joined_metadata(old: Any, new: Any, path: Path) -> dict[str, str]:
    """Join the metadata of both files: the results of both, one after the other, are a tuple."""
    first, second = ({p.key: p.value for p in model.metadata_props} for model in (old, new))
    halves = dumped(first, len(old.graph.output)), dumped(second, len(new.graph.output))
    joined = {**second, **first}
    if any(halves):
        graphs = old.graph, new.graph
        inputs = [name for graph in graphs for name in _inputs(graph)]
        outputs = [value.name for graph in graphs for value in graph.output]
        joined[DUMPED] = Dumped(inputs, outputs, "tuple", _user_info(halves, path)).text()
    if joined.pop(CASES, None) is not None:
        parts = [(half.get(CASES), bool(_inputs(m.graph))) for half, m in ((first, old), (second, new))]
        cases = _cases(parts, path)
        joined |= {CASES: cases} if cases is not None else {}
    return joined


def _inputs(graph: Any) -> list[str]:
    """Return what a caller gives: a constant may be listed too, which is then its default."""
    constants = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in constants]


def _user_info(halves: Sequence[Dumped | None], path: Path) -> Any:
    given = [half.user_info for half in halves if half is not None and half.user_info is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise ArgumentError(f"{path} has user_info already, {given[0]!r}: leave it out, or give the same")
    return given[0] if given else None


def _cases(parts: Sequence[tuple[str | None, bool]], path: Path) -> str | None:
    """Test cases of the joined model: each of the one half beside one of the other, the fewer repeated.

    Of each half `parts` has its test cases, and whether it has inputs.
    """
    (first, _), (second, _) = parts
    if first is None or second is None:
        if not next(inputs for text, inputs in parts if text is None):
            return first or second
        lacking = f"what is appended to {path}" if second is None else f"{path}"
        warnings.warn(
            f"{lacking} has no test cases, so that those of the other half say nothing of its inputs and are "
            "left out: give input_data in both calls of dump",
            DumpWarning,
            stacklevel=8,
        )
        return None
    try:
        halves = Cases.from_text(first), Cases.from_text(second)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}; dump without append=True replaces the file") from error
    if halves[0].settings != halves[1].settings:
        raise ArgumentError(
            f"the test cases in {path} have {halves[0].settings}: give the same with append=True, or leave "
            "input_data out"
        )
    return halves[0].beside(halves[1]).text()
