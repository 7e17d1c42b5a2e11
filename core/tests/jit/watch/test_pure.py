"""What stays inside of a body, or is undone by it, keeps it pure."""

from __future__ import annotations

import pytest
from mgb.jit.watch import Observer
from watch_cases import Case, cases, is_pure, is_seen, is_told, module_of


@pytest.mark.parametrize(
    "case",
    cases("""
### local data
def f():
    xs, d, s = [], {}, set()
    for i in range(5):
        xs.append(i); d[i] = i * 2; s.add(i)
    xs.sort(reverse=True); d.update(a=1); s |= {9}
    xs[0] += 1; del d[1]; xs += [1, 2]
    return xs, d, len(s)
### objects made here
class A:
    def __init__(self): self.n = 0; self.xs = []
    def add(self, x): self.n += x; self.xs.append(x); return self
def f():
    a = A()
    a.add(1).add(2)
    a.extra = 5
    a.xs[0] = 7
    return a.n, a.xs, a.extra
### generator made here
def g():
    n = 0
    while n < 3:
        n += 1
        yield n
def f():
    it = g()
    return next(it), next(it), list(it)
### counter in a closure made here
def make():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    return inc
def f():
    inc = make()
    return inc(), inc()
### exception made here
class Mine(Exception):
    def __init__(self, x): super().__init__(x); self.x = x
def f():
    try:
        raise Mine(3)
    except Mine as e:
        e.seen = True
        return e.x
### NumPy here
def f():
    a = np.zeros(4)
    a[1] = 2; a += 1; a.sort(); np.add(a, 1, out=a)
    b = a[1:]
    b[0] = 5
    return a.tolist(), float(b.sum())
### copy written
xs = [1, 2]
d = {"a": 1}
def f():
    ys = list(xs); zs = xs[:]; e = dict(d); g = d.copy(); h = [*xs]
    ys.append(1); zs.append(2); e["b"] = 1; g["c"] = 1; h.append(3)
    return ys, zs, e, g, h
### dataclass
@dataclass
class P:
    x: int
    xs: list = field(default_factory=list)
def f():
    p = P(1)
    p.xs.append(2)
    p.x += 1
    return p.x, p.xs, P(1) == P(1)
### namedtuple
P = namedtuple("P", "x y")
def f():
    p = P(1, y=2)
    a, b = p
    return p.x + a + b, p._replace(x=5).x
### defaultdict and Counter
def f():
    d = defaultdict(list)
    d["a"].append(1)
    c = Counter("aab")
    c["z"] += 1
    q = deque([1]); q.append(2); q.popleft()
    o = OrderedDict(); o["a"] = 1; o.move_to_end("a")
    return dict(d), c["a"], list(q), list(o)
### functools and itertools
def f():
    add = functools.partial(operator.add, 1)
    total = functools.reduce(lambda a, b: a + b, map(add, itertools.chain([1], [2])))
    return total, list(itertools.product("ab", [1]))
### finally and with
@contextmanager
def doing(log):
    log.append("in")
    try: yield log
    finally: log.append("out")
def f():
    log = []
    with doing(log) as l, suppress(KeyError):
        l.append("body")
        raise KeyError
    return log
### property setter
class A:
    def __init__(self): self._x = 0
    @property
    def x(self): return self._x
    @x.setter
    def x(self, v): self._x = v
def f():
    a = A(); a.x = 3; a.x += 1
    return a.x
### match
def g(x):
    match x:
        case {"a": [1, *rest], **more}: return rest, more
        case (1, y) | [y]: return y
        case str() | None: return "s"
        case _ if x > 2: return "big"
def f(): return [g(v) for v in ({"a": [1, 2], "b": 3}, (1, 5), "t", None, 7)]
### enum lookup
class E(Enum):
    A = 1
    B = 2
def f(): return E(1) is E.A, E["B"].value, [e.name for e in E], E.A in (E.A, E.B)
### metaclass
class M(type):
    def __new__(cls, name, bases, ns): return super().__new__(cls, name, bases, ns)
class A(metaclass=M):
    def m(self): return 1
def f(): return A().m(), type(A()).__name__
### re and copy and string methods
def f():
    xs = copy.deepcopy([[1], [2]])
    xs[0].append(3)
    return xs, re.sub("a+", "b", "caat")
### message that nobody wants
log = logging.getLogger("watched_quiet")
def f(): log.debug("x %s", 1)
### kept by plain arguments
@cache
def g(n): return n * 2
@lru_cache
def h(*, n): return n
def f(): return g(3), g(3)
### kept by classes and modules of libraries
@lru_cache
def g(kind, module): return issubclass(kind, np.number), module.__name__
def f(): return g(np.float32, np)
### json
def f(): return json.loads(json.dumps({"a": [1, None, "t"]}, indent=1))["a"]
### classes made here
def f():
    P = namedtuple("P", "u v")
    return P(1, 2).v, Counter("aab").most_common(1), ChainMap({"a": 1}, {"b": 2})["b"]
### contexts
def f():
    with ExitStack() as stack, suppress(KeyError):
        stack.enter_context(nullcontext())
        return {}["a"]
    return 3
### getters
class A:
    x = 1
    def m(self): return 2
def f():
    first = itemgetter(0)
    return attrgetter("x")(A()), first([1]), methodcaller("m")(A()), sorted([[2], [1]], key=first)
### dataclass as a text
@dataclass
class C:
    n: int = 1
def f(): return f"{C()}", repr(replace(C(), n=2)), asdict(C(3))
### heaps, dates, streams and classes made here
def f():
    heap, text, table = [3, 1], io.StringIO(), {}
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    text.write("ab")
    operator.setitem(table, "a", 1)
    @dataclass
    class C: n: int = 2
    return heapq.heappop(heap), text.getvalue(), table, C().n, timedelta(days=2), os.path.join("a", "b")
### exception that mgb raises
x = mgb.tensor([1.0, 2.0])
def f():
    try: x.reshape(3)
    except Exception as error: return type(error).__name__, len(error.args)
"""),
)
def test_local_effects_are_pure(case: Case) -> None:
    is_pure(case)


