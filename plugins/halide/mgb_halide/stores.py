"""When and how outputs are written, for which Halide has no words.

In LLVM's text of a compiled pipeline the stores to outputs are found by their aliasing metadata, which bears
the name of the function. They are put at the end of their block. So all of a turn of the loop is computed
before any of it is written, perhaps over what it is computed from, which LLVM takes for other memory.

Vectors may go past the caches: a usual store reads its cache line first, which is a third of what a kernel
moves that reads one array and writes one. They do where `call.c` says so, and their places are aligned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .bridge import PLAIN

#: The fewest bytes of a vector that is worth it, and those of a cache line, to which wider ones are aligned.
LEAST, LINE = 16, 64

_ACCESS = re.compile(r"^(!\d+) = !\{(!\d+), !\d+, i64 0\}$", re.M)
_NAME = re.compile(r'^(!\d+) = !\{!"([^"]+)", !\d+, i64 0\}$', re.M)
_TBAA = r", !tbaa (?P<access>!\d+)"
_STORE = re.compile(rf"^  store (?P<type><[^>]*>|\w+) (?P<value>.+), ptr (?P<place>\S+), align \d+{_TBAA}")
_MASKED = re.compile(
    rf"^  (?:tail )?call void @llvm\.masked\.(?:store|scatter)\.\S+\((?P<type><[^>]*>) .*{_TBAA}"
)
_END = re.compile(r"^  (?:br|ret|switch|unreachable|indirectbr)\b")

_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


class TurnBroken(Exception):
    """Of several outputs, one is written before another is computed."""


@dataclass(frozen=True, slots=True)
class _Store:
    """A line of text that writes to the output `name`: so many elements; a whole vector has a `place`."""

    line: str
    name: str
    type_: str
    count: int
    value: str = ""
    place: str = ""

    @property
    def size(self) -> int:
        """The bytes of a whole vector that may go past the caches, else 0."""
        element = self.type_.rstrip(">").rpartition(" ")[2]
        size = self.count * _BYTES.get(element, 0) if self.place and self.type_.startswith("<") else 0
        return size if size >= LEAST and size & (size - 1) == 0 else 0


def written(text: str, streamed: Collection[str], turns: Sequence[Collection[str]]) -> str:
    """Return LLVM's text of a pipeline with its stores as described above.

    Parameters
    ----------
    text : str
    streamed : collection of str
        The functions whose vectors may go past the caches.
    turns : sequence of collections of str
        Those that are written together: elements of one, and the same ones of the others.

    Raises
    ------
    TurnBroken
        They are not, or no store to one of them is found.
    """
    names = {name for group in (streamed, *turns) for name in group}
    bases = {number: name.partition(".width")[0] for number, name in _NAME.findall(text)}
    outputs = {a: bases[b] for a, b in _ACCESS.findall(text) if bases.get(b) in names}
    functions: dict[str, str] = {}
    lines: list[str] = []
    stores: list[_Store] = []
    missing = {name for turn in turns for name in turn}
    for line in text.split("\n"):
        if found := _store(line, outputs):
            stores.append(found)
            missing.discard(found.name)
            continue
        if stores and _END.match(line):
            _check(stores, turns)
            lines.extend(_ordered(stores, streamed, functions))
            stores = []
        lines.append(line)
    if missing:
        raise TurnBroken(f"no store to {', '.join(sorted(missing))} is found")
    declared = [f"@{PLAIN} = external global i64"] if functions else []
    return "\n".join([*lines, *declared, *functions.values()])


def _store(line: str, outputs: dict[str, str]) -> _Store | None:
    found = _STORE.match(line) or _MASKED.match(line)
    if found is None or found["access"] not in outputs:
        return None
    width = re.match(r"<(\d+) x ", found["type"])
    given = found.groupdict()
    count, value, place = int(width[1]) if width else 1, given.get("value", ""), given.get("place", "")
    return _Store(line, outputs[found["access"]], found["type"], count, value, place)


def _check(stores: Sequence[_Store], turns: Sequence[Collection[str]]) -> None:
    counts: Counter[str] = Counter()
    for store in stores:
        counts[store.name] += store.count
    for turn in turns:
        if len({counts[name] for name in turn}) > 1:
            raise TurnBroken(f"a block writes {dict(counts)} of {', '.join(sorted(turn))}")


def _ordered(stores: Sequence[_Store], streamed: Collection[str], functions: dict[str, str]) -> Iterator[str]:
    """Yield the stores of one block, in `functions` what they call."""
    past = [s for s in stores if s.name in streamed and s.size]
    yield from (s.line for s in stores if s not in past)
    if past:
        name = "mgb.store." + ".".join(re.sub(r"\W+", "", s.type_) for s in past)
        functions.setdefault(name, _function(name, past))
        yield f"  call void @{name}({', '.join(f'{s.type_} {s.value}, ptr {s.place}' for s in past)})"


def _function(name: str, stores: Sequence[_Store]) -> str:
    """Emit the function that writes so many vectors, past the caches or not."""
    values = ", ".join(f"{s.type_} %value{k}, ptr %place{k}" for k, s in enumerate(stores))
    head = [f"define internal void @{name}({values}) alwaysinline {{", f"  %bits = load i64, ptr @{PLAIN}"]
    last = "%bits"
    for k, s in enumerate(stores):
        head.append(f"  %address{k} = ptrtoint ptr %place{k} to i64")
        head.append(f"  %over{k} = and i64 %address{k}, {min(s.size, LINE) - 1}")
        head.append(f"  %bits{k} = or i64 {last}, %over{k}")
        last = f"%bits{k}"
    choice = [f"  %past = icmp eq i64 {last}, 0", "  br i1 %past, label %aligned, label %usual"]
    both = []
    for label, hint in (("aligned", ", !nontemporal !{i32 1}"), ("usual", "")):
        both.append(f"{label}:")
        for k, s in enumerate(stores):
            align = min(s.size, LINE) if hint else 1
            both.append(f"  store {s.type_} %value{k}, ptr %place{k}, align {align}{hint}")
        both.append("  ret void")
    return "\n".join([*head, *choice, *both, "}"])
