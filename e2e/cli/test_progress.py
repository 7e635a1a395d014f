"""Progress and metrics: reported by training code as the SDK and Transformers do it, seen by everybody who looks."""

import csv
import io
import json
import pathlib
import re
import ssl
import stat
import subprocess
import urllib.request
from datetime import datetime

import pytest
import yaml

from conftest import ROOT, Yard, plain_runtime, stop, wait_for

pytestmark = pytest.mark.usefixtures("plain")

# How Transformers' callback posts: urllib, the CA out of the environment, times with microseconds and an offset.
REPORTS = """
import json, os, pathlib, ssl, sys, time, urllib.error, urllib.request
from datetime import datetime, timezone

CONTEXT = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])

def post(status, url=os.environ["KUBEFLOW_TRAINER_SERVER_URL"], token=None):
    if token is None:
        token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
    body = {"trainerStatus": {"lastUpdatedTime": datetime.now(timezone.utc).isoformat(), **status}}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60, context=CONTEXT) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

def wait_for_file(name):
    for _ in range(1200):
        if os.path.exists(name):
            return
        time.sleep(0.1)
    raise SystemExit(f"{name} does not come")
"""


def start(yard: Yard, name: str, folder: pathlib.Path, code: str) -> None:
    """Starts a job of this code, in this folder."""
    (folder / f"{name}.py").write_text(code)
    yard.run("run", "--detach", "--runtime", "plain", "--name", name, f"{name}.py", cwd=folder)


def finished(yard: Yard, name: str) -> dict:
    """The job's status once it has ended; its output where it did not end well."""
    done = yard.run("wait", name, "--timeout", "180s", check=False, timeout=200)
    assert done.returncode == 0, done.stderr + yard.run("logs", name, check=False).stdout
    return yard.job(name)["status"]


def history(yard: Yard, name: str) -> list[dict]:
    return json.loads(yard.run("metrics", name, "-o", "json").stdout)["reports"]


@pytest.mark.timeout(300)
def test_what_the_sdk_reports_is_seen_everywhere(yard: Yard, tmp_path: pathlib.Path):
    pytest.importorskip("kubeflow.trainer")
    start(yard, "sdk", tmp_path, REPORTS + """
from kubeflow.trainer.backends.kubernetes.utils import update_trainjob_status
assert update_trainjob_status(progress_percent=42, estimated_remaining_seconds=75, metrics={"loss": 0.9, "accuracy": 0.25})
wait_for_file("go-on")
for _ in range(600):  # it reports once in five seconds and returns False in between
    if update_trainjob_status(progress_percent=100, metrics={"loss": 0.125, "accuracy": 0.975}):
        break
    time.sleep(0.1)
""")  # fmt: skip
    progress = ["get", "trainjob", "sdk", "-o", "jsonpath={.status.trainerStatus.progressPercentage}"]
    wait_for("the first report", lambda: yard.kubectl(*progress).stdout == "42", 120)
    told = yaml.safe_load(yard.kubectl("get", "trainjob", "sdk", "-o", "yaml").stdout)["status"]["trainerStatus"]
    assert told["estimatedRemainingSeconds"] == 75
    assert told["metrics"] == [{"name": "loss", "value": "0.9"}, {"name": "accuracy", "value": "0.25"}]
    assert re.search(r"^sdk .* 42% ", yard.run("get").stdout, re.M)
    assert "42% 75s left loss=0.9" in yard.run("describe", "sdk").stdout
    followed = yard.spawn("logs", "-f", "sdk")
    (tmp_path / "go-on").touch()
    # a job that has ended shows its last report, not one from before
    assert finished(yard, "sdk")["trainerStatus"]["progressPercentage"] == 100
    _, shown = followed.communicate(timeout=60)
    assert "[##########              ] 42%" in shown, shown

    reports = history(yard, "sdk")
    assert [report["progressPercentage"] for report in reports] == [42, 100]
    as_yaml = yaml.safe_load(yard.run("metrics", "sdk", "-o", "yaml").stdout)
    assert (as_yaml["kind"], as_yaml["metadata"]["name"], as_yaml["reports"]) == ("TrainJobHistory", "sdk", reports)
    rows = list(csv.DictReader(io.StringIO(yard.run("metrics", "sdk", "-o", "csv").stdout)))
    assert [(row["progress"], row["remaining"], row["loss"]) for row in rows] == [("42", "75", "0.9"), ("100", "", "0.125")]
    assert re.search(r"^loss +0\.125 +0\.125 +0\.9 +█▁$", yard.run("metrics", "sdk").stdout, re.M)
    assert re.search(r"^TIME +PROGRESS +REMAINING +ACCURACY$", yard.run("metrics", "sdk", "-o", "wide", "--metric", "accuracy").stdout, re.M)
    wrong = yard.run("metrics", "sdk", "--metric", "los", check=False)
    assert wrong.returncode == 2 and "its metrics: loss, accuracy" in wrong.stderr
    raw = yard.kubectl("get", "--raw", "/apis/metrics.trainyard.dev/v1alpha1/namespaces/default/trainjobs/sdk").stdout
    assert json.loads(raw)["reports"] == reports


