"""A bench finds wrong kernels: one place of the text is changed, and the results must show it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_min, reduce_sum
from mgb_conformance.cases import of
from mgb_conformance.drive import ConformanceError, Driver
from mgb_conformance.judge import judge, problem

from ..device import LaunchError
from .suite import Suite

#: What is computed, of arrays of which shape, and on how many multiprocessors.
Program = tuple[Callable[..., Any], tuple[int, ...], int]


def rows(x: Any) -> list[Any]:
    """Return a softmax that shows its folds, and some that have no use for what nobody has loaded."""
    top = reduce_max(x, axis=(1,))
    e = exp(x - top)
    whole = reduce_sum(e, axis=(1,))
    return [e / whole, top, whole, reduce_sum(x * top, axis=(1,)), reduce_min(x, axis=(1,))]


def columns(x: Any) -> list[Any]:
    """Return reductions of which the second needs the first."""
    first = reduce_sum(x, axis=(0,))
    second = reduce_sum(x * (first * 0.0001), axis=(0,))
    return [x * second, first, second]


def tiers(programs: Iterable[str], quick: Collection[str]) -> list[Any]:
    """Return all programs; those that are not `quick` are marked as slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in programs]


def sample(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array in which the place of each element matters.

    That of the largest is all over the rows.
    """
    size = int(np.prod(shape))
    memory = np.full(size + 64, np.nan, np.float32)  # what lies beyond its end shows
    x: np.ndarray[Any, Any] = memory[:size].reshape(shape)
    x[...] = np.random.default_rng(5).uniform(0.5, 1, shape)
    if "columns" in name:
        x.sort(axis=0)
        return x
    if x.ndim == 1:
        x[::4096] *= 100
    if x.ndim == 2:
        x *= 1 + np.arange(len(x), dtype=np.float32)[:, None] % 5
        x[::2].sort(axis=1)
    return x


def mutate(device: Any, pattern: str, into: str, which: int, after: str = "") -> Any:
    """Return `device`, when it changes one place of each text before it compiles it.

    Parameters
    ----------
    device : Device
        Its ``changed`` counts the texts that are other ones for it.
    pattern, into : str
        A regular expression, and what is put where it stands.
    which : int
        For which time, from 0 on.
    after : str, optional
        Places before this word are left alone.
    """
    compiled, device.changed = device.compile, 0

    def compile(source: str) -> bytes:
        head, cut, text = source.partition(after) if after else ("", "", source)
        found = places(pattern, text)
        if which < len(found):
            place = found[which]
            changed = text[: place.start()] + place.expand(into) + text[place.end() :]
            device.changed += changed != text
            text = changed
        made: bytes = compiled(head + cut + text)
        return made

    device.compile = compile
    return device


def places(pattern: str, text: str) -> list[re.Match[str]]:
    """Return where a mutation can be made."""
    return list(re.finditer(pattern, text, re.MULTILINE))


class Mutations(Suite):
    """Each mutation at each of its places in each program.

    Attributes
    ----------
    programs : mapping
        A `Program` for each name.
    mutations : mapping
        A pattern and what is put in its place, for each name.
    tables : mapping
        The names as ``program`` and ``mutation``.
    after : str
        As for `mutate`.
    raises : tuple of type
        What a wrong kernel may raise where it runs.
    """

    programs: ClassVar[Mapping[str, Program]]
    mutations: ClassVar[Mapping[str, tuple[str, str]]]
    after: ClassVar[str] = ""
    raises: ClassVar[tuple[type[Exception], ...]] = (ConformanceError, LaunchError)

    #: For each program its texts, and its true results: found once.
    _texts: ClassVar[dict[str, list[str]]]
    _truths: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        cls._texts, cls._truths = {}, {}

    def device(self, program: str) -> Any:
        return self.bench.device(self.programs[program][2])

    def truth(self, program: str) -> tuple[Any, Any, Any]:
        """Return the graph of a program, its argument and its results."""
        if program not in self._truths:
            function, shape, _ = self.programs[program]
            x = sample(program, shape)
            graph = of(function, x)
            self._truths[program] = graph, x, judge(graph, [x])
        found: tuple[Any, Any, Any] = self._truths[program]
        return found

    def faults(self, program: str, device: Any) -> Iterator[str]:
        """Yield the faults of the results, for both orders of threads that may run in any."""
        graph, x, wants = self.truth(program)
        driver = Driver(self.bench.here(device))
        for device.reverse in (False, True):
            try:
                found = driver.run(graph, [x])
            except self.raises as error:
                yield f"{type(error).__name__}: {error}"
            else:
                yield from filter(None, (problem(g, w) for g, w in zip(found, wants, strict=True)))

    def texts(self, program: str) -> list[str]:
        """Return the texts that are compiled for it; mutations are made of these."""
        if program not in self._texts:
            device = self.device(program)
            list(self.faults(program, device))
            self._texts[program] = self.bodies(device)
        return self._texts[program]

    def bodies(self, device: Any) -> list[str]:
        """Return the parts of the texts of a device that are changed."""
        return [s.partition(self.after)[2] if self.after else s for s in device.sources]

    def test_unmutated_kernel_is_correct(self, program: str) -> None:
        assert not list(self.faults(program, self.device(program)))

    def test_each_mutant_is_caught(self, program: str, mutation: str) -> None:
        pattern, into = self.mutations[mutation]
        count = max(len(places(pattern, text)) for text in self.texts(program))
        if not count:
            pytest.skip(f"the kernel has no place for it: {pattern}")
        missed = []
        for k in range(count):
            mutant = mutate(self.device(program), pattern, into, k, self.after)
            if not any(self.faults(program, mutant)) and mutant.changed:
                missed.append(k)
        assert not missed, f"of {count} places these are not caught: {missed}\n{self.texts(program)[-1]}"

    def test_each_mutation_changes_some_kernel(self) -> None:
        """Check each pattern: one that occurs nowhere would catch nothing."""
        texts = []
        for name, (function, shape, _) in self.programs.items():
            device = self.device(name)
            self.bench.here(device).compile(self.bench.traced(function, np.empty(shape, np.float32)))
            texts += self.bodies(device)
        for name, (pattern, _) in self.mutations.items():
            assert any(places(pattern, text) for text in texts), name
