"""Arguments in containers: as good as arguments of their own, and never taken for others."""

from collections import OrderedDict

import mgb
import numpy as np
import pytest
from mgb.jit import trace


def tensor(value):
    return mgb.tensor(np.float32([value]))


def values(result):
    return [np.asarray(part).tolist() for part in result]


A, B = tensor(2), tensor(3)


class Text(str):
    pass


@pytest.mark.parametrize("mode", [None, False])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (([A, B],), ((A, B),)),
        (([A, B],), ([A],)),
        (([A, B],), ([A, B, A],)),
        (([A, B],), ([A, [B]],)),
        (([A, B],), ([A, A],)),
        (([A], [B]), ([A, B], [])),
        (([A, B],), ([A, 5.0],)),
        (({"a": A, "b": B},), ({"b": A, "a": B},)),
        (({"a": A},), ({Text("a"): A},)),
        (({"a": A},), (OrderedDict(a=A),)),
        (([A], B), (A, [B])),
        (([(A, B), (B, A)],), ([(A, B), [B, A]],)),
    ],
)
def test_other_containers_are_another_call(first, second, mode):
    def told(*args):
        flat = []

        def visit(part, path):
            if isinstance(part, (list, tuple, dict)):
                keys = list(part) if isinstance(part, dict) else range(len(part))
                for number, key in enumerate(keys):
                    mark = 10 * path + number + 3 * isinstance(part, tuple)
                    mark += 5 * isinstance(part, OrderedDict) + 7 * (type(key) is Text)
                    mark += ord(key[0]) if isinstance(key, str) else 0
                    visit(part[key], mark)
            else:
                flat.append(part * 2 + path)

        visit(args, 1)
        return flat

    traced = trace(told, run_body=mode)
    for args in (first, first, first, second, first, second):
        assert values(traced(*args)) == values(told(*args))


@pytest.mark.parametrize("nest", [list, tuple, lambda xs: {str(n): x for n, x in enumerate(xs)}])
def test_a_container_is_served_without_its_key(nest, monkeypatch):
    @trace(without_host=True)
    def doubled(given, other):
        parts = given.values() if isinstance(given, dict) else given
        return [x * 2 + other for x in parts]

    for call in range(5):
        if call == 3:  # a key is what costs more than the guards
            monkeypatch.setattr("mgb.jit.traced.key_of", None)
        xs = [tensor(n + call) for n in range(20)]
        assert values(doubled(nest(xs), A)) == [[2.0 * (n + call) + 2] for n in range(20)]
    assert doubled.stats()["body_runs"] == 1


def test_a_list_that_is_given_twice():
    @trace
    def grown(first, second):
        return [x + y + (10 if first is second else 0) for x, y in zip(first, second, strict=True)]

    one, other = [A, B], [tensor(5), tensor(7)]
    for first, second in [(one, other), (one, other), (one, one), (one, other), (one, one), (other, one)]:
        assert values(grown(first, second)) == values(grown.__wrapped__(first, second))


def test_an_empty_container_by_keyword_is_not_forgotten():
    @trace
    def scaled(x, options=None):
        return x * 2 if options is None else x * 3

    for _ in range(3):
        assert scaled(A, options=[]).item() == 6
    assert scaled(A).item() == 4
    assert scaled(A, options=[]).item() == 6


def test_nested_state_that_the_body_replaces():
    @trace(without_host=True)
    def step(params):
        for part in params["layers"]:
            part[...] = part * 2
        return params["layers"][0] + 1

    params = {"layers": [tensor(1), tensor(2)]}
    for call in range(1, 5):
        assert step(params).item() == 2**call + 1
    assert [part.item() for part in params["layers"]] == [16, 32]
