"""MPIJobs of the command line, of the SDK and of examples/mpijob as processes of this machine, over its Open MPI."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
import yaml
from conftest import ROOT, Yard, stop, wait_for, write

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")

EXAMPLES = ROOT / "examples/mpijob"


def test_the_examples_hold_the_script_that_they_name() -> None:
    for name in ("openmpi", "intel", "mpich"):
        job, code = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())
        assert code["data"]["train.py"] == (ROOT / "examples/mpi-digits/train.py").read_text()
        assert (job["metadata"]["name"], code["metadata"]["name"]) == (f"digits-{name}", f"digits-{name}")


def test_the_example_trains(yard: Yard) -> None:
    pytest.importorskip("mpi4py")
    yard.kubectl("apply", "-f", str(EXAMPLES / "openmpi.yaml"))
    followed = yard.run("mpijob", "logs", "digits-openmpi", "--follow")
    assert "images on 6 ranks" in followed.stdout and "on digits-openmpi-worker-2" in followed.stdout
    assert "Succeeded" in yard.run("mpijob", "get", "digits-openmpi").stdout
    yard.run("mpijob", "delete", "digits-openmpi")


@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_the_example_trains_over_another_mpi(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = ROOT / ".venv/mpi" / name / "bin"
    if not (programs / "mpirun").exists():
        pytest.skip(f"{programs} has no mpirun: `make e2e` installs it")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yard = Yard(tmp_path / "home")
    try:
        yard.kubectl("apply", "-f", str(EXAMPLES / f"{name}.yaml"))
        followed = yard.run("mpijob", "logs", f"digits-{name}", "--follow")
        assert "images on 6 ranks" in followed.stdout and f"on digits-{name}-worker-2" in followed.stdout
        assert "Succeeded" in yard.run("mpijob", "get", f"digits-{name}").stdout
    finally:
        stop(yard)


def test_a_job_from_a_shell(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Created where its script is; followed, scaled, suspended, resumed, failed, deleted."""
    go = tmp_path / "go"
    write(tmp_path / "train.sh", f"echo from $(hostname); until test -e {go}; do sleep 0.05; done; exit 3\n")
    yard.run("mpijob", "create", "life", "--workers", "2", "--image", "none", "--command", "sh train.sh", cwd=tmp_path)
    yard.run("mpijob", "wait", "life", "--for", "running", "--timeout", "60s")
    wait_for("a rank's line", lambda: "from life-worker-1" in yard.run("mpijob", "logs", "life").stdout)
    assert yard.run("mpijob", "logs", "life", "--worker", "1").returncode == 0
    yard.run("mpijob", "suspend", "life")
    pods = ("get", "pods", "-l", "training.kubeflow.org/job-name=life", "-o", "name")
    wait_for("pods that are gone", lambda: not yard.kubectl(*pods).stdout)
    for listed, row in ((yard.run("get", "life"), ["life", "Suspended", "0/2"]), (yard.run("get"), ["mpijob/life", "Suspended", "2"])):
        assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [row], listed
    yard.run("mpijob", "scale", "life", "--workers", "3")
    yard.run("mpijob", "resume", "life")
    wait_for("three workers", lambda: yard.run("mpijob", "get", "life").stdout.split()[-2] == "3/3")
    yard.run("mpijob", "wait", "life", "--for", "running", "--timeout", "60s")
    go.touch()
    failed = yard.run("mpijob", "logs", "life", "--follow", check=False)
    assert failed.returncode == 3 and 'MPIJob "life" failed' in failed.stderr, failed
    assert yard.run("mpijob", "wait", "life", check=False).returncode == 1
    yard.run("mpijob", "delete", "life")
    assert not yard.kubectl(*pods).stdout


def role(command: list[str], replicas: int, **spec: object) -> dict[str, object]:
    return {"replicas": replicas, "template": {"spec": {**spec, "containers": [{"name": "main", "image": "none", "command": command}]}}}


