"""OptimizationJob: real searches over real TrainJobs that report to the status server."""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest
import yaml

from conftest import ROOT, Yard, plain_runtime, stop, wait_for

# Notes when it starts and ends, and what it was told; reports as training code on a cluster does.
TRIAL = """
import datetime, json, os, pathlib, ssl, sys, time, urllib.request

notes = pathlib.Path(sys.argv[1])
told = {name[21:].lower(): value for name, value in os.environ.items() if name.startswith("KUBEFLOW_TRAINER_OPT_")}
url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
name = url.split("/trainjobs/")[1].split("/")[0]

def note(what):
    with open(notes / "log", "a") as log:
        log.write(json.dumps([what, name, told, sys.argv[2:]]) + "\\n")

def wait_for(what, predicate):
    for _ in range(2400):
        if predicate():
            return
        time.sleep(0.05)
    sys.exit(f"no {what}")

def report(**metrics):
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    metrics = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    body = json.dumps({"trainerStatus": {"lastUpdatedTime": now, "progressPercentage": 100, "metrics": metrics}})
    token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
    request = urllib.request.Request(url, body.encode(), {
        "Authorization": "Bearer " + token, "Content-Type": "application/json"}, method="POST")
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    for _ in range(300):  # the control plane may be on its way up again
        try:
            return urllib.request.urlopen(request, timeout=10, context=context).close()
        except OSError as error:
            time.sleep(0.1)
    sys.exit(f"the report is not taken: {error}")

note("start")
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    started = Yard(tmp_path_factory.mktemp("home"), "--status-server", "127.0.0.1:0")
    started.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("once")))
    yield started
    stop(started)


def search(name: str, folder: pathlib.Path, code: str, annotations: dict | None = None, args=(), **spec) -> dict:
    """An OptimizationJob whose trials run this code after TRIAL."""
    script = folder / f"{name}.py"
    script.write_text(TRIAL + code)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "objectives": [{"metric": "loss"}],
            "parameters": [{"name": "x", "searchSpace": {"uniform": {"min": "-3", "max": "5"}}}],
            "trainJobTemplate": {"spec": {
                "runtimeRef": {"name": "once"},
                "trainer": {"command": [sys.executable, str(script), str(folder), *args]},
            }},
            **spec,
        },
    }  # fmt: skip


def get(yard: Yard, kind: str, *words: str) -> dict:
    return json.loads(yard.kubectl("get", kind, *words, "-o", "json").stdout)


def condition(job: dict, kind: str) -> dict | None:
    return next((c for c in job.get("status", {}).get("conditions", []) if c["type"] == kind), None)


def finished(yard: Yard, name: str, timeout: float = 240) -> dict:
    def ended():
        job = get(yard, "optimizationjob", name)
        return job if condition(job, "Complete") or condition(job, "Failed") else None

    return wait_for(f"the end of {name}", ended, timeout)


def trials(yard: Yard, name: str) -> list[dict]:
    found = get(yard, "trainjobs", "-l", f"trainyard.dev/optimizationjob={name}")["items"]
    return sorted(found, key=lambda trial: int(trial["metadata"]["name"].rsplit("-", 1)[1]))


def log(folder: pathlib.Path, what: str) -> list:
    if not (folder / "log").exists():
        return []
    lines = map(json.loads, (folder / "log").read_text().splitlines())
    return [line for line in lines if line[0] == what]


def text(trial: dict, metric: str = "loss") -> str:
    metrics = trial["status"]["trainerStatus"]["metrics"]
    return next(m["value"] for m in metrics if m["name"] == metric)


def value(trial: dict, metric: str = "loss") -> float:
    return float(text(trial, metric))


@pytest.mark.timeout(400)
def test_an_estimated_search_finds_the_best_trial(yard: Yard, tmp_path: pathlib.Path):
    """TPE, three at a time: the first three meet, a fourth never joins them."""
    code = """
lines = lambda what: [l for l in (notes / "log").read_text().splitlines() if json.loads(l)[0] == what]
wait_for("other trials", lambda: len(lines("start")) >= 3)
if len(lines("start")) - len(lines("end")) > 3:
    note("crowd")
