"""The examples for Dask and Ray run, where these are installed, and give what NumPy gives."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "parallel"


def said(name: str, package: str) -> list[float]:
    """The numbers that an example prints."""
    if find_spec(package) is None:
        pytest.skip(f"not installed: pip install {package}")
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)], capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [float(word) for word in done.stdout.split()]


def test_dask_example_matches_numpy() -> None:
    x = np.linspace(-3, 3, 1_000_000, dtype=np.float32).astype(float)
    wanted = (x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))).sum()
    np.testing.assert_allclose(said("dask_blocks.py", "dask"), wanted, rtol=1e-6)


@pytest.mark.slow  # Ray itself takes ten seconds to start
def test_ray_example_reduces_the_loss() -> None:
    first, last = said("ray_tasks.py", "ray")
    assert last < first / 5
