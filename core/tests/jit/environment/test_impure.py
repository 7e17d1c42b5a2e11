"""What a body does outside is told with its line."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_told


@pytest.mark.parametrize(
    "case",
    cases("""
### random
import random
def f(): return random.random()
#-> random
### time
import time
def f(): return time.time()
#-> time.time
### id
x = [1]
def f(): return id(x) > 0
#-> asks for an id
### print
def f(): print("hello")
#-> print
### logging
import logging
def f(): logging.getLogger("watched").critical("hello")
#-> logging
### file
import os
def f():
    with open(os.devnull, "w") as file: file.write("x")
#-> open
### append
xs = []
def f(): xs.append(1)
#-> list.append
### item assigned
xs = [0]
def f(): xs[0] = 1
#-> an element of a list
### item deleted
d = {1: 2}
def f():
    if d: del d[1]
#-> an element of a dict
### attribute assigned
class A: n = 0
a = A()
def f(): a.n += 1
#-> attribute n of a A
### attribute of itself
class A:
    n = 0
    def m(self): self.n += 1
a = A()
def f(): a.m()
#-> attribute n of a A
### attribute deleted
class A: pass
a = A(); a.x = 1
def f():
    if hasattr(a, "x"): del a.x
#-> attribute x
### setattr
class A: pass
a = A()
def f(): setattr(a, "x", 1)
#-> attribute x
### global assigned
k = 0
def f():
    global k
    k = 1
#-> variable `k`
### global counted
k = 0
def f():
    global k
    k += 1
#-> variable `k`
### global by a loop
k = 0
def f():
    global k
    for k in range(3): pass
#-> variable `k`
### nonlocal
def make():
    n = 0
    def inner():
        nonlocal n
        n += 1
        return n
    return inner
f = make()
#-> variable `n`
### iterator from outside
it = iter([1, 2, 3] * 100)
def f(): return next(it)
#-> iterator from outside
### loop over an iterator from outside
it = iter([1, 2, 3])
def f(): return [x for x in it]
#-> iterator from outside
### generator from outside
def g():
    while True: yield 1
gen = g()
def f(): return next(gen)
#-> iterator from outside
### list given an iterator from outside
it = iter([1, 2, 3])
def f(): return list(it)
#-> iterator from outside
### exec
def f(): exec("pass")
#-> exec
### eval
def f(): return eval("1 + 1")
#-> eval
### no source
space = {}
exec("def g(): return 1", space)
g = space["g"]
def f(): return g()
#-> no source
### array written
import numpy as np
a = np.zeros(3)
def f(): a[0] = 1
#-> an element of a ndarray
### view written
import numpy as np
a = np.zeros(3)
def f():
    b = a[1:]
    b[0] = 1
#-> ndarray
### array in place
import numpy as np
a = np.zeros(3)
def f():
    global_a = a
    global_a += 1
#-> ndarray
### out
import numpy as np
a = np.zeros(3)
def f(): np.add(1, 2, out=a)
#-> the elements of a ndarray
### out without a keyword
import numpy as np
a = np.zeros(3)
def f(): np.sin(np.ones(3), a)
#-> the elements of a ndarray
### copyto
import numpy as np
a = np.zeros(3)
def f(): np.copyto(a, 1)
#-> the elements of a ndarray
### sort of an array
import numpy as np
a = np.zeros(3)
def f(): a.sort()
#-> ndarray.sort
### random of NumPy
import numpy as np
def f(): return np.random.rand()
#-> rand
### generator of NumPy
import numpy as np
r = np.random.default_rng(0)
def f(): return r.random()
#-> random
### large array
import numpy as np
a = np.zeros(100000)
def f(): return a.sum()
#-> too large
### defaultdict grows
from collections import defaultdict
d = defaultdict(list)
def f(): d["x"]
#-> defaultdict
### setdefault
d = {}
def f(): d.setdefault("a", 1)
#-> dict.setdefault
### update
d = {}
def f(): d.update(a=1)
#-> dict.update
### pop
xs = [1] * 9
def f(): return xs.pop()
#-> list.pop
### sort
xs = [2, 1]
def f(): xs.sort()
#-> list.sort
### cached function
from functools import lru_cache
class A: pass
a = A()
@lru_cache
def g(x): return x
def f(): return g(a)
#-> lru_cache
### ContextVar set
from contextvars import ContextVar
v = ContextVar("v")
def f(): v.set(1)
#-> ContextVar.set
### environ written
import os
def f(): os.environ["WATCHED_W"] = "1"
#-> putenv
### in place through an alias
xs = [1]
def f():
    ys = xs
    ys += [2]
