"""`trainyard operator` on real Kubernetes: upstream's API server, JobSet and Job controllers, and in the swap upstream's Trainer.

The control plane is built and started by `cargo xtask kubernetes` (Go is needed; without it these tests are skipped, loudly).
The operator runs outside the cluster with the rights of the shipped manifests and no others, but for writing its webhook
configurations, which by URL are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from conftest import BINARY, ROOT, wait_for
from test_recordings import GOLDEN, NOT_YET, hold, replay

MANIFESTS = ROOT / "manifests"
NAMESPACE, ACCOUNT = "kubeflow-system", "kubeflow-trainer-controller-manager"
# What is made of a TrainJob, by whomever.
CHILDREN = ["jobsets.jobset.x-k8s.io", "jobs.batch", "pods", "services", "configmaps", "secrets",
            "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"]  # fmt: skip
BY_URL = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: webhooks-by-url}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  verbs: [create, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: webhooks-by-url}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhooks-by-url}
subjects: [{kind: ServiceAccount, name: kubeflow-trainer-controller-manager, namespace: kubeflow-system}]
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Cluster:
    """A real control plane, with our manifests installed."""

    def __init__(self, folder: pathlib.Path, *flags: str):
        self.folder = folder
        done = subprocess.run(["cargo", "xtask", "kubernetes", "up", str(folder), *flags],
                              cwd=ROOT, capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.kubeconfig = done.stdout.strip().splitlines()[-1]

    def install(self) -> None:
        """What README says, and the rights to register webhooks by URL."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "overlays/manager")
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", MANIFESTS / "crds/scheduling.volcano.sh_podgroups.yaml",
                     "-f", MANIFESTS / "crds/scheduling.x-k8s.io_podgroups.yaml")  # fmt: skip
        self.kubectl("apply", "-f", "-", input=BY_URL)
        token = self.kubectl("-n", NAMESPACE, "create", "token", ACCOUNT, "--duration=8h").strip()
        config = yaml.safe_load(pathlib.Path(self.kubeconfig).read_text())
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        self.account = self.folder / "operator.kubeconfig"
        self.account.touch(mode=0o600)
        self.account.write_text(yaml.safe_dump(config))

    def collects(self) -> None:
        """Waits until garbage collection knows the new kinds: it asks what is served every 30 s."""
        kinds = [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("trainer.kubeflow.org/v1alpha1", "TrainJob")]
        orphans = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": f"of-{kind.lower()}", "namespace": "default",
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": "gone", "uid": f"gone-{kind}"}]}}
            for version, kind in kinds]  # fmt: skip
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(orphans))
        left = lambda: [o for o in self.items("-n", "default", "configmaps") if o["metadata"]["name"].startswith("of-")]  # noqa: E731
        wait_for("garbage collection", lambda: not left(), 180)

    def runtimes(self) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "overlays/runtimes")

    def kubectl(self, *words: str | pathlib.Path, check: bool = True, **options) -> str:
        done = subprocess.run(["kubectl", "--kubeconfig", self.kubeconfig, *map(str, words)],
                              capture_output=True, text=True, timeout=120, **options)  # fmt: skip
        assert not check or done.returncode == 0, f"kubectl {words}: {done.stdout}\n{done.stderr}"
        return done.stdout if done.returncode == 0 else ""

    def get(self, *words: str) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json", check=False) or "{}")

    def items(self, *words: str) -> list[dict]:
        return self.get(*words).get("items", [])

    def secret(self) -> dict:
        return self.get("-n", NAMESPACE, "secret", "kubeflow-trainer-webhook-cert").get("data", {})

    def leader(self) -> str:
        return self.get("-n", NAMESPACE, "lease", "trainer.kubeflow.org").get("spec", {}).get("holderIdentity", "")

    def versions(self, namespace: str) -> dict[str, str]:
        """Resource versions of all that was made of the TrainJobs of a namespace."""
        found = {}
        for kind in CHILDREN:
            for item in self.items("-n", namespace, kind):
                if item["metadata"].get("ownerReferences"):
                    found[f"{kind}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
        return found

    def down(self) -> None:
        subprocess.run(["cargo", "xtask", "kubernetes", "down", str(self.folder)], cwd=ROOT, check=True)


class Operator:
    """One replica."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, url: str, *flags: str, config: dict | None = None):
        folder.mkdir(exist_ok=True)
        self.health, self.metrics = free_port(), free_port()
        shipped = yaml.safe_load((MANIFESTS / "base/manager/configuration.yaml").read_text())
        shipped = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
        path = folder / f"config-{self.health}.yaml"
        path.write_text(yaml.safe_dump({**shipped, "metrics": {"secureServing": False}, **(config or {})}))
        self.log = folder / f"operator-{self.health}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [BINARY, "operator", "--kubeconfig", cluster.account, "--config", path, "--webhook-url", url, "--log-format=json",
                 f"--health-listen=127.0.0.1:{self.health}", f"--metrics-listen=127.0.0.1:{self.metrics}", *flags],
                stderr=log, stdout=log, env={k: v for k, v in os.environ.items() if k != "KUBECONFIG"},
            )  # fmt: skip
        self.ready()

    def fetch(self, port: int, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)

    def ready(self) -> None:
        wait_for("the operator to be ready", lambda: self.is_ready() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.log.read_text()

    def is_ready(self) -> bool:
        return self.fetch(self.health, "/readyz").endswith("\nready\n")

    def number(self, series: str) -> float:
        """The sum of all series that begin so."""
        lines = self.fetch(self.metrics, "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))

    def leads(self) -> bool:
        return self.number("leader_election_master_status") == 1

    def end(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


@contextlib.contextmanager
def running(*operators: Operator) -> Iterator[None]:
    try:
        yield
    finally:
        for operator in operators:
            operator.end(signal.SIGKILL)


def url() -> str:
    return f"https://127.0.0.1:{free_port()}"


def start(tmp_path_factory: pytest.TempPathFactory, *flags: str) -> Iterator[Cluster]:
    if shutil.which("go") is None:
        pytest.skip("SKIPPED FOR WANT OF GO: the operator was not run on real Kubernetes")
    built = subprocess.run(["cargo", "xtask", "kubernetes", "build", "--trainer"], cwd=ROOT, capture_output=True, text=True)
    if built.returncode != 0:
        pytest.skip(f"NOT BUILT: the operator was not run on real Kubernetes: {built.stderr[-1000:]}")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), *flags)
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes with JobSet, and our manifests; no Trainer runs."""
    for started in start(tmp_path_factory, "--jobset"):
        started.install()
        started.collects()
        yield started


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes with JobSet and upstream's Trainer."""
    yield from start(tmp_path_factory, "--trainer")


def trainjob(name: str, runtime: str = "torch-distributed", **spec) -> dict:
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": 1}, **spec}}  # fmt: skip


def create(cluster: Cluster, namespace: str, *jobs: dict) -> None:
    cluster.kubectl("create", "namespace", namespace, check=False)
    text = yaml.safe_dump_all(jobs)
    # a replica that was killed takes the requests that it had with it: they are asked again
    wait_for("all TrainJobs to be taken", lambda: cluster.kubectl("-n", namespace, "apply", "-f", "-", input=text, check=False), 180)


@pytest.mark.timeout(1800)
def test_recordings_on_kubernetes(cluster: Cluster, tmp_path: pathlib.Path):
    """All scenarios of Trainer, with the shipped rights alone, and what was missing before is told."""
    operator = Operator(cluster, tmp_path, url(), config={"clientConnection": {"qps": 500, "burst": 1000}})
    with running(operator):
        wait_for("runtimes to be missed", lambda: "[!]runtimes: there is no ClusterTrainingRuntime" in operator.fetch(operator.health, "/readyz"))
        cluster.runtimes()
        passed, failed = replay(tmp_path, "trainer", "--kubeconfig", cluster.kubeconfig, "--scale", "1.5")
        hold(passed, failed, "trainer", NOT_YET["trainer"])
        log = operator.log.read_text()
        assert "forbidden" not in log, [line for line in log.splitlines() if "forbidden" in line][:3]
        assert "bug:" not in log
        assert operator.number("controller_runtime_reconcile_panics_total") == 0
        assert operator.number('trainyard_trainjob_end_seconds_count{state="Complete"}') > 0
        assert operator.number("trainyard_admission_total") > 100


@pytest.mark.timeout(600)
def test_a_leader_may_be_killed_while_jobs_come_in(cluster: Cluster, tmp_path: pathlib.Path):
    """The other replica serves webhooks all the while, and reconciles once the lease has run out. Nothing is made twice."""
    election = {"leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"}}
    where = url()
    one, two = (Operator(cluster, tmp_path, where, config=election) for _ in range(2))
    with running(one, two):
        cluster.runtimes()
        wait_for("a leader", lambda: one.leads() or two.leads())
        leader, other = (one, two) if one.leads() else (two, one)
        before = cluster.leader()
        jobs = [trainjob(f"train-{i}") for i in range(40)]
        create(cluster, "killed", *jobs[:20])
        assert leader.end(signal.SIGKILL) == -signal.SIGKILL
        create(cluster, "killed", *jobs[20:])
        wait_for("all JobSets", lambda: len(cluster.items("-n", "killed", "jobsets")) == len(jobs), 180)
        assert other.leads() and cluster.leader() != before
        snapshots = [o for o in cluster.items("-n", "killed", "configmaps") if o["metadata"]["name"].endswith("-runtime-snapshot")]
        assert len(snapshots) == len(jobs)

        # at its end the lease is given back, so the next leader need not wait for it to run out
        third = Operator(cluster, tmp_path, where, config=election)
        with running(third):
            assert not third.leads()
            assert other.end() == 0
            wait_for("the third to lead", third.leads)
            assert "gave the lease back" in other.log.read_text()
    cluster.kubectl("delete", "namespace", "killed", "--wait=false")


