"""Texts in containers among the arguments: those that the body does not read may be others at each call."""

import copy
import json
import operator
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from mgb import Tensor, jit
from new_arguments import ONE, Batch, agree, three

WORDS = ("a", "b", "cc", "a b", "b", "1", "2.5")
TABLE = {word: float(n) for n, word in enumerate(WORDS)}


def word(n: int) -> str:
    """A new text, which is no constant of the program."""
    return "".join([*WORDS[n % len(WORDS)]])


class Named(NamedTuple):
    x: Tensor
    name: str


@dataclass
class Data:
    x: Tensor
    name: str

    def length(self) -> int:
        return len(self.name)


class Attributes(dict[str, Any]):
    """A dict whose items are attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def batch(n: int) -> dict[str, Any]:
    return {"x": three(n), "name": word(n), "ids": [f"{n}.png", word(n + 1)]}


@dataclass(order=True, unsafe_hash=True)
class Word:
    """Python has made its methods."""

    name: str


WORDS_OF = {Word(w): float(n) for n, w in enumerate(WORDS)}


def spread(x: Any, name: str, ids: Any) -> Any:
    return x * len(name)


def named(**batch: Any) -> Any:
    return batch["x"] * TABLE[batch["name"]]


def matched(b: Any) -> Any:
    match b:
        case {"name": "a", "x": x}:
            return x
        case {"name": str(name), "x": x}:
            return x * len(name)
        case _:
            return ONE


def unpacked(b: Any) -> Any:
    x, name = b
    return x * TABLE[name]


def looped(b: Any) -> Any:
    total = ONE
    for key, value in b.items():
        if key == "name":
            total = total * TABLE[value]
    return total


def kept(b: Any) -> Any:
    made = Batch(b)
    return made.x["x"] * TABLE[made.x["name"]]


def grouped(b: Any) -> Any:
    found = defaultdict(list)
    for name in b["ids"]:
        found[name[0]].append(name)
    return b["x"] * len(found)


CASES: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "unread": (batch, lambda b: b["x"] * 2),
    "an item": (batch, lambda b: b["x"] * TABLE[b["name"]]),
    "an item of a list": (batch, lambda b: b["x"] * len(b["ids"][1])),
    "from the end": (batch, lambda b: b["x"] * len(b["ids"][-1])),
    "a slice": (batch, lambda b: b["x"] * len("".join(b["ids"][1:]))),
    "get": (batch, lambda b: b["x"] * len(b.get("name", "abcdef"))),
    "values": (batch, lambda b: b["x"] * sum(len(v) for v in b.values() if isinstance(v, str))),
    "items": (batch, looped),
    "pop of a copy": (batch, lambda b: b["x"] * len(dict(b).pop("name"))),
    "a comparison": (batch, lambda b: b["x"] * (b["name"] == "a")),
    "a comparison of lists": (batch, lambda b: b["x"] * (b["ids"] == ["1.png", "cc"])),
    "in": (batch, lambda b: b["x"] * ("cc" in b["ids"])),
    "a search in a text": (batch, lambda b: b["x"] * ("b" in b["name"])),
    "an f-string": (batch, lambda b: b["x"] * len(f"{b['name']}")),
    "an f-string of all": (lambda n: {"name": word(n)}, lambda b: ONE * len(f"{b}")),
    "str": (lambda n: {"name": word(n)}, lambda b: ONE * len(str(b))),
    "percent": (lambda n: (word(n), word(n + 1)), lambda b: ONE * len("%s-%s" % b)),  # noqa: UP031
    "format": (lambda n: [word(n)], lambda b: ONE * len("{}".format(*b))),
    "format of names": (lambda n: {"name": word(n)}, lambda b: ONE * len("{name}".format(**b))),
    "join": (batch, lambda b: b["x"] * len(",".join(b["ids"]))),
    "sorted": (batch, lambda b: b["x"] * len(sorted(b["ids"])[0])),
    "max": (batch, lambda b: b["x"] * len(max(b["ids"], key=len))),
    "map": (batch, lambda b: b["x"] * sum(map(len, b["ids"]))),
    "zip": (batch, lambda b: b["x"] * sum(TABLE.get(w, 0.5) for _, w in zip(range(9), b["ids"]))),
    "enumerate": (batch, lambda b: b["x"] * sum(n * len(w) for n, w in enumerate(b["ids"]))),
    "a comprehension": (batch, lambda b: b["x"] * len({w for w in b["ids"] if w != "b"})),
    "a set": (batch, lambda b: b["x"] * len({*b["ids"], "a"})),
    "a key": (batch, lambda b: b["x"] * {b["name"]: 3.0}.get("a", 4.0)),
    "spread": (batch, lambda b: spread(**b)),
    "spread and kept": (batch, lambda b: named(**b)),
    "spread into a dict": (batch, lambda b: spread(**{**b, "ids": 0})),
    "merged": (batch, lambda b: spread(**(b | {"ids": 0}))),
    "matching": (batch, matched),
    "unpacking": (lambda n: (three(n), word(n)), unpacked),
    "unpacking a list": (lambda n: [three(n), word(n)], unpacked),
    "a starred one": (lambda n: [three(n), word(n)], lambda b: (lambda x, name: x * TABLE[name])(*b)),
    "kept in an object": (batch, kept),
    "attrgetter": (lambda n: Data(three(n), word(n)), lambda b: b.x * len(operator.attrgetter("name")(b))),
    "itemgetter": (batch, lambda b: b["x"] * len(operator.itemgetter("name")(b))),
    "a copy": (batch, lambda b: b["x"] * len(copy.copy(b)["name"])),
    "a deep copy": (batch, lambda b: b["x"] * len(copy.deepcopy(b["ids"])[1])),
    "json": (batch, lambda b: b["x"] * len(json.dumps(b["ids"]))),
    "a namespace of it": (batch, lambda b: (lambda s: s.x * len(s.name))(types.SimpleNamespace(**b))),
    "a dataclass": (lambda n: Data(three(n), word(n)), lambda b: b.x * TABLE[b.name]),
    "a method": (lambda n: Data(three(n), word(n)), lambda b: b.x * b.length()),
    "equality of a dataclass": (lambda n: [Word(word(n))], lambda b: ONE * (b[0] == Word("b"))),
    "order of a dataclass": (lambda n: [Word(word(n)), Word("b")], lambda b: ONE * len(min(b).name)),
    "hash of a dataclass": (lambda n: Word(word(n)), lambda b: ONE * WORDS_OF[b]),
    "text of a dataclass": (lambda n: Word(word(n)), lambda b: ONE * len(f"{b}")),
    "a key in an object": (lambda n: Batch(three(n), Word(word(n))), lambda b: b.x * WORDS_OF[b.y]),
    "asdict": (lambda n: Data(ONE, word(n)), lambda b: ONE * TABLE[asdict(b)["name"]]),
    "replace": (lambda n: Data(three(n), word(n)), lambda b: b.x * TABLE[replace(b, x=ONE).name]),
    "vars": (lambda n: Data(three(n), word(n)), lambda b: b.x * TABLE[vars(b)["name"]]),
    "repr": (lambda n: Data(ONE, word(n)), lambda b: ONE * len(repr(b.name))),
    "a named tuple": (lambda n: Named(three(n), word(n)), lambda b: b.x * TABLE[b.name]),
    "a named tuple's item": (lambda n: Named(three(n), word(n)), lambda b: b[0] * TABLE[b[1]]),
    "_asdict": (lambda n: Named(three(n), word(n)), lambda b: b.x * TABLE[b._asdict()["name"]]),
    "_replace": (lambda n: Named(three(n), word(n)), lambda b: b.x * TABLE[b._replace(x=ONE).name]),
    "items as attributes": (lambda n: Attributes(batch(n)), lambda b: b.x * TABLE[b.name]),
    "an ordered dict": (lambda n: OrderedDict(batch(n)), lambda b: b["x"] * TABLE[b["name"]]),
    "grouping": (batch, grouped),
    "deep": (lambda n: {"a": {"b": [{"c": word(n)}]}}, lambda b: ONE * TABLE[b["a"]["b"][0]["c"]]),
    "deep and unread": (lambda n: {"a": {"b": [{"c": word(n)}]}, "x": three(n)}, lambda b: b["x"] * 2),
    "bytes": (lambda n: {"raw": word(n).encode()}, lambda b: ONE * len(b["raw"])),
    "the same twice": (lambda n: [word(n), word(n + 3)], lambda b: ONE * (b[0] == b[1])),
    "getattr": (lambda n: [["real", "imag"][n % 2]], lambda b: ONE * getattr(3.0, b[0])),
    "a lookup": (lambda n: {"k": ["x", "y"][n % 2], "x": three(n), "y": ONE}, lambda b: b[b["k"]] * 2),
    "a loop of characters": (batch, lambda b: b["x"] * sum(1 for c in b["name"] if c == "b")),
    "a method of a text": (batch, lambda b: b["x"] * b["name"].upper().count("B")),
    "plus": (batch, lambda b: b["x"] * len(b["name"] + "-" + b["ids"][0])),
    "a direct text": (lambda n: word(n), lambda b: ONE * TABLE[b]),
    "reversed": (batch, lambda b: b["x"] * len(next(reversed(b["ids"])))),
    "iter": (batch, lambda b: b["x"] * len(next(iter(b["ids"][1:])))),
    "any": (batch, lambda b: b["x"] * any(w == "cc" for w in b["ids"])),
    "bool": (lambda n: {"name": "" if n % 2 else "a"}, lambda b: ONE if b["name"] else ONE * 2),
    "or": (lambda n: {"name": "" if n % 2 else "a"}, lambda b: ONE * len(b["name"] or "abc")),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_read_of_texts_decides(name: str, symbolic: bool) -> None:
    make, body = CASES[name]
    agree(body, make, symbolic)


@pytest.mark.parametrize("name", ["unread", "deep and unread"])
def test_texts_that_are_not_read_are_free(name: str) -> None:
    make, body = CASES[name]
    traced = jit.trace(body)
    for n in range(12):
        traced(make(n))
    assert traced.stats()["body_runs"] == 1, traced.stats()["reasons"]


def test_texts_of_a_result_are_those_of_the_call() -> None:
    traced = jit.trace(lambda b: (b["x"] * 2, b["name"], {"again": b["ids"][0]}))
    for n in (1, 1, 2, 3, 3, 1):
        given = batch(n)
        _, name, more = traced(given)
        assert (name, more) == (given["name"], {"again": given["ids"][0]})


@pytest.mark.parametrize(
    "decorate",
    [jit.partial_trace, partial(jit.xla_trace, backend="EAGER"), partial(jit.trace, run_body=False)],
)
def test_texts_decide_in_every_mode(decorate: Any) -> None:
    traced = decorate(lambda b: b["x"] * TABLE[b["name"]])
    for n in (1, 1, 2, 2, 1, 3, 3, 1, 6):
        got = traced(batch(n))
        assert got.tolist() == (batch(n)["x"] * TABLE[word(n)]).tolist()
