"""Errors between processes, a class each."""

from __future__ import annotations

from ..errors import MgbError


class DistributedError(MgbError, RuntimeError):
    """The processes of a job cannot go on together, or there is no job: `init_process_group` starts one."""


class CommunicatorError(DistributedError, ImportError):
    """The communicator is not installed or cannot run here, or several could serve and none is named."""


class CollectiveMismatchError(DistributedError):
    """Ranks call different collectives, or with other shapes or dtypes."""


class CollectiveTimeoutError(DistributedError, TimeoutError):
    """Not all ranks came to a collective within the limit."""


class RankFailedError(DistributedError):
    """Another rank has ended, by an exception or since its program is over."""


class LaunchError(DistributedError, ValueError):
    """A job cannot be started in the way that is asked for."""


class CheckpointError(DistributedError, OSError):
    """Rank 0 could not write or read a file that all ranks wait for."""
