"""Profiling of a traced function: its cost, and each call step by step."""

from .history import History, Watch, get_profile, profile_table, reset_profile, save_profile, watch_of
from .statistics import Statistics

__all__ = [
    "History", "Statistics", "Watch", "get_profile", "profile_table", "reset_profile", "save_profile",
    "watch_of",
]  # fmt: skip
