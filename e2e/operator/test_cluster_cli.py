"""The command line on a cluster: which server it talks to, and scripts and folders that go to pods by a ConfigMap.

To the embedded server a kubeconfig outside its home is a cluster's: nothing of this machine is assumed, and pods really run.
On real Kubernetes there is no kubelet: what it would say is written into the pods' status.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from cluster import Cluster, Operator, running, url
from conftest import BINARY, ROOT, Yard, plain_runtime, wait_for

EXAMPLE = ROOT / "examples/torch-digits/train.py"
WITHOUT = ("KUBECONFIG", "TRAINYARD_HOME")


class User:
    """Somebody with a kubeconfig, and a home directory without anything of Trainyard's."""

    def __init__(self, folder: pathlib.Path, kubeconfig: pathlib.Path | None = None):
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if k not in WITHOUT}
        self.env |= {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
        if kubeconfig:
            self.env["KUBECONFIG"] = str(kubeconfig)

    def run(self, *words: str, code: int = 0, timeout: float = 180, **options) -> subprocess.CompletedProcess:
        options.setdefault("cwd", self.folder)
        done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=timeout, env=self.env, **options)
        assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def spawn(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env, cwd=self.folder)  # fmt: skip

    def write(self, path: str, content: str | bytes) -> pathlib.Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file


@pytest.fixture
def user(yard: Yard, plain: str, tmp_path: pathlib.Path) -> User:
    kubeconfig = tmp_path / "elsewhere.yaml"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(pathlib.Path(yard.kubeconfig).read_text())
    return User(tmp_path, kubeconfig)


def config_maps(yard: Yard, *flags: str) -> list[dict]:
    """Those that `run` made."""
    found = yard.kubectl("get", "configmaps", "-l", "app.kubernetes.io/managed-by=trainyard", "-o", "json", *flags)
    return json.loads(found.stdout)["items"]