@pytest.mark.timeout(600)
def test_certificates_are_exchanged_without_a_gap(cluster: Cluster, tmp_path: pathlib.Path):
    """The Secret is taken away while TrainJobs are admitted: two replicas agree on a new authority, and no request fails."""
    where = url()
    one, two = (Operator(cluster, tmp_path, where, "--certificate-period=1") for _ in range(2))
    with running(one, two):
        cluster.runtimes()
        cluster.kubectl("create", "namespace", "rotated", check=False)
        body = yaml.safe_dump(trainjob("train"))
        stop, refused, admitted = threading.Event(), [], []

        def admit() -> None:
            while not stop.is_set():
                done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", "rotated", "create", "--dry-run=server",
                                       "-f", "-"], input=body, capture_output=True, text=True)  # fmt: skip
                (admitted if done.returncode == 0 else refused).append(done.stderr)

        held = cluster.secret()
        admitting = threading.Thread(target=admit)
        admitting.start()
        try:
            wait_for("admission to be under way", lambda: admitted)
            cluster.kubectl("-n", NAMESPACE, "delete", "secret", "kubeflow-trainer-webhook-cert")
            wait_for("a new authority", lambda: cluster.secret().get("ca.crt") not in (None, held["ca.crt"]))
            # it is made by the new authority once the API server trusts that one
            wait_for("a new certificate", lambda: cluster.secret().get("tls.crt") != held["tls.crt"], 120)
            count = len(admitted)
            wait_for("admission to go on", lambda: len(admitted) > count + 10 or refused)
        finally:
            stop.set()
            admitting.join()
        assert not refused, refused[:3]

        # one that nobody can use is replaced at once
        cluster.kubectl("-n", NAMESPACE, "patch", "secret", "kubeflow-trainer-webhook-cert", "-p", '{"data": {"tls.crt": "eA=="}}')
        wait_for("a good certificate", lambda: len(cluster.secret().get("tls.crt", "")) > 100)
        # and whoever takes the authority out of the configurations gets it put back
        patch = '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]'
        cluster.kubectl("patch", "mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org", "--type=json", "-p", patch)
        dry = lambda: cluster.kubectl("-n", "rotated", "create", "--dry-run=server", "-f", "-", input=body, check=False)  # noqa: E731
        wait_for("admission to work again", dry)