#-> contents of a list
### written by a helper
xs = []
def g(to): to.append(1)
def f(): g(xs)
#-> list.append
### written by a callback
xs = []
def f(): list(map(xs.append, [1, 2]))
#-> list.append
### written through a fresh list
xs = [[1]]
def f():
    ys = [x for x in xs]
    ys[0].append(2)
#-> list.append
### written through a tuple
xs = [1]
def f():
    pair = (xs, 1)
    pair[0].append(2)
#-> list.append
### written through a fresh object
xs = [1]
class A:
    def __init__(self, x): self.x = x
def f():
    a = A(xs)
    a.x.append(2)
#-> list.append
### written through sorted
xs = [{"a": 1}]
def f(): sorted(xs, key=len)[0]["b"] = 1
#-> an element of a dict
### in place in a fresh dict
xs = [1]
def f():
    d = {"a": xs}
    d["a"] += [1]
#-> contents of a list
### default list appended
def g(x, to=[]): to.append(x)
def f(): g(1)
#-> list.append
### exception from outside
e = ValueError("x")
def f():
    try: raise e
    except ValueError: return 1
#-> traceback
### lock
import threading
lock = threading.Lock()
def f():
    with lock: return 1
#-> lock
### first import
import sys
sys.modules.pop("this_is_antigravity", None); sys.modules.pop("colorsys", None)
def f():
    import colorsys
    return colorsys.rgb_to_hsv(1, 1, 1)
#-> colorsys
### property that writes
class A:
    n = 0
    @property
    def x(self):
        self.n += 1
        return self.n
a = A()
def f(): return a.x
#-> attribute n
### warning
import warnings
def f(): warnings.warn("x", stacklevel=2)
#-> warn
### class written
class A: n = 0
def f(): A.n = 1
#-> attribute n
### module written
import types
m = types.ModuleType("m")
def f(): m.x = 1
#-> attribute x
### address in a text
class A: pass
a = A()
def f(): return f"{a}"
#-> address
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
### warning
import warnings
def f(): warnings.warn("x")
#-> warn
### getter called by others
from operator import attrgetter
class A: x = 1
def f(): return sorted([A(), A()], key=attrgetter("x"))[0].x
#-> attrgetter
### insort
from bisect import insort
xs = [1, 3]
def f(): insort(xs, 2)
#-> the contents
### heap outside
import heapq
xs = [1, 3]
def f(): heapq.heappush(xs, 2)
#-> the contents
### setitem of operator
import operator
d = {}
def f(): operator.setitem(d, "a", 1)
#-> the contents
### packed into
import struct
b = bytearray(4)
def f(): struct.pack_into("i", b, 0, 7)
#-> the contents
### special method that is a function in C
xs = [1.0]
class A: __len__ = staticmethod(xs.__len__)
a = A()
def f(): return len(a)
#-> asks __len__
### initialized again
class A:
    def __init__(s): s.n = 1
a = A(); a.n = 5; box = {a}
def f():
    for b in box: A.__init__(b)
#-> n of a A
### place of an iterator
it = iter([1, 2, 3])
def f(): return it.__reduce__()[2]
#-> a list_iterator from outside
### one of two elements that are the same is deleted
xs = [1, 1]
def f(): del xs[0]
#-> an element
### deleted and set again, so that it is the last
d = {"a": 1, "b": 2}
def f():
    del d["a"]
    d["a"] = 1
#-> an element
### address in what str makes
class A: pass
a = A()
def f(): return str(a)
#-> address
### method that changes each
xs = [[1], [2]]
def f(): list(map(list.clear, xs))
#-> list.clear
### array of Python
import array
a = array.array("f", [1, 2])
def f():
    for v in a: return v
#-> what stands in a array
### view of memory
m = memoryview(bytearray(2))
def f(): return bytes(m)
#-> what stands in a memoryview
### array of C
import ctypes
a = (ctypes.c_float * 2)(1, 2)
def f(): return sum(a)
#-> what stands in a
### decimals
from decimal import Decimal
d = Decimal(1)
def f(): return d / 3
#-> Decimal
"""),
)
def test_side_effects_are_reported_with_their_line(case: Case) -> None:
    is_told(case)
