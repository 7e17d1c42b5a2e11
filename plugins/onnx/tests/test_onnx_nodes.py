"""The node tests of the `onnx` package, on the eager backend: once recorded, once replayed."""

from __future__ import annotations

import onnx_nodes
import pytest


def test_one_case_of_each_operator_passes() -> None:
    passed, failures, unsupported = onnx_nodes.run(onnx_nodes.one_for_each_operator(), "EAGER")
    assert not failures, "\n".join(failures)
    print(f"{passed} passed, {len(unsupported)} refused: {sorted(unsupported)}")
    assert passed > 150


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_node_case_passes(part: int) -> None:
    passed, failures, unsupported = onnx_nodes.run(onnx_nodes.all_cases()[part::8], "EAGER")
    assert not failures, "\n".join(failures)
    print(f"{passed} passed, {len(unsupported)} refused: {sorted(unsupported)}")
    assert passed > 190


def test_only_unsupported_operators_and_types_are_rejected() -> None:
    _, _, unsupported = onnx_nodes.run(onnx_nodes.one_for_each_operator(), "EAGER")
    for name, reason in unsupported.items():
        assert "is not supported" in reason or "are not supported" in reason, f"{name}: {reason}"
