"""The wheel that brings MLIR: which one this plugin was tested with, and whether another one will do."""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec

from mgb_native.target import version_of

#: The distribution, and the version that this plugin was tested with; with another one passes may be renamed.
WHEEL, TESTED = "torch-mlir", "20261001"

_INSTALL = f"python -m pip install {WHEEL}=={TESTED}"

#: A module with a bit of everything that kernels hold.
_SAMPLE = """module {
func.func @kernel(%a: index, %b: index, %c: index) -> i64 {
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %one = arith.constant dense<1.0> : vector<8xf32>
  %done = arith.constant 0 : i64
  %x = func.call @view_f32(%a) : (index) -> memref<?xf32>
  %end = scf.for %i = %zero to %b step %eight iter_args(%s = %one) -> (vector<8xf32>) {
    %mask = vector.create_mask %b : vector<8xi1>
    %e = vector.maskedload %x[%i], %mask, %one : memref<?xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
    %f = math.fma %e, %s, %one : vector<8xf32>
    scf.yield %f : vector<8xf32>
  }
  %sum = vector.reduction <add>, %end fastmath<reassoc> : vector<8xf32> into f32
  memref.store %sum, %x[%zero] : memref<?xf32>
  return %done : i64
}
VIEW
}"""

_log = logging.getLogger("mgb.mlir")


def problem() -> str | None:
    """Return why there is no MLIR here, with the command that mends it; nothing is imported."""
    if find_spec("torch_mlir") is None:
        return f"MLIR is not installed; {_INSTALL}"
    return None


@cache
def check() -> None:
    """Ask a wheel of another version whether it takes a sample; once in a process, before the first kernel.

    Raises
    ------
    LoweringError
        It does not. The message says which version does.
    """
    version = version_of(WHEEL)
    if version == TESTED:
        return
    from .memory import view
    from .passes import TO_LLVM, LoweringError, machine_code, parse, run

    said = f"{WHEEL} is of version {version}; this plugin was tested with {TESTED}"
    try:
        machine_code(run(parse(_SAMPLE.replace("VIEW", view("f32"))), TO_LLVM), 1)
    except Exception as error:
        raise LoweringError(f"{said}, and a sample fails with it: {_INSTALL} ({error})") from error
    _log.warning("%s; a sample passes, so it goes on", said)
