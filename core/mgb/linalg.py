"""Linear algebra: `mgb.numpy.linalg` under a shorter name."""

from .arguments import explain as _explain
from .numpy import linalg as _names
from .numpy.linalg import *

_explain(globals(), _names.__all__)
