"""Requests that try to break the control plane: it answers each of them, and goes on for everybody else."""

from __future__ import annotations

import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from conftest import Yard, stop, wait_for
from test_api import CONFIGMAPS, PODS, Raw

JOBS = "/apis/batch/v1/namespaces/default/jobs"
LIMITS = [10**12, 2**62, 2**63 - 1]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("hostile"))
    yield yard
    stop(yard)


@pytest.fixture(scope="module")
def raw(yard: Yard) -> Raw:
    return Raw(yard)


def job(name: str, command: list[str], **spec: object) -> dict:
    container = {"name": "c", "image": "i", "command": command}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def test_seconds_at_their_limits_stop_no_controller(raw: Raw) -> None:
    """40 such Jobs once ended all 32 workers, after which no Job ever completed."""
    for i in range(40):
        code, answer = raw.call(JOBS, "POST", job(f"long-{i}", ["true"], activeDeadlineSeconds=2**63 - 1, suspend=i % 2 == 0))
        assert code == 201, answer
    assert raw.call(JOBS, "POST", job("plain", ["true"]))[0] == 201
    done = lambda: raw.call(f"{JOBS}/plain")[1]["status"].get("succeeded") == 1
    wait_for("a plain job to complete beside them", done)
    for i in range(40):
        body = {"propagationPolicy": "Foreground", "gracePeriodSeconds": LIMITS[i % 3]}
        assert raw.call(f"{JOBS}/long-{i}", "DELETE", body)[0] in (200, 202)
    gone = lambda: not [name for name in raw.names(JOBS) if name.startswith("long-")]
    wait_for("garbage collection to go on", gone)


def test_seconds_of_requests_at_their_limits_are_answered(raw: Raw) -> None:
    assert raw.call(JOBS, "POST", job("sleeps", ["sleep", "600"]))[0] == 201
    running = lambda: [
        p["metadata"]["name"] for p in raw.call(PODS)[1]["items"]
        if p["metadata"]["name"].startswith("sleeps") and p["status"].get("phase") == "Running"
    ]  # fmt: skip
    pod = wait_for("the pod to run", running)[0]
    version = raw.call(CONFIGMAPS)[1]["metadata"]["resourceVersion"]
    for seconds in [-(2**63), *LIMITS]:
        log = raw.open(f"{PODS}/{pod}/log?sinceSeconds={seconds}")
        assert log.status == (422 if seconds < 0 else 200), log.read()
        watch = raw.open(f"{CONFIGMAPS}?watch=1&timeoutSeconds={seconds}&resourceVersion={version}")
        assert watch.status == 200
        watch.close()
        code, answer = raw.call(f"{PODS}/{pod}?gracePeriodSeconds={seconds}&dryRun=All", "DELETE")
        assert code < 500, answer
    code, answer = raw.call(f"{PODS}/{pod}?gracePeriodSeconds={LIMITS[2]}", "DELETE")
    assert code == 200, answer
    assert answer["metadata"]["deletionTimestamp"].startswith("9999-")
    assert raw.call(f"{PODS}/{pod}?gracePeriodSeconds=0", "DELETE")[0] == 200


def test_copies_of_an_object_into_itself_are_refused(raw: Raw, yard: Yard, tmp_path: pathlib.Path) -> None:
    assert raw.call(CONFIGMAPS, "POST", {"metadata": {"name": "copied"}, "data": {"k": "v"}})[0] == 201
    patch = [{"op": "copy", "from": "/metadata", "path": "/metadata/a"}] * 200
    headers = {"Content-Type": "application/json-patch+json"}
    code, answer = raw.call(f"{CONFIGMAPS}/copied", "PATCH", patch, headers)
    assert 400 <= code < 500, answer
    large = {"metadata": {"name": "large"}, "data": {f"k{i}": "x" * 100_000 for i in range(16)}}
    code, answer = raw.call(CONFIGMAPS, "POST", large)
    assert code in (413, 422), answer
    yard.kill()
    yard.up()
    assert Raw(yard).call(f"{CONFIGMAPS}/copied")[0] == 200


def test_silent_connections_end_and_hold_nobody_up(raw: Raw) -> None:
    """500 connections that say nothing, or too little: requests beside them are answered, and they are closed."""
    host, port = raw.address.rsplit(":", 1)
    sockets = [socket.create_connection((host, int(port)), timeout=30) for _ in range(500)]
    wrapped = [raw.tls.wrap_socket(s, server_hostname=host) for s in sockets[:20]]
    try:
        begin = time.monotonic()
        assert raw.call(CONFIGMAPS)[0] == 200
        assert time.monotonic() - begin < 5
        for silent in [sockets[-1], *wrapped]:
            silent.settimeout(30)
            assert not silent.recv(1), "closed by the server"
        assert time.monotonic() - begin < 25
    finally:
        for s in [*wrapped, *sockets]:
            s.close()


def test_watches_that_read_nothing_cost_little(raw: Raw, yard: Yard) -> None:
    blob = {"metadata": {"name": "blob"}, "data": {"k": "x" * 200_000}}
    assert raw.call(CONFIGMAPS, "POST", blob)[0] == 201
    status = pathlib.Path(f"/proc/{yard.running['pid']}/status")
    resident = lambda: next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    watches = [raw.open(f"{CONFIGMAPS}?watch=1") for _ in range(100)]
    before = resident()
    headers = {"Content-Type": "application/merge-patch+json"}
    for i in range(100):
        assert raw.call(f"{CONFIGMAPS}/blob", "PATCH", {"data": {"i": str(i)}}, headers)[0] == 200
    grown = (resident() - before) // 1024
    for watch in watches:
        watch.close()
    # 20 MB of events for each of 100 watches; the history keeps 64 of them once
    assert grown < 200, f"{grown} MiB"


def test_no_secret_is_in_arguments(tmp_path: pathlib.Path) -> None:
    yard = Yard(tmp_path / "home", "--no-node", "--token=not-for-everybody")
    try:
        arguments = pathlib.Path(f"/proc/{yard.running['pid']}/cmdline").read_bytes()
        assert b"up" in arguments and b"not-for-everybody" not in arguments
        assert Raw(yard).call(CONFIGMAPS)[0] == 200
        assert "not-for-everybody" in pathlib.Path(yard.kubeconfig).read_text()
    finally:
        stop(yard)