@pytest.mark.timeout(300)
def test_many_reports_are_few_writes_and_the_last_one_stays(yard: Yard, tmp_path: pathlib.Path):
    """As Transformers' callback posts, but without its pauses, and without a 100 % at the end."""
    start(yard, "busy", tmp_path, REPORTS + """
wait_for_file("go-on")
assert post({"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "60"}]}) == 200
for step in range(1, 61):
    metrics = [{"name": "loss", "value": str(1 / step)}, {"name": "current_step", "value": str(step)}]
    assert post({"progressPercentage": step, "estimatedRemainingSeconds": 60 - step, "metrics": metrics}) == 200
""")  # fmt: skip
    path = "jsonpath={.status.trainerStatus.progressPercentage}{\"\\n\"}"
    with (tmp_path / "seen").open("w") as seen:
        watch = subprocess.Popen(
            ["kubectl", "--kubeconfig", yard.kubeconfig, "get", "trainjob", "busy", "-w", "-o", path], stdout=seen, env=yard.env
        )
        try:
            wait_for("the watch", lambda: (tmp_path / "seen").read_text())
            (tmp_path / "go-on").touch()
            status = finished(yard, "busy")
            assert status["trainerStatus"]["progressPercentage"] == 60
            assert {"name": "current_step", "value": "60"} in status["trainerStatus"]["metrics"]
            wait_for("the watch to see it", lambda: "60" in (tmp_path / "seen").read_text().split())
        finally:
            watch.kill()
            watch.wait()
    reports = history(yard, "busy")
    assert [report["progressPercentage"] for report in reports] == list(range(61)), "all are in the history"
    # a write every five seconds, and one at the end
    times = [report["lastUpdatedTime"] for report in reports]
    took = (datetime.fromisoformat(times[-1]) - datetime.fromisoformat(times[0])).total_seconds()
    seen = set((tmp_path / "seen").read_text().split())
    assert len(seen) <= 3 + took / 5, f"{sorted(seen)} in {took} s"
    (metrics,) = [line for line in yard.run("metrics", "busy").stdout.splitlines() if line.startswith("loss")]
    assert len(metrics.split()[-1]) == 32, metrics


@pytest.mark.timeout(120)
def test_explain_reads_the_whole_history(yard: Yard, tmp_path: pathlib.Path):
    """Nothing of it is in the log, and the status has the last report alone."""
    start(yard, "flat", tmp_path, REPORTS + """
for step in range(40):
    loss = str(3 - step / 10) if step < 10 else "2.3026"
    assert post({"progressPercentage": step, "metrics": [{"name": "train_loss", "value": loss}]}) == 200
wait_for_file("stop")
""")  # fmt: skip
    try:
        explained = lambda: json.loads(yard.run("explain", "flat", "-o", "json").stdout)
        wait_for("the loss to be found flat", lambda: explained()["reason"] == "LossFlat")
        wait_for("all reports", lambda: "last 30 of 40" in explained()["evidence"][0]["text"])
    finally:
        (tmp_path / "stop").touch()
        finished(yard, "flat")


@pytest.mark.timeout(180)
def test_a_token_is_for_its_own_job(yard: Yard, tmp_path: pathlib.Path):
    start(yard, "victim", tmp_path, REPORTS + "assert post({'progressPercentage': 7}) == 200\n")
    finished(yard, "victim")
    start(yard, "thief", tmp_path, REPORTS + """
other = os.environ["KUBEFLOW_TRAINER_SERVER_URL"].replace("thief", "victim")
good = {"progressPercentage": 99}
assert post(good, other) == 403, "the token of another job"
assert post(good, token="nonsense") == 403, "no token at all"
assert post({"progressPercentage": 101}) == 422, "no percentage"
assert post({"progressPercentage": 1}) == 200
# within a window, where good reports are held back, bad ones are refused all the same
assert post({"metrics": [{"name": "m", "value": "x" * 65}]}) == 422
""")  # fmt: skip
    assert finished(yard, "thief")["trainerStatus"]["progressPercentage"] == 1
    assert yard.job("victim")["status"]["trainerStatus"]["progressPercentage"] == 7
    assert len(history(yard, "victim")) == len(history(yard, "thief")) == 1
    # nobody reads another namespace's history by a name that leads there
    odd = yard.kubectl("get", "--raw", "/apis/metrics.trainyard.dev/v1alpha1/namespaces/../trainjobs/x", check=False)
    assert odd.returncode != 0


