"""Every op. Importing this gives Tensor its arithmetic, and declares all ops but those that wait.

What waits is imported by whom it serves, or by `declare_all`, so that ``import mgb`` stays light.
"""

import importlib

from . import activations as activations
from . import elementwise as elementwise
from . import methods as methods
from . import modes as modes
from . import numpy_protocol as numpy_protocol
from . import operators as operators
from . import sort as sort
from .bodies import division as division
from .bodies import hyperbolic as hyperbolic
from .bodies import rounding as rounding
from .bodies import transcendental as transcendental
from .images import attention as attention
from .images import contract as contract
from .images import pooling as pooling
from .random import bits as bits

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "computes"}

_WAITING = (
    "linalg.linear_systems",
    "linalg.decompositions",
    "fourier",
    "order",
    "scans",
    "scatter",
    "look_up",
    "strided",
    "scatter_folds",
    "dot",
)


def declare_all() -> None:
    """Declare the ops that wait, for one who looks for an op by its name."""
    for name in _WAITING:
        importlib.import_module(f".{name}", __name__)
