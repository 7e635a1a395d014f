"""`trainyard operator` as a cluster runs it: in pods behind its Service, with no right that it does not use.

There is no kubelet. What one would do is done here: each replica is a process that sees a pod's environment and files
(in a mount namespace of its own), and a Pod object that is ready when the process says so.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator

import pytest
import yaml

from cluster import ACCOUNT, MANIFESTS, NAMESPACE, Cluster, Operator, free_port, trainjob
from conftest import BINARY, wait_for

SERVICE = f"{ACCOUNT}.{NAMESPACE}.svc"
CONFIGURATIONS = [("mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org"),
                  ("validatingwebhookconfiguration", "validator.trainer.kubeflow.org")]  # fmt: skip
# What a pod finds at /var/run: a tmpfs with the files of its service account.
IN_POD = """
mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io && ln -s "$1" /var/run/secrets/kubernetes.io/serviceaccount
shift; exec "$@"
"""


def own_address() -> str:
    """An address of this machine that endpoints may have: not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("SKIPPED: this machine has no address but loopback, and endpoints may not have that")
        return probe.getsockname()[0]


class Replica(Operator):
    """An operator in a pod."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, name: str, config: dict):
        self.cluster, self.name = cluster, name
        self.health, self.metrics, self.webhook, self.reports = (free_port() for _ in range(4))
        account = folder / "serviceaccount"
        if not account.exists():
            account.mkdir()
            (account / "token").touch(mode=0o600)
            (account / "token").write_text(cluster.kubectl("-n", NAMESPACE, "create", "token", ACCOUNT, "--duration=8h").strip())
            kubeconfig = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]
            (account / "ca.crt").write_bytes(base64.b64decode(kubeconfig["certificate-authority-data"]))
            (account / "namespace").write_text(NAMESPACE)
        shipped = yaml.safe_load((MANIFESTS / "base/manager/configuration.yaml").read_text())
        shipped = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**shipped, "webhook": {"port": self.webhook}, "statusServer": {"port": self.reports},
                                        "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
                                        "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}", "secureServing": False}, **config}))  # fmt: skip
        server = urllib.parse.urlparse(yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"])
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        environment.pop("KUBECONFIG", None)
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command(account, path),
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        self.labels = yaml.safe_load((MANIFESTS / "base/manager/deployment.yaml").read_text())["spec"]["template"]["metadata"]["labels"]
        ports = [("health", self.health), ("metrics", self.metrics), ("webhook", self.webhook), ("status-server", self.reports)]
        cluster.kubectl("apply", "-f", "-", input=json.dumps({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": self.labels},
            "spec": {"nodeName": "here", "serviceAccountName": ACCOUNT, "containers": [{"name": "manager", "image": "none", "ports": [
                {"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports]}]}}))  # fmt: skip
        self.stop = threading.Event()
        self.kubelet = threading.Thread(target=self.probe)
        self.kubelet.start()

    def command(self, account: pathlib.Path, config: pathlib.Path) -> list:
        return ["unshare", "-rm", "sh", "-c", IN_POD, "pod", account, BINARY, "operator", "--config", config, "--log-format=json"]

    def probe(self) -> None:
        """The readiness probe, which becomes the pod's condition."""
        told = None
        while not self.stop.is_set():
            ready = self.is_ready()
            if ready != told:
                status = {"podIP": own_address(), "podIPs": [{"ip": own_address()}], "phase": "Running",
                          "conditions": [{"type": "Ready", "status": str(ready)}]}  # fmt: skip
                self.cluster.kubectl("-n", NAMESPACE, "patch", "pod", self.name, "--subresource=status", "-p",
                                     json.dumps({"status": status}), check=False)  # fmt: skip
                told = ready
            self.stop.wait(0.5)

    def is_endpoint(self) -> bool:
        """Whether the Service leads here."""
        slices = self.cluster.items("-n", NAMESPACE, "endpointslices", "-l", f"kubernetes.io/service-name={ACCOUNT}")
        endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or []]
        return any(e["targetRef"]["name"] == self.name and e["conditions"].get("ready") for e in endpoints)

    def replace(self) -> int:
        """What happens to a pod that goes: it is deleted and told to stop at the same time."""
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", self.name, "--wait=false")
        return self.end()

    def end(self, how: int = signal.SIGTERM) -> int:
        code = super().end(how)
        self.stop.set()
        self.kubelet.join()
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", self.name, "--grace-period=0", "--force", check=False)
        return code


