"""The kernel of a group with one matrix product: what stands before and after it is computed on its tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from mgb import codegen
from mgb.codegen import CAST, IOTA, Operand, expression, is_operand, row_major
from mgb.ir import CONST, Graph, Kind, Node

from .source import kernel
from .tiles import OWN, Tiles, tiles_for
from .words import NUMBERS, POINTERS, ROUNDED, SPELLINGS, WORDS, t_type

#: How float32 is multiplied: as it is, or cut to 19 bits on tensor cores.
PRECISIONS = ("ieee", "tf32")

#: Functions of CUDA's library, which take many registers for each element, as more ops than `LONG` do.
CALLS = {name for name, text in WORDS.items() if isinstance(text, str) and text.startswith("libdevice.")}
LONG = 16

#: The dtypes of matrices that it multiplies.
DTYPES = (*sorted(ROUNDED), "float32")


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

    split: ClassVar[bool] = False

    @property
    def threads(self) -> int:
        return 32 * self.tiles.warps


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


@dataclass(frozen=True, slots=True)
class Part:
    """The values on one tile: of the left matrix, of the right one, or of the result.

    Attributes
    ----------
    letter : str
        What its names begin with.
    axes : Axes
    ends : tuple of Node
    nodes : tuple of Node
        All that `ends` need, in order, no further than operands and the product.
    reads : tuple of Node
        The operands among it.
    """

    letter: str
    axes: Axes
    ends: tuple[Node, ...]
    nodes: tuple[Node, ...]
    reads: tuple[Node, ...]


class Product(codegen.Frame[Operand]):
    """A lowered group that holds one product: ``after(left @ right, ...)``. It has no domain.

    The product is in float32, of 16-bit operands where both were widened for it.

    Parameters
    ----------
    graph : Graph
    precision : str
        One of `PRECISIONS`, for float32.
    """

    def __init__(self, graph: Graph, precision: str) -> None:
        self.graph, self.precision = graph, precision
        self.operands = tuple(Operand(name, v) for name, v in self.named())
        self.number = {v: i for i, v in enumerate(codegen.values(graph))}
        (self.product,) = (n for n in graph.nodes if n.op.kind is Kind.CONTRACT)
        flips = [bool(self.product.params.get(f"transpose_{side}")) for side in "ab"]
        axes = [x.swapped() if flip else x for x, flip in zip((LEFT, RIGHT), flips, strict=True)]
        left, right = self._narrow() or self.product.inputs
        self.left, self.right = self._part("l", axes[0], (left,)), self._part("r", axes[1], (right,))
        self.after = self._part("e", WHOLE, graph.outputs, (self.product,))
        self.sizes = dict(zip("mn", self.product.spec.shape, strict=True))
        self.sizes |= zip(axes[0].sizes, self.product.inputs[0].spec.shape, strict=True)
        read = [(n, part) for part in (self.left, self.right, self.after) for n in part.reads]
        found = [(self.source_of[n].name, part.axes) for n, part in read if n.op is not IOTA]
        #: The arrays by name, with the axes along which each is read or written.
        self.uses = (*found, *((o.name, WHOLE) for o in self.outputs))
        self.numbers = [("int64_t", f"{o.name}_{axis}") for o in self.arrays for axis in "01"]
        self.numbers += [("int", size) for size in "mnk"]
        #: Blocks read what others write.
        self.hazards = tuple((i, j) for i in range(len(graph.inputs)) for j in range(len(graph.outputs)))

    def _narrow(self) -> tuple[Node, ...] | None:
        """Return the operands in 16 bits, where both have been widened from the same dtype."""
        ends = tuple(n.inputs[0] for n in self.product.inputs if n.op is CAST)
        kinds = {n.spec.dtype.name for n in ends}
        return ends if len(ends) == 2 and len(kinds) == 1 and kinds <= ROUNDED else None

    def _part(self, letter: str, axes: Axes, ends: tuple[Node, ...], given: tuple[Node, ...] = ()) -> Part:
        nodes = Graph((*given, *self.graph.inputs), ends).nodes
        found = dict.fromkeys((*(i for n in nodes for i in n.inputs), *ends))
        reads = tuple(n for n in found if is_operand(n) and n not in given)
        return Part(letter, axes, ends, tuple(n for n in nodes if not is_operand(n)), reads)

    # calls

    def values(self, shapes: Sequence[tuple[int, ...]], strides: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Return the sizes, as arrays and outputs tell them, and the strides; outputs are row-major."""
        found, lengths = {}, {}
        written = [row_major(shape, o.itemsize) for shape, o in zip(shapes, self.arrays, strict=True)]
        for o, shape, steps in zip(self.arrays, shapes, (*strides, *written[len(strides) :]), strict=True):
            lengths[o.name] = _matrix(shape)
            for axis, (length, step) in enumerate(zip(lengths[o.name], (0, 0, *steps)[-2:], strict=True)):
                found[f"{o.name}_{axis}"] = 0 if length == 1 else step // o.itemsize
        # A length that no array has is part of what the kernel was made for.
        told = {s: d for name, x in self.uses for s, d in zip(x.sizes, lengths[name], strict=True) if d != 1}
        return found | self.sizes | told

    def form(self, values: Mapping[str, int], askew: Set[int]) -> Form:
        """Return the properties of a call that are compiled in; `askew` arrays begin at no multiple of 16."""
        steps = [name for kind, name in self.numbers if kind == "int64_t"]
        letters = tuple((name, str(values[name]) if values[name] in (0, 1) else "s") for name in steps)
        aligned = [o.name for i, o in enumerate(self.arrays) if i not in askew]
        aligned += [name for name, number in values.items() if number % 16 == 0]
        itemsize = self.left.ends[0].spec.dtype.itemsize
        own = 64 // itemsize if self._is_long() else OWN
        tiles = tiles_for(values["m"], values["n"], values["k"], itemsize, own)
        return Form(letters, tuple(aligned), tiles, self.is_wide(values))

    def is_wide(self, values: Mapping[str, int]) -> bool:
        """Return whether elements are so far apart that their distance takes more than 32 bits."""
        m, n, k = (values[size] for size in "mnk")
        far = [m * k, k * n, m * n]
        for name, axes in self.uses:
            far.append(sum(values[s] * abs(values[f"{name}_{axis}"]) for axis, s in enumerate(axes.sizes)))
        return max(far) >= 1 << 31

    def _is_long(self) -> bool:
        """Return whether what follows the product takes many registers for each element."""
        ops = [n.op.name for n in self.after.nodes if n.op is not CONST]
        return len(ops) > LONG or not CALLS.isdisjoint(ops)

    # the text

    def source(self, form: Form) -> str:
        """Return the text of the kernel."""
        types = {o.name: POINTERS[o.dtype] for o in self.arrays}
        types |= {name: NUMBERS[kind] for kind, name in self.numbers}
        nodes = (*self.graph.inputs, *self.graph.nodes)
        return kernel("mgb_0", types, form.aligned, form.tiles.warps, nodes, self._body(form))

    def _body(self, form: Form) -> list[str]:
        t, place = form.tiles, "tl.int64" if form.wide else "tl.int32"
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
            *(f"    {line}" for line in self._step(form, place)),
            "inside = (row < m) & (column < n)",
        ]
        names = {self.product: "total"}
        lines += self._values(self.after, names, form)
        for o in self.outputs:
            lines.append(f"tl.store({_place(o.name, WHOLE.places, form)}, {names[o.node]}, mask=inside)")
        return [f"    {line}" for line in lines]

    def _step(self, form: Form, place: str) -> list[str]:
        """Return the lines that add the products of one step of the summed elements."""
        lines = [
            f"across = (step + tl.arange(0, {form.tiles.k})[None, :]).to({place})",
            f"along = (step + tl.arange(0, {form.tiles.k})[:, None]).to({place})",
            "in_left = (row < m) & (across < k)",
            "in_right = (along < k) & (column < n)",
        ]
        for part in (self.left, self.right):
            names: dict[Node, str] = {}
            lines += self._values(part, names, form)
            (end,), zero = part.ends, f"tl.full((), 0, {t_type(part.ends[0])})"
            lines.append(f"{part.letter} = tl.where({part.axes.mask}, {names[end]}, {zero})")
        lines.append(f'total = tl.dot(l, r, total, input_precision="{self.precision}")')
        return lines

    def _values(self, part: Part, names: dict[Node, str], form: Form) -> list[str]:
        """Load the operands of a part, and compute the rest; names of what is known are given."""
        axes, lines = part.axes, []
        for node in part.reads:
            names[node] = f"v{part.letter}{self.number[node]}"
            if node.op is IOTA:
                text = _iota(node, axes)
            else:
                text = f"tl.load({_place(self.source_of[node].name, axes.places, form)}, mask={axes.mask})"
            lines.append(f"{names[node]} = {text}")
        for node in part.nodes:
            text = expression(node, [names[i] for i in node.inputs], SPELLINGS)
            names[node] = text if node.op is CONST else f"v{part.letter}{self.number[node]}"
            if node.op is not CONST:
                lines.append(f"{names[node]} = {text}")
        return lines


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


def _place(name: str, places: tuple[str, str], form: Form) -> str:
    """Return where the elements of an operand are; both axes of a tile have their say, if only by a 0."""
    terms, letters = [name], dict(form.letters)
    for axis, index in enumerate(places):
        letter = letters[f"{name}_{axis}"]
        terms.append(index if letter == "1" else f"{index} * {'0' if letter == '0' else f'{name}_{axis}'}")
    return " + ".join(terms)
