"""Exec, attach, forwarded ports and watches with clients that speak WebSocket and SPDY byte by byte, as no library would: greedy, silent, half-closed
or wrong. Each costs the server little, gets the answer that the protocol has for it, and holds nobody else up."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import socket
import ssl
import struct
import urllib.parse

import pytest

from conftest import Yard, wait_for
from test_api import PODS, Raw

STDIN, STDOUT, RESULT, CLOSE_CHANNEL = 0, 1, 3, 255
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MAPS = "/api/v1/namespaces/default/configmaps"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MIB = 1 << 20


@pytest.fixture(scope="module")
def raw(yard: Yard) -> Raw:
    return Raw(yard)


@pytest.fixture(scope="module")
def pod(yard: Yard) -> str:
    spec = {"containers": [{"name": "c", "image": "none", "command": ["sleep", "1000000"]}]}
    yard.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "raw"}, "spec": spec}))
    phase = lambda: json.loads(yard.kubectl("get", "pod", "raw", "-o", "json").stdout)["status"].get("phase")
    wait_for("the pod", lambda: phase() == "Running")
    return "raw"


class Client:
    """A connection that has been upgraded."""

    def __init__(self, raw: Raw, path: str, query: dict | list, upgrade: str, headers: dict[str, str], method: str = "GET"):
        host, port = raw.address.rsplit(":", 1)
        self.socket: ssl.SSLSocket = raw.tls.wrap_socket(socket.create_connection((host, int(port)), timeout=60), server_hostname=host)
        where = path if path.startswith("/") else f"{PODS}/{path}"
        lines = [f"{method} {where}?{urllib.parse.urlencode(query, doseq=True)} HTTP/1.1", f"Host: {raw.address}"]
        every = {**raw.headers, "Connection": "Upgrade", "Upgrade": upgrade, **headers}
        lines += [f"{name}: {value}" for name, value in every.items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.rest, head = b"", b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(65536) or pytest.fail(f"no answer: {head}")
        head, self.rest = head.split(b"\r\n\r\n", 1)
        self.head = head.decode().lower()
        assert " 101 " in self.head.splitlines()[0], head + self.rest

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, or fewer at the end."""
        while len(self.rest) < size:
            try:
                more = self.socket.recv(65536)
            except (ssl.SSLError, ConnectionError):
                more = b""
            if not more:
                break
            self.rest += more
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def close(self) -> None:
        self.socket.close()


class WebSocket(Client):
    def __init__(self, raw: Raw, path: str, query: dict | list, protocol: str = "v5.channel.k8s.io"):
        key = base64.b64encode(os.urandom(16))
        headers = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key.decode()}
        super().__init__(raw, path, query, "websocket", headers | ({"Sec-WebSocket-Protocol": protocol} if protocol else {}))
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode().lower()
        assert f"sec-websocket-accept: {accept}" in self.head, self.head
        assert f"sec-websocket-protocol: {protocol}" in self.head if protocol else "sec-websocket-protocol" not in self.head, self.head

    def frame(self) -> tuple[int, bytes]:
        """Opcode and body of the server's next frame; opcode -1 once it has ended."""
        head = self.read(2)
        if len(head) < 2:
            return -1, b""
        assert head[1] < 128, "servers do not mask"
        size = head[1] if head[1] < 126 else int.from_bytes(self.read(2 if head[1] == 126 else 8), "big")
        return head[0] & 15, self.read(size)

    def until(self, opcode: int) -> bytes:
        while True:
            found, body = self.frame()
            if found == opcode:
                return body
            assert found != -1, "the connection ended"

    def result(self) -> tuple[bytes, dict]:
        """All output, and what became of the command."""
        output = b""
        while True:
            body = self.until(BINARY)
            if body[:1] == bytes([RESULT]) and len(body) > 1:
                return output, json.loads(body[1:])
            if body[:1] == bytes([STDOUT]):
                output += body[1:]


