"""Operators that ONNX itself defines by others: their bodies stand in the schemas of the `onnx` package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from mgb.errors import LoadedFunctionError, UnsupportedError
from mgb.ir import exact_text
from mgb.tensor import Tensor

from .read import read_function
from .structure import Call, Function
from .values import NUMBER_OF, Value

Key = tuple[str, str, str]


class Expansions:
    """The functions that stand for operators without a row."""

    def __init__(self) -> None:
        self._found: dict[Any, Function] = {}

    @staticmethod
    def has(call: Call) -> bool:
        """Return whether ONNX defines the operator of `call` by others."""
        schema = _schema(call.operator, None, call.domain)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def find(
        self, call: Call, inputs: Sequence[Value], attributes: Mapping[str, Any], opsets: Mapping[str, int]
    ) -> Function:
        """Return the body of the operator for inputs of these types.

        Raises
        ------
        UnsupportedError
            ONNX has none for them.
        """
        types = tuple(map(_type_of, inputs))
        key = (id(call), types, tuple(sorted((k, exact_text(v)) for k, v in attributes.items())))
        if key not in self._found:
            self._found[key] = _expansion(call, inputs, attributes, opsets)
        return self._found[key]


@lru_cache(maxsize=1024)
def _schema(operator: str, version: int | None, domain: str) -> Any:
    try:
        if version is None:
            return onnx.defs.get_schema(operator, domain)
        return onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None


def _type_of(value: Value) -> Any:
    return (value.dtype, value.shape) if isinstance(value, Tensor | np.ndarray) else type(value)


def _expansion(
    call: Call, inputs: Sequence[Value], attributes: Mapping[str, Any], opsets: Mapping[str, int]
) -> Function:
    version = opsets.get(call.domain, onnx.defs.onnx_opset_version())
    schema = _schema(call.operator, version, call.domain)
    try:
        text = b"" if schema is None else _written(schema, version, call, inputs, attributes)
    except Exception as error:  # the onnx package refuses attributes that lie in many ways
        raise LoadedFunctionError(f"{call.place}: the onnx package cannot expand it: {error}") from error
    if not text:
        raise UnsupportedError(
            f"{call.place}: operator {call.operator} of domain {call.domain or 'ai.onnx'} is not supported "
            f"in opset {version} for these inputs"
        )
    defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    return read_function(text, defaults.values(), {call.domain: version, **opsets})


def _written(
    schema: Any, version: int, call: Call, inputs: Sequence[Value], attributes: Mapping[str, Any]
) -> bytes:
    """Return the function in ONNX's own spelling, serialized; empty when there is none."""
    if any(callable(v) for v in attributes.values()):
        return b""  # a graph that is an attribute has names of the graph around it
    if schema.has_context_dependent_function:
        node = onnx.helper.make_node(
            call.operator, call.inputs, call.outputs, domain=call.domain,
            **{k: _attribute(v) for k, v in attributes.items()},
        )  # fmt: skip
        newest = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type_proto(v).SerializeToString() for v in inputs]
        written = schema.get_context_dependent_function_with_opset_version(
            max(newest, default=version), node.SerializeToString(), types
        )
        return bytes(written)
    if schema.has_function:
        newest = [v for v in schema.function_opset_versions if v <= version]
        return bytes(schema.get_function_with_opset_version(max(newest, default=version)))
    return b""


def _attribute(value: Any) -> Any:
    return onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def _type_proto(value: Value) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return onnx.helper.make_tensor_type_proto(NUMBER_OF[value.dtype], value.shape)
    return onnx.TypeProto()
