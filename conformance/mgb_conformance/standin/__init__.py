"""CuPy's interface over the memory of the host: what works on it does nothing behind CuPy's back.

An array of the stand-in is not a NumPy array and is never converted implicitly; it mixes with no NumPy array,
lacks what CuPy's arrays lack, and lies on a device of its own. Which functions there are, with which
parameters and for which dtypes, is read from a list that `record` took from CuPy itself. So code that runs on
the stand-in asks CuPy for nothing that CuPy does not have. What it cannot tell: how fast a GPU is, and the
last bits of its functions.
"""

from .cuda import Device, OutOfMemoryError, State, Stream, state
from .install import install, uninstall
from .ndarray import ndarray

__all__ = ["Device", "OutOfMemoryError", "State", "Stream", "install", "ndarray", "state", "uninstall"]
