"""Bytes to `ModelFile`: every size, name and path in the file is checked, and nothing in it is executed.

A file is at most data. Its parts may refer to each other only forwards, to other files only below its own
folder, and the arrays that it announces must be there in full.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from mgb import dtypes
from mgb.errors import FileFormatError, FileVersionError, UnsupportedError
from mgb.storage.limits import meter
from mgb.storage.model_file import ModelSource, ValueSpec
from onnx import version_converter

from .ours import DOMAIN as DOMAIN
from .ours import DUMP_VERSION as DUMP_VERSION
from .ours import DUMPED as DUMPED
from .ours import OWN_OP as OWN_OP
from .ours import dumped, own_op
from .structure import Body, Call, Function, ModelFile, Reference
from .values import MOST_AXES, Host, array_of, dtype_of

#: The opsets of ONNX's own domain that are read as they are; older ones are converted first.
OLDEST_OPSET = 13

#: The names that a graph may read: its own, and those of the graphs around it.
Known = ChainMap[str, None]

Functions = dict[tuple[str, str, str], Function]


def read_model(source: ModelSource) -> ModelFile:
    """Read an ONNX file.

    Raises
    ------
    FileFormatError
        It is not an ONNX file, or it is damaged; the message names the place.
    FileVersionError
        Its opset, or the format of what mgb added to it, is not known.
    UnsupportedError
        It holds elements of a type that mgb lacks.
    """
    folder = None if source.path is None else source.path.resolve().parent
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(source.data)
    except (DecodeError, RecursionError) as error:
        raise FileFormatError(f"this is not an ONNX file, or it is truncated: {error}") from error
    if not proto.HasField("graph"):
        raise FileFormatError("the file holds no graph: it is not an ONNX model, or it is truncated")
    _check_texts(proto, "the file")
    return _Reader(_upgraded(proto), folder).model()


def _check_texts(message: Any, place: str) -> None:
    """Check that names are strings: protobuf gives bytes for a field of text that is not UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if hasattr(value, "append") else (value,):
                _check_texts(part, f"{place}, {field.name}")
        elif field.type == field.TYPE_STRING:
            for text in value if hasattr(value, "append") else (value,):
                if isinstance(text, bytes):
                    raise FileFormatError(f"{place}, {field.name}: {text[:40]!r} is not UTF-8")


def _opsets(imports: Sequence[Any]) -> dict[str, int]:
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}


def _upgraded(proto: Any) -> Any:
    """Return `proto` in an opset that is read; ONNX's own converter brings older ones there."""
    version = _opsets(proto.opset_import).get("", None)
    if version is None and any(n.domain in ("", "ai.onnx") for n in proto.graph.node):
        raise FileFormatError("the file does not say the opset of its operators (opset_import)")
    newest = onnx.defs.onnx_opset_version()
    if version is not None and version > newest:
        raise FileVersionError(
            f"the file is of opset {version}; the installed onnx package knows up to {newest}: "
            "pip install --upgrade onnx"
        )
    if version is None or version >= OLDEST_OPSET:
        return proto
    try:
        return version_converter.convert_version(proto, OLDEST_OPSET)
    except Exception as error:  # the converter raises RuntimeError and others from C++
        raise FileVersionError(
            f"the file is of opset {version}; {OLDEST_OPSET} and newer are read, and the converter of the "
            f"onnx package fails on it: {error}"
        ) from error


