"""Programs kept in the cache of kernels: an equal graph needs no passes and no fusion in another process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ..errors import ExportError, MgbError
from ..executor import Options, Program, compile_program
from ..executor.collector import resting
from ..executor.compile import backend_for
from ..executor.kernels import program_key
from ..ir import Graph
from ..runtime import cache
from .graph_file import Reader, Writer
from .portable import pack, unpack

#: Larger files, which hold large constants, are not kept.
_LARGEST = 4 << 20


def compile_kept(graph: Graph, options: Options, updates: Mapping[int, int]) -> Program:
    """Return what `compile_program` does, by the steps that an earlier process found for an equal graph."""
    backend = backend_for(graph, options)
    key = program_key(graph, backend, options, updates)
    if key is None:
        return compile_program(graph, options, updates)
    kept = cache.load(".programs", key)
    if kept is not None:
        with suppress(MgbError), resting():  # who compiles it says better what is wrong
            file = Reader(key, kept)
            return unpack(file.content, file, graph, backend, options=options, updates=updates)
    program, writer = compile_program(graph, options, updates), Writer()
    with suppress(ExportError):
        content = b"".join(writer.parts(pack(program, writer, has_code=False)))
        if len(content) <= _LARGEST:
            cache.store(".programs", key, content)
    return program