def test_launchers_are_never_too_early(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Workers come late: one launcher asks to wait for them, the ssh of the other waits. Neither is started twice."""
    go = tmp_path / "go"
    late = [{"name": "late", "image": "none", "command": ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]}]
    jobs = {"asks": {"trainyard.dev/wait-for-workers": "reachable"}, "plain": {}}
    for name, asked in jobs.items():
        roles = {"Launcher": {**role(["mpirun", "-n", "2", "hostname"], 1), "restartPolicy": "Never"},
                 "Worker": role(["/usr/sbin/sshd", "-De"], 2, initContainers=late)}  # fmt: skip
        job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name, "annotations": asked},
               "spec": {"runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": roles}}  # fmt: skip
        yard.kubectl("apply", "-f", str(write(tmp_path / f"{name}.yaml", yaml.safe_dump(job))))

    def launcher(name: str) -> dict[str, object]:
        selector = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher"
        pods = yaml.safe_load(yard.kubectl("get", "pods", "-l", selector, "-o", "yaml").stdout)["items"]
        return pods[0]["status"] if pods else {}

    wait_for("a launcher that waits", lambda: "running" in (launcher("asks").get("initContainerStatuses") or [{}])[0].get("state", {}))
    assert "waiting" in launcher("asks")["containerStatuses"][0]["state"]
    wait_for("a launcher whose ssh waits", lambda: launcher("plain").get("phase") == "Running")
    go.touch()
    for name in jobs:
        yard.run("mpijob", "wait", name, "--timeout", "60s")
        # mpirun now and then adds a warning of its own
        assert {f"{name}-worker-0", f"{name}-worker-1"} <= set(yard.run("mpijob", "logs", name).stdout.split())
        yard.run("mpijob", "delete", name)


def test_a_failed_launcher_is_tried_again(yard: Yard, tmp_path: pathlib.Path) -> None:
    """`trainyard.dev/retries`: counted on the job, then made anew; `explain` says how the first attempt ended, and what comes."""
    mark = tmp_path / "mark"
    command = ["sh", "-c", f"test -e {mark} && exec mpirun -n 2 hostname; echo no mark is there; exit 3"]
    roles = {"Launcher": {**role(command, 1), "restartPolicy": "Never"}, "Worker": role(["/usr/sbin/sshd", "-De"], 2)}
    asked = {"trainyard.dev/retries": "1", "trainyard.dev/retry-backoff": "1h"}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "again", "annotations": asked},
           "spec": {"runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": roles}}  # fmt: skip
    yard.kubectl("apply", "-f", str(write(tmp_path / "again.yaml", yaml.safe_dump(job))))
    wait_for("the pause", lambda: "attempt 2 starts in" in " ".join(yard.run("explain", "mpijob/again").stdout.split()))
    told = yard.run("explain", "mpijob/again").stdout
    assert "restarting (ExitCode" in told and "no mark is there" in told
    assert "attempt 1 of 2 failed" in yard.run("mpijob", "describe", "again").stdout
    mark.touch()
    yard.kubectl("annotate", "mpijob", "again", "trainyard.dev/retry-at-")
    yard.run("mpijob", "wait", "again", "--timeout", "60s")
    assert {"again-worker-0", "again-worker-1"} <= set(yard.run("mpijob", "logs", "again").stdout.split())
    assert yard.kubectl("get", "job", "again-launcher", "-o", "jsonpath={.metadata.annotations.trainyard\\.dev/attempt}").stdout == "2"
    shown = lambda *flags: yard.run("logs", "mpijob/again", *flags)
    assert shown("--previous").stdout == shown("--attempt", "1").stdout == "no mark is there\n"
    lines = shown("--attempt", "all").stdout.splitlines()
    assert lines[0] == "[attempt 1] no mark is there" and {"[attempt 2] again-worker-0", "[attempt 2] again-worker-1"} <= set(lines)
    assert "the last of 2 attempts" in shown().stderr and "the last of" not in shown("--step", "worker-0").stderr
    wrong = yard.run("mpijob", "logs", "again", "--attempt", "3", check=False)
    assert wrong.returncode == 2 and 'MPIJob "again" has no log of an attempt 3: its attempts are 1 to 2' in wrong.stderr
    # the first attempt's Job is gone, and with it what said whose its pod was
    past = json.loads(yard.kubectl("get", "--raw", "/apis/history.trainyard.dev/v1alpha1/namespaces/default/mpijobs/again").stdout)
    launchers = [pod for pod in past["pods"] if pod["pod"]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"]
    ends = [(pod["attempt"], pod["live"], pod["containers"][-1]["attempts"][-1]["exitCode"]) for pod in launchers]
    assert ends == [(1, False, 3), (2, True, 0)]
    yard.run("mpijob", "delete", "again")


def test_a_job_that_no_operator_starts_is_told_and_not_waited_for(yard: Yard) -> None:
    """The API takes it, as upstream's does; an event says what is wrong."""
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "command": ["hostname"]}]}}}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "vain"},
           "spec": {"mpiReplicaSpecs": {"Launcher": {**role, "replicas": 2}, "Worker": role}}}  # fmt: skip
    yard.kubectl("create", "-f", "-", input=yaml.safe_dump(job))
    for words in (["wait", "vain", "--timeout", "60s"], ["logs", "vain", "--follow"], ["logs", "vain"]):
        done = yard.run("mpijob", *words, check=False)
        first = done.stderr.splitlines()[0]
        assert done.returncode == 1 and 'MPIJob "vain" cannot start: Found validation errors' in first and "must be 1" in first, done
    yard.run("mpijob", "delete", "vain")


