"""Linear algebra: `mgb.numpy.linalg` under a shorter name."""

from .numpy import linalg as _names
from .numpy.linalg import *
from .tensor.arguments import explain as _explain

_explain(globals(), _names.__all__)
