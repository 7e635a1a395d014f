"""Queues: TrainJobs that real Kueue holds back, lets in, throws out and lets in again, on real Kubernetes with our operator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from cluster import XTASK, Cluster, Operator, running, trainjob, url
from conftest import ROOT, wait_for

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay  # noqa: E402

NAMESPACE, QUEUE = "queued", {"kueue.x-k8s.io/queue-name": "main"}
LONG = 180


def cluster_queue(reserved: int, spot: int) -> dict:
    """A queue for the whole cluster, with so many CPUs of two flavors."""
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for name, cpu in (("reserved", reserved), ("spot", spot))]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"},
        "spec": {"namespaceSelector": {}, "stopPolicy": "None", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]},
    }  # fmt: skip


def queues() -> list[dict]:
    flavors = [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
                "spec": {"nodeLabels": {"instance": name}}} for name in ("reserved", "spot")]  # fmt: skip
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
             "metadata": {"name": "main", "namespace": NAMESPACE}, "spec": {"clusterQueue": "all"}}  # fmt: skip
    return [*flavors, cluster_queue(2, 0), local]


class Queued:
    """The cluster with Kueue, and one namespace of it."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster

    def apply(self, *objects: dict) -> None:
        text = yaml.safe_dump_all(objects)
        # a listening webhook is not yet one that answers
        wait_for("Kueue to take it", lambda: self.cluster.kubectl("apply", "-f", "-", input=text, check=False), LONG)

    def create(self, job: dict) -> dict:
        """The TrainJob as it was when it was taken."""
        return json.loads(self.cluster.kubectl("-n", NAMESPACE, "create", "-o", "json", "-f", "-", input=json.dumps(job)))

    def get(self, kind: str, name: str) -> dict:
        return self.cluster.get("-n", NAMESPACE, kind, name)

    def patch(self, kind: str, name: str, spec: dict) -> None:
        self.cluster.kubectl("-n", NAMESPACE, "patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def workload(self, job: str) -> dict:
        """Kueue's view of a TrainJob."""
        found = [w for w in self.cluster.items("-n", NAMESPACE, "workloads.kueue.x-k8s.io") if w["metadata"]["ownerReferences"][0]["name"] == job]
        assert len(found) < 2, [w["metadata"]["name"] for w in found]
        return found[0] if found else {}

    def pods(self, job: str) -> list[dict]:
        return self.cluster.items("-n", NAMESPACE, "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={job}")

    def flavors(self, job: str) -> dict[str, str | None]:
        """The flavor of each step, by its JobSet."""
        steps = self.get("jobset", job).get("spec", {}).get("replicatedJobs", [])
        templates = {step["name"]: step["template"]["spec"]["template"] for step in steps}
        return {name: template["spec"].get("nodeSelector", {}).get("instance") for name, template in templates.items()}

    def runs(self, job: str, flavors: dict[str, str], count: int) -> None:
        """Waits until it runs with these flavors: the TrainJob, the JobSet and the Pods agree."""
        wait_for(f"{job} to be let in", lambda: self.get("trainjob", job)["spec"]["suspend"] is False, LONG)
        wait_for(f"flavors of {job}", lambda: self.flavors(job) == flavors and self.get("jobset", job)["spec"]["suspend"] is False, LONG)
        wait_for(f"pods of {job}", lambda: len(self.pods(job)) == count, LONG)
        for pod in self.pods(job):
            step = pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == step
            assert pod["spec"]["nodeSelector"]["instance"] == flavors[step]

    def waits(self, job: str) -> None:
        """Waits until it is suspended, without a trace of Kueue in its JobSet and without pods."""
        wait_for(f"{job} to be suspended", lambda: self.get("trainjob", job)["spec"]["suspend"] is True, LONG)
        wait_for(f"no pods of {job}", lambda: not self.pods(job), LONG)
        wait_for(f"no patches of {job}", lambda: not self.patches(job), LONG)
        wait_for(f"the JobSet of {job} as it was", lambda: self.get("jobset", job)["spec"]["suspend"] and not any(self.flavors(job).values()), LONG)
        wait_for(f"{job} to say so", lambda: condition(self.get("trainjob", job), "Suspended") == ("True", "Suspended"), LONG)

    def patches(self, job: str) -> list[dict]:
        """What Kueue says in the TrainJob about its steps."""
        (patch,) = [p for p in self.get("trainjob", job)["spec"]["runtimePatches"] if p["manager"] == "kueue.x-k8s.io/manager"]
        return patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", [])

    def succeed(self, job: str) -> None:
        for pod in self.pods(job):
            status = json.dumps({"status": replay.kubelet_status(pod, "Succeeded")})
            self.cluster.kubectl("-n", NAMESPACE, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "-p", status)


def condition(o: dict, kind: str) -> tuple[str, str] | None:
    return next(((c["status"], c["reason"]) for c in o.get("status", {}).get("conditions", []) if c["type"] == kind), None)


@pytest.fixture(scope="module")
def queued(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queued]:
    """Kueue and our operator at work; afterwards the cluster is as it was."""
    built = subprocess.run([XTASK, "kubernetes", "build", "--kueue"], cwd=ROOT, capture_output=True, text=True)
    if built.returncode != 0:
        pytest.skip(f"NOT BUILT: nothing was queued by Kueue: {built.stderr[-1000:]}")
    operator = Operator(cluster, tmp_path_factory.mktemp("operator"), url())
    with running(operator):
        cluster.runtimes()
        cluster.add("--kueue")
        cluster.kubectl("create", "namespace", NAMESPACE)
        found = Queued(cluster)
        try:
            found.apply(*queues())
            yield found
            cluster.kubectl("-n", NAMESPACE, "delete", "trainjobs", "--all")
            wait_for("workloads to go", lambda: not cluster.items("-n", NAMESPACE, "workloads.kueue.x-k8s.io"), LONG)
            cluster.kubectl("-n", NAMESPACE, "delete", "localqueues", "--all")
            cluster.kubectl("delete", "clusterqueues,resourceflavors", "--all")
        finally:
            # its webhooks have a say in every TrainJob, so nothing of it may stay
            cluster.kubectl("delete", "mutatingwebhookconfiguration", "kueue-mutating-webhook-configuration", "--ignore-not-found")
            cluster.kubectl("delete", "validatingwebhookconfiguration", "kueue-validating-webhook-configuration", "--ignore-not-found")
            cluster.stop("kueue")
            kinds = [c["metadata"]["name"] for c in cluster.items("crds") if c["spec"]["group"] == "kueue.x-k8s.io"]
            cluster.kubectl("delete", "crds", "--wait=false", *kinds)
            cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        assert "bug:" not in operator.log.read_text() and "forbidden" not in operator.log.read_text()


def job(name: str, runtime: str = "torch-distributed", **spec) -> dict:
    """Two nodes of one CPU each, in the queue."""
    trainer = {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}}
    made = trainjob(name, runtime, trainer=trainer, **spec)
    return {**made, "metadata": {"name": name, "labels": QUEUE}}


