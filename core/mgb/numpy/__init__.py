"""NumPy's functions on Tensors, by NumPy's names and with NumPy's arguments; `functional` has MegEngine's."""

from . import functions as functions
from . import linalg as linalg
