"""Requests to the API server, and its refusals as our exceptions."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes import client, config

from openshift_ai_sdk.training import _local
from openshift_ai_sdk.training._errors import (
    MPIJobError,
    MPIJobExistsError,
    MPIJobForbiddenError,
    MPIJobInvalidError,
    MPIJobNotFoundError,
    MPIJobServerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP, VERSION, PLURAL = "kubeflow.org", "v2beta1", "mpijobs"
JOB_ROLE = "training.kubeflow.org/job-role"
FIELD_MANAGER = "openshift-ai-sdk"
TIMEOUT = (10, 60)
"""Seconds to connect, and between two bytes of an answer."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _failure(error: client.ApiException) -> MPIJobError:
    """Translate an API server's refusal."""
    try:
        status = json.loads(error.body or "")
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    message = status.get("message") or error.reason or f"HTTP {error.status}"
    details = status.get("details") or {}
    causes = details.get("causes") or []
    field = causes[0].get("field", "") if causes else ""
    if error.status in (401, 403):
        return MPIJobForbiddenError(message)
    if error.status == 404 and not details.get("name"):  # noqa: PLR2004 (the path, not an object)
        return MPIJobServerError(
            f"the API server has no MPIJobs ({GROUP}/{VERSION}): install an operator for them, for one Trainyard"
        )
    if error.status == 404:  # noqa: PLR2004
        return MPIJobNotFoundError(message)
    if status.get("reason") == "AlreadyExists":
        return MPIJobExistsError(message, "name")
    if error.status in (400, 422):
        return MPIJobInvalidError(message, field)
    return MPIJobServerError(message)


@contextlib.contextmanager
def translated(server: str) -> Iterator[None]:
    """Turn the exceptions of the libraries below into ours."""
    try:
        yield
    except client.ApiException as error:
        raise _failure(error) from error
    except urllib3.exceptions.HTTPError as error:
        raise MPIJobServerError(f"cannot reach the API server at {server}: {error}") from error


