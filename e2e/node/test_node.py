"""Agents whose API server is on another machine: they dial out, and may do what concerns their own pods alone."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from conftest import BINARY, Yard, stop, wait_for


class Agent:
    """`trainyard node` with a folder of its own."""

    def __init__(self, yard: Yard, folder: pathlib.Path, name: str, *flags: str):
        self.yard, self.folder, self.name, self.flags = yard, folder, name, flags
        folder.mkdir(parents=True)
        self.kubeconfig = folder / "kubeconfig"
        self.data = folder / "data"
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(yard.run("kubeconfig", "--node", name).stdout)
        self.start()

    def start(self) -> None:
        words = [BINARY, "node", "-v", "--kubeconfig", self.kubeconfig, "--data", self.data, *self.flags]
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> subprocess.CompletedProcess:
        """Ends the agent and its pods."""
        done = subprocess.run([BINARY, "node", "--data", self.data, "--end"], capture_output=True, text=True, timeout=60)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        return done

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json", **headers: str) -> tuple[int, dict]:
        """A request as this node."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": kind, **headers}
        request = urllib.request.Request(cluster["server"] + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def ready(yard: Yard, name: str) -> str:
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    return yard.kubectl("get", "node", name, "-o", f"jsonpath={path}", check=False).stdout


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Yard, Agent, Agent]]:
    yard = Yard(tmp_path_factory.mktemp("home"), "--no-node")
    agents: list[Agent] = []
    try:
        for name in ("one", "two"):
            folder = tmp_path_factory.mktemp("machine") / name
            agents.append(Agent(yard, folder, name, "--labels", f"mine={name}", "--capacity", "cpu=64"))
        for agent in agents:
            wait_for("the node to be ready", lambda agent=agent: ready(yard, agent.name) == "True", 60)
        yield yard, *agents
    finally:
        ended = [agent.end() for agent in agents]
        stop(yard)
    for done in ended:
        assert done.returncode == 0, done.stderr


def pod(name: str, node: str, script: str, **spec: object) -> dict:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    container |= spec.pop("container", {})
    spec = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def apply(yard: Yard, *objects: dict) -> None:
    yard.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def phase(yard: Yard, name: str) -> str:
    return yard.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}", check=False).stdout


