"""The array API standard 2024.12: what ``Tensor.__array_namespace__()`` gives. See docs/array_api.md.

`functions` says which function serves which of NumPy's, so that ``np.sum(tensor)`` works too.
"""

from math import e, inf, nan, pi

from ..ir.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..ir.dtypes import bool_ as bool
from . import creation, data_types, elementwise, fft, linalg, manipulation, searching, statistics
from . import functions as functions
from .creation import *
from .data_types import *
from .elementwise import *
from .linalg import matmul, matrix_transpose, tensordot, vecdot
from .manipulation import *
from .searching import *
from .statistics import *

#: The versions of the standard that this is; each has all that is in those before it.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

__array_api_version__ = VERSIONS[-1]

newaxis = None

__all__ = [
    "__array_api_version__",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "e",
    "fft",
    "float16",
    "float32",
    "float64",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "matmul",
    "matrix_transpose",
    "nan",
    "newaxis",
    "pi",
    "tensordot",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "vecdot",
]  # fmt: skip
__all__ += creation.__all__ + data_types.__all__ + elementwise.__all__
__all__ += manipulation.__all__ + searching.__all__ + statistics.__all__


def __dir__() -> list[str]:
    return __all__
