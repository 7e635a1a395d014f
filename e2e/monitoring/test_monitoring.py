"""A real Prometheus scrapes a real control plane whose jobs end, fail, wait, restart and hang; a real Alertmanager gets the alert."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from conftest import ROOT, Yard, plain_runtime, stop, wait_for

RULES = ROOT / "monitoring/rules.yaml"
BOARDS = sorted((ROOT / "monitoring/boards").glob("*.json"))
# what dcgm-exporter serves for one GPU: names and labels of its default counters
GPU_LABELS = '{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H200",Hostname="n",namespace="default",pod="p",container="c"}'
GPU_METRICS = "".join(
    f"# HELP {name} {name}\n# TYPE {name} gauge\n{name}{GPU_LABELS} {value}\n"
    for name, value in (
        ("DCGM_FI_DEV_GPU_UTIL", 90), ("DCGM_FI_DEV_FB_USED", 1000), ("DCGM_FI_DEV_GPU_TEMP", 50), ("DCGM_FI_DEV_POWER_USAGE", 300),
    )
)  # fmt: skip
REPORTS = """
import datetime, json, os, pathlib, ssl, time, urllib.request
now = datetime.datetime.now(datetime.timezone.utc).isoformat()
body = json.dumps({"trainerStatus": {"lastUpdatedTime": now, "progressPercentage": 40}})
token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body.encode(),
    {"Authorization": "Bearer " + token, "Content-Type": "application/json"}, method="POST")
context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
urllib.request.urlopen(request, timeout=10, context=context).close()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    started = Yard(tmp_path_factory.mktemp("home"), "--status-server", "127.0.0.1:0")
    started.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("once")))
    yield started
    stop(started)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def pod(*command: str, gpus: int = 0) -> dict:
    resources = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none", "command": list(command), **resources}]}}


def jobset(name: str, template: dict, restarts: int = 0) -> dict:
    job = {"spec": {"backoffLimit": 0, "template": template}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"failurePolicy": {"maxRestarts": restarts}, "replicatedJobs": [{"name": "node", "replicas": 1, "template": job}]},
    }  # fmt: skip


def trainjob(name: str, *command: str) -> dict:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": {"name": "once"}, "trainer": {"command": list(command), "numNodes": 1}},
    }  # fmt: skip


def mpijob(name: str, launcher: str) -> dict:
    replicas = {"Launcher": {"replicas": 1, "template": pod("sh", "-c", launcher)}, "Worker": {"replicas": 1, "template": pod("sleep", "600")}}
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name, "namespace": "default"},
        "spec": {"runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "All"}, "mpiReplicaSpecs": replicas},
    }  # fmt: skip


def search(name: str) -> dict:
    spec = {
        "objectives": [{"metric": "loss", "direction": "Minimize"}],
        "parameters": [{"name": "lr", "searchSpace": {"categorical": {"choices": ["1", "2"]}}}],
        "searchAlgorithm": {"grid": {}}, "numTrials": 1, "parallelTrials": 1,
        "trainJobTemplate": {"spec": trainjob("x", "echo", "loss=0.5")["spec"]},
    }  # fmt: skip
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob", "metadata": metadata, "spec": spec}


class Scraper:
    """A Prometheus, and the Alertmanager that it reports to."""

    def __init__(self, yard: Yard, folder: pathlib.Path, exporter: int):
        self.at, self.alerts_at = free_port(), free_port()
        printed = yard.run("prometheus-config", "--dir", str(folder / "keys")).stdout
        (folder / "printed.yml").write_text(printed)
        subprocess.run(["promtool", "check", "config", folder / "printed.yml"], check=True, capture_output=True)
        config = yaml.safe_load(printed)
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES)]
        config["scrape_configs"].append({"job_name": "dcgm", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]})
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.alerts_at}"]}]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        prometheus = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        manager = ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/alerts"]
        with (folder / "log").open("wb") as log:
            self.processes = [
                subprocess.Popen([*prometheus, f"--web.listen-address=127.0.0.1:{self.at}"], stdout=log, stderr=log),
                subprocess.Popen([*manager, f"--web.listen-address=127.0.0.1:{self.alerts_at}", "--cluster.listen-address="], stdout=log, stderr=log),
            ]

    def ask(self, path: str, **query: str) -> list:
        url = f"http://127.0.0.1:{self.at}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=10) as answer:
            data = json.load(answer)["data"]
            return data["result"] if isinstance(data, dict) else data
        return []

    def query(self, expr: str) -> list:
        return self.ask("query", query=expr)

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(GPU_METRICS.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def scraper(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraper]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "reports.py").write_text(REPORTS)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scraper = Scraper(yard, folder, server.server_port)
    try:
        wait_for("the first scrape", lambda: scraper.query('up{job="trainyard"} == 1'))
        day = [
            trainjob("done", "true"), trainjob("fails", "false"), trainjob("hangs", "python3", str(folder / "reports.py")),
            jobset("waits", pod("true", gpus=64)), jobset("restarts", pod("sh", "-c", f"test -e {folder}/enough"), restarts=1000),
            mpijob("mpi-done", "true"), mpijob("mpi-fails", "false"), search("sweep"),
        ]  # fmt: skip
        yard.kubectl("apply", "-f", "-", input="\n".join(map(json.dumps, day)))
        yield scraper
    finally:
        scraper.stop()
        server.shutdown()


