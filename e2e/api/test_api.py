"""What clients rely on, request by request: how queries are read, how watches and deletes end, who is let in.

The numbers in the tests' docstrings are those of the client contract's list, which the other files of this folder test
as well: SDK (13, 16 to 19), kubectl (2, 8, 21), crashes (20).
"""

from __future__ import annotations

import base64
import http.client
import json
import pathlib
import re
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from cluster import free_port
from conftest import Yard, stop, wait_for

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"


class Raw:
    """HTTP as it is on the wire, with what the kubeconfig says: no client library that would mend anything."""

    def __init__(self, yard: Yard):
        config = yaml.safe_load(pathlib.Path(yard.kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        self.address = cluster["server"].removeprefix("https://")
        self.headers = {"Authorization": f"Bearer {user['token']}"}

    def open(
        self, path: str, method: str = "GET", body: dict | None = None, headers: dict[str, str | None] | None = None,
        timeout: float = 60,
    ) -> http.client.HTTPResponse:  # fmt: skip
        """The answer as soon as it begins. A header that is None is left out."""
        connection = http.client.HTTPSConnection(self.address, context=self.tls, timeout=timeout)
        sent = {**self.headers, **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection.request(
            method, path, json.dumps(body) if body is not None else None, {k: v for k, v in sent.items() if v is not None}
        )
        return connection.getresponse()

    def call(self, path: str, *arguments, **options) -> tuple[int, dict]:
        answer = self.open(path, *arguments, **options)
        return answer.status, json.loads(answer.read())

    def names(self, path: str) -> set[str]:
        status, listed = self.call(path)
        assert status == 200, listed
        return {item["metadata"]["name"] for item in listed["items"]}

    def events(self, path: str, timeout: float = 60) -> Iterator[dict]:
        """The events of a watch until the server ends it."""
        answer = self.open(path, timeout=timeout)
        assert answer.status == 200, answer.read()
        while line := answer.readline():
            yield json.loads(line)


@pytest.fixture
def raw(yard: Yard) -> Raw:
    return Raw(yard)


def configmap(name: str, **labels: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def trainjob(name: str, script: str, nodes: int = 1) -> dict:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "jax-distributed"}, "trainer": {"command": ["sh", "-c", script], "numNodes": nodes}},
    }  # fmt: skip


def pods_of(name: str) -> str:
    return f"{PODS}?labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3D{name}"


def finished(raw: Raw, name: str) -> str | None:
    conditions = raw.call(f"{TRAINJOBS}/{name}")[1].get("status", {}).get("conditions", [])
    return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


# who is let in


def test_only_the_kubeconfigs_holder_is_let_in(yard: Yard, raw: Raw):
    """1: the certificate checks out against the kubeconfig; no token, a wrong token, a foreign name: no."""
    assert raw.call(PODS)[0] == 200
    for authorization in (None, "Bearer wrong", "Bearer ", "Basic YTpi", raw.headers["Authorization"] + "x"):
        status, told = raw.call(PODS, headers={"Authorization": authorization})
        assert (status, told["reason"]) == (401, "Unauthorized"), authorization
    for host in ("evil.example", f"evil.example:{raw.address.rpartition(':')[2]}"):
        status, told = raw.call(PODS, headers={"Host": host})
        assert (status, told["reason"]) == (403, "Forbidden"), "a web page that rebinds its name must not get through"
    assert raw.call(PODS, headers={"Origin": "https://evil.example"})[0] in (401, 403)
    assert yard.kubectl("get", "ns").returncode == 0
    plain = http.client.HTTPConnection(raw.address, timeout=20)
    with pytest.raises((OSError, http.client.HTTPException)):
        plain.request("GET", "/version")
        assert plain.getresponse().status >= 400
        raise OSError("told in plain HTTP that it speaks TLS")


def test_discovery_roots_with_and_without_a_slash(raw: Raw):
    """2: the Python client asks with a slash at the end."""
    for path in ("/version", "/api", "/apis", "/api/v1", "/apis/batch/v1"):
        assert raw.call(path) == raw.call(path + "/"), path
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    legacy = raw.call("/apis")[1]
    told = raw.call("/apis", headers=aggregated)[1]
    assert legacy["kind"] == "APIGroupList" and told["kind"] == "APIGroupDiscoveryList"
    assert {g["name"] for g in legacy["groups"]} == {g["metadata"]["name"] for g in told["items"]}


# what is asked


def test_a_conflict_is_answered_to_the_byte(raw: Raw):
    """3: compact JSON in Go's order, one newline."""
    assert raw.call(CONFIGMAPS, "POST", configmap("twice"))[0] == 201
    answer = raw.open(CONFIGMAPS, "POST", configmap("twice"))
    assert answer.status == 409
    assert answer.read() == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \\"twice\\" already exists",'
        b'"reason":"AlreadyExists","details":{"name":"twice","kind":"configmaps"},"code":409}\n'
    )