def masked(body: bytes, opcode: int = BINARY, fin: bool = True, length: int | None = None, mask: bytes = b"\1\2\3\4") -> bytes:
    """A client's frame. `length`: what it announces, where that is another."""
    length = len(body) if length is None else length
    head = bytes([opcode | (128 if fin else 0)])
    if length < 126:
        head += bytes([128 | length])
    else:
        head += bytes([128 | 126]) + struct.pack(">H", length) if length < 1 << 16 else bytes([128 | 127]) + struct.pack(">Q", length)
    pattern = int.from_bytes((mask * (len(body) // 4 + 1))[: len(body)], "big")
    return head + mask + (int.from_bytes(body, "big") ^ pattern).to_bytes(len(body), "big")


def command(*words: str, **flags: str) -> dict:
    return {"command": words, "stdin": "true", "stdout": "true", "stderr": "true", **flags}


def resident(yard: Yard) -> int:
    """MiB of the server's memory."""
    status = pathlib.Path(f"/proc/{yard.running['pid']}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024


def test_a_message_of_any_length_is_handed_on_as_it_comes(raw: Raw, pod: str) -> None:
    data = os.urandom(MIB) * 8
    client = WebSocket(raw, f"{pod}/exec", command("sha256sum"))
    # one frame, then one in parts with something between them
    client.send(masked(bytes([STDIN]) + data))
    client.send(masked(bytes([STDIN]) + data[:1000], fin=False) + masked(b"are you there", PING))
    client.send(masked(data[1000:3000], CONTINUATION, fin=False) + masked(b"", CONTINUATION))
    client.send(masked(bytes([CLOSE_CHANNEL, STDIN])))
    assert client.until(PONG) == b"are you there"
    output, result = client.result()
    assert (output.split()[0].decode(), result["status"]) == (hashlib.sha256(data + data[:3000]).hexdigest(), "Success")
    client.close()


def test_what_is_announced_is_not_held(raw: Raw, yard: Yard, pod: str) -> None:
    part = masked(bytes([STDIN]) + b"x" * 999_000, length=999_999)
    first = WebSocket(raw, f"{pod}/attach", {"stdout": "true", "stdin": "true"})
    before = resident(yard)
    clients = [first] + [WebSocket(raw, f"{pod}/attach", {"stdout": "true", "stdin": "true"}) for _ in range(99)]
    try:
        for client in clients:
            client.send(part)
        # the ping is answered once all before it has been read
        for client in clients:
            client.send(b"\0" * 998 + masked(b"x", PING))
            assert client.until(PONG) == b"x"
            client.send(part)
        grown = resident(yard) - before
        assert grown < 60, f"100 connections hold {grown} MiB"
        assert raw.call(PODS)[0] == 200
    finally:
        for client in clients:
            client.close()


def test_output_that_nobody_reads_waits_where_it_is_made(raw: Raw, yard: Yard, pod: str) -> None:
    before = resident(yard)
    clients = [WebSocket(raw, f"{pod}/exec", command("yes", "unread")) for _ in range(10)]
    try:
        wait_for("the commands", lambda: len(running("unread")) == 10)
        output, result = shell(raw, pod, "echo fine")
        assert (output, result["status"]) == (b"fine\n", "Success")
        assert resident(yard) - before < 60
    finally:
        for client in clients:
            client.close()
    wait_for("their end with their clients", lambda: not running("unread"))


def running(word: str) -> list[int]:
    """Processes of `yes WORD`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == b"yes\0" + word.encode() + b"\0":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def shell(raw: Raw, pod: str, script: str, data: bytes = b"") -> tuple[bytes, dict]:
    client = WebSocket(raw, f"{pod}/exec", command("sh", "-c", script))
    if data:
        client.send(masked(bytes([STDIN]) + data))
    client.send(masked(bytes([CLOSE_CHANNEL, STDIN])))
    told = client.result()
    client.close()
    return told


@pytest.mark.parametrize(
    "frames",
    [
        b"\x82\x03abc",
        b"\xc2" + masked(b"abc")[1:],
        masked(b"abc", 3),
        masked(b"abc", CONTINUATION),
        masked(b"a", fin=False) + masked(b"b"),
        masked(b"", PING, fin=False),
        masked(b"x" * 200, PING),
        b"\x82\xfe\x00\x05" + b"\0" * 9,
        b"\x82\xff\x80" + b"\0" * 20,
    ],
    ids=["no-mask", "reserved-bit", "opcode", "continuation", "nested", "split-ping", "long-ping", "padded-length", "negative-length"],
)  # fmt: skip
def test_wrong_frames_are_refused_by_name(raw: Raw, pod: str, frames: bytes) -> None:
    client = WebSocket(raw, f"{pod}/exec", command("cat"))
    client.send(frames)
    assert client.until(CLOSE)[:2] == struct.pack(">H", 1002)
    client.close()


def test_a_client_that_says_goodbye_is_answered(raw: Raw, pod: str) -> None:
    client = WebSocket(raw, f"{pod}/exec", command("yes", "goodbye"))
    wait_for("the command", lambda: running("goodbye"))
    client.send(masked(struct.pack(">H", 1000), CLOSE))
    assert client.until(CLOSE)[:2] == struct.pack(">H", 1000)
    client.close()
    wait_for("its end", lambda: not running("goodbye"))
    assert shell(raw, pod, "cat", b"still here")[0] == b"still here"


def spdy(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body


def opened(streams: dict[int, str]) -> bytes:
    """Opens streams of these types; headers are not compressed, all in one zlib stream."""
    out, begin = b"", b"\x78\x01"
    for stream, name in streams.items():
        words = [b"streamtype", name.encode()]
        block = struct.pack(">I", 1) + b"".join(struct.pack(">I", len(word)) + word for word in words)
        stored = b"\0" + struct.pack("<HH", len(block), len(block) ^ 0xFFFF) + block
        out += spdy(1, struct.pack(">IIH", stream, 0, 0) + begin + stored)
        begin = b""
    return out


def test_a_frame_of_spdy_is_handed_on_as_it_comes(raw: Raw, pod: str) -> None:
    data = os.urandom(MIB) * 12
    headers = {"X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    client = Client(raw, f"{pod}/exec", {**command("sha256sum"), "stderr": "false"}, "SPDY/3.1", headers, method="POST")
    client.send(opened({1: "error", 3: "stdin", 5: "stdout"}))
    # one frame, of nearly the largest size that there is, and the end of the stream
    client.send(struct.pack(">II", 3, 1 << 24 | len(data)) + data)
    output = {1: b"", 5: b""}
    while not output[1]:
        head = client.read(8)
        assert len(head) == 8, output
        word, size = struct.unpack(">II", head)
        body = client.read(size & 0xFFFFFF)
        if word < 1 << 31:
            output[word] += body
    assert output[5].split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert json.loads(output[1])["status"] == "Success"
    client.close()


def watching(raw: Raw, **query: str) -> WebSocket:
    return WebSocket(raw, MAPS, {"watch": "1", **query}, protocol="")


def told(client: WebSocket, name: str) -> dict:
    """The first event about the map of this name."""
    while True:
        event = json.loads(client.until(TEXT))
        if event["object"]["metadata"]["name"] == name:
            return event


def test_watches_hear_what_is_announced_and_do_not_hold_it(raw: Raw, yard: Yard) -> None:
    before = resident(yard)
    clients = [watching(raw) for _ in range(100)]
    try:
        for client in clients:
            client.send(masked(b"x" * 999_000, length=1 << 40))
        for client in clients:
            client.send(b"\0" * 100_000)
        assert raw.call(MAPS, "POST", {"metadata": {"name": "told"}})[0] == 201
        for client in clients:
            assert told(client, "told")["type"] == "ADDED"
        grown = resident(yard) - before
        assert grown < 60, f"100 watches hold {grown} MiB"
    finally:
        for client in clients:
            client.close()
    assert raw.call(f"{MAPS}/told", "DELETE")[0] == 200


def test_a_watch_answers_pings_goodbyes_and_nonsense(raw: Raw) -> None:
    client = watching(raw)
    client.send(masked(b"hello", TEXT) + masked(b"there?", PING))
    assert client.until(PONG) == b"there?"
    client.send(masked(struct.pack(">H", 1000), CLOSE))
    assert client.until(CLOSE)[:2] == struct.pack(">H", 1000)
    client.close()
    for nonsense in (b"\x82\x03abc", masked(b"abc", 3), masked(b"x" * 200, PING)):
        client = watching(raw)
        client.send(nonsense)
        assert client.until(CLOSE)[:2] == struct.pack(">H", 1002)
        client.close()
    client = watching(raw, timeoutSeconds="1", fieldSelector="metadata.name=none")
    assert client.until(CLOSE)[:2] == struct.pack(">H", 1000), "its time is up"
    client.close()
