"""What Python does with a length: in a call that is recorded as in any other, values and types alike."""

from __future__ import annotations

import importlib.util
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace

IMPORTS = """\
import bisect, cmath, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq, io, itertools
import json, math, operator, pickle, statistics, string, struct, sys, textwrap, types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
import numpy as np
KEPT = []
Two = namedtuple("Two", "a b")
@dataclasses.dataclass(frozen=True)
class Frozen:
    n: object
class Plain:
    def __init__(self, n): self.n = n
class Slots:
    __slots__ = ("n",)
    def __init__(self, n): self.n = n
@functools.singledispatch
def dispatched(v): return "object"
@dispatched.register
def _(v: int): return "int"
def matched(n):
    match n:
        case int(): return "int"
    return "other"
"""
#: Expressions over a length ``n``, one a line or separated by `` ; ``.
EXPRESSIONS = """
-n ; +n ; ~n ; not n ; abs(n) ; n + 1 ; 1 + n ; n - 9 ; 9 - n ; n * 2 ; 2 * n ; n // 2 ; 7 // n ; n % 3
7 % n ; n / 2 ; 7 / n ; n / n ; n ** 2 ; n ** 0 ; n ** -1 ; n ** 0.5 ; 2 ** n ; n ** n ; n ** 9 ; n + True
n * False ; n - n ; divmod(n, 3) ; divmod(17, n) ; divmod(n, 2.5) ; divmod(7.5, n) ; pow(n, 2) ; pow(2, n)
pow(n, 2, 5) ; pow(3, n, 7) ; pow(3, 2, n) ; n & 6 ; 6 & n ; n | 8 ; 8 | n ; n ^ 5 ; 5 ^ n ; n << 2
1 << n ; n >> 1 ; 1024 >> n ; n & n ; n << n ; n * 1.5 ; 1.5 * n ; n + 1j ; n % 2.5 ; 7.5 // n ; n == 4
4 == n ; n != 4 ; n < 4.5 ; 4.5 < n ; n == "a" ; n != None ; n == 4.0 ; n is None ; 2 < n < 5 ; n and 7
n or 7 ; 1 if n else 2 ; [n, n] == [3, 3] ; (n,) < (4,) ; n in (3, 5) ; n in [3, 5] ; n in {3, 5}
n in {3: 1} ; n in range(4) ; n.bit_length() ; n.bit_count() ; n.conjugate() ; n.real ; n.imag
n.numerator ; n.denominator ; n.as_integer_ratio() ; n.to_bytes(2, "little") ; n.__add__(2)
n.__index__() ; int.__add__(n, 2) ; int.__mul__(7, n) ; int.to_bytes(n, 2, "big") ; int.bit_length(n)
n.__class__ ; n.__eq__(3) ; n.__lt__("a") ; n.__bool__() ; n.__float__() ; n.__hash__() ; n.__str__()
n.__format__("x") ; type(n) ; type(n) is int ; type(n) == int ; type(n)(5) ; type(n).__name__
isinstance(n, int) ; isinstance(n, (str, int)) ; isinstance(n, float) ; issubclass(type(n), int)
hasattr(n, "terms") ; hasattr(n, "value") ; getattr(n, "sizes", 5) ; hasattr(n, "bit_length")
setattr(n, "a", 1) ; callable(n) ; dispatched(n) ; matched(n) ; sys.getsizeof(n) ; dir(n) == dir(3)
hash(n) ; hash((n, 1)) ; hash(Frozen(n)) ; id(n) == id(n) ; bool(n - 3) ; int(n) ; float(n)
complex(n, n) ; str(n) ; repr(n) ; ascii(n) ; bin(n) ; oct(n) ; hex(n) ; chr(n + 60) ; bytes(n)
bytearray(n) ; bytes([n]) ; format(n, "4d") ; round(n) ; round(n, -1) ; sum([n, n]) ; max(n, 4)
min(n, 4) ; max([n, 2]) ; sorted([n, 4, 2]) ; range(n) ; range(1, n) ; range(0, 20, n) ; list(range(n))
[*range(n)] ; slice(n) ; slice(1, n) ; slice(0, 9, n) ; [slice(0, n)] ; slice((n, 1), 2) ; len(n)
iter(n) ; sum(n) ; set(n) ; list(n) ; reversed(n) ; n[0] ; n @ 2 ; "a" + n ; n + "a" ; n + None ; ord(n)
{n: 1} ; {"a": n} ; {(n, 2): 1} ; {n, 100} ; frozenset([n]) ; {(n,)} ; (n, 6)
[n, (n + 1, [n * 2, {"a": n // 2}])] ; Frozen(n) ; Frozen((n, [n])) ; vars(Plain(n)) ; Slots(n).n
Two(n, 2) ; Two(n, 2)._asdict() ; Two(0, 1)._replace(a=n) ; dataclasses.asdict(Frozen(n))
dataclasses.astuple(Frozen(n)) ; dataclasses.replace(Frozen(1), n=n) ; repr(Frozen(n)) ; deque([n])
deque(range(9), maxlen=n) ; Counter([n, n]) ; Counter({"a": n}) ; OrderedDict([(n, n)])
ChainMap({n: n}).maps ; defaultdict(int, {n: n}) ; vars(types.SimpleNamespace(n=n))
types.MappingProxyType({n: n}) ; Counter(a=n).total() ; f"{n}" ; f"{n:03d}" ; f"{n!r}" ; f"{1:{n}}"
"%d %s" % (n, n) ; "%x" % n ; "{:>5}".format(n) ; ",".join(map(str, [n])) ; "{a}".format_map({"a": n})
"ab" * n ; n * "ab" ; [1] * n ; n * [1] ; (1,) * n ; "7".zfill(n) ; "a".center(n) ; b"a" * n
"abcdefghijklm"[n] ; "abcdefghijklm"[:n] ; list(range(20))[1:n] ; list(range(20))[::n]
list(range(20))[n] ; list(range(20)).index(n) ; [1, 3, 4].count(n) ; list(range(20)).pop(n)
range(20).index(n) ; {3: "a"}.get(n, "c") ; {3: "a"}.setdefault(n, n) ; str([n]) ; str({n: n})
repr((n, 1)) ; int(str(n)) ; int("11", n) ; "a\\tb".expandtabs(n) ; json.dumps({"n": n, "l": [n]})
json.dumps({n: 1}) ; json.dumps(n) ; pickle.loads(pickle.dumps([n, {n: n}])) ; pickle.dumps(n)
copy.copy(n) ; copy.deepcopy(n) ; copy.deepcopy([n, (n,)]) ; copy.copy([n]) ; struct.pack("<i", n)
struct.pack("B", n) ; fractions.Fraction(n) ; fractions.Fraction(1, n) ; fractions.Fraction(1, 2) + n
n * fractions.Fraction(1, 2) ; decimal.Decimal(n) ; decimal.Decimal("0.5") + n
n * decimal.Decimal("0.5") ; decimal.Decimal("3.5") < n ; math.sqrt(n) ; math.isqrt(n) ; math.floor(n)
math.ceil(n) ; math.trunc(n) ; math.gcd(n, 12) ; math.lcm(n, 12) ; math.factorial(n) ; math.comb(9, n)
math.prod([n, 2]) ; math.fsum([n, 0.5]) ; math.log(n) ; math.log(100, n) ; math.pow(n, 2)
math.ldexp(1.0, n) ; math.copysign(n, -1) ; math.hypot(n, 3) ; math.dist([n], [1]) ; cmath.sqrt(n)
math.modf(n) ; math.isclose(n, 4) ; statistics.mean([n, 4]) ; statistics.median([n, 1, 9])
operator.index(n) ; operator.add(n, 1) ; operator.truth(n) ; operator.not_(n)
operator.itemgetter(n)(list(range(20))) ; functools.reduce(operator.mul, [n, 2, 3])
functools.partial(pow, n)(2) ; list(itertools.accumulate([n, 1])) ; list(itertools.repeat(7, n))
list(itertools.islice(range(20), n)) ; next(itertools.count(n)) ; list(zip([n], [1]))
list(enumerate([5, 6], n)) ; list(map(int, [n])) ; list(filter(None, [n, 0]))
bisect.bisect([1, 3, 5, 7], n) ; heapq.nsmallest(n, range(20)) ; any(v == n for v in (3, 4))
[n + i for i in range(2)] ; {n + i: i for i in range(2)} ; {n + i for i in range(2)}
tuple(n for _ in range(2)) ; (lambda *a: a)(n, n) ; (lambda **k: k)(a=n) ; [m := n + 1, m] ; (lambda: n)()
(lambda m=n: m)() ; datetime.timedelta(days=n) ; datetime.date(2020, n, 1)
textwrap.wrap("aaa bbb", n + 5) ; io.StringIO("abcdefgh").read(n) ; string.Template("$a").substitute(a=n)
np.int64(3) < n ; n < np.int64(4) ; np.arange(n) ; np.zeros((n, 2)) ; np.full(2, n) ; np.array(n)
np.array([n, 1]) ; np.int64(n) ; np.float32(n) ; np.eye(n) ; np.arange(20)[n] ; np.arange(20)[:n]
np.arange(n * 2).reshape(n, 2) ; np.arange(3) + n ; n + np.arange(3) ; np.ndim(n) ; np.float64(2) * n
n * np.float64(2) ; np.int64(2) * n ; n * np.int64(2) ; np.sqrt(n) ; np.prod((n, 2)) ; np.isscalar(n)
np.tile([1, 2], n) ; np.repeat(1, n) ; np.uint8(n) ; np.array([n, None], object) ; np.clip(n, 0, 4)
np.maximum(n, 4)
"""
LENGTHS = (3, 5, 3, 4)