assert sys.argv[2] == "--x=" + told["x"], sys.argv
report(loss=(float(told["x"]) - 1) ** 2, other=1)
note("end")
"""
    job = search("estimated", tmp_path, code, {"trainyard.dev/search-algorithm": "tpe"},
                 ["--x=$(KUBEFLOW_TRAINER_OPT_X)"], numTrials=13, parallelTrials=3,
                 searchAlgorithm={"random": {"seed": 7}})  # fmt: skip
    yard.kubectl("apply", "-f", "-", input=json.dumps(job))
    done = finished(yard, "estimated")
    assert condition(done, "Complete")["reason"] == "MaxTrialsReached", done["status"]
    assert condition(done, "Created")["status"] == "True"
    found = trials(yard, "estimated")
    assert [t["metadata"]["name"] for t in found] == [f"estimated-trial-{n}" for n in range(13)]
    assert not log(tmp_path, "crowd") and len(log(tmp_path, "start")) == 13
    best = min(found, key=value)
    result = done["status"]["result"]
    assert result["trainJobName"] == best["metadata"]["name"]
    (told,) = [line[2] for line in log(tmp_path, "start") if line[1] == result["trainJobName"]]
    assert result["parameters"] == [{"name": "x", "value": told["x"]}]
    assert value(best) == pytest.approx((float(told["x"]) - 1) ** 2)
    assert json.loads(best["metadata"]["annotations"]["trainyard.dev/optimization-parameters"]) == result["parameters"]

    listed = yard.run("trials").stdout
    assert re.search(rf"^estimated +Complete +13/13 +loss +{re.escape(text(best))} +{best['metadata']['name']} ", listed, re.M), listed
    shown = yard.run("trials", "estimated").stdout.splitlines()
    assert shown[0].split() == ["TRIAL", "STATE", "loss", "x"] and len(shown) == 14
    assert [line.split()[0] for line in shown if "(best)" in line] == [best["metadata"]["name"]]
    summary = json.loads(yard.run("trials", "estimated", "-o", "json").stdout)
    assert [(t["name"], float(t["value"]), t["best"]) for t in summary["trials"]] == [
        (t["metadata"]["name"], value(t), t is best) for t in found
    ]
    unknown = yard.run("trials", "none", check=False)
    assert unknown.returncode == 3 and 'OptimizationJob "none"' in unknown.stderr, unknown.stderr

    # the trials go with the search
    yard.kubectl("delete", "optimizationjob", "estimated")
    wait_for("the trials to go", lambda: not trials(yard, "estimated"))


@pytest.mark.timeout(400)
def test_a_search_survives_kills(yard: Yard, tmp_path: pathlib.Path):
    """kill -9 while trials run and between them: none is started twice, none is lost, none changes its values."""
    code = """
wait_for("go", lambda: (notes / "go").exists() or name == "killed-trial-0")
report(loss=told["x"])
note("end")
"""
    yard.kubectl("apply", "-f", "-", input=json.dumps(search("killed", tmp_path, code, numTrials=5, parallelTrials=2)))
    yard.kill()
    yard.up()
    wait_for("the third trial", lambda: len(log(tmp_path, "start")) >= 3, 120)
    before = {t["metadata"]["name"]: t["spec"]["trainer"]["env"] for t in trials(yard, "killed")}
    yard.kill()
    (tmp_path / "go").touch()
    yard.up()
    done = finished(yard, "killed")
    assert condition(done, "Complete")["reason"] == "MaxTrialsReached", done["status"]
    started = [line[1] for line in log(tmp_path, "start")]
    assert sorted(started) == [f"killed-trial-{n}" for n in range(5)], "each once"
    after = {t["metadata"]["name"]: t["spec"]["trainer"]["env"] for t in trials(yard, "killed")}
    assert before.items() <= after.items()
    told = {line[1]: float(line[2]["x"]) for line in log(tmp_path, "start")}
    assert done["status"]["result"]["trainJobName"] == min(told, key=told.get)


@pytest.mark.timeout(300)
def test_a_grid_goes_on_past_trials_without_result(yard: Yard, tmp_path: pathlib.Path):
    code = """
if told["mode"] == "crash":
    sys.exit(3)
if told["mode"] == "fine":
    report(loss=int(told["batch_size"]))
