"""Re-export of `load` and its classes from `storage`."""

from ..storage.load import Loaded, load, load_outputs

__all__ = ["Loaded", "load", "load_outputs"]