def groups() -> list[list[str]]:
    """The expressions, a line or two together."""
    lines = [line.split(" ; ") for line in EXPRESSIONS.splitlines() if line]
    return [lines[i] + (lines[i + 1] if i + 1 < len(lines) else []) for i in range(0, len(lines), 2)]


def text_of(name: str, expressions: list[str], end: str) -> Iterator[str]:
    yield from (f"def {name}(x):", " n = x.shape[0]", " found = {}")
    for expression in expressions:
        yield from (" try:", f"  found[{expression!r}] = {expression}")
        yield from (" except Exception as error:", f"  found[{expression!r}] = (type(error), str(error))")
    yield f" {end}"


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A file with functions that return what the expressions give, and such as keep it outside."""
    path: Path = tmp_path_factory.mktemp("bodies") / "bodies_of_expressions.py"
    lines = [IMPORTS]
    for number, group in enumerate(groups()):
        lines += text_of(f"returned_{number}", group, "return x * 2.0, found")
        lines += text_of(f"kept_{number}", group, "KEPT.append(found); return x * 2.0, None")
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(value: Any) -> Any:
    """A value with all the types in it, to be compared."""
    kind: Any = type(value)
    if isinstance(value, (list, tuple, deque)):
        return kind, getattr(value, "maxlen", None), [shown(v) for v in value]
    if isinstance(value, (dict, MappingProxyType)):
        return kind, [(shown(k), shown(v)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return kind, sorted((shown(v) for v in value), key=str)
    if isinstance(value, (slice, range)):
        return kind, shown((value.start, value.stop, value.step))
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape, [shown(v) for v in value.flat]
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return kind, shown(vars(value))
    return kind, repr(value) if kind.__repr__ is not object.__repr__ else None


@pytest.mark.parametrize("options", [{}, {"run_body": True}], ids=str)
@pytest.mark.parametrize("number", range(len(groups())))
def test_returned_length_expressions_match_python(
    bodies: ModuleType, number: int, options: dict[str, Any]
) -> None:
    body: Callable[..., Any] = getattr(bodies, f"returned_{number}")
    traced = trace(body, **options)
    for length in LENGTHS:
        x = tensor(np.ones((length, 2), np.float32))
        (_, wanted), (_, found) = body(x), traced(x)
        for expression in wanted:
            assert shown(found[expression]) == shown(wanted[expression]), (expression, length)


@pytest.mark.parametrize("options", [{}, {"run_body": True}], ids=str)
@pytest.mark.parametrize("number", range(len(groups())))
def test_externally_stored_length_expressions_match_python(
    bodies: ModuleType, number: int, options: dict[str, Any]
) -> None:
    body: Callable[..., Any] = getattr(bodies, f"kept_{number}")
    traced = trace(body, **options)
    for length in LENGTHS:
        x = tensor(np.ones((length, 2), np.float32))
        bodies.KEPT.clear()
        body(x), traced(x)
        wanted, found = bodies.KEPT
        for expression in wanted:
            assert shown(found[expression]) == shown(wanted[expression]), (expression, length)


class Held:
    """What bodies write to."""

    rows: Any = None
    table: Any = None


def test_lengths_written_to_external_objects_are_plain_integers() -> None:
    held, table, rows = Held(), {}, [None]

    @trace
    def step(x: Any) -> Any:
        held.rows, held.table = x.shape[0], {x.shape[0]: x.shape}
        table["rows"] = x.shape[0]
        table.update(columns=x.shape[1])
        rows[0] = [x.shape[0] + 1]
        rows.extend(x.shape)
        setattr(held, "also", x.shape[0])  # noqa: B010 - one more way
        return x * 2.0

    for length in LENGTHS:
        del rows[1:]
        step(tensor(np.ones((length, 2), np.float32)))
        assert shown([held.rows, held.table, held.also]) == shown([length, {length: (length, 2)}, length])
        assert shown([table, rows]) == shown([{"rows": length, "columns": 2}, [[length + 1], length, 2]])


class Private:
    """Its slot has a name that only the class itself knows."""

    __slots__ = ("__rows", "__weakref__")

    def __init__(self, rows: int) -> None:
        self.__rows = rows

    def rows(self) -> int:
        return self.__rows


class Taken:
    """It names slots that it has not: what they are of another class is a TypeError when it is asked."""

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows


Taken.__weakref__ = Private.__weakref__  # type: ignore[attr-defined]


def test_lengths_stored_in_slots_are_plain_integers() -> None:
    kept: list[Any] = []

    @trace
    def step(x: Any) -> Any:
        kept.extend((Private(x.shape[0]), *map(Taken, x.shape)))
        return x * 2.0

    for length in LENGTHS:
        kept.clear()
        step(tensor(np.ones((length, 2), np.float32)))
        assert shown([kept[0].rows(), *(one.rows for one in kept[1:])]) == shown([length, length, 2])


def test_returned_lengths_do_not_retrace() -> None:
    @trace
    def measured(x: Any) -> Any:
        return [x * 2.0, x.shape[0], {"shape": x.shape, "half": x.shape[0] // 2}, (x.size + 1,)]

    for length in (3, 5, 8, 13):
        _, *found = measured(tensor(np.ones((length, 2), np.float32)))
        wanted = [length, {"shape": (length, 2), "half": length // 2}, (2 * length + 1,)]
        assert shown(found) == shown(wanted)
    assert measured.stats()["body_runs"] == 2


def test_expressions_are_unique_and_complete() -> None:
    listed = list(itertools.chain(*groups()))
    assert len(listed) == len(set(listed)) > 280


def test_lengths_written_before_an_exception_are_plain_integers() -> None:
    seen: list[Any] = []

    @trace
    def fail(x: Any) -> Any:
        seen.append(x.shape)
        raise KeyError("of the body")

    for n in (2, 3):
        with pytest.raises(KeyError):
            fail(tensor(np.ones((n, 4), np.float32)))
    assert seen == [(2, 4), (3, 4)] and {type(d) for shape in seen for d in shape} == {int}


def test_appending_shapes_to_an_external_list_does_not_retrace() -> None:
    seen: list[Any] = []

    @trace
    def note(x: Any) -> Any:
        seen.append(x.shape)
        return x * 2

    for n in (2, 3, 4, 5):
        assert note(tensor(np.ones((n, 4), np.float32))).shape == (n, 4)
    assert seen == [(n, 4) for n in (2, 3, 4, 5)] and note.stats()["records"] == 2
