"""Real control planes for tests: upstream's API server, JobSet and Job controllers, and in one of them upstream's Trainer.

They are built and started by `cargo xtask kubernetes` (Go is needed; without it the tests are skipped, loudly) and shared by
all tests of a session (`cluster` and `theirs` in conftest.py), so each test keeps to namespaces of its own and leaves no
operator behind. The operator runs outside the cluster with the rights of the shipped manifests and no others, but for
writing its webhook configurations, which by URL are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from conftest import BINARY, ROOT, wait_for

MANIFESTS = ROOT / "manifests"
XTASK = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/xtask"
NAMESPACE, ACCOUNT = "kubeflow-system", "kubeflow-trainer-controller-manager"
# What is made of a TrainJob, by whomever.
CHILDREN = ["jobsets.jobset.x-k8s.io", "jobs.batch", "pods", "services", "configmaps", "secrets",
            "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"]  # fmt: skip
# Upstream's default; ours tells pods of the status server.
AS_UPSTREAM = {"featureGates": {"TrainJobStatus": False}}
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


GIVEN: set[int] = set()


def free_port() -> int:
    """Below where the system takes the ports of outgoing connections from: a program that is killed gets its port back. None is given
    twice: who asked for it may not listen yet."""
    while True:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in GIVEN:
                GIVEN.add(port)
                return port


class Cluster:
    """A real control plane, with our manifests installed."""

    def __init__(self, folder: pathlib.Path, *flags: str):
        self.folder = folder
        self.kubeconfig = self.harness("up", *flags).strip().splitlines()[-1]

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
        left = lambda: [o for o in self.items("-n", "default", "configmaps") if o["metadata"]["name"].startswith("of-")]
        wait_for("garbage collection", lambda: not left(), 180)

    def install_mpijobs(self) -> list[pathlib.Path]:
        """What `manifests/components/mpi` adds to that, and the kind, once it can own things; the files that were applied."""
        component = [MANIFESTS / "components/mpi" / file for file in ("namespace.yaml", "role.yaml", "binding.yaml")]
        files = [MANIFESTS / "crds/mpi/kubeflow.org_mpijobs.yaml", *component]
        for file in files:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
        # the API server's admission asks for new kinds now and then, and refuses owners of those that it does not know yet
        owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "owner", "uid": "0", "blockOwnerDeletion": True}
        owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]}}
        create = ("create", "-f", "-", "--dry-run=server", "-o", "name")
        wait_for("MPIJobs that own", lambda: self.kubectl(*create, check=False, input=json.dumps(owned)), 120)
        return files

    def runtimes(self) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "overlays/runtimes")

    def kubectl(self, *words: str | pathlib.Path, check: bool = True, **options) -> str:
        done = subprocess.run(["kubectl", "--kubeconfig", self.kubeconfig, *map(str, words)],
                              capture_output=True, text=True, timeout=120, **options)  # fmt: skip
        assert not check or done.returncode == 0, f"kubectl {words}: {done.stdout}\n{done.stderr}"
        return done.stdout if done.returncode == 0 else ""

    def namespace(self, name: str) -> None:
        """A namespace where things can be made: one that an earlier try of a test has deleted is gone first."""

        def is_there() -> bool:
            self.kubectl("create", "namespace", name, check=False)
            return self.get("namespace", name).get("status", {}).get("phase") == "Active"

        wait_for(f"namespace {name}", is_there, 240)

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

    def add(self, *flags: str) -> None:
        """Installs more controllers."""
        self.harness("add", *flags)

    def stop(self, program: str, *flags: str) -> None:
        """Stops a program of it, with `--kill` at once."""
        self.harness("stop", program, *flags)

    def start(self, program: str, *arguments: str) -> None:
        """Starts a program again; an argument takes the place of the one for the same flag."""
        self.harness("start", program, "--", *arguments)

    def down(self) -> None:
        self.harness("down", "--kill")

    def harness(self, verb: str, *words: str) -> str:
        """What `cargo xtask kubernetes VERB` prints of this control plane."""
        done = xtask("kubernetes", verb, self.folder, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Operator:
    """One replica."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, url: str, *flags: str, config: dict | None = None,
                 kubeconfig: pathlib.Path | None = None):  # fmt: skip
        folder.mkdir(exist_ok=True)
        self.health, self.metrics = free_port(), free_port()
        shipped = yaml.safe_load((MANIFESTS / "base/manager/configuration.yaml").read_text())
        shipped = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
        path = folder / f"config-{self.health}.yaml"
        path.write_text(yaml.safe_dump({**shipped, "metrics": {"secureServing": False}, **(config or {})}))
        self.log = folder / f"operator-{self.health}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [BINARY, "operator", "--kubeconfig", kubeconfig or cluster.account, "--config", path, "--webhook-url", url, "--log-format=json",
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
        try:
            wait_for("the operator to be ready", lambda: self.is_ready() or self.process.poll() is not None, 120)
        except pytest.fail.Exception as late:
            # nobody else knows of it yet: it would go on, with the lease and its ports
            says = self.fetch(self.health, "/readyz")
            self.end(signal.SIGKILL)
            pytest.fail(f"{late}\n{says}\n{self.log.read_text()[-5000:]}")
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


def xtask(*words: str | pathlib.Path) -> subprocess.CompletedProcess:
    """What `cargo xtask WORDS…` does, by the program as it was built last. Cargo is asked only where there is none: it would build the
    program for itself, not with the whole workspace, and so its libraries a second time, with fewer features."""
    if not XTASK.exists():
        subprocess.run(["cargo", "build", "--quiet", "--package", "xtask"], cwd=ROOT, check=True)
    return subprocess.run([XTASK, *words], cwd=ROOT, capture_output=True, text=True)


def url() -> str:
    return f"https://127.0.0.1:{free_port()}"


def start(tmp_path_factory: pytest.TempPathFactory, *flags: str) -> Iterator[Cluster]:
    if shutil.which("go") is None:
        pytest.skip("SKIPPED FOR WANT OF GO: the operator was not run on real Kubernetes")
    wanted = [flag for flag in flags if flag != "--audit"]
    built = xtask("kubernetes", "build", *wanted)
    if built.returncode != 0:
        pytest.skip(f"NOT BUILT: the operator was not run on real Kubernetes: {built.stderr[-1000:]}")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), *flags)
    try:
        yield cluster
    finally:
        cluster.down()


def trainjob(name: str, runtime: str = "torch-distributed", **spec) -> dict:
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": 1}, **spec}}  # fmt: skip


def create(cluster: Cluster, namespace: str, *jobs: dict) -> None:
    cluster.kubectl("create", "namespace", namespace, check=False)
    text = yaml.safe_dump_all(jobs)
    # a replica that was killed takes the requests that it had with it: they are asked again
    wait_for("all TrainJobs to be taken", lambda: cluster.kubectl("-n", namespace, "apply", "-f", "-", input=text, check=False), 180)
