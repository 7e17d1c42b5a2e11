"""Functions of tensors, under the names of MegEngine's ``functional``."""

from ..ops.modes import Elemwise
from ..tensor.arguments import explain as _explain
from . import (
    complex_numbers,
    distributed,
    einstein,
    elemwise,
    loss,
    math,
    matrices,
    metric,
    nn,
    rearrange,
    segments,
    tensor,
)
from .activation import *
from .complex_numbers import *
from .convolution import *
from .einstein import *
from .elemwise import *
from .math import *
from .matrices import *
from .metric import *
from .nn import *
from .normalization import *
from .pooling import *
from .rearrange import *
from .segments import *
from .softmaxes import *
from .tensor import *
from .unpooling import *
from .volumes import *
from .windows import *

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "computes"}

__all__ = ["Elemwise", "distributed", "loss", "nn"]
__all__ += complex_numbers.__all__
__all__ += einstein.__all__ + elemwise.__all__ + math.__all__ + matrices.__all__ + metric.__all__
__all__ += nn.__all__ + rearrange.__all__ + segments.__all__ + tensor.__all__


def __dir__() -> list[str]:
    return sorted({*__all__})


_explain(globals(), __all__)
_explain(vars(nn), nn.__all__)
_explain(vars(loss), loss.__all__)
