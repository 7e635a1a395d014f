"""Queues: TrainJobs and MPIJobs that real Kueue holds back, lets in, throws out and lets in again, on real Kubernetes with our operator."""

from __future__ import annotations

import base64
import json
import pathlib
import sys
from collections.abc import Callable, Iterator

import pytest
import yaml

from cluster import Cluster, Operator, running, start, trainjob, url, xtask
from conftest import ROOT, plain_runtime, wait_for

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay

NAMESPACE, QUEUE = "queued", {"kueue.x-k8s.io/queue-name": "main"}
LONG = 180


def cluster_queue(reserved: int, spot: int, name: str = "all", **spec) -> dict:
    """A queue for the whole cluster, with so many CPUs of two flavors."""
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for name, cpu in (("reserved", reserved), ("spot", spot))]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "stopPolicy": "None", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}], **spec},
    }  # fmt: skip


def local_queue(name: str, of: str | None = None) -> dict:
    """Where a namespace's jobs get to the queue of the same name, or of another."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"clusterQueue": of or name}}  # fmt: skip


def queues() -> list[dict]:
    flavors = [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
                "spec": {"nodeLabels": {"instance": name}}} for name in ("reserved", "spot")]  # fmt: skip
    return [*flavors, cluster_queue(2, 0), local_queue("main", "all")]


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

    def dry(self, job: dict) -> dict:
        """The TrainJob as it would be taken now."""
        return json.loads(self.cluster.kubectl("-n", NAMESPACE, "create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(job)))

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
        wait_for(f"{job} to be let in", lambda: self.get("trainjob", job).get("spec", {}).get("suspend") is False, LONG)
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
    built = xtask("kubernetes", "build", "--kueue")
    if built.returncode != 0:
        pytest.skip(f"NOT BUILT: nothing was queued by Kueue: {built.stderr[-1000:]}")
    *_, role, binding = cluster.install_mpijobs()
    kinds = "--controllers=trainjob,trainingruntime,clustertrainingruntime,mpijob"
    operator = Operator(cluster, tmp_path_factory.mktemp("operator"), url(), kinds)
    with running(operator):
        cluster.runtimes()
        cluster.add("--kueue")
        cluster.namespace(NAMESPACE)
        found = Queued(cluster)
        try:
            found.apply(*queues())
            yield found
            cluster.kubectl("-n", NAMESPACE, "delete", "trainjobs", "--all")
            wait_for("workloads to go", lambda: not cluster.items("-n", NAMESPACE, "workloads.kueue.x-k8s.io"), LONG)
            cluster.kubectl("-n", NAMESPACE, "delete", "localqueues", "--all")
            cluster.kubectl("delete", "clusterqueues,resourceflavors,topologies,workloadpriorityclasses", "--all")
        finally:
            # what it says after its rights and its namespace are gone is no fault
            said = operator.log.read_text()
            # its webhooks have a say in every TrainJob, so nothing of it may stay
            cluster.kubectl("delete", "mutatingwebhookconfiguration", "kueue-mutating-webhook-configuration", "--ignore-not-found")
            cluster.kubectl("delete", "validatingwebhookconfiguration", "kueue-validating-webhook-configuration", "--ignore-not-found")
            cluster.stop("kueue")
            kinds = [c["metadata"]["name"] for c in cluster.items("crds") if c["spec"]["group"] == "kueue.x-k8s.io"]
            cluster.kubectl("delete", "crds", "--wait=false", *kinds)
            cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
            for file in (binding, role):
                cluster.kubectl("delete", "-f", file, "--ignore-not-found")
        assert "bug:" not in operator.log.read_text() and "forbidden" not in said


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


class Mpi:
    """A MPIJob of a launcher and two workers of one CPU each, in its queue."""

    def __init__(self, queued: Queued, name: str):
        self.queued, self.name = queued, name
        pod = {"spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}
        roles = {"Launcher": {"replicas": 1, "restartPolicy": "Never", "template": pod}, "Worker": {"replicas": 2, "template": pod}}
        made = queued.create({
            "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "mpi"}},
            "spec": {"runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": roles}})  # fmt: skip
        assert made["spec"]["runPolicy"]["suspend"] is True

    def get(self) -> dict:
        return self.queued.get("mpijob", self.name)

    def launcher(self) -> dict:
        return self.queued.get("job", f"{self.name}-launcher").get("spec", {})

    def pods(self) -> list[dict]:
        return self.queued.cluster.items("-n", NAMESPACE, "pods", "-l", f"training.kubeflow.org/job-name={self.name}")

    def plays(self, phase: str, of: Callable[[dict], bool] = lambda pod: True) -> None:
        """What a kubelet says of these pods; one that is being deleted ends and is gone."""
        for pod in filter(of, self.pods()):
            status = json.dumps({"status": replay.kubelet_status(pod, phase)})
            self.queued.cluster.kubectl("-n", NAMESPACE, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "-p", status, check=False)

    def runs(self, flavor: str) -> None:
        """Waits until it runs with this flavor: the MPIJob, the launcher's Job and the pods agree."""
        wait_for(f"{self.name} to be let in", lambda: self.get()["spec"]["runPolicy"]["suspend"] is False, LONG)
        new = lambda: [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
        wait_for(f"pods of {self.name}", lambda: len(new()) == 3, LONG)
        assert self.launcher()["suspend"] is False
        assert {pod["spec"]["nodeSelector"]["instance"] for pod in new()} == {flavor}
        self.plays("Running")
        wait_for(f"{self.name} to say so", lambda: condition(self.get(), "Running") == ("True", "MPIJobRunning"), LONG)

    def waits(self) -> None:
        """Waits until it is suspended, without a trace of Kueue in it and without pods."""
        wait_for(f"{self.name} to be suspended", lambda: self.launcher().get("suspend") is True, LONG)

        def gone() -> bool:
            self.plays("Failed", lambda pod: "deletionTimestamp" in pod["metadata"])
            return not self.pods()

        wait_for(f"no pods of {self.name}", gone, LONG)
        wait_for(f"{self.name} to say so", lambda: condition(self.get(), "Suspended") == ("True", "MPIJobSuspended"), LONG)
        templates = [role["template"]["spec"] for role in self.get()["spec"]["mpiReplicaSpecs"].values()]
        assert not any(template.get("nodeSelector") for template in templates)


@pytest.mark.timeout(600)
def test_an_mpijob_waits_runs_is_evicted_and_runs_elsewhere(queued: Queued):
    queued.apply(cluster_queue(3, 0, "mpi"), local_queue("mpi"))
    first = Mpi(queued, "first-mpi")
    first.runs("reserved")
    second = Mpi(queued, "second-mpi")
    wait_for("no quota", lambda: condition(queued.workload("second-mpi"), "QuotaReserved") == ("False", "Pending"), LONG)
    second.waits()

    # thrown out, it is as before; let in again, it runs elsewhere
    queued.patch("workload", queued.workload("first-mpi")["metadata"]["name"], {"active": False})
    first.waits()
    second.runs("reserved")
    queued.apply(cluster_queue(3, 3, "mpi"))
    queued.patch("workload", queued.workload("first-mpi")["metadata"]["name"], {"active": True})
    first.runs("spot")
    assert condition(first.get(), "Suspended") == ("False", "MPIJobResumed")
    for job in (first, second):
        job.plays("Succeeded", lambda pod: pod["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher")
        wait_for(f"{job.name} to end", lambda job=job: condition(job.get(), "Succeeded") == ("True", "MPIJobSucceeded"), LONG)
        wait_for("Kueue to see it", lambda job=job: (condition(queued.workload(job.name), "Finished") or ("",))[0] == "True", LONG)
    queued.cluster.kubectl("-n", NAMESPACE, "delete", "mpijobs", "--all")


@pytest.mark.timeout(600)
def test_what_is_in_no_queue_is_not_held_back(queued: Queued):
    made = queued.create(trainjob("free"))
    assert made["spec"].get("suspend") is not True
    wait_for("pods", lambda: len(queued.pods("free")) == 1, LONG)
    assert not queued.workload("free") and queued.flavors("free") == {"node": None}


@pytest.mark.timeout(600)
def test_who_matters_more_goes_first(queued: Queued):
    """Kueue preempts a TrainJob for one of higher priority, and lets it in again when that has ended."""
    classes = [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
               for name, value in (("research", 10), ("production", 1000))]  # fmt: skip
    preempting = cluster_queue(2, 0, "preempting", preemption={"withinClusterQueue": "LowerPriority"})
    queued.apply(*classes, preempting, local_queue("preempting"))

    def ranked(name: str, priority: str) -> dict:
        made = job(name)
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "preempting", "kueue.x-k8s.io/priority-class": priority}
        return made

    queued.create(ranked("patient", "research"))
    queued.runs("patient", {"node": "reserved"}, 2)
    first = {pod["metadata"]["uid"] for pod in queued.pods("patient")}
    queued.create(ranked("urgent", "production"))
    queued.waits("patient")
    assert condition(queued.workload("patient"), "Preempted") == ("True", "InClusterQueue")
    queued.runs("urgent", {"node": "reserved"}, 2)
    queued.succeed("urgent")
    wait_for("the urgent one to end", lambda: condition(queued.get("trainjob", "urgent"), "Complete"), LONG)
    queued.runs("patient", {"node": "reserved"}, 2)
    assert first.isdisjoint(pod["metadata"]["uid"] for pod in queued.pods("patient"))
    assert condition(queued.get("trainjob", "patient"), "Suspended") == ("False", "Resumed")


@pytest.mark.timeout(600)
def test_nodes_of_one_rack(queued: Queued):
    """Kueue's topology-aware scheduling: gates come with the patches, and each rank is placed on a node of the same rack."""
    hosts = {f"{rack}-{n}": rack for rack in ("left", "right") for n in range(2)}
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "instance": "racked", "rack": rack, "kubernetes.io/hostname": name}}} for name, rack in hosts.items()]  # fmt: skip
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "racked"},
              "spec": {"nodeLabels": {"instance": "racked"}, "topologyName": "racks"}}  # fmt: skip
    flavors = [{"name": "racked", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "racked"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}}  # fmt: skip
    runtime = plain_runtime("racked")
    (step,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    step["template"]["spec"]["template"].setdefault("metadata", {})["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    queued.apply(*nodes, topology, flavor, kind, local_queue("racked"), runtime)
    try:
        capacity = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played",
                  "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]  # fmt: skip
        for name in hosts:
            status = json.dumps({"status": {"capacity": capacity, "allocatable": capacity, "conditions": ready}})
            queued.cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
            queued.cluster.kubectl("taint", "node", name, "node.kubernetes.io/not-ready-", check=False)

        made = job("racked", "racked")
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "racked"}
        queued.create(made)
        queued.runs("racked", {"node": "racked"}, 2)
        (patch,) = queued.patches("racked")
        assert patch["template"]["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
        placed = lambda: [pod for pod in queued.pods("racked") if not pod["spec"].get("schedulingGates")]
        wait_for("the gates to open", lambda: len(placed()) == 2, LONG)
        by_rank = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in placed()}
        assert [by_rank["0"], by_rank["1"]] in (["left-0", "left-1"], ["right-0", "right-1"]), by_rank
        queued.cluster.kubectl("-n", NAMESPACE, "delete", "trainjob", "racked")
    finally:
        queued.cluster.kubectl("delete", "nodes", *hosts)
        queued.cluster.kubectl("delete", "clustertrainingruntime", "racked")


@pytest.fixture
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster where the pods run; it is there for this test alone. Kueue wants every kind that it sends to be served there."""
    for started in start(tmp_path_factory, "--jobset", "--kueue"):
        started.install()
        started.install_mpijobs()
        yield started


@pytest.mark.timeout(900)
def test_a_trainjob_runs_on_another_cluster(queued: Queued, worker: Cluster, tmp_path: pathlib.Path):
    """`queued` is the cluster where users create TrainJobs."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "worker", "namespace": "kueue-system"},
              "data": {"kubeconfig": base64.b64encode(pathlib.Path(worker.kubeconfig).read_bytes()).decode()}}  # fmt: skip
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    remote = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "worker"}, "spec": {
        "clusterSource": {"kubeConfig": {"locationType": "Secret", "location": "worker"}}}}  # fmt: skip
    chosen = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "workers"}, "spec": {"clusters": ["worker"]}}
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "workers"}, "spec": {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}}}  # fmt: skip
    away = cluster_queue(2, 0, "away")
    sending = cluster_queue(2, 0, "away", admissionChecksStrategy={"admissionChecks": [{"name": "workers"}]})

    with running(Operator(worker, tmp_path, url())):
        worker.runtimes()
        worker.namespace(NAMESPACE)
        there = Queued(worker)
        there.apply(*(o for o in queues() if o["kind"] == "ResourceFlavor"), away, local_queue("away"))
        queued.apply(system, secret, remote, chosen, check, sending, local_queue("away"))
        wait_for("the clusters to know each other", lambda: condition(queued.cluster.get("multikueuecluster", "worker"), "Active") == ("True", "Active"), LONG)

        job = trainjob("abroad", trainer={"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}})
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "away"}
        wait_for("Kueue to know where it goes", lambda: queued.dry(job)["spec"].get("managedBy") == "kueue.x-k8s.io/multikueue", LONG)
        queued.create(job)
        there.runs("abroad", {"node": "reserved"}, 2)
        assert there.get("trainjob", "abroad")["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
        same = lambda: queued.get("trainjob", "abroad").get("status") == there.get("trainjob", "abroad").get("status")
        wait_for("its status here", lambda: queued.get("trainjob", "abroad").get("status", {}).get("jobsStatus") and same(), LONG)
        there.succeed("abroad")
        wait_for("it to end here", lambda: condition(queued.get("trainjob", "abroad"), "Complete") == ("True", "AllJobsCompleted"), LONG)
        assert condition(queued.workload("abroad"), "Finished") == ("True", "Succeeded")
        # nothing was made of it here, and nothing is left there
        assert queued.get("jobset", "abroad") == {} and not queued.pods("abroad")
        wait_for("the copy to go", lambda: not worker.items("-n", NAMESPACE, "trainjobs"), LONG)

        # taken back before it ended
        job["metadata"]["name"] = "recalled"
        queued.create(job)
        there.runs("recalled", {"node": "reserved"}, 2)
        queued.cluster.kubectl("-n", NAMESPACE, "delete", "trainjob", "recalled")
        wait_for("the copy to go", lambda: not worker.items("-n", NAMESPACE, "trainjobs,jobsets"), LONG)
        queued.cluster.kubectl("delete", "admissioncheck,multikueueconfig,multikueuecluster", "--all", "--wait=false")
