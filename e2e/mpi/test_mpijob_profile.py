"""MPIJobs under profile openshift-ai on real Kubernetes (`cluster.py`), with the rights of `manifests/overlays/openshift` and no others."""

from __future__ import annotations

import base64
import copy
import pathlib
import shutil
import subprocess

import pytest
import yaml

from cluster import ACCOUNT, AS_UPSTREAM, MANIFESTS, Cluster, Operator, running, url
from conftest import Yard, stop, wait_for

QUEUE = {"kueue.x-k8s.io/queue-name": "main"}


def overlay() -> list[dict]:
    done = subprocess.run(["kubectl", "kustomize", MANIFESTS / "overlays/openshift"], capture_output=True, text=True, check=True)
    return [o for o in yaml.safe_load_all(done.stdout) if o]


@pytest.fixture
def openshift(cluster: Cluster):
    """The cluster with what the overlay has beyond `overlays/manager`: that is installed, with webhooks by URL."""
    own = [o for o in overlay() if "mpi" in o["metadata"]["name"] or o["metadata"].get("namespace") == "mpi-operator"]
    kinds = {o["kind"] for o in own}
    assert {"CustomResourceDefinition", "ClusterRole", "Role", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} <= kinds
    apply = lambda *flags, objects: cluster.kubectl("apply", "--server-side", "--force-conflicts", *flags, "-f", "-", input=yaml.safe_dump_all(objects))
    apply(objects=own)
    # the API server takes all the rest of it, too
    apply("--dry-run=server", objects=[o for o in overlay() if not o["kind"].endswith("WebhookConfiguration")])
    yield cluster
    kept = ("CustomResourceDefinition", "Namespace")
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(o for o in own if o["kind"] not in kept))


def job(name: str, workers: int = 2, labels: dict | None = None, launcher: dict | None = None) -> dict:
    container = {"image": "registry.example/mpi:1"}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name, "labels": labels or {}}, "spec": {
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "mpiReplicaSpecs": {
            "Launcher": {"template": {"spec": {"containers": [{"name": "launcher", "command": ["mpirun", "hostname"], **container}], **(launcher or {})}}},
            "Worker": {"replicas": workers, "template": {"spec": {"containers": [{"name": "worker", **container}]}}},
        },
    }}  # fmt: skip


def create(cluster: Cluster, namespace: str, *jobs: dict) -> None:
    cluster.kubectl("-n", namespace, "create", "-f", "-", input=yaml.safe_dump_all(jobs))


def warnings(cluster: Cluster, namespace: str, one: dict) -> list[str]:
    """What kubectl says of a job on stderr; it is taken all the same."""
    done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", namespace, "create", "--dry-run=server", "-f", "-"],
                          input=yaml.safe_dump(one), capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.rsplit("': ", 1)[-1] for line in done.stderr.splitlines() if line.startswith("Warning:")]


def operator(cluster: Cluster, folder: pathlib.Path, *flags: str) -> Operator:
    config = {**AS_UPSTREAM, "clientConnection": {"qps": 500, "burst": 1000}, "mpi": {"image": "registry.example/trainyard:1"}}
    return Operator(cluster, folder, url(), "--controllers=mpijob", *flags, config=config)


def has_token(pod: dict) -> bool:
    """Whether the API server's admission has given the pod a token."""
    return any("serviceAccountToken" in source for volume in pod["spec"].get("volumes", [])
               for source in volume.get("projected", {}).get("sources", []))  # fmt: skip


