"""`Module.summary`: the layers of a module, what they give and how many parameters they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..runtime.shown import Shown
from ..tensor import Parameter, Tensor

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Layer:
    """One row: a module with its dotted name, nested so deep, and what it has itself.

    Attributes
    ----------
    output : str
        The shapes that it gave; empty if it was not called.
    parameters : int
        How many numbers its own Parameters have, those of submodules excepted; what stands in several places
        is counted where it stands first.
    """

    name: str
    kind: str
    depth: int
    output: str
    parameters: int


class Summary(Shown):
    """The result of `Module.summary`: ``print`` it, or look at `layers` and `parameters`.

    Attributes
    ----------
    layers : list of Layer
        In order of definition.
    parameters : int
        Numbers in Parameters altogether.
    buffers : int
        Numbers in other Tensors.
    nbytes : int
        What both take.
    """

    def __init__(self, module: Any, outputs: dict[int, str]) -> None:
        self._shows_outputs = bool(outputs)
        self.layers = list(_layers(module, outputs))
        tensors = list(module.tensors())
        self.parameters = sum(t.size for t in tensors if isinstance(t, Parameter))
        self.buffers = sum(t.size for t in tensors if not isinstance(t, Parameter))
        self.nbytes = sum(t.nbytes for t in tensors)

    def __rich__(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table(caption=self._total(), caption_justify="left")
        table.add_column("layer", overflow="fold")
        table.add_column("type", overflow="fold")
        if self._shows_outputs:
            table.add_column("output", overflow="fold")
        table.add_column("parameters", justify="right", no_wrap=True)
        for layer in self.layers:
            output = (escape(layer.output),) if self._shows_outputs else ()
            count = f"{layer.parameters:,}" if layer.parameters else ""
            table.add_row("  " * layer.depth + escape(layer.name), layer.kind, *output, count)
        return table

    def _total(self) -> str:
        return f"{self.parameters:,} parameters, {self.buffers:,} numbers in buffers, {self.nbytes:,} bytes"

    __repr__ = Shown.__str__


def _layers(module: Any, outputs: dict[int, str]) -> Iterator[Layer]:
    seen: set[int] = set()
    for name, layer in module.named_modules():
        own = [p for p in layer.parameters(recursive=False) if id(p) not in seen]
        seen.update(map(id, own))
        kind, depth = type(layer).__name__, name.count(".") + bool(name)
        yield Layer(
            name.rpartition(".")[2], kind, depth, outputs.get(id(layer), ""), sum(p.size for p in own)
        )


def summary(self: Any, *inputs: Any, **kwargs: Any) -> Summary:
    """Return the layers with their parameters and, if inputs are given, the shapes of what they give.

    With inputs the module is called once in eval mode, and nothing of it changes.

    Parameters
    ----------
    self : Module
        What is summed up.
    *inputs, **kwargs
        What the module takes.

    Returns
    -------
    Summary
        Prints as a table; a notebook shows it.
    """
    outputs: dict[int, str] = {}
    if inputs or kwargs:
        _call(self, inputs, kwargs, outputs)
    return Summary(self, outputs)


def _call(module: Any, inputs: Any, kwargs: Any, outputs: dict[int, str]) -> None:
    def noted(layer: Any, _inputs: Any, output: Any) -> None:
        outputs[id(layer)] = _shapes(output)

    modes = [(each, each.training) for each in module.modules()]
    hooks = [each.register_forward_hook(noted) for each, _ in modes]
    try:
        module.eval()
        module(*inputs, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for each, training in modes:
            each.training = training


def _shapes(output: Any) -> str:
    """Return ``(2, 3)``, or ``(2, 3) (2, 4)`` of several."""
    if isinstance(output, Tensor):
        return str(output.shape)
    if isinstance(output, dict):
        return " ".join(f"{key}: {_shapes(part)}" for key, part in output.items())
    return " ".join(map(_shapes, output)) if isinstance(output, tuple | list) else type(output).__name__
