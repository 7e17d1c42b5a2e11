"""Functions of tensors, under the names of MegEngine's ``functional``."""

from ..ops.modes import Elemwise as Elemwise
from . import distributed as distributed
from . import loss as loss
from . import nn as nn
from .activation import *
from .convolution import *
from .einstein import *
from .elemwise import *
from .math import *
from .matrices import *
from .metric import *
from .nn import *
from .normalization import *
from .rearrange import *
from .running import *
from .softmaxes import *
from .tensor import *
from .windows import *