@pytest.mark.timeout(900)
def test_a_trainjob_waits_runs_is_evicted_and_runs_elsewhere(queued: Queued):
    assert queued.create(job("first"))["spec"]["suspend"] is True
    queued.runs("first", {"node": "reserved"}, 2)
    assert [(p["name"], p["template"]["spec"]["template"]["spec"]["nodeSelector"]) for p in queued.patches("first")] == [("node", {"instance": "reserved"})]
    (assignment,) = queued.workload("first")["status"]["admission"]["podSetAssignments"]
    assert (assignment["count"], assignment["resourceUsage"]) == (2, {"cpu": "2"})

    # the second waits until the first has ended
    assert queued.create(job("second", "deepspeed-distributed"))["spec"]["suspend"] is True
    wait_for("no quota", lambda: condition(queued.workload("second"), "QuotaReserved") == ("False", "Pending"), LONG)
    wait_for("a JobSet that waits", lambda: queued.get("jobset", "second").get("spec", {}).get("suspend"), LONG)
    assert queued.get("trainjob", "second")["spec"]["suspend"] is True and not queued.pods("second")
    queued.succeed("first")
    wait_for("the first to end", lambda: condition(queued.get("trainjob", "first"), "Complete"), LONG)
    queued.runs("second", {"launcher": "reserved", "node": "reserved"}, 1)  # its launcher waits for the node
    assert condition(queued.workload("first"), "Finished") == ("True", "Succeeded")

    # thrown out, it is as before; let in again, it runs elsewhere
    workload = queued.workload("second")["metadata"]["name"]
    queued.patch("workload", workload, {"active": False})
    queued.waits("second")
    queued.apply(cluster_queue(0, 2))
    queued.patch("workload", workload, {"active": True})
    queued.runs("second", {"launcher": "spot", "node": "spot"}, 1)
    assert condition(queued.get("trainjob", "second"), "Suspended") == ("False", "Resumed")

    # the same with the whole queue
    queued.patch("clusterqueue", "all", {"stopPolicy": "HoldAndDrain"})
    queued.waits("second")
    queued.apply(cluster_queue(2, 0))
    queued.runs("second", {"launcher": "reserved", "node": "reserved"}, 1)

    # who goes makes room
    queued.create(job("third"))
    queued.cluster.kubectl("-n", NAMESPACE, "delete", "trainjob", "second")
    queued.runs("third", {"node": "reserved"}, 2)
    assert len(queued.cluster.items("-n", NAMESPACE, "trainjobs")) == 2


