"""`load`, by the name of the module that it is imported from."""

from ..storage.load import Loaded, load, load_outputs

__all__ = ["Loaded", "load", "load_outputs"]