def test_a_script_goes_to_the_pods_and_with_the_job(yard: Yard, user: User):
    user.write("solo.py", "import os, sys\nprint(__file__, sys.argv[1:], os.environ['COLOUR'], 'XDG_DATA_HOME' in os.environ)\n")
    done = user.run("run", "--runtime", "plain", "--name", "solo", "--nodes", "2", "-e", "COLOUR=blue", "solo.py", "--lr", "1")
    for rank in range(2):
        assert f"[rank {rank}] /mnt/trainyard/solo.py ['--lr', '1'] blue" in done.stdout
    assert "sent 1 file, " in done.stderr and "(context trainyard)" in done.stderr
    (files,) = [item for item in config_maps(yard) if item["metadata"]["name"].startswith("solo-code-")]
    job = yard.job("solo")
    (owner,) = files["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("TrainJob", job["metadata"]["uid"])
    assert files["immutable"] is True and "COLOUR" in files["data"]["solo.py"]
    assert "trainyard.dev/directory" not in job["metadata"]["annotations"], "nothing of this machine"
    user.run("delete", "solo")
    wait_for("its ConfigMap to go with it", lambda: not [i for i in config_maps(yard) if i["metadata"]["name"].startswith("solo-")])


def test_a_folder_goes_with_all_that_it_needs(user: User):
    user.write("src/main.py", """
import os, pathlib, sys
from pkg.deep import value
print(os.getcwd(), value.VALUE, pathlib.Path("data.txt").read_text().strip(), pathlib.Path("weights.bin").read_bytes())
print(sorted(os.path.join(folder, name)[2:] for folder, _, names in os.walk(".", followlinks=True) for name in names
             if "/.." not in folder))
print(os.popen("./run me.sh").read() if False else os.popen("'./run me.sh'").read().strip())
try:
    pathlib.Path("out").write_text("x")
except OSError as error:
    print(error.strerror)
""")
    user.write("src/pkg/deep/value.py", "VALUE = 41\n")
    user.write("src/data.txt", "from the folder\n")
    user.write("src/weights.bin", b"\xff\x00\xfe")
    user.write("src/run me.sh", "#!/bin/sh\necho executable\n").chmod(0o755)
    for ignored in [".git/HEAD", "pkg/__pycache__/x.pyc", ".venv/bin/python", "env/pyvenv.cfg"]:
        user.write(f"src/{ignored}", "no")
    done = user.run("run", "--runtime", "plain", "src")
    assert "[rank 0] /mnt/trainyard 41 from the folder b'\\xff\\x00\\xfe'" in done.stdout
    assert "[rank 0] ['data.txt', 'main.py', 'pkg/deep/value.py', 'run me.sh', 'weights.bin']" in done.stdout
    assert "[rank 0] executable" in done.stdout and "[rank 0] Read-only file system" in done.stdout
    # the same from a folder that is named apart, with a script in it
    done = user.run("run", "--runtime", "plain", "--workdir", "src", "src/pkg/../main.py")
    assert "[rank 0] /mnt/trainyard 41" in done.stdout


def test_a_folder_runs_on_a_laptop_too(yard: Yard, plain: str, tmp_path: pathlib.Path):
    """There it runs where it lies, and can be written to."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text("import os\nprint(os.getcwd())\nopen('out', 'w').close()\n")
    before = config_maps(yard)
    for words in (["src"], ["--workdir", "src", "train.py"]):
        done = yard.run("run", "--runtime", plain, *words, cwd=tmp_path)
        assert f"[rank 0] {folder}\n" in done.stdout, done.stderr
    assert (folder / "out").exists()
    assert config_maps(yard) == before, "nothing was sent"


@pytest.mark.timeout(240)
def test_torchrun_with_a_sent_script(user: User):
    script = user.write("reduce.py", """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", int(total), "of", dist.get_world_size())
dist.destroy_process_group()
""")
    done = user.run("run", "--nodes", "2", "--nproc-per-node", "2", script, timeout=200)
    for rank in range(4):
        assert f"[rank {rank}] sum 10 of 4" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="SKIPPED FOR WANT OF OPEN MPI: nothing was sent to MPI's nodes")
def test_mpirun_with_a_sent_folder(user: User):
    """The launcher and the nodes have the same files at the same place."""
    user.write("mpi/main.py", "import os\nprint(os.environ['COLOUR'], os.getcwd(), __file__)\n")
    done = user.run("run", "--runtime", "mlx-distributed", "--nodes", "2", "-e", "COLOUR=red", "mpi", timeout=200)
    for rank in range(2):
        assert f"[rank {rank}] red /mnt/trainyard /mnt/trainyard/main.py" in done.stdout, done.stdout + done.stderr


def test_every_verb_through_a_kubeconfig(yard: Yard, user: User):
    """By --kubeconfig and --context alike, in a namespace of its own; hints lead back to it."""
    yard.kubectl("create", "namespace", "team")
    kubeconfig = user.env.pop("KUBECONFIG")
    flags = ("--kubeconfig", kubeconfig, "--context", "trainyard", "-n", "team")
    user.write("fails.py", "import sys\nprint('about to fail')\nsys.exit(7)\n")
    done = user.run("run", "--runtime", "plain", "--name", "fails", *flags, "fails.py", code=7)
    assert "[rank 0] about to fail" in done.stdout
    assert f"trainyard explain fails --kubeconfig {kubeconfig} --context trainyard -n team" in done.stderr
    assert "Failed" in user.run("get", *flags).stdout
    assert "exit code 7" in user.run("describe", "fails", *flags).stdout
    assert "about to fail" in user.run("logs", "fails", *flags).stdout
    user.run("logs", "-f", "fails", *flags, code=7)
    user.run("wait", "fails", "--for", "finished", *flags)
    assert "has reported nothing" in user.run("metrics", "fails", *flags).stderr
    assert "plain" in user.run("runtimes", *flags).stdout
    assert "no OptimizationJobs" in user.run("trials", *flags).stderr
    user.run("delete", "fails", *flags)

    user.write("long.py", "import time\nprint('started', flush=True)\ntime.sleep(600)\n")
    following = user.spawn("run", "--runtime", "plain", "--name", "long", *flags, "long.py")
    lines: list[str] = []
    wait_for("the first line", lambda: lines.append(following.stdout.readline()) or "started" in lines[-1])
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=60)
    assert following.returncode == 130 and f"trainyard resume long --kubeconfig {kubeconfig}" in errors, errors
    user.run("wait", "long", "--for", "suspended", "--timeout", "60s", *flags)
    user.run("resume", "long", *flags)
    user.run("wait", "long", "--for", "running", "--timeout", "60s", *flags)
    user.run("suspend", "long", *flags)
    user.run("delete", "long", *flags)
    user.run("get", "long", *flags, code=3)
    wait_for("nothing to be left", lambda: not config_maps(yard, "-n", "team"))


def test_which_server_is_asked(yard: Yard, user: User, tmp_path: pathlib.Path):
    """As `--help` says: flags, --home or its variable, $KUBECONFIG, what runs here, ~/.kube/config."""
    server = lambda who, *words: json.loads(who.run("doctor", "-o", "json", *words).stdout)[0]["object"]
    there = f"Server/{yard.running['server']}"
    assert server(user) == there
    # a home's own kubeconfig is the laptop's: nothing is sent
    user.write("here.py", "import os\nprint(os.getcwd())\n")
    user.env["KUBECONFIG"] = yard.kubeconfig
    assert f"[rank 0] {user.folder}" in user.run("run", "--runtime", "plain", "here.py").stdout
    del user.env["KUBECONFIG"]
    done = user.run("get", code=4)
    assert f"no control plane is running under {user.folder}/data/trainyard" in done.stderr and "--kubeconfig" in done.stderr
    user.write(".kube/config", pathlib.Path(yard.kubeconfig).read_text())
    assert server(user) == there
    assert server(user, "--home", str(yard.home)) == there
    done = user.run("get", "--home", str(tmp_path / "none"), code=4)
    assert "no control plane is running" in done.stderr


def test_wrong_input(yard: Yard, user: User):
    def told(*words: str, code: int = 2) -> str:
        return user.run(*words, code=code).stderr

    before = len(config_maps(yard))
    user.write("ok.py", "print(1)\n")
    user.write("bare/notes.txt", "x")
    user.write("two/main.py", "x")
    user.write("two/train.py", "x")
    assert "cannot read nowhere.py: there is no such file" in told("run", "nowhere.py")
    assert "bare is not a file; as a folder it should have one of __main__.py, main.py, train.py, and it has none" in told("run", "bare")
    assert "it has main.py and train.py: name the script" in told("run", "two")
    assert "ok.py is not in --workdir" in told("run", "--runtime", "plain", "--workdir", "bare", "ok.py")
    assert '--runtime none: there is no such runtime\n  see which there are: trainyard runtimes' in told("run", "--runtime", "none", "ok.py")
    assert "--env \"x\" is not NAME=VALUE" in told("run", "-e", "x", "ok.py")
    assert 'has no context "none"; it has: trainyard' in told("get", "--context", "none")
    assert 'namespaces "none" not found' in told("run", "--runtime", "plain", "-n", "none", "ok.py", code=1)
    for name in ["a.bin", "deep/b.bin"]:
        user.write(f"large/{name}", os.urandom(700 << 10))
    user.write("large/main.py", "x")
    large = told("run", "--runtime", "plain", "large")
    assert "is 1.4 MiB in 3 files" in large and "1.0 MiB" in large and "a.bin (700.0 KiB)" in large and "--image" in large
    assert "--name Not-A-Name: names are lower-case" in told("run", "--runtime", "plain", "--name", "Not-A-Name", "ok.py")
    # a job that is refused takes its files along
    unchecked = ("run", "--no-checks", "--runtime", "plain", "--name", "Not-A-Name", "--image", "x", "ok.py")
    assert "must match RFC 1035 DNS label" in told(*unchecked, code=1)
    assert len(config_maps(yard)) == before
    user.env["KUBECONFIG"] = str(user.folder / "missing.yaml")
    assert "missing.yaml" in told("get", code=1)
    user.env["KUBECONFIG"] = str(user.write("empty.yaml", "apiVersion: v1\nkind: Config\n"))
    assert "has no current context" in told("get")
    user.env["KUBECONFIG"] = str(user.write("broken.yaml", "clusters: 7\n"))
    assert "cannot read" in told("get", code=1)


@pytest.fixture
def operated(cluster: Cluster, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, str]]:
    """A real cluster with our operator, and a namespace for this test."""
    namespace = request.node.name.replace("_", "-")
    with running(Operator(cluster, tmp_path / "operator", url())):
        cluster.runtimes()
        cluster.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain-cli")))
        cluster.namespace(namespace)
        yield cluster, namespace
        cluster.kubectl("-n", namespace, "delete", "trainjobs", "--all", "--wait=false")
        wait_for("the TrainJobs to be gone", lambda: not cluster.items("-n", namespace, "trainjobs"), 120)
        cluster.kubectl("delete", "clustertrainingruntime", "plain-cli")
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def in_namespace(cluster: Cluster, namespace: str, folder: pathlib.Path) -> User:
    """A user whose kubeconfig names this namespace."""
    kubeconfig = folder / "user.yaml"
    kubeconfig.touch(mode=0o600)
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(config))
    return User(folder, kubeconfig)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def pods_become(cluster: Cluster, namespace: str, phase: str, count: int, exit_code: int = 0, lines: str = "") -> None:
    """What the kubelet would write, once there are so many pods."""
    kubectl = lambda *words, **options: cluster.kubectl("-n", namespace, *words, **options)
    pods = wait_for(f"{count} pods", lambda: (found := cluster.items("-n", namespace, "pods")) and len(found) == count and found, 120)
    for pod in pods:
        state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": exit_code, "message": lines, "finishedAt": now()}}
        container = {"name": "node", "image": "x", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}
        ready = {"type": "Ready", "status": str(phase == "Running")}
        status = {"status": {"phase": phase, "containerStatuses": [container], "conditions": [ready]}}
        kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", json.dumps(status))


def bind(cluster: Cluster, namespace: str, pod: str, node: str) -> None:
    """What the scheduler would write."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", "-f", "-", input=json.dumps(binding))


