"""The pages of clusters, the queue, nodes, runtimes, downloads, services, pools and budgets, in a real Chromium: what each shows is what the command
line prints."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Page, expect
from visitors import Visitor, chromium

LONG = 60
TOPICS = ("queue", "clusters", "nodes", "services", "pools", "budgets", "runtimes", "downloads")
# it would run if any page put it into markup
HOSTILE = '<img src=x onerror="window.hacked=1">'

BUDGET = {
    "apiVersion": "sky.trainyard.dev/v1alpha1", "kind": "Budget", "metadata": {"name": "team", "namespace": "default"},
    "spec": {"limit": {"machineHours": 5, "dollars": 10}},
}  # fmt: skip
WAITS = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "waits", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {
        "command": ["true"], "resourcesPerNode": {"requests": {"cpu": "4000"}}}},
}  # fmt: skip
CLUSTER = "name: lab\nresources: {infra: local, cpus: 1+}\nrun: sleep 600\n"
FAILS = f"name: fails\nresources: {{infra: local, cpus: 1+}}\nrun: |\n  echo '{HOSTILE}'\n  exit 7\n"
SERVICE = """\
service: {readiness_probe: /, replicas: 1}
resources: {infra: local, cpus: 1+, ports: 8080}
run: exec python3 -m http.server 8080
"""


class Slow(http.server.BaseHTTPRequestHandler):
    """A file of 100 MB, 2 MB a second."""

    LENGTH = 100_000_000

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(self.LENGTH))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        try:
            for _ in range(500):
                self.wfile.write(b"x" * 200_000)
                time.sleep(0.1)
        except OSError:
            pass  # the job was deleted

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/set.bin"
    server.shutdown()


def downloads(source: str) -> list[dict]:
    """A runtime whose first step is upstream's initializer, and a job that uses it."""

    def step(name: str, ancestor: str, container: dict, **members: object) -> dict:
        pod = {"restartPolicy": "Never", "volumes": [{"name": "initializer", "emptyDir": {}}], "containers": [container]}
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": ancestor}
        return {"name": name, **members, "template": {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}}

    initializer = {
        "name": "dataset-initializer", "image": "ghcr.io/kubeflow/trainer/dataset-initializer",
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }  # fmt: skip
    first = step("dataset-initializer", "dataset-initializer", initializer)
    awaited = {"name": "dataset-initializer", "status": "Complete"}
    then = step("node", "trainer", {"name": "node", "image": "none", "command": ["true"]}, dependsOn=[awaited])
    meta = {"name": "downloads", "namespace": "default"}
    return [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": meta,
            "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [first, then]}}},
        },
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta,
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "downloads"}, "initializer": {"dataset": {"storageUri": source}}},
        },
    ]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visitor(things: Yard, browser: Browser) -> Iterator[Visitor]:
    with browser.new_context() as context:
        visitor = Visitor(things, context)
        visitor.sign_in()
        yield visitor
        assert not visitor.said, visitor.said