def queries() -> Iterator[tuple[str, str]]:
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", re.sub(r"\$\w+", ".*", target["expr"])
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                yield rule["record"], rule["record"]


def test_every_query_gives_data(scraper: Scraper) -> None:
    for name, expr in queries():
        wait_for(f"data of {name}: {expr}", functools.partial(scraper.query, expr))
    for path in BOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                # as Grafana asks for the values of label_values(SERIES, LABEL)
                series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
                found = scraper.ask(f"label/{label}/values", **{"match[]": re.sub(r"\$\w+", ".*", series)})
                assert found, variable["query"]


def test_states_are_those_of_the_jobs(scraper: Scraper) -> None:
    for expr in (
        'trainyard_job_info{kind="TrainJob",name="done",state="Complete"}',
        'trainyard_job_info{kind="TrainJob",name="fails",state="Failed"}',
        'trainyard_job_info{kind="JobSet",name="waits",state="Pending",reason="PodsPending"}',
        'trainyard_job_gpus{kind="JobSet",name="waits"} == 64',
        'trainyard_job_progress_ratio{name="hangs"} == 0.4',
        'trainyard_job_info{kind="MPIJob",name="mpi-fails",state="Failed"}',
        'trainyard_jobs{kind="TrainJob",state="Complete"} == 2',
    ):
        wait_for(expr, functools.partial(scraper.query, expr))
    # the JobSets of TrainJobs are no jobs of their own
    assert not scraper.query('trainyard_job_info{kind="JobSet",name=~"done|fails|hangs"}')


def test_an_alert_reaches_alertmanager(scraper: Scraper) -> None:
    url = f"http://127.0.0.1:{scraper.alerts_at}"

    def firing() -> list[dict]:
        words = ["amtool", f"--alertmanager.url={url}", "alert", "query", "alertname=TrainyardJobFailsRepeatedly", "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else []

    (alert,) = wait_for("the alert", firing)
    assert (alert["labels"]["kind"], alert["labels"]["name"]) == ("JobSet", "restarts")
    assert (ROOT / alert["annotations"]["runbook"]).is_file()


def test_both_formats_are_clean(yard: Yard, scraper: Scraper) -> None:
    text = yard.kubectl("get", "--raw", "/metrics").stdout
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    samples = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    helped = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# HELP")}
    assert not [name for name in samples if name not in helped and re.sub("_(bucket|count|sum)$", "", name) not in helped]


def test_the_token_reads_metrics_only(yard: Yard, tmp_path: pathlib.Path) -> None:
    yard.run("prometheus-config", "--dir", str(tmp_path))
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", tmp_path / "ca.crt"]
    words += ["-H", f"Authorization: Bearer {(tmp_path / 'token').read_text()}"]
    for path, code in (("/metrics", "200"), ("/api/v1/pods", "403"), ("/apis/trainer.kubeflow.org/v1alpha1/trainjobs", "403")):
        assert subprocess.run([*words, yard.running["server"] + path], capture_output=True, text=True, check=True).stdout == code, path


def test_alerts_fire_in_their_faults_alone() -> None:
    for words in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule}
    tested = {case["alertname"] for test in yaml.safe_load((RULES.parent / "tests.yaml").read_text())["tests"] for case in test["alert_rule_test"]}
    assert alerts == tested


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_grafanas_library_reads_each_board_and_writes_the_same_bytes(path: pathlib.Path) -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    text = path.read_text()
    board = Dashboard.from_json(json.loads(text))
    assert JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n" == text
