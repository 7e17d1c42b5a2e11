"""What each call of a traced function cost, step by step."""

from .history import History, Watch, get_profile, profile_table, reset_profile, save_profile, watch_of

__all__ = [
    "History", "Watch", "get_profile", "profile_table", "reset_profile", "save_profile", "watch_of",
]  # fmt: skip
