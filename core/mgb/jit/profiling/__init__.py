"""What each call of a traced function cost, step by step."""

from .profilable import History, Profilable

__all__ = ["History", "Profilable"]