def test_pods_run_and_are_reached(nodes: tuple[Yard, Agent, Agent]) -> None:
    yard, one, _ = nodes
    serve = "import socket;s=socket.create_server(('127.0.0.1',18471));c=s.accept()[0];c.sendall(c.recv(9)[::-1]);c.close()"
    script = f"echo begun; python3 -c \"{serve}\"; echo served; sleep 1000"
    apply(yard, pod("reached", "one", script))
    wait_for("the pod to run", lambda: phase(yard, "reached") == "Running")
    assert yard.kubectl("logs", "reached").stdout == "begun\n"
    done = yard.kubectl("exec", "-i", "reached", "--", "sh", "-c", "tr a-z A-Z; echo err >&2; exit 7", input="abc\n" * 20000, check=False)
    assert (done.returncode, done.stdout) == (7, "ABC\n" * 20000), done.stderr
    assert done.stderr.startswith("err\n")
    done = yard.kubectl("exec", "reached", "--", "nothing-of-the-sort", check=False)
    assert done.returncode != 0 and "nothing-of-the-sort" in done.stderr
    follow = subprocess.Popen(["kubectl", "--kubeconfig", yard.kubeconfig, "logs", "-f", "reached"], stdout=subprocess.PIPE, text=True)
    forward = subprocess.Popen(["kubectl", "--kubeconfig", yard.kubeconfig, "port-forward", "pod/reached", ":18471"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(forward.stdout.readline().split(":")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"abc")
            assert connection.recv(9) == b"cba"
        assert [follow.stdout.readline() for _ in range(2)] == ["begun\n", "served\n"]
    finally:
        for process in (follow, forward):
            process.terminate()
            process.wait()
    found = json.loads(yard.kubectl("get", "node", "one", "-o", "json").stdout)
    assert found["metadata"]["labels"]["mine"] == "one" and found["status"]["capacity"]["cpu"] == "64"
    # no port is listened on but by the pod
    listening = subprocess.run(["sh", "-c", f"ls -l /proc/{one.process.pid}/fd | grep -o 'socket:.*'"], capture_output=True, text=True).stdout
    inodes = {line.strip("socket:[]") for line in listening.split()}
    tables = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    assert not [fields for fields in tables if fields[3] == "0A" and fields[9] in inodes]
    yard.kubectl("delete", "pod", "reached", "--now")


def test_a_control_plane_that_dies_is_told_later(nodes: tuple[Yard, Agent, Agent], tmp_path: pathlib.Path) -> None:
    yard, one, _ = nodes
    go = tmp_path / "go"
    script = f"echo once >> {tmp_path}/starts; until [ -e {go} ]; do sleep 0.05; done; echo bye; exit 7"
    apply(yard, pod("survivor", "one", script))
    wait_for("the pod to run", lambda: phase(yard, "survivor") == "Running")
    yard.kill()
    go.touch()
    one.kill()
    one.start()
    wait_for("the shim to end", lambda: not [line for line in processes(str(one.data)) if "shim" in line])
    yard.up()
    wait_for("its end to be told", lambda: phase(yard, "survivor") == "Failed", 90)
    status = json.loads(yard.kubectl("get", "pod", "survivor", "-o", "json").stdout)["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["exitCode"] == 7 and status["restartCount"] == 0
    assert (tmp_path / "starts").read_text() == "once\n"
    wait_for("the log", lambda: yard.kubectl("logs", "survivor", check=False).stdout == "bye\n")


def processes(word: str) -> list[str]:
    """Command lines that name this."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if word in line:
                    found.append(line)
    return found


def test_a_node_reads_what_its_pods_use_alone(nodes: tuple[Yard, Agent, Agent]) -> None:
    yard, one, two = nodes
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"key": name}}
        for name in ("of-one", "of-two", "of-nobody")
    ]
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map-of-two"}, "data": {"a": "b"}}]
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}} for name in ("sa-one", "sa-two")]
    apply(yard, *secrets, *maps, *accounts)

    def with_secret(agent: Agent) -> dict:
        name = agent.name
        env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": f"of-{name}", "key": "key"}}}]
        volumes = [{"name": "m", "configMap": {"name": "map-of-two"}}] if name == "two" else []
        return pod(f"rights-{name}", name, "echo $S; sleep 1000", serviceAccountName=f"sa-{name}", volumes=volumes, container={"env": env})

    apply(yard, with_secret(one), with_secret(two))
    for agent in (one, two):
        wait_for("the pod's line", lambda agent=agent: yard.kubectl("logs", f"rights-{agent.name}", check=False).stdout == f"of-{agent.name}\n")

    def code(*words: object, **more: object) -> int:
        return one.call(*words, **more)[0]

    core = "/api/v1/namespaces/default"
    assert code("GET", f"{core}/secrets/of-one") == 200
    for path in ("secrets/of-two", "secrets/of-nobody", "secrets", "configmaps/map-of-two", "pods/rights-two", "pods"):
        status, answer = one.call("GET", f"{core}/{path}")
        assert status == 403 and "system:node:one" in answer["message"], (path, answer)
    for path in ("/api/v1/secrets", "/api/v1/secrets?fieldSelector=metadata.name%3Dof-one", "/api/v1/pods", "/api/v1/pods?fieldSelector=spec.nodeName%3Dtwo", "/api/v1/nodes", "/api/v1/nodes/two",
                 "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%21%3Done", "/trainyard/backup", "/trainyard/damaged", "/metrics"):  # fmt: skip
        assert code("GET", path) == 403, path
    assert code("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done") == 200
    for path in ("log", "exec?command=id&stdout=true", "attach?stdout=true", "portforward"):
        assert code("GET", f"{core}/pods/rights-one/{path}") == 403, path
    patch = "application/merge-patch+json"
    for path, body, expected in (
        ("/api/v1/nodes/two/status", {"status": {"capacity": {"cpu": "1"}}}, 403),
        ("/api/v1/nodes/two", {"metadata": {"labels": {"a": "b"}}}, 403),
        ("/api/v1/nodes/one", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, 403),
        ("/api/v1/nodes/one", {"metadata": {"labels": {"sky.trainyard.dev/cluster": "theirs"}}}, 403),
        ("/api/v1/nodes/one", {"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}, 403),
        ("/api/v1/nodes/one/status", {"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}, 403),
        ("/api/v1/nodes/one/status", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "two", "uid": "u"}]}}, 403),
        ("/api/v1/nodes/one/status", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, 403),
        ("/api/v1/nodes/one", {"metadata": {"labels": {"speed": "high"}}}, 200),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/two", {"spec": {"leaseDurationSeconds": 1}}, 403),
        (f"{core}/pods/rights-two/status", {"status": {"phase": "Failed"}}, 403),
        (f"{core}/pods/rights-one", {"metadata": {"labels": {"a": "b"}}}, 403),
        (f"{core}/secrets/of-one", {"data": {}}, 403),
    ):
        status, answer = one.call("PATCH", path, body, patch)
        assert status == expected, (path, body, answer)
    assert code("DELETE", f"{core}/pods/rights-two") == 403 and code("DELETE", "/api/v1/nodes/one") == 403
    assert code("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "three"}}) == 403
    assert code("POST", f"{core}/pods", pod("mine", "one", "true")) == 403
    uid = {n: yard.kubectl("get", "pod", f"rights-{n}", "-o", "jsonpath={.metadata.uid}").stdout for n in ("one", "two")}

    def token(account: str, of: str | None, **spec: object) -> int:
        reference = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": f"rights-{of}", "uid": uid[of]}} if of else {}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {**reference, **spec}}
        return code("POST", f"{core}/serviceaccounts/{account}/token", request)

    assert token("sa-one", "one") == 201
    assert token("sa-one", None) == 403 and token("sa-two", "two") == 403 and token("sa-one", "one", audiences=["bank"]) == 403
    status, answer = one.call("GET", "/trainyard/tunnel", Connection="Upgrade", Upgrade="trainyard-node/0", **{"Trainyard-Version": "0.0.1"})
    assert status == 426 and "trainyard 0.0.1" in answer["message"] and "same version" in answer["message"]
    admin = yard.kubectl("get", "--raw", "/trainyard/tunnel", check=False)
    assert admin.returncode != 0 and "not the agent of a node" in admin.stderr
    yard.kubectl("delete", "pod", "rights-one", "rights-two", "--now")
    wait_for("the pod to be gone", lambda: code("GET", f"{core}/secrets/of-one") == 403)


def test_bad_files_are_refused(nodes: tuple[Yard, Agent, Agent], tmp_path: pathlib.Path) -> None:
    yard, one, _ = nodes

    def node(path: pathlib.Path, data: pathlib.Path) -> str:
        done = subprocess.run([BINARY, "node", "--kubeconfig", path, "--data", data], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        return done.stderr

    loose = tmp_path / "loose"
    loose.write_text(one.kubeconfig.read_text())
    loose.chmod(0o640)
    assert f"chmod 600 {loose}" in node(loose, tmp_path / "data") and not (tmp_path / "data").exists()
    assert "no user system:node:NAME" in node(pathlib.Path(yard.kubeconfig), tmp_path / "data")
    assert f"an agent already runs with {one.data}" in node(one.kubeconfig, one.data)


def test_nothing_is_left(nodes: tuple[Yard, Agent, Agent], tmp_path: pathlib.Path) -> None:
    yard, _, _ = nodes
    agent = Agent(yard, tmp_path / "three", "three")
    try:
        wait_for("the node to be ready", lambda: ready(yard, "three") == "True")
        apply(yard, pod("left", "three", "trap '' TERM; setsid sleep 98765 & sleep 98765"))
        wait_for("the pod to run", lambda: phase(yard, "left") == "Running")
        wait_for("its process", lambda: len(processes("sleep 98765")) >= 2)
    finally:
        done = agent.end()
    assert done.returncode == 0, done.stderr
    assert not agent.data.exists() and not processes(str(agent.data))
    assert not [line for line in processes("98765") if line.startswith("sleep")]
    assert "/three/" not in pathlib.Path("/proc/mounts").read_text()
    token_is_known = agent.call("GET", "/api/v1/nodes/three")[0]
    yard.kubectl("delete", "node", "three")
    assert (token_is_known, agent.call("GET", "/api/v1/nodes/three")[0]) == (200, 401)
    yard.kubectl("delete", "pod", "left", "--force", "--grace-period=0")


def test_an_agent_answers_for_no_node_that_was_made_anew(nodes: tuple[Yard, Agent, Agent], tmp_path: pathlib.Path) -> None:
    yard, _, _ = nodes
    agent = Agent(yard, tmp_path / "four", "four")
    run = lambda: yard.kubectl("exec", "kept", "--", "echo", "old", check=False)
    try:
        wait_for("the node to be ready", lambda: ready(yard, "four") == "True")
        apply(yard, pod("kept", "four", "sleep 1000"))
        wait_for("the pod to run", lambda: phase(yard, "kept") == "Running")
        wait_for("commands to run", lambda: run().stdout == "old\n")
        # an agent may add finalizers to its Node: they keep the object, and none of its rights
        hold = {"metadata": {"finalizers": ["example.com/stay"]}}
        assert agent.call("PATCH", "/api/v1/nodes/four", hold, "application/merge-patch+json")[0] == 200
        yard.kubectl("delete", "node", "four", "--wait=false")
        assert agent.call("GET", "/api/v1/nodes/four")[0] == 401
        yard.kubectl("patch", "node", "four", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        yard.run("kubeconfig", "--node", "four")  # it makes the Node anew, which no agent serves
        done = run()
        assert done.returncode != 0 and "not connected" in done.stderr, (done.stdout, done.stderr)
        assert agent.call("GET", "/api/v1/nodes/four")[0] == 401
    finally:
        agent.end()
        yard.kubectl("delete", "pod", "kept", "--force", "--grace-period=0", "--ignore-not-found")
        yard.kubectl("delete", "node", "four", "--ignore-not-found")


def test_a_silent_node_is_not_ready_and_its_pods_go_on(nodes: tuple[Yard, Agent, Agent], tmp_path: pathlib.Path) -> None:
    yard, _, two = nodes
    yard.kubectl("delete", "pod", "lasting", "--force", "--grace-period=0", "--ignore-not-found")
    apply(yard, pod("lasting", "two", f"echo once >> {tmp_path}/starts; sleep 1000"))
    wait_for("the pod to run", lambda: phase(yard, "lasting") == "Running")
    # one that is connected is alive without renewals
    lease = lambda name: json.loads(yard.kubectl("get", "lease", "-n", "kube-node-lease", name, "-o", "json").stdout)["spec"]
    wait_for("leases of nodes that are connected", lambda: all(lease(name)["leaseDurationSeconds"] == 1200 for name in ("one", "two")))
    renewed = lease("one")["renewTime"]
    os.kill(two.process.pid, signal.SIGSTOP)
    try:
        since = time.monotonic()
        wait_for("the node to be given up", lambda: ready(yard, "two") == "Unknown", 90)
        assert time.monotonic() - since > 20
        assert ready(yard, "one") == "True" and lease("one")["renewTime"] == renewed
        done = yard.kubectl("exec", "lasting", "--", "true", check=False)
        assert done.returncode != 0 and "not connected" in done.stderr, done.stderr
    finally:
        os.kill(two.process.pid, signal.SIGCONT)
    wait_for("the node to be back", lambda: ready(yard, "two") == "True", 30)
    wait_for("commands to run", lambda: yard.kubectl("exec", "lasting", "--", "true", check=False).returncode == 0)
    assert phase(yard, "lasting") == "Running" and (tmp_path / "starts").read_text() == "once\n"
    yard.kubectl("delete", "pod", "lasting", "--now")
