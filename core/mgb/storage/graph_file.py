"""Files that hold graphs, arrays and other bytes: `Writer` and `Reader`.

A file is a head of 32 bytes, a JSON text, and blobs, each at a multiple of 64 bytes. The head has the magic,
the version of the format, the checksum and the length of the text, and the length of what follows. The text
says where each blob is, and its checksum. Arrays are mapped from the file, not copied. Nothing in a file is
executed here; what is machine code to somebody else is a blob like any other.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.plugins import known_ops
from ..errors import ExportError, FileFormatError, FileVersionError
from ..fusion import NUMBER
from ..ir import CONST, Body, Graph, Node, Op, Spec, dtypes, input_node
from ..loops import BUNDLE
from ..ops.declare import OPS
from ..runtime.files import replace_file
from ..tensor.tracing import make_node

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

Array = np.ndarray[Any, Any]

MAGIC = b"MGBGRAPH"

#: The format; a greater number is refused.
VERSION = 1

_HEAD = struct.Struct("<8sIIQQ")
_ALIGNMENT = 64


class Writer:
    """Collects the blobs of a file, each content once; its methods give JSON that `Reader` understands."""

    def __init__(self) -> None:
        self._blobs: list[memoryview] = []
        self._numbers: dict[bytes, int] = {}

    def blob(self, data: Any) -> int:
        """Return the number of a blob with these bytes."""
        view = memoryview(data).cast("B")
        number = self._numbers.setdefault(hashlib.sha256(view).digest(), len(self._blobs))
        if number == len(self._blobs):
            self._blobs.append(view)
        return number

    def graph(self, graph: Graph) -> dict[str, Any]:
        """Return a graph; its values are numbered, the inputs first.

        Raises
        ------
        ExportError
            A parameter of an op is nothing that a file can hold.
        """
        numbers = {n: k for k, n in enumerate((*graph.inputs, *graph.nodes))}
        return {
            "inputs": [_spec(n.spec) for n in graph.inputs],
            "nodes": [self._node(n, numbers) for n in graph.nodes],
            "outputs": [numbers[n] for n in graph.outputs],
        }

    def _node(self, node: Node, numbers: Mapping[Node, int]) -> list[Any]:
        params = {name: self._param(node.op, value) for name, value in node.params.items()}
        return [node.op.name, [numbers[n] for n in node.inputs], params, _spec(node.spec), node.source]

    def _param(self, op: Op, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, np.dtype):
            return {"dtype": value.name}
        if isinstance(value, tuple):
            return [self._param(op, v) for v in value]
        if isinstance(value, np.ndarray):
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return {"array": [self.blob(data), value.dtype.name, list(value.shape)]}
        if isinstance(value, Body):
            return {"body": self.graph(value.graph)}
        raise ExportError(f"a parameter of {op.name} is a {type(value).__name__}, which a file cannot hold")

    def write(self, path: str | os.PathLike[str], content: Any) -> None:
        """Write a file; what is at `path` is replaced in one go, or stays as it was.

        Parameters
        ----------
        path : path
        content : JSON
            What `Reader.content` will be.
        """
        replace_file(Path(path), self.parts(content))

    def parts(self, content: Any) -> tuple[Any, ...]:
        """Return the bytes of a file, in parts; see `write`."""
        table, end = [], 0
        for blob in self._blobs:
            table.append([end, blob.nbytes, zlib.crc32(blob)])
            end = _aligned(end + blob.nbytes)
        text = json.dumps({"blobs": table, "content": content}, separators=(",", ":")).encode()
        text += b" " * (_aligned(_HEAD.size + len(text)) - _HEAD.size - len(text))
        head = _HEAD.pack(MAGIC, VERSION, zlib.crc32(text), len(text), end)
        padded = (part for b in self._blobs for part in (b, bytes(_aligned(b.nbytes) - b.nbytes)))
        return head, text, *padded


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _spec(spec: Spec) -> list[Any]:
    return [dtypes.name_of(spec.dtype), list(spec.shape), spec.device]


def is_graph_file(path: str | os.PathLike[str]) -> bool:
    """Return whether the file at `path` begins as those that `Writer` makes."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class Reader:
    """A file, its checksums compared.

    Parameters
    ----------
    path : path
    data : bytes, optional
        The content of the file, if it is not to be read there.

    Attributes
    ----------
    content : JSON
        What was given to `Writer.write`.

    Raises
    ------
    FileFormatError
        It is none of these files, or a damaged one; the message names the place.
    FileVersionError
        It is of a newer format.
    OSError
        It cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], data: bytes | None = None) -> None:
        self.name = os.fspath(path)
        size = os.stat(path).st_size if data is None else len(data)
        if size < _HEAD.size:
            raise self.error("the head", f"it has {size} bytes")
        mapped = np.memmap(path, np.uint8, "r") if data is None else np.frombuffer(data, np.uint8)
        self._bytes: Array = mapped.view(np.ndarray)
        magic, version, checksum, length, rest = _HEAD.unpack_from(self._bytes.data)
        if magic != MAGIC:
            raise self.error("the head", "trace.export did not write it; mgb.jit.load reads models")
        if version > VERSION:
            raise FileVersionError(
                f"{self.name} was written by a newer mgb (format {version}, this one reads {VERSION}): "
                "pip install --upgrade mgb"
            )
        self._start = _HEAD.size + length
        if size != self._start + rest:
            raise self.error("the head", f"the file has {size} bytes, and should have {self._start + rest}")
        text = self._bytes[_HEAD.size : self._start]
        if zlib.crc32(text.data) != checksum:
            raise self.error("the header", "it does not fit its checksum")
        with self.reading("the header"):
            header = json.loads(text.tobytes())
            self.content = header["content"]
            self._blobs = [self._blob(*entry) for entry in header["blobs"]]

    def error(self, place: str, why: object) -> FileFormatError:
        """Return an error for `place`, with the reason."""
        remedy = "it is damaged, or was not written by mgb: export it again, or use another copy"
        return FileFormatError(f"cannot load {self.name}: {place}: {why}; {remedy}")

    @contextmanager
    def reading(self, place: str) -> Iterator[None]:
        """Turn a failure inside, which is due to the file, into a `FileFormatError` that names `place`."""
        try:
            yield
        except FileFormatError:
            raise
        except Exception as error:  # an op may refuse a lying parameter in any way
            raise self.error(place, f"{type(error).__name__}: {error}") from error

    def _blob(self, offset: int, length: int, checksum: int) -> Array:
        end = self._start + offset + length
        if offset % _ALIGNMENT or min(offset, length) < 0 or end > self._bytes.size:
            raise ValueError(f"{length} bytes at {offset} are not there")
        blob = self._bytes[self._start + offset :][:length]
        if zlib.crc32(blob.data) != checksum:
            raise ValueError(f"the {length} bytes at {offset} do not fit their checksum")
        return blob

    def blob(self, number: int) -> bytes:
        """Return the bytes of a blob."""
        return bytes(at(self._blobs, number))

    def spec(self, value: Any) -> Spec:
        """Return a `Spec`."""
        dtype, shape, device = value
        if not all(type(d) is int and d >= 0 for d in shape) or not isinstance(device, str):
            raise ValueError(f"{value} is not a type")
        if [dtype, shape] == _spec(BUNDLE)[:2]:
            return Spec((), BUNDLE.dtype, device)
        return Spec(tuple(shape), dtypes.BY_NAME[dtype], device)

    def graph(self, value: Any, place: str) -> Graph:
        """Return a graph that `Writer.graph` wrote; each node is checked as if it were recorded."""
        with self.reading(f"{place}, inputs"):
            nodes = [input_node(self.spec(spec)) for spec in value["inputs"]]
            count, rows = len(nodes), list(value["nodes"])
        for number, row in enumerate(rows):
            with self.reading(f"{place}, node {number}"):
                nodes.append(self._node(nodes, *row))
        with self.reading(f"{place}, outputs"):
            outputs = tuple([at(nodes, n) for n in value["outputs"]])
            return Graph(tuple(nodes[:count]), outputs)

    def _node(
        self, nodes: list[Node], name: str, inputs: list[int], given: Any, spec: Any, source: str
    ) -> Node:
        params = {key: self._param(value) for key, value in given.items()}
        wanted = self.spec(spec)
        if name == CONST.name:
            node = Node(CONST, (), params, Spec(params["value"].shape, params["value"].dtype, wanted.device))
        else:
            op = NUMBER if name == NUMBER.name else OPS.get(name) or known_ops().get(name)
            if op is None:
                raise ValueError(
                    f"this mgb has no op {name!r}; install or import the package that adds it, or upgrade mgb"
                )
            _check_call(op, len(inputs), params)
            node = make_node(op, tuple([at(nodes, n) for n in inputs]), params, str(source))
        if node.spec != wanted:
            raise ValueError(f"{name} makes {node.spec} on {node.spec.device}, and should make {spec}")
        return node

    def _param(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self._param, value))
        if not isinstance(value, dict):
            return value
        ((kind, what),) = value.items()
        if kind == "float":
            return float.fromhex(what)
        if kind == "body":
            return Body(self.graph(what, "the graph of a loop"))
        return dtypes.BY_NAME[what] if kind == "dtype" else self._array(*what)

    def _array(self, number: int, dtype: str, shape: list[int]) -> Array:
        blob: Array = at(self._blobs, number)
        array = blob.view(dtypes.BY_NAME[dtype]).reshape(self.spec([dtype, shape, ""]).shape)
        if array.dtype == dtypes.bool_ and blob.size and blob.max() > 1:
            raise ValueError("an array of booleans holds other numbers")
        return array


def _check_call(op: Op, count: int, params: Iterable[str]) -> None:
    """Check that `op` takes this many values and these parameters, which `infer` does not always check."""
    rule = op.eager or op.body
    if isinstance(rule, np.ufunc):
        if count != rule.nin or params:
            raise TypeError(f"{op.name} takes {rule.nin} values and no parameters")
    elif rule is not None:
        _check_names(rule, count, tuple(params))


@lru_cache(maxsize=4096)
def _check_names(rule: Callable[..., Any], count: int, names: tuple[str, ...]) -> None:
    inspect.signature(rule).bind(*[None] * count, **dict.fromkeys(names))


def at(entries: list[Any], number: Any) -> Any:
    """Return an entry; a number that is none of theirs is a `ValueError`."""
    if type(number) is not int or not 0 <= number < len(entries):
        raise ValueError(f"{number!r} is not an index of {len(entries)} entries")
    return entries[number]