class Client:
    """A server, found as `kubectl odh` finds it, and the namespace to work in.

    The first that is given: `kubeconfig` or `context`; `$TRAINYARD_HOME`; `$KUBECONFIG`; `~/.kube/config`; the cluster
    whose pod this is; this machine's control plane.
    """

    def __init__(self, kubeconfig: str | Path | None = None, context: str | None = None) -> None:
        """Read the kubeconfig; nothing is sent yet."""
        self.namespace = "default"
        self.is_local = False
        self._settings = client.Configuration()
        try:
            self._load(kubeconfig, context)
        except (config.ConfigException, OSError) as error:
            raise MPIJobServerError(f"no cluster is configured: {error}") from error
        # a server that is gone raises at once; a caller that waits for it tries again
        self._settings.retries = False
        api = client.ApiClient(self._settings)
        self._jobs, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def _load(self, kubeconfig: str | Path | None, context: str | None) -> None:
        path = self._path(kubeconfig, context)
        if path is None:
            config.load_incluster_config(client_configuration=self._settings)
            self.namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
            return
        config.load_kube_config(config_file=path, context=context, client_configuration=self._settings)
        contexts, current = config.list_kube_config_contexts(config_file=path)
        chosen = next((one for one in contexts if one["name"] == context), current)
        self.namespace = chosen["context"].get("namespace") or "default"
        self.is_local = os.pathsep not in path and _local.is_kubeconfig_of_home(Path(path))

    @staticmethod
    def _path(kubeconfig: str | Path | None, context: str | None) -> str | None:
        home, theirs = _local.home(), Path("~/.kube/config").expanduser()
        if kubeconfig is not None:
            return str(kubeconfig)
        if context is None and os.environ.get("TRAINYARD_HOME") and home is not None:
            return str(home / "kubeconfig")
        if os.environ.get("KUBECONFIG"):
            return os.environ["KUBECONFIG"]
        if theirs.is_file() or context is not None:
            return str(theirs)
        if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
            return None
        if home is not None and (home / "kubeconfig").is_file():
            return str(home / "kubeconfig")
        raise MPIJobServerError(
            "no cluster is configured: there is no kubeconfig, and no control plane of this machine; start one with "
            "`trainyard up --detach`, or name a cluster by KUBECONFIG"
        )

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return translated(str(self._settings.host))

    def create(self, namespace: str, job: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        """Create an MPIJob."""
        options = {"dry_run": "All"} if dry_run else {}
        with self._translated():
            created: dict[str, Any] = self._jobs.create_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, job, field_manager=FIELD_MANAGER, field_validation="Strict",
                _request_timeout=TIMEOUT, **options,
            )  # fmt: skip
        return created

    def read(self, namespace: str, name: str) -> dict[str, Any]:
        """Read an MPIJob."""
        with self._translated():
            found: dict[str, Any] = self._jobs.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, _request_timeout=TIMEOUT
            )
        return found

    def list_all(self, namespace: str | None) -> list[dict[str, Any]]:
        """List the MPIJobs of a namespace, or of all."""
        with self._translated():
            if namespace is None:
                found = self._jobs.list_cluster_custom_object(GROUP, VERSION, PLURAL, _request_timeout=TIMEOUT)
            else:
                found = self._jobs.list_namespaced_custom_object(
                    GROUP, VERSION, namespace, PLURAL, _request_timeout=TIMEOUT
                )
        return list(found["items"])

    def patch(self, namespace: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        """Merge a change into an MPIJob."""
        with self._translated():
            patched: dict[str, Any] = self._jobs.patch_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, change, field_manager=FIELD_MANAGER, _request_timeout=TIMEOUT
            )
        return patched

    def delete(self, namespace: str, name: str) -> None:
        """Delete an MPIJob, its pods first."""
        with self._translated():
            self._jobs.delete_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, propagation_policy="Foreground", _request_timeout=TIMEOUT
            )

    def pods(self, namespace: str, labels: str) -> list[dict[str, Any]]:
        """List pods by their labels."""
        with self._translated():
            answer = self._core.list_namespaced_pod(
                namespace, label_selector=labels, _preload_content=False, _request_timeout=TIMEOUT
            )
            return list(json.loads(answer.data)["items"])

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """List the events of an MPIJob; none for who may not read them."""
        try:
            with self._translated():
                answer = self._core.list_namespaced_event(
                    namespace,
                    field_selector=f"involvedObject.kind=MPIJob,involvedObject.name={name}",
                    _preload_content=False,
                    _request_timeout=TIMEOUT,
                )
        except MPIJobForbiddenError:
            return []
        return list(json.loads(answer.data)["items"])

    def log(self, namespace: str, pod: str, container: str, tail: int | None = None) -> str:
        """Read a container's log. Its bytes, not what the library would make of those that look like JSON."""
        options = {} if tail is None else {"tail_lines": tail}
        with self._translated():
            answer = self._core.read_namespaced_pod_log(
                pod, namespace, container=container, _preload_content=False, _request_timeout=TIMEOUT, **options
            )
            return bytes(answer.data).decode(errors="replace")

    def kept(self, namespace: str, name: str, worker: int | None, tail: int | None = None) -> str | None:
        """Read what the launcher, or a worker, printed last, though its pod is gone.

        This machine's control plane keeps it with the job. None where nothing is kept, as on a cluster.
        """
        try:
            past = json.loads(self._past(namespace, name, "", {}))
            for pod in reversed(past["pods"]):
                meta, container = pod["pod"]["metadata"], pod["pod"]["spec"]["containers"][0]["name"]
                is_launcher = (meta.get("labels") or {}).get(JOB_ROLE) == "launcher"
                if not (is_launcher if worker is None else meta["name"] == f"{name}-worker-{worker}"):
                    continue
                runs = [run for ran in pod["containers"] if ran["name"] == container for run in ran["attempts"]]
                if runs:
                    which = {"pod": meta["uid"], "container": container, "attempt": runs[-1]["attempt"]}
                    return self._past(namespace, name, "/log", which | ({} if tail is None else {"tailLines": tail}))
        except (MPIJobNotFoundError, MPIJobForbiddenError):
            pass
        return None

    def _past(self, namespace: str, name: str, what: str, query: dict[str, Any]) -> str:
        with self._translated():
            answer = self._core.api_client.call_api(
                f"/apis/history.trainyard.dev/v1alpha1/namespaces/{{namespace}}/{PLURAL}/{{name}}{what}", "GET",
                {"namespace": namespace, "name": name}, list(query.items()), {"Accept": "*/*"},
                auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False,
                _request_timeout=TIMEOUT,
            )  # fmt: skip
            return bytes(answer.data).decode(errors="replace")

    def follow(self, namespace: str, pod: str, container: str) -> Iterator[str]:
        """Yield a container's lines as they come, until it ends; a connection that breaks is an MPIJobServerError."""
        with self._translated():
            answer = self._core.read_namespaced_pod_log(
                pod, namespace, container=container, follow=True, _preload_content=False, _request_timeout=(10, None)
            )
        rest = b""
        try:
            with self._translated():
                for piece in answer.stream(decode_content=True):
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace")
        finally:
            answer.close()
        if rest:
            yield rest.decode(errors="replace")