@pytest.mark.timeout(600)
def test_what_is_in_no_queue_is_not_held_back(queued: Queued):
    made = queued.create(trainjob("free"))
    assert made["spec"].get("suspend") is not True
    wait_for("pods", lambda: len(queued.pods("free")) == 1, LONG)
    assert not queued.workload("free") and queued.flavors("free") == {"node": None}


@pytest.mark.timeout(600)
def test_what_multikueue_sends_away_is_left_alone(queued: Queued):
    """Kueue hands a TrainJob to another cluster; its status is all that comes back, and it is not ours to write."""
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "elsewhere"}, "spec": {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "elsewhere"}}}  # fmt: skip
    away = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "away"}, "spec": {
        **cluster_queue(2, 0)["spec"], "admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}}  # fmt: skip
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
             "metadata": {"name": "away", "namespace": NAMESPACE}, "spec": {"clusterQueue": "away"}}  # fmt: skip
    queued.apply(check, away, local)
    sent = trainjob("sent")
    sent["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "away"}
    dry = lambda: json.loads(queued.cluster.kubectl("-n", NAMESPACE, "create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(sent)))  # noqa: E731
    wait_for("Kueue to know where it goes", lambda: dry()["spec"].get("managedBy") == "kueue.x-k8s.io/multikueue", LONG)
    queued.create(sent)
    # one that came later has its children: ours has looked at the other and left it
    queued.create(trainjob("later"))
    wait_for("the later one", lambda: len(queued.pods("later")) == 1, LONG)
    assert queued.get("jobset", "sent") == {} and not queued.get("trainjob", "sent").get("status")
    status = {"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "Elsewhere", "message": "it ran on another cluster",
                                         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}  # fmt: skip
    queued.cluster.kubectl("-n", NAMESPACE, "patch", "trainjob", "sent", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    queued.create(trainjob("last"))
    wait_for("the last one", lambda: len(queued.pods("last")) == 1, LONG)
    assert queued.get("trainjob", "sent")["status"] == status["status"]
    queued.cluster.kubectl("delete", "admissioncheck", "elsewhere", "--wait=false")
