"""The array API standard 2024.12: what ``Tensor.__array_namespace__()`` gives. See docs/array_api.md.

`functions` says which function serves which of NumPy's, so that ``np.sum(tensor)`` works too.
"""

from math import e, inf, nan, pi

from ..ir import dtypes
from ..ir.dtypes import *
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

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "computes"}

__all__ = [
    "__array_api_version__", "bool", "e", "fft", "inf", "linalg", "matmul", "matrix_transpose", "nan",
    "newaxis", "pi", "tensordot", "vecdot",
]  # fmt: skip
__all__ += [name for name in dtypes.__all__ if name in dtypes.BY_NAME]
__all__ += creation.__all__ + data_types.__all__ + elementwise.__all__
__all__ += manipulation.__all__ + searching.__all__ + statistics.__all__


def __dir__() -> list[str]:
    return __all__
