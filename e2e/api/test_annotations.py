"""What a TrainJob asks for by annotation (docs/annotations.md): retries, time to live, conditions, gangs by stage."""

import json
import pathlib

import pytest

from conftest import Yard, wait_for

PREFIX = "trainyard.dev/"
LONG = 120


def step(name: str, ancestor: str, **members) -> dict:
    container = {"name": "node" if ancestor == "trainer" else ancestor, "image": "none", "command": ["true"]}
    return {
        "name": name, **members,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": ancestor}},
            "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        },
    }  # fmt: skip


def apply_runtime(yard: Yard, name: str, jobs: list[dict], **spec) -> None:
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}, **spec},
    }  # fmt: skip
    yard.kubectl("apply", "-f", "-", input=json.dumps(body))


@pytest.fixture(scope="module")
def runtime(yard: Yard) -> str:
    """A runtime that fails with its first pod."""
    apply_runtime(yard, "once", [step("node", "trainer")])
    return "once"


def manifest(name: str, runtime: str, script: str, spec: dict | None = None, **annotations: str) -> str:
    return json.dumps({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": name, "annotations": {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": runtime},
            "trainer": {"command": ["sh", "-c", script]}, **(spec or {}),
        },
    })  # fmt: skip


def create(yard: Yard, *args, check: bool = True, **annotations: str):
    return yard.kubectl("create", "-f", "-", input=manifest(*args, **annotations), check=check)


def conditions(job: dict) -> dict:
    return {c["type"]: c for c in job.get("status", {}).get("conditions", [])}


def ended(yard: Yard, name: str) -> dict:
    """The job once it is complete or has failed."""

    def look() -> dict | None:
        job = yard.job(name)
        return job if {"Complete", "Failed"} & conditions(job).keys() else None

    return wait_for(f"{name} to end", look, LONG)


def events(yard: Yard, name: str, reason: str) -> list[str]:
    found = json.loads(yard.kubectl("get", "events", "-o", "json").stdout)["items"]
    return [e["message"] for e in found if e["reason"] == reason and e["involvedObject"]["name"] == name]


def test_a_failed_job_is_tried_again(yard: Yard, runtime: str, tmp_path: pathlib.Path):
    tries = tmp_path / "tries"
    create(yard, "again", runtime, f"echo try >> {tries}; test $(wc -l < {tries}) -ge 3 || exit 7", retries="5", retry_backoff="1s")
    job = ended(yard, "again")
    assert list(conditions(job)) == ["Complete"], "no condition before the end: the SDK takes any for 'not running'"
    assert job["metadata"]["annotations"][PREFIX + "attempt"] == "3"
    assert len(tries.read_text().splitlines()) == 3
    jobset = json.loads(yard.kubectl("get", "jobset", "again", "-o", "json").stdout)
    assert jobset["metadata"]["annotations"][PREFIX + "attempt"] == "3"
    told = events(yard, "again", "TrainJobRetrying")
    assert len(told) == 2 and any("attempt 1 of 6 failed (FailedJobs: " in text for text in told), told
    wide = yard.run("get", "-o", "wide").stdout
    assert any("again" in line and "3/6" in line for line in wide.splitlines()), wide
    assert "Attempt:    3 of 6" in yard.run("describe", "again").stdout


def test_after_the_last_attempt_it_has_failed(yard: Yard, runtime: str, tmp_path: pathlib.Path):
    tries = tmp_path / "tries"
    create(yard, "hopeless", runtime, f"echo try >> {tries}; echo about to fail; kill -9 $$$$", retries="1", retry_backoff="0s")
    job = ended(yard, "hopeless")
    assert conditions(job)["Failed"]["reason"] == "FailedJobs"
    assert len(tries.read_text().splitlines()) == 2
    told = yard.run("describe", "hopeless").stdout
    assert "rank 0 was killed (SIGKILL)" in told and "about to fail" in told, told
    assert "container node ended with exit code 137 (SIGKILL)" in told, told


def test_a_crash_between_attempts_costs_none(yard: Yard, runtime: str, tmp_path: pathlib.Path):
    tries = tmp_path / "tries"
    create(yard, "crash", runtime, f"echo try >> {tries}; test $(wc -l < {tries}) -ge 2", retries="3", retry_backoff="1h")
    waits = wait_for("the failure to be counted", lambda: events(yard, "crash", "TrainJobRetrying"), LONG)
    assert "attempt 2 starts in 3600s" in waits[0]
    yard.kill()
    yard.up()
    told = " ".join(yard.run("describe", "crash").stdout.split())  # sentences are wrapped
    assert "attempt 1 of 4 has failed; attempt 2 starts in" in told, told
    # the user does not want to wait
    yard.kubectl("annotate", "trainjob", "crash", PREFIX + "retry-at-")
    job = ended(yard, "crash")
    assert list(conditions(job)) == ["Complete"] and job["metadata"]["annotations"][PREFIX + "attempt"] == "2"
    assert len(tries.read_text().splitlines()) == 2


def test_a_copy_starts_anew(yard: Yard, runtime: str):
    create(yard, "copy", runtime, "true", attempt="4", retry_at="2099-01-01T00:00:00Z", restarts="7", retries="1")
    job = ended(yard, "copy")
    assert job["metadata"]["annotations"] == {PREFIX + "retries": "1"}