@contextlib.contextmanager
def in_cluster(cluster: Cluster) -> Iterator[None]:
    """The configurations as they are shipped, and a node for the pods, whose heart beats."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("SKIPPED: this machine allows no mount namespaces, so a process cannot look like a pod")
    own_address()
    for kind, name in CONFIGURATIONS:
        cluster.kubectl("delete", kind, name, "--ignore-not-found")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", MANIFESTS / "base/webhook/manifests.yaml")
    cluster.kubectl("apply", "-f", "-", input='{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}')
    stop = threading.Event()

    def beat() -> None:
        while not stop.is_set():
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            condition = {"type": "Ready", "status": "True", "reason": "Here", "lastHeartbeatTime": now}
            cluster.kubectl("patch", "node", "here", "--subresource=status", "-p",
                            json.dumps({"status": {"conditions": [condition]}}), check=False)  # fmt: skip
            stop.wait(10)

    heart = threading.Thread(target=beat)
    heart.start()
    try:
        yield
    finally:
        stop.set()
        heart.join()
        cluster.kubectl("delete", "node", "here", check=False)
        for kind, name in CONFIGURATIONS:
            cluster.kubectl("delete", kind, name, check=False)


def post(replica: Replica, authority: str, path: str, token: str, body: dict) -> tuple[int, dict]:
    """A report of progress, as a pod sends it: to the Service's name, trusting the authority that it is told."""
    context = ssl.create_default_context(cadata=authority)
    with socket.create_connection(("127.0.0.1", replica.reports), timeout=30) as plain, context.wrap_socket(plain, server_hostname=SERVICE) as secure:
        connection = http.client.HTTPSConnection(SERVICE)
        connection.sock = secure
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.timeout(900)
def test_in_pods_behind_the_service(cluster: Cluster, tmp_path: pathlib.Path):
    """The API server finds the webhooks by the shipped configurations, and replicas are replaced without one refusal."""
    cluster.kubectl("create", "namespace", "pods", check=False)
    body = yaml.safe_dump(trainjob("train"))
    stop, refused, admitted = threading.Event(), [], []

    def admit() -> None:
        while not stop.is_set():
            done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", "pods", "create", "--dry-run=server", "-o", "json",
                                   "-f", "-"], input=body, capture_output=True, text=True)  # fmt: skip
            (admitted if done.returncode == 0 else refused).append(done.stdout + done.stderr)

    # one instance only, to be stopped in the end whatever happens
    replicas: list[Replica] = []
    admitting = threading.Thread(target=admit)
    config = {"featureGates": {"TrainJobStatus": True}}
    with in_cluster(cluster):
        try:
            for name in ("manager-0", "manager-1"):
                replicas.append(Replica(cluster, tmp_path, name, config))
            for replica in replicas:
                replica.ready()
                wait_for("the Service to lead to it", replica.is_endpoint)
            cluster.runtimes()
            for kind, name in CONFIGURATIONS:
                shipped = next(o for o in yaml.safe_load_all((MANIFESTS / "base/webhook/manifests.yaml").read_text()) if o["metadata"]["name"] == name)
                held = cluster.get(kind, name)
                for webhook in held["webhooks"]:
                    assert webhook["clientConfig"].pop("caBundle") == cluster.secret()["ca.crt"]
                assert held["webhooks"] == shipped["webhooks"], "nothing but the authority was changed"

            # what is wrong is refused by our webhook, what is right is defaulted by it
            wrong = yaml.safe_dump(trainjob("train", "nowhere"))
            done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", "pods", "create", "-f", "-"],
                                  input=wrong, capture_output=True, text=True)  # fmt: skip
            assert 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request' in done.stderr, done.stderr

            reports(cluster, replicas[1])

            admitting.start()
            wait_for("admission to be under way", lambda: len(admitted) > 3 or refused)
            for at in range(2):
                new = Replica(cluster, tmp_path, f"manager-{at + 2}", config)
                replicas.append(new)
                new.ready()
                wait_for("the Service to lead to it", new.is_endpoint)
                before = len(admitted)
                leader = replicas[at].leads()
                assert replicas[at].replace() == 0
                assert not leader or "gave the lease back" in replicas[at].log.read_text()
                wait_for("admission to go on", lambda: len(admitted) > before + 5 or refused)  # noqa: B023
                assert not refused, refused[:3]
            wait_for("a leader", lambda: any(replica.leads() for replica in replicas[2:]))
            answered = sum(replica.number('controller_runtime_webhook_requests_total{code="200"') > 0 for replica in replicas[2:])
            assert answered == 2, "both new replicas have served"
        finally:
            stop.set()
            if admitting.is_alive():
                admitting.join()
            for replica in replicas:
                replica.end(signal.SIGKILL)
            cluster.kubectl("delete", "namespace", "pods", "--wait=false", check=False)
    assert not refused, refused[:3]