"""
    choices = lambda *words: {"categorical": {"choices": list(words)}}
    job = search("grid", tmp_path, code, numTrials=20, parallelTrials=6, searchAlgorithm={"grid": {}},
                 objectives=[{"metric": "loss", "direction": "Maximize"}],
                 parameters=[{"name": "mode", "searchSpace": choices("fine", "crash", "silent")},
                             {"name": "batch-size", "searchSpace": choices("16", "32")}])  # fmt: skip
    yard.kubectl("apply", "-f", "-", input=json.dumps(job))
    done = finished(yard, "grid")
    assert condition(done, "Complete")["reason"] == "GridExhausted", done["status"]
    told = sorted((line[2]["mode"], line[2]["batch_size"]) for line in log(tmp_path, "start"))
    assert told == [(mode, size) for mode in ("crash", "fine", "silent") for size in ("16", "32")]
    assert done["status"]["result"]["parameters"] == [{"name": "mode", "value": "fine"}, {"name": "batch-size", "value": "32"}]
    message = condition(done, "Complete")["message"]
    assert message.startswith("2 of 6 trials succeeded, 4 failed, 0 running; best: grid-trial-1, loss 32; "), message
    assert message.endswith('last failure: grid-trial-5, it ended without reporting its metric "loss"'), message


def test_bad_input_is_refused_with_its_field(yard: Yard, tmp_path: pathlib.Path):
    x = lambda space: {"parameters": [{"name": "x", "searchSpace": space}]}
    cases = {
        "unknown": ({"args": ["--y=$(KUBEFLOW_TRAINER_OPT_Y)"]},
                    'spec.trainJobTemplate.spec.trainer.command[3]: Unsupported value: "$(KUBEFLOW_TRAINER_OPT_Y)"'),
        "reversed": (x({"uniform": {"min": "2", "max": "1"}}), "min must be strictly less than max"),
        "crowded": ({"numTrials": 2, "parallelTrials": 3}, "parallelTrials cannot exceed numTrials"),
        "between": (x({"uniform": {"min": "0.2", "max": "0.8", "type": "Int"}}),
                    "spec.parameters[0].searchSpace.uniform.type: Invalid value: \"Int\": there is no whole number between"),
        "endless": ({"searchAlgorithm": {"grid": {}}}, "Grid search requires all parameters to be Categorical"),
        "other": ({"annotations": {"trainyard.dev/search-algorithm": "bayes"}},
                  'metadata.annotations[trainyard.dev/search-algorithm]: Unsupported value: "bayes": supported values: "tpe"'),
    }  # fmt: skip
    for name, (over, wanted) in cases.items():
        refused = yard.kubectl("create", "-f", "-", input=json.dumps(search(name, tmp_path, "", **over)), check=False)
        assert refused.returncode == 1 and wanted in refused.stderr, f"{name}: {refused.stderr}"
    missing = search("missing", tmp_path, "")
    missing["spec"]["trainJobTemplate"]["spec"]["runtimeRef"]["name"] = "none"
    refused = yard.kubectl("create", "-f", "-", input=json.dumps(missing), check=False)
    assert "spec.trainJobTemplate: Forbidden: the TrainJob of a trial would be refused" in refused.stderr, refused.stderr
    assert '"none" not found' in refused.stderr


@pytest.mark.timeout(400)
def test_the_example_finds_a_good_model(yard: Yard):
    """The first trials of examples/optimization: a real model on real data."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: the example cannot run")
    folder = ROOT / "examples/optimization"
    job = yaml.safe_load((folder / "search.yaml").read_text().replace("/workspace", str(folder)))
    job["spec"]["numTrials"] = 2
    command = job["spec"]["trainJobTemplate"]["spec"]["trainer"]["command"]
    assert command[0] == "python3"
    command[0] = sys.executable
    yard.kubectl("apply", "-f", "-", input=json.dumps(job))
    done = finished(yard, "digits")
    assert condition(done, "Complete"), done["status"]
    best = max(trials(yard, "digits"), key=lambda trial: value(trial, "accuracy"))
    assert done["status"]["result"]["trainJobName"] == best["metadata"]["name"]
    assert value(best, "accuracy") > 0.8
