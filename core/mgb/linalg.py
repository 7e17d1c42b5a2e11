"""Linear algebra: `mgb.numpy.linalg` under a shorter name."""

from .numpy.linalg import *
