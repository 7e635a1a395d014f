"""`trainyard operator` as a cluster runs it: in pods behind its Service, with no right that it does not use.

There is no kubelet. What one would do is done here: each replica is a process that sees a pod's environment and files
(in a mount namespace of its own), and a Pod object that is ready when the process says so.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
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

from cluster import ACCOUNT, MANIFESTS, NAMESPACE, Cluster, Operator, free_port, running, trainjob
from conftest import BINARY, wait_for

SERVICE = f"{ACCOUNT}.{NAMESPACE}.svc"
CONFIGURATIONS = [("mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org"),
                  ("validatingwebhookconfiguration", "validator.trainer.kubeflow.org")]  # fmt: skip
OPTIMIZATION = ["role.yaml", "binding.yaml"]
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

    def __init__(self, cluster: Cluster, folder: pathlib.Path, name: str, config: dict, *flags: str, auth: bool = False,
                 namespace: str = NAMESPACE):  # fmt: skip
        self.cluster, self.name, self.namespace = cluster, name, namespace
        self.health, self.metrics, self.webhook, self.reports = (free_port() for _ in range(4))
        account = folder / f"serviceaccount-{namespace}"
        if not account.exists():
            account.mkdir()
            (account / "token").touch(mode=0o600)
            (account / "token").write_text(cluster.kubectl("-n", self.namespace, "create", "token", ACCOUNT, "--duration=8h").strip())
            kubeconfig = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]
            (account / "ca.crt").write_bytes(base64.b64decode(kubeconfig["certificate-authority-data"]))
            (account / "namespace").write_text(namespace)
        shipped = yaml.safe_load((MANIFESTS / "base/manager/configuration.yaml").read_text())
        shipped = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**shipped, "webhook": {"port": self.webhook}, "statusServer": {"port": self.reports},
                                        "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
                                        "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}", "secureServing": False,
                                                    "auth": {"enabled": auth}}, **config}))  # fmt: skip
        server = urllib.parse.urlparse(yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"])
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        environment.pop("KUBECONFIG", None)
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*self.command(account, path), *flags],
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        self.labels = yaml.safe_load((MANIFESTS / "base/manager/deployment.yaml").read_text())["spec"]["template"]["metadata"]["labels"]
        ports = [("health", self.health), ("metrics", self.metrics), ("webhook", self.webhook), ("status-server", self.reports)]
        cluster.kubectl("apply", "-f", "-", input=json.dumps({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": self.labels},
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
                self.cluster.kubectl("-n", self.namespace, "patch", "pod", self.name, "--subresource=status", "-p",
                                     json.dumps({"status": status}), check=False)  # fmt: skip
                told = ready
            self.stop.wait(0.5)

    def is_endpoint(self) -> bool:
        """Whether the Service leads here."""
        slices = self.cluster.items("-n", self.namespace, "endpointslices", "-l", f"kubernetes.io/service-name={ACCOUNT}")
        endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or []]
        return any(e["targetRef"]["name"] == self.name and e["conditions"].get("ready") for e in endpoints)

    def replace(self) -> int:
        """What happens to a pod that goes: it is deleted and told to stop at the same time."""
        self.cluster.kubectl("-n", self.namespace, "delete", "pod", self.name, "--wait=false")
        return self.end()

    def end(self, how: int = signal.SIGTERM) -> int:
        code = super().end(how)
        self.stop.set()
        self.kubelet.join()
        self.cluster.kubectl("-n", self.namespace, "delete", "pod", self.name, "--grace-period=0", "--force", check=False)
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


@pytest.mark.timeout(300)
def test_configurations_of_others_are_left_alone(cluster: Cluster, tmp_path: pathlib.Path):
    """Once another operator has them, and after the word to stop, a replica writes nothing into them."""
    kind, name = CONFIGURATIONS[0]
    bundle = lambda: cluster.get(kind, name)["webhooks"][0]["clientConfig"].get("caBundle")
    patch = lambda path, value: cluster.kubectl("patch", kind, name, "--type=json", "-p", json.dumps(
        [{"op": "replace", "path": f"/webhooks/0/clientConfig{path}", "value": value}]))  # fmt: skip
    with in_cluster(cluster):
        replica = Replica(cluster, tmp_path, "manager-9", {}, "--certificate-period=1")
        try:
            replica.ready()
            own = bundle()
            patch("", {"service": {"namespace": "other", "name": "theirs", "path": "/x", "port": 443}, "caBundle": "eA=="})
            told = f"MutatingWebhookConfiguration {name} leads to Service other/theirs"
            wait_for("it to be told", lambda: told in replica.fetch(replica.health, "/readyz"))
            assert bundle() == "eA==", "it is theirs"
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", MANIFESTS / "base/webhook/manifests.yaml")
            wait_for("it to be ours again", lambda: bundle() == own)
            wait_for("it to be ready", replica.is_ready)

            replica.process.send_signal(signal.SIGTERM)
            wait_for("it to stop", lambda: "another replica serves" in replica.fetch(replica.health, "/readyz"))
            patch("/caBundle", "eA==")
            version = cluster.get(kind, name)["metadata"]["resourceVersion"]
            assert replica.end() == 0
            assert cluster.get(kind, name)["metadata"]["resourceVersion"] == version, "nothing was written any more"
        finally:
            replica.end(signal.SIGKILL)


def post(replica: Replica, authority: str, path: str, token: str, body: dict) -> tuple[int, dict]:
    """A report of progress, as a pod sends it: to the Service's name, trusting the authority that it is given."""
    context = ssl.create_default_context(cadata=authority)
    with socket.create_connection(("127.0.0.1", replica.reports), timeout=30) as plain, context.wrap_socket(plain, server_hostname=SERVICE) as secure:
        connection = http.client.HTTPSConnection(SERVICE)
        connection.sock = secure
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def authorities(bundle: str) -> set[str]:
    """The certificates of a bundle, as they are kept in Secrets and webhook configurations."""
    return {part.strip() for part in base64.b64decode(bundle).decode().split("-----BEGIN CERTIFICATE-----") if part.strip()}


