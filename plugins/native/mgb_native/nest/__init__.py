"""The loops of a kernel with explicit vectors, for backends that write operations one by one."""

from .builder import INDEX, SCALAR, WORD, Builder, Carried, Lanes, Type
from .kernel import SYMBOL, Nest
from .words import SCANS, VOCABULARY

__all__ = [
    "INDEX",
    "SCALAR",
    "SCANS",
    "SYMBOL",
    "VOCABULARY",
    "WORD",
    "Builder",
    "Carried",
    "Lanes",
    "Nest",
    "Type",
]