@pytest.mark.timeout(1200)
def test_swap_with_upstreams_controller(theirs: Cluster, tmp_path: pathlib.Path):
    """Theirs to ours and back, with running TrainJobs of every framework: not one child changes."""
    cluster = theirs
    kinds = ["torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed", "mlx-distributed"]
    jobs = [trainjob(f"train-{i}", runtime, trainer={"numNodes": 2}) for i, runtime in enumerate(kinds)]
    jobs.append(trainjob("suspended", suspend=True))
    wait_for("upstream's webhooks", lambda: cluster.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(jobs[0]), check=False), 120)
    create(cluster, "swap", *jobs)
    settled = settle(cluster, "swap", len(jobs))

    upstream = Upstream(cluster)
    upstream.end()
    # here theirs are registered by URL; in a cluster both are by Service, and ours take the place of theirs
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org")
    cluster.kubectl("delete", "validatingwebhookconfiguration", "validator.trainer.kubeflow.org")
    cluster.install()
    operator = Operator(cluster, tmp_path, url())
    with running(operator):
        wait_for("ours to look at all TrainJobs", lambda: operator.number('controller_runtime_reconcile_total{controller="trainjob_controller"') >= len(jobs))
        nothing_changes(cluster, "swap", settled)
        create(cluster, "swap", trainjob("ours"))
        settled = settle(cluster, "swap", len(jobs) + 1)
        assert operator.end() == 0
    upstream.start()
    try:
        # of a suspended TrainJob's JobSet upstream writes empty metadata and resources at each look, which ours leaves out
        nothing_changes(cluster, "swap", settled, but=("jobsets.jobset.x-k8s.io/suspended",))
    finally:
        upstream.end()


