"""The call that is recorded means what Python means: classes, displays, generators and partial objects."""

from __future__ import annotations

import copy
import functools
import queue
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mgb import Tensor
from mgb.jit import trace


class A:
    k = 2.0


class B:
    m = 3.0


class Meta(type):
    pass


BASES = (A, B)


def starred_bases(x: Tensor, n: int) -> Tensor:
    class K(*BASES):
        pass

    assert K.__bases__ == BASES
    return x * K.k * K.m * n


def starred_bases_with_a_metaclass(x: Tensor, n: int) -> Tensor:
    class K(A, *iter([B]), metaclass=Meta):
        pass

    assert type(K) is Meta and K.__mro__[:3] == (K, A, B)
    return x * K.m * n


def starred_set(x: Tensor, n: int) -> Tensor:
    names = ("a", "b")[:n]
    return x * len({"q", *names, *(c for c in "bc")})


def starred_displays(x: Tensor, n: int) -> Tensor:
    values = [*range(n), *(i for i in range(2)), *{"k": 1}]
    return x * len((*values, *"ab"))


class Partial(functools.partial):
    pass


def subclass_of_partial(x: Tensor, n: int) -> Tensor:
    scale = Partial(lambda x, k: x * k, k=2.0)
    return scale(scale.func(x, 3.0)) * n


def lru_cache_for_len(x: Tensor, n: int) -> Tensor:
    length = functools.lru_cache(len)
    return x * length((1, 2, 3)) * n


def doubled() -> Iterator[Any]:
    got = yield 1.0
    while True:
        try:
            got = yield got * 2
        except KeyError:
            got = 5.0


def _kept_in(keep: Callable[[Any], Any]) -> Callable[[Tensor, int], Tensor]:
    def body(x: Tensor, n: int) -> Tensor:
        generator = doubled()
        same = keep(generator)
        assert same is generator
        next(same)
        value = same.send(3.0) + generator.throw(KeyError) + n
        return x * value

    return body


def _through_queue(value: Any) -> Any:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.put(value)
    return waiting.get()


def _through_deque(value: Any) -> Any:
    waiting: deque[Any] = deque()
    waiting.append(value)
    return waiting[0]


def _through_attribute(value: Any) -> Any:
    space = types.SimpleNamespace()
    setattr(space, "g", value)  # noqa: B010 - a call in C that keeps it
    return space.g


def _through_list(value: Any) -> Any:
    list.append(kept := [], value)
    return kept.pop()


def _through_weak_reference(value: Any) -> Any:
    return weakref.ref(value)()


def iterators_that_are_copied(x: Tensor, n: int) -> Tensor:
    pairs = zip([n, 2.0], [3.0, 4.0], strict=True)
    assert next(copy.copy(pairs)) == (n, 3.0)
    return x * sum(a * b for a, b in pairs)


def iterators_that_are_used_up(x: Tensor, n: int) -> Tensor:
    words = ",".join(str(i) for i in range(n))
    return x * len(words) * len(deque(map(float, range(n)), maxlen=3))


BODIES: dict[str, Callable[[Tensor, int], Tensor]] = {
    body.__name__: body
    for body in (
        starred_bases, starred_bases_with_a_metaclass, starred_set, starred_displays, subclass_of_partial,
        lru_cache_for_len, iterators_that_are_copied, iterators_that_are_used_up,
    )
}  # fmt: skip
KEEPING = (_through_queue, _through_deque, _through_attribute, _through_list, _through_weak_reference)
BODIES |= {f"generator{keep.__name__}": _kept_in(keep) for keep in KEEPING}


@pytest.mark.parametrize("name", BODIES)
def test_recorded_calls_mean_what_python_means(name: str) -> None:
    body, x = BODIES[name], Tensor(1.5)
    for options, numbers in (({}, (1, 1, 2, 3, 2)), ({"run_body": True}, (2, 2, 2))):
        traced = trace(body, **options)
        assert [traced(x, n).item() for n in numbers] == [body(x, n).item() for n in numbers]
