"""Every op. Importing this gives Tensor its arithmetic, and declares all ops but those that wait.

What waits is imported by whom it serves, or by `declare_all`, so that ``import mgb`` stays light.
"""

import importlib

from . import activations as activations
from . import attention as attention
from . import contract as contract
from . import division as division
from . import elementwise as elementwise
from . import hyperbolic as hyperbolic
from . import methods as methods
from . import modes as modes
from . import numpy_protocol as numpy_protocol
from . import operators as operators
from . import pooling as pooling
from . import random_bits as random_bits
from . import rounding as rounding
from . import sort as sort
from . import transcendental as transcendental

_WAITING = ("linear_systems", "decompositions", "fourier", "order", "scatter", "look_up")


def declare_all() -> None:
    """Declare the ops that wait, for one who looks for an op by its name."""
    for name in _WAITING:
        importlib.import_module(f".{name}", __name__)
