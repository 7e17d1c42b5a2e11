"""Loggers for programs, as MegEngine hands them out: they print without any set-up."""

from __future__ import annotations

import logging

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_level = logging.INFO
_given: dict[str, logging.Logger] = {}


def get_logger(name: str | None = None) -> logging.Logger:
    """Return the logger `name`, which prints to standard error from the level of `set_log_level` on.

    Parameters
    ----------
    name : str, optional
        Of a module, such as ``__name__``; None is ``"mge"``.
    """
    logger = logging.getLogger(name or "mge")
    if logger.name not in _given:
        _given[logger.name] = logger
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(_level)
    return logger


def set_log_level(level: int | str) -> int:
    """Set the level of all loggers, also of those that were handed out; return the former level.

    Raises
    ------
    ValueError
        `level` is none that the module `logging` knows.
    """
    global _level
    probe = logging.Logger("probe")
    probe.setLevel(level)
    former, _level = _level, probe.level
    for logger in _given.values():
        logger.setLevel(_level)
    return former
