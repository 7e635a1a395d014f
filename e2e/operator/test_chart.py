"""Installing: the chart says what the kustomization says, both install in one go, and the image needs nothing but itself.

Helm is built by `cargo xtask helm` (Go is needed; without it these tests are skipped, loudly). `TRAINYARD_IMAGE` names an
archive of `cargo xtask image` to run the operator from; else one is made of the binary, or, where that needs libraries, a
folder with these is its root.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator

import pytest
import yaml

from cluster import ACCOUNT, MANIFESTS, NAMESPACE, Cluster, start, trainjob, xtask
from conftest import BINARY, ROOT, wait_for
from test_operator_more import CONFIGURATIONS, Replica, in_cluster

CHART = ROOT / "charts/trainyard"
RUNTIMES = {path.stem for path in (MANIFESTS / "runtimes").glob("*.yaml")}
KINDS = ["trainjobs", "trainingruntimes", "clustertrainingruntimes", "optimizationjobs"]
# What a pod sees: the image, read-only, with its service account and its configuration in it.
IN_IMAGE = """
root=$1 account=$2 config=$3; shift 3
mount --bind "$root" "$root" && mount --bind "$account" "$root/var/run/secrets/kubernetes.io/serviceaccount" &&
mount --bind "$config" "$root/etc/trainyard" && mount -o remount,bind,ro "$root" && exec chroot "$@"
"""


class Helm:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program = program
        self.env = {**os.environ, **{f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}}
        self.env.pop("KUBECONFIG", None)

    def run(self, *words: str | pathlib.Path, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, timeout=300, env=self.env)
        assert not check or done.returncode == 0, f"helm {words}: {done.stdout}\n{done.stderr}"
        return done

    def template(self, *flags: str, namespace: str = NAMESPACE) -> dict[tuple[str, str], dict]:
        """The objects of the chart by kind and name."""
        done = self.run("template", "trainyard", CHART, "--namespace", namespace, "--kube-version=1.31.0", "--skip-tests", *flags)
        return by_name(done.stdout)

    def test_objects(self) -> dict[tuple[str, str], dict]:
        """What `helm test` brings."""
        done = self.run("template", "trainyard", CHART, "--namespace", NAMESPACE, "--kube-version=1.31.0",
                        "--show-only=templates/tests/doctor.yaml")  # fmt: skip
        return by_name(done.stdout)


@pytest.fixture(scope="module")
def helms(tmp_path_factory: pytest.TempPathFactory) -> list[Helm]:
    """Helm 3 and Helm 4."""
    if shutil.which("go") is None:
        pytest.skip("SKIPPED FOR WANT OF GO: the chart was not tried with Helm")
    built = xtask("helm")
    if built.returncode != 0:
        pytest.skip(f"NOT BUILT: the chart was not tried with Helm: {built.stderr[-1000:]}")
    return [Helm(path, tmp_path_factory.mktemp("helm")) for path in built.stdout.split()]


@pytest.fixture(scope="module")
def helm(helms: list[Helm]) -> Helm:
    return helms[0]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes, and nothing else."""
    yield from start(tmp_path_factory)


def by_name(text: str) -> dict[tuple[str, str], dict]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [o for o in yaml.load_all(text, loader) if o]
    found = {(o["kind"], o["metadata"]["name"]): o for o in objects}
    assert len(found) == len(objects), "an object is there twice"
    return found


def kustomize(overlay: str) -> dict[tuple[str, str], dict]:
    done = subprocess.run(["kubectl", "kustomize", MANIFESTS / "overlays" / overlay], capture_output=True, text=True, check=True)
    found = by_name(done.stdout)
    del found["Namespace", NAMESPACE]  # Helm makes it where asked to
    return found


def plain(objects: dict[tuple[str, str], dict]) -> dict[tuple[str, str], dict]:
    """Without what only Helm has: labels of the release, the order to keep kinds, what restarts pods."""
    helms = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"}
    for o in objects.values():
        o["metadata"].get("annotations", {}).pop("helm.sh/resource-policy", None)
        o["metadata"]["labels"] = {k: v for k, v in o["metadata"].get("labels", {}).items() if k not in helms}
        for field in ("annotations", "labels"):
            if not o["metadata"].get(field, True):
                del o["metadata"][field]
        if o["kind"] == "ConfigMap":
            o["data"] = {key: yaml.safe_load(text) for key, text in o["data"].items()}
        if o["kind"] == "Deployment":
            o["spec"]["template"]["metadata"].pop("annotations", None)
            for container in o["spec"]["template"]["spec"]["containers"]:
                container.pop("imagePullPolicy", None)
    return objects