def reports(cluster: Cluster, replica: Replica) -> None:
    """Training code reports to any replica, with a token for its TrainJob and no other."""
    cluster.kubectl("-n", "pods", "create", "-f", "-", input=yaml.safe_dump(trainjob("reports")))
    jobset = wait_for("the JobSet", lambda: cluster.get("-n", "pods", "jobset", "reports"))
    (node,) = [job for job in jobset["spec"]["replicatedJobs"] if job["name"] == "node"]
    pod = node["template"]["spec"]["template"]["spec"]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/pods/trainjobs/reports/status"
    # each replica has a port of its own here, and the leader tells of its own
    told = urllib.parse.urlparse(env["KUBEFLOW_TRAINER_SERVER_URL"])
    assert (told.scheme, told.hostname, told.path) == ("https", SERVICE, path)
    (projected,) = [v for v in pod["volumes"] if v["name"] == "kubeflow-trainer-token"]
    audience = projected["projected"]["sources"][0]["serviceAccountToken"]["audience"]
    assert audience == path.removeprefix("/apis/")
    authority = cluster.get("-n", "pods", "configmap", "reports-tls-config")["data"]["ca.crt"]

    own = wait_for("the pod", lambda: cluster.items("-n", "pods", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=reports"))[0]["metadata"]["name"]

    def token(*words: str, namespace: str = "pods") -> str:
        return cluster.kubectl("-n", namespace, "create", "token", "default", *words).strip()

    bound = ["--bound-object-kind=Pod", f"--bound-object-name={own}"]
    good = token(f"--audience={audience}", *bound)
    status = {"progressPercentage": 42, "lastUpdatedTime": "2026-01-02T03:04:05Z", "metrics": [{"name": "loss", "value": "0.5"}]}
    assert post(replica, authority, path, good, {"trainerStatus": status}) == (200, {"trainerStatus": status})
    written = lambda: cluster.get("-n", "pods", "trainjob", "reports").get("status", {}).get("trainerStatus")  # noqa: E731
    wait_for("the report in the status", lambda: written() == status)

    for wrong in ("nonsense", token(), token(f"--audience={audience.replace('reports', 'other')}", *bound),
                  token(f"--audience={audience}", namespace="default")):  # fmt: skip
        code, answer = post(replica, authority, path, wrong, {"trainerStatus": {**status, "progressPercentage": 99}})
        assert (code, answer["reason"]) == (403, "Forbidden")
    assert post(replica, authority, path, good, {"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": "2026-01-02T03:04:06Z"}})[0] == 422
    assert post(replica, authority, "/healthz", good, {})[0] == 404
    assert written() == status

