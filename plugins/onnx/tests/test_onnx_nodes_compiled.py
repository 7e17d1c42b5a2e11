"""The node tests of the `onnx` package, compiled: a sample, and with `-m slow` all of them."""

from __future__ import annotations

import zlib

import onnx_nodes
import pytest

pytest.importorskip("mgb_cpu_llvm", reason="not installed: pip install ./plugins/cpu_llvm")

PARTS = 48


def _part(number: int) -> list[object]:
    """A part of all cases, of each kind some, always the same ones."""
    return [c for c in onnx_nodes.all_cases() if zlib.crc32(c.name.encode()) % PARTS == number]


@pytest.mark.parametrize("number", [0, 1])
def test_sample_of_node_cases_passes(number: int) -> None:
    passed, failures, _ = onnx_nodes.run(_part(number), "CPU_LLVM")
    assert not failures, "\n".join(failures)
    assert passed > 15


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, PARTS))
def test_remaining_node_cases_pass(number: int) -> None:
    passed, failures, _ = onnx_nodes.run(_part(number), "CPU_LLVM")
    assert not failures, "\n".join(failures)
    assert passed > 15