@pytest.mark.timeout(900)
def test_in_pods_behind_the_service(cluster: Cluster, tmp_path: pathlib.Path):
    """The API server finds the webhooks by the shipped configurations, and replicas are replaced without one refusal."""
    cluster.namespace("pods")
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
                    # after an exchange one of them may have the authority before, too, until somebody looks again
                    assert authorities(webhook["clientConfig"].pop("caBundle")) & authorities(cluster.secret()["ca.crt"])
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
                wait_for("admission to go on", lambda: len(admitted) > before + 5 or refused)
                assert not refused, refused[:3]
            wait_for("a leader", lambda: any(replica.leads() for replica in replicas[2:]))
            # the API server keeps its connections: if they are all to one replica, the other gets them when that one goes
            answered = lambda replica: replica.number('controller_runtime_webhook_requests_total{code="200"') > 0
            first, second = sorted(replicas[2:], key=answered, reverse=True)
            assert answered(first)
            before = len(admitted)
            assert first.replace() == 0
            wait_for("admission to go on", lambda: len(admitted) > before + 5 or refused)
            assert answered(second), "both new replicas have served"
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
    written = lambda: cluster.get("-n", "pods", "trainjob", "reports").get("status", {}).get("trainerStatus")
    wait_for("the report in the status", lambda: written() == status)

    for wrong in ("nonsense", token(), token(f"--audience={audience.replace('reports', 'other')}", *bound),
                  token(f"--audience={audience}", namespace="default")):  # fmt: skip
        code, answer = post(replica, authority, path, wrong, {"trainerStatus": {**status, "progressPercentage": 99}})
        assert (code, answer["reason"]) == (403, "Forbidden")
    assert post(replica, authority, path, good, {"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": "2026-01-02T03:04:06Z"}})[0] == 422
    assert post(replica, authority, "/healthz", good, {})[0] == 404
    assert written() == status

    # every report is kept, and read without more than a kubeconfig
    last = {**status, "progressPercentage": 100, "lastUpdatedTime": "2026-01-02T03:05:05Z"}
    assert post(replica, authority, path, good, {"trainerStatus": last})[0] == 200
    kept = lambda: cluster.get("-n", "pods", "configmap", "reports.progress").get("data", {}).get("reports.jsonl", "")
    wait_for("the history", lambda: len(kept().splitlines()) == 2)
    done = subprocess.run([BINARY, "metrics", "reports", "-n", "pods", "--kubeconfig", cluster.kubeconfig, "-o", "json"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stderr, json.loads(done.stdout)["reports"]) == (0, "", [status, last])



def runtime(name: str, kind: str = "TrainingRuntime", metadata: dict | None = None, pod: dict | None = None,
            jobset: dict | None = None, **spec) -> dict:  # fmt: skip
    """A runtime of one plain job."""
    template = {"replicatedJobs": [{"name": "node", "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "none"}], **(pod or {})}}}}}]}  # fmt: skip
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind,
            "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}, **(metadata or {})},
            "spec": {"mlPolicy": {"numNodes": 1}, **spec, "template": {"spec": {**template, **(jobset or {})}}}}  # fmt: skip


def of(name: str, runtime: str, annotations: dict | None = None, **spec) -> dict:
    """A TrainJob of a TrainingRuntime."""
    job = trainjob(name, runtime, **spec)
    job["metadata"]["annotations"] = annotations or {}
    job["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"
    return job


class Audit:
    """What the operator's account asks from now on."""

    def __init__(self, cluster: Cluster, namespace: str = NAMESPACE):
        self.user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        self.path = cluster.folder / "audit.jsonl"
        self.start = self.path.stat().st_size

    def asked(self) -> Iterator[tuple[int, str, tuple[str, str, str]]]:
        """Status code, namespace, and verb, group, resource of all that was about resources."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            for line in file:
                event = json.loads(line) if line.endswith(b"\n") else {}
                about = event.get("objectRef") or {}
                if event.get("user", {}).get("username") != self.user or "resource" not in about:
                    continue
                resource = "/".join(filter(None, [about["resource"], about.get("subresource")]))
                code = event.get("responseStatus", {}).get("code", 0)
                verbs = [event["verb"]]
                if event["verb"] == "patch" and code == 201:
                    verbs.append("create")  # apply of what was not there: both rights are asked for
                for verb in verbs:
                    yield code, about.get("namespace", ""), (verb, about.get("apiGroup", ""), resource)


def granted() -> dict[str, set[tuple[str, str, str]]]:
    """What the shipped roles grant, by the role's kind, OptimizationJobs included."""
    grants: dict[str, set[tuple[str, str, str]]] = {"ClusterRole": set(), "Role": set()}
    for file in ("base/rbac/role.yaml", "components/optimization/role.yaml"):
        for role in yaml.safe_load_all((MANIFESTS / file).read_text()):
            grants[role["kind"]] |= {(verb, group, resource) for rule in role["rules"] for verb in rule["verbs"]
                                     for group in rule["apiGroups"] for resource in rule["resources"]}  # fmt: skip
    return grants


@pytest.mark.timeout(900)
def test_every_right_is_used_and_none_is_lacking(cluster: Cluster, tmp_path: pathlib.Path):
    """By the API server's own notes: what the operator asks for is exactly what the shipped roles grant."""
    audit, roles = Audit(cluster), granted()
    # who makes children that block their owner's deletion needs this right and never asks with it: `without_blocking`
    roles["ClusterRole"] -= {("update", "trainer.kubeflow.org", f"{kind}/finalizers") for kind in ("trainjobs", "optimizationjobs")}
    config = {"featureGates": {"TrainJobStatus": True}}
    replicas: list[Replica] = []

    def start(name: str, auth: bool) -> Replica:
        flag = "--controllers=trainjob,trainingruntime,clustertrainingruntime,optimizationjob"
        replica = Replica(cluster, tmp_path, name, config, flag, auth=auth)
        replicas.append(replica)
        replica.ready()
        wait_for("the Service to lead to it", replica.is_endpoint)
        return replica

    def unused() -> dict[str, set]:
        asked = [(namespace == NAMESPACE, key) for _, namespace, key in audit.asked()]
        return {"ClusterRole": roles["ClusterRole"] - {key for own, key in asked if not own},
                "Role": roles["Role"] - {key for own, key in asked if own}}  # fmt: skip

    with in_cluster(cluster):
        try:
            cluster.namespace("rights")
            for file in OPTIMIZATION:
                cluster.kubectl("apply", "-f", MANIFESTS / "components/optimization" / file)
            for kind, name in (("secret", "kubeflow-trainer-webhook-cert"), ("lease", "trainer.kubeflow.org")):
                cluster.kubectl("-n", NAMESPACE, "delete", kind, name, "--ignore-not-found")
            first = start("rights-0", auth=True)
            cluster.runtimes()
            scenario(cluster, first)
            # a certificate that nobody can use is made anew
            cluster.kubectl("-n", NAMESPACE, "patch", "secret", "kubeflow-trainer-webhook-cert", "-p", '{"data": {"tls.crt": "eA=="}}')
            wait_for("a good certificate", lambda: len(cluster.secret().get("tls.crt", "")) > 100)
            first.replace()
            # the second counts events on that are there already
            start("rights-1", auth=False)
            deadline = time.monotonic() + 120
            while any(left := unused().values()) and time.monotonic() < deadline:
                time.sleep(1)
            assert not any(left), unused()
            # other tests' namespaces are going, where nothing may be made any more
            refused = {(namespace, key) for code, namespace, key in audit.asked() if code == 403 and namespace in ("rights", NAMESPACE, "")}
            assert not refused, refused
            without_blocking(cluster)
        finally:
            for replica in replicas:
                replica.end(signal.SIGKILL)
            cluster.kubectl("delete", "namespace", "rights", "--wait=false", check=False)
            cluster.kubectl("delete", "priorityclass,clustertrainingruntime", "rights", check=False)
            for file in OPTIMIZATION:
                cluster.kubectl("delete", "-f", MANIFESTS / "components/optimization" / file, check=False)


def scenario(cluster: Cluster, replica: Replica) -> None:
    """TrainJobs of which each needs some of the rights."""
    apply = lambda *objects: cluster.kubectl("-n", "rights", "apply", "-f", "-", input=yaml.safe_dump_all(objects))
    old = {"finalizers": ["trainer.kubeflow.org/resource-in-use"]}
    volcano, gang = {"volcano": {}}, {"coscheduling": {}}
    apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rights"}, "value": 1},
        runtime("plain", metadata=old), runtime("rights", "ClusterTrainingRuntime", metadata=old),
        runtime("volcano", pod={"priorityClassName": "rights"}, podGroupPolicy=volcano), runtime("gang", podGroupPolicy=gang),
        runtime("refused", jobset={"failurePolicy": {"rules": [{"name": "x", "action": "FailJobSet", "targetReplicatedJobs": ["nobody"]}]}}),
    )  # fmt: skip
    again = {"trainyard.dev/retries": "1", "trainyard.dev/retry-backoff": "0s"}
    apply(of("plain", "plain", again), of("volcano", "volcano"), of("gang", "gang"), of("refused", "refused"), of("short", "plain", {"trainyard.dev/ttl-seconds-after-finished": "0"}),
          of("waits", "plain", suspend=True), trainjob("keys", "deepspeed-distributed"), trainjob("cluster", "rights"))  # fmt: skip
    # runtimes are remembered; those that are not there are asked for
    for wrong in (trainjob("nobody", "nobody"), of("nobody", "nobody")):
        assert not cluster.kubectl("-n", "rights", "create", "-f", "-", input=yaml.safe_dump(wrong), check=False)
    jobset = lambda name: cluster.get("-n", "rights", "jobset", name)
    for name in ("plain", "volcano", "gang", "short", "waits", "keys", "cluster"):
        wait_for(f"JobSet {name}", lambda: jobset(name))
    # the next attempt takes its place as soon as it has failed
    first = jobset("plain")["metadata"]["uid"]
    # what JobSet's controller would say at their ends
    for name, kind in (("plain", "Failed"), ("short", "Completed")):
        condition = {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        cluster.kubectl("-n", "rights", "patch", "jobset", name, "--type=merge", "--subresource=status", "-p",
                        json.dumps({"status": {"conditions": [condition]}}))  # fmt: skip
    wait_for("the next attempt", lambda: jobset("plain").get("metadata", {}).get("annotations", {}).get("trainyard.dev/attempt") == "2", 120)
    assert jobset("plain")["metadata"]["uid"] != first
    wait_for("the TrainJob to go", lambda: not cluster.get("-n", "rights", "trainjob", "short"), 120)
    patch = {"spec": {"runtimePatches": [{"manager": "acme.io/x", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}]}}
    cluster.kubectl("-n", "rights", "patch", "trainjob", "waits", "--type=merge", "-p", json.dumps(patch))
    for kind, name in (("trainingruntime", "plain"), ("clustertrainingruntime", "rights")):
        wait_for("the old finalizer to go", lambda: "finalizers" not in cluster.get("-n", "rights", kind, name)["metadata"])
    events = lambda: [e for e in cluster.items("-n", "rights", "events") if e["involvedObject"]["name"] == "refused" and e["count"] > 1]
    wait_for("events to be counted", events)
    search = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob", "metadata": {"name": "search"}, "spec": {
        "objectives": [{"metric": "loss"}], "numTrials": 1,
        "parameters": [{"name": "x", "searchSpace": {"uniform": {"min": "0", "max": "1"}}}],
        "trainJobTemplate": {"spec": {"runtimeRef": {"name": "torch-distributed"}}}}}  # fmt: skip
    apply(search)
    wait_for("the status of the search", lambda: cluster.get("-n", "rights", "optimizationjob", "search").get("status"))
    # a job that prints its metrics, and the pod that its rank 0 would be
    apply(of("prints", "plain", {"trainyard.dev/metrics": "loss"}))
    labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in (("jobset-name", "prints"), ("job-index", "0"), ("replicatedjob-name", "node"))}
    apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prints", "labels": labels}, "spec": {"containers": [{"name": "node", "image": "x"}]}})
    state = {"name": "node", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
    cluster.kubectl("-n", "rights", "patch", "pod", "prints", "--type=merge", "--subresource=status", "-p", json.dumps({"status": {"containerStatuses": [state]}}))
    path = "trainer.kubeflow.org/v1alpha1/namespaces/rights/trainjobs/keys/status"
    token = cluster.kubectl("-n", "rights", "create", "token", "default", f"--audience={path}").strip()
    authority = cluster.get("-n", "rights", "configmap", "keys-tls-config")["data"]["ca.crt"]
    assert post(replica, authority, f"/apis/{path}", token, {"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z"}})[0] == 200
    readers(cluster, replica)


def readers(cluster: Cluster, replica: Replica) -> None:
    """Who may read metrics is the API server's word."""
    rule = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads-metrics"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}  # fmt: skip
    cluster.kubectl("apply", "-f", "-", input=json.dumps(rule))
    cluster.kubectl("-n", "rights", "create", "serviceaccount", "reader")
    cluster.kubectl("create", "clusterrolebinding", "reads-metrics", "--clusterrole=reads-metrics", "--serviceaccount=rights:reader")
    try:
        for account, code in (("reader", 200), ("default", 403), (None, 401)):
            token = cluster.kubectl("-n", "rights", "create", "token", account).strip() if account else "nonsense"
            connection = http.client.HTTPConnection("127.0.0.1", replica.metrics, timeout=30)
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            assert connection.getresponse().status == code, account
    finally:
        cluster.kubectl("delete", "clusterrolebinding,clusterrole", "reads-metrics")


def without_blocking(cluster: Cluster) -> None:
    """Clusters that ask for the right to block a deletion refuse children without it."""
    held = cluster.get("clusterrole", ACCOUNT)
    less = {**held, "rules": [rule for rule in held["rules"] if "trainjobs/finalizers" not in rule.get("resources", [])]}
    assert len(less["rules"]) == len(held["rules"]) - 1
    for role in (less, held):
        role["metadata"] = {"name": ACCOUNT}
        role.pop("aggregationRule", None)
    job = trainjob("blocked")
    refusal = lambda: [e for e in cluster.items("-n", "rights", "events") if "cannot set blockOwnerDeletion" in e["message"]]
    try:
        cluster.kubectl("replace", "-f", "-", input=json.dumps(less))
        wait_for("the right to be gone", lambda: cluster.kubectl(
            "auth", "can-i", "update", "trainjobs.trainer.kubeflow.org/finalizers", "-n", "rights",
            f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}", check=False) == "")  # fmt: skip
        cluster.kubectl("-n", "rights", "create", "-f", "-", input=yaml.safe_dump(job))
        wait_for("an event about it", refusal)
        assert not cluster.get("-n", "rights", "jobset", "blocked")
    finally:
        cluster.kubectl("replace", "-f", "-", input=json.dumps(held))
    wait_for("the JobSet", lambda: cluster.get("-n", "rights", "jobset", "blocked"), 120)


@pytest.mark.timeout(600)
def test_one_namespace(cluster: Cluster, tmp_path: pathlib.Path):
    """Installed for one namespace, with rights for that one: TrainJobs there run, and those of others are left alone."""
    audit, overlay = Audit(cluster, "team"), tmp_path / "overlay"
    overlay.mkdir()
    shipped = MANIFESTS / "overlays/namespaced"
    text = (shipped / "kustomization.yaml").read_text()
    assert text.count("\nnamespace: kubeflow-system\n") == 1, "the one line to change"
    text = text.replace("\nnamespace: kubeflow-system\n", "\nnamespace: team\n")
    (overlay / "kustomization.yaml").write_text(text.replace("../../", os.path.relpath(MANIFESTS, overlay) + "/"))
    (overlay / "role.yaml").write_text((shipped / "role.yaml").read_text())
    replicas: list[Replica] = []
    with in_cluster(cluster):
        try:
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", overlay)
            cluster.namespace("others")
            (deployment,) = cluster.items("-n", "team", "deployments")
            assert "--watch-namespace=$(NAMESPACE)" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            assert cluster.kubectl("auth", "can-i", "list", "trainjobs.trainer.kubeflow.org", "-n", "others", f"--as={audit.user}", check=False) == ""
            config = {"featureGates": {"TrainJobStatus": True}}
            replica = Replica(cluster, tmp_path, "team-0", config, "--watch-namespace=team", namespace="team")
            replicas.append(replica)
            replica.ready()
            wait_for("the Service to lead to it", replica.is_endpoint)
            cluster.runtimes()
            # nobody looks at this one, so even a runtime that is not there passes
            cluster.kubectl("-n", "others", "create", "-f", "-", input=yaml.safe_dump(trainjob("unchecked", "nowhere")))
            cluster.kubectl("-n", "others", "create", "-f", "-", input=yaml.safe_dump(trainjob("left-alone")))
            assert not cluster.kubectl("-n", "team", "create", "-f", "-", input=yaml.safe_dump(trainjob("wrong", "nowhere")), check=False)
            cluster.kubectl("-n", "team", "create", "-f", "-", input=yaml.safe_dump_all([trainjob("plain"), trainjob("keys", "deepspeed-distributed")]))
            for name in ("plain", "keys"):
                wait_for(f"JobSet {name}", lambda: cluster.get("-n", "team", "jobset", name))
            wait_for("the authority", lambda: cluster.get("-n", "team", "configmap", "plain-tls-config"))
            assert not cluster.items("-n", "others", "jobsets")
            assert {job["metadata"]["name"]: job.get("status") for job in cluster.items("-n", "others", "trainjobs")} == {"unchecked": None, "left-alone": None}
            refused = {(namespace, key) for code, namespace, key in audit.asked() if code == 403}
            assert not refused, refused
            assert {namespace for _, namespace, _ in audit.asked()} == {"team", ""}, "no other namespace is looked at"
            # elsewhere the authority could not be read: told before anything starts
            other = Replica(cluster, tmp_path, "team-1", config, "--watch-namespace=others", namespace="team")
            replicas.append(other)
            assert other.process.wait(60) == 1
            assert "install the operator in others, or turn the gate off" in other.log.read_text()
        finally:
            for replica in replicas:
                replica.end(signal.SIGKILL)
            cluster.kubectl("delete", "namespace", "team", "others", "--wait=false", check=False)
            cluster.install()


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[dict]]]:
    """A tiny OpenTelemetry collector: its address, and the spans that came."""
    spans: list[dict] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces"
            spans.extend(span for r in body["resourceSpans"] for scope in r["scopeSpans"] for span in scope["spans"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()


@pytest.mark.timeout(300)
def test_older_kinds_and_traces_are_told(cluster: Cluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """With CRDs that lack fields the operator goes on, and says by readiness and events what to do; spans go to a collector."""
    with collector() as (address, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        older_kinds(cluster, tmp_path)
    reconciled = {span["spanId"]: span for span in spans if span["name"] == "reconcile"}
    keys = [{a["key"]: a["value"] for a in span["attributes"]} for span in reconciled.values()]
    assert any(key["controller"]["stringValue"] == "clustertrainingruntime" and key["outcome"]["stringValue"] == "success" for key in keys), keys[:3]
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)


def older_kinds(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    events = lambda: {(e["type"], e["reason"]): e["message"] for e in cluster.items("-n", NAMESPACE, "events")
                      if e["involvedObject"]["kind"] == "Lease"}  # fmt: skip
    operator = Operator(cluster, tmp_path, f"https://127.0.0.1:{free_port()}", "--zap-encoder=json", "--zap-log-level=9")
    readiness = lambda: operator.fetch(operator.health, "/readyz")
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/trainerStatus"
    with running(operator):
        wait_for("the kinds to be found", lambda: "[+]trainer-crds: served" in readiness())
        try:
            cluster.kubectl("patch", "crd", "trainjobs.trainer.kubeflow.org", "--type=json", "-p", json.dumps([{"op": "remove", "path": field}]))
            wait_for("the lack to be seen", lambda: "TrainJob.status.trainerStatus" in readiness(), 120)
            assert operator.is_ready(), "webhooks serve all the same"
            wait_for("an event", lambda: "kubectl apply" in events().get(("Warning", "TrainerCrdsLacking"), ""))
        finally:
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "crds")
        wait_for("the kinds to be whole", lambda: "[+]trainer-crds: served" in readiness(), 120)
        wait_for("an event", lambda: ("Normal", "TrainerCrdsWorks") in events())
        lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
        assert {"DEBUG", "INFO"} <= {line["level"] for line in lines}
        cluster.runtimes()
        wait_for("runtimes to be looked at", lambda: operator.number("controller_runtime_reconcile_total") > 0)
        assert operator.end() == 0


@pytest.mark.timeout(300)
def test_restricted_pods(cluster: Cluster, tmp_path: pathlib.Path):
    """Where the namespace enforces restricted Pod Security, a TrainJob that asks for it gets its pods, and others do not."""
    operator = Operator(cluster, tmp_path, f"https://127.0.0.1:{free_port()}")
    closed = trainjob("closed", "deepspeed-distributed")
    closed["metadata"]["annotations"] = {"trainyard.dev/pod-security": "restricted"}
    with running(operator):
        cluster.runtimes()
        cluster.namespace("restricted")
        cluster.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
        cluster.kubectl("-n", "restricted", "create", "-f", "-", input=yaml.safe_dump_all([trainjob("open"), closed]))
        pods = lambda name: cluster.items("-n", "restricted", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}")
        refusals = lambda: [e for e in cluster.items("-n", "restricted", "events")
                            if "violates PodSecurity" in e["message"] and e["involvedObject"]["name"].startswith("open-")]  # fmt: skip
        wait_for("the pods", lambda: pods("closed"))
        wait_for("the others to be refused", refusals)
        assert not pods("open")
        faulty = yaml.safe_dump({**closed, "metadata": {"name": "faulty", "annotations": {"trainyard.dev/pod-security": "tight"}}})
        done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", "restricted", "create", "-f", "-"],
                              input=faulty, capture_output=True, text=True)  # fmt: skip
        assert "metadata.annotations[trainyard.dev/pod-security]: Unsupported value" in done.stderr, done.stderr
    cluster.kubectl("delete", "namespace", "restricted", "--wait=false")
