"""Nodes of ONNX while they are written: what the words of `export_nodes` are written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from mgb import dtypes
from mgb.ir import exact_text
from mgb.storage.model_file import Names, Style

from .values import NUMBER_OF

#: The opset of the operators that are written, unless one of them is younger.
OPSET = 21


class Sheet:
    """The nodes of one graph, or of the body of one function.

    Parameters
    ----------
    names : Names
    style : Style
    inside : bool
        This is the body of a function, whose constants are nodes.
    """

    def __init__(self, names: Names, style: Style, inside: bool) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.opset = OPSET
        self._names = names
        self._style = style
        self._inside = inside
        self._constants: dict[str, str] = {}

    def call(
        self, operator: str, *inputs: str, domain: str = "", opset: int = OPSET, **attributes: Any
    ) -> str:
        """Add a node of one output and return the name of its value."""
        return self.calls(operator, inputs, 1, domain=domain, opset=opset, **attributes)[0]

    def calls(
        self, operator: str, inputs: Sequence[str], outputs: int, domain: str = "", opset: int = OPSET,
        **attributes: Any,
    ) -> list[str]:  # fmt: skip
        """Add a node and return the names of its values."""
        made = [self._names.new("value") for _ in range(outputs)]
        node = onnx.helper.make_node(operator, inputs, made, domain=domain or None, **attributes)
        self.opset = max(self.opset, opset)
        self.nodes.append(node)
        return made

    def constant(self, array: Any) -> str:
        """Return the name of a constant; equal ones are written once."""
        array = np.asarray(array)
        key = exact_text(array)
        if key in self._constants:
            return self._constants[key]
        proto = onnx.TensorProto(dims=array.shape, data_type=NUMBER_OF[array.dtype], raw_data=array.tobytes())
        if self._inside:
            name = self._names.new("constant")
            self.nodes.append(onnx.helper.make_node("Constant", [], [name], value=proto))
        else:
            name = proto.name = self._names.new(self._style.parameters.get(key, "param"))
            self.initializers.append(proto)
        self._constants[key] = name
        return name

    def integers(self, values: Sequence[int]) -> str:
        """Return a 1-d int64 constant."""
        return self.constant(np.array(values, np.int64).reshape(len(values)))

    def cast(self, name: str, dtype: np.dtype[Any]) -> str:
        """Return `name` in `dtype`."""
        if dtype in dtypes.HALVES and dtype.itemsize == 1:  # ONNX clips to these unless told not to
            return self.call("Cast", name, to=NUMBER_OF[dtype], saturate=0)
        return self.call("Cast", name, to=NUMBER_OF[dtype])