@pytest.mark.parametrize(
    "case",
    cases("""
### the same value written
a = A(); a.steps, a.parts = 5, [1]
k = 5
def f():
    a.steps = k
    a.parts = a.parts
    return a.steps
### the same global and element
k, d, xs = 3, {"a": None}, [1.0]
def f():
    global k
    k = 3
    d["a"] = None
    xs[0] = 1.0
    return k, d["a"], xs[0]
"""),
)
def test_rewriting_the_same_value_is_pure(case: Case) -> None:
    is_pure(case)


@pytest.mark.parametrize(
    "case",
    cases("""
### written and put back
a = A(); a.x, a.y = 2, 1
def f():
    old = a.x
    a.x = 7
    y = a.x + old + a.y
    a.x = old
    return y
#-> a.x = 3
### global written and put back
k = 2
def f():
    global k
    k += 1
    y = k
    k -= 1
    return y
#-> k = 5
### element written and put back
d = {"a": 1}
def f():
    old, d["a"] = d["a"], 5
    try: return d["a"] + old
    finally: d["a"] = old
#-> d["a"] = 2
"""),
)
def test_restored_writes_are_guarded(case: Case) -> None:
    is_seen(case)


@pytest.mark.parametrize(
    "case",
    cases("""
### attribute written and left
a = A(); a.x = 1
def f(): a.x = 2
#-> attribute x
### element removed and put back
d = {"a": 1, "b": 2}
def f():
    del d["a"]
    d["a"] = 1
#-> an element
### attribute that was not there
class A: x = 1
a = A()
def f(): a.x = 1
#-> attribute x
### another object of the same contents
a = A(); a.x = [1]
def f(): a.x = [1]
#-> attribute x
### one is not True
d = {"a": 1}
def f(): d["a"] = True
#-> an element
"""),
)
def test_unrestored_writes_are_reported(case: Case) -> None:
    is_told(case)


def test_toggled_state_fails_its_guard_for_every_value() -> None:
    module = module_of("state = {'on': True}\ndef f(): state['on'] = not state['on']")
    observer = Observer([])
    observer.run(module.f)
    for value in (True, False):
        module.state["on"] = value
        assert observer.guards.why([])
