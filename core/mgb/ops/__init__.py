"""Every op. Importing this declares them all and gives Tensor its arithmetic."""

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
