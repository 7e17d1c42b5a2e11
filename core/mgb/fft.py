"""Discrete Fourier transforms: `mgb.numpy.fft` under a shorter name."""

from .numpy.fft import *
