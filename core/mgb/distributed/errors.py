"""Errors between processes, a class each."""

from __future__ import annotations

from ..errors import MgbError


class DistributedError(MgbError, RuntimeError):
    """The processes of a job cannot go on together."""


class NotDistributedError(DistributedError):
    """A group was used before `init_process_group`."""


class GroupError(DistributedError, ValueError):
    """A group has ranks that there are not, or not this one."""


class CommunicatorNotInstalledError(DistributedError, ImportError):
    """No package brings the communicator that is wanted, or it cannot run here."""


class CommunicatorConflictError(DistributedError):
    """Several communicators could serve, and none is named."""


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