def test_a_custom_resources_conflict_names_its_group(raw: Raw):
    """3"""
    assert raw.call(TRAINJOBS, "POST", trainjob("twice", "true"))[0] == 201
    body = raw.open(TRAINJOBS, "POST", trainjob("twice", "true")).read()
    assert body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"trainjobs.trainer.kubeflow.org '
        b'\\"twice\\" already exists","reason":"AlreadyExists","details":{"name":"twice","group":"trainer.kubeflow.org",'
        b'"kind":"trainjobs"},"code":409}\n'
    )


@pytest.mark.parametrize("word, watches", [("True", True), ("1", True), ("", True), ("yes", True), ("False", False), ("0", False)])
def test_booleans_are_read_as_go_clients_mean_them(raw: Raw, word: str, watches: bool):
    """4: False in any case and 0 are false, all else is true."""
    answer = raw.open(f"{CONFIGMAPS}?watch={word}&timeoutSeconds=1")
    assert answer.status == 200
    text = answer.read().decode()
    if watches:
        assert text and all(json.loads(line)["type"] == "ADDED" for line in text.splitlines())
    else:
        assert json.loads(text)["kind"] == "ConfigMapList"


def test_plus_is_a_space_and_empty_pairs_are_nothing(raw: Raw):
    """4, 5"""
    for name, team in (("plus-a", "red"), ("plus-b", "blue"), ("plus-c", "green")):
        assert raw.call(CONFIGMAPS, "POST", configmap(name, team=team))[0] == 201
    assert raw.names(f"{CONFIGMAPS}?&&labelSelector=team+in+(red,+blue)&") == {"plus-a", "plus-b"}
    assert raw.names(f"{CONFIGMAPS}?labelSelector=team%20notin%20(red),team") == {"plus-b", "plus-c"}
    assert raw.names(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dplus-c") == {"plus-c"}
    assert raw.call(f"{CONFIGMAPS}?")[0] == 200
    status, told = raw.call(f"{CONFIGMAPS}?labelSelector=team+in+red")
    assert (status, told["reason"]) == (400, "BadRequest")


def test_tables(yard: Yard, raw: Raw):
    """10: columns of the definition, and objects as they are for clients that do not ask for a table."""
    raw.call(TRAINJOBS, "POST", trainjob("tabled", "true"))
    wait_for("the job to end", lambda: finished(raw, "tabled"), 60)
    table = raw.call(TRAINJOBS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"})[1]
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    (row,) = [row for row in table["rows"] if row["cells"][0] == "tabled"]
    assert row["cells"][1] == "Complete" and row["object"]["kind"] == "PartialObjectMetadata"
    header, line = yard.kubectl("get", "trainjob", "tabled").stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "AGE"] and line.split()[:2] == ["tabled", "Complete"]
    wide = yard.kubectl("get", "pods", "-o", "wide").stdout.splitlines()[0].split()
    assert wide[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"] and "NODE" in wide


def test_definitions_default_and_forbid(raw: Raw):
    """11: what is left out is filled in; what must not change does not."""
    job = trainjob("fixed", "true") | {"unknown": 1}
    status, made = raw.call(TRAINJOBS, "POST", job)
    assert status == 201 and "unknown" not in made
    assert made["spec"]["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "jax-distributed"}
    changed = {"spec": {"runtimeRef": {"name": "torch-distributed"}}}
    status, told = raw.call(f"{TRAINJOBS}/fixed", "PATCH", changed, {"Content-Type": "application/merge-patch+json"})
    assert (status, told["reason"]) == (422, "Invalid"), told
    assert "immutable" in told["message"], told
    status, told = raw.call(f"{TRAINJOBS}?fieldValidation=Strict", "POST", trainjob("strict", "true") | {"unknown": 1})
    assert status == 400 and 'unknown field "unknown"' in told["message"]


def test_writes_count(raw: Raw):
    """12: status is its own door, what changes nothing changes no revision, an old revision is refused."""
    path = f"{CONFIGMAPS}/counted"
    made = raw.call(CONFIGMAPS, "POST", configmap("counted"))[1]
    assert raw.call(path, "PUT", made)[1]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = raw.call(path, "PUT", made | {"data": {"a": "b"}})[1]
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    status, told = raw.call(path, "PUT", made | {"data": {"a": "c"}})
    assert (status, told["reason"]) == (409, "Conflict") and "the object has been modified" in told["message"]
    job = raw.call(TRAINJOBS, "POST", trainjob("counted", "sleep 60") | {"status": {"conditions": []}})[1]
    assert job["metadata"]["generation"] == 1 and "status" not in job
    merge = {"Content-Type": "application/merge-patch+json"}
    assert raw.call(f"{TRAINJOBS}/counted", "PATCH", {"metadata": {"labels": {"a": "b"}}}, merge)[1]["metadata"]["generation"] == 1
    assert raw.call(f"{TRAINJOBS}/counted", "PATCH", {"spec": {"suspend": True}}, merge)[1]["metadata"]["generation"] == 2
    raw.call(f"{TRAINJOBS}/counted", "DELETE")


# watches


def test_a_watch_from_a_forgotten_revision_ends_in_the_stream(raw: Raw):
    """6: 200, then an ERROR event with 410. With HTTP 410 kube-rs would ask for the same revision for ever."""
    (event,) = raw.events(f"{CONFIGMAPS}?watch=1&resourceVersion=1")
    assert event["type"] == "ERROR"
    assert (event["object"]["kind"], event["object"]["code"], event["object"]["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version" in event["object"]["message"]


def test_a_watch_goes_on_where_a_list_ended(raw: Raw):
    """6: nothing between the two is lost or told twice; the time limit ends the watch."""
    revision = raw.call(CONFIGMAPS)[1]["metadata"]["resourceVersion"]
    raw.call(CONFIGMAPS, "POST", configmap("watched"))
    raw.call(f"{CONFIGMAPS}/watched", "PATCH", {"data": {"a": "b"}}, {"Content-Type": "application/merge-patch+json"})
    raw.call(f"{CONFIGMAPS}/watched", "DELETE")
    asked = f"{CONFIGMAPS}?watch=1&resourceVersion={revision}&fieldSelector=metadata.name%3Dwatched"
    told = list(raw.events(f"{asked}&timeoutSeconds=2&allowWatchBookmarks=true"))
    assert [event["type"] for event in told if event["type"] != "BOOKMARK"] == ["ADDED", "MODIFIED", "DELETED"]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in told]
    assert revisions == sorted(revisions) and revisions[0] > int(revision)


def test_a_list_as_a_stream(raw: Raw):
    """7: what there is, a bookmark that says so, and then what happens."""
    raw.call(CONFIGMAPS, "POST", configmap("streamed"))
    asked = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=20"
    initial = set()
    for event in raw.events(f"{CONFIGMAPS}?{asked}"):
        if event["type"] == "BOOKMARK":
            assert event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            break
        assert event["type"] == "ADDED"
        initial.add(event["object"]["metadata"]["name"])
    assert initial == raw.names(CONFIGMAPS)


def test_the_newest_kubectl_waits(yard: Yard, raw: Raw, newest_kubectl: str):
    """7: kubectl 1.36 waits with a streaming list, and returns when the job completes, not when its time is over."""
    raw.call(TRAINJOBS, "POST", trainjob("awaited", "sleep 1"))
    begun = time.monotonic()
    done = yard.kubectl("wait", "--for=condition=Complete", "trainjob/awaited", "--timeout=50s", program=newest_kubectl)
    assert "condition met" in done.stdout and time.monotonic() - begun < 45


# pods


def test_a_jobs_pods_are_told_whole_at_any_moment(raw: Raw):
    """5, 16: selectors find exactly a job's pods; the fields that the SDK's models require are never missing."""
    raw.call(TRAINJOBS, "POST", trainjob("polled", "echo a; sleep 1; echo b", 2))
    raw.call(TRAINJOBS, "POST", trainjob("polled-too", "sleep 60"))
    seen: set[str] = set()
    conditions, phases = {"type", "status"}, set()
    deadline = time.monotonic() + 90
    while not finished(raw, "polled"):
        assert time.monotonic() < deadline, "the job does not end"
        for pod in raw.call(pods_of("polled"))[1]["items"]:
            seen.add(pod["metadata"]["name"])
            status = pod.get("status", {})
            phases.add(status.get("phase"))
            for container in status.get("containerStatuses", []):
                assert {"name", "ready", "restartCount", "image", "imageID"} <= container.keys(), pod
                for state in container.get("state", {}).values():
                    assert "exitCode" in state or "startedAt" in state or "reason" in state, pod
            assert all(conditions <= c.keys() for c in status.get("conditions", [])), pod
        for step in raw.call(f"{TRAINJOBS}/polled")[1].get("status", {}).get("jobsStatus", []):
            assert {"name", "ready", "succeeded", "failed", "active", "suspended"} <= step.keys(), step
        time.sleep(0.02)
    assert sorted(name.rsplit("-", 1)[0] for name in seen) == ["polled-node-0-0", "polled-node-0-1"]
    assert "Running" in phases and None not in phases
    assert raw.names(f"{PODS}?fieldSelector=status.phase%3DRunning").isdisjoint(seen)
    wait_for("the other job", lambda: raw.names(pods_of("polled-too") + "&fieldSelector=status.phase%3DRunning"))
    raw.call(f"{TRAINJOBS}/polled-too", "DELETE")


def test_fields_are_managed_by_the_programs_that_write_them_on_a_cluster(raw: Raw):
    """As upstream's are with the images of Trainer and JobSet: of one process, each writer says which program it is."""
    raw.call(TRAINJOBS, "POST", trainjob("managed", "true"))
    wait_for("the job to end", lambda: finished(raw, "managed"))
    managers = lambda path: {(m["manager"], m.get("subresource", "")) for m in raw.call(path)[1]["metadata"]["managedFields"]}
    base = TRAINJOBS.partition("/trainer")[0]
    assert ("manager", "status") in managers(f"{TRAINJOBS}/managed")
    assert managers(f"{base}/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/managed") == {("trainer", ""), ("manager", "status")}
    job = f"{base}/batch/v1/namespaces/default/jobs/managed-node-0"
    assert managers(job) == {("manager", ""), ("kube-controller-manager", "status")}
    [pod] = raw.names(pods_of("managed"))
    assert managers(f"{PODS}/{pod}") == {("kube-controller-manager", ""), ("kubelet", "status")}
    assert managers(f"{CONFIGMAPS}/kube-root-ca.crt") == {("kube-controller-manager", "")}


def test_logs_are_followed_as_they_are_written(raw: Raw):
    """4, 15: `follow=True` streams while the process runs; a last line without a newline gets one."""
    raw.call(TRAINJOBS, "POST", trainjob("followed", "echo one; echo two; sleep 3; printf three"))
    (name,) = wait_for("its pod to run", lambda: raw.names(pods_of("followed") + "&fieldSelector=status.phase%3DRunning"))
    answer = raw.open(f"{PODS}/{name}/log?follow=True")
    assert answer.status == 200 and answer.getheader("Transfer-Encoding") == "chunked", answer.getheaders()
    assert answer.getheader("Content-Encoding") is None
    assert [answer.readline(), answer.readline()] == [b"one\n", b"two\n"]
    assert not finished(raw, "followed"), "the first lines come before the end"
    assert answer.read() == b"three\n"
    log = lambda query: raw.open(f"{PODS}/{name}/log?{query}").read().decode()
    assert log("") == "one\ntwo\nthree\n" or log("") == "one\ntwo\nthree"
    assert log("tailLines=1").rstrip() == "three"
    assert log("limitBytes=5") == "one\nt"
    for line in log("timestamps=true").splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z (one|two|three)$", line), line
    status, told = raw.call(f"{PODS}/{name}/log?previous=true")
    assert status == 400 and "previous terminated container" in told["message"]


def test_ports_of_a_pod(yard: Yard, raw: Raw, tmp_path: pathlib.Path):
    """A server in a pod is reached through the API server: by the pod's proxy, and by `kubectl port-forward`."""
    (tmp_path / "hello").write_text("hello\n")
    port = free_port()
    raw.call(TRAINJOBS, "POST", trainjob("serving", f"exec python3 -m http.server --directory {tmp_path} --bind 127.0.0.1 {port}"))
    (name,) = wait_for("its pod to run", lambda: raw.names(pods_of("serving") + "&fieldSelector=status.phase%3DRunning"))
    proxy = f"{PODS}/{name}:{port}/proxy"
    wait_for("the server", lambda: raw.open(f"{proxy}/hello").status == 200)
    answer = raw.open(f"{proxy}/hello?a=b%2Fc")
    assert (answer.read(), answer.getheader("Content-Length")) == (b"hello\n", "6")
    assert (raw.open(f"{proxy}/").status, raw.open(f"{proxy}/nothing").status) == (200, 404)
    assert raw.open(f"{proxy}/hello", "POST", {}).status == 501, "the pod's own answer"
    status, told = raw.call(f"{PODS}/{name}:1/proxy/")
    assert status == 503 and f'error trying to reach port 1 of pod "{name}"' in told["message"], told
    assert raw.call(f"{PODS}/a:b:c:d/proxy/")[0] == 400 and raw.call(f"{PODS}/nobody/proxy/")[0] == 404
    assert yard.kubectl("get", "--raw", f"{proxy}/hello").stdout == "hello\n"

    words = ["kubectl", "--kubeconfig", yard.kubeconfig, "port-forward", f"pod/{name}", f":{port}"]
    forward = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=yard.env)
    try:
        local = re.match(r"Forwarding from 127.0.0.1:(\d+) ->", forward.stdout.readline())[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/hello", timeout=30) as answer:
            assert answer.read() == b"hello\n"
    finally:
        forward.kill()
        forward.wait()
    raw.call(f"{TRAINJOBS}/serving", "DELETE")


# deletes


def test_a_foreground_delete_ends_when_all_is_gone(yard: Yard, raw: Raw):
    """14: kubectl returns when the pods are gone, and their processes with them."""
    raw.call(TRAINJOBS, "POST", trainjob("foreground", "exec sleep 71717", 2))
    # a pod runs once its shell does, and the shell becomes what it was asked for a moment later
    wait_for("both pods", lambda: len(sleepers("71717")) == 2, 60)
    yard.kubectl("delete", "trainjob", "foreground", "--cascade=foreground")
    assert raw.names(pods_of("foreground")) == set()
    assert sleepers("71717") == []


def test_a_background_delete_takes_everything_along(raw: Raw):
    """13: as the SDK deletes: without a body; JobSet, Jobs, Pods and processes go."""
    raw.call(TRAINJOBS, "POST", trainjob("background", "exec sleep 71718", 2))
    wait_for("both pods", lambda: len(sleepers("71718")) == 2, 60)
    status, told = raw.call(f"{TRAINJOBS}/background", "DELETE")
    assert status == 200 and told["status"] == "Success"
    owned = {
        "jobset": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?fieldSelector=metadata.name%3Dbackground",
        "jobs": "/apis/batch/v1/namespaces/default/jobs?labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3Dbackground",
        "pods": pods_of("background"),
    }
    for what, path in owned.items():
        wait_for(f"its {what} to be gone", lambda: not raw.names(path))
    wait_for("its processes to end", lambda: not sleepers("71718"))


def test_a_finalizer_holds_an_object(raw: Raw):
    """13: deleted, but there until its finalizer is taken off; a JSON patch may test for what is not there."""
    held = configmap("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    raw.call(CONFIGMAPS, "POST", held)
    assert raw.call(f"{CONFIGMAPS}/held", "DELETE")[1]["metadata"]["deletionTimestamp"]
    assert "held" in raw.names(CONFIGMAPS)
    off = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/hold"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    status, told = raw.call(f"{CONFIGMAPS}/held", "PATCH", off, {"Content-Type": "application/json-patch+json"})
    assert status == 200, told
    assert raw.call(f"{CONFIGMAPS}/held")[0] == 404


def sleepers(seconds: str) -> list[int]:
    """Processes `sleep SECONDS`, zombies aside."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


# who am I


@pytest.mark.parametrize("minor", ["1.33", "1.36"])
def test_reviews_in_protobuf(yard: Yard, kubectls: dict[str, str], minor: str):
    """21: kubectl from 1.32 on sends these as protobuf, and does not try JSON when that is refused."""
    if minor not in kubectls:
        pytest.skip(f"kubectl {minor} is not on this machine")
    kubectl = lambda *words: yard.kubectl(*words, program=kubectls[minor]).stdout
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert re.search(r"^Username\s+\S+", kubectl("auth", "whoami"), re.M)
    assert "*.*" in kubectl("auth", "can-i", "--list")


# after a crash


@pytest.mark.timeout(180)
def test_kill_and_up_again(tmp_path_factory: pytest.TempPathFactory):
    """20: objects, revisions and finished logs are there again; watches from before end in the stream or go on."""
    yard = Yard(tmp_path_factory.mktemp("killed"))
    try:
        raw = Raw(yard)
        raw.call(TRAINJOBS, "POST", trainjob("done-before", "echo kept"))
        wait_for("the first job's end", lambda: finished(raw, "done-before"), 60)
        raw.call(TRAINJOBS, "POST", trainjob("goes-on", "echo before; sleep 5; echo after"))
        wait_for("the second to run", lambda: raw.names(pods_of("goes-on") + "&fieldSelector=status.phase%3DRunning"), 60)
        before = raw.call(TRAINJOBS)[1]
        finished_pod = raw.call(pods_of("done-before"))[1]["items"][0]
        yard.kill()
        yard.up()
        raw = Raw(yard)
        after = raw.call(TRAINJOBS)[1]
        assert int(after["metadata"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"])
        assert {j["metadata"]["uid"] for j in before["items"]} == {j["metadata"]["uid"] for j in after["items"]}
        log = raw.open(f"{PODS}/{finished_pod['metadata']['name']}/log").read()
        assert log == b"kept\n"
        types = [e["type"] for e in raw.events(f"{TRAINJOBS}?watch=1&resourceVersion={after['metadata']['resourceVersion']}&timeoutSeconds=1")]
        assert "ERROR" not in types
        wait_for("the second job's end", lambda: finished(raw, "goes-on"), 60)
        (name,) = raw.names(pods_of("goes-on"))
        assert raw.open(f"{PODS}/{name}/log").read() == b"before\nafter\n"
    finally:
        stop(yard)



def test_a_bare_api_server(tmp_path_factory: pytest.TempPathFactory):
    """`--controllers none --no-node`: other people's controllers have it to themselves."""
    yard = Yard(tmp_path_factory.mktemp("bare"), "--controllers", "none", "--no-node")
    try:
        raw = Raw(yard)
        assert raw.names("/api/v1/nodes") == set()
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none", "command": ["true"]}]}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "alone"}, "spec": {"template": pod}}
        assert raw.call(jobs, "POST", job)[0] == 201
        told = list(raw.events(f"{jobs}?watch=1&timeoutSeconds=2"))
        assert [event["type"] for event in told] == ["ADDED"], "nobody touches it"
        assert raw.names(PODS) == set()
        assert "trainjobs" not in yard.kubectl("api-resources").stdout, "their definitions are theirs to bring"
    finally:
        stop(yard)
