"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from mgb.backends import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.ir import Graph, Kind

from .client import left_out, stranded
from .target import DONATE, donates, toolchain
from .vocabulary import VOCABULARY

_LENGTH = struct.Struct("<I")


class Xla(Backend):
    """One executable of XLA for a whole program."""

    name = "xla"
    variables = (DONATE,)
    traits = Traits(
        vocabulary=VOCABULARY,
        kinds=frozenset(Kind) - {Kind.GATHER, Kind.SCATTER},  # indexing by arrays comes as it was recorded
        dtypes=ALL_DTYPES,
        devices=frozenset({"cpu"}),
        scope=Scope.GRAPH,
        specialize=Specialize.SHAPE,
        strided=Strided.ANY,
        hands_over=True,
        meshes=True,
        denormals=False,
        min_ops=1,
        max_inputs=sys.maxsize,
        priority=50,
        api_version=1,
    )

    def probe(self) -> str | None:
        if find_spec("jax") is None or find_spec("jaxlib") is None:
            return "JAX is not installed; python -m pip install jax"
        return stranded() or left_out()

    def version(self) -> str:
        return toolchain() if donates() else f"{toolchain()} without donation"

    def target(self) -> str:
        return toolchain()

    def compile(self, graph: Graph) -> Kernel:
        return self.compile_over(graph, ())

    def compile_over(self, graph: Graph, replaces: Sequence[tuple[int, int]]) -> Kernel:
        from .executable import compiled

        return compiled(graph, replaces if donates() else ())

    def save(self, kernel: Kernel) -> bytes | None:
        from .executable import saved

        payload = saved(kernel)
        if payload is None:
            return None
        pairs = json.dumps(kernel.replaces).encode()
        return _LENGTH.pack(len(pairs)) + pairs + payload

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        from .executable import loaded

        (length,) = _LENGTH.unpack_from(blob)
        start = _LENGTH.size + length
        pairs: Any = json.loads(blob[_LENGTH.size : start])
        return loaded(graph, pairs, blob[start:])
