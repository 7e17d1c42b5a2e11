"""The twenty programs give what JAX gives, eagerly and under a plain ``@trace``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mgb
import mgb.numpy
import numpy as np
import pytest
from mgb.jit import trace

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from programs import PROGRAMS

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

NAMES = ("grad", "value_and_grad", "hessian", "vmap")
OURS = SimpleNamespace(np=mgb.numpy, **{name: getattr(mgb, name) for name in NAMES})
THEIRS = SimpleNamespace(np=jax.numpy, **{name: getattr(jax, name) for name in NAMES})
SMALL = {"VAE step": 8, "n-body": 12, "heat equation": 16, "Kalman filter": 3}


def made(value: Any, function: Any) -> Any:
    return [made(part, function) for part in value] if isinstance(value, list) else function(value)


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list | tuple) else [value]


def traced(run: Any) -> Any:
    @trace
    def program(*arguments):
        return run(OURS, *arguments)

    return program


#: JAX compiles each op of each shape by itself: in the short run few programs are asked.
SHORT = ("k-means", "VAE step", "Kalman filter", "heat equation")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.slow]) for name in PROGRAMS]
)
def test_program_matches_jax(name: str) -> None:
    program = PROGRAMS[name]
    arguments = program.arguments(np.random.default_rng(0), SMALL.get(name, 20))
    want = leaves(program.run(THEIRS, *made(arguments, jax.numpy.asarray)))
    tensors = made(arguments, mgb.tensor)
    step = traced(program.run)
    results = [program.run(OURS, *tensors), *(step(*tensors) for _ in range(3))]
    for result in results:
        for got, wanted in zip(leaves(result), want, strict=True):
            wanted = np.asarray(wanted)
            scale = np.abs(wanted).max() + 1e-6
            np.testing.assert_allclose(got.numpy() / scale, wanted / scale, atol=2e-4)
    assert step.stats()["records"] == 1
