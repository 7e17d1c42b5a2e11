"""A matrix product with what stands before and after it in one kernel.

Nothing chooses it by itself: a `matmul` of a traced function is the vendor library's, and whether this kernel
is faster can only be measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.codegen import expression
from mgb.ir import CONST, Graph, Node
from mgb_cuda import Device, Images, Packet, Packing

from .words import NUMBERS, POINTERS, SPELLINGS, t_type

#: How float32 is multiplied: as it is, or cut to 19 bits on tensor cores.
PRECISIONS = ("ieee", "tf32")


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a product is cut.

    Attributes
    ----------
    m, n, k : int
        Of a program's part of the result, and of a step along what is summed.
    warps : int
    group : int
        Rows of programs that run together, so that they find the same columns in the cache.
    """

    m: int = 128
    n: int = 128
    k: int = 32
    warps: int = 8
    group: int = 8


@dataclass(frozen=True, slots=True)
class Form:
    """What of a call is compiled into a kernel.

    Attributes
    ----------
    letters : tuple of (str, str)
        For each stride ``0`` or ``1`` where it is that; ``s``: it is an argument.
    aligned : tuple of str
        Arguments that are multiples of 16.
    """

    letters: tuple[tuple[str, str], ...]
    aligned: tuple[str, ...]


