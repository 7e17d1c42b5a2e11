"""Collectives: see `mgb.distributed.functional`."""

from ..distributed.functional import *
