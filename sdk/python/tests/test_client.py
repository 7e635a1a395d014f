"""Jobs against a server, and which server that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from server import Server, conditions, pod, status

from openshift_ai_sdk.training import (
    MPIJob,
    MPIJobExistsError,
    MPIJobFailedError,
    MPIJobForbiddenError,
    MPIJobInvalidError,
    MPIJobNotFoundError,
    MPIJobServerError,
    MPIJobState,
    MPIJobTimeoutError,
    ResourceRequirements,
    _local,
)
from openshift_ai_sdk.training import _client as client_module
from openshift_ai_sdk.training._client import Client

CREATED = conditions(("Created", "MPIJobCreated", "MPIJob team/train is created."))
RUNNING = conditions(("Created", "MPIJobCreated", ""), ("Running", "MPIJobRunning", "it runs"))
SUCCEEDED = conditions(("Created", "MPIJobCreated", ""), ("Succeeded", "MPIJobSucceeded", "well done"))
FAILED = conditions(("Created", "MPIJobCreated", ""), ("Failed", "BackoffLimitExceeded/", "no more tries: "))


@pytest.fixture
def job(kubeconfig: Path) -> MPIJob:
    return MPIJob("train", workers=2, image="i", command="python train.py", kubeconfig=kubeconfig)


def test_the_product_note_s_snippet(server: Server, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    job = MPIJob(
        name="train",
        namespace="ml-team",
        workers=4,
        image="registry.example/team/train:1",
        command=["python", "train.py"],
        resources=ResourceRequirements(cpu=8, memory="64Gi", gpu=1),
    )
    job.create()
    server.steps = [CREATED, RUNNING, SUCCEEDED]
    server.pods, server.logs = [pod("train-launcher-x", "launcher")], {"train-launcher-x": [b"rank 0\n", b"1\n"]}
    assert str(job.get_status()) == "Created (MPIJobCreated)"
    assert job.wait_for_completion(timeout=3600, poll_interval=0).state is MPIJobState.SUCCEEDED
    assert job.get_logs() == "rank 0\n1\n"
    server.lingers = 2
    job.delete(poll_interval=0)
    assert not server.jobs
    ((query, sent),) = [(query, body) for verb, _, query, body in server.asked if verb == "POST"]
    assert sent["metadata"]["namespace"] == "ml-team"
    assert query["fieldValidation"] == ["Strict"]


def test_jobs_are_found_and_listed(kubeconfig: Path, job: MPIJob) -> None:
    job.create()
    found = MPIJob.get("train", kubeconfig=kubeconfig)
    assert (found.name, found.namespace, found.workers) == ("train", "team", 2)
    assert list(found.command) == ["mpirun", "-n", "2", "python", "train.py"]
    assert "managedFields" not in found.to_yaml()
    assert [one.name for one in MPIJob.list(kubeconfig=kubeconfig)] == ["train"]
    assert list(MPIJob.list("other", kubeconfig=kubeconfig)) == []
    assert len(MPIJob.list(all_namespaces=True, kubeconfig=kubeconfig)) == 1
    assert repr(found) == "MPIJob(name='train', namespace='team', workers=2)"
    with pytest.raises(MPIJobNotFoundError, match='"nope" not found'):
        MPIJob.get("nope", kubeconfig=kubeconfig)


def test_a_job_that_was_found_can_be_made_again(server: Server, kubeconfig: Path, job: MPIJob) -> None:
    job.create()
    found = MPIJob.get("train", kubeconfig=kubeconfig)
    found.delete(poll_interval=0)
    found.create()
    sent = server.asked[-1][3]
    assert sent["metadata"].keys() == {"name", "namespace", "annotations"}
    assert "status" not in sent


def test_a_dry_run_keeps_nothing(server: Server, job: MPIJob) -> None:
    job.create(dry_run=True)
    assert server.jobs == {}
    assert server.asked[-1][2]["dryRun"] == ["All"]


def test_suspend_resume_and_scale(server: Server, job: MPIJob) -> None:
    job.create()
    job.suspend()
    assert job.get_status().state is MPIJobState.SUSPENDED
    job.resume()
    assert job.get_status().state is MPIJobState.CREATED
    job.scale(4)
    assert job.workers == 4
    for wrong in (0, True):
        with pytest.raises(MPIJobInvalidError) as refused:
            job.scale(wrong)
        assert refused.value.field == "workers"
    assert server.jobs[("team", "train")]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4


@pytest.mark.parametrize(
    ("fault", "expected", "text"),
    [
        (status(403, "Forbidden", 'User "u" cannot create'), MPIJobForbiddenError, "cannot create"),
        (status(401, "Unauthorized", "Unauthorized"), MPIJobForbiddenError, "Unauthorized"),
        (status(409, "AlreadyExists", "it exists"), MPIJobExistsError, "it exists"),
        (status(404, "NotFound", "the server could not find the requested resource"), MPIJobServerError, "no MPIJobs"),
        (status(404, "NotFound", "namespaces not found", name="team"), MPIJobNotFoundError, "namespaces"),
        (status(500, "InternalError", "on fire"), MPIJobServerError, "on fire"),
        ((502, {}), MPIJobServerError, "Bad Gateway"),
        (status(422, "Invalid", "bad", causes=[{"field": "spec.slotsPerWorker"}]), MPIJobInvalidError, "bad"),
    ],
)
def test_refusals_are_told(
    server: Server, job: MPIJob, fault: tuple[int, dict[str, object]], expected: type[Exception], text: str
) -> None:
    server.faults = [fault]
    with pytest.raises(expected, match=text) as refused:
        job.create()
    if isinstance(refused.value, MPIJobInvalidError):
        assert refused.value.field in ("name", "spec.slotsPerWorker")
    assert server.jobs == {}


def test_a_server_that_is_not_there_is_told(server: Server, job: MPIJob) -> None:
    server.close()
    with pytest.raises(MPIJobServerError, match=r"cannot reach the API server at http://127"):
        job.create()


def test_a_failure_has_its_reason_and_last_lines(server: Server, job: MPIJob) -> None:
    job.create()
    server.steps = [CREATED, FAILED]
    server.pods = [pod("train-launcher-x", "launcher")]
    server.logs = {"train-launcher-x": [b"".join(b"line %d\n" % n for n in range(50)), b"Traceback\n"]}
    with pytest.raises(MPIJobFailedError, match="no more tries") as failed:
        job.wait_for_completion(poll_interval=0)
    assert failed.value.reason == "BackoffLimitExceeded"
    assert failed.value.log_lines[-1] == "Traceback"
    assert len(failed.value.log_lines) == 20
    assert "Last lines of the launcher:" in str(failed.value)
    server.pods = []
    with pytest.raises(MPIJobFailedError) as failed:
        job.wait_for_completion()
    assert failed.value.log_lines == ()
    assert str(failed.value) == 'MPIJob "train" failed: BackoffLimitExceeded: no more tries'


def test_what_a_pod_printed_is_read_when_it_is_gone(server: Server, job: MPIJob) -> None:
    job.create()
    server.steps = [FAILED]

    def kept(name: str, role: str, *attempts: int) -> dict[str, Any]:
        runs = [{"attempt": attempt} for attempt in attempts]
        first = {"name": "first", "attempts": [{"attempt": 9}]}
        return {"pod": pod(name, role), "containers": [first, {"name": role, "attempts": runs}]}

    launchers = [kept("train-launcher-x", "launcher", 0), kept("train-launcher-y", "launcher", 0, 1)]
    server.past = {"pods": [kept("train-worker-0", "worker", 0), *launchers, kept("train-launcher-z", "launcher")]}
    server.logs = {"uid-train-launcher-y": [b"one\ntwo\n"], "uid-train-worker-0": [b"a worker\n"]}
    with pytest.raises(MPIJobFailedError) as failed:
        job.wait_for_completion()
    assert failed.value.log_lines == ("one", "two")
    query = next(query for _, path, query, _ in reversed(server.asked) if path.endswith("/mpijobs/train/log"))
    assert query == {"pod": ["uid-train-launcher-y"], "container": ["launcher"], "attempt": ["1"], "tailLines": ["20"]}
    assert (job.get_logs(), job.get_logs(worker=0)) == ("one\ntwo\n", "a worker\n")
    assert list(job.get_logs(follow=True)) == ["one", "two"]
    with pytest.raises(MPIJobNotFoundError, match="no pod of worker 1"):
        job.get_logs(worker=1)


def test_waiting_ends(server: Server, job: MPIJob) -> None:
    job.create()
    server.jobs[("team", "train")]["status"] = RUNNING
    with pytest.raises(MPIJobTimeoutError, match=r"has not ended after 0 s: it is Running \(MPIJobRunning\)"):
        job.wait_for_completion(timeout=0)
    with pytest.raises(TimeoutError):
        job.wait_for_completion(timeout=0.01, poll_interval=0)
    server.lingers = 10**9
    with pytest.raises(MPIJobTimeoutError, match="still there"):
        job.delete(timeout=0)
    job.delete(wait=False)


def test_a_server_that_comes_back_is_waited_for(server: Server, job: MPIJob) -> None:
    job.create()
    server.faults = [status(503, "ServiceUnavailable", "starting"), status(500, "InternalError", "still")]
    server.steps = [SUCCEEDED]
    assert job.wait_for_completion(timeout=None, poll_interval=0).reason == "MPIJobSucceeded"
    server.faults = [status(503, "ServiceUnavailable", "starting")]
    with pytest.raises(MPIJobTimeoutError, match="the server is away: starting"):
        job.wait_for_completion(timeout=0)


def test_a_job_that_no_operator_starts_is_told(server: Server, job: MPIJob) -> None:
    job.create()
    old = {"reason": "ValidationError", "message": "of an older one", "involvedObject": {"uid": "another"}}
    event = {"reason": "ValidationError", "message": "Found errors", "involvedObject": {"uid": "uid-train"}}
    server.events = [old, event]
    with pytest.raises(MPIJobInvalidError, match="cannot start: Found errors"):
        job.wait_for_completion()
    server.faults = [(200, server.jobs[("team", "train")]), status(403, "Forbidden", "no events for you")]
    with pytest.raises(MPIJobTimeoutError):
        job.wait_for_completion(timeout=0)


def test_logs_of_workers(server: Server, job: MPIJob) -> None:
    job.create()
    server.pods = [pod("train-worker-1", "worker", "running"), pod("train-worker-0", "worker", None)]
    server.logs = {"train-worker-1": [b'{"looks": "like JSON"}']}
    assert job.get_logs(worker=1) == '{"looks": "like JSON"}'
    assert job.get_logs(worker=0) == ""
    with pytest.raises(MPIJobInvalidError, match="workers 0 to 1"):
        job.get_logs(worker=2)
    replicas = server.jobs[("team", "train")]["spec"]["mpiReplicaSpecs"]
    replicas["Worker"]["replicas"] = 1
    with pytest.raises(MPIJobInvalidError, match="has worker 0 alone"):
        job.get_logs(worker=1)
    workers = replicas.pop("Worker")
    with pytest.raises(MPIJobInvalidError, match="has no workers"):
        job.get_logs(worker=0)
    replicas["Worker"] = workers | {"replicas": 2}
    with pytest.raises(MPIJobNotFoundError, match="no launcher pod"):
        job.get_logs()
    server.pods = []
    with pytest.raises(MPIJobNotFoundError, match="no pod of worker 1"):
        job.get_logs(worker=1)


def test_followed_logs_have_every_line_once(server: Server, job: MPIJob) -> None:
    job.create()
    server.pods = [pod("train-launcher-x", "launcher", "running")]
    server.logs = {"train-launcher-x": [b"one\ntw", b"o\nthree\n", b"four"]}
    server.breaks = 1
    server.steps = [RUNNING, RUNNING, RUNNING, SUCCEEDED]
    assert list(job.get_logs(follow=True)) == ["one", "two", "three", "four"]


def test_following_ends_with_the_job_and_tells_refusals(server: Server, job: MPIJob) -> None:
    job.create()
    lines = job.get_logs(follow=True)
    server.steps = [CREATED, SUCCEEDED]
    assert list(lines) == []
    lines = job.get_logs(follow=True)
    server.faults = [(200, server.jobs[("team", "train")]), status(403, "Forbidden", "no pods for you")]
    with pytest.raises(MPIJobForbiddenError):
        list(lines)


def test_the_namespace_is_the_context_s(kubeconfig: Path) -> None:
    assert Client(kubeconfig).namespace == "team"
    assert Client(kubeconfig, "other").namespace == "default"
    with pytest.raises(MPIJobServerError, match="no cluster is configured"):
        Client(kubeconfig, "nope")


def test_servers_are_found_in_order(kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MPIJobServerError, match="trainyard up"):
        Client()
    data = tmp_path / ".local/share/trainyard"
    data.mkdir(parents=True)
    (data / "lock").touch()
    (data / "kubeconfig").write_text(kubeconfig.read_text())
    assert Client().is_local, "the control plane of this machine, for want of a kubeconfig"
    theirs = tmp_path / ".kube/config"
    theirs.parent.mkdir()
    theirs.write_text(kubeconfig.read_text())
    assert not Client().is_local, "kubectl's own goes before it"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert _local.home() == tmp_path / "elsewhere/trainyard"
    monkeypatch.setenv("TRAINYARD_HOME", str(data))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert Client().is_local, "who names a home means it"
    monkeypatch.delenv("TRAINYARD_HOME")
    assert not Client().is_local
    monkeypatch.setenv("KUBECONFIG", str(data / "kubeconfig"))
    assert Client().is_local, "its kubeconfig is this machine's, however it was found"


def test_in_a_pod_its_own_cluster_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("mine\n")
    monkeypatch.setattr(client_module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    asked = []
    monkeypatch.setattr("kubernetes.config.load_incluster_config", lambda **settings: asked.append(settings))
    assert Client().namespace == "mine"
    assert asked


@pytest.fixture
def laptop(kubeconfig: Path, tmp_path: Path) -> Path:
    home = tmp_path / "yard"
    home.mkdir()
    (home / "lock").touch()
    (home / "kubeconfig").write_text(kubeconfig.read_text())
    return home / "kubeconfig"


def mpirun(folder: Path, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "mpirun").write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / "mpirun").chmod(0o755)


def test_a_laptop_s_job_runs_where_the_caller_is(
    server: Server, laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun(tmp_path / "bin", "mpirun (Open MPI) 4.1.4")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    MPIJob("train", workers=2, image="none", command="python train.py", kubeconfig=laptop).create()
    worker = server.jobs[("team", "train")]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert worker["workingDir"] == str(tmp_path)
    variables = {variable["name"]: variable["value"] for variable in worker["env"]}
    assert variables["PATH"].split(":")[:2] == [f"{tmp_path}/venv/bin", f"{tmp_path}/bin"]
    assert variables["VIRTUAL_ENV"] == f"{tmp_path}/venv"


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (None, "no mpirun on this machine: pip install impi-rt"),
        ("mpirun (Open MPI) 4.1.4", "is OpenMPI's; install the other .pip install impi-rt."),
        ("HYDRA build details:", "is MPICH's"),
    ],
)
def test_another_mpi_than_the_job_s_is_told(
    server: Server, laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, text: str
) -> None:
    if says:
        mpirun(tmp_path / "bin", says)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    job = MPIJob("train", workers=2, image="none", command="a", implementation="Intel", kubeconfig=laptop)
    with pytest.raises(MPIJobInvalidError, match=text) as refused:
        job.create()
    assert refused.value.field == "implementation"
    assert server.jobs == {}


def test_an_mpirun_that_says_nothing_is_left_to_the_job(
    server: Server, laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun(tmp_path / "bin", "hello")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    MPIJob("one", workers=2, image="none", command="a", kubeconfig=laptop).create()
    (tmp_path / "bin/mpirun").write_text("no program")
    MPIJob("two", workers=2, image="none", command="a", kubeconfig=laptop).create()
    MPIJob("three", workers=2, image="none", command="horovodrun a", kubeconfig=laptop).create()
    assert sorted(name for _, name in server.jobs) == ["one", "three", "two"]
