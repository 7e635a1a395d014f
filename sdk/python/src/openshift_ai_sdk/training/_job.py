"""MPIJobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, overload

import yaml

from openshift_ai_sdk.training import _local, _manifest
from openshift_ai_sdk.training._client import JOB_ROLE, Client
from openshift_ai_sdk.training._errors import (
    MPIJobError,
    MPIJobFailedError,
    MPIJobForbiddenError,
    MPIJobInvalidError,
    MPIJobNotFoundError,
    MPIJobServerError,
    MPIJobTimeoutError,
)
from openshift_ai_sdk.training._manifest import Draft, ResourceRequirements
from openshift_ai_sdk.training._status import MPIJobState, MPIJobStatus, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

JOB_NAME = "training.kubeflow.org/job-name"
LINES_OF_FAILURE = 20
"""How many of a failed launcher's last lines its exception has."""


def _container(pod: Mapping[str, Any]) -> str:
    """Name a pod's main container: operators decorate the first."""
    return str(pod["spec"]["containers"][0]["name"])


def _state(pod: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    """Return how often a pod's main container was restarted, and its state."""
    name = _container(pod)
    for status in pod.get("status", {}).get("containerStatuses") or []:
        if status["name"] == name:
            return status.get("restartCount", 0), status.get("state") or {}
    return 0, {}


class MPIJob:
    """A distributed job that MPI starts: one launcher, which runs mpirun, and workers, in which the ranks run.

    Example:
        >>> job = MPIJob(name="train", workers=4, image="registry.example/me/train:1", command=["python", "train.py"],
        ...              resources=ResourceRequirements(cpu=8, memory="64Gi", gpu=1))
        >>> job.create()                                # doctest: +SKIP
        >>> job.wait_for_completion(timeout=3600)       # doctest: +SKIP
        >>> print(job.get_logs())                       # doctest: +SKIP

    """

    def __init__(
        self,
        name: str,
        namespace: str | None = None,
        workers: int = 2,
        image: str = "",
        command: _manifest.Command = (),
        resources: ResourceRequirements | None = None,
        *,
        slots_per_worker: int | None = None,
        implementation: str = "OpenMPI",
        env: Mapping[str, str] | None = None,
        queue: str | None = None,
        retries: int = 0,
        working_dir: str | None = None,
        run_as_root: bool = False,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
    ) -> None:
        """Describe a job; nothing is sent before `create`.

        Args:
            name: Its name, short enough for the names of its workers' pods.
            namespace: Its namespace; by default the kubeconfig's.
            workers: Pods in which ranks run, 2 or more.
            image: The pods' image, with MPI and an SSH server. On a laptop pods run on the machine's own programs.
            command: What each rank runs, as words or as a shell would split them. It is put behind
                `mpirun -n RANKS` unless it begins with mpirun, mpiexec or horovodrun.
            resources: What each worker needs.
            slots_per_worker: Ranks of each worker; by default its GPUs, or 1.
            implementation: `OpenMPI`, `Intel` or `MPICH`, in upper or lower case.
            env: Variables of all ranks.
            queue: Kueue's LocalQueue.
            retries: How often a launcher that failed is started again.
            working_dir: Where the command runs; by default the image's folder, on a laptop the current one.
            run_as_root: For images whose SSH server wants root. OpenShift's default policy refuses them.
            kubeconfig: The cluster; see `Client` for the order without it.
            context: The kubeconfig's context; by default its current one.

        Raises:
            MPIJobInvalidError: A value cannot be right.

        """
        self._draft: Draft | None = Draft(
            name=name, namespace=namespace, workers=workers, image=image, command=command,
            resources=resources or ResourceRequirements(), slots_per_worker=slots_per_worker,
            implementation=_manifest.implementation(implementation), env=dict(env or {}), queue=queue, retries=retries,
            working_dir=working_dir, run_as_root=run_as_root,
        )  # fmt: skip
        self._object: dict[str, Any] = _manifest.build(self._draft)
        self._kubeconfig, self._context = kubeconfig, context
        self._connected: Client | None = None

    @classmethod
    def _of(cls, found: dict[str, Any], connected: Client) -> MPIJob:
        job = cls.__new__(cls)
        job._draft, job._object = None, found
        job._kubeconfig, job._context, job._connected = None, None, connected
        return job

    @classmethod
    def get(
        cls,
        name: str,
        namespace: str | None = None,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
    ) -> MPIJob:
        """Return the MPIJob of this name, also one that another client made.

        Raises:
            MPIJobNotFoundError: There is none.

        """
        connected = Client(kubeconfig, context)
        return cls._of(connected.read(namespace or connected.namespace, name), connected)

    @classmethod
    def list(
        cls,
        namespace: str | None = None,
        *,
        all_namespaces: bool = False,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
    ) -> Sequence[MPIJob]:
        """Return the MPIJobs of a namespace, or of all."""
        connected = Client(kubeconfig, context)
        found = connected.list_all(None if all_namespaces else namespace or connected.namespace)
        return [cls._of(job, connected) for job in found]

    def __repr__(self) -> str:
        """Return which job it is."""
        return f"MPIJob(name={self.name!r}, namespace={self.namespace!r}, workers={self.workers})"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._object["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """Its namespace; `None` for the kubeconfig's, as long as nothing was sent."""
        found: str | None = self._object["metadata"].get("namespace")
        return found

    @property
    def workers(self) -> int:
        """How many workers it has, as far as is known here."""
        return status_of(self._object).workers

    @property
    def command(self) -> Sequence[str]:
        """What its launcher runs, mpirun and all."""
        template = (self._object["spec"]["mpiReplicaSpecs"].get("Launcher") or {}).get("template") or {}
        containers = (template.get("spec") or {}).get("containers") or [{}]
        return [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest that `create` sends to a cluster; of a job from a server, what the server has."""
        return self._object

    def to_yaml(self) -> str:
        """Return the same as YAML, for `kubectl apply -f`."""
        shown = dict(self._object)
        if "managedFields" in shown["metadata"]:
            shown["metadata"] = {key: value for key, value in shown["metadata"].items() if key != "managedFields"}
        return str(yaml.safe_dump(shown, sort_keys=False))

    @property
    def _client(self) -> Client:
        if self._connected is None:
            self._connected = Client(self._kubeconfig, self._context)
        return self._connected

    @property
    def _place(self) -> str:
        return self.namespace or self._client.namespace

    def create(self, *, dry_run: bool = False) -> MPIJob:
        """Submit the job, and return it.

        Args:
            dry_run: Let the server check it, and keep nothing.

        Raises:
            MPIJobExistsError: There is one of this name.
            MPIJobForbiddenError: The user may not create MPIJobs here.
            MPIJobInvalidError: The server refuses a field; or the job cannot run on this machine.
            MPIJobServerError: No server answers, or it has no MPIJobs.

        """
        manifest = self._object
        if self._draft is not None and self._client.is_local:
            here = _local.variables()
            draft = Draft(**{**vars(self._draft), "working_dir": _local.folder(self._draft.working_dir)})
            manifest = _manifest.build(draft, here)
            path = {"PATH": here.get("PATH", ""), **draft.env}
            _local.check_mpi(draft.implementation, self.command, path)
        elif self._draft is None:
            metadata = {key: self._object["metadata"][key] for key in ("name", "namespace", "labels", "annotations")
                        if key in self._object["metadata"]}  # fmt: skip
            manifest = {**self._object, "metadata": metadata}
            manifest.pop("status", None)
        created = self._client.create(self._place, manifest, dry_run)
        if not dry_run:
            self._draft, self._object = None, created
        return self

    def _read(self) -> dict[str, Any]:
        found = self._client.read(self._place, self.name)
        self._draft, self._object = None, found
        return found

    def get_status(self) -> MPIJobStatus:
        """Return where the job stands.

        Raises:
            MPIJobNotFoundError: It was not created, or was deleted.

        """
        return status_of(self._read())

    def wait_for_completion(self, timeout: float | None = 3600, *, poll_interval: float = 1.0) -> MPIJobStatus:
        """Wait until the job has succeeded. A server that is away for a while is waited for, too.

        Args:
            timeout: Seconds; `None` to wait for ever.
            poll_interval: Seconds between two looks.

        Raises:
            MPIJobFailedError: It has failed; the exception has the reason and the launcher's last lines.
            MPIJobInvalidError: The operator found errors in the job, and will not start it.
            MPIJobTimeoutError: The time is over; the job goes on.
            MPIJobNotFoundError: It was deleted meanwhile.

        """
        deadline = None if timeout is None else time.monotonic() + timeout
        status, away = MPIJobStatus(MPIJobState.CREATED), None
        while True:
            try:
                status, away = self.get_status(), None
                if status.state is MPIJobState.SUCCEEDED:
                    return status
                if status.state is MPIJobState.FAILED:
                    raise self._failed(status)
                if not status.reason and status.state is MPIJobState.CREATED:
                    self._refuse_invalid()
            except MPIJobServerError as error:
                away = error
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                standing = f"the server is away: {away}" if away else f"it is {status}"
                raise MPIJobTimeoutError(
                    f'MPIJob "{self.name}" has not ended after {timeout:g} s: {standing}'
                ) from away
            time.sleep(poll_interval if left is None else min(poll_interval, left))

    def _failed(self, status: MPIJobStatus) -> MPIJobFailedError:
        try:
            log = self._log(None, LINES_OF_FAILURE)
        except MPIJobError:
            log = ""  # gone, or not for us to read: the failure itself is what counts
        # upstream's end in a slash and in a colon where it had no more to add
        reason, message = status.reason.rstrip("/"), status.message.rstrip(": ")
        told = ": ".join(part for part in (f'MPIJob "{self.name}" failed', reason, message) if part)
        return MPIJobFailedError(told, reason, log.splitlines())

    def _refuse_invalid(self) -> None:
        for event in self._client.events(self._place, self.name):
            about = event.get("involvedObject") or {}
            if event.get("reason") == "ValidationError" and about.get("uid") == self._object["metadata"].get("uid"):
                raise MPIJobInvalidError(f'MPIJob "{self.name}" cannot start: {event.get("message", "")}', "spec")

    def _pods(self, role: str) -> Sequence[dict[str, Any]]:
        """Return the job's pods of a role, oldest first."""
        pods = self._client.pods(self._place, f"{JOB_NAME}={self.name},{JOB_ROLE}={role}")
        return sorted(pods, key=lambda pod: (str(pod["metadata"]["creationTimestamp"]), str(pod["metadata"]["name"])))

    def _launcher(self) -> dict[str, Any]:
        pods = self._pods("launcher")
        if not pods:
            raise MPIJobNotFoundError(f'MPIJob "{self.name}" has no launcher pod: it has not started, or is gone')
        return pods[-1]

    def _pod(self, worker: int | None) -> dict[str, Any]:
        if worker is None:
            return self._launcher()
        name = f"{self.name}-worker-{worker}"
        for pod in self._pods("worker"):
            if pod["metadata"]["name"] == name:
                return pod
        raise MPIJobNotFoundError(
            f'MPIJob "{self.name}" has no pod of worker {worker}: it has not started, or went when the job ended'
        )

    @overload
    def get_logs(self, worker: int | None = None, follow: Literal[False] = False) -> str: ...

    @overload
    def get_logs(self, worker: int | None = None, *, follow: Literal[True]) -> Iterator[str]: ...

    @overload
    def get_logs(self, worker: int | None, follow: Literal[True]) -> Iterator[str]: ...

    def get_logs(self, worker: int | None = None, follow: bool = False) -> str | Iterator[str]:
        """Return what the launcher printed, or a worker; mpirun prints what all ranks say in the launcher.

        Args:
            worker: A worker, from 0; by default the launcher.
            follow: Return an iterator of lines, which waits for more until the job ends.

        Raises:
            MPIJobNotFoundError: The job or its pod is not there.
            MPIJobInvalidError: The job has no such worker.

        """
        status = self.get_status()
        if worker is not None and not 0 <= worker < status.workers:
            last = status.workers - 1
            there = "no workers" if last < 0 else "worker 0 alone" if last == 0 else f"workers 0 to {last}"
            raise MPIJobInvalidError(f'worker={worker}: MPIJob "{self.name}" has {there}', "worker")
        if follow:
            return self._follow(worker)
        return self._log(worker)

    def _log(self, worker: int | None, tail: int | None = None) -> str:
        try:
            pod = self._pod(worker)
        except MPIJobNotFoundError:
            kept = self._client.kept(self._place, self.name, worker, tail)
            if kept is None:
                raise
            return kept
        started = _state(pod)[1]
        if not ("running" in started or "terminated" in started):
            return ""
        return self._client.log(self._place, pod["metadata"]["name"], _container(pod), tail)

    def _follow(self, worker: int | None, poll_interval: float = 0.5) -> Iterator[str]:
        shown: dict[tuple[str, int], int] = {}  # lines of each run that were yielded
        over: set[tuple[str, int]] = set()
        while True:
            is_finished = self.get_status().state.is_finished  # before the pod: what it printed last is shown
            try:
                pod = self._pod(worker)
                restarts, state = _state(pod)
                run = (str(pod["metadata"]["uid"]), restarts)
                if run not in over and ("running" in state or "terminated" in state):
                    lines = self._client.follow(self._place, pod["metadata"]["name"], _container(pod))
                    for number, line in enumerate(lines):
                        if number >= shown.get(run, 0):
                            shown[run] = number + 1
                            yield line
                    over.add(run)
                    continue
            except MPIJobForbiddenError:
                raise
            except MPIJobError:
                pass  # not there yet, gone meanwhile, or the connection broke: what was shown is not shown again
            if is_finished:
                if not shown:
                    yield from (self._client.kept(self._place, self.name, worker) or "").splitlines()
                return
            time.sleep(poll_interval)

    def suspend(self) -> None:
        """Stop the job's pods, and keep the job."""
        self._change({"runPolicy": {"suspend": True}})

    def resume(self) -> None:
        """Start a suspended job's pods again."""
        self._change({"runPolicy": {"suspend": False}})

    def scale(self, workers: int) -> None:
        """Change the number of workers. A running mpirun keeps its ranks; Horovod finds the workers by itself.

        Raises:
            MPIJobInvalidError: Fewer than 1, or too many for the job's name.

        """
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise MPIJobInvalidError(f"workers={workers!r}: must be 1 or more", "workers")
        _manifest.check_name(self.name, workers)
        _manifest.check_hosts(self.name, self.namespace or "", workers)
        self._change({"mpiReplicaSpecs": {"Worker": {"replicas": workers}}})

    def _change(self, spec: dict[str, Any]) -> None:
        self._draft, self._object = None, self._client.patch(self._place, self.name, {"spec": spec})

    def delete(self, *, wait: bool = True, timeout: float = 120, poll_interval: float = 0.2) -> None:
        """Delete the job, with all that was made for it.

        Args:
            wait: Return once all of it is gone.
            timeout: Seconds to wait at most.
            poll_interval: Seconds between two looks.

        Raises:
            MPIJobNotFoundError: There is none.
            MPIJobTimeoutError: It is still there.

        """
        self._client.delete(self._place, self.name)
        deadline = time.monotonic() + timeout
        while wait:
            try:
                self._client.read(self._place, self.name)
            except MPIJobNotFoundError:
                return
            if time.monotonic() > deadline:
                raise MPIJobTimeoutError(f'MPIJob "{self.name}" is still there after {timeout:g} s')
            time.sleep(poll_interval)