class _Reader:
    """Turns the messages of one file into `ModelFile`."""

    def __init__(self, proto: Any, folder: Path | None) -> None:
        self._proto = proto
        self._folder = folder
        self._opsets = _opsets(proto.opset_import)

    def model(self) -> ModelFile:
        metadata = {p.key: p.value for p in self._proto.metadata_props}
        said = dumped(metadata, len(self._proto.graph.output))
        functions: Functions = {}
        for proto in self._proto.functions:
            key = (_domain(proto.domain), proto.name, proto.overload)
            if key in functions:
                raise FileFormatError(f"function {key[0]}:{key[1]} is defined twice")
            functions[key] = self.function(proto)
        graph = self._proto.graph
        body = self.graph(graph, self._opsets, "graph", Known())
        specs = [self._spec(v) for v in graph.input if v.name in set(body.inputs)]
        outputs = tuple(map(self._spec, graph.output))
        return ModelFile(body, tuple(specs), outputs, functions, metadata, said.structure if said else "")

    def graph(self, proto: Any, opsets: Mapping[str, int], place: str, outer: Known) -> Body:
        """Return a graph, or one inside a node that sees the names in `outer`."""
        constants = {
            t.name: self.array(t, f"{place}, initializer {t.name!r}")
            for t in proto.initializer
            if _new_name(t.name, place)
        }
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            constants[name] = self.dense(sparse, f"{place}, sparse initializer {name!r}")
        if len(constants) != len(proto.initializer) + len(proto.sparse_initializer):
            raise FileFormatError(f"{place}: two initializers have one name")
        inputs = tuple(v.name for v in proto.input if v.name not in constants)
        outputs = tuple(v.name for v in proto.output)
        if "" in outputs:
            raise FileFormatError(f"{place}: output {outputs.index('')} has no name")
        return self._body(proto, inputs, outputs, constants, opsets, place, outer)

    def function(self, proto: Any) -> Function:
        """Return an operator that the file defines."""
        place = f"function {proto.domain}:{proto.name}"
        opsets = _opsets(proto.opset_import) or self._opsets
        body = self._body(proto, tuple(proto.input), tuple(proto.output), {}, opsets, place, Known())
        defaults = {a.name: self.attribute(a, opsets, place, Known()) for a in proto.attribute_proto}
        return Function(body, defaults, own_op(proto, place))

    def _body(
        self,
        proto: Any,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        constants: Mapping[str, Host],
        opsets: Mapping[str, int],
        place: str,
        outer: Known,
    ) -> Body:
        if len(set(inputs)) != len(inputs):
            raise FileFormatError(f"{place}: two inputs have one name")
        known = outer.new_child(dict.fromkeys((*inputs, *constants)))
        made = {*inputs, *constants}
        calls = []
        for number, node in enumerate(proto.node):
            call = self.call(node, opsets, f"{place}, node {number}", known)
            for name in call.inputs:
                if name and name not in known:
                    raise FileFormatError(f"{call.place}: nothing before it makes its input {name!r}")
            for name in filter(None, call.outputs):
                if name in made:
                    raise FileFormatError(f"{call.place}: {name!r} has a value already")
                made.add(name)
                known[name] = None
            calls.append(call)
        for name in filter(None, outputs):
            if name not in known:
                raise FileFormatError(f"{place}: nothing makes its output {name!r}")
        return Body(inputs, outputs, tuple(calls), constants, opsets, place)

    def call(self, node: Any, opsets: Mapping[str, int], place: str, known: Known) -> Call:
        """Return a node; `known` are the names that it and the graphs inside it may read."""
        domain = _domain(node.domain)
        place = f"{place} {node.name!r} ({f'{domain}:' if domain else ''}{node.op_type})"
        if domain not in opsets and domain != DOMAIN and not any(f.domain for f in self._proto.functions):
            raise FileFormatError(f"{place}: the file does not say the opset of the domain {domain!r}")
        attributes = {}
        for proto in node.attribute:
            if proto.name in attributes:
                raise FileFormatError(f"{place}: attribute {proto.name!r} is given twice")
            attributes[proto.name] = self.attribute(proto, opsets, place, known)
        return Call(
            domain, node.op_type, node.overload, tuple(node.input), tuple(node.output), attributes, place
        )

    def attribute(self, proto: Any, opsets: Mapping[str, int], place: str, known: Known) -> Any:
        """Return the value of an attribute as Python data."""
        if proto.ref_attr_name:
            return Reference(proto.ref_attr_name)
        where = f"{place}, attribute {proto.name!r}"
        read = _ATTRIBUTES.get(proto.type)
        if read is None:
            raise FileFormatError(f"{where}: its type is not one of ONNX's")
        return read(self, proto, opsets, where, known)

    def array(self, proto: Any, place: str) -> Host:
        """Return a TensorProto's array, of this file or another one in its folder."""
        if proto.HasField("segment"):
            raise UnsupportedError(f"{place}: arrays in segments are not supported")
        raw = self._external(proto, place) if proto.data_location == proto.EXTERNAL else None
        array = array_of(proto, raw, place)
        array.flags.writeable = False
        return array

    def dense(self, proto: Any, place: str) -> Host:
        """Return a SparseTensorProto's array."""
        values, indices = self.array(proto.values, place), self.array(proto.indices, place)
        shape = tuple(proto.dims)
        if any(d < 0 for d in shape) or len(shape) > MOST_AXES:
            raise FileFormatError(f"{place}: the shape {shape[:MOST_AXES]} is not valid for an array")
        meter().place = place
        meter().value(shape)
        if values.ndim != 1 or indices.dtype != dtypes.int64 or len(indices) != len(values):
            raise FileFormatError(f"{place}: {values.shape} values do not fit {indices.shape} indices")
        out = np.zeros(shape, values.dtype)
        try:
            if indices.ndim == 1:
                out.reshape(-1)[indices] = values
            else:
                out[tuple(indices.T)] = values
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"{place}: {error}") from error
        return out

    def _external(self, proto: Any, place: str) -> bytes:
        entries = {e.key: e.value for e in proto.external_data}
        location = entries.get("location", "")
        if self._folder is None:
            raise FileFormatError(
                f"{place}: its data is in the file {location!r}; load the model by its path"
            )
        path = _inside(self._folder, location, place)
        try:
            offset = int(entries.get("offset", 0))
            size = path.stat().st_size
            length = int(entries.get("length", size - offset))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{place}: cannot read {location!r}: {error}") from error
        if offset < 0 or length < 0 or offset + length > size:
            raise FileFormatError(f"{place}: {length} bytes at {offset} of {location!r}, which has {size}")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def _spec(self, proto: Any) -> ValueSpec:
        kind = proto.type.WhichOneof("value")
        if kind != "tensor_type":
            return ValueSpec(proto.name, None, None)
        tensor = proto.type.tensor_type
        dtype = dtype_of(tensor.elem_type, f"graph, {proto.name!r}") if tensor.elem_type else None
        shape = tuple(map(_length, tensor.shape.dim)) if tensor.HasField("shape") else None
        return ValueSpec(proto.name, dtype, shape)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _new_name(name: str, place: str) -> bool:
    if not name:
        raise FileFormatError(f"{place}: an initializer has no name")
    return True


