"""What an MPIJob's status says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class MPIJobState(str, Enum):
    """Where a job stands."""

    CREATED = "Created"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __str__(self) -> str:
        """Return the word itself."""
        return self.value

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens."""
        return self in (MPIJobState.SUCCEEDED, MPIJobState.FAILED)


@dataclass(frozen=True)
class MPIJobStatus:
    """Where a job stands, and why.

    Attributes:
        state: Derived from the conditions.
        reason: The reason of the condition that gives the state; empty while no controller has seen the job.
        message: Its message.
        workers: Workers that are asked for.
        workers_active: Workers that run.
        start_time: When it started, as the API writes times.
        completion_time: When it ended.

    """

    state: MPIJobState
    reason: str = ""
    message: str = ""
    workers: int = 0
    workers_active: int = 0
    start_time: str | None = None
    completion_time: str | None = None

    def __str__(self) -> str:
        """Return the state, with its reason."""
        return f"{self.state} ({self.reason})" if self.reason else str(self.state)


def status_of(job: Mapping[str, Any]) -> MPIJobStatus:
    """Read the status of an MPIJob."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    holds = {
        condition["type"]: condition
        for condition in status.get("conditions") or []
        if condition.get("status") == "True"
    }
    suspended = bool((spec.get("runPolicy") or {}).get("suspend"))
    # a condition may lag behind the spec: what is suspended is so for its owner at once
    order = ["Succeeded", "Failed", *(["Suspended"] if suspended else ["Running"]), "Created"]
    found = next((kind for kind in order if kind in holds), None)
    state = MPIJobState(found) if found else MPIJobState.CREATED
    if suspended and not state.is_finished:
        state = MPIJobState.SUSPENDED
    condition = holds.get(state.value, {})
    worker = (spec.get("mpiReplicaSpecs") or {}).get("Worker") or {}
    active = ((status.get("replicaStatuses") or {}).get("Worker") or {}).get("active") or 0
    return MPIJobStatus(
        state=state,
        reason=condition.get("reason") or "",
        message=condition.get("message") or "",
        workers=worker.get("replicas") or 0,
        workers_active=active,
        start_time=status.get("startTime"),
        completion_time=status.get("completionTime"),
    )
