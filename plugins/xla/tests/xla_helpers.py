"""Shared helpers of the tests: a program compiled for XLA, and the same run eagerly."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mgb.executor import Options, Program, compile_program
from mgb.ir import Spec
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of


def program(
    function: Callable[..., Any], *arrays: np.ndarray, updates: Mapping[int, int] | None = None
) -> Program:
    """`function` of tensors like `arrays`, compiled by XLA."""
    graph = graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays))
    return compile_program(graph, Options(backend="xla"), updates)


def eagerly(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Compute the results for `arrays` by the ops' own rules."""
    out = function(*(Tensor(a, dtype=a.dtype) for a in arrays))
    return [o.numpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


def whole(shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0, most: int = 5) -> np.ndarray:
    """Small whole numbers: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def new_process(script: str, cache: Path, **environment: str) -> str:
    """Run `script` in a new process with the folder `cache` and these variables; return its output."""
    head = "import warnings, numpy as np\nfrom xla_helpers import program\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parent,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "MGB_CACHE_DIR": str(cache), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
