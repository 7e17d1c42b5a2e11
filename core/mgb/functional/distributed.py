"""Collectives: see `mgb.distributed.functional`."""

from ..distributed.functional import *
from ..distributed.functional import __all__ as __all__
