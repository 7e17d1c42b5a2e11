"""Adding a graph to a model that a file holds already."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import DumpNameError, DumpOptionError, OnnxFileError
from .export import OPSET
from .ours import DUMPED


def append_to(file: Any, model: Any) -> Any:
    """The model in `file` with the graph of `model` beside its own.

    Both keep the names of their inputs and outputs; values inside the new one get a prefix.

    Raises
    ------
    DumpOptionError
        `file` is no path, or its model is of an older opset.
    DumpNameError
        Both have an input or an output of one name.
    OnnxFileError
        The file is no ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not isinstance(file, str | os.PathLike):
        raise DumpOptionError("append=True adds to a file: give its path, not a file object")
    path = Path(file)
    if not path.exists():
        return model
    old = onnx.ModelProto()
    try:
        old.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise OnnxFileError(f"{path} is no ONNX file, so nothing can be appended to it: {error}") from error
    _check_opset(path, old)
    taken = _names(old.graph)
    for value in (*model.graph.input, *model.graph.output):
        if value.name in taken:
            raise DumpNameError(
                f"{path} has a value {value.name!r} already: give other arg_names and output_names"
            )
    prefixes = (f"graph{number}/" for number in count(1))
    _prefix(model.graph, next(p for p in prefixes if not any(name.startswith(p) for name in taken)))
    _join(old, model)
    return old


def _names(graph: Any) -> set[str]:
    """Of every value in the graph: inputs, outputs, constants and what nodes make."""
    ends = {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    sparse = {v.values.name for v in graph.sparse_initializer}
    return ends | sparse | {name for node in graph.node for name in node.output}


def _check_opset(path: Path, old: Any) -> None:
    """Operators of older opsets would mean something else beside the new ones."""
    for opset in old.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version < OPSET:
            raise DumpOptionError(
                f"{path} is of opset {opset.version}, what is appended of {OPSET}: bring it there first, "
                "with onnx.version_converter.convert_version"
            )


def _prefix(graph: Any, prefix: str) -> None:
    """Rename what is inside the graph."""
    kept = {v.name for v in (*graph.input, *graph.output)}

    def renamed(name: str) -> str:
        return name if name in kept or not name else prefix + name

    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for node in graph.node:
        node.input[:] = [renamed(n) for n in node.input]
        node.output[:] = [renamed(n) for n in node.output]


def _join(old: Any, new: Any) -> None:
    """Add what is in `new` to `old`."""
    for name in ("input", "output", "initializer", "node"):
        getattr(old.graph, name).extend(getattr(new.graph, name))
    known = {(f.domain, f.name) for f in old.functions}
    old.functions.extend(f for f in new.functions if (f.domain, f.name) not in known)
    versions = {o.domain: o.version for o in old.opset_import}
    for opset in new.opset_import:
        versions[opset.domain] = max(opset.version, versions.get(opset.domain, 0))
    imports = [type(new.opset_import[0])(domain=d, version=v) for d, v in versions.items()]
    for holder in (old, *old.functions):
        del holder.opset_import[:]
        holder.opset_import.extend(imports)
    old.ir_version = max(old.ir_version, new.ir_version)
    _join_metadata(old, new)


def _join_metadata(old: Any, new: Any) -> None:
    """The results of both, one after the other, are a tuple; what else the old one says stays."""
    mine = {p.key: p for p in old.metadata_props}
    for prop in new.metadata_props:
        if prop.key not in mine:
            old.metadata_props.append(prop)
        elif prop.key == DUMPED:
            first, second = json.loads(mine[DUMPED].value), json.loads(prop.value)
            for name in ("inputs", "outputs"):
                first[name] = first[name] + second[name]
            mine[DUMPED].value = json.dumps({**first, "structure": "tuple"})
