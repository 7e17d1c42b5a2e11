"""Discrete Fourier transforms: `mgb.numpy.fft` under a shorter name."""

from .numpy import fft as _names
from .numpy.fft import *
from .tensor.arguments import explain as _explain

_explain(globals(), _names.__all__)