@pytest.mark.timeout(180)
def test_progress_is_taken_of_jobs_that_are_not_at_work(yard: Yard, tmp_path: pathlib.Path):
    """Q-40, as upstream has it: whose token it is counts, not whether the job has ended or somebody else runs it."""
    start(yard, "over", tmp_path, "")
    finished(yard, "over")
    spec = {"runtimeRef": {"name": "plain"}, "managedBy": "kueue.x-k8s.io/multikueue"}
    away = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "away"}, "spec": spec}
    yard.kubectl("apply", "-f", "-", input=json.dumps(away))
    server = json.loads(yard.run("status", "-o", "json").stdout)["statusServer"]
    context = ssl.create_default_context(cafile=yard.home / "pki/ca.crt")
    for name in ("over", "away"):
        path = f"trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/{name}/status"
        token = yard.kubectl("create", "token", "default", f"--audience={path}").stdout.strip()
        body = json.dumps({"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-01-01T00:00:00Z"}}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{server}/apis/{path}", data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            assert answer.status == 200
        told = lambda name=name: yard.job(name).get("status", {}).get("trainerStatus", {}).get("progressPercentage")
        wait_for(f"the progress of {name}", lambda: told() == 42)


@pytest.mark.timeout(300)
def test_a_killed_control_plane_loses_no_report(yard: Yard, tmp_path: pathlib.Path):
    start(yard, "survivor", tmp_path, REPORTS + """
assert post({"progressPercentage": 10}) == 200
assert post({"progressPercentage": 20}) == 200
pathlib.Path("reported").touch()
wait_for_file("go-on")
assert post({"progressPercentage": 30}) == 200, "the same address after a restart"
""")  # fmt: skip
    wait_for("both reports", (tmp_path / "reported").exists, 120)
    before = yard.running["statusServer"]
    yard.kill()
    assert yard.up()["statusServer"] == before
    progress = lambda: yard.job("survivor")["status"]["trainerStatus"]["progressPercentage"]
    wait_for("the report that was held back", lambda: progress() == 20, 60)
    (tmp_path / "go-on").touch()
    assert finished(yard, "survivor")["trainerStatus"]["progressPercentage"] == 30
    assert [report["progressPercentage"] for report in history(yard, "survivor")] == [10, 20, 30]


def test_histories_are_private_and_go_with_their_job(yard: Yard, tmp_path: pathlib.Path):
    start(yard, "gone", tmp_path, REPORTS + "assert post({'progressPercentage': 5}) == 200\n")
    finished(yard, "gone")
    folder = yard.home / "metrics"
    (file,) = folder.glob("default/gone.*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    yard.run("delete", "gone")
    wait_for("its history to go", lambda: not file.exists())
    assert yard.run("metrics", "gone", check=False).returncode == 3


def test_a_job_that_reports_nothing_is_told_how(yard: Yard, tmp_path: pathlib.Path):
    start(yard, "silent", tmp_path, "print('x')\n")
    finished(yard, "silent")
    told = yard.run("metrics", "silent")
    assert told.stdout == "" and "docs/metrics.md" in told.stderr
    assert history(yard, "silent") == []


def test_the_lines_of_the_page_report_and_runs_compare(yard: Yard, tmp_path: pathlib.Path):
    page = (ROOT / "docs/metrics.md").read_text()
    (lines,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "urllib" in block]
    start(yard, "slow", tmp_path, lines)
    start(yard, "fast", tmp_path, lines + "report(loss=0.125, speed=9)\n")
    for name in ("slow", "fast"):
        finished(yard, name)
    assert history(yard, "slow")[-1]["metrics"] == [{"name": "loss", "value": "0.25"}]
    table = [line.split() for line in yard.run("metrics", "slow", "fast").stdout.splitlines()]
    assert [row[:3] for row in table] == [["METRIC", "JOB", "LAST"], ["loss", "slow", "0.25"], ["loss", "fast", "0.125"], ["speed", "fast", "9"]]
    told = json.loads(yard.run("metrics", "slow", "trainjob/fast", "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in told["items"]] == ["slow", "fast"]
    assert yard.run("metrics", "slow", "fast", "-o", "csv").stdout.splitlines()[0] == "job,time,progress,remaining,loss,speed"
    assert "none of these jobs" in yard.run("metrics", "slow", "fast", "--metric", "x", check=False).stderr


def test_nothing_is_told_to_pods_where_it_is_off(tmp_path: pathlib.Path):
    yard = Yard(tmp_path / "home", "--status-server", "none")
    try:
        assert "statusServer" not in yard.running and "progress    not taken" in yard.run("status").stdout
        yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
        code = "import os\nassert not [name for name in os.environ if name.startswith('KUBEFLOW_TRAINER_SERVER')]\n"
        start(yard, "off", tmp_path, code)
        finished(yard, "off")
        # what is in the status is shown all the same
        status = {"status": {"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z", "progressPercentage": 9}}}
        yard.kubectl("patch", "trainjob", "off", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        told = yard.run("metrics", "off", "-o", "csv")
        assert "2026-01-02T03:04:05Z,9," in told.stdout and "only the last report" in told.stderr
    finally:
        stop(yard)
