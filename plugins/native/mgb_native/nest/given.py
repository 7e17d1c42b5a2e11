"""The arguments of a kernel: words of arrays, of the plan and of the span, each read once at its head."""

from __future__ import annotations

from mgb.codegen import replaced
from mgb.ir import Node

from ..frame import Frame
from ..slots import HEAD, SPAN, Buffer, Operand
from .builder import INDEX
from .lanes import Loops

#: The arguments of a kernel: arrays of words.
ARGUMENTS = ("arrays", "plan", "span")


class Given(Loops):
    """A kernel, and the words that it is given.

    Parameters
    ----------
    frame : Frame
    vector : int
        Bytes of a vector; 0: the loops stay scalar.
    """

    def __init__(self, frame: Frame, vector: int) -> None:
        super().__init__(vector)
        self.frame = frame
        self.places_of = {o.name: i for i, o in enumerate(frame.arrays)}
        self.buffers_at = {b.name: frame.buffers_at + i for i, b in enumerate(frame.buffers)}
        self.given: dict[str, str] = {}

    def word(self, memory: str, place: int, name: str) -> str:
        """Return a word that a call gives, read at the head of the function."""
        key = f"{memory}{place}"
        if key not in self.given:
            with self.heading():
                self.given[key] = self.load(f"%{memory}", self.index(place), INDEX, name=name)
        return self.given[key]

    def slot(self, place: int | str) -> str:
        """Return a word of the plan, by its name or its place."""
        if isinstance(place, str):
            return self.word("plan", HEAD.index(place), place)
        return self.word("plan", place, f"plan_{place}")

    def span(self, name: str) -> str:
        """Return a word of the span."""
        return self.word("span", SPAN.index(name), name)

    def operand(self, o: Operand) -> str:
        """Return the address of an operand."""
        if o.is_iota:
            return self.index(0)
        if o.is_table:
            o = self.frame.source_of[o.node.inputs[o.side]]
        return self.word("arrays", self.places_of[o.name], o.name + "_data")

    def buffer(self, b: Buffer) -> str:
        """Return the address of a buffer."""
        offset = self.slot(self.buffers_at[b.name])
        key = f"buffer {b.name}"
        if key not in self.given:
            start = self.span("shared" if b.shared else "own")
            with self.heading():
                self.given[key] = self.add(start, offset)
        return self.given[key]

    def buffer_of(self, prefix: str, node: Node) -> Buffer:
        """Return the buffer of `node` whose name begins with `prefix`."""
        return self.frame.buffer(prefix, node)

    def streams(self, o: Operand) -> str:
        """Return whether an output goes past the caches.

        Not what lies apart, or replaces an input that is there.
        """
        key = f"streams {o.name}"
        if key not in self.given:
            stream, output, apart = self.slot("stream"), self.operand(o), self.slot(o.at)
            inputs = [self.frame.graph.inputs[i] for i in replaced(self.frame.graph, o.node)]
            others = [self.operand(self.frame.source_of[x]) for x in inputs]
            with self.heading():
                found = self.compare("ne", stream, self.index(0))
                found = self.both(found, self.compare("eq", apart, self.index(o.itemsize)))
                for other in others:
                    found = self.both(found, self.compare("ne", output, other))
            self.given[key] = found
        return self.given[key]
