"""``python onnx_fuzz.py KIND FIRST COUNT``: as ``file_fuzz.py`` of the core, for ONNX files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "core" / "tests" / "support"))

import file_fuzz
import mutations
import onnx
import onnx_models as models
from file_fuzz import LIMITS, ones, written
from mgb.jit import load
from protobuf_mutations import protobuf


@cache
def onnx_bases() -> tuple[bytes, ...]:
    small = [
        models.simple(),
        models.branches(),
        models.loop(),
        models.attention_block(),
        models.residual_network(),
    ]
    small += [models.recurrent("LSTM", 4, "bidirectional"), models.recurrent("GRU", 3, "reverse")]
    node = models.h.make_node("Neg", ["x0"], ["y"])
    small.append(models.calling("f", models.our_function("f", {"op": "neg", "params": {}}, [node])))
    return (*small, *map(_external, small[:4]))


def _external(data: bytes) -> bytes:
    """The model, with an initializer whose data is in another file."""
    model = onnx.load_from_string(data)
    tensor = model.graph.initializer.add(name="outside", dims=[3], data_type=1, data_location=1)
    for key, value in (("location", "weights"), ("offset", "64"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    model.graph.node.add(op_type="Add", input=["outside", "outside"], output=["also"])
    model.graph.output.add(name="also")
    return bytes(model.SerializeToString())


@cache
def onnx_cases() -> tuple[bytes, ...]:
    """As many again as those are: a model of each operator, and of each of its options."""
    from onnx_nodes import all_cases

    every = (case.model.SerializeToString() for case in all_cases())
    return (*onnx_bases() * 20, *(data for data in every if len(data) < 100_000))


def try_onnx(data: bytes) -> None:
    source = written(data) if len(data) % 2 else io.BytesIO(data)
    function = load(source, "EAGER", limits=LIMITS)
    function(*map(ones, function.inputs))


def _mutations(bases: Callable[[], tuple[bytes, ...]]) -> mutations.Mutation:
    from mgb_onnx.operators import TABLE

    names = ("weights", "../x", "i", "c", "a", "n", "shape")
    texts = (*mutations.TEXTS, *sorted(name for _, name in TABLE), *names)
    return protobuf(onnx.load_from_string, bases(), texts)


#: ``onnx`` is quick to begin, ``operators`` is not.
KINDS: dict[str, file_fuzz.Kind] = {
    "onnx": (onnx_bases, lambda: _mutations(onnx_bases), try_onnx),
    "operators": (onnx_cases, lambda: _mutations(onnx_cases), try_onnx),
}

if __name__ == "__main__":
    file_fuzz.main(KINDS, *sys.argv[1:])