def settle(cluster: Cluster, namespace: str, count: int) -> dict[str, str]:
    """Waits until all TrainJobs have children and nothing moves any more."""
    wait_for("all JobSets", lambda: len(cluster.items("-n", namespace, "jobsets")) == count, 180)
    last: list[dict[str, str]] = [{}]

    def quiet() -> bool:
        now = [cluster.versions(namespace), time.monotonic()]
        if now[0] != last[0]:
            last[:] = now
            return False
        return now[1] - last[1] > 5

    wait_for("nothing to move", quiet, 180)
    return last[0]


def nothing_changes(cluster: Cluster, namespace: str, settled: dict[str, str], but: tuple[str, ...] = ()) -> None:
    """For 30 s."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        now = cluster.versions(namespace)
        changed = {name for name in (settled.keys() | now.keys()) - set(but) if settled.get(name) != now.get(name)}
        assert not changed, changed


class Upstream:
    """Upstream's Trainer controller, as the harness started it."""

    def __init__(self, cluster: Cluster):
        self.pid = int((cluster.folder / "trainer.pid").read_text().split()[0])
        process = pathlib.Path(f"/proc/{self.pid}")
        self.command = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")[:-1]]
        pairs = [os.fsdecode(pair) for pair in (process / "environ").read_bytes().split(b"\0") if b"=" in pair]
        self.environment = dict(pair.split("=", 1) for pair in pairs)
        self.folder = os.readlink(process / "cwd")
        self.child: subprocess.Popen | None = None

    def start(self) -> None:
        log = open(pathlib.Path(self.folder) / "trainer-again.log", "w")  # noqa: SIM115
        self.child = subprocess.Popen(self.command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.pid = self.child.pid

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        if self.child:
            self.child.wait(60)
        alive = lambda: pathlib.Path(f"/proc/{self.pid}/stat").exists() and not is_zombie(self.pid)  # noqa: E731
        wait_for("upstream's controller to end", lambda: not alive())


def is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def test_a_wrong_configuration_is_told_with_its_line(tmp_path: pathlib.Path):
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    cases = [
        ("webhook:\n  port: 70000\n", "config.yaml:4: webhook.port: Invalid value: 70000: must be between 1 and 65535"),
        ("webhok: {}\n", "failed to decode config file"),
        ("leaderElection:\n  leaseDuration: 1s\n", "config.yaml:4: leaderElection.leaseDuration: must be greater than renewDeadline"),
        ("featureGates:\n  Nope: true\n", 'config.yaml:4: featureGates[Nope]: Unsupported value: "Nope"'),
    ]
    path = tmp_path / "config.yaml"
    for text, message in cases:
        path.write_text(head + text)
        done = subprocess.run([BINARY, "operator", "--config", path], capture_output=True, text=True, timeout=60)
        assert (done.returncode, message in done.stderr) == (1, True), (text, done.stderr)
    done = subprocess.run([BINARY, "operator", "--controllers=job"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "the cluster's own work" in done.stderr


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kustomize is part of kubectl")
def test_the_manifests_are_whole():
    """Every object of the overlay once, restricted pods, and the image that a release sets."""
    text = subprocess.run(["kubectl", "kustomize", MANIFESTS / "overlays/manager"], capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(text.stdout))
    keys = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(keys) == len(set(keys))
    assert {"ClusterRole", "Role", "Deployment", "Secret", "MutatingWebhookConfiguration", "CustomResourceDefinition"} <= {kind for kind, _ in keys}
    (deployment,) = [o for o in objects if o["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("trainyard:")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (shipped,) = [o for o in objects if o["kind"] == "ConfigMap"]
    assert yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])["leaderElection"]["leaderElect"] is True
    assert GOLDEN.exists()
