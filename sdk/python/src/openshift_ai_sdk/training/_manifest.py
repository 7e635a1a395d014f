"""The MPIJob that arguments describe: values in, a value out, nothing read and nothing sent.

`kubectl odh mpijob create` makes the same of the same input; `sdk/golden` holds both to it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from openshift_ai_sdk.training._errors import MPIJobInvalidError

API_VERSION = "kubeflow.org/v2beta1"
"""Of MPIJobs."""

IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")


def implementation(word: str) -> str:
    """As the manifest writes it: like the command line's flag, the argument may be in lower case."""
    written = {known.lower(): known for known in IMPLEMENTATIONS}
    return written.get(word.lower(), word) if isinstance(word, str) else word


LAUNCHERS = ("mpirun", "mpiexec", "horovodrun")
"""Programs that start the ranks themselves: a command that begins with one is taken as it is."""

GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""On the pods: a mesh's proxy never ends, and takes the connections between ranks."""
REACHABLE = {"trainyard.dev/wait-for-workers": "reachable"}
"""On the job: asks for a launcher that starts once every worker answers."""
HOSTFILE = {"PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile"}
"""For Open MPI 5, which does not know the names that operators set, and would run all ranks in the launcher."""

NAME_MAX = 63
INT_MAX = 2**31 - 1
CONFIG_MAP_MAX = 2**20
"""What a ConfigMap holds, in bytes."""

Command = Union[str, Sequence[str]]


@dataclass(frozen=True)
class ResourceRequirements:
    """What each worker needs, requested and at most.

    Attributes:
        cpu: CPUs: `8`, `0.5` or `"500m"`.
        memory: Bytes, or with a unit: `"64Gi"`.
        gpu: GPUs (`nvidia.com/gpu`).

    """

    cpu: int | float | str | None = None
    memory: int | str | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class Draft:
    """All that a job is made of."""

    name: str
    workers: int
    image: str
    command: Command
    namespace: str | None = None
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    slots_per_worker: int | None = None
    implementation: str = "OpenMPI"
    env: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    retries: int = 0
    working_dir: str | None = None
    run_as_root: bool = False


def words_of(command: Command) -> list[str]:
    """Split a command as a shell does; a list is what it is."""
    if not isinstance(command, str):
        words = [str(word) for word in command]
    else:
        try:
            words = shlex.split(command)
        except ValueError as error:
            why = "a backslash at its end has nothing to quote" if "escaped" in str(error) else "a quote is not closed"
            raise MPIJobInvalidError(f"command={command!r}: {why}", "command") from error
    if not words or not words[0]:
        raise MPIJobInvalidError("command: is empty", "command")
    return words


def check_name(name: str, workers: int) -> None:
    """Refuse a name that the job's pods could not be called by."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise MPIJobInvalidError(
            f'name={name!r}: must be lower case letters, digits and "-", begin with a letter and not end with "-"',
            "name",
        )
    longest = f"{name}-worker-{workers - 1}"
    if len(longest) > NAME_MAX:
        raise MPIJobInvalidError(
            f"name={name!r}: is too long: its last worker would be {longest}, of {len(longest)} characters, "
            f"and {NAME_MAX} is the most",
            "name",
        )


def _whole(name: str, value: int, least: int, why: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MPIJobInvalidError(f"{name}={value!r}: must be {least} or more{why}", name)
    if value > INT_MAX:
        raise MPIJobInvalidError(f"{name}={value!r}: must be {INT_MAX} or less", name)
    return value


def _quantity(name: str, value: float | str) -> str:
    text = str(value)
    if not re.fullmatch(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?", text):
        raise MPIJobInvalidError(f"{name}={value!r}: is no quantity; try 4, 500m or 8Gi", name)
    return text


def check_workers(workers: int) -> None:
    """Refuse a count that is not for distributed training."""
    _whole("workers", workers, 2, ": one worker needs no MPI (the API takes 1, in a manifest)")


def check_hosts(name: str, namespace: str, workers: int) -> None:
    """Refuse more workers than the job's ConfigMap has room for."""
    size = (len(f"{name}-worker-{workers}.{name}.{namespace}.svc") + 2) * workers
    if size > CONFIG_MAP_MAX:
        raise MPIJobInvalidError(
            f"workers={workers}: the hostfile would have {size} bytes, and a ConfigMap holds {CONFIG_MAP_MAX}",
            "workers",
        )


def check_variables(env: Mapping[str, str]) -> None:
    """Refuse what Kubernetes takes for no variable."""
    for name, value in env.items():
        if not isinstance(name, str) or not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            raise MPIJobInvalidError(f"env: {name!r} is no name of a variable", "env")
        if not isinstance(value, str):
            raise MPIJobInvalidError(f"env: {name}={value!r}: must be a string", "env")


