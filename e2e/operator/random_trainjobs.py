"""TrainJobs and runtimes made up at random, with what is done to them afterwards: the same seed gives the same.

Only what Kubeflow Trainer 2.3.0 and we mean to treat alike is made up. What differs on purpose (COMPATIBILITY.md) or is a
matter of chance upstream is left out, each time with its reason at the place.
"""

from __future__ import annotations

import dataclasses
import random

TRAINER = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
STOCK = ["torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed", "mlx-distributed",
         "torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b"]  # fmt: skip


@dataclasses.dataclass
class Case:
    """A runtime (none where it is one of those that are installed), a TrainJob, and merge patches of the TrainJob, one
    after the other; the word "succeed" stands for the end of its pods, "fail" for the failure of one."""

    namespace: str
    runtime: dict | None
    job: dict
    steps: list[dict | str]


def make(seed: str, number: int) -> Case:
    """The case of that number."""
    return Maker(random.Random(f"{seed}/{number}"), f"case-{number}").case()


def without_none(**members) -> dict:
    return {name: value for name, value in members.items() if value is not None}


class Maker:
    def __init__(self, rng: random.Random, namespace: str):
        self.rng, self.namespace, self.framework, self.in_gang = rng, namespace, "", False

    # -- chance

    def maybe(self, chance: float, value):
        """A value (or what a function gives) with that chance, else None."""
        if self.rng.random() >= chance:
            return None
        return value() if callable(value) else value

    def one(self, *values):
        return self.rng.choice(values)

    def some(self, values: list, least: int = 0) -> list:
        """Some of the values, in any order."""
        return self.rng.sample(values, self.rng.randint(least, len(values)))

    # -- a case

    def case(self) -> Case:
        runtime = self.runtime() if self.rng.random() < 0.85 else None
        self.stock = runtime is None
        if runtime is None:
            name = self.one(*STOCK)
            self.framework = {"jax": "jax", "xgb": "xgboost", "dee": "mpi", "mlx": "mpi"}.get(name[:3], "torch")
            self.jobs = ["node"] + (["launcher"] if self.framework == "mpi" else [])
            self.initializers = name.startswith("torchtune")
            self.counted = (["nvidia.com/gpu"], []) if self.initializers else ()
            self.containers = {"node": ["node"], "launcher": ["node"]}
            # upstream cannot resume TrainJobs with claims that say nothing about retention (fixed, COMPATIBILITY.md)
            self.can_suspend = not self.initializers
            reference = {"name": name}
        else:
            self.can_suspend = True
            reference = {"name": runtime["metadata"]["name"], "kind": runtime["kind"]}
        reference = self.one(reference, reference, {"apiGroup": "trainer.kubeflow.org", **reference})
        if self.rng.random() < 0.02:
            reference = self.one({"name": "missing"}, {"name": "missing", "kind": "TrainingRuntime"},
                                 {**reference, "kind": "Other"}, {**reference, "apiGroup": "x.io"})  # fmt: skip
        job = {
            "apiVersion": TRAINER,
            "kind": "TrainJob",
            "metadata": without_none(
                name=self.name(), namespace=self.namespace,
                labels=self.maybe(0.2, {"mine": "1"}), annotations=self.maybe(0.2, {"mine": "a b"}),
            ),  # fmt: skip
            "spec": without_none(
                runtimeRef=reference,
                trainer=self.trainer(),
                initializer=self.initializer(),
                runtimePatches=self.maybe(0.4, self.patches),
                suspend=self.one(None, None, False, True) if self.can_suspend else None,
                activeDeadlineSeconds=self.maybe(0.15, lambda: self.one(3600, 100000)),
                managedBy=self.maybe(0.06, lambda: self.one(
                    "trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue", "somebody.io/else")),
            ),  # fmt: skip
        }
        return Case(self.namespace, runtime, job, self.steps(job))

    def name(self) -> str:
        if self.rng.random() < 0.05:
            # one of 63 letters is let in and too long for Jobs: which other children there are then is chance (Q-10, Q-36)
            return self.one("Upper", "1job", "job-", "a.b", "j" * 64, "a-name-of-forty-letters-that-still-fits-yes")
        return self.one("job", "train-it", "x")

    def steps(self, job: dict) -> list:
        """What is done later. A section that is added or taken away as a whole wedges both sides in their own ways."""
        steps = []
        if self.can_suspend:
            toggles = [{"spec": {"suspend": value}} for value in (True, False)]
            steps += self.one([], toggles, toggles[::-1], toggles[:1])
            if self.rng.random() < 0.3:
                steps.insert(self.rng.randint(0, len(steps)), {"spec": {"runtimePatches": self.patches()}})
        if self.rng.random() < 0.2:
            steps.append({"metadata": {"labels": {"later": "1"}}})
        if self.rng.random() < 0.3:
            changes = [{"runtimeRef": {"name": "another"}}, {"managedBy": "kueue.x-k8s.io/multikueue"}]
            if "trainer" in job["spec"]:
                changes += [{"trainer": {"image": "another:1"}}, {"trainer": {"numNodes": 7}}]
            if "activeDeadlineSeconds" in job["spec"]:
                changes.append({"activeDeadlineSeconds": 5000})
            steps.append({"spec": self.one(*changes)})
        return steps[:3] + [self.one(None, None, "succeed", "fail")]

    # -- the TrainJob

    def trainer(self) -> dict | None:
        # Flux without numbers of nodes crashes upstream (Q-26)
        if self.framework != "flux" and self.rng.random() < 0.15:
            return None
        tune = self.framework == "torch" and self.rng.random() < (0.6 if self.initializers else 0.05)
        words = [["python", "train.py"], ["torchrun", "a.py"], ["sh"], []]
        return without_none(
            image=self.maybe(0.4, "mine:1"),
            command=["tune", "run"] if tune else self.maybe(0.5, lambda: self.one(*words)),
            args=self.arguments(tune),
            env=self.variables(),
            # below zero is refused since 2.3.0 by the schema (Trainer #3809)
            # no nodes and a gang: no PodGroup may be so small, and whether the JobSet came first is chance (Q-10)
            numNodes=self.rng.randint(1, 4) if self.framework == "flux"
            else self.maybe(0.6, lambda: self.rng.randint(1 if self.in_gang else 0, 3)),
            numProcPerNode=self.maybe(0.4, lambda: self.rng.randint(1, 4)),
            resourcesPerNode=self.maybe(0.4, self.resources_per_node),
        )

    def variables(self) -> list | None:
        if self.framework == "xgboost" and self.rng.random() < 0.9:
            return None
        env = self.maybe(0.5, self.env)
        # the place of the user's own among the framework's is chance upstream (Q-10), but where they are refused
        refused = any(variable["name"].startswith("DMLC_") for variable in env or [])
        if self.framework == "mpi":
            # upstream's stay in the launcher; here they reach the ranks on other nodes
            return env if any(variable["name"].startswith("OMPI_") for variable in env or []) else None
        return env if self.framework != "xgboost" or refused else None

    def arguments(self, tune: bool) -> list | None:
        if tune:
            return self.maybe(0.7, lambda: self.some(
                ["model.lora_attn_modules=[q_proj]", "model.quantize_base=True", "model.use_dora=true", "epochs=1",
                 "output_dir=/mine", "tokenizer.path=/mine"]))  # fmt: skip
        # words with spaces are quoted for Flux here, split upstream; those that are replaced go on there (Q-27)
        words = ["--epochs", "3", "--lr=0.1", "$(A)", "a b", ""][: 3 if self.framework == "flux" else 6]
        return self.maybe(0.4, lambda: self.some(words))

    RESERVED = ["PET_NNODES", "PET_MASTER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER", "OMPI_MCA_plm_rsh_args",
                "JAX_NUM_PROCESSES", "PET_NODE_RANK"]  # fmt: skip

    def env(self, reserved: bool = True) -> list:
        names = self.some(["A", "B", "PATH", "STORAGE_URI"])
        if reserved and self.rng.random() < 0.12:
            names += self.some(self.RESERVED)
        return [{"name": name, **self.value()} for name in names]

    def value(self) -> dict:
        # a variable out of a file loses its source upstream (Q-17)
        return self.one(
            {"value": "v"}, {"value": ""}, {}, {"value": "$(A)/x"},
            {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"valueFrom": {"resourceFieldRef": {"containerName": "node", "resource": "limits.cpu", "divisor": "1m"}}},
        )  # fmt: skip

    def quantities(self, *names: str, odd: bool = True) -> dict:
        values = {"cpu": ["1", "500m", "2500m"], "memory": ["1Gi", "512Mi", "128974848"],
                  "nvidia.com/gpu": ["1", "2", "4"], "amd.com/gpu": ["1", "3"], "example.com/nic": ["1"]}  # fmt: skip
        more = {"cpu": [2, "1.5"], "memory": ["1024Mi", "2e9"], "nvidia.com/gpu": [1], "amd.com/gpu": [3]}
        return {name: self.one(*values[name], *(more.get(name, []) if odd else [])) for name in names}

    def resources(self, odd: bool = True) -> dict:
        """Requests and limits that a pod may have. Two kinds of GPU at once are counted by chance upstream (Q-23)."""
        quantities = lambda *names: self.quantities(*names, odd=odd)
        gpu = self.one([], [], ["nvidia.com/gpu"], ["amd.com/gpu"])
        limits = quantities(*self.some(["cpu", "memory", "example.com/nic"]), *gpu)
        requests = {name: value for name, value in limits.items() if "/" in name and self.rng.random() < 0.5}
        if "cpu" not in limits and self.rng.random() < 0.5:
            requests.update(quantities("cpu"))
        if "memory" not in limits and self.rng.random() < 0.5:
            requests.update(quantities("memory"))
        return {name: part for name, part in (("limits", limits), ("requests", requests)) if part}

    def resources_per_node(self) -> dict:
        # devices are counted from what the pod gets here, from the TrainJob's part upstream (Q-16): so where the runtime
        # gives processors or GPUs, the TrainJob gives the same ones
        # A TrainJob with patches is kept with its quantities in canonical form upstream, and one that was made without any
        # can then have none: its trainer section would change with the first (COMPATIBILITY.md).
        if not self.counted:
            return self.resources(odd=False)
        limits, requests = self.counted
        parts = (("limits", self.quantities(*limits, odd=False)), ("requests", self.quantities(*requests, odd=False)))
        return {name: part for name, part in parts if part}

    def initializer(self) -> dict | None:
        if self.rng.random() > (0.7 if self.initializers else 0.08):
            return None
        part = lambda: without_none(
            storageUri=self.maybe(0.7, lambda: self.one("hf://a/b", "s3://bucket/x", "", "pvc://p/x", "no-uri")
                                  if self.rng.random() < 0.3 else "hf://org/name"),
            env=self.maybe(0.4, lambda: self.env(reserved=False)),
            secretRef=self.maybe(0.3, {"name": "token"}),
        )  # fmt: skip
        return without_none(dataset=self.maybe(0.7, part), model=self.maybe(0.7, part))

    def patches(self) -> list:
        managers = ["kueue.x-k8s.io/manager", "a.io/x", "b.io/some/path"]
        if self.rng.random() < 0.06:
            managers = [self.one("plain", "/x", "a.io/", "A.io/x", "a.io/with space", "")]
        return [{"manager": manager, **self.patch()} for manager in self.some(managers, 1)]

    def patch(self) -> dict:
        # a job or container that the runtime lacks is refused here (Q-38)
        names = self.some(self.jobs)
        metadata = lambda: without_none(labels=self.maybe(0.7, {"p": "1"}), annotations=self.maybe(0.5, {"q": "2"}))
        jobs = [
            {"name": name, "template": without_none(
                metadata=self.maybe(0.3, metadata),
                spec={"template": without_none(metadata=self.maybe(0.4, metadata), spec=self.maybe(0.8, lambda: self.pod_patch(name)))},
            )}
            for name in names
        ]  # fmt: skip
        template = without_none(metadata=self.maybe(0.4, metadata), spec=self.maybe(0.9, {"replicatedJobs": jobs}))
        return {"trainingRuntimeSpec": {"template": template}}

    def pod_patch(self, job: str) -> dict:
        containers = self.some(self.containers[job])
        # only the runtimes made up here have the volume; a JobSet with a Job that is refused counts the others by chance
        mounts = 0 if self.stock else 0.2
        # a patch may not set variables of the main containers, mostly
        main = ("node", "dataset-initializer", "model-initializer")
        return without_none(
            serviceAccountName=self.maybe(0.15, "default"),
            nodeSelector=self.maybe(0.4, lambda: {self.one("zone", "pool"): self.one("a", "b")}),
            tolerations=self.maybe(0.3, lambda: [{"key": "gpu", "operator": "Exists"}]),
            terminationGracePeriodSeconds=self.maybe(0.2, 5),
            schedulingGates=self.maybe(0.1, [{"name": "kueue.x-k8s.io/admission"}]),
            imagePullSecrets=self.maybe(0.15, [{"name": "pull"}]),
            securityContext=self.maybe(0.15, {"runAsUser": 1000, "fsGroup": 7}),
            affinity=self.maybe(0.1, {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}}]}}),
            volumes=self.maybe(0.25, [{"name": "extra", "emptyDir": {}}]),
            containers=self.maybe(0.5, lambda: [
                without_none(
                    name=name,
                    env=self.maybe(0.5, lambda: self.env(reserved=False)) if name not in main or self.rng.random() < 0.05 else None,
                    securityContext=self.maybe(0.3, {"runAsNonRoot": True}),
                    volumeMounts=self.maybe(mounts, [{"name": "scratch", "mountPath": "/patched"}]),
                ) for name in containers]),
        )  # fmt: skip

    # -- the runtime

    def runtime(self) -> dict:
        self.framework = self.one("", "plain", "torch", "torch", "jax", "xgboost", "mpi", "mpi", "flux")
        self.counted, self.containers = (), {}
        self.initializers = self.rng.random() < 0.3
        namespaced = self.rng.random() < 0.7
        jobs = []
        for step in ["dataset-initializer", "model-initializer"] if self.initializers else []:
            if self.rng.random() < 0.8:
                jobs.append(self.initializer_job(step))
        trainer = "launcher" if self.framework == "mpi" else "node"
        workers = [self.trainer_job("node", labelled=trainer == "node")]
        if self.framework == "mpi":
            workers.append(self.trainer_job("launcher", labelled=True))
            if self.rng.random() < 0.1:
                workers.pop(self.rng.randint(0, 1))
        if self.rng.random() < 0.15:
            workers.append(self.job("aside", None, [self.container("aside")], volumes=[{"name": "scratch", "emptyDir": {}}]))
        jobs += workers
        self.jobs = [job["name"] for job in jobs]
        if self.rng.random() < 0.2 and len(jobs) > 1:
            jobs[-1]["dependsOn"] = [{"name": jobs[0]["name"], "status": self.one("Ready", "Complete")}]
        policy = self.policy()
        metadata = without_none(labels=self.maybe(0.3, {"from": "runtime"}), annotations=self.maybe(0.3, self.annotations))
        return {
            "apiVersion": TRAINER,
            "kind": "TrainingRuntime" if namespaced else "ClusterTrainingRuntime",
            "metadata": without_none(
                name="rt" if namespaced else f"rt-of-{self.namespace}", namespace=self.namespace if namespaced else None,
                labels=self.maybe(0.1, {"trainer.kubeflow.org/support": "deprecated"}),
            ),
            "spec": without_none(
                mlPolicy=policy,
                podGroupPolicy=self.maybe(0.3, self.gang),
                template=without_none(metadata=metadata or None, spec={"replicatedJobs": jobs, **self.jobset_settings(jobs)}),
            ),
        }  # fmt: skip

    def annotations(self) -> dict:
        return self.one({"scheduling.volcano.sh/queue-name": "q"}, {"note": "x"}, {"scheduling.volcano.sh/queue-name": ""}, {"note": "y"})

    def policy(self) -> dict | None:
        nodes = without_none(numNodes=self.maybe(0.5, lambda: self.rng.randint(1, 3)))
        source = {
            "": None,
            "plain": {},
            "torch": {"torch": self.one({}, {}, {}, {"envInjection": {"targets": [
                {"jobName": self.one("node", "node", "aside"), "containerNames": [self.one("side", "side", "early", "none")]}]}})},
            "jax": {"jax": {}},
            "xgboost": {"xgboost": {}},
            "mpi": {"mpi": without_none(
                numProcPerNode=self.maybe(0.5, lambda: self.rng.randint(0, 3) or 1),
                mpiImplementation=self.maybe(0.3, "OpenMPI"),
                sshAuthMountPath=self.maybe(0.3, "/home/user/.ssh"),
                runLauncherAsNode=self.maybe(0.5, lambda: self.one(True, False)),
            )},
            "flux": {"flux": without_none(numProcPerNode=self.maybe(0.5, 2))},
        }[self.framework]  # fmt: skip
        if source is not None and self.rng.random() < 0.02:
            source = {**source, "jax": {}, "torch": {}}
        return None if source is None else {**nodes, **source}

    def gang(self) -> dict:
        self.in_gang = True
        both = {
            "coscheduling": without_none(scheduleTimeoutSeconds=self.maybe(0.5, 100)),
            "volcano": without_none(networkTopology=self.maybe(0.5, lambda: self.one({"mode": "soft"}, {"highestTierAllowed": 3}, {}))),
        }
        return {name: both[name] for name in self.some(list(both), 1)}

    def jobset_settings(self, jobs: list) -> dict:
        names = [job["name"] for job in jobs]
        claims = [{"templates": [{"metadata": {"name": "ckpt"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
            "retentionPolicy": {"whenDeleted": self.one("Delete", "Retain")}}]  # fmt: skip
        return without_none(
            network=self.maybe(0.2, lambda: without_none(
                publishNotReadyAddresses=self.one(None, True, False), enableDNSHostnames=self.one(None, True), subdomain=self.one(None, "sub"))),
            successPolicy=self.maybe(0.2, lambda: {"operator": self.one("All", "Any"), "targetReplicatedJobs": names[-1:]}),
            failurePolicy=self.maybe(0.2, lambda: {"maxRestarts": self.rng.randint(0, 2)}),
            # in order: whether a JobSet hears of its start or of its end first is chance where all pods end at once
            startupPolicy=self.maybe(0.1, {"startupPolicyOrder": "AnyOrder"}),
            ttlSecondsAfterFinished=self.maybe(0.05, 100000),
            suspend=self.maybe(0.1, lambda: self.one(True, False)),
            # without a retention policy they are applied otherwise here, so that TrainJobs resume (COMPATIBILITY.md)
            volumeClaimPolicies=self.maybe(0.05, claims),
        )  # fmt: skip

    def job(self, name: str, ancestor: str | None, containers: list, **pod) -> dict:
        labels = {**({ANCESTOR: ancestor} if ancestor else {}), **(self.maybe(0.1, {"job": "1"}) or {})}
        metadata = without_none(labels=labels or None, annotations=self.maybe(0.1, {"job": "2"}))
        spec = without_none(
            template={
                **without_none(metadata=self.maybe(0.2, {"labels": {"pod": "1"}, "annotations": {"pod": "2"}})),
                "spec": {**without_none(
                    restartPolicy=self.one(None, None, "OnFailure", "Never"),
                    serviceAccountName=self.maybe(0.1, "default"),
                    nodeSelector=self.maybe(0.15, {"zone": "z"}),
                    tolerations=self.maybe(0.1, [{"key": "t", "operator": "Exists"}]),
                    priorityClassName=self.maybe(0.05, lambda: self.one("system-node-critical", "none-of-it")),
                    imagePullSecrets=self.maybe(0.1, [{"name": "base"}, {"name": "pull"}]),
                    terminationGracePeriodSeconds=self.maybe(0.1, 30),
                    # a strict scheduler or a RuntimeClass would have to be there
                ), **pod, "containers": containers},
            },
            backoffLimit=self.maybe(0.3, lambda: self.rng.randint(0, 3)),
            parallelism=self.maybe(0.15, lambda: self.rng.randint(1, 2)),
            completions=self.maybe(0.1, lambda: self.rng.randint(1, 2)),
        )  # fmt: skip
        self.containers[name] = [container["name"] for container in containers]
        job = {"name": name, "template": {**({"metadata": metadata} if metadata else {}), "spec": spec}}
        if self.rng.random() < 0.15:
            job["replicas"] = self.one(1, 1, 1, 2)
        return job

    def container(self, name: str) -> dict:
        return without_none(
            name=name, image=f"{name}:1", command=self.maybe(0.4, ["run", "it"]),
            args=None if self.framework == "flux" else self.maybe(0.3, ["--base"]),  # Q-27
            env=self.maybe(0.5, lambda: self.env(reserved=False)),
            # unnamed ports are overwritten by chance of their place upstream (Q-11)
            ports=self.maybe(0.2, lambda: [{"containerPort": self.one(8080, 29500), "name": self.one("web", "http")}]),
            volumeMounts=self.maybe(0.3, lambda: [{"name": "scratch", "mountPath": self.one("/scratch", "/data")}]),
            resources=self.maybe(0.35, self.resources),
            imagePullPolicy=self.maybe(0.1, "Always"),
        )  # fmt: skip

    def trainer_job(self, name: str, labelled: bool) -> dict:
        main = self.container(self.one(*["node"] * 30, "main"))
        # claims of resources are lost upstream (Q-14), so none are made up
        given = main.get("resources", {})
        if given:
            self.counted = (list(given.get("limits", {})), list(given.get("requests", {})))
            if name == "launcher":  # two jobs that are counted: the same ones in both
                main["resources"] = {}
        others = [self.container("side")] if self.rng.random() < 0.35 else []
        early = [self.container("early")] if self.rng.random() < 0.2 else []
        if early and self.rng.random() < 0.4:
            early[0]["restartPolicy"] = "Always"
        if self.framework == "flux" and self.rng.random() < 0.03:
            early.append({"name": "flux-installer", "image": "x"})
        order = self.one([main, *others], [*others, main])
        pod = {"volumes": [{"name": "scratch", "emptyDir": {}}], **({"initContainers": early} if early else {})}
        # Flux' scripts count numNodes upstream, whether or not any pods are counted by it (COMPATIBILITY.md)
        labelled = labelled and (self.framework == "flux" or self.rng.random() < 0.95)
        return self.job(name, "trainer" if labelled else None, order, **pod)

    def initializer_job(self, step: str) -> dict:
        container = self.container(step if self.rng.random() < 0.95 else "main")
        if self.rng.random() < 0.93:
            container["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]
        volumes = [{"name": "initializer", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}]
        return self.job(step, step if self.rng.random() < 0.95 else None, [container], volumes=volumes)
