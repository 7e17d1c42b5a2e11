from . import operators as operators
from . import transcendental as transcendental
