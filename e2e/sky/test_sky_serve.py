"""Services: replicas behind a load balancer, updates, scaling from zero, and what goes wrong."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import http.client
import pathlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from conftest import wait_for

import test_sky_jobs
from test_sky_jobs import Jobs
from test_sky_ssh import offered

jobs = test_sky_jobs.jobs
WAIT = 60

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (sys.argv[1] + " " + os.environ["SKYPILOT_SERVE_REPLICA_ID"]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer((os.environ["TRAINYARD_NODE_IP"], 8471), Handler).serve_forever()
"""


def service(of: Jobs, words: str, policy: str = "replicas: 2", run: str | None = None) -> str:
    run = run or f"exec python3 ~/sky_workdir/server.py {words}"
    of.write("code/server.py", SERVER)
    text = f"""
name: web
resources: {{infra: local}}
workdir: code
service:
  readiness_probe: /
  ports: 8471
  {policy}
run: |
  {run}
"""
    return of.write(f"{words}.yaml", text)


def status(of: Jobs) -> str:
    return of.sky("serve", "status")


def endpoint(of: Jobs) -> tuple[str, int]:
    found = re.search(r"http://(127\.0\.0\.1):(\d+)", of.sky("serve", "status", "web", "--endpoint"))
    return found.group(1), int(found.group(2))


def get(at: tuple[str, int], timeout: float = WAIT) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*at, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Load:
    """Requests without a break; the answers are counted."""

    def __init__(self, at: tuple[str, int]):
        self.at, self.answers, self.ends = at, collections.Counter(), threading.Event()
        self.threads = [threading.Thread(target=self.go) for _ in range(4)]

    def go(self) -> None:
        while not self.ends.is_set():
            code, text = get(self.at)
            self.answers[code, text.split()[0] if code == 200 else text] += 1

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture(autouse=True)
def clean(jobs: Jobs) -> Iterator[None]:
    """Each test begins without services."""
    yield
    jobs.run("sky", "serve", "down", "-y", "--all", check=False, cwd=jobs.user)
    wait_for("the services to be gone", lambda: "No live services" in status(jobs), WAIT)


def up(of: Jobs, words: str = "one", policy: str = "replicas: 2") -> tuple[str, int]:
    of.sky("serve", "up", "-y", service(of, words, policy))
    wait_for("both replicas to be ready", lambda: re.search(r"READY +2/2", status(of)), WAIT)
    return endpoint(of)


def test_updates_lose_no_request_and_a_bad_one_stops(jobs: Jobs) -> None:
    at = up(jobs)
    assert {get(at)[1] for _ in range(8)} == {"one 1", "one 2"}
    with Load(at) as load:
        jobs.sky("serve", "update", "-y", "web", service(jobs, "two"))
        wait_for("version 2", lambda: re.search(r"^web +2 .*READY +2/2", status(jobs), re.M), WAIT)
        jobs.sky("serve", "update", "-y", "--mode", "blue_green", "web", service(jobs, "three"))
        wait_for("version 3", lambda: re.search(r"^web +3 .*READY +2/2", status(jobs), re.M), WAIT)
        jobs.sky("serve", "update", "-y", "web", service(jobs, "four", run="echo cannot start; exit 3"))
        stopped = "the update to version 4 has stopped: replica"
        wait_for("the update to stop", lambda: stopped in status(jobs), WAIT)
        wait_for("the old version alone", lambda: re.search(r"^web +3 .*READY +2/2", status(jobs), re.M), WAIT)
    assert {code for code, _ in load.answers} == {200}, load.answers
    assert {word for _, word in load.answers} == {"one", "two", "three"}
    assert "cannot start" in jobs.sky("serve", "logs", "web", re.search(r"web +(\d+) +4 .*FAILED", status(jobs)).group(1), "--no-follow")
    assert "Services\nNo live services." not in jobs.sky("status")
    assert "No in-progress managed jobs" in jobs.sky("status"), "replicas are no jobs of a user"
    jobs.sky("serve", "down", "-y", "web")
    wait_for("the service to be gone", lambda: "No live services" in status(jobs), WAIT)
    test_sky_jobs.nothing_left(jobs)


def test_a_killed_replica_is_replaced_and_the_load_balancer_outlives_the_control_plane(jobs: Jobs) -> None:
    at = up(jobs)
    name = jobs.kubectl("get", "pods", "-o", "name").stdout
    assert "serve-web-balancer" in name
    killed = subprocess.run(["pkill", "-9", "-f", "server.py one"], check=False)
    assert killed.returncode == 0
    # both are dead: the next request waits for one that is new, unless a connection was made before
    assert get(at)[0] in (200, 502)
    wait_for("both to have failed", lambda: len(re.findall(r"web +[12] +1 .*FAILED", status(jobs))) == 2, WAIT)
    wait_for("new replicas", lambda: re.search(r"READY +2/2", status(jobs)), WAIT)
    jobs.kill()
    assert get(at)[0] == 200
    jobs.up()
    assert get(at)[0] == 200
    wait_for("the same replicas", lambda: re.search(r"READY +2/2", status(jobs)), WAIT)


