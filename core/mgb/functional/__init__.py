"""Functions of tensors, under the names of MegEngine's ``functional``."""

from ..ops.modes import Elemwise as Elemwise
from . import loss as loss
from . import nn as nn
from . import numpy_functions as numpy_functions
from .activation import *  # noqa: F403
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .matrices import *  # noqa: F403
from .nn import *  # noqa: F403
from .normalization import *  # noqa: F403
from .rearrange import *  # noqa: F403
from .softmaxes import *  # noqa: F403
from .tensor import *  # noqa: F403