def test_logs_of_pods_that_are_gone_are_kept(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Under OnFailure, upstream's default, a launcher's Job removes its pod at the last failure; workers go with the job's end."""
    roles = {"Launcher": role(["sh", "-c", "echo no mark is there; exit 3"], 1),
             "Worker": role(["sh", "-c", "echo $(hostname) is up; exec sleep 1000"], 2)}  # fmt: skip
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "removed"},
           "spec": {"launcherCreationPolicy": "WaitForWorkersReady", "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "All"},
                    "mpiReplicaSpecs": roles}}  # fmt: skip
    yard.kubectl("apply", "-f", str(write(tmp_path / "removed.yaml", yaml.safe_dump(job))))
    yard.run("mpijob", "wait", "removed", "--for", "failed", "--timeout", "60s")
    pods = ("get", "pods", "-l", "training.kubeflow.org/job-name=removed", "-o", "name")
    wait_for("pods that are gone", lambda: not yard.kubectl(*pods).stdout)
    for words in (["mpijob", "logs", "removed"], ["logs", "mpijob/removed"]):
        shown = yard.run(*words)
        assert shown.stdout == "no mark is there\n" and "is gone; this is what it printed last" in shown.stderr
    assert yard.run("mpijob", "logs", "removed", "--worker", "1").stdout == "removed-worker-1 is up\n"
    followed = yard.run("mpijob", "logs", "removed", "--follow", check=False)
    assert (followed.returncode, followed.stdout) == (3, "no mark is there\n"), followed
    told = yard.run("explain", "mpijob/removed").stdout
    assert "launcher ended with exit code 3; its last line: no mark is there" in " ".join(told.split())
    script = "from openshift_ai_sdk.training import MPIJob; print(MPIJob.get('removed').get_logs(), end='')"
    env = {**yard.env, "PYTHONPATH": str(ROOT / "sdk/python/src")}
    by_sdk = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert by_sdk.stdout == "no mark is there\n", by_sdk
    kept = lambda: [name for _, _, names in os.walk(yard.home / "history") for name in names if name.endswith(".log")]
    assert kept()
    yard.run("mpijob", "delete", "removed")
    wait_for("logs that go with their job", lambda: not kept())


@pytest.fixture
def five(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Yard, pathlib.Path]]:
    """A control plane whose pods find Open MPI 5 and Horovod, and the programs of both."""
    programs = ROOT / ".venv/mpi/openmpi5/bin"
    if not (programs / "horovodrun").exists():
        pytest.skip(f"{programs} has no horovodrun: `make e2e` installs it")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yard = Yard(tmp_path / "home")
    yield yard, programs
    stop(yard)


