"""A matrix product with what stands before and after it in one kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mgb.codegen import IOTA, expression
from mgb.ir import CONST, Graph, Node
from mgb.runtime import forking
from mgb_cuda import Device, Images, Packet, Packing, ResourceError
from mgb_cuda.launch import PLANS

from .tiles import OWN, Tiles, smaller, tiles_for
from .words import NUMBERS, POINTERS, SPELLINGS, WORDS, t_type

#: ``launch(stream, address of a packet's table)``.
Launch = Callable[[int, int], None]

#: How float32 is multiplied: as it is, or cut to 19 bits on tensor cores.
PRECISIONS = ("ieee", "tf32")

#: Functions of CUDA's library, which take many registers for each element, as more ops than `LONG` do.
CALLS = {name for name, text in WORDS.items() if isinstance(text, str) and text.startswith("libdevice.")}
LONG = 16

#: The dtypes of matrices that it multiplies.
DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class Form:
    """The properties of a call that are compiled into a kernel.

    Attributes
    ----------
    letters : tuple of (str, str)
        For each stride ``0`` or ``1`` where it is that; ``s``: it is an argument.
    aligned : tuple of str
        Arguments that are multiples of 16.
    tiles : Tiles
    wide : bool
        Places need 64 bits.
    """

    letters: tuple[tuple[str, str], ...]
    aligned: tuple[str, ...]
    tiles: Tiles
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a tile of an operand is, along the two axes that the operand has in memory.

    Attributes
    ----------
    places : tuple of str
        The names of the places along each.
    sizes : tuple of str
        The names of the lengths.
    mask : str
        Which of the places there are.
    """

    places: tuple[str, str]
    sizes: tuple[str, str]
    mask: str

    def swapped(self) -> Axes:
        """Return the axes of the transposed operand."""
        return Axes(self.places[::-1], self.sizes[::-1], self.mask)


