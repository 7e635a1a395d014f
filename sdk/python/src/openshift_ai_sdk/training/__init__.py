"""Distributed training: MPIJobs on OpenShift AI, on any Kubernetes with an MPIJob operator, and on a laptop.

Example:
    >>> from openshift_ai_sdk.training import MPIJob, ResourceRequirements
    >>> job = MPIJob(name="train", workers=4, image="registry.example/me/train:1", command=["python", "train.py"],
    ...              resources=ResourceRequirements(cpu=8, memory="64Gi", gpu=1))

"""

from openshift_ai_sdk.training._errors import (
    MPIJobError,
    MPIJobExistsError,
    MPIJobFailedError,
    MPIJobForbiddenError,
    MPIJobInvalidError,
    MPIJobNotFoundError,
    MPIJobServerError,
    MPIJobTimeoutError,
)
from openshift_ai_sdk.training._job import MPIJob
from openshift_ai_sdk.training._manifest import ResourceRequirements
from openshift_ai_sdk.training._status import MPIJobState, MPIJobStatus

__all__ = [
    "MPIJob",
    "MPIJobError",
    "MPIJobExistsError",
    "MPIJobFailedError",
    "MPIJobForbiddenError",
    "MPIJobInvalidError",
    "MPIJobNotFoundError",
    "MPIJobServerError",
    "MPIJobState",
    "MPIJobStatus",
    "MPIJobTimeoutError",
    "ResourceRequirements",
]