def _resources(resources: ResourceRequirements) -> dict[str, Any]:
    amounts: dict[str, str] = {}
    if resources.cpu is not None:
        amounts["cpu"] = _quantity("cpu", resources.cpu)
    if resources.memory is not None:
        amounts["memory"] = _quantity("memory", resources.memory)
    if resources.gpu:
        amounts[GPU] = str(resources.gpu)
    return {"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}


def _command(draft: Draft, slots: int) -> list[str]:
    """Return what the launcher runs."""
    words = words_of(draft.command)
    if words[0].rsplit("/", 1)[-1] in LAUNCHERS:
        return words
    # Open MPI's ranks see the launcher's variables only where they are named
    exported = [word for name in draft.env if draft.implementation == "OpenMPI" for word in ("-x", name)]
    return ["mpirun", "-n", str(draft.workers * slots), *exported, *words]


def _of_launcher(draft: Draft) -> dict[str, str]:
    """Return the variables of the launcher alone."""
    if draft.implementation != "OpenMPI":
        return {}
    ours = dict(HOSTFILE)
    if draft.run_as_root:
        ours |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {name: value for name, value in ours.items() if name not in draft.env}


def _set(container: dict[str, Any], variables: Mapping[str, str]) -> None:
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]


def _pod(draft: Draft, container: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"automountServiceAccountToken": False}
    if not draft.run_as_root:
        spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if draft.working_dir:
        container["workingDir"] = draft.working_dir
    spec["containers"] = [container]
    return {"metadata": {"annotations": dict(NO_SIDECAR)}, "spec": spec}


def build(draft: Draft, here: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Make the MPIJob.

    Args:
        draft: What was asked for.
        here: The caller's variables (`PATH`), where the pods are processes of this machine.

    Raises:
        MPIJobInvalidError: A value cannot be right; the exception names it.

    """
    check_workers(draft.workers)
    check_name(draft.name, draft.workers)
    check_hosts(draft.name, draft.namespace or "", draft.workers)
    if not draft.image:
        raise MPIJobInvalidError("image: is empty", "image")
    if not isinstance(draft.image, str) or any(character.isspace() for character in draft.image):
        raise MPIJobInvalidError(f"image={draft.image!r}: has a blank in it, and no image's name does", "image")
    if not isinstance(draft.resources, ResourceRequirements):
        raise MPIJobInvalidError(
            f"resources={draft.resources!r}: must be ResourceRequirements(cpu=, memory=, gpu=)", "resources"
        )
    if draft.implementation not in IMPLEMENTATIONS:
        raise MPIJobInvalidError(
            f"implementation={draft.implementation!r}: must be one of {', '.join(IMPLEMENTATIONS)}", "implementation"
        )
    gpu = _whole("gpu", draft.resources.gpu or 0, 0)
    slots = _whole("slots_per_worker", gpu or 1 if draft.slots_per_worker is None else draft.slots_per_worker, 1)
    retries = _whole("retries", draft.retries, 0)
    check_variables(draft.env)
    env = {**{name: value for name, value in (here or {}).items() if name not in draft.env}, **draft.env}
    launcher: dict[str, Any] = {"name": "launcher", "image": draft.image, "command": _command(draft, slots)}
    _set(launcher, {**env, **_of_launcher(draft)})
    worker: dict[str, Any] = {"name": "worker", "image": draft.image}
    _set(worker, env)
    if resources := _resources(draft.resources):
        worker["resources"] = resources
    metadata: dict[str, Any] = {"name": draft.name}
    if draft.namespace:
        metadata["namespace"] = draft.namespace
    if draft.queue:
        metadata["labels"] = {QUEUE: draft.queue}
    metadata["annotations"] = dict(REACHABLE)
    replicas: dict[str, Any] = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _pod(draft, launcher)},
        "Worker": {"replicas": draft.workers, "restartPolicy": "Never", "template": _pod(draft, worker)},
    }
    spec: dict[str, Any] = {"mpiImplementation": draft.implementation, "slotsPerWorker": slots}
    spec["sshAuthMountPath"] = "/root/.ssh" if draft.run_as_root else "/home/mpiuser/.ssh"
    spec["runPolicy"] = {"cleanPodPolicy": "Running", "backoffLimit": retries}
    spec["mpiReplicaSpecs"] = replicas
    return {"apiVersion": API_VERSION, "kind": "MPIJob", "metadata": metadata, "spec": spec}
