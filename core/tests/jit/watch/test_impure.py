"""What a body does outside is told with its line."""

from __future__ import annotations

import pytest
from watch_cases import Case, cases, is_told


@pytest.mark.parametrize(
    "case",
    cases("""
### random
def f(): return random.random()
#-> random
### time
def f(): return time.time()
#-> time.time
### id
x = [1]
def f(): return id(x) > 0
#-> asks for an id
### append
xs = []
def f(): xs.append(1)
#-> list.append
### attribute assigned
class A: n = 0
a = A()
def f(): a.n += 1
#-> attribute n of a A
### attribute deleted
a = A(); a.x = 1
def f():
    if hasattr(a, "x"): del a.x
#-> attribute x
### setattr
a = A()
def f(): setattr(a, "x", 1)
#-> attribute x
### global assigned
k = 0
def f():
    global k
    k = 1
#-> variable `k`
### list given an iterator from outside
it = iter([1, 2, 3])
def f(): return list(it)
#-> iterator from outside
### exec
def f(): exec("pass")
#-> exec
### array in place
a = np.zeros(3)
def f():
    global_a = a
    global_a += 1
#-> ndarray
### out
a = np.zeros(3)
def f(): np.add(1, 2, out=a)
#-> the elements of a ndarray
### copyto
a = np.zeros(3)
def f(): np.copyto(a, 1)
#-> the elements of a ndarray
### sort of an array
a = np.array([2.0, 1.0])
def f(): a.sort()
#-> ndarray.sort
### large array
a = np.zeros(100000)
def f(): return a.sum()
#-> too large
### in place through an alias
xs = [1]
def f():
    ys = xs
    ys += [2]
#-> contents of a list
### written by a callback
xs = []
def f(): list(map(xs.append, [1, 2]))
#-> the contents of a list
### in place in a fresh dict
xs = [1]
def f():
    d = {"a": xs}
    d["a"] += [1]
#-> of a list
### exception from outside
e = ValueError("x")
def f():
    try: raise e
    except ValueError: return 1
#-> a builtins.ValueError
### lock
lock = threading.Lock()
def f():
    with lock: return 1
#-> lock
### first import
sys.modules.pop("this_is_antigravity", None); sys.modules.pop("colorsys", None)
def f():
    import colorsys
    return colorsys.rgb_to_hsv(1, 1, 1)
#-> colorsys
### warning
def f(): warnings.warn("x", stacklevel=2)
#-> warn
### message of a level that is wanted
log = logging.getLogger("watched_critical")
def f(): log.critical("hello")
#-> logging
### json into a stream
def f(): json.dump([1], sys.stdout)
#-> json.dump
### insort
xs = [1, 3]
def f(): insort(xs, 2)
#-> the contents
### setitem of operator
d = {}
def f(): operator.setitem(d, "a", 1)
#-> an element of a dict
### packed into
b = bytearray(4)
def f(): struct.pack_into("i", b, 0, 7)
#-> the contents
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
#-> an iterator from outside
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
### method that changes each
xs = [[1], [2]]
def f(): list(map(list.clear, xs))
#-> an element of a list
### array of Python
a = array.array("f", [1, 2])
def f():
    for v in a: return v
#-> which hides
### view of memory
m = memoryview(bytearray(2))
def f(): return bytes(m)
#-> which hides
### array of C
a = (ctypes.c_float * 2)(1, 2)
def f(): return sum(a)
#-> which hides
### the whole of sys.modules
def f(): return len(sys.modules)
#-> sys.modules
### a key of sys.modules that is computed
def f(): return f"watched_{'nowhere'}" in {**sys.modules}
#-> sys.modules
### one of two keys of sys.modules
n = 1
def f():
    is_there = ("watched_nowhere" if n else "math") in sys.modules
    for _ in range(2): pass
    return is_there
#-> sys.modules
### a key of sys.modules that a parameter has no more
def g(name):
    name = name + "e"
    return name in sys.modules
def f(): return g("watched_nowher")
#-> sys.modules
### sys.modules under another name
loaded = sys.modules
def f(): return sys.modules.get("math") is loaded.get("watched_nowhere")
#-> sys.modules
### sys.modules in a variable
def f():
    found = sys.modules
    return found.get("watched_nowhere")
#-> sys.modules
### module walk written
net = M.Sequential(M.ReLU())
def f():
    for m in net.modules(): m.training = False
#-> attribute training
### lr written
net = M.Linear(2, 2); opt = O.SGD(net.parameters(), lr=0.1)
def f():
    for g in opt.param_groups: g["lr"] = 0.01
#-> an element of a dict
### save
def f(): mgb.save({}, os.devnull)
#-> save
"""),
)
def test_side_effects_are_reported_with_their_line(case: Case) -> None:
    is_told(case)
