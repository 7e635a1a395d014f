"""Every verb that users type, in kubectls from 1.27 on.

Three versions by default: the oldest, the newest, and one between. `KUBECTL_MATRIX=all` takes all that can be had; with
`KUBECTL_MATRIX_TABLE=FILE` what came of it is written there, as `kubectl_matrix.py` wants it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from conftest import Screen, Yard, wait_for

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.matrix.example"},
    "spec": {
        "group": "matrix.example", "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "description": "How many."}}},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        }],
    },
}  # fmt: skip

SERVER = """
import http.server, os, sys
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
open(sys.argv[1] + ".part", "w").write(str(server.server_port))
os.rename(sys.argv[1] + ".part", sys.argv[1])
print("serving", flush=True)
server.serve_forever()
"""


class Kubectl:
    """One version at work in a namespace of its own."""

    def __init__(self, yard: Yard, program: str, namespace: str, folder: pathlib.Path):
        self.yard, self.program, self.namespace, self.folder = yard, program, namespace, folder
        self.words = [program, "--kubeconfig", yard.kubeconfig, "-n", namespace]

    def __call__(self, *words: str, **options) -> str:
        return self.yard.kubectl("-n", self.namespace, *words, program=self.program, **options).stdout

    def fails(self, *words: str, **options) -> str:
        """What it says on stderr; it must not succeed."""
        done = self.yard.kubectl("-n", self.namespace, *words, program=self.program, check=False, **options)
        assert done.returncode != 0, f"{words} succeeded: {done.stdout}"
        return done.stderr

    def value(self, *words: str) -> dict:
        return json.loads(self("get", *words, "-o", "json"))

    def apply(self, *objects: dict) -> None:
        for body in objects:
            self("apply", "-f", "-", input=json.dumps(body))

    def pod(self, name: str, script: str, **labels: str) -> dict:
        container = {"name": "c", "image": "none", "command": ["sh", "-c", script]}
        meta = {"name": name, "labels": labels}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def config(name: str, value: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}}


def apply(k: Kubectl) -> None:
    assert "created" in k("apply", "-f", "-", input=json.dumps(config("a", "1")))
    assert "unchanged" in k("apply", "-f", "-", input=json.dumps(config("a", "1")))
    assert "configured" in k("apply", "-f", "-", input=json.dumps(config("a", "2")))
    assert "serverside-applied" in k("apply", "--server-side", "-f", "-", input=json.dumps(config("s", "1")))
    assert "unknown field" in k.fails("apply", "-f", "-", input=json.dumps({**config("a", "2"), "nonsense": 1}))


def diff(k: Kubectl) -> None:
    k.apply(config("d", "1"))
    done = k.yard.kubectl("-n", k.namespace, "diff", "-f", "-", input=json.dumps(config("d", "9")), program=k.program, check=False)
    assert done.returncode == 1 and re.search(r'\+\s+k: "9"', done.stdout), done.stdout + done.stderr
    assert k("diff", "-f", "-", input=json.dumps(config("d", "1"))) == ""


def create(k: Kubectl) -> None:
    for words in (
        ["configmap", "made", "--from-literal=a=b"], ["secret", "generic", "made", "--from-literal=a=b"],
        ["serviceaccount", "made"], ["role", "made", "--verb=get", "--resource=pods"],
        ["rolebinding", "made", "--role=made", "--user=eve"], ["quota", "made", "--hard=pods=100"],
        ["job", "made", "--image=none", "--", "true"],
    ):  # fmt: skip
        assert "created" in k("create", *words), words
    assert len(k("create", "token", "made").split(".")) == 3


def get(k: Kubectl) -> None:
    k.apply(config("g", "1"))
    assert "g" in k("get", "cm").split() and k("get", "cm", "g", "-o", "name") == "configmap/g\n"
    assert k("get", "cm", "g", "-o", "jsonpath={.data.k}") == "1"
    assert "SERVER" not in k("get", "cm,secret,sa", "--ignore-not-found") and "k: \"1\"" in k("get", "cm", "g", "-o", "yaml")
    assert "g" in k("get", "cm", "--field-selector=metadata.name=g", "--sort-by=.metadata.name", "-o", "wide")
    assert 'configmaps "none" not found' in k.fails("get", "cm", "none")


def watch(k: Kubectl) -> None:
    process = subprocess.Popen([*k.words, "get", "cm", "-w", "-o", "name"], stdout=subprocess.PIPE, text=True)
    try:
        assert "configmap/" in process.stdout.readline()
        k.apply(config("watched", "1"))
        while "configmap/watched" not in process.stdout.readline():
            pass
    finally:
        process.kill()
        process.wait()


def describe(k: Kubectl) -> None:
    assert re.search(r"Node:\s+\S+/", k("describe", "pod", "server")) and "Scheduled" in k("describe", "pod", "server")
    assert "Allocated resources" in k("describe", "node")


def edit(k: Kubectl) -> None:
    k.apply(config("e", "before"))
    editor = k.folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i s/before/after/ \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in k("edit", "cm", "e", env={**k.yard.env, "KUBE_EDITOR": str(editor)})
    assert k.value("cm", "e")["data"]["k"] == "after"


def replace(k: Kubectl) -> None:
    k.apply(config("r", "1"))
    assert "replaced" in k("replace", "-f", "-", input=json.dumps({**config("r", "2")}))
    assert "replaced" in k("replace", "--force", "-f", "-", input=json.dumps({**config("r", "3")}))
    assert k.value("cm", "r")["data"]["k"] == "3"


def patch(k: Kubectl) -> None:
    k.apply(config("p", "1"))
    k("patch", "cm", "p", "-p", '{"data":{"strategic":"x"}}')
    k("patch", "cm", "p", "--type=merge", "-p", '{"data":{"merge":"x"}}')
    k("patch", "cm", "p", "--type=json", "-p", '[{"op":"add","path":"/data/json","value":"x"}]')
    assert set(k.value("cm", "p")["data"]) == {"k", "strategic", "merge", "json"}
    k.apply({"apiVersion": "matrix.example/v1", "kind": "Widget", "metadata": {"name": "p"}, "spec": {"replicas": 1}})
    k("patch", "widget", "p", "--subresource=status", "--type=merge", "-p", '{"status":{"replicas":3}}')
    assert k.value("widget", "p")["status"] == {"replicas": 3}


def label_and_annotate(k: Kubectl) -> None:
    k.apply(config("l", "1"))
    k("label", "cm", "l", "team=a")
    assert "already has a value" in k.fails("label", "cm", "l", "team=b")
    k("label", "cm", "l", "team=b", "--overwrite")
    k("annotate", "cm", "l", "note=x")
    meta = k.value("cm", "l")["metadata"]
    assert meta["labels"]["team"] == "b" and meta["annotations"]["note"] == "x"
    k("label", "cm", "l", "team-")
    assert k("get", "cm", "-l", "team", "-o", "name") == ""


def scale(k: Kubectl) -> None:
    k.apply({"apiVersion": "matrix.example/v1", "kind": "Widget", "metadata": {"name": "s"}, "spec": {"replicas": 1}})
    assert "scaled" in k("scale", "widget", "s", "--replicas=5", "--current-replicas=1")
    assert k.value("widget", "s")["spec"]["replicas"] == 5


def explain(k: Kubectl) -> None:
    assert "How many." in k("explain", "widget.spec.replicas") and "numNodes" in k("explain", "trainjob.spec.trainer")
    assert "RESOURCE" in k("explain", "pod.spec.containers") or "FIELD" in k("explain", "pod.spec.containers")


def api_resources(k: Kubectl) -> None:
    kinds = k("api-resources")
    assert all(f" {kind}\n" in kinds for kind in ("Widget", "TrainJob", "Pod", "PodMetrics")), kinds
    assert "matrix.example/v1" in k("api-versions") and "Server Version" in k("version")
    assert "is running at" in k("cluster-info")


def auth(k: Kubectl) -> None:
    assert k("auth", "can-i", "create", "pods") == "yes\n"
    assert "no" in k.yard.kubectl("auth", "can-i", "create", "pods", "--as", "eve", program=k.program, check=False).stdout
    assert "*.*" in k("auth", "can-i", "--list")
    if not k.program.endswith("1.27"):  # it asks for a version of the review that Kubernetes 1.36 does not serve either
        assert "system:masters" in k("auth", "whoami")


def logs(k: Kubectl) -> None:
    twice = {**k.pod("twice", "echo try; test -e $D/again || { : > $D/again; exit 1; }; sleep 1000", app="twice")}
    twice["spec"]["containers"][0]["env"] = [{"name": "D", "value": str(k.folder)}]
    twice["spec"]["containers"].append({"name": "other", "image": "none", "command": ["sh", "-c", "echo other; sleep 1000"]})
    k.apply(twice)
    restarted = lambda: [s for s in k.value("pod", "twice")["status"].get("containerStatuses", []) if s["restartCount"]]
    wait_for("a restart", restarted, 30)
    assert k("logs", "twice", "-c", "c", "--previous") == "try\n"
    wait_for("both", lambda: sorted(k("logs", "twice", "--all-containers").split()) == ["other", "try"])
    assert "other" in k("logs", "-l", "app=twice", "--all-containers", "--prefix", "--tail=1")
    brief = k.pod("brief", "echo one; sleep 0.3; echo two")
    brief["spec"]["restartPolicy"] = "Never"
    k.apply(brief)
    wait_for("it to run", lambda: k.value("pod", "brief")["status"]["phase"] != "Pending")
    assert k("logs", "-f", "brief", "--timestamps").count("Z ") == 2


def exec(k: Kubectl) -> None:
    done = subprocess.run([*k.words, "exec", "server", "--", "sh", "-c", "echo out; exit 7"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (7, "out\n"), done.stderr
    assert k("exec", "-i", "server", "--", "cat", input="through\n") == "through\n"


def exec_in_a_terminal(k: Kubectl) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    script = "trap 'echo caught; exit 4' INT; while :; do stty size; sleep 0.05; done"
    running = subprocess.Popen([*k.words, "exec", "-it", "server", "--", "sh", "-c", script],
                               stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
    os.close(theirs)
    screen = Screen(ours)
    try:
        wait_for("the size", lambda: screen.says(b"31 97"), 20)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.kill(running.pid, signal.SIGWINCH)
        wait_for("the new size", lambda: screen.says(b"40 120"), 20)
        os.write(ours, b"\x03")
        wait_for("the trap", lambda: screen.says(b"caught"), 20)
        assert running.wait(20) == 4
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def attach(k: Kubectl) -> None:
    k.apply(k.pod("ticks", "while :; do echo tick; sleep 0.1; done"))
    k("wait", "pod/ticks", "--for=condition=Ready", "--timeout=30s")
    process = subprocess.Popen([*k.words, "attach", "ticks"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == "tick\n" == process.stdout.readline()
    finally:
        process.kill()
        process.wait()


def cp(k: Kubectl) -> None:
    tree = k.folder / "tree"
    (tree / "in a folder").mkdir(parents=True)
    (tree / "large").write_bytes(os.urandom(3_000_000))
    (tree / "in a folder" / "small").write_text("x")
    k("cp", str(tree), f"server:{k.folder}/there")
    k("cp", f"server:{k.folder}/there", str(k.folder / "back"))
    assert subprocess.run(["diff", "-r", tree, k.folder / "back"], capture_output=True).returncode == 0


def port_forward(k: Kubectl) -> None:
    port = (k.folder / "port").read_text()
    process = subprocess.Popen([*k.words, "port-forward", "pod/server", f":{port}"], stdout=subprocess.PIPE, text=True)
    try:
        local = re.search(r":(\d+) -> ", process.stdout.readline()).group(1)
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=20) as answer:
                assert answer.status == 200 and answer.read()
    finally:
        process.kill()
        process.wait()


def top(k: Kubectl) -> None:
    assert re.search(r"server\s+\d+m\s+\d+Mi", k("top", "pod")) and re.search(r"\d+%", k("top", "node"))
    assert "server" in k("top", "pod", "--containers", "--sum")


def wait(k: Kubectl) -> None:
    brief = k.pod("brief-wait", "sleep 0.2")
    brief["spec"]["restartPolicy"] = "Never"
    k.apply(brief)
    assert "condition met" in k("wait", "pod/brief-wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s")
    assert "timed out" in k.fails("wait", "pod/server", "--for=condition=Nonsense", "--timeout=1s")
    k("delete", "pod", "brief-wait", "--wait=false")
    k("wait", "pod/brief-wait", "--for=delete", "--timeout=30s")


def events(k: Kubectl) -> None:
    assert "Scheduled" in k("events", "--for", "pod/server") and "Scheduled" in k("get", "events")


def cordon_and_drain(k: Kubectl) -> None:
    (node,) = (item["metadata"]["name"] for item in k.value("nodes")["items"])
    k.apply(k.pod("drained", "sleep 1000", drain=k.namespace))
    k("wait", "pod/drained", "--for=condition=Ready", "--timeout=30s")
    try:
        assert "cordoned" in k("cordon", node) and "SchedulingDisabled" in k("get", "node", node)
        words = ["drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector", f"drain={k.namespace}"]
        assert "evict" in k(*words, "--timeout=30s").lower()
        assert 'pods "drained" not found' in k.fails("get", "pod", "drained")
    finally:
        k("uncordon", node)
    k("taint", "node", node, "matrix=x:PreferNoSchedule")
    k("taint", "node", node, "matrix-")


def debug(k: Kubectl) -> None:
    """By a copy of the pod; an ephemeral container is refused with what to do instead."""
    k.apply(k.pod("original", "sleep 1000"))
    k("debug", "original", "--copy-to=copy", "-c", "c", "--", "sh", "-c", "echo debugging; sleep 1000")
    wait_for("its output", lambda: "debugging" in k.yard.kubectl("-n", k.namespace, "logs", "copy", check=False).stdout, 20)
    assert "kubectl exec -it original -- sh" in k.fails("debug", "original", "--image=none", "--", "true")


def run_and_expose(k: Kubectl) -> None:
    assert "created" in k("run", "ran", "--image=none", "--restart=Never", "--labels=app=ran", "--port=80", "--command", "--", "sleep", "1000")
    assert "exposed" in k("expose", "pod", "ran")
    assert k("run", "once", "--image=none", "--restart=Never", "--rm", "-i", "--quiet", "--command", "--", "sh", "-c", "sleep 0.5; echo done").startswith("done")


def rollout(k: Kubectl) -> None:
    k("create", "deployment", "kept", "--image=none")
    assert "timed out" in k.fails("rollout", "status", "deployment/kept", "--timeout=1s")
    assert "restarted" in k("rollout", "restart", "deployment/kept") and "deleted" in k("delete", "deployment", "kept")


def delete(k: Kubectl) -> None:
    k.apply(config("x", "1"), config("y", "1"))
    assert "deleted" in k("delete", "cm", "x") and 'configmaps "x" not found' in k.fails("delete", "cm", "x")
    k("label", "cm", "y", "gone=yes")
    assert "deleted" in k("delete", "cm", "-l", "gone=yes")
    k.apply(k.pod("doomed", "sleep 1000"))
    assert "deleted" in k("delete", "pod", "doomed", "--now") and "deleted" in k("delete", "pod", "server", "--force", "--grace-period=0")


VERBS: list[Callable[[Kubectl], None]] = [
    apply, diff, create, get, watch, describe, edit, replace, patch, label_and_annotate, scale, explain, api_resources, auth,
    logs, exec, exec_in_a_terminal, attach, cp, port_forward, top, wait, events, cordon_and_drain, debug, run_and_expose,
    rollout, delete,
]  # fmt: skip


def chosen(kubectls: dict[str, str]) -> list[str]:
    versions = sorted(kubectls, key=lambda version: int(version.split(".")[1]))
    if os.environ.get("KUBECTL_MATRIX") == "all":
        return versions
    return sorted({versions[0], versions[len(versions) // 2], versions[-1]}, key=versions.index)


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, dict[str, str]]]:
    """What came of each verb, by version; empty: it works."""
    found: dict[str, dict[str, str]] = {}
    yield found
    if file := os.environ.get("KUBECTL_MATRIX_TABLE"):
        names = [verb.__name__.replace("_", " ") for verb in VERBS]
        pathlib.Path(file).write_text(json.dumps({"verbs": names, "results": found}))


def test_matrix(
    yard: Yard, kubectls: dict[str, str], tmp_path_factory: pytest.TempPathFactory, results: dict[str, dict[str, str]]
) -> None:
    yard.kubectl("apply", "-f", "-", input=json.dumps(WIDGETS))
    yard.kubectl("wait", "crd/widgets.matrix.example", "--for=condition=Established", "--timeout=30s")
    for version in chosen(kubectls):
        namespace, folder = "m" + version.replace(".", "-"), tmp_path_factory.mktemp("matrix")
        yard.kubectl("create", "namespace", namespace)
        k = Kubectl(yard, kubectls[version], namespace, folder)
        server = k.pod("server", "")
        server["spec"]["containers"][0]["command"] = [sys.executable, "-c", SERVER, str(folder / "port")]
        k.apply(server)
        wait_for("the server", (folder / "port").exists)
        outcome = results.setdefault(version, {})
        for verb in VERBS:
            try:
                verb(k)
                outcome[verb.__name__.replace("_", " ")] = ""
            except (AssertionError, subprocess.SubprocessError, pytest.fail.Exception, OSError) as error:
                outcome[verb.__name__.replace("_", " ")] = str(error) or type(error).__name__
        yard.kubectl("delete", "namespace", namespace, "--wait=false")
    failed = {f"{version} {verb}": why for version, all in results.items() for verb, why in all.items() if why}
    assert not failed, "\n".join(f"{what}: {why}" for what, why in failed.items())
