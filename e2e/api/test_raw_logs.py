"""Followers of logs, byte by byte over HTTP/1.1 and HTTP/2: those that stop reading, end their half, or are gone; pods that end or are deleted
meanwhile; many followers of one pod. Each is told what it is owed, costs little, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import time
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for
from half_closed import ENDS, Halves
from http2 import DATA, END_STREAM, HEADERS, RST, WINDOW_SIZE, Address, Http2, frame, setting
from test_api import PODS, Raw

# A stream that has nothing to say to a client that has ended its half ends after 10 s.
PAUSE = 10


@pytest.fixture(scope="module")
def raw(yard: Yard) -> Raw:
    raw = Raw(yard)
    wait_for("the account of pods", lambda: raw.call("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200)
    return raw


@pytest.fixture(scope="module")
def address(yard: Yard) -> Address:
    return Address(pathlib.Path(yard.kubeconfig).read_text())


class Pod:
    """A pod of this shell script, which has started; it ends with the test."""

    def __init__(self, raw: Raw, name: str, script: str):
        self.raw, self.name, self.path = raw, name, f"{PODS}/{name}"
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none", "command": ["sh", "-c", script]}]}
        code, made = raw.call(PODS, "POST", {"metadata": {"name": name}, "spec": spec})
        assert code == 201, made
        self.uid = made["metadata"]["uid"]
        wait_for("the pod", lambda: self.phase() not in (None, "Pending"))

    def phase(self) -> str | None:
        return self.raw.call(self.path)[1]["status"].get("phase")

    def delete(self) -> None:
        self.raw.call(self.path, "DELETE")

    def follow(self, address: Address, **query: str) -> Halves:
        """Its log's follower, which has been answered."""
        client = Halves(address)
        where = "&".join([f"{self.path}/log?follow=true", *(f"{key}={value}" for key, value in query.items())])
        client.send(f"GET {where} HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {address.token}\r\n\r\n".encode())
        client.head = client.until(b"\r\n\r\n")
        assert client.head.startswith(b"HTTP/1.1 200"), client.head
        return client

    def open_files(self, yard: Yard) -> int:
        """Files of this pod's log that the control plane has open: one for each follower."""
        count = 0
        for entry in pathlib.Path(f"/proc/{yard.running['pid']}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            count += self.uid in target and ".log" in target
        return count


@pytest.fixture
def pods(raw: Raw, yard: Yard) -> Iterator[list[Pod]]:
    """Pods of a test. After it none of their logs is open."""
    made: list[Pod] = []
    yield made
    for pod in made:
        pod.delete()
    for pod in made:
        wait_for("the logs to be closed", lambda pod=pod: pod.open_files(yard) == 0)


def whole(head_and_body: bytes) -> bytes:
    """The body of an answer in chunks, which must have its last one."""
    body, out = head_and_body.split(b"\r\n\r\n", 1)[1], b""
    while True:
        size, body = body.split(b"\r\n", 1)
        if not int(size, 16):
            assert body == b"\r\n", body
            return out
        out, body = out + body[: int(size, 16)], body[int(size, 16) + 2 :]


def resident(yard: Yard) -> int:
    """MiB of the server's memory."""
    status = pathlib.Path(f"/proc/{yard.running['pid']}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024


def rest(client: Halves) -> bytes:
    """What a follower is told up to the last chunk; the connection stays open for another request."""
    told = client.head
    while not told.endswith(b"\r\n0\r\n\r\n"):
        part = client.read()
        assert part, f"it was cut off after {told[-300:]!r}"
        told += part
    return whole(told)


def counting(lines: int, pause: str, end: str = "") -> str:
    return f"i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; sleep {pause}; done; {end}"


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(1, count + 1))


def test_many_followers_of_a_pod_are_told_the_same(raw: Raw, yard: Yard, address: Address, pods: list[Pod], tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"
    # however long the machine takes to answer all followers
    pod = Pod(raw, "many", f"until [ -e {go} ]; do sleep 0.1; done; {counting(100, '0.02')}")
    pods.append(pod)
    before = resident(yard)
    followers = [pod.follow(address) for _ in range(200)]
    assert pod.open_files(yard) == 200
    assert raw.call(PODS)[0] == 200
    assert resident(yard) - before < 60
    go.touch()
    for follower in followers:
        assert rest(follower) == lines(100)
        # the same connection takes another request
        follower.send(f"GET /version HTTP/1.1\r\nHost: {address.authority}\r\n\r\n".encode())
        assert b"gitVersion" in follower.until(b"gitVersion")
        follower.close()


def test_who_has_ended_their_half_hears_all(raw: Raw, address: Address, pods: list[Pod]) -> None:
    pod = Pod(raw, "half", counting(20, "0.2"))
    pods.append(pod)
    followers = [pod.follow(address) for _ in ENDS]
    for follower, say in zip(followers, ENDS.values(), strict=True):
        say(follower)
    for follower in followers:
        assert whole(follower.head + follower.rest()) == lines(20)
        follower.close()


def test_a_silent_log_is_not_kept_for_those_that_are_gone(raw: Raw, yard: Yard, address: Address, pods: list[Pod]) -> None:
    pod = Pod(raw, "silent", "echo begun; exec sleep 1000000")
    pods.append(pod)
    stays = pod.follow(address)
    stays.until(b"begun\n")
    gone = []
    for n in range(40):
        follower = pod.follow(address)
        if n % 8 >= 4:
            follower.send(b"G")  # the beginning of another request
        (follower.reset, follower.close, follower.farewell, follower.fin)[n % 4]()
        gone.append(follower)
    wait_for("their end", lambda: pod.open_files(yard) == 1, 3 * PAUSE)
    for follower in gone:
        if follower.socket.fileno() >= 0:
            assert not follower.rest().endswith(b"0\r\n\r\n"), "the log has not come to its end"
            follower.close()
    pod.delete()
    assert stays.until(b"0\r\n\r\n").endswith(b"0\r\n\r\n"), "the one that stayed is told of the pod's end"
    stays.close()


def test_who_stops_reading_costs_little_and_holds_nobody_up(raw: Raw, yard: Yard, address: Address, pods: list[Pod]) -> None:
    pod = Pod(raw, "flood", "yes $(head -c 1000 /dev/zero | tr '\\0' x)")
    pods.append(pod)
    before = resident(yard)
    stopped = [pod.follow(address) for _ in range(30)]
    streams = Http2(address, setting(WINDOW_SIZE, 0))
    streams.send(*[streams.get(2 * n + 1, f"{pod.path}/log?follow=true") for n in range(30)])
    wait_for("the streams", lambda: pod.open_files(yard) >= 60)
    reads = pod.follow(address, tailLines="0")
    read, begun = 0, time.monotonic()
    while read < 30_000_000:
        part = reads.read()
        assert part and time.monotonic() - begun < 60, read
        read += len(part)
    assert resident(yard) - before < 100, f"{resident(yard) - before} MiB"
    code, other = raw.call(f"{PODS}/{pod.name}")
    assert (code, other["metadata"]["uid"]) == (200, pod.uid)
    # half of the streams are reset, and half of the clients go, with all that waits for them
    streams.send(*[frame(RST, 0, 2 * n + 1, b"\0\0\0\x08") for n in range(15)])
    for follower in stopped[:15]:
        follower.close()
    wait_for("their end", lambda: pod.open_files(yard) == 31)
    # the others go with the pod: whoever reads hears the end
    pod.delete()
    reads.until(b"0\r\n\r\n")
    reads.close()
    streams.close()
    for follower in stopped:
        follower.close()


def test_streams_of_http2_follow_to_the_end(raw: Raw, address: Address, pods: list[Pod]) -> None:
    pod = Pod(raw, "second", counting(20, "0.1"))
    pods.append(pod)
    http2 = Http2(address)
    streams = {2 * n + 1: b"" for n in range(50)}
    http2.send(*[http2.get(stream, f"{pod.path}/log?follow=true") for stream in streams])
    open_streams = set(streams)
    for kind, flags, stream, payload in http2.frames():
        if kind == DATA:
            streams[stream] += payload
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            open_streams.discard(stream)
            if not open_streams:
                break
    assert not open_streams and set(streams.values()) == {lines(20)}
    http2.close()


@pytest.mark.parametrize("how", ["deleted", "deleted at once", "killed"])
def test_followers_hear_of_a_pods_end(how: str, raw: Raw, address: Address, pods: list[Pod]) -> None:
    pod = Pod(raw, how.replace(" ", "-"), "echo $$$$; printf torn; exec sleep 1000000")
    pods.append(pod)
    followers = [pod.follow(address) for _ in range(20)]
    first = followers[0].until(b"torn")
    if how == "killed":
        (pid,) = re.findall(rb"(\d+)\n", first)
        assert b"sleep\x001000000" in pathlib.Path(f"/proc/{int(pid)}/cmdline").read_bytes()
        os.kill(int(pid), signal.SIGKILL)
    else:
        raw.call(pod.path, "DELETE", {"gracePeriodSeconds": 0} if how == "deleted at once" else None)
    followers[0].head += first
    for follower in followers:
        assert re.fullmatch(rb"\d+\ntorn\n", rest(follower))
        follower.close()


def test_odd_questions_about_logs_are_answered(raw: Raw, address: Address, pods: list[Pod]) -> None:
    """Numbers at their limits, in every parameter that becomes a time or a size."""
    pod = Pod(raw, "odd", "echo one; echo two; exec sleep 1000000")
    pods.append(pod)
    wait_for("the log", lambda: b"two" in raw.open(f"{pod.path}/log").read())
    limits = [0, 1, -1, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, "1e3", "0x1", "", "NaN", "1.5", "+1", "%00", "%EF%BC%91"]
    for parameter in ("tailLines", "limitBytes", "sinceSeconds"):
        for value in limits:
            answer = raw.open(f"{pod.path}/log?{parameter}={value}")
            text = answer.read()
            assert answer.status in (200, 400, 422), f"{parameter}={value}: {answer.status} {text!r}"
    for time_ in (
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "-9999-01-01T00:00:00Z",
        "99999-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "x",
    ):
        answer = raw.open(f"{pod.path}/log?sinceTime={time_}")
        text = answer.read()
        assert answer.status in (200, 400, 422), f"{time_}: {answer.status} {text!r}"
    assert json.loads(raw.open("/version").read())["gitVersion"]