def manager(objects: dict[tuple[str, str], dict]) -> tuple[dict, dict]:
    """The Deployment's specification and its container."""
    spec = objects["Deployment", ACCOUNT]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return spec, container


@pytest.mark.timeout(600)
def test_the_chart_is_the_kustomization(helm: Helm):
    lint = helm.run("lint", "--strict", CHART)
    assert "0 chart(s) failed" in lint.stdout
    assert plain(helm.template()) == plain(kustomize("manager"))

    theirs, ours = plain(kustomize("namespaced")), plain(helm.template("--set=namespaced=true"))
    args, env = manager(theirs)[1]["args"], manager(theirs)[1].pop("env")
    assert env[0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    manager(theirs)[1]["args"] = [word.replace("$(NAMESPACE)", NAMESPACE) for word in args]
    assert ours == theirs

    assert plain(helm.template("--set=mpiJobs.enabled=true", "--set=mpiJobs.profile=openshift-ai")) == plain(kustomize("openshift"))

    elsewhere = json.dumps(list(helm.template("--set=namespaced=true", namespace="team").values()))
    assert NAMESPACE not in elsewhere, "everything is in the release's namespace"


def test_values_lay_over_the_manifests(helm: Helm):
    values = {
        "image.registry": "registry.example", "image.tag": "v9", "commonLabels.team": "ml", "manager.replicas": "1",
        "manager.config.webhook.port": "19443", "manager.config.metrics.secureServing": "false",
        "manager.config.health.healthProbeBindAddress": ":18081", "manager.config.featureGates.TrainJobStatus": "true",
        "manager.resources.requests.cpu": "100m", "manager.extraArgs[0]": "--verbose", "crds.enabled": "false",
        "runtimes.install[0]": "torch-distributed", "webhook.failurePolicy": "Ignore", "serviceMonitor.enabled": "true",
        "optimizationJobs.enabled": "true", "initializers.image": "registry.example/i:v9",
    }  # fmt: skip
    objects = helm.template(*(f"--set={name}={value}" for name, value in values.items()))
    spec, container = manager(objects)
    assert spec["replicas"] == 1 and ("PodDisruptionBudget", ACCOUNT) not in objects, "one replica may be drained"
    assert container["image"] == "registry.example/trainyard:v9"
    assert container["resources"] == {"requests": {"cpu": "100m"}}
    assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"health": 18081, "metrics": 8443, "webhook": 19443, "status-server": 10443}
    assert {"--install-runtimes=torch-distributed", "--verbose", "--feature-gates=TrainJobStatus=true"} <= set(container["args"])
    assert "--install-runtimes=all" not in container["args"]
    assert "--initializer-image=registry.example/i:v9" in container["args"]
    assert not any(kind == "CustomResourceDefinition" for kind, _ in objects)
    assert all(o["metadata"]["labels"]["team"] == "ml" for o in objects.values())
    assert all(w["failurePolicy"] == "Ignore" for kind, name in CONFIGURATIONS for o in objects.values()
               if o["metadata"]["name"] == name for w in o["webhooks"])  # fmt: skip
    assert ("ClusterRole", "kubeflow-trainer-optimization") in objects
    (endpoint,) = objects["ServiceMonitor", ACCOUNT]["spec"]["endpoints"]
    assert "tlsConfig" not in endpoint
    # the labels by which old and new replicas are told apart from other pods never change
    assert spec["selector"] == manager(kustomize("manager"))[0]["selector"]
    config = yaml.safe_load(objects["ConfigMap", "kubeflow-trainer-config"]["data"]["controller_manager_config.yaml"])
    assert config["webhook"] == {"port": 19443} and config["leaderElection"]["leaderElect"] is True

    objects = helm.template("--set=optimizationJobs.enabled=true", "--set=mpiJobs.enabled=true", "--set=manager.config.mpi.lockNamespace=elsewhere")
    assert "--controllers=trainjob,trainingruntime,clustertrainingruntime,optimizationjob,mpijob" in manager(objects)[1]["args"]
    assert not any(word.startswith("--mpi-profile") for word in manager(objects)[1]["args"])
    assert objects["Role", "kubeflow-trainer-mpi"]["metadata"]["namespace"] == "elsewhere" and ("Namespace", "elsewhere") in objects
    assert not any(name == "kubeflow-trainer-mpi-openshift" for _, name in objects)
    assert manager(objects)[0]["template"]["spec"]["securityContext"]["runAsUser"] == 65532

    objects = helm.template("--set-string=manager.config.metrics.bindAddress=0", "--set=runtimes.install=null")
    assert "metrics" not in {p["name"] for p in manager(objects)[1]["ports"]}
    assert "monitoring-port" not in {p["name"] for p in objects["Service", ACCOUNT]["spec"]["ports"]}
    assert ("ClusterRole", "kubeflow-trainer-runtimes-installer") not in objects


