"""The machine code of kernels, read: its blocks, its loops, and the way that a thread of a full tile takes.

``nvdisasm`` writes it as text. Of the ways through branches that is counted on which a thread moves the most
bytes, with the fewest calls (slow paths of divisions are such) and the fewest loads and stores (at the end of
a row they are of single elements); of several the longest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from operator import add
from pathlib import Path

from mgb.runtime.forking import cached_property

INSTALL = "python -m pip install nvidia-cuda-nvdisasm (or triton, which has it)"

_HEAD = re.compile(r"^\.text\.(\S+):$")
_LABEL = re.compile(r"^(\.L_\S+|\$\S+):$")
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{ )?\s*(@!?U?P\w+ )?\s*([A-Z][\w.]*)\s*(.*?)\s*;")
_REGISTER = re.compile(r"\bR(\d+)(\.64|\.128)?\b")

#: Bytes that a thread moves by the words of a load or store.
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


@dataclass(frozen=True)
class Instruction:
    """One of them.

    Attributes
    ----------
    guard : str
        The predicate under which it is done; empty: always.
    name, operands : str
        As ``LDG.E.128`` and ``R4, desc[UR4][R12.64]``.
    target : int
        Of a branch: the number of the instruction to go on with; -1 elsewhere.
    """

    guard: str
    name: str
    operands: str
    target: int = -1

    @property
    def kind(self) -> str:
        """Its name without what is said more closely."""
        return self.name.partition(".")[0]

    @property
    def nbytes(self) -> int:
        """Return the bytes that a thread moves by it, where it is a load or store."""
        return next((_BYTES[word] for word in self.name.split(".")[1:] if word in _BYTES), 4)

    @property
    def loads(self) -> bool:
        """Return whether it reads global memory, into registers or shared memory."""
        return self.kind in ("LDG", "LDGSTS")

    @property
    def stores(self) -> bool:
        """Return whether it writes global memory."""
        return self.kind == "STG"

    @property
    def spills(self) -> bool:
        """Return whether it moves local memory."""
        return self.kind in ("LDL", "STL")

    @property
    def ends(self) -> bool:
        """Return whether nothing follows it."""
        return self.kind in ("EXIT", "RET") and not self.guard

    @property
    def always(self) -> bool:
        """Return whether a branch is taken by all threads.

        Predicates stand before it, or among its operands.
        """
        words = self.operands.split(",")
        return not self.guard and self.kind == "BRA" and len(words) == 1 and ".DIV" not in self.name

    @cached_property
    def written(self) -> frozenset[int]:
        """The registers that a load fills."""
        found = _REGISTER.match(self.operands) if self.kind == "LDG" else None
        if found is None:
            return frozenset()
        return frozenset(range(int(found[1]), int(found[1]) + max(1, self.nbytes // 4)))

    @cached_property
    def read(self) -> frozenset[int]:
        """The registers that it looks at, or writes."""
        found = set()
        wide = self.nbytes // 4 if self.stores else 1
        text = self.operands.partition(",")[2] if self.loads else self.operands
        for number, size in _REGISTER.findall(text):
            count = {"": wide, ".64": 2, ".128": 4}[size]
            found |= set(range(int(number), int(number) + count))
        return frozenset(found)


@dataclass(frozen=True)
class Region:
    """The instructions of a thread from the beginning to the end of a kernel, or once in a loop.

    Attributes
    ----------
    way : tuple of Instruction
        Without the loops inside.
    loops : tuple of Region
        Those, in order.
    """

    way: tuple[Instruction, ...]
    loops: tuple[Region, ...]

    @property
    def loaded(self) -> int:
        """Bytes of global memory that a thread reads."""
        return sum(i.nbytes for i in self.way if i.loads)

    @property
    def stored(self) -> int:
        """Bytes of global memory that a thread writes."""
        return sum(i.nbytes for i in self.way if i.stores)

    @property
    def under_way(self) -> int:
        """The most bytes that a thread has asked for and not yet used."""
        waiting: list[Instruction] = []
        most = 0
        for i in self.way:
            if i.kind in ("LDGDEPBAR", "DEPBAR"):
                waiting = [w for w in waiting if w.kind != "LDGSTS"]
            waiting = [w for w in waiting if not w.written & i.read]
            if i.loads:
                waiting.append(i)
            most = max(most, sum(w.nbytes for w in waiting))
        return most

    def walk(self) -> Iterator[Region]:
        """Yield itself and all loops inside."""
        yield self
        for loop in self.loops:
            yield from loop.walk()


def tool() -> str | None:
    """Return where ``nvdisasm`` is; None where it is not."""
    places = [shutil.which("nvdisasm") or ""]
    places += [
        os.path.join(os.environ.get(name, ""), "bin", "nvdisasm") for name in ("CUDA_PATH", "CUDA_HOME")
    ]
    for package, inside in (("triton", "backends/nvidia/bin"), ("nvidia.cu13", "bin")):
        places += [str(Path(folder, inside, "nvdisasm")) for folder in _folders(package)]
    return next((place for place in places if os.path.isfile(place)), None)


def _folders(package: str) -> Sequence[str]:
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return ()
    return list(spec.submodule_search_locations or ()) if spec else ()


def missing() -> str | None:
    """Return why machine code cannot be read here, with what mends it."""
    return None if tool() else f"nvdisasm is not installed; {INSTALL}"


@cache
def listing(image: bytes) -> str:
    """Return the machine code of an image as text.

    Raises
    ------
    RuntimeError
        There is no tool that reads it.
    """
    found = tool()
    if found is None:
        raise RuntimeError(str(missing()))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        return subprocess.run([found, "-c", file.name], check=True, capture_output=True, text=True).stdout


def kernels(image: bytes) -> dict[str, Region]:
    """Return the instructions of a thread in each kernel of an image."""
    return {name: _region(code) for name, code in _read(listing(image))}


def _read(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """Yield the instructions of each kernel."""
    name, lines, labels = "", list[tuple[str, str, str]](), dict[str, int]()
    for line in [*text.splitlines(), ".text.end:"]:
        if head := _HEAD.match(line):
            if lines:
                yield name, [_resolved(labels, *parts) for parts in lines]
            name, lines, labels = head[1], [], {}
        elif label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif found := _LINE.match(line):
            lines.append(((found[2] or "").strip(), found[3], found[4]))


def _resolved(labels: dict[str, int], guard: str, name: str, operands: str) -> Instruction:
    target = -1
    if name.startswith(("BRA", "JMP")):
        found = re.search(r"\(?(\.L_\w+)", operands)
        target = labels.get(found[1], -1) if found else -1
    return Instruction(guard, name, operands, target)


# the way through


def _worth(steps: Sequence[Instruction]) -> tuple[int, int, int, int]:
    """Return the sort key of a path: the greatest is counted."""
    moves = [i.nbytes for i in steps if i.loads or i.stores]
    return sum(moves), -sum(i.kind == "CALL" for i in steps), -len(moves), len(steps)


def _region(code: list[Instruction]) -> Region:
    return _Flow(code).region(0, frozenset(), None)


class _Flow:
    """The blocks of a kernel, and how one follows another."""

    def __init__(self, code: list[Instruction]) -> None:
        heads = {0} | {i.target for i in code if i.target >= 0}
        heads |= {k + 1 for k, i in enumerate(code) if i.target >= 0 or i.kind in ("EXIT", "RET")}
        starts = sorted(h for h in heads if h < len(code))
        ends = [*starts[1:], len(code)]
        self.blocks = {a: code[a:b] for a, b in zip(starts, ends, strict=True)}
        self.next = {a: self._after(code, a, b) for a, b in zip(starts, ends, strict=True)}
        self.order = self._ordered()
        self.dominators = self._dominators()
        self.bodies = self._bodies()

    def _after(self, code: list[Instruction], first: int, end: int) -> tuple[int, ...]:
        last = code[end - 1]
        if last.ends:
            return ()
        follows = (end,) if end < len(code) else ()
        if last.target < 0:
            return follows
        return (last.target,) if last.always else (*follows, last.target)

    def _ordered(self) -> list[int]:
        """Return blocks that are reached, each before those that follow it, loops aside."""
        found: list[int] = []
        seen = {0}
        stack = [(0, iter(self.next[0]))]
        while stack:
            block, rest = stack[-1]
            for b in rest:
                if b not in seen:
                    seen.add(b)
                    stack.append((b, iter(self.next[b])))
                    break
            else:
                found.append(block)
                stack.pop()
        return found[::-1]

    def _dominators(self) -> dict[int, set[int]]:
        every = set(self.order)
        before: dict[int, list[int]] = {b: [] for b in every}
        for b in self.order:
            for after in self.next[b]:
                before[after].append(b)
        found = {b: {0} if b == 0 else set(every) for b in self.order}
        changed = True
        while changed:
            changed = False
            for b in self.order[1:]:
                new = {b} | set.intersection(*(found[p] for p in before[b]))
                changed |= new != found[b]
                found[b] = new
        self.before = before
        return found

    def _bodies(self) -> dict[int, set[int]]:
        """Map the first block of each loop to all its blocks."""
        found: dict[int, set[int]] = {}
        for b in self.order:
            for head in self.next[b]:
                if head in self.dominators[b]:
                    body, rest = found.setdefault(head, {head}), [b]
                    while rest:
                        x = rest.pop()
                        if x not in body:
                            body.add(x)
                            rest += self.before[x]
        return found

    def region(self, head: int, outer: frozenset[int], body: set[int] | None) -> Region:
        """Return the instructions from `head` on: to the end, or once around the loop with this body."""
        inside = set(self.order) if body is None else body
        heads = [h for h in self.bodies if h in inside and h != head and h not in outer]
        # the outermost of those in between
        heads = [h for h in heads if not any(h in self.bodies[o] for o in heads if o != h)]
        loops = {h: self.region(h, outer | {head}, self.bodies[h]) for h in heads}
        member = {b: h for h in heads for b in self.bodies[h]}
        best: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {head: ((0, 0, 0, 0), ())}
        finished = []
        order = [b for b in self.order if b in inside and member.get(b, b) == b]
        for b in order:
            if b not in best:
                continue
            worth, way = best[b]
            region = loops.get(b)
            steps = self.blocks[b] if region is None else [i for r in region.walk() for i in r.way]
            found = (tuple(map(add, worth, _worth(steps))), (*way, b))
            blocks = {b} if region is None else self.bodies[b]
            nexts = {n for x in blocks for n in self.next[x]} - blocks
            leaves = [n for n in nexts if n in inside and n != head]
            if len(leaves) < len(nexts) or not nexts:
                finished.append(found)
            for n in leaves:
                if n not in best or found[0] > best[n][0]:
                    best[n] = found
        _, way = max(finished, key=lambda f: f[0])
        straight = [i for b in way if b not in loops for i in self.blocks[b]]
        return Region(tuple(straight), tuple(loops[b] for b in way if b in loops))