def tiles_for(m: int, n: int, k: int, itemsize: int) -> Tiles:
    """By rule: smaller parts for small products, steps of 64 bytes."""
    sizes = [max(16, min(128, 1 << max(0, d - 1).bit_length())) for d in (m, n)]
    step = max(16, min(64 // itemsize, 1 << max(0, k - 1).bit_length()))
    return Tiles(*sizes, step, 8 if sizes[0] * sizes[1] >= 128 * 64 else 4)


class Product:
    """``epilogue(left(...) @ right(...), ...)`` as one kernel.

    Parameters
    ----------
    left, right : Graph
        Element-wise, lowered for this backend: from arrays that broadcast to one matrix, to one of float16,
        bfloat16 or float32, the same for both. A graph without nodes passes its input on.
    epilogue : Graph
        Element-wise and lowered: its first input is the product in float32, others broadcast to it; its
        outputs have that shape.
    device : Device
    precision : str, optional
        One of `PRECISIONS`, for float32.
    tiles : Tiles, optional
    """

    def __init__(
        self, left: Graph, right: Graph, epilogue: Graph, device: Device,
        precision: str = "ieee", tiles: Tiles | None = None,
    ) -> None:  # fmt: skip
        self._check(left, right, epilogue, precision)
        self.left, self.right, self.epilogue = left, right, epilogue
        self.device, self.precision = device, precision
        (m, k), (_, n) = left.outputs[0].spec.shape, right.outputs[0].spec.shape
        self.tiles = tiles or tiles_for(m, n, k, left.outputs[0].spec.dtype.itemsize)
        read = [("l", left.inputs), ("r", right.inputs), ("e", epilogue.inputs[1:]), ("y", epilogue.outputs)]
        self.operands = [(f"{part}{i}", node) for part, nodes in read for i, node in enumerate(nodes)]
        names = [name for name, _ in self.operands]
        self.numbers = [("int64_t", f"{name}_{axis}") for name in names for axis in "01"]
        self.numbers += [("int", size) for size in "mnk"]
        self.packing = Packing(len(names), self.numbers, apart=True, nulls=2)
        self._functions: dict[Form, Any] = {}
        self._images = Images("triton")

    @staticmethod
    def _check(left: Graph, right: Graph, epilogue: Graph, precision: str) -> None:
        a, b = left.outputs[0].spec, right.outputs[0].spec
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
            raise ValueError(f"{a} and {b} are no two matrices of one dtype that can be multiplied")
        if a.dtype.name not in ("float16", "bfloat16", "float32"):
            raise ValueError(f"there is no kernel for products of {a.dtype}; use mgb.functional.matmul")
        if precision not in PRECISIONS:
            raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
        whole = (a.shape[0], b.shape[1])
        wrong = [o.spec for o in (epilogue.inputs[0], *epilogue.outputs) if o.spec.shape != whole]
        if wrong or epilogue.inputs[0].spec.dtype != np.float32:
            raise ValueError(
                f"the epilogue is about matrices of {whole}, the product in float32, not {wrong}"
            )

    def form(self, pointers: Sequence[int], values: Mapping[str, int]) -> Form:
        """What of a call is compiled in."""
        steps = {name: values[name] for kind, name in self.numbers if kind == "int64_t"}
        letters = tuple((name, str(step) if step in (0, 1) else "s") for name, step in steps.items())
        places = dict(zip((name for name, _ in self.operands), pointers, strict=True))
        aligned = [name for name, number in (*places.items(), *values.items()) if number % 16 == 0]
        return Form(letters, tuple(aligned))

    def source(self, form: Form) -> str:
        """The text of the kernel."""
        return "\n".join([*self._head(form), *(f"    {line}" for line in self._body(dict(form.letters))), ""])

    def _head(self, form: Form) -> list[str]:
        types = {name: POINTERS[node.spec.dtype.name] for name, node in self.operands}
        types |= {name: NUMBERS[kind] for kind, name in self.numbers}
        return [f"SIGNATURE = {types!r}", f"ALIGNED = {list(form.aligned)!r}", f"WARPS = {self.tiles.warps}",
                "", "", "@jit", f"def mgb_0({', '.join(types)}):"]  # fmt: skip

    def _body(self, letters: Mapping[str, str]) -> list[str]:
        t = self.tiles
        # Programs go down a few rows of parts before they go right.
        lines = [
            "program = tl.program_id(0)",
            f"down, right = (m + {t.m - 1}) // {t.m}, (n + {t.n - 1}) // {t.n}",
            f"first = program // ({t.group} * right) * {t.group}",
            f"high = tl.minimum(down - first, {t.group})",
            f"inner = program % ({t.group} * right)",
            f"row = ((first + inner % high) * {t.m} + tl.arange(0, {t.m})[:, None]).to(tl.int64)",
            f"column = (inner // high * {t.n} + tl.arange(0, {t.n})[None, :]).to(tl.int64)",
            f"total = tl.full([{t.m}, {t.n}], 0, tl.float32)",
            f"for step in range(0, k, {t.k}):",
        ]
        lines += [f"    {line}" for line in self._step(letters)]
        lines.append("inside = (row < m) & (column < n)")
        names = {self.epilogue.inputs[0]: "total"}
        lines += self._values(self.epilogue, "e", ("row", "column", "inside"), names, letters)
        for i, node in enumerate(self.epilogue.outputs):
            place = _place(f"y{i}", "row", "column", letters)
            lines.append(f"tl.store({place}, {names[node]}, mask=inside)")
        return lines

    def _step(self, letters: Mapping[str, str]) -> list[str]:
        """What is added to the product for some of the elements that are summed."""
        t, kind = self.tiles, t_type(self.left.outputs[0])
        lines = [
            f"across = (step + tl.arange(0, {t.k})[None, :]).to(tl.int64)",
            f"along = (step + tl.arange(0, {t.k})[:, None]).to(tl.int64)",
            "in_left = (row < m) & (across < k)",
            "in_right = (along < k) & (column < n)",
        ]
        sides = (
            ("l", self.left, "row", "across", "in_left"),
            ("r", self.right, "along", "column", "in_right"),
        )
        for part, graph, down, right, mask in sides:
            names: dict[Node, str] = {}
            lines += self._values(graph, part, (down, right, mask), names, letters)
            found = names[graph.outputs[0]]
            lines.append(f"{part} = tl.where({mask}, {found}, tl.full((), 0, {kind}))")
        lines.append(f'total = tl.dot(l, r, total, input_precision="{self.precision}")')
        return lines

    def _values(
        self,
        graph: Graph,
        part: str,
        where: tuple[str, str, str],
        names: dict[Node, str],
        letters: Mapping[str, str],
    ) -> list[str]:
        """Load the operands of a graph where it has no name for them, and compute the rest."""
        down, right, mask = where
        lines = []
        for i, node in enumerate(v for v in graph.inputs if v not in names):
            name = f"{part}{i}"
            names[node] = f"v{name}"
            lines.append(f"v{name} = tl.load({_place(name, down, right, letters)}, mask={mask})")
        for i, node in enumerate(v for v in graph.nodes if v not in names):
            text = expression(node, [names[x] for x in node.inputs], SPELLINGS)
            names[node] = text if node.op is CONST else f"v{part}_{i}"
            if node.op is not CONST:
                lines.append(f"{names[node]} = {text}")
        return lines

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Multiply: arrays of the left, the right and the epilogue, into row-major outputs."""
        (m, n), k = out[0].shape, self.left.outputs[0].spec.shape[1]
        values: dict[str, int] = {"m": m, "n": n, "k": k}
        for (name, _), array in zip(self.operands, (*arrays, *out), strict=True):
            lead = 2 - len(array.shape)
            pairs = zip(array.shape, array.strides, strict=True)
            steps = [0] * lead + [0 if d == 1 else s // array.dtype.itemsize for d, s in pairs]
            values |= {f"{name}_{axis}": step for axis, step in enumerate(steps)}
        pointers = list(map(self.device.address, (*arrays, *out)))
        packet = Packet(self.packing.pack(values), self.packing.places)
        self.packing.pointers.pack_into(packet.buffer, 0, *pointers)
        blocks = -(-m // self.tiles.m) * -(-n // self.tiles.n)
        if blocks:
            function = self._loaded(self.form(pointers, values))
            launch = self.device.launcher(function, (blocks, 1), 32 * self.tiles.warps)
            launch(self.device.stream(), packet.table)

    def _loaded(self, form: Form) -> Any:
        if form not in self._functions:
            image = self._images.get(self.device, self.source(form))
            (self._functions[form],) = self.device.load(image, ["mgb_0"])
        return self._functions[form]


def _place(name: str, down: str, right: str, letters: Mapping[str, str]) -> str:
    """Where the elements of an operand are; both axes of a tile have their say, if only by a 0."""
    terms = [name]
    for axis, index in enumerate((down, right)):
        letter = letters[f"{name}_{axis}"]
        terms.append(index if letter == "1" else f"{index} * {'0' if letter == '0' else f'{name}_{axis}'}")
    return " + ".join(terms)
