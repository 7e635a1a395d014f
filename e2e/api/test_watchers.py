"""Many who watch: what they cost the server, read or not, and what they may rely on over a restart.

`make soak` runs it in full (WATCHES=3000, SOAK_SECONDS=60); the gate, a tenth.
"""

from __future__ import annotations

import os
import pathlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from conftest import Yard, stop
from test_api import Raw

WATCHES = int(os.environ.get("WATCHES", "300"))
SECONDS = int(os.environ.get("SOAK_SECONDS", "6"))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("watchers"), "--no-node")
    yield yard
    stop(yard)


@pytest.fixture
def raw(yard: Yard) -> Raw:
    return Raw(yard)


def resident(yard: Yard) -> int:
    """MiB of memory that the server has."""
    status = pathlib.Path(f"/proc/{yard.running['pid']}/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def processor(yard: Yard) -> float:
    """Seconds of processor time that the server has taken."""
    fields = pathlib.Path(f"/proc/{yard.running['pid']}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(raw: Raw, path: str) -> ssl.SSLSocket:
    """A watch of which nothing is read but its first byte."""
    host, port = raw.address.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), timeout=60)
    wrapped = raw.tls.wrap_socket(plain, server_hostname=host)
    headers = "".join(f"{name}: {value}\r\n" for name, value in raw.headers.items())
    wrapped.sendall(f"GET {path} HTTP/1.1\r\nHost: {raw.address}\r\n{headers}\r\n".encode())
    assert wrapped.recv(1) == b"H"
    return wrapped


def namespace(raw: Raw, name: str) -> str:
    raw.call("/api/v1/namespaces", "POST", {"metadata": {"name": name}})
    return f"/api/v1/namespaces/{name}/configmaps"


def test_watches_that_read_nothing_hold_little(raw: Raw, yard: Yard) -> None:
    """Writes of 1 MB a second beside watches that do not read: 3,000 of them once held 11.3 GB."""
    path = namespace(raw, "silent")
    assert raw.call(path, "POST", {"metadata": {"name": "blob"}, "data": {}})[0] == 201
    version = raw.call(path)[1]["metadata"]["resourceVersion"]
    begin = resident(yard)
    kinds = ["", "&allowWatchBookmarks=true", "&fieldSelector=metadata.name%3Dblob"]
    watches = [watch(raw, f"{path}?watch=1&resourceVersion={version}{kinds[i % 3]}") for i in range(WATCHES)]
    opened = resident(yard)
    headers = {"Content-Type": "application/merge-patch+json"}
    ends = time.monotonic() + SECONDS
    written = 0
    while time.monotonic() < ends or written < SECONDS << 20:
        data = {"text": f"{written}" + "x" * 100_000}
        assert raw.call(f"{path}/blob", "PATCH", {"data": data}, headers)[0] == 200
        written += 100_000
        # not much more than 1 MB a second
        while written > (time.monotonic() - ends + SECONDS + 1) * 1_500_000:
            raw.call(f"{path}/blob")
    grown = resident(yard) - begin
    print(f"{WATCHES} watches: {begin} MiB before, {opened} MiB opened, {begin + grown} MiB after {written >> 20} MiB of writes")
    for silent in watches:
        silent.close()
    # What a watch holds beside what all share: its connection, its buffers, one chunk.
    assert grown < 60 + WATCHES * 80 // 1024, f"{grown} MiB"


def test_who_watches_one_namespace_does_not_work_for_another(raw: Raw, yard: Yard) -> None:
    """Processor time of writes to one namespace, beside watches of others. Printed; what is counted is in the store's tests."""
    other, busy = namespace(raw, "quiet"), namespace(raw, "busy")
    assert raw.call(busy, "POST", {"metadata": {"name": "m"}, "data": {}})[0] == 201
    headers = {"Content-Type": "application/merge-patch+json"}

    def cost() -> float:
        begin = processor(yard)
        for i in range(200):
            assert raw.call(f"{busy}/m", "PATCH", {"data": {"i": f"{i}-{begin}"}}, headers)[0] == 200
        return processor(yard) - begin

    cost()
    alone = cost()
    watches = [watch(raw, f"{other}?watch=1") for _ in range(WATCHES)]
    beside = cost()
    print(f"200 writes: {alone:.2f} s of processor alone, {beside:.2f} s beside {WATCHES} watches of another namespace")
    for each in watches:
        each.close()
    assert raw.call(other, "POST", {"metadata": {"name": "m"}})[0] == 201


def test_a_watch_goes_on_after_a_restart(raw: Raw, yard: Yard) -> None:
    """From a revision of before: what was changed, deleted and made meanwhile; without a 410 and without a list."""
    path = namespace(raw, "resumed")
    assert raw.call(path, "POST", {"metadata": {"name": "a"}})[0] == 201
    version = raw.call(path)[1]["metadata"]["resourceVersion"]
    headers = {"Content-Type": "application/merge-patch+json"}
    assert raw.call(f"{path}/a", "PATCH", {"metadata": {"labels": {"l": "1"}}}, headers)[0] == 200
    assert raw.call(path, "POST", {"metadata": {"name": "b"}})[0] == 201
    yard.kill()
    yard.up()
    raw = Raw(yard)
    assert raw.call(f"{path}/a", "PATCH", {"metadata": {"labels": {"l": None}}}, headers)[0] == 200
    assert raw.call(f"{path}/b", "DELETE")[0] == 200

    def seen(query: str) -> list[str]:
        events = raw.events(f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version}{query}")
        named = [(e["type"], e["object"]["metadata"]["name"]) for e in events]
        return [f"{kind} {name}" for kind, name in named if name != "kube-root-ca.crt"]

    assert seen("") == ["MODIFIED a", "ADDED b", "MODIFIED a", "DELETED b"]
    assert seen("&labelSelector=l%3D1") == ["ADDED a", "DELETED a"]
    assert seen("&fieldSelector=metadata.name%3Db") == ["ADDED b", "DELETED b"]
    (event,) = raw.events(f"{path}?watch=1&resourceVersion=1")
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")