@pytest.fixture(scope="module")
def things(yard: Yard, source: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """One thing of each kind."""
    folder = tmp_path_factory.mktemp("tasks")
    yard.env["HOME"] = str(folder)

    def task(name: str, text: str) -> str:
        path: pathlib.Path = folder / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    for body in (BUDGET, WAITS, *downloads(source)):
        yard.kubectl("create", "-f", "-", input=json.dumps(body))
    yard.run("sky", "launch", "-y", "-d", "-c", "lab", task("lab", CLUSTER))
    yard.run("sky", "jobs", "launch", "-y", "-d", task("fails", FAILS))
    yard.run("sky", "serve", "up", "-y", "-n", "web", task("web", SERVICE))
    yield yard
    yard.run("sky", "serve", "down", "-y", "web", check=False)
    yard.run("sky", "down", "-y", "lab", check=False)


def row(page: Page, name: str, table: str | None = None):
    within = page.get_by_role("grid", name=table, exact=True) if table else page
    return within.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_clusters_and_their_jobs(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/clusters")
    (told,) = [one for one in json.loads(things.run("sky", "status", "-o", "json").stdout) if one["name"] == "lab"]
    for text in (told["status"], told["infra"], told["resources_str"], told["user_name"]):
        expect(row(page, "lab")).to_contain_text(text)
    row(page, "lab").get_by_role("link", name="lab", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("UP")
    expect(page.get_by_role("grid", name="Machines")).to_contain_text(told["head_ip"])
    expect(page.get_by_role("grid", name="Why this place")).to_contain_text("in use")
    expect(page.get_by_label("Delete the cluster and its machines")).to_have_value("trainyard sky down lab")
    jobs = page.get_by_role("grid", name="Jobs")
    expect(jobs).to_contain_text("RUNNING")
    jobs.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Running")
    page.goto(f"{visitor.base}/jobs?kind=jobset")
    expect(row(page, "lab job 1")).to_contain_text("Running")


def test_the_queue_says_what_queue_prints(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/queue")
    expect(row(page, "waits")).to_be_visible()
    waiting = wait_for("the job to be judged", lambda: [one for one in queue(things) if one["name"] == "waits" and one["wouldLetItRun"]])
    (waits,) = waiting
    expect(row(page, "waits")).to_contain_text(waits["why"])
    for would in waits["wouldLetItRun"]:
        expect(row(page, "waits")).to_contain_text(would)
    expect(page.get_by_role("grid", name="Room on the nodes")).to_contain_text("free of")
    row(page, "waits").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("waits")


def queue(yard: Yard) -> list[dict]:
    return json.loads(yard.run("queue", "-o", "json").stdout)["waiting"]


def test_nodes_say_who_holds_them(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/nodes")
    names = things.kubectl("get", "nodes", "-o", "name").stdout.split()
    for name in names:
        expect(row(page, name.removeprefix("node/"))).to_contain_text("Ready")
    row(page, "lab-0-0").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("lab-0-0")
    holders = page.get_by_role("grid", name="Requested by")
    holders.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("lab-1")
    things.kubectl("cordon", "lab-0-0")
    page = visitor.open("/nodes")
    expect(row(page, "lab-0-0")).to_contain_text("it is cordoned")
    things.kubectl("uncordon", "lab-0-0")
    expect(row(page, "lab-0-0")).not_to_contain_text("cordoned")


def test_runtimes(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/runtimes?sort=Name&order=desc")
    links = page.get_by_role("grid", name="Runtimes").get_by_role("link")
    links.first.wait_for()
    names = sorted(things.run("runtimes", "-o", "name").stdout.split(), reverse=True)
    expect(links).to_have_text(names)
    page.get_by_label("Search in all columns").fill("DEEPSPEED")
    page.keyboard.press("Enter")
    expect(links).to_have_text(["deepspeed-distributed"])
    assert "text=DEEPSPEED" in page.url
    links.first.click()
    expect(page.get_by_text("kind: ClusterTrainingRuntime")).to_be_visible()
    visitor.open("/runtimes?text=zzz")
    expect(page.get_by_text("No row contains that text.")).to_be_visible()


def test_downloads_say_how_far_they_are(visitor: Visitor, things: Yard, source: str) -> None:
    page = visitor.open("/downloads")
    expect(row(page, "downloads")).to_contain_text(source, timeout=LONG * 1000)
    expect(row(page, "downloads")).to_contain_text("of 100 MB", timeout=LONG * 1000)
    expect(row(page, "downloads")).to_contain_text("Running")
    things.run("delete", "downloads")
    expect(page.get_by_text("No job downloads a model")).to_be_visible(timeout=LONG * 1000)


def test_a_managed_job_says_what_each_attempt_cost_and_why_it_ended(visitor: Visitor, things: Yard) -> None:
    wait_for("the failure", lambda: "FAILED" in things.run("sky", "jobs", "queue", "-a").stdout, LONG)
    page = visitor.open("/jobs?kind=managedjob")
    expect(row(page, "1 fails")).to_contain_text("FAILED")
    row(page, "1 fails").get_by_role("link").click()
    told = json.loads(things.run("sky", "jobs", "explain", "1", "-o", "json").stdout)
    (attempt,) = told["tasks"][0]["attempts"]
    attempts = page.get_by_role("grid", name="Attempts")
    for text in (attempt["place"], attempt["evidence"], "exited"):
        expect(attempts).to_contain_text(text)
    expect(page.get_by_role("grid", name="Tasks")).to_contain_text(told["tasks"][0]["message"].splitlines()[0])


def test_a_service_and_its_replica(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/services")
    expect(row(page, "web")).to_contain_text("READY", timeout=LONG * 1000)
    expect(row(page, "web")).to_contain_text("Fixed 1 replica")
    expect(row(page, "web")).to_contain_text(things.run("sky", "serve", "status", "web", "--endpoint").stdout.strip())
    row(page, "web").get_by_role("link", name="web", exact=True).click()
    replicas = page.get_by_role("grid", name="Replicas")
    expect(replicas).to_contain_text("succeeds")
    replicas.get_by_role("link", name="web-1").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("web-1")


def test_a_budget_says_what_is_taken(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/budgets")
    expect(row(page, "team")).to_contain_text("within its limit")
    expect(row(page, "team")).to_contain_text("of 5.00")
    row(page, "team").get_by_role("link").click()
    expect(page.get_by_text("10 minutes", exact=True)).to_be_visible()
    things.kubectl("delete", "budget", "team")
    expect(page.get_by_role("heading", name='Budget "team" does not exist in namespace default')).to_be_visible()
    # the browser says by itself which requests were refused
    visitor.said.clear()


def test_what_is_not_there_says_so(visitor: Visitor, things: Yard) -> None:
    page = visitor.open("/pools")
    expect(page.get_by_text("There are no pools.")).to_be_visible()
    visitor.open("/clusters/default/nothing")
    expect(page.get_by_role("heading", name='Cluster "nothing" does not exist in namespace default')).to_be_visible()
    visitor.open("/clusters?sort=colour")
    expect(page.get_by_text('rows cannot be sorted by "colour"')).to_be_visible()
    visitor.open("/clusters?namespace=..%2Fx")
    expect(page.get_by_text("is not a namespace")).to_be_visible()
    visitor.open("/nothing")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    # the browser says by itself which requests were refused
    visitor.said.clear()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_these_pages_are_accessible(browser: Browser, things: Yard, theme: str) -> None:
    with browser.new_context(color_scheme=theme) as context:
        visitor = Visitor(things, context)
        page = visitor.sign_in()
        for address in (*TOPICS, "clusters/default/lab", "nodes/-/lab-0-0", "services/default/web", "jobs/managedjob/default/job-1"):
            visitor.open(f"/{address}")
            page.get_by_role("heading", level=1).wait_for()
            expect(page.get_by_label("Loading")).to_have_count(0)
            assert not visitor.violations(), address
        page.set_viewport_size({"width": 360, "height": 740})
        for address in (*TOPICS, "clusters/default/lab"):
            visitor.open(f"/{address}")
            page.get_by_role("heading", level=1).wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
        assert page.evaluate("window.hacked") is None
