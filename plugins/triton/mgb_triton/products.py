"""Groups with a matrix product as one kernel, for a user who asks for it.

`USE` says whether products are taken into groups, `PRECISION` how float32 is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from mgb.ir import Graph, Kind
from mgb.runtime.config import Variable
from mgb_cuda import Packing
from mgb_cuda.generated import Kernels
from mgb_cuda.launch import Unit
from mgb_cuda.pattern import Choice

from .matmul import PRECISIONS, Form, Product
from .tiles import smaller

USES = ("never", "always")
USE = Variable(
    "MGB_TRITON_MATMUL", "never", "never: products are the library's; always: one kernel with what is around"
)
PRECISION = Variable(
    "MGB_TRITON_PRECISION",
    "ieee",
    "ieee: float32 is multiplied as it is; tf32: cut to 19 bits, on tensor cores",
)
_ALLOWED = {USE: USES, PRECISION: PRECISIONS}


def setting(variable: Variable) -> str:
    """Return the user's setting; the default where it is unset or invalid: see `problem`."""
    said = variable.get()
    return said if said in _ALLOWED[variable] else variable.default


def problem() -> str | None:
    """Return the problem of the settings and how to fix it, or None."""
    for variable, words in _ALLOWED.items():
        name, said = variable.name, variable.get()
        if said not in words:
            return f"{name}={said!r} is not one of {', '.join(words)}; unset {name}"
    return None


class ProductUnit(Unit):
    """The kernel of a product on one device."""

    frame: Product
    otherwise = "export MGB_TRITON_MATMUL=never"

    def steps(self, shapes: Sequence[tuple[int, ...]], strides: Sequence[tuple[int, ...]]) -> dict[str, int]:
        return self.frame.values(shapes, strides)

    def choose(self, steps: Mapping[str, int], askew: Set[int] = frozenset()) -> Choice:
        return _chosen(steps, self.frame.form(steps, askew))

    def smaller(self, first: Choice, found: Mapping[str, int]) -> Iterator[Choice]:
        for tiles in smaller(first.variant.tiles):
            yield _chosen(found, replace(first.variant, tiles=tiles))

    def grids(self, choice: Choice) -> list[tuple[int, int]]:
        return [(choice.blocks, 1)]

    def packing(self, variant: Form) -> Packing:
        return Packing(len(self.frame.arrays), self.frame.numbers, apart=True, nulls=2)

    def source(self, variant: Form) -> str:
        return self.frame.source(variant)

    def texts(self, variant: Form) -> Sequence[tuple[str, tuple[str, ...]]]:
        return [(self.source(variant), ("mgb_0",))]


def _chosen(values: Mapping[str, int], form: Form) -> Choice:
    blocks = -(-values["m"] // form.tiles.m) * -(-values["n"] // form.tiles.n)
    return Choice(form, dict(values), blocks, 1)


class Products(Kernels):
    """A group with a product on every device that it is called on."""

    unit_class = ProductUnit

    def framed(self, graph: Graph) -> Product:
        return Product(graph, setting(PRECISION))


def holds_product(graph: Graph) -> bool:
    """Return whether a group has a matrix product."""
    return any(n.op.kind is Kind.CONTRACT for n in graph.nodes)