WRONG = [
    ("manager.config.webhook.port=70000", "/manager/config/webhook/port"),
    ("manager.config.webhok.port=1", "webhok"),
    ("manager.config.leaderElection.leaseDuration=15", "/manager/config/leaderElection/leaseDuration"),
    ("manager.config.featureGates.Nope=true", "Nope"),
    ("manager.replicas=two", "/manager/replicas"),
    ("runtimes.install[0]=torch", "/runtimes/install/0"),
    ("mpiJobs.profile=openshift", "/mpiJobs/profile"),
    ("manager.config.mpi.profile=openshift-ai", "/manager/config/mpi/profile"),
    ("webhook.failurePolicy=Maybe", "/webhook/failurePolicy"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
    ("replicas=2", "replicas"),
]


@pytest.mark.parametrize(("value", "place"), WRONG)
def test_wrong_values_are_refused(helm: Helm, value: str, place: str):
    done = helm.run("template", "trainyard", CHART, f"--set={value}", check=False)
    assert done.returncode != 0 and "don't meet the specifications of the schema" in done.stderr
    assert place in done.stderr, done.stderr


class Pod(Replica):
    """A replica as the cluster's Deployment has it: its arguments, its ConfigMap, and the image as its whole world."""

    def command(self, account: pathlib.Path, config: pathlib.Path) -> list:
        deployment = self.cluster.get("-n", NAMESPACE, "deployment", ACCOUNT)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        held = self.cluster.get("-n", NAMESPACE, "configmap", "kubeflow-trainer-config")["data"]["controller_manager_config.yaml"]
        # ports are this machine's: those that are free
        own = {k: v for k, v in yaml.safe_load(config.read_text()).items() if k in ("webhook", "statusServer", "health", "metrics")}
        mounted = config.parent / f"{self.name}-etc"
        mounted.mkdir()
        (mounted / "controller_manager_config.yaml").write_text(yaml.safe_dump({**yaml.safe_load(held), **own}))
        # a kubelet gives the files to the pod's user
        (account / "token").chmod(0o644)
        root = image(config.parent / f"{self.name}-root")
        for folder in ("var/run/secrets/kubernetes.io/serviceaccount", "etc/trainyard"):
            (root / folder).mkdir(parents=True)
        for folder in (config.parent, *config.parent.parents[:2]):
            folder.chmod(folder.stat().st_mode | 0o111)
        unshare, user = ["unshare", "-m"], ["--userspec=65532:65532"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            unshare, user = ["unshare", "-rm"], []
        return [*unshare, "sh", "-c", IN_IMAGE, "pod", root, account, mounted, *user, root, *container["command"], *container["args"]]


def image(root: pathlib.Path) -> pathlib.Path:
    """Unpacks the image into a folder."""
    root.mkdir()
    needs = subprocess.run(["ldd", BINARY], capture_output=True, text=True)
    archive = os.environ.get("TRAINYARD_IMAGE")
    if archive is None and needs.returncode == 0 and "statically linked" not in needs.stdout:
        shutil.copy(BINARY, root / "trainyard")
        for word in {word for word in needs.stdout.split() if word.startswith("/")}:
            (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, root / word[1:])
        return root
    if archive is None:
        archive = root.parent / "image.tar"
        made = xtask("image", "--binary", BINARY, "--out", archive)
        assert made.returncode == 0, made.stderr
    with tarfile.open(archive) as files:
        read = lambda name: json.load(files.extractfile(name))
        blob = lambda descriptor: "blobs/" + descriptor["digest"].replace(":", "/")
        manifest = read(blob(read("index.json")["manifests"][0]))
        assert read(blob(manifest["config"]))["config"]["User"] == "65532:65532"
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=files.extractfile(blob(layer)), mode="r:gz") as unpacked:
                unpacked.extractall(root, filter="data")
    return root


def runtimes(cluster: Cluster) -> set[str]:
    return {o["metadata"]["name"] for o in cluster.items("clustertrainingruntimes")}


def doctor(helm: Helm, cluster: Cluster, folder: pathlib.Path) -> list[dict]:
    """What the pod of `helm test` finds, with its rights."""
    objects = helm.test_objects()
    pod = objects.pop(("Pod", "trainyard-doctor"))
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects.values()))
    config = yaml.safe_load(objects["ConfigMap", "trainyard-doctor"]["data"]["kubeconfig"])
    token = cluster.kubectl("-n", NAMESPACE, "create", "token", pod["spec"]["serviceAccountName"]).strip()
    here = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]
    config["clusters"][0]["cluster"] = here
    config["users"][0]["user"] = {"token": token}
    (folder / "doctor").write_text(yaml.safe_dump(config))
    (container,) = pod["spec"]["containers"]
    words = [word.replace("/etc/trainyard/kubeconfig", str(folder / "doctor")) for word in container["args"]]
    done = subprocess.run([BINARY, *words, "-o", "json"], capture_output=True, text=True, timeout=120, env={"PATH": os.environ["PATH"]})
    assert done.returncode in (0, 5), done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_one_apply_installs_everything(helm: Helm, bare: Cluster, tmp_path: pathlib.Path):
    """On a cluster with nothing on it, at the first try; the probe names what is missing, and the runtimes come by themselves."""
    assert "trainer.kubeflow.org" not in bare.kubectl("api-versions")
    bare.kubectl("apply", "--server-side", "-k", MANIFESTS / "overlays/manager")
    with in_cluster(bare):
        # one runtime is there already, as somebody else wants it
        own = yaml.safe_load((MANIFESTS / "runtimes/torch-distributed.yaml").read_text())
        own["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] = "disabled"
        template = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        template["containers"][0]["image"] = "registry.example/torch:own"
        wait_for("the kind to be served", lambda: bare.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(own), check=False))

        pod = Pod(bare, tmp_path, "manager-0", {})
        try:
            pod.ready()
            wait_for("the Service to lead to it", pod.is_endpoint)
            wait_for("all runtimes", lambda: runtimes(bare) == RUNTIMES - {"flux-distributed", "torch-distributed-with-cache"}, 120)
            told = wait_for("what is missing to be told", lambda: (t := pod.fetch(pod.health, "/readyz")) and "[!]built-in-runtimes: torch-distributed left" in t and t)
            assert "[!]jobset: JobSet (jobset.x-k8s.io/v1alpha2) is not served" in told, told
            held = json.dumps(bare.get("clustertrainingruntime", "torch-distributed"))
            assert "registry.example/torch:own" in held, "what others made stays"
            bare.kubectl("-n", "default", "create", "-f", "-", input=yaml.safe_dump(trainjob("before-jobset")))
            found = doctor(helm, bare, tmp_path)
            assert not [f for f in found if f["severity"] == "unknown"], "it may see all that it looks at"
            assert [f for f in found if f["severity"] == "error" and "jobset" in f["message"].lower() + f["object"].lower()], found
            assert pod.process.poll() is None
            log = pod.log.read_text()
            assert "forbidden" not in log and "Read-only" not in log, log
            assert not unnamed(log), "a clean install has no errors, and each warning says of what it is"
            assert pod.replace() == 0
        finally:
            pod.end()


