"""What a body reads of variables, functions, attributes and classes outside is guarded."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_seen
from mgb.jit.guard import Guard, Guards
from mgb.jit.source import Global, Held


@pytest.mark.parametrize(
    "case",
    cases("""
### global number
k = 3
def f(): return k + 1
#-> k = 4
### global flag
flag = True
def f(): return 1 if flag else 2
#-> flag = False
### one is not True
k = 1
def f(): return str(k)
#-> k = True
### zero has a sign
k = 0.0
def f(): return str(k)
#-> k = -0.0
### global text
mode = "a"
def f(): return mode == "a"
#-> mode = "b"
### global that appears
def f():
    try: return later
    except NameError: return 0
#-> later = 5
### builtin that is hidden
def f(): return len([1])
#-> len = lambda x: 7
### builtin that is replaced
import builtins
builtins.watched_thing = 1
def f(): return watched_thing
#-> builtins.watched_thing = 2
### closure number
def make():
    n = 2
    def inner(): return n * 2
    def rebind(v):
        nonlocal n
        n = v
    return inner, rebind
f, rebind = make()
#-> rebind(5)
### closure in a comprehension
def make():
    n = 2
    def inner(): return [n * i for i in range(3)]
    def rebind(v):
        nonlocal n
        n = v
    return inner, rebind
f, rebind = make()
#-> rebind(5)
### two closures of one code
def make(n):
    def inner(): return n[0]
    return inner
boxes = [[1], [2]]
a, b = make(boxes[0]), make(boxes[1])
def f(): return a() + b()
#-> boxes[1][0] = 7
### default argument
def f(x=2): return x
#-> f.__defaults__ = (3,)
### default of a keyword
def f(*, x=2): return x
#-> f.__kwdefaults__ = {"x": 3}
### default that is a list
def g(x=[1, 2]): return sum(x)
def f(): return g()
#-> g.__defaults__[0].append(5)
### helper replaced
def g(): return 1
def f(): return g()
#-> g = lambda: 2
### global of a helper
k = 1
def g(): return k
def h(): return g()
def f(): return h()
#-> k = 2
### default of a helper
def g(x=1): return x
def f(): return g()
#-> g.__defaults__ = (2,)
### code of a helper
def g(): return 1
def other(): return 2
def f(): return g()
#-> g.__code__ = other.__code__
### own code
def other(): return 2
def f(): return 1
#-> f.__code__ = other.__code__
### method patched on its class
class A:
    def m(self): return 1
a = A()
def f(): return a.m()
#-> A.m = lambda self: 2
### method patched on its object
class A:
    def m(self): return 1
a = A()
def f(): return a.m()
#-> a.m = lambda: 2
### attribute
class A: pass
a = A(); a.x = 1
def f(): return a.x
#-> a.x = 2
### attribute that goes
class A:
    x = 5
a = A(); a.x = 1
def f(): return a.x
#-> del a.x
### class attribute
class A:
    x = 1
def f(): return A.x
#-> A.x = 2
### class attribute by its object
class A:
    x = 1
a = A()
def f(): return a.x
#-> A.x = 2
### class attribute hidden by the object
class A:
    x = 1
a = A()
def f(): return a.x
#-> a.x = 2
### inherited attribute
class A:
    x = 1
class B(A): pass
b = B()
def f(): return b.x
#-> A.x = 2
### inherited attribute hidden in between
class A:
    x = 1
class B(A): pass
b = B()
def f(): return b.x
#-> B.x = 2
### inherited method hidden in between
class A:
    def m(self): return 1
class B(A): pass
b = B()
def f(): return b.m()
#-> B.m = lambda self: 2
### property
class A:
    def __init__(self): self._x = 1
    @property
    def x(self): return self._x
a = A()
def f(): return a.x
#-> a._x = 2
### property replaced
class A:
    @property
    def x(self): return 1
a = A()
def f(): return a.x
#-> A.x = property(lambda self: 2)
### getattr of a class
class A:
    def __init__(self): self.d = {"x": 1}
    def __getattr__(self, name): return self.d[name]
a = A()
def f(): return a.x
#-> a.d["x"] = 2
### getattr of a class, then an attribute
class A:
    def __getattr__(self, name): return 1
a = A()
def f(): return a.x
#-> a.x = 2
### slots
class A:
    __slots__ = ("x",)
a = A(); a.x = 1
def f(): return a.x
#-> a.x = 2
### descriptor
class D:
    def __init__(self): self.v = 1
    def __get__(self, o, k): return self.v
class A:
    x = D()
a = A()
def f(): return a.x
#-> vars(A)["x"].v = 2
### classmethod
class A:
    k = 1
    @classmethod
    def m(cls): return cls.k
def f(): return A.m()
#-> A.k = 2
### classmethod replaced
class A:
    @classmethod
    def m(cls): return 1
a = A()
def f(): return a.m()
#-> A.m = classmethod(lambda cls: 2)
### staticmethod replaced
class A:
    @staticmethod
    def m(): return 1
a = A()
def f(): return a.m()
#-> A.m = staticmethod(lambda: 2)
"""),
)
def test_changes_of_external_state_are_detected(case: Case) -> None:
    is_seen(case)


def test_singletons_are_guarded_by_identity() -> None:
    space = {"one": None, "two": True, "three": ..., "four": NotImplemented}
    guards = Guards([Guard(Global(Held(space), name), "same", value) for name, value in space.items()])
    check = guards.compile()
    assert check(())
    for name in list(space):
        before, space[name] = space[name], 0
        assert not check(())
        space[name] = before
    assert check(())
