"""Objects that are keys of dicts or elements of sets, also inside tuples, are followed as those elsewhere."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from mgb import Tensor
from mgb.jit import trace


class Layer:
    def __init__(self) -> None:
        self.scale = 2.0


@dataclasses.dataclass(frozen=True)
class Edge:
    layer: Layer


Named = collections.namedtuple("Named", "layer n")

#: What holds a layer as a key or element, and how a body finds it there.
CASES: dict[str, tuple[Callable[[Layer], Any], Callable[[Any], float]]] = {
    "items": (lambda layer: {(layer, "a"): 2.0}, lambda d: sum(a.scale * w for (a, _), w in d.items())),
    "keys": (lambda layer: {((layer, 1), 2): 1.0}, lambda d: sum(a.scale for ((a, _), _) in d)),
    "first key": (lambda layer: {(layer, "a"): 1.0}, lambda d: next(iter(d))[0].scale),
    "sorted keys": (lambda layer: {(layer, "a"): 1.0}, lambda d: sorted(d, key=lambda k: k[1])[0][0].scale),
    "popped from a copy": (lambda layer: {(layer, 1): 1.0}, lambda d: d.copy().popitem()[0][0].scale),
    "elements of a set": (lambda layer: {(layer, 1)}, lambda s: sum(a.scale for a, _ in s)),
    "frozen sets in a set": (
        lambda layer: {frozenset([layer])},
        lambda s: sum(a.scale for f in s for a in f),
    ),
    "a dataclass": (lambda layer: {Edge(layer): 1.0}, lambda d: sum(k.layer.scale for k in d)),
    "a named tuple": (lambda layer: {Named(layer, 1)}, lambda s: sum(k.layer.scale for k in s)),
    "the key itself": (lambda layer: {layer: 1.0}, lambda d: sum(k.scale for k in d)),
}


@pytest.mark.parametrize("name", CASES)
def test_attribute_of_an_object_in_a_key_is_guarded(name: str) -> None:
    make, read = CASES[name]
    layer = Layer()
    holder = make(layer)
    traced = trace(lambda x: x * read(holder))
    for _ in range(3):
        traced(Tensor(1.5))
    layer.scale = 3.0
    assert traced(Tensor(1.5)).item() == 1.5 * read(holder)
    assert traced.stats()["body_runs"] == 2


def test_only_packages_of_installed_plugins_count_as_library_code(tmp_path: Any, monkeypatch: Any) -> None:
    folder = tmp_path / "mgb_train"
    folder.mkdir()
    (folder / "helper.py").write_text("scales, calls = {'k': 2.0}, []\n"
        "def scaled(v):\n    calls.append(v)\n    return v * scales['k']\n")  # fmt: skip
    monkeypatch.syspath_prepend(folder)
    import helper  # type: ignore[import-not-found]
    import numpy as np

    traced = trace(lambda x: x * np.vectorize(helper.scaled, otypes="f")(np.arange(3.0)).astype("float32"))
    for scale in (2.0, 2.0, 5.0):
        helper.scales["k"] = scale
        assert traced(Tensor([1.0, 1.0, 1.0])).tolist() == [0.0, scale, 2 * scale]
    assert len(helper.calls) == 9