# What a line of the log names an object, a request or a part of the readiness probe by.
NAMES = {"object", "kind", "request", "part", "lease", "secret", "about", "job", "job.name", "webhook", "address", "collector"}


def unnamed(log: str) -> list[dict]:
    """Errors, and warnings that name nothing."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line["level"] == "INFO" for line in lines), log
    return [line for line in lines if line["level"] == "ERROR" or (line["level"] == "WARN" and not NAMES & line["fields"].keys())]


def restricted(cluster: Cluster, *templates: dict) -> None:
    """Pods of ours are admitted where the strictest Pod Security is enforced."""
    where = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(where))
    dry = lambda spec: cluster.kubectl("-n", "restricted", "create", "--dry-run=server", "-f", "-", check=False, input=json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}))  # fmt: skip
    wait_for("the namespace's service account", lambda: cluster.get("-n", "restricted", "serviceaccount", "default"))
    for template in templates:
        spec = {**template["spec"], "serviceAccountName": "default"}
        assert dry(spec)
        assert not dry({**spec, "securityContext": {}}), "it is enforced"


@pytest.mark.timeout(900)
def test_a_release_comes_changes_and_goes(helm: Helm, bare: Cluster):
    """Over the kustomization's objects or on an empty cluster; kinds and TrainJobs stay when it goes."""
    where = ["--kubeconfig", bare.kubeconfig, "--namespace", NAMESPACE]
    release = lambda *words: helm.run(*words, *where)
    release("install", "trainyard", CHART, "--create-namespace", "--take-ownership", "--set=webhook.failurePolicy=Ignore")
    assert bare.get("-n", NAMESPACE, "deployment", ACCOUNT)["spec"]["replicas"] == 2
    restricted(bare, manager(helm.template())[0]["template"], helm.test_objects()["Pod", "trainyard-doctor"])
    # no replica runs here, so this is taken unchecked
    wait_for("the kind to be served", lambda: bare.kubectl("-n", "default", "apply", "-f", "-", input=yaml.safe_dump(trainjob("kept")), check=False))
    uid = bare.get("-n", "default", "trainjob", "kept")["metadata"]["uid"]
    authority = '[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]'
    bare.kubectl("patch", *CONFIGURATIONS[0], "--type=json", "-p", authority)
    bare.kubectl("-n", NAMESPACE, "patch", "secret", "kubeflow-trainer-webhook-cert", "-p", '{"data": {"tls.crt": "eA=="}}')

    release("upgrade", "trainyard", CHART, "--set=manager.replicas=3", "--set=manager.config.clientConnection.qps=100")
    assert bare.get("-n", NAMESPACE, "deployment", ACCOUNT)["spec"]["replicas"] == 3
    config = bare.get("-n", NAMESPACE, "configmap", "kubeflow-trainer-config")["data"]["controller_manager_config.yaml"]
    assert yaml.safe_load(config)["clientConnection"] == {"qps": 100}
    (webhook,) = bare.get(*CONFIGURATIONS[0])["webhooks"]
    assert (webhook["clientConfig"]["caBundle"], webhook["failurePolicy"]) == ("eA==", "Fail"), "what the operator wrote stays"
    assert bare.secret()["tls.crt"] == "eA=="
    release("rollback", "trainyard", "1")
    assert bare.get("-n", NAMESPACE, "deployment", ACCOUNT)["spec"]["replicas"] == 2

    gone = release("uninstall", "trainyard")
    assert "kept due to the resource policy" in gone.stdout
    for kind, name in CONFIGURATIONS:
        assert not bare.get(kind, name), "nobody is asked who is not there"
    assert {f"{kind}.trainer.kubeflow.org" for kind in KINDS} <= {o["metadata"]["name"] for o in bare.items("customresourcedefinitions")}
    assert bare.get("-n", "default", "trainjob", "kept")["metadata"]["uid"] == uid
    # and comes again, for the kinds are known as its own
    release("install", "trainyard", CHART)
    release("uninstall", "trainyard")