#: Of what is multiplied, and of what comes out.
LEFT = Axes(("row", "across"), ("m", "k"), "in_left")
RIGHT = Axes(("along", "column"), ("k", "n"), "in_right")
WHOLE = Axes(("row", "column"), ("m", "n"), "inside")


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
        For every call; else by rule.
    transposed : tuple of bool, optional
        Which of the two matrices are multiplied as their transposes.
    images : Images, optional
    """

    def __init__(
        self, left: Graph, right: Graph, epilogue: Graph, device: Device, precision: str = "ieee",
        tiles: Tiles | None = None, transposed: tuple[bool, bool] = (False, False),
        images: Images | None = None,
    ) -> None:  # fmt: skip
        self.left, self.right, self.epilogue, self.transposed = left, right, epilogue, transposed
        self.device, self.precision, self.tiles = device, precision, tiles
        shapes = [g.outputs[0].spec.shape for g in (left, right)]
        a, b = (s[::-1] if flip else s for s, flip in zip(shapes, transposed, strict=True))
        self._check(a, b)
        self.sizes = {"m": a[0], "n": b[1], "k": a[1]}
        sides = [x.swapped() if flip else x for x, flip in zip((LEFT, RIGHT), transposed, strict=True)]
        self.axes = dict(zip("lrey", (*sides, WHOLE, WHOLE), strict=True))
        read = [("l", left.inputs), ("r", right.inputs), ("e", epilogue.inputs[1:]), ("y", epilogue.outputs)]
        self.operands = [(f"{part}{i}", node) for part, nodes in read for i, node in enumerate(nodes)]
        names = [name for name, _ in self.operands]
        self.numbers = [("int64_t", f"{name}_{axis}") for name in names for axis in "01"]
        self.numbers += [("int", size) for size in "mnk"]
        self.packing = Packing(len(names), self.numbers, apart=True, nulls=2)
        self._functions: dict[Form, tuple[Any, Tiles]] = {}
        self._plans: dict[Hashable, tuple[bytes, Launch]] = {}
        self._images = images or Images("triton")
        self._lock = forking.lock()

    def _check(self, a: tuple[int, ...], b: tuple[int, ...]) -> None:
        left, right = (g.outputs[0].spec for g in (self.left, self.right))
        if len(a) != 2 or len(b) != 2 or a[1] != b[0] or left.dtype != right.dtype:
            raise ValueError(f"{left} and {right} are no two matrices of one dtype that can be multiplied")
        if left.dtype.name not in DTYPES:
            raise ValueError(f"there is no kernel for products of {left.dtype}; use mgb.functional.matmul")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        whole, epilogue = (a[0], b[1]), self.epilogue
        wrong = [o.spec for o in (epilogue.inputs[0], *epilogue.outputs) if _matrix(o.spec.shape) != whole]
        if wrong or epilogue.inputs[0].spec.dtype != np.float32:
            raise ValueError(
                f"the epilogue is about matrices of {whole}, the product in float32, not {wrong}"
            )

    # the text

    def form(self, pointers: Sequence[int], values: Mapping[str, int], tiles: Tiles | None = None) -> Form:
        """Return the properties of a call that are compiled in."""
        steps = {name: values[name] for kind, name in self.numbers if kind == "int64_t"}
        letters = tuple((name, str(step) if step in (0, 1) else "s") for name, step in steps.items())
        places = dict(zip((name for name, _ in self.operands), pointers, strict=True))
        whole = [name for name, number in (*places.items(), *values.items()) if number % 16 == 0]
        return Form(letters, tuple(whole), tiles or self.tiles or self.rule(values), self._is_wide(values))

    def _is_wide(self, values: Mapping[str, int]) -> bool:
        """Return whether elements are so far apart that their distance takes more than 32 bits."""
        m, n, k = (values[size] for size in "mnk")
        far = [m * k, k * n, m * n]
        for name, _ in self.operands:
            lengths = (values[size] for size in self.axes[name[0]].sizes)
            far.append(sum(d * abs(values[f"{name}_{axis}"]) for axis, d in enumerate(lengths)))
        return max(far) >= 1 << 31

    def _is_long(self) -> bool:
        """Return whether what follows the product takes many registers for each element."""
        ops = [n.op.name for n in self.epilogue.nodes if n.op is not CONST]
        return len(ops) > LONG or not CALLS.isdisjoint(ops)

    def rule(self, values: Mapping[str, int]) -> Tiles:
        """Return the tiles for a call, by rule."""
        itemsize = self.left.outputs[0].spec.dtype.itemsize
        own = 64 // itemsize if self._is_long() else OWN
        return tiles_for(values["m"], values["n"], values["k"], itemsize, own)

    def expected(self) -> Form:
        """Return the form for row-major arrays of the shapes of the graphs."""
        values = dict(self.sizes)
        for name, node in self.operands:
            down, right = _matrix(node.spec.shape)
            values |= {f"{name}_0": 0 if down == 1 else right, f"{name}_1": int(right != 1)}
        return self.form([0] * len(self.operands), values)

    def source(self, form: Form) -> str:
        """Return the text of the kernel."""
        return "\n".join([*self._head(form), *(f"    {line}" for line in self._body(form)), ""])

    def _head(self, form: Form) -> list[str]:
        types = {name: POINTERS[node.spec.dtype.name] for name, node in self.operands}
        types |= {name: NUMBERS[kind] for kind, name in self.numbers}
        return [f"SIGNATURE = {types!r}", f"ALIGNED = {list(form.aligned)!r}", f"WARPS = {form.tiles.warps}",
                "", "", "@jit", f"def mgb_0({', '.join(types)}):"]  # fmt: skip

    def _body(self, form: Form) -> list[str]:
        t, letters, place = form.tiles, dict(form.letters), "tl.int64" if form.wide else "tl.int32"
        lines = [] if form.wide else [f"{x} = {x}.to({place})" for x, step in form.letters if step == "s"]
        # Programs go down a few rows of parts before they go right.
        lines += [
            "program = tl.program_id(0)",
            f"down, right = (m + {t.m - 1}) // {t.m}, (n + {t.n - 1}) // {t.n}",
            f"first = program // ({t.group} * right) * {t.group}",
            f"high = tl.minimum(down - first, {t.group})",
            f"inner = program % ({t.group} * right)",
            f"row = ((first + inner % high) * {t.m} + tl.arange(0, {t.m})[:, None]).to({place})",
            f"column = (inner // high * {t.n} + tl.arange(0, {t.n})[None, :]).to({place})",
            f"total = tl.full([{t.m}, {t.n}], 0, tl.float32)",
            f"for step in range(0, k, {t.k}):",
        ]
        lines += [f"    {line}" for line in self._step(t, letters, place)]
        lines.append("inside = (row < m) & (column < n)")
        names = {self.epilogue.inputs[0]: "total"}
        lines += self._values(self.epilogue, "e", names, letters)
        for i, node in enumerate(self.epilogue.outputs):
            place = _place(f"y{i}", WHOLE.places, letters)
            lines.append(f"tl.store({place}, {names[node]}, mask=inside)")
        return lines

    def _step(self, t: Tiles, letters: Mapping[str, str], place: str) -> list[str]:
        """Return the lines that add the products of one step of the summed elements."""
        kind = t_type(self.left.outputs[0])
        lines = [
            f"across = (step + tl.arange(0, {t.k})[None, :]).to({place})",
            f"along = (step + tl.arange(0, {t.k})[:, None]).to({place})",
            "in_left = (row < m) & (across < k)",
            "in_right = (along < k) & (column < n)",
        ]
        for part, graph in (("l", self.left), ("r", self.right)):
            names: dict[Node, str] = {}
            lines += self._values(graph, part, names, letters)
            found = names[graph.outputs[0]]
            lines.append(f"{part} = tl.where({self.axes[part].mask}, {found}, tl.full((), 0, {kind}))")
        lines.append(f'total = tl.dot(l, r, total, input_precision="{self.precision}")')
        return lines

    def _values(
        self, graph: Graph, part: str, names: dict[Node, str], letters: Mapping[str, str]
    ) -> list[str]:
        """Load the operands of a graph where it has no name for them, and compute the rest."""
        axes, lines = self.axes[part], []
        for i, node in enumerate(v for v in graph.inputs if v not in names):
            name = f"{part}{i}"
            names[node] = f"v{name}"
            lines.append(f"v{name} = tl.load({_place(name, axes.places, letters)}, mask={axes.mask})")
        for i, node in enumerate(v for v in graph.nodes if v not in names):
            if node.op is IOTA:
                text = _iota(node, axes)
            else:
                text = expression(node, [names[x] for x in node.inputs], SPELLINGS)
            names[node] = text if node.op is CONST else f"v{part}_{i}"
            if node.op is not CONST:
                lines.append(f"{names[node]} = {text}")
        return lines

    # calls

    def run(self, *arrays: Any, out: Sequence[Any], tiles: Tiles | None = None) -> None:
        """Multiply arrays of the left, the right and the epilogue, into row-major outputs."""
        given = readable(self.device, arrays, out)
        self.launch(given, out, self.values((*given, *out)), tiles)

    def launch(
        self, arrays: Sequence[Any], out: Sequence[Any], values: Mapping[str, int], tiles: Tiles | None = None
    ) -> None:
        """Launch for arrays that are `readable`, and their `values`."""
        pointers = list(map(self.device.address, (*arrays, *out)))
        key = (tiles, *values.values(), *[p % 16 == 0 for p in pointers])
        try:
            content, start = self._plans[key]
        except KeyError:
            content, start = self._plan(key, self.form(pointers, values, tiles), values)
        packet = Packet(content, self.packing.places)
        self.packing.pointers.pack_into(packet.buffer, 0, *pointers)
        start(self.device.stream(), packet.table)

    def _plan(self, key: Hashable, form: Form, values: Mapping[str, int]) -> tuple[bytes, Launch]:
        """Return the parameters but the addresses, and the launch, of calls that are alike."""
        function, found = self.load(form)
        blocks = -(-values["m"] // found.m) * -(-values["n"] // found.n)
        start = self.device.launcher(function, (blocks, 1), 32 * found.warps)
        if len(self._plans) >= PLANS:
            self._plans.clear()
        plan = self._plans[key] = self.packing.pack(values), start
        return plan

    def values(self, arrays: Sequence[Any]) -> dict[str, int]:
        """Return the sizes, as arrays and outputs tell them, and the strides."""
        told, values = dict.fromkeys("mnk", 1), {}
        for (name, _), array in zip(self.operands, arrays, strict=True):
            lengths, size = _matrix(array.shape), array.dtype.itemsize
            strides = (0, 0, *array.strides)[-2:]
            for axis, (length, stride) in enumerate(zip(lengths, strides, strict=True)):
                values[f"{name}_{axis}"] = 0 if length == 1 else stride // size
                along = self.axes[name[0]].sizes[axis]
                told[along] = max(told[along], length)
        # A length that no array has is part of what the kernel was made for.
        return values | {size: told[size] if told[size] > 1 else self.sizes[size] for size in "mnk"}

    def load(self, form: Form) -> tuple[Any, Tiles]:
        """Return the kernel for a call, with the first tiles that the device has room for.

        Raises
        ------
        ResourceError
            There are none.
        """
        with self._lock:
            if form not in self._functions:
                self._functions[form] = self._first_fitting(form)
            return self._functions[form]

    def _first_fitting(self, form: Form) -> tuple[Any, Tiles]:
        refused = None
        for tiles in (form.tiles, *smaller(form.tiles)):
            try:
                image = self._images.get(self.device, self.source(replace(form, tiles=tiles)))
                (function,) = self.device.load(image, ["mgb_0"])
                self.device.check(function, 32 * tiles.warps)
                return function, tiles
            except ResourceError as error:
                refused = refused or error
        raise ResourceError(f"no tiles of a product fit: {refused}; export MGB_TRITON_MATMUL=never")


def readable(device: Device, arrays: Sequence[Any], out: Sequence[Any]) -> list[Any]:
    """Return the inputs, or copies of those that are written over, and of those that step between elements.

    Blocks read what others write.
    """
    written = set(map(device.address, out))

    def is_odd(a: Any) -> bool:
        return device.address(a) in written or any(s % a.dtype.itemsize for s in a.strides)

    return [device.contiguous(a) if is_odd(a) else a for a in arrays]


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Return the last two lengths of a shape; all before them are 1."""
    down, right = (1, 1, *shape)[-2:]
    return down, right


def _iota(node: Node, axes: Axes) -> str:
    """Return the row-major place of each element, in the shape of `node`."""
    down, right = _matrix(node.spec.shape)
    (i, j), kind = axes.places, t_type(node)
    if down == 1:
        return f"{j}.to({kind})" if right != 1 else f"tl.full((), 0, {kind})"
    return f"{i}.to({kind})" if right == 1 else f"({i} * {axes.sizes[1]} + {j}).to({kind})"


def _place(name: str, places: tuple[str, str], letters: Mapping[str, str]) -> str:
    """Return where the elements of an operand are; both axes of a tile have their say, if only by a 0."""
    terms = [name]
    for axis, index in enumerate(places):
        letter = letters[f"{name}_{axis}"]
        terms.append(index if letter == "1" else f"{index} * {'0' if letter == '0' else f'{name}_{axis}'}")
    return " + ".join(terms)
