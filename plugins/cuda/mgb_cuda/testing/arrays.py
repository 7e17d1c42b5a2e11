"""NumPy's arrays where kernels run on the host."""

from __future__ import annotations

from typing import Any

import numpy as np


class HostArrays:
    """The methods of a `Device` that concern arrays, for arrays of the host."""

    def address(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])

    def stream(self) -> int:
        return 0

    def scratch(self, nbytes: int) -> tuple[int, object]:
        memory = np.full(nbytes // 8 + 1, -1, np.int64)  # not a number, if somebody reads before it writes
        return memory.ctypes.data, memory

    def upload(self, array: Any) -> Any:
        return np.ascontiguousarray(array)

    def constant(self, array: Any) -> Any:
        return self.upload(array)

    def contiguous(self, array: Any) -> Any:
        return array.copy()
