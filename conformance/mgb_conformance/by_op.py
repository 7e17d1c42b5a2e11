"""The end of a run, op by op: what passed, what was skipped and why, and which word would gain most."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: The parameters of tests that are names of ops.
PARAMETERS = ("name", "op", "word")

_WORDS = re.compile(r"traits\.vocabulary has no (.+)")


@dataclass
class Tally:
    """The tests of one op.

    Attributes
    ----------
    passed, failed : int
    skipped : Counter
        By the reason.
    """

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, reason: str) -> None:
        """Count one more test, and why it was skipped."""
        if outcome == "skipped":
            self.skipped[reason] += 1
        elif outcome == "failed":
            self.failed += 1
        else:
            self.passed += 1


def tallies(tests: Iterable[Mapping[str, str]]) -> dict[str, Tally]:
    """Count by op the tests with ``op``, ``outcome`` and ``reason``; those of no op are left out."""
    found: dict[str, Tally] = {}
    for test in tests:
        if test.get("op"):
            found.setdefault(test["op"], Tally()).add(test["outcome"], test["reason"])
    return dict(sorted(found.items()))


def words_by_gain(reasons: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return missing ops, with the skipped tests that each lets run after those before, and all that need it.

    The order is greedy: a word that lets most tests run comes first, of equal ones the one that most want.
    """
    wanting = [frozenset(m[1].split(", ")) for reason in reasons if (m := _WORDS.fullmatch(reason))]
    total = Counter(word for words in wanting for word in words)
    left, found = wanting, []
    while left:
        gains = Counter(next(iter(words)) for words in left if len(words) == 1)
        word = max(sorted(total.keys() - {w for w, _, _ in found}), key=lambda w: (gains[w], total[w]))
        found.append((word, gains[word], total[word]))
        left = [rest for words in left if (rest := words - {word})]
    return found


def lines(tests: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the table for a terminal: ops of which the same is to be said stand together."""
    same: dict[tuple[int, str], list[str]] = {}
    found = tallies(tests)
    for op, tally in found.items():
        same.setdefault((tally.failed, _why(tally)), []).append(op)
    for (failed, why), ops in sorted(same.items(), key=lambda item: (item[0][0], len(item[1]))):
        passed, skipped = (sum(count(found[op]) for op in ops) for count in _COUNTS)
        said = [f"{passed} passed", *([f"{failed * len(ops)} failed"] if failed else [])]
        said += [f"{skipped} skipped: {why}"] if skipped else []
        yield f"{len(ops)} op{'s' * (len(ops) > 1)}, {', '.join(said)}"
        yield from _paragraph(ops)
    gains = words_by_gain(t["reason"] for t in tests if t["outcome"] == "skipped")
    if gains:
        yield "missing words; the skipped tests that each lets run after those before it (that want it):"
        yield from _paragraph([f"{word} +{gain} ({total})" for word, gain, total in gains])


_COUNTS = (lambda tally: tally.passed, lambda tally: tally.skipped.total())


def _paragraph(words: Iterable[str]) -> list[str]:
    return textwrap.wrap(", ".join(words), 100, initial_indent="  ", subsequent_indent="  ")


def markdown(tests: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the same for a page, every op in the table."""
    yield from ("| op | passed | failed | skipped | why |", "| --- | --- | --- | --- | --- |")
    for op, t in tallies(tests).items():
        yield f"| `{op}` | {t.passed} | {t.failed} | {t.skipped.total()} | {_why(t)} |"
    gains = words_by_gain(t["reason"] for t in tests if t["outcome"] == "skipped")
    if gains:
        yield from (
            "",
            "| missing word | tests that it lets run | tests that want it |",
            "| --- | --- | --- |",
        )
        yield from (f"| `{word}` | {gain} | {total} |" for word, gain, total in gains)


def _why(tally: Tally) -> str:
    """Return the reasons, the most frequent first; dtypes that are not claimed as one."""
    dtypes = [r for r in tally.skipped if r.startswith("traits.dtypes has no ")]
    names = sorted({n for r in dtypes for n in r.removeprefix("traits.dtypes has no ").split(", ")})
    reasons = [r for r, _ in tally.skipped.most_common() if r not in dtypes]
    return "; ".join([*reasons, *([f"traits.dtypes has no {', '.join(names)}"] if names else [])])