@pytest.mark.timeout(600)
def test_on_kubernetes(operated: tuple[Cluster, str], tmp_path: pathlib.Path):
    """Real API server, JobSet and Job controllers: the pods that are made have the files, and the job is followed to its end."""
    cluster, namespace = operated
    user = in_namespace(cluster, namespace, tmp_path)
    user.write("src/train.py", "from pkg import x\n")
    user.write("src/pkg/x.py", "")
    assert "plain-cli" in user.run("runtimes").stdout
    following = user.spawn("run", "--runtime", "plain-cli", "--name", "sent", "--nodes", "2", "--image", "mine:1", "--cpus", "1", "src")
    try:
        pods_become(cluster, namespace, "Running", 2)
        (files,) = [i for i in cluster.items("-n", namespace, "configmaps") if i["metadata"]["name"].startswith("sent-code-")]
        assert files["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
        for pod in cluster.items("-n", namespace, "pods"):
            (node,) = pod["spec"]["containers"]
            assert node["image"] == "mine:1" and node["resources"]["limits"]["cpu"] == "1"
            assert node["args"] == ["/mnt/trainyard", "python3", "/mnt/trainyard/train.py"]
            assert {"name": "trainyard-code", "mountPath": "/mnt/trainyard", "readOnly": True} in node["volumeMounts"]
            (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "trainyard-code"]
            assert volume["configMap"]["name"] == files["metadata"]["name"]
            assert {item["path"] for item in volume["configMap"]["items"]} == {"train.py", "pkg/x.py"}
        user.run("wait", "sent", "--for", "running", "--timeout", "120s")
        # without a node there is no log, which is said of each pod; and so is what the server says of a node that is gone
        logs = user.run("logs", "sent").stderr
        assert 'no log lines: TrainJob "sent" is running, with 2 pods' in logs and logs.count(" is on no node") == 2, logs
        bind(cluster, namespace, cluster.items("-n", namespace, "pods")[0]["metadata"]["name"], "gone")
        logs = user.run("logs", "sent", code=1).stderr
        assert logs.count("no log of pod sent-node-0-") == 1 and 'from node gone: pods "gone" not found' in logs, logs
        assert "Running" in user.run("describe", "sent").stdout
        pods_become(cluster, namespace, "Succeeded", 2)
        out, errors = following.communicate(timeout=180)
    finally:
        following.kill()
    assert following.returncode == 0, out + errors
    assert "job sent complete" in errors
    user.run("delete", "sent")
    wait_for("the ConfigMap to go", lambda: not [i for i in cluster.items("-n", namespace, "configmaps") if "code" in i["metadata"]["name"]], 120)


@pytest.mark.timeout(600)
def test_evidence_outlives_the_pods(operated: tuple[Cluster, str], tmp_path: pathlib.Path):
    """The job ends with its first failure and the script's exit code; an event says what failed once all pods are gone."""
    cluster, namespace = operated
    user = in_namespace(cluster, namespace, tmp_path)
    user.write("bad.py", "raise SystemExit(3)\n")
    following = user.spawn("run", "--runtime", "plain-cli", "--name", "bad", "bad.py")
    try:
        pods_become(cluster, namespace, "Running", 1)
        pods_become(cluster, namespace, "Failed", 1, 3, "Traceback (most recent call last):\nValueError: no\n")
        out, errors = following.communicate(timeout=120)
    finally:
        following.kill()
    assert following.returncode == 3, out + errors
    assert "Kubernetes" not in errors, "nothing is tried again"
    told = lambda: [e for e in cluster.items("-n", namespace, "events", "--field-selector", "reason=PodFailed")]
    (event,) = wait_for("the event", told)
    uid = cluster.get("-n", namespace, "trainjob", "bad")["metadata"]["uid"]
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"], event["count"]) == ("TrainJob", uid, 1)
    assert event["message"].startswith("pod bad-node-0-0-") and event["message"].endswith("exit code 3\nTraceback (most recent call last):\nValueError: no")
    cluster.kubectl("-n", namespace, "delete", "jobsets", "--all", "--cascade=foreground")
    wait_for("the pods to be gone", lambda: not cluster.items("-n", namespace, "pods"), 120)
    found = json.loads(user.run("explain", "bad", "-o", "json").stdout)
    assert found["rank"] == 0 and any("ValueError: no" in evidence["text"] for evidence in found["evidence"]), found

    # a pod that the cluster takes away is no failure of the script, and the message does not say that there were none
    user.run("run", "--runtime", "plain-cli", "--name", "evicted", "--detach", "bad.py")
    pods_become(cluster, namespace, "Running", 1)
    (pod,) = cluster.items("-n", namespace, "pods")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "The node was low on resource: memory."}
    status = {"status": {"phase": "Failed", "reason": "Evicted", "message": target["message"], "conditions": [target], "containerStatuses": []}}
    cluster.kubectl("-n", namespace, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", json.dumps(status))
    about = "reason=PodFailed,involvedObject.name=evicted"
    wait_for("the eviction to be told", lambda: cluster.items("-n", namespace, "events", "--field-selector", about))
    described = user.run("describe", "evicted")
    assert "low on resource: memory" in described.stdout and "no pods were made" not in described.stdout + described.stderr, described.stdout


@pytest.mark.timeout(600)
def test_run_where_another_controller_retries(theirs: Cluster, tmp_path: pathlib.Path):
    """Upstream's passes over our annotation: each failure is reported at once, with what is tried again and how to end it."""
    namespace = "retried"
    theirs.namespace(namespace)
    runtime = plain_runtime("plain-theirs")
    # as shipped ones are: Kubernetes' defaults hold
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"] = {"template": {"spec": {"containers": [{"name": "node", "image": "none"}]}}}
    wait_for("upstream's webhooks", lambda: theirs.kubectl("apply", "-f", "-", input=json.dumps(runtime), check=False), 180)
    user = in_namespace(theirs, namespace, tmp_path)
    user.write("bad.py", "raise SystemExit(3)\n")
    heard: list[str] = []
    following = user.spawn("run", "--runtime", "plain-theirs", "--name", "bad", "bad.py")
    listener = threading.Thread(target=lambda: heard.extend(iter(following.stderr.readline, "")))
    listener.start()
    try:
        pods_become(theirs, namespace, "Running", 1)
        (pod,) = theirs.items("-n", namespace, "pods")
        restarted = {"name": "node", "image": "x", "imageID": "", "ready": True, "restartCount": 1, "state": {"running": {}},
                     "lastState": {"terminated": {"exitCode": 3, "finishedAt": now()}}}  # fmt: skip
        theirs.kubectl("-n", namespace, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p",
                       json.dumps({"status": {"phase": "Running", "containerStatuses": [restarted]}}))  # fmt: skip
        told = "rank 0 failed: container node of pod bad-node-0-0-"
        wait_for("the failure to be told", lambda: any(line.startswith(told) for line in heard))
        (line,) = [line for line in heard if line.startswith(told)]
        assert "exit code 3. Kubernetes starts the container again, up to 6 times in all" in line, line
        hint = wait_for("the hint", lambda: [line for line in heard if "stop it: trainyard delete bad" in line])
        assert len(hint) == 1, heard
        goes_on = lambda: any(state in user.run("get").stdout for state in ("Running", "Restarting"))
        wait_for("get to say that it goes on", goes_on)
        user.run(*hint[0].strip().removeprefix("stop it: trainyard ").split())
        assert following.wait(60) != 0
    finally:
        following.kill()
        listener.join()
        theirs.kubectl("delete", "clustertrainingruntime", "plain-theirs", check=False)
        theirs.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.timeout(600)
def test_a_user_with_few_rights(operated: tuple[Cluster, str], tmp_path: pathlib.Path):
    """The error about what is forbidden comes at once, says what to do, and nothing is left behind."""
    cluster, namespace = operated
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    cluster.kubectl("-n", namespace, "create", "role", "reader", "--verb=get,list,watch", "--resource=trainjobs,trainingruntimes")
    cluster.kubectl("-n", namespace, "create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
    token = cluster.kubectl("-n", namespace, "create", "token", "reader").strip()
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    kubeconfig = tmp_path / "reader.yaml"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    user = User(tmp_path, kubeconfig)
    user.write("ok.py", "print(1)\n")
    assert f"no jobs in namespace {namespace}" in user.run("get", "-n", namespace).stderr
    # whoever has logged in may see the runtimes of the cluster
    assert "torch-distributed" in user.run("runtimes", "-n", namespace).stdout
    for words in (["get", "-n", "kube-system"], ["run", "-n", namespace, "--runtime", "plain-cli", "ok.py"]):
        errors = user.run(*words, code=1).stderr
        assert "is forbidden" in errors and "trainyard doctor" in errors, errors
    cluster.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "seen"},
        "spec": {"runtimeRef": {"name": "plain-cli"}, "suspend": True}}))  # fmt: skip
    # following needs to watch pods: said, instead of waiting for ever
    errors = user.run("logs", "-f", "seen", "-n", namespace, code=1, timeout=60).stderr
    assert "pods is forbidden" in errors, errors
    found = json.loads(user.run("doctor", "-n", namespace, "-o", "json").stdout)
    lacks = [f["message"] for f in found if f["check"] == "rights" and f["object"] == f"Namespace/{namespace}"]
    assert len(lacks) == 1 and "create, patch, delete configmaps (needed for: run)" in lacks[0], lacks
