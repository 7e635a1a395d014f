"""What goes wrong, one exception each; all of them are `MPIJobError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class MPIJobError(Exception):
    """Whatever goes wrong with an MPIJob."""


class MPIJobNotFoundError(MPIJobError):
    """The MPIJob, or the pod whose log was asked for, does not exist."""


class MPIJobForbiddenError(MPIJobError):
    """The server knows who asks, and does not allow it; or it does not know who asks."""


class MPIJobInvalidError(MPIJobError):
    """A value cannot be right.

    Attributes:
        field: The argument that is wrong (`workers`), or the field's path where the server refused it.

    """

    def __init__(self, message: str, field: str = "") -> None:
        """Keep the field beside the message."""
        super().__init__(message)
        self.field = field


class MPIJobExistsError(MPIJobInvalidError):
    """There is an MPIJob of this name already."""


class MPIJobTimeoutError(MPIJobError, TimeoutError):
    """The time to wait is over. The job goes on."""


class MPIJobFailedError(MPIJobError):
    """The job has failed.

    Attributes:
        reason: The reason of its Failed condition.
        log_lines: The last lines of its launcher, as far as they are still there.

    """

    def __init__(self, message: str, reason: str = "", log_lines: Sequence[str] = ()) -> None:
        """Put the log's last lines behind the message, so that a traceback shows them."""
        lines = tuple(log_lines)
        shown = "".join(f"\n  {line}" for line in lines)
        super().__init__(f"{message}\nLast lines of the launcher:{shown}" if lines else message)
        self.reason = reason
        self.log_lines = lines


class MPIJobServerError(MPIJobError):
    """No API server answers, it has no MPIJobs, or it failed."""
