"""A graph with names, written to a file: its metadata, and statistics of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from mgb import __version__
from mgb.errors import ArgumentError
from mgb.runtime.files import replace_file
from mgb.storage.model_file import DumpInfo, DumpRequest, File
from mgb.storage.testcases import CASES

from .dynamic import merged
from .export import model_of
from .export_append import append_to
from .ours import DUMPED, Dumped


def write(file: File, request: DumpRequest, append: bool = False) -> DumpInfo:
    """See `Format.write`."""
    models = [
        model_of(graph, request.inputs, request.outputs, request.style, request.name)
        for graph in ([graph for _, graph in request.samples] or [request.graph])
    ]
    model = models[0]
    if request.axes:
        model = merged(models, [lengths for lengths, _ in request.samples], request.axes)
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
        raise ArgumentError(
            f"the file would be larger than the 2 GiB of a protobuf message: {error}; split the function"
        ) from error


class _Counts:
    """The statistics of one graph, taken before it is joined with others."""

    def __init__(self, model: Any) -> None:
        graph = model.graph
        self._nodes = len(graph.input) + len(graph.initializer) + len(graph.node)
        self._params = [t.name for t in graph.initializer]
        self._bytes = sum(len(t.raw_data) for t in graph.initializer)

    def __call__(self, data: bytes, request: DumpRequest) -> DumpInfo:
        return DumpInfo(
            nr_opr=self._nodes,
            tot_bytes=len(data),
            tensor_value_bytes=self._bytes,
            content_hash=int.from_bytes(hashlib.sha256(data).digest()[:8], "little"),
            inputs=list(request.inputs),
            outputs=list(request.outputs),
            params=self._params,
        )


def _metadata(request: DumpRequest) -> dict[str, str]:
    described = Dumped(request.inputs, request.outputs, request.structure, request.user_info)
    found = {"mgb.version": __version__, DUMPED: described.text()}
    if request.cases is not None:
        found[CASES] = request.cases.text()
    return found
