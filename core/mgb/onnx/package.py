"""The `onnx` package, imported when it is first needed."""

from __future__ import annotations

from typing import Any

from ..errors import OnnxMissingError


def onnx_package() -> Any:
    """The module `onnx`.

    Raises
    ------
    OnnxMissingError
        It is not installed; the message has the command.
    """
    try:
        import onnx
    except ImportError as error:
        raise OnnxMissingError("ONNX files need the onnx package: pip install 'mgb[onnx]'") from error
    return onnx