def test_open_mpi_5_enters_the_workers(five: tuple[Yard, pathlib.Path], tmp_path: pathlib.Path) -> None:
    """It passes over mpi-operator's variables: the node tells it of the hosts. Where a job takes that away, all ranks run in the
    launcher, mpirun exits with 0, and an event and `explain` say so."""
    yard, _ = five
    script = "import mpi4py.MPI as m, socket; print(m.COMM_WORLD.rank, 'of', m.COMM_WORLD.size, 'on', socket.gethostname(), flush=True)"
    jobs = {"five": ("4", []), "alone": ("1", [{"name": "PRTE_MCA_prte_default_hostfile", "value": ""}])}
    for name, (ranks, env) in jobs.items():
        command = ["mpirun", "-n", ranks, "python", "-c", script]
        roles = {"Launcher": {**role(command, 1), "restartPolicy": "Never"}, "Worker": role(["/usr/sbin/sshd", "-De"], 2)}
        roles["Launcher"]["template"]["spec"]["containers"][0]["env"] = env
        job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
               "spec": {"slotsPerWorker": 2, "runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": roles}}  # fmt: skip
        yard.kubectl("apply", "-f", str(write(tmp_path / f"{name}.yaml", yaml.safe_dump(job))))
        yard.run("mpijob", "wait", name, "--timeout", "120s")
    lines = sorted(line for line in yard.run("mpijob", "logs", "five").stdout.splitlines() if " on " in line)
    assert lines == [f"{rank} of 4 on five-worker-{rank // 2}" for rank in range(4)]
    assert "WorkersNotUsed" not in yard.run("mpijob", "describe", "five").stdout
    assert yard.run("explain", "mpijob/five", "-o", "name").stdout == "Complete\n"
    assert "on alone-launcher" in yard.run("mpijob", "logs", "alone").stdout
    wait_for("an event", lambda: "WorkersNotUsed" in yard.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").stdout)
    told = yard.run("explain", "mpijob/alone").stdout
    assert "WorkersNotUsed, TY1723" in told and "PRTE_MCA_prte_default_hostfile" in told


def test_horovod_finds_the_hosts_while_a_job_is_scaled(five: tuple[Yard, pathlib.Path], tmp_path: pathlib.Path) -> None:
    """Horovod's own HostDiscoveryScript, in the launcher, sees a scale within ten looks after the ConfigMap has it. It looks ten times a
    second at most; each look starts processes, which take what they take on a busy machine."""
    yard, programs = five
    seen = tmp_path / "seen"
    script = write(tmp_path / "discover.py", f"""
import json, time
from horovod.runner.elastic.discovery import HostDiscoveryScript

if __name__ == "__main__":  # it starts processes of its own that read this file
    discovery = HostDiscoveryScript("/etc/mpi/discover_hosts.sh", 2)
    with open({str(seen)!r}, "a") as file:
        while True:
            begun = time.time()
            print(json.dumps([begun, discovery.find_available_hosts_and_slots()]), file=file, flush=True)
            time.sleep(0.1)
""")  # fmt: skip
    roles = {"Launcher": role([str(programs / "python"), str(script)], 1), "Worker": role(["/usr/sbin/sshd", "-De"], 2)}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "elastic"}, "spec": {"mpiReplicaSpecs": roles}}
    yard.kubectl("apply", "-f", str(write(tmp_path / "elastic.yaml", yaml.safe_dump(job))))
    yard.run("mpijob", "wait", "elastic", "--for", "running", "--timeout", "60s")
    template = '--template={{printf "%q\\n" (index .data "discover_hosts.sh")}}'
    words = ["kubectl", "--kubeconfig", yard.kubeconfig, "get", "configmap", "elastic-config", "--watch", template]
    written: dict[int, float] = {}

    def read(stream: Iterable[str]) -> None:
        for line in stream:
            written[line.count("echo")] = time.time()

    def looks() -> list[tuple[float, int]]:
        """When each look began, and how many hosts it found."""
        lines = [json.loads(line) for line in seen.read_text().split("\n")[:-1]] if seen.exists() else []
        for _, hosts in lines:
            assert hosts == {f"elastic-worker-{index}.elastic.default.svc": 2 for index in range(len(hosts))}
        return [(begun, len(hosts)) for begun, hosts in lines]

    def found(count: int) -> bool:
        return count in written and looks()[-1:] != [] and looks()[-1][1] == count

    watched = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        threading.Thread(target=read, args=(watched.stdout,), daemon=True).start()
        wait_for("two hosts", lambda: found(2))
        for workers in (4, 1):
            written.pop(workers, None)
            yard.run("mpijob", "scale", "elastic", "--workers", str(workers))
            wait_for(f"{workers} hosts", lambda count=workers: found(count))
            vain = [count for begun, count in looks() if begun > written[workers] and count != workers]
            assert len(vain) < 10, f"{len(vain)} looks after {workers} hosts were written found others: {vain}"
    finally:
        watched.kill()
        watched.wait()
    yard.run("mpijob", "delete", "elastic")


def test_the_product_note_s_snippet(yard: Yard, tmp_path: pathlib.Path) -> None:
    """As written, without a kubeconfig: this machine's control plane is found."""
    pytest.importorskip("kubernetes")
    write(tmp_path / "train.py", "import socket; print('trained on', socket.gethostname(), flush=True)\n")
    write(tmp_path / "fail.py", "print('this is meant to fail', flush=True); raise SystemExit(3)\n")
    script = write(tmp_path / "snippet.py", """
from openshift_ai_sdk.training import MPIJob, MPIJobFailedError, ResourceRequirements

job = MPIJob(
    name="train",
    workers=2,
    image="registry.example/team/train:1",
    command=["python", "train.py"],
    resources=ResourceRequirements(cpu="100m", memory="64Mi"),
)
job.create()
# mpirun now and then adds a warning of its own
print(sorted(line for line in job.get_logs(follow=True) if "trained" in line))
print(job.wait_for_completion(timeout=60))
print(job.get_logs().count("trained on"), job.get_status())
job.delete()
failed = MPIJob("bad", workers=2, image="none", command=["python", "fail.py"]).create()
try:
    failed.wait_for_completion(timeout=60)
except MPIJobFailedError as error:
    print(error.reason, "this is meant to fail" in error.log_lines)
failed.delete()
""")  # fmt: skip
    data = tmp_path / "data"
    data.mkdir()
    (data / "trainyard").symlink_to(yard.home)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(data), "PYTHONPATH": str(ROOT / "sdk/python/src")}
    for name in ("TRAINYARD_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        env.pop(name, None)
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=150, env=env, cwd=tmp_path)
    assert told.stdout.splitlines() == [
        "['trained on train-worker-0', 'trained on train-worker-1']", "Succeeded (MPIJobSucceeded)",
        "2 Succeeded (MPIJobSucceeded)", "BackoffLimitExceeded True"], told.stdout + told.stderr  # fmt: skip