def test_it_goes_when_its_time_is_over(yard: Yard, runtime: str):
    create(yard, "short", runtime, "true", ttl_seconds_after_finished="0")
    gone = lambda: yard.kubectl("get", "trainjob", "short", check=False).returncode != 0
    wait_for("the TrainJob to go", gone, LONG)
    left = lambda: yard.kubectl("get", "jobsets,jobs,pods,configmaps", "-o", "name").stdout.split()
    wait_for("what it made to go", lambda: not any("/short" in name for name in left()), LONG)


def test_conditions_follow_its_life(yard: Yard, runtime: str, tmp_path: pathlib.Path):
    gate = tmp_path / "gate"
    wait = f"while ! test -e {gate}; do sleep 0.1; done"
    create(yard, "life", runtime, wait, lifecycle_conditions="true")

    def state() -> str:
        """The last condition: what kubectl shows."""
        job = yard.job("life")
        return job.get("status", {}).get("conditions", [{}])[-1].get("type", "")

    wait_for("it to run", lambda: state() == "Running", LONG)
    assert "Running" in yard.kubectl("get", "trainjob", "life", "--no-headers").stdout
    yard.run("suspend", "life")
    wait_for("it to be suspended", lambda: state() == "Suspended", LONG)
    told = yard.run("describe", "life").stdout
    assert "it was suspended by" in told, told
    yard.run("resume", "life")
    wait_for("it to run again", lambda: state() == "Running", LONG)
    gate.touch()
    ended(yard, "life")
    wait_for("the end to be last", lambda: state() == "Complete", LONG)
    assert conditions(yard.job("life"))["Running"]["reason"] == "Finished"


def test_what_is_refused_is_in_the_status(yard: Yard, runtime: str):
    """JobSet refuses a name that leaves no room for those of its pods (Q-36); upstream says so in an event alone."""
    name = "x" * 60
    create(yard, name, runtime, "true", lifecycle_conditions="true")
    refused = wait_for("the refusal", lambda: conditions(yard.job(name)).get("Created"), LONG)
    assert (refused["status"], refused["reason"]) == ("False", "JobsCreationFailed")
    assert "will exceed 63 characters" in refused["message"], refused
    yard.run("delete", name)


def test_stages_are_gangs_of_their_own(yard: Yard):
    first = {"name": "dataset-initializer", "status": "Complete"}
    jobs = [step("dataset-initializer", "dataset-initializer"), step("node", "trainer", dependsOn=[first])]
    apply_runtime(yard, "staged", jobs, podGroupPolicy={"coscheduling": {}})
    create(yard, "stages", "staged", "true", {"trainer": {"command": ["true"], "numNodes": 3}}, gang="stages")
    assert list(conditions(ended(yard, "stages"))) == ["Complete"]
    groups = json.loads(yard.kubectl("get", "podgroups.scheduling.x-k8s.io", "-o", "json").stdout)["items"]
    members = {g["metadata"]["name"]: g["spec"]["minMember"] for g in groups}
    assert members == {"stages-dataset-initializer": 1, "stages-node": 3}


def test_each_failed_pod_is_an_event_about_the_job(yard: Yard, runtime: str):
    """With the exit code and the last lines; of jobs that ask for nothing there are none, as upstream has it."""
    script = "echo attempt of $HOSTNAME; exit 7"
    create(yard, "evidence", runtime, script, failure_policy="fail-fast", retries="1", retry_backoff="0s")
    create(yard, "silent", runtime, script)
    uid = ended(yard, "evidence")["metadata"]["uid"]
    assert "Failed" in conditions(ended(yard, "silent"))

    def told(name: str) -> list[dict]:
        words = ["get", "events", "--field-selector", f"reason=PodFailed,involvedObject.name={name}", "-o", "json"]
        return json.loads(yard.kubectl(*words).stdout)["items"]

    events = wait_for("both attempts to be told", lambda: len(found := told("evidence")) == 2 and found)
    for event in events:
        assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"], event["count"]) == ("TrainJob", uid, 1)
        first, *lines = event["message"].splitlines()
        assert first.startswith("pod evidence-node-0-0-") and first.endswith('(node 0): container "node" ended with exit code 7')
        assert len(lines) == 1 and lines[0].startswith("attempt of evidence-node-0-0")
    assert not told("silent")


REFUSED = {
    "retries": ("many", "must be a whole number from 0 to 1000"),
    "retry-backoff": ("10", "must be a duration of at most 24h"),
    "ttl-seconds-after-finished": ("-1", "must be a whole number from 0"),
    "lifecycle-conditions": ("yes", 'supported values: "true", "false"'),
    "gang": ("some", 'supported values: "all", "stages"'),
}


@pytest.mark.parametrize("key", REFUSED)
def test_bad_values_are_refused(yard: Yard, runtime: str, key: str):
    value, reason = REFUSED[key]
    done = create(yard, "bad", runtime, "true", check=False, **{key: value})
    assert done.returncode != 0
    assert f"metadata.annotations[{PREFIX}{key}]" in done.stderr and reason in done.stderr, done.stderr


def test_a_misspelt_key_is_warned_of(yard: Yard, runtime: str):
    done = create(yard, "typo", runtime, "true", retires="3")
    assert "Warning:" in done.stderr and "did you mean trainyard.dev/retries?" in done.stderr, done.stderr