@pytest.mark.timeout(900)
def test_restricted_namespaces_take_the_pods_of_the_profile_alone(openshift: Cluster, tmp_path: pathlib.Path):
    cluster, namespace = openshift, "mpi-restricted"
    cluster.namespace(namespace)
    cluster.kubectl("label", "namespace", namespace, "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
    pods = lambda: {p["metadata"]["name"]: p for p in cluster.items("-n", namespace, "pods")}
    events = lambda: [e["message"] for e in cluster.items("-n", namespace, "events") if e["involvedObject"]["kind"] == "MPIJob"]
    plain = operator(cluster, tmp_path)
    with running(plain):
        create(cluster, namespace, job("train"))
        refused = lambda: [m for m in events() if m.startswith("worker pod created failed") and "violates PodSecurity" in m]
        wait_for("the refusal to be told", refused, 120)
        assert not pods() and not cluster.items("-n", namespace, "networkpolicies")
        assert plain.end() == 0

    written = cluster.get("-n", namespace, "mpijob", "train")["spec"]
    with running(profiled := operator(cluster, tmp_path, "--mpi-profile=openshift-ai")):
        wait_for("all pods", lambda: len(pods()) == 3, 240)
        for name, pod in pods().items():
            assert not has_token(pod), name
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        (launcher,) = (pod for name, pod in pods().items() if name.startswith("train-launcher"))
        (waiter,) = launcher["spec"]["initContainers"]
        assert waiter["image"] == "registry.example/trainyard:1" and waiter["command"][:2] == ["/trainyard", "mpi-wait"]
        (policy,) = cluster.items("-n", namespace, "networkpolicies")
        (owner,) = policy["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("MPIJob", "train", True)
        chosen = policy["spec"]["podSelector"]["matchLabels"]
        assert all(chosen.items() <= pod["metadata"]["labels"].items() for pod in pods().values())
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": chosen}}]}]

        # somebody opens it: it is closed again, and nothing else is written
        versions = lambda: {o["metadata"]["name"]: o["metadata"]["resourceVersion"]
                            for kind in ("pods", "services", "secrets") for o in cluster.items("-n", namespace, kind)}  # fmt: skip
        before = versions()
        cluster.kubectl("-n", namespace, "patch", "networkpolicy", policy["metadata"]["name"], "--type=merge", "-p", '{"spec": {"ingress": [{}]}}')
        wait_for("the policy", lambda: cluster.items("-n", namespace, "networkpolicies")[0]["spec"] == policy["spec"], 60)
        assert versions() == before
        assert cluster.get("-n", namespace, "mpijob", "train")["spec"] == written, "Kueue compares it"

        # what a template says goes before the profile: where no policy forbids it, such a pod runs
        cluster.namespace("mpi-open")
        create(cluster, "mpi-open", job("token", launcher={"automountServiceAccountToken": True}))
        wait_for("the launcher", lambda: len(cluster.items("-n", "mpi-open", "pods")) == 3, 240)
        assert {p["metadata"]["name"].split("-")[1] for p in cluster.items("-n", "mpi-open", "pods") if has_token(p)} == {"launcher"}

        # with the job goes its policy
        cluster.kubectl("-n", namespace, "delete", "mpijob", "train", "--cascade=foreground")
        wait_for("the policy to go", lambda: not cluster.items("-n", namespace, "networkpolicies"), 240)
        log = profiled.log.read_text()
        lacking = [line for line in log.splitlines() if "forbidden" in line and "violates PodSecurity" not in line]
        lacking = [line for line in lacking if "cannot find RESTMapping" not in line and "being terminated" not in line]
        assert not lacking, lacking[:3]
        assert "bug:" not in log
        assert profiled.end() == 0


@pytest.mark.timeout(600)
def test_what_is_seldom_meant_is_warned_of_and_taken(openshift: Cluster):
    cluster, namespace = openshift, "mpi-warned"
    cluster.namespace(namespace)
    one = job("one", workers=1)
    # a policy counts some seconds after it was written
    wait_for("the first warning", lambda: warnings(cluster, namespace, one), 120)
    assert warnings(cluster, namespace, one) == ["the job has 1 worker: MPI is for 2 or more"]
    assert warnings(cluster, namespace, job("two")) == []
    leads = copy.deepcopy(one)
    leads["spec"]["runLauncherAsWorker"] = True
    assert warnings(cluster, namespace, leads) == []

    def with_gpu(name: str, amount: str, leads: bool = False) -> dict:
        made = job("gpu")
        made["spec"]["runLauncherAsWorker"] = leads
        (container,) = made["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"cpu": "1", name: amount}}
        return made

    wasted = ["the launcher asks for a GPU, and runs no rank that could use it (spec.runLauncherAsWorker lets it)"]
    assert warnings(cluster, namespace, with_gpu("nvidia.com/gpu", "1")) == wasted
    assert warnings(cluster, namespace, with_gpu("nvidia.com/mig-1g.5gb", "2")) == wasted
    assert warnings(cluster, namespace, with_gpu("nvidia.com/gpu", "0")) == []
    assert warnings(cluster, namespace, with_gpu("example.com/nic", "1")) == []
    assert warnings(cluster, namespace, with_gpu("nvidia.com/gpu", "1", leads=True)) == []

    cluster.kubectl("label", "namespace", namespace, "--overwrite", "kueue.openshift.io/managed=true")
    unqueued = ["Kueue manages this namespace, and the job has no label kueue.x-k8s.io/queue-name"]
    wait_for("the namespace's label to be seen", lambda: warnings(cluster, namespace, job("two")) == unqueued, 120)
    assert warnings(cluster, namespace, job("two", labels=QUEUE)) == []
    assert len(warnings(cluster, namespace, one)) == 2

    # told once: a change elsewhere than in the specification is not worth another
    create(cluster, namespace, one)
    done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", namespace, "label", "mpijob", "one", "a=b"],
                          capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    assert "Warning" not in done.stderr
    cluster.kubectl("-n", namespace, "delete", "mpijob", "one")


def test_the_operator_runs_under_any_user():
    """OpenShift's restricted-v2 gives a namespace user ids of its own, and refuses a pod that names another."""
    (deployment,) = (o for o in overlay() if o["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["metadata"]["name"] == ACCOUNT and pod["securityContext"]["runAsNonRoot"] is True
    assert all("runAsUser" not in context for context in [pod["securityContext"], *(c.get("securityContext", {}) for c in pod["containers"])])
    args = pod["containers"][0]["args"]
    assert args[-2:] == ["--controllers=trainjob,trainingruntime,clustertrainingruntime,mpijob", "--mpi-profile=openshift-ai"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
@pytest.mark.timeout(300)
def test_running_pods_have_no_token_and_their_own_keys_alone(tmp_path: pathlib.Path):
    """Looked for inside, on a laptop: no token is mounted but where the template says so, and each job finds its own key."""
    yard = Yard(tmp_path / "home", "--mpi-profile", "openshift-ai")
    try:
        look = "grep -o kube-api-access /proc/self/mountinfo; cksum /home/mpiuser/.ssh/id_rsa; exec mpirun -n 2 cksum /home/mpiuser/.ssh/id_rsa"
        env = [{"name": name, "value": "1"} for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")]
        role = lambda command, count, **spec: {"replicas": count, "restartPolicy": "Never", "template": {"spec": {
            "containers": [{"name": "main", "image": "none", "command": command, "env": env}], **spec}}}  # fmt: skip
        names = {"mine": {}, "other": {}, "asks": {"automountServiceAccountToken": True}}
        for name, more in names.items():
            roles = {"Launcher": role(["sh", "-c", look], 1, **more), "Worker": role(["/usr/sbin/sshd", "-De"], 2)}
            one = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
                   "spec": {"sshAuthMountPath": "/home/mpiuser/.ssh", "runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": roles}}  # fmt: skip
            yard.kubectl("apply", "-f", "-", input=yaml.safe_dump(one))
        found = []
        for name in names:
            yard.run("mpijob", "wait", name, "--timeout", "120s")
            log = yard.run("mpijob", "logs", name).stdout
            assert ("kube-api-access" in log) == (name == "asks"), log
            sums = [line.split()[0] for line in log.splitlines() if line.endswith("id_rsa")]
            key = base64.b64decode(yaml.safe_load(yard.kubectl("get", "secret", f"{name}-ssh", "-o", "yaml").stdout)["data"]["ssh-privatekey"])
            own = subprocess.run(["cksum"], input=key, capture_output=True, check=True).stdout.decode().split()[0]
            assert sums == [own] * 3, log
            found.append(own)
        assert len(set(found)) == len(names)
        pods = yaml.safe_load(yard.kubectl("get", "pods", "-o", "yaml").stdout)["items"]
        mounted = {(p["metadata"]["labels"]["training.kubeflow.org/job-name"], v["secret"]["secretName"])
                   for p in pods for v in p["spec"]["volumes"] if "secret" in v}  # fmt: skip
        assert mounted == {(name, f"{name}-ssh") for name in names}
    finally:
        stop(yard)
