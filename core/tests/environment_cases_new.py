CHANGED = """
### sorted items of lists
d = {"a": [2], "b": [1]}
def f(): return sorted(d.items(), key=lambda pair: pair[1])[0][0]
#-> d["a"][0] = 0

### view outside
d = {"a": [2]}
view = d.values()
def f(): return sum(map(sum, view))
#-> d["a"][0] = 0

### truth of a member
from enum import Enum
class E(Enum):
    A = 1
e = E.A
def f(): return 1 if e else 2
#-> E.__bool__ = lambda self: False

### property of a getter
from operator import attrgetter
class A:
    lr = property(attrgetter("cfg.lr"))
class C: pass
a = A(); a.cfg = C(); a.cfg.lr = 1
def f(): return a.lr
#-> a.cfg.lr = 2

### kept result that is cleared
from functools import cache
k = 1
@cache
def g(x): return x + k
def f(): return g(1)
#-> k = 5; g.cache_clear()

### kept list that is changed
from functools import lru_cache
@lru_cache(maxsize=8)
def g(x): return [x]
g(1)
def f(): return g(1)[0]
#-> g(1)[0] = 3

### level of a logger
import logging
log = logging.getLogger("watched_level")
def f(): return log.isEnabledFor(logging.INFO)
#-> log.setLevel(logging.INFO)

### json of outside data
import json
d = {"a": [1, {"b": 2}]}
def f(): return json.dumps(d, sort_keys=True)
#-> d["a"][1]["b"] = 3

### written and put back
class A: pass
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

### dataclass in a text
from dataclasses import dataclass
@dataclass
class C:
    xs: list
c = C([1])
def f(): return f"{c}"
#-> c.xs.append(2)
"""
IMPURE = """
### message of a level that is wanted
import logging
log = logging.getLogger("watched_critical")
def f(): log.critical("hello")
#-> logging

### json into a stream
import json, sys
def f(): json.dump([1], sys.stdout)
#-> json.dump

### json by a function of the user
import json
def name(kind): return kind.__name__
def f(): return json.dumps([object], default=name)
#-> not watched

### attribute written and left
class A: pass
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
class A: pass
a = A(); a.x = [1]
def f(): a.x = [1]
#-> attribute x

### one is not True
d = {"a": 1}
def f(): d["a"] = True
#-> an element

### warning
import warnings
def f(): warnings.warn("x")
#-> warn

### getter called by others
from operator import attrgetter
class A: x = 1
def f(): return sorted([A(), A()], key=attrgetter("x"))[0].x
#-> attrgetter
"""
PURE = """
### the same value written
class A: pass
a = A(); a.steps, a.parts = 5, [1]
k = 5
def f():
    a.steps = k
    a.parts = a.parts
    return a.steps
#->

### the same global and element
k, d, xs = 3, {"a": None}, [1.0]
def f():
    global k
    k = 3
    d["a"] = None
    xs[0] = 1.0
    return k, d["a"], xs[0]

### message that nobody wants
import logging
log = logging.getLogger("watched_quiet")
def f(): log.debug("x %s", 1)

### kept by plain arguments
from functools import cache, lru_cache
@cache
def g(n): return n * 2
@lru_cache
def h(*, n): return n
def f(): return g(3), g(3)

### json
import json
def f(): return json.loads(json.dumps({"a": [1, None, "t"]}, indent=1))["a"]

### classes made here
from collections import ChainMap, Counter, namedtuple
def f():
    P = namedtuple("P", "u v")
    return P(1, 2).v, Counter("aab").most_common(1), ChainMap({"a": 1}, {"b": 2})["b"]

### contexts
from contextlib import ExitStack, nullcontext, suppress
def f():
    with ExitStack() as stack, suppress(KeyError):
        stack.enter_context(nullcontext())
        return {}["a"]
    return 3

### rest of an unpacking
def f():
    out = []
    for a, *rest in [(1, 2, 3), (4, 5)]:
        rest.append(a)
        out.append(rest)
    first, *others = out
    others.append(first)
    return others

### members
from enum import Enum
class E(Enum):
    A = 1
    B = 2
def f(): return [1 if e else 2 for e in E], E.A.value, E.B == E.A, E.A in {E.A}

### getters
from operator import attrgetter, itemgetter, methodcaller
class A:
    x = 1
    def m(self): return 2
def f(): return attrgetter("x")(A()), itemgetter(0)([1]), methodcaller("m")(A()), sorted([[2], [1]], key=itemgetter(0))

### dataclass as a text
from dataclasses import asdict, dataclass, replace
@dataclass
class C:
    n: int = 1
def f(): return f"{C()}", repr(replace(C(), n=2)), asdict(C(3))
"""
