"""MPIJobs made up at random, with the lives that they lead: the same seed gives the same.

What mpi-operator 0.8.2 does by chance is left out, each time with its reason at the place; what differs on purpose is in and
named in `mpijob_differences.yaml`.
"""

from __future__ import annotations

import dataclasses
import random

API = "kubeflow.org/v2beta1"
# How an operator is started: its flag --gang-scheduling, and --cluster-domain. Half of all jobs go to the first.
ROUNDS = [("", ""), ("volcano", ""), ("coscheduling", "example.org")]


@dataclasses.dataclass
class Case:
    """A MPIJob and what happens to it: merge patches of it, and words that `Side.step` of the comparison knows. `there`: objects of its
    names that are there before it."""

    namespace: str
    round: int
    job: dict
    steps: list[dict | str]
    there: list[dict] = dataclasses.field(default_factory=list)


def make(seed: str, number: int) -> Case:
    """The case of that number."""
    return Maker(random.Random(f"mpi/{seed}/{number}")).case(f"mpi-{number}", (0, 1, 0, 2)[number % 4])


def without_none(**members) -> dict:
    return {name: value for name, value in members.items() if value is not None}


class Maker:
    def __init__(self, rng: random.Random):
        self.rng = rng

    def maybe(self, chance: float, value):
        """A value (or what a function gives) with that chance, else None."""
        if self.rng.random() >= chance:
            return None
        return value() if callable(value) else value

    def one(self, *values):
        return self.rng.choice(values)

    def case(self, namespace: str, round_: int) -> Case:
        self.gang = ROUNDS[round_][0]
        self.workers = self.one(None, 1, 2, 2, 3, 3, 4)
        self.as_worker = self.rng.random() < 0.2
        self.waits = self.workers is not None and self.rng.random() < 0.25
        # of two steps that end a job, what comes between is chance: so one that fails is not tried again, or the next is waited for
        steps = self.life()
        words = [step for step in steps if isinstance(step, str)]
        policy = without_none(
            cleanPodPolicy=self.one(None, "None", "All", "Running", "Running"),
            backoffLimit=0 if {"fails", "launcher evicted"} & set(words) else 3 if "fails once" in words else self.maybe(0.5, lambda: self.one(0, 3)),
            suspend=True if self.begins_suspended else self.maybe(0.2, False),
            activeDeadlineSeconds=self.maybe(0.15, 100_000),
            ttlSecondsAfterFinished=self.maybe(0.15, 100_000),
            managedBy=self.maybe(0.08, lambda: self.one("kubeflow.org/mpi-operator", "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue")),
            schedulingPolicy=self.maybe(0.35, self.scheduling),
        )
        job = {
            "apiVersion": API, "kind": "MPIJob",
            "metadata": without_none(
                name=self.one("job", "train-it", "x"), namespace=namespace, labels=self.maybe(0.2, {"mine": "1"}),
                annotations=self.maybe(0.2, lambda: self.one({"mine": "a b"}, {"scheduling.volcano.sh/queue-name": "q"})),
                finalizers=self.maybe(0.04, ["example.org/held"])),
            "spec": without_none(
                mpiImplementation=self.one(None, "OpenMPI", "Intel", "MPICH"),
                slotsPerWorker=self.maybe(0.6, lambda: self.rng.randint(0, 4)),
                runLauncherAsWorker=True if self.as_worker else self.maybe(0.2, False),
                sshAuthMountPath=self.maybe(0.3, lambda: self.one("/home/mpiuser/.ssh", "/root/.ssh", "/keys")),
                # any word that is not AtStartup means the same
                launcherCreationPolicy=self.one(*["WaitForWorkersReady"] * 4, "Whenever") if self.waits else self.maybe(0.3, "AtStartup"),
                runPolicy=policy or None,
                mpiReplicaSpecs=without_none(
                    Launcher=self.role("Launcher", self.one(None, 1)),
                    Worker=None if self.workers is None else self.role("Worker", self.workers)),
            ),
        }  # fmt: skip
        if self.rng.random() < 0.12:
            self.spoil(job)
        is_refused = self.rng.random() < 0.06
        if is_refused:
            self.refuse(job)
        there = [self.taken(job["metadata"]["name"])] if self.rng.random() < 0.08 else []
        is_freed = bool(there) and self.rng.random() < 0.5
        if is_freed:
            steps = ["taken freed", *steps]
        # mpi-operator looks again at a job that it cannot make when twice as much time has passed, whatever changes meanwhile
        if is_refused or (there and not is_freed):
            steps = steps[:1]
        # where the launcher is a worker, mpi-operator deletes a worker because of it and makes it again, for ever
        toggles = any("runLauncherAsWorker" in step.get("spec", {}) for step in steps if isinstance(step, dict))
        if self.rng.random() < 0.1 and not self.as_worker and not toggles:
            there.append(self.stray(job["metadata"]["name"]))
        return Case(namespace, round_, job, steps, there)

    def taken(self, name: str) -> dict:
        """Somebody else's object of a name that the job needs."""
        container = {"containers": [{"name": "main", "image": "other:1"}]}
        kinds = [
            ("v1", "Service", name, {"spec": {"clusterIP": "None", "selector": {"x": "y"}}}),
            ("v1", "ConfigMap", f"{name}-config", {}),
            ("v1", "Secret", f"{name}-ssh", {}),
            ("v1", "Pod", f"{name}-worker-{self.one(0, 1)}", {"spec": container}),
            ("batch/v1", "Job", f"{name}-launcher", {"spec": {"suspend": True, "template": {"spec": {**container, "restartPolicy": "Never"}}}}),
        ]
        if self.gang:
            version = {"volcano": "scheduling.volcano.sh/v1beta1"}.get(self.gang, "scheduling.x-k8s.io/v1alpha1")
            kinds += [(version, "PodGroup", name, {"spec": {"minMember": 1}})] * 2
        version, kind, called, rest = self.one(*kinds)
        return {"apiVersion": version, "kind": kind, "metadata": {"name": called}, **rest}

    def stray(self, name: str) -> dict:
        """A pod that only carries the labels of the job's workers. Without an index it would stop mpi-operator in the middle of a pass."""
        label = lambda word: f"training.kubeflow.org/{word}"
        labels = {label("operator-name"): "mpi-operator", label("job-name"): name, label("job-role"): "worker",
                  label("replica-index"): self.one("0", "1", "7", "none")}  # fmt: skip
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.one("a-stray", "z-stray"), "labels": labels},
                "spec": {"containers": [{"name": "main", "image": "other:1"}]}}  # fmt: skip

    def refuse(self, job: dict) -> None:
        """Something that the controller takes and the API refuses in the pods, or in the launcher's Job."""
        roles = job["spec"]["mpiReplicaSpecs"]
        role = roles.get(self.one("Launcher", "Worker"))
        if not role or not role["template"]["spec"]["containers"]:
            return
        spec = role["template"]["spec"]
        main = spec["containers"][0]
        self.one(
            lambda: spec.update(serviceAccountName="absent"),
            lambda: main.pop("image"),
            lambda: spec.update(volumes=[{"name": self.one("ssh-auth", "mpi-job-config"), "emptyDir": {}}]),
            lambda: main.update(volumeMounts=[{"name": "ssh-auth", "mountPath": self.one("/etc/mpi", "/root/.ssh")}]),
            lambda: main.update(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            lambda: spec.update(priorityClassName="absent"),
            lambda: role["template"].setdefault("metadata", {}).update(labels={"no label": "!"}),
        )()

    def spoil(self, job: dict) -> None:
        """Something that the schema refuses, or the controller."""
        spec = job["spec"]
        roles = spec["mpiReplicaSpecs"]
        faults = [
            lambda: spec.update(slotsPerWorker=-1),
            lambda: spec.update(mpiImplementation="Other"),
            lambda: spec.update(sshAuthMountPath=""),
            lambda: spec.setdefault("runPolicy", {}).update(cleanPodPolicy="Sometimes"),
            lambda: spec.setdefault("runPolicy", {}).update(backoffLimit=-1, ttlSecondsAfterFinished=-2),
            lambda: roles["Launcher"].update(replicas=2),
            lambda: roles["Launcher"].update(restartPolicy=self.one("Always", "ExitCode", "Sometimes")),
            lambda: roles.get("Worker", {}).update(restartPolicy=self.one("Always", "ExitCode")),
            lambda: spec.setdefault("runPolicy", {}).update(activeDeadlineSeconds=-1),
            lambda: spec.setdefault("runPolicy", {}).update(managedBy="example.org/other"),
            lambda: spec.setdefault("runPolicy", {}).update(schedulingPolicy={"minAvailable": self.one(0, "two")}),
            lambda: spec.update(launcherCreationPolicy=self.one("", 3)),
            lambda: spec.update(other=1),
            lambda: roles.pop("Launcher"),
            lambda: roles.update(Worker={**self.role("Worker", 1), "replicas": self.one(0, None)}),
            lambda: roles["Launcher"]["template"]["spec"].update(containers=[]),
            lambda: roles.update(Other=self.role("Worker", 1)),
            lambda: job["metadata"].update(name=self.one("1job", "a.b", "Upper", "j" * 55, "j" * 64)),
        ]
        for fault in self.rng.sample(faults, self.one(1, 1, 2)):
            if "Launcher" in roles:
                fault()

    def role(self, kind: str, replicas: int | None) -> dict:
        launcher = kind == "Launcher"
        return without_none(
            replicas=replicas,
            # a launcher that is started again in place is its kubelet's business; of a worker this says nothing
            restartPolicy=self.one(None, "Never", "OnFailure"),
            template=without_none(
                metadata=self.maybe(0.3, lambda: without_none(
                    labels=self.maybe(0.7, {"pod": "1", "training.kubeflow.org/job-role": "other"}), annotations=self.maybe(0.5, {"pod": "2"}))),
                spec=without_none(
                    containers=[self.container("main", launcher), *([self.container("side", False)] if self.rng.random() < 0.2 else [])],
                    initContainers=self.maybe(0.15, lambda: [self.container("early", False)]),
                    restartPolicy=self.maybe(0.1, lambda: self.one("Never", "OnFailure")),
                    hostNetwork=self.maybe(0.1, True),
                    nodeSelector=self.maybe(0.15, {"zone": "z"}),
                    tolerations=self.maybe(0.15, [{"key": "gpu", "operator": "Exists"}]),
                    schedulerName=self.maybe(0.1, "mine"),
                    dnsConfig=self.maybe(0.1, {"searches": ["example.net"]}),
                    priorityClassName=self.maybe(0.1, "system-cluster-critical"),
                    terminationGracePeriodSeconds=self.maybe(0.1, 5),
                    volumes=self.maybe(0.2, [{"name": "scratch", "emptyDir": {}}]),
                    securityContext=self.maybe(0.15, {"runAsUser": 1000}),
                ),
            ),
        )  # fmt: skip

    def container(self, name: str, launcher: bool) -> dict:
        quantity = lambda: without_none(**{
            "cpu": self.maybe(0.7, lambda: self.one("1", "500m", "2")), "memory": self.maybe(0.6, lambda: self.one("1Gi", "512Mi")),
            "nvidia.com/gpu": None if launcher else self.maybe(0.3, lambda: self.one("1", "2"))})  # fmt: skip

        def resources() -> dict:
            limits = quantity()
            # what is requested is not above what is allowed
            requests = {name: limits.get(name, value) for name, value in quantity().items() if "/" not in name or name in limits}
            return without_none(limits=limits or None, requests=self.maybe(0.6, requests) or None)

        return without_none(
            name=name, image=f"{name}:1", command=["mpirun", "train"] if launcher else self.maybe(0.3, ["sleep"]),
            args=self.maybe(0.2, ["-v"]),
            env=self.maybe(0.4, lambda: [{"name": self.one("A", "OMPI_MCA_x", "K_MPI_JOB_ROLE"), "value": "v"}]),
            resources=self.maybe(0.5, resources),
        )  # fmt: skip

    def scheduling(self) -> dict:
        return without_none(
            minAvailable=self.maybe(0.4, lambda: self.rng.randint(1, 3)), queue=self.maybe(0.4, "wide"),
            minResources=self.maybe(0.3, {"cpu": "3", "memory": "2Gi"}), priorityClass=self.maybe(0.3, "system-cluster-critical"),
            scheduleTimeoutSeconds=self.maybe(0.3, 60))  # fmt: skip

    # -- what happens to it

    def life(self) -> list:
        """Its end, and what comes before."""
        suspend, resume = ({"spec": {"runPolicy": {"suspend": value}}} for value in (True, False))
        run = ["ready", "launcher runs"]
        self.begins_suspended = self.rng.random() < 0.2
        steps: list = []
        if self.begins_suspended:
            # Kueue changes the templates before it resumes
            steps += self.one([], [], [self.schedules()])
            steps += [resume] if self.rng.random() < 0.9 else []
        elif self.rng.random() < 0.06:
            steps += [suspend, resume]
        ready = self.one("ready", "ready", "unready")
        workers = self.one([], ["first " + ready]) + [ready]
        if self.waits and ready == "unready" and self.rng.random() < 0.7:
            workers.append("ready")
        launcher = ["launcher runs"] if self.rng.random() < 0.9 else []
        steps += launcher + workers if launcher and not self.waits and self.rng.random() < 0.2 else workers + launcher
        happens = self.one(
            [], [], [suspend, resume, *run], [suspend, resume, *run], [suspend], [suspend, self.schedules(), resume, *run],
            ["worker deleted", "ready"], ["worker fails"], ["worker succeeds"], ["worker evicted"], ["worker evicted", suspend, resume, *run],
            ["worker fails", "worker deleted", "ready"], ["worker relabelled"], ["fails once", *run], ["launcher evicted"],
            self.repairs(), self.repairs(), self.status(), self.changes(), self.changes(), self.changes())  # fmt: skip
        if self.workers:
            scale = lambda: self.replicas(self.rng.randint(1, 5))
            happens += self.one([], [], [], [scale(), "ready"], [scale(), "ready", scale()], [scale(), "worker relabelled", scale()])
        steps += happens
        if happens[-1:] == [suspend]:
            return steps + self.one([], ["deleted"])
        ends = [["succeeds"], ["succeeds"], [], ["succeeds", "deleted"], ["deleted"], ["deadline passes"], ["succeeds", "launcher expires"],
                ["succeeds", suspend], ["succeeds", self.replicas(5)], ["succeeds", *self.status()],
                ["succeeds", {"spec": {"runPolicy": {"cleanPodPolicy": self.one("All", "Running")}}}],
                ["deleted foreground", "made again"], ["deleted orphan", "made again"], ["worker fails", "succeeds"]]  # fmt: skip
        if "fails once" not in steps:
            ends += [["fails"]] * 2
        return steps + self.one(*ends)

    def replicas(self, count: int) -> dict:
        return {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}} if self.workers else {"metadata": {"labels": {"count": str(count)}}}

    def schedules(self) -> dict:
        """What Kueue writes into a suspended job."""
        template = lambda: {"template": without_none(
            metadata=self.maybe(0.5, lambda: {"labels": {"admitted": "1"}, "annotations": {"flavor": "a"}}),
            spec=self.one({"nodeSelector": {"flavor": "spot"}}, {"nodeSelector": {"zone": None, "flavor": "x"}, "tolerations": [{"operator": "Exists"}]},
                          {"schedulingGates": [{"name": "example.org/topology"}]}, {"tolerations": None}))}  # fmt: skip
        return {"spec": {"mpiReplicaSpecs": without_none(Launcher=template(), Worker=template() if self.workers else None)}}

    def repairs(self) -> list:
        """What is done to the children by hand."""
        words = ["config deleted", "config changed", "service changed", "service deleted", "secret emptied", "secret deleted", "secret widened"]
        return [self.one(*words, *(["group deleted", "group changed"] * 2 if self.gang else []))]

    def status(self) -> list:
        """What others write into its status."""
        said = {"type": "Succeeded", "status": "True", "reason": "ByHand", "message": "so be it"}
        return self.one(
            [{"status": {"conditions": None, "replicaStatuses": None, "startTime": None}}],
            [{"status": {"replicaStatuses": {"Worker": {"active": 7, "selector": "a=b"}}, "lastReconcileTime": "2024-01-01T00:00:00Z"}}],
            [{"status": {"completionTime": "2024-01-01T00:00:00Z", "conditions": [said]}}],
            [{"status": {"conditions": [said]}}], [{"status": {"startTime": None}}])  # fmt: skip

    def changes(self) -> list:
        """What is changed in it while it lives."""
        some = [
            [{"spec": {"slotsPerWorker": self.rng.randint(1, 9)}}],
            [{"spec": {"runLauncherAsWorker": not self.as_worker}}],
            [{"spec": {"mpiImplementation": self.one("OpenMPI", "Intel", "MPICH")}}],
            [{"spec": {"launcherCreationPolicy": self.one("AtStartup", "WaitForWorkersReady")}}],
            [{"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}, "worker fails"],
            [{"spec": {"slotsPerWorker": -1}}, "worker deleted", {"spec": {"slotsPerWorker": 2}}, "ready"],
            [{"metadata": {"labels": {"more": "1"}, "annotations": {"more": "2"}}}],
        ]
        if self.workers:
            some += [
                [{"spec": {"mpiReplicaSpecs": {"Worker": None}}}],
                [self.replicas(0), "worker fails", self.replicas(2), "ready"],
                [{"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"second": "1"}}}}}}}, "worker deleted", "ready"],
            ]
        return self.one(*some)
