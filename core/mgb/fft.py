"""Discrete Fourier transforms: `mgb.numpy.fft` under a shorter name."""

from .arguments import explain as _explain
from .numpy import fft as _names
from .numpy.fft import *

_explain(globals(), _names.__all__)