def _length(dim: Any) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value)
    return str(dim.dim_param) or None if kind == "dim_param" else None


def _inside(folder: Path, location: str, place: str) -> Path:
    """Return the file that `location` names, which must be below `folder`, links followed."""
    given = Path(location)
    try:
        path = (folder / given).resolve() if location else folder
        exists = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, a zero byte
        raise FileFormatError(f"{place}: {location!r:.99} cannot be the name of a file: {error}") from error
    if not location or given.is_absolute() or ".." in given.parts or not path.is_relative_to(folder):
        raise FileFormatError(f"{place}: {location!r} is not a file below the model's own folder")
    if not exists:
        raise FileFormatError(f"{place}: {location!r}, which holds its data, is not there")
    return path


def _text(value: bytes, place: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{place}: {value[:40]!r} is not UTF-8") from error


#: For each `AttributeProto.AttributeType`: ``(reader, proto, opsets, place, known) -> value``.
_ATTRIBUTES: dict[int, Any] = {
    1: lambda r, a, o, p, k: a.f,
    2: lambda r, a, o, p, k: a.i,
    3: lambda r, a, o, p, k: _text(a.s, p),
    4: lambda r, a, o, p, k: r.array(a.t, p),
    5: lambda r, a, o, p, k: r.graph(a.g, o, p, k),
    6: lambda r, a, o, p, k: tuple(a.floats),
    7: lambda r, a, o, p, k: tuple(a.ints),
    8: lambda r, a, o, p, k: tuple(_text(s, p) for s in a.strings),
    9: lambda r, a, o, p, k: tuple(r.array(t, p) for t in a.tensors),
    10: lambda r, a, o, p, k: tuple(r.graph(g, o, p, k) for g in a.graphs),
    11: lambda r, a, o, p, k: r.dense(a.sparse_tensor, p),
    13: lambda r, a, o, p, k: a.tp.WhichOneof("value"),
}


def read_function(data: bytes, defaults: Iterable[Any], opsets: Mapping[str, int]) -> Function:
    """Return a serialized FunctionProto whose attributes default to `defaults`, AttributeProtos."""
    proto = onnx.FunctionProto.FromString(data)
    proto.attribute_proto.extend(defaults)
    made = {*proto.input, *(name for node in proto.node for name in node.output)}
    outputs = [
        name if name in made else "" for name in proto.output
    ]  # some bodies leave out what nobody reads
    del proto.output[:]
    proto.output.extend(outputs)
    if not proto.opset_import:
        proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in opsets.items())
    model = onnx.ModelProto(functions=[proto])
    return _Reader(model, None).function(proto)
