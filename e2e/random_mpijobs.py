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
    """A MPIJob and what happens to it: merge patches of it, and words that `Side.step` of the comparison knows."""

    namespace: str
    round: int
    job: dict
    steps: list[dict | str]


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
        self.workers = self.one(None, 1, 2, 2, 3, 3, 4)
        self.as_worker = self.rng.random() < 0.2
        self.waits = self.workers is not None and self.rng.random() < 0.25
        # of two steps that end a job, what comes between is chance: so one that fails is not tried again
        steps = self.life()
        policy = without_none(
            cleanPodPolicy=self.one(None, "None", "All", "Running", "Running"),
            backoffLimit=0 if "fails" in steps else self.maybe(0.5, lambda: self.one(0, 3)),
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
                annotations=self.maybe(0.2, lambda: self.one({"mine": "a b"}, {"scheduling.volcano.sh/queue-name": "q"}))),
            "spec": without_none(
                mpiImplementation=self.one(None, "OpenMPI", "Intel", "MPICH"),
                slotsPerWorker=self.maybe(0.6, lambda: self.rng.randint(0, 4)),
                runLauncherAsWorker=True if self.as_worker else self.maybe(0.2, False),
                sshAuthMountPath=self.maybe(0.3, lambda: self.one("/home/mpiuser/.ssh", "/root/.ssh", "/keys")),
                launcherCreationPolicy="WaitForWorkersReady" if self.waits else self.maybe(0.3, "AtStartup"),
                runPolicy=policy or None,
                mpiReplicaSpecs=without_none(
                    Launcher=self.role("Launcher", self.one(None, 1)),
                    Worker=None if self.workers is None else self.role("Worker", self.workers)),
            ),
        }  # fmt: skip
        if self.rng.random() < 0.12:
            self.spoil(job)
        return Case(namespace, round_, job, steps)

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
            lambda: roles["Launcher"].update(restartPolicy="Always"),
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
        self.begins_suspended = self.rng.random() < 0.2
        steps: list = [resume] if self.begins_suspended and self.rng.random() < 0.9 else []
        ready = self.one("ready", "ready", "unready")
        steps += self.one([], ["first " + ready]) + [ready]
        if self.waits and ready == "unready" and self.rng.random() < 0.7:
            steps.append("ready")
        if self.rng.random() < 0.9:
            steps.append("launcher runs")
        happens = self.one([], [], [suspend, resume, "ready", "launcher runs"], [suspend], ["worker deleted", "ready"],
                           ["worker fails"], ["worker evicted"], ["config deleted"], ["service changed"], ["secret emptied"])  # fmt: skip
        if self.workers:
            scale = lambda: {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": self.rng.randint(1, 5)}}}}
            happens += self.one([], [], [scale(), "ready"], [scale(), "ready", scale()])
        steps += happens
        if happens[-1:] == [suspend]:
            return steps + self.one([], ["deleted"])
        return steps + self.one(["succeeds"], ["succeeds"], ["fails"], [], ["succeeds", "deleted"], ["deleted"])