def test_requests_that_wait_at_zero_are_all_answered(jobs: Jobs) -> None:
    policy = "replica_policy: {min_replicas: 0, max_replicas: 1, target_qps_per_replica: 100, downscale_delay_seconds: 20}"
    jobs.sky("serve", "up", "-y", service(jobs, "zero", policy))
    wait_for("an endpoint", lambda: re.search(r"NO_REPLICA +0/0 +http", status(jobs)), WAIT)
    assert (offered(jobs, "serve", "down", ""), offered(jobs, "serve", "update", "w")) == (["web"], ["web"])
    at = endpoint(jobs)
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = collections.Counter(pool.map(lambda _: get(at), range(200)))
    assert answers == {(200, "zero 1"): 200}
    wait_for("the replica to be ended again", lambda: re.search(r"NO_REPLICA +0/0", status(jobs)), 3 * WAIT)


def test_a_service_answers_where_its_user_says(jobs: Jobs) -> None:
    address = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()[0]
    with socket.create_server((address, 0)) as held:
        taken = f"{address}:{held.getsockname()[1]}"
        said = jobs.sky("serve", "up", "-y", "--listen", taken, service(jobs, "one", "replicas: 1"))
        assert f"Everybody who can reach {taken} can send requests to this service." in said
        cannot = f"the load balancer cannot listen on {taken}: Address already in use"
        wait_for("the address to be refused", lambda: cannot in status(jobs), WAIT)
    wait_for("the address to be free", lambda: re.search(rf"READY +1/1 +http://{taken}", status(jobs)), WAIT)
    assert get((address, int(taken.split(":")[1]))) == (200, "one 1")
    # an update that names no address keeps it, one that names another moves there
    jobs.sky("serve", "update", "-y", "web", service(jobs, "two", "replicas: 1"))
    wait_for("version 2 at the same address", lambda: re.search(rf"^web +2 .*READY +1/1 +http://{taken}", status(jobs), re.M), WAIT)
    jobs.sky("serve", "update", "-y", "--listen", "127.0.0.1", "web", service(jobs, "three", "replicas: 1"))
    wait_for("version 3 on the loopback", lambda: re.search(r"^web +3 .*READY +1/1 +http://127.0.0.1:", status(jobs), re.M), WAIT)
    assert get(endpoint(jobs)) == (200, "three 3")
    with pytest.raises(ConnectionRefusedError):
        get((address, int(taken.split(":")[1])))


def test_wrong_input_is_named(jobs: Jobs) -> None:
    plain = jobs.write("plain.yaml", "run: echo\n")
    assert "Service section not found in the YAML file" in jobs.sky("serve", "up", "-y", plain, code=1)
    no_port = jobs.write("port.yaml", "service: {readiness_probe: /}\nrun: echo\n")
    assert "Must specify at least one port" in jobs.sky("serve", "up", "-y", no_port, code=1)
    pool = jobs.write("pool.yaml", "pool: {workers: 1}\n")
    assert "Service section not found" in jobs.sky("serve", "up", "-y", pool, code=1)
    assert "Service 'web' does not exist" in jobs.sky("serve", "update", "-y", "web", service(jobs, "one"), code=1)
    assert "Service 'web' does not exist" in jobs.sky("serve", "down", "-y", "web", code=102)
    assert "Service 'web' does not exist" in jobs.sky("serve", "logs", "web", "1", code=1)
    assert "Name one of" in jobs.sky("serve", "logs", "web", code=2)
    for wrong in ("everywhere", "0.0.0.0:x", "1.2.3.4:70000"):
        said = jobs.sky("serve", "up", "-y", "--listen", wrong, service(jobs, "one"), code=2)
        assert f"Invalid value for '--listen': '{wrong}' is not an address, such as 0.0.0.0 or 0.0.0.0:8080." in said
    up(jobs)
    assert "Service 'web' exists" in jobs.sky("serve", "up", "-y", service(jobs, "one"), code=1)
    assert "Replica 9 of service 'web' does not exist. It has 1, 2." in jobs.sky("serve", "logs", "web", "9", code=1)
    jobs.sky("serve", "down", "-y", "--replica-id", "1", "web")
    wait_for("another replica", lambda: re.search(r"^web +3 +1 .* READY", status(jobs), re.M), WAIT)


def test_secrets_of_a_service_are_in_a_secret_alone(jobs: Jobs) -> None:
    key, certificate = jobs.user / "key.pem", jobs.user / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"],
        check=True, capture_output=True,
    )
    text = pathlib.Path(jobs.user / service(jobs, "one", "replicas: 1")).read_text()
    text = text.replace("readiness_probe: /", "readiness_probe: {path: /, headers: {Authorization: Bearer hidden-word}}")
    text = text.replace("  ports: 8471", "  ports: 8471\n  tls: {keyfile: ~/key.pem, certfile: ~/cert.pem}")
    jobs.sky("serve", "up", "-y", jobs.write("tls.yaml", text))
    wait_for("the replica to be ready", lambda: re.search(r"READY +1/1 +https://", status(jobs)), WAIT)
    address = re.search(r"https://\S+", jobs.sky("serve", "status", "web", "--endpoint")).group()
    assert subprocess.run(["curl", "-sk", address], capture_output=True, text=True, check=True).stdout == "one 1"
    everything = jobs.kubectl("get", "servings,managedjobs,launches,configmaps,pods,events", "-o", "yaml").stdout
    assert "hidden-word" not in everything and "PRIVATE KEY" not in everything
    assert "hidden-word" not in jobs.sky("serve", "logs", "web", "--load-balancer", "--no-follow")
    jobs.sky("serve", "down", "-y", "web")
    wait_for("its Secret to be gone", lambda: "serve-web" not in jobs.kubectl("get", "secrets", "-o", "name").stdout, WAIT)
