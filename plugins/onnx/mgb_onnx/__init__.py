"""ONNX files for mgb: `trace.dump` writes them, `mgb.jit.load` and ``mgb run`` read them."""

from __future__ import annotations

from mgb.backends.plugins import hookimpl

from .format import Onnx

__all__ = ["Onnx", "mgb_format"]


@hookimpl
def mgb_format(name: str) -> Onnx | None:
    """Return the format `name`, if it is ONNX; the core calls this entry point."""
    return Onnx() if name == Onnx.name else None