def played(cluster: Cluster, done: threading.Event, phase: str) -> None:
    """The doctor's pod ends, as a kubelet would have it."""
    status = {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}}
    words = ["-n", NAMESPACE, "patch", "pod", "trainyard-doctor", "--subresource=status", "-p", json.dumps(status)]
    while not done.wait(0.3):
        cluster.kubectl(*words, check=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [3, 4])
def test_nothing_of_a_release_stays(helms: list[Helm], bare: Cluster, version: int):
    """With both Helms: over what kubectl installed, and `helm test` leaves nothing behind, however it ends."""
    helm = helms[version - 3]
    assert f"v{version}." in helm.run("version").stdout
    where = ["--kubeconfig", bare.kubeconfig, "--namespace", NAMESPACE]
    over = ["--take-ownership", "--force-conflicts"] if version == 4 else ["--take-ownership"]
    bare.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "overlays/manager")
    image = {"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "registry.example/mine:1"}]}}}}
    bare.kubectl("-n", NAMESPACE, "patch", "deployment", ACCOUNT, "--field-manager=somebody", "-p", json.dumps(image))
    helm.run("install", "trainyard", CHART, *over, *where)
    (container,) = bare.get("-n", NAMESPACE, "deployment", ACCOUNT)["spec"]["template"]["spec"]["containers"]
    assert container["image"] != "registry.example/mine:1", "what others wrote is the release's now"
    # what the doctor proposes for a release
    helm.run("upgrade", "trainyard", CHART, "--reuse-values", *where)
    kinds = "serviceaccounts,configmaps,pods,clusterroles,clusterrolebindings"
    for phase in ("Succeeded", "Failed"):
        done = threading.Event()
        kubelet = threading.Thread(target=played, args=(bare, done, phase))
        kubelet.start()
        try:
            ended = helm.run("test", "trainyard", "--timeout=2m", *where, check=False)
        finally:
            done.set()
            kubelet.join()
        assert (ended.returncode == 0) == (phase == "Succeeded"), ended.stdout + ended.stderr
        left = [o["kind"] for o in bare.items("-n", NAMESPACE, kinds) if o["metadata"]["name"] == "trainyard-doctor"]
        assert not left, left
    helm.run("uninstall", "trainyard", *where)
    kinds += ",deployments,services,roles,rolebindings,secrets,poddisruptionbudgets,validatingwebhookconfigurations,mutatingwebhookconfigurations"
    left = [f"{o['kind']}/{o['metadata']['name']}" for o in bare.items("-n", NAMESPACE, kinds)
            if "trainyard" in json.dumps(o["metadata"].get("labels", {})) or o["metadata"]["name"].startswith("kubeflow-trainer")]  # fmt: skip
    assert not left, left


@pytest.mark.timeout(600)
def test_over_upstreams_release(helm: Helm, bare: Cluster, tmp_path: pathlib.Path):
    """docs/cluster.md, "Swap": upstream's chart is given up without its kinds, and nothing of its Deployment stays."""
    found = subprocess.run(["go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/trainer/v2"], cwd=ROOT / "e2e/kubernetes",
                           env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=True)  # fmt: skip
    theirs = tmp_path / "kubeflow-trainer"
    shutil.copytree(pathlib.Path(found.stdout.strip()) / "charts/kubeflow-trainer", theirs, copy_function=shutil.copyfile)
    theirs.chmod(0o755)
    chart = yaml.safe_load((theirs / "Chart.yaml").read_text())
    del chart["dependencies"]  # JobSet's chart, which would have to be fetched
    (theirs / "Chart.yaml").unlink()
    (theirs / "Chart.yaml").write_text(yaml.safe_dump(chart))
    where = ["--kubeconfig", bare.kubeconfig, "--namespace", NAMESPACE, "--take-ownership"]
    helm.run("install", "kubeflow-trainer", theirs, "--create-namespace", "--set=webhook.failurePolicy=Ignore", *where)
    wait_for("the kind to be served", lambda: bare.kubectl("-n", "default", "apply", "-f", "-", input=yaml.safe_dump(trainjob("theirs")), check=False))
    uid = bare.get("-n", "default", "trainjob", "theirs")["metadata"]["uid"]

    bare.kubectl("-n", NAMESPACE, "delete", "deployment,service", ACCOUNT)
    helm.run("install", "trainyard", CHART, *where)
    bare.kubectl("-n", NAMESPACE, "delete", "secret", "-l", "owner=helm,name=kubeflow-trainer")
    assert bare.get("-n", "default", "trainjob", "theirs")["metadata"]["uid"] == uid
    releases = json.loads(helm.run("list", "--all", "-o", "json", *where[:4]).stdout)
    assert [release["name"] for release in releases] == ["trainyard"]
    shipped = helm.template()
    assert bare.get("-n", NAMESPACE, "service", ACCOUNT)["spec"]["selector"] == shipped["Service", ACCOUNT]["spec"]["selector"]
    (container,) = bare.get("-n", NAMESPACE, "deployment", ACCOUNT)["spec"]["template"]["spec"]["containers"]
    ours = manager(shipped)[1]
    assert {field: container[field] for field in ours if field != "ports"} == {field: ours[field] for field in ours if field != "ports"} | {
        probe: container[probe] for probe in ("livenessProbe", "readinessProbe")}  # fmt: skip
    helm.run("uninstall", "trainyard", *where[:4])
