"""What the API server connects to for its clients: ports of pods, and nothing else of the machine."""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for
from test_api import PODS, Raw

# Listens on all addresses, and on 127.0.0.1 with a child that nobody waits for.
SERVER = """
import http.server, os, sys
class Says(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"pod")
    def log_message(self, *args): pass
for address in ("", "127.0.0.1"):
    server = http.server.HTTPServer((address, 0), Says)
    name = sys.argv[1] + "/" + (address or "all")
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        server.serve_forever()
    os.wait()
    server.server_close()
    open(name + ".part", "w").write(str(server.server_port))
    os.rename(name + ".part", name)
import time
time.sleep(600)
"""


class Host(http.server.BaseHTTPRequestHandler):
    """A service of the machine that trusts every client that reaches it."""

    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[tuple[str, int]]]:
    """Services of the machine: on 127.0.0.1, on an address that a pod could have, on all addresses."""
    servers = [http.server.ThreadingHTTPServer((address, 0), Host) for address in ("127.0.0.1", "127.77.0.9", "0.0.0.0")]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_address[:2] for server in servers]
    for server in servers:
        server.shutdown()


@pytest.fixture(scope="module")
def raw(yard: Yard) -> Raw:
    return Raw(yard)


@pytest.fixture(scope="module")
def ports(raw: Raw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder = tmp_path_factory.mktemp("ports")
    command = [sys.executable, "-c", SERVER, str(folder)]
    pod = {"metadata": {"name": "serves"}, "spec": {"containers": [{"name": "c", "image": "i", "command": command}]}}
    wait_for("the namespace's service account", lambda: raw.call(PODS, "POST", pod)[0] == 201)
    wait_for("its servers", lambda: (folder / "127.0.0.1").exists() and running(raw, "serves"))
    yield {path.name: int(path.read_text()) for path in folder.iterdir()}
    # its daemons are no children of anything that the end of the module would kill
    raw.call(f"{PODS}/serves?gracePeriodSeconds=0", "DELETE")
    wait_for("its daemons to end", lambda: not daemons(folder))


def daemons(folder: pathlib.Path) -> list[str]:
    """Processes of the server's script."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def running(raw: Raw, name: str) -> bool:
    return raw.call(f"{PODS}/{name}")[1]["status"].get("phase") == "Running"


def claim(raw: Raw, name: str, address: str) -> None:
    """Says in the pod's status, as who may write it can, that the pod has this address."""
    patch = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    code, answer = raw.call(f"{PODS}/{name}/status", "PATCH", patch, headers)
    assert code == 200, answer


def proxied(raw: Raw, name: str, port: int) -> tuple[int, bytes]:
    answer = raw.open(f"{PODS}/{name}:{port}/proxy/x")
    return answer.status, answer.read()


def forwarded(yard: Yard, name: str, port: int) -> bytes:
    """What comes back through a forwarded port."""
    words = ["kubectl", "--kubeconfig", yard.kubeconfig, "port-forward", f"pod/{name}", f":{port}"]
    forward = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=yard.env)
    try:
        local = re.match(r"Forwarding from 127.0.0.1:(\d+) ->", forward.stdout.readline())[1]
        with socket.create_connection(("127.0.0.1", int(local)), timeout=30) as connection:
            connection.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            heard = b""
            while piece := connection.recv(65536):
                heard += piece
            return heard
    except ConnectionResetError:
        return b""
    finally:
        forward.kill()
        forward.wait()


def test_what_a_pod_listens_on_is_reached(yard: Yard, raw: Raw, ports: dict[str, int]) -> None:
    assert set(ports) == {"all", "127.0.0.1"}
    for port in ports.values():
        assert proxied(raw, "serves", port) == (200, b"pod")
        assert forwarded(yard, "serves", port).endswith(b"pod")


def test_no_other_service_is_reached_whatever_the_status_says(
    yard: Yard, raw: Raw, ports: dict[str, int], hosts: list[tuple[str, int]]
) -> None:
    server = int(raw.address.rsplit(":", 1)[1])
    claims = ["127.0.0.1", "127.77.0.9", "0.0.0.0", "169.254.169.254", "::1", "10.0.0.1", "255.255.255.255"]
    for address in claims:
        claim(raw, "serves", address)
        for port in [server, *(port for _, port in hosts)]:
            code, body = proxied(raw, "serves", port)
            assert (code, b"no process of the pod listens" in body) == (503, True), (address, port, body)
        # where the pod itself listens it is found all the same, not at the address that is claimed
        assert proxied(raw, "serves", ports["all"]) == (200, b"pod"), address
    claim(raw, "serves", "127.0.0.1")
    for port in [server, *(port for _, port in hosts)]:
        assert forwarded(yard, "serves", port) == b"", port
    assert Host.asked == []


def test_a_pod_of_no_node_of_ours_is_not_connected_to(raw: Raw, hosts: list[tuple[str, int]], tmp_path: pathlib.Path) -> None:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": hosts[0][1]}]}
    pod = {"metadata": {"name": "elsewhere"}, "spec": {"nodeName": "elsewhere", "containers": [container]}}
    assert raw.call(PODS, "POST", pod)[0] == 201
    claim(raw, "elsewhere", "127.0.0.1")
    for path in (f"elsewhere:{hosts[0][1]}", "elsewhere", f"http:elsewhere:{hosts[0][1]}"):
        code, answer = raw.call(f"{PODS}/{path}/proxy/")
        assert code == 503, answer
    streams = ("portforward?ports=1", "exec?command=id&stdout=1", "attach?stdout=1")
    for verb in streams:
        code, answer = raw.call(f"{PODS}/elsewhere/{verb}")
        assert code == 404 and answer["message"] == 'pods "elsewhere" not found', answer
    # the node of another agent
    assert raw.call("/api/v1/nodes", "POST", {"metadata": {"name": "elsewhere"}})[0] == 201
    for verb in streams:
        code, answer = raw.call(f"{PODS}/elsewhere/{verb}")
        assert code == 503 and "no node agent answers for the node" in json.dumps(answer), answer
    assert Host.asked == []
