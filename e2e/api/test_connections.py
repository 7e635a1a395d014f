"""Clients that misuse their connection: floods of HTTP/2 frames, requests in each other's bodies, answers that nobody reads."""

from __future__ import annotations

import json
import pathlib
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from conftest import Yard, stop
from http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    WINDOW_SIZE,
    Address,
    Http2,
    block,
    frame,
    integer,
    setting,
)
from test_durability import MAPS, Http, config_map

ROOM = 256


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("connections"), "--no-node")
    yield yard
    stop(yard)


@pytest.fixture(scope="module")
def address(yard: Yard) -> Address:
    return Address(pathlib.Path(yard.kubeconfig).read_text())


class Watched:
    """The control plane beside an attack: it answers others in time, and grows by no more than it may."""

    def __init__(self, yard: Yard):
        self.http, self.process = Http(yard), pathlib.Path(f"/proc/{yard.running['pid']}")
        self.before = self.resident()

    def resident(self) -> int:
        lines = (self.process / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10

    def is_well(self, grown: int = 128) -> None:
        begin = time.monotonic()
        code, text = self.http.ask("GET", MAPS)
        assert code == 200 and time.monotonic() - begin < 15, text
        assert self.resident() - self.before < grown, f"{self.resident() - self.before} MiB"


@pytest.fixture
def watched(yard: Yard) -> Watched:
    return Watched(yard)


def flood(http2: Http2, frames: Callable[[int], bytes], seconds: float = 1.5, most: int = 200_000) -> None:
    """Sends frames until the server has enough, at most for some seconds; nothing that comes is read."""
    http2.socket.settimeout(seconds)
    end, n = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end and n < most:
            http2.send(*[frames(n + i) for i in range(100)])
            n += 100
    except OSError:
        pass


def reset(http2: Http2) -> Callable[[int], bytes]:
    ask = http2.request(MAPS)
    return lambda n: frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, ask) + frame(RST, 0, 2 * n + 1, struct.pack(">I", 8))


def first_continued(http2: Http2) -> Callable[[int], bytes]:
    begin = frame(HEADERS, END_STREAM, 1, http2.request(MAPS))
    return lambda n: (begin if n == 0 else b"") + frame(CONTINUATION, 0, 1, block((f"x-{n}", "y" * 1000)))


def first_continued_by_nothing(http2: Http2) -> Callable[[int], bytes]:
    begin = frame(HEADERS, END_STREAM, 1, http2.request(MAPS))
    return lambda n: (begin if n == 0 else b"") + frame(CONTINUATION, 0, 1)


def empty_data(http2: Http2) -> Callable[[int], bytes]:
    begin = frame(HEADERS, END_HEADERS, 1, http2.request(MAPS, "POST"))
    return lambda n: (begin if n == 0 else b"") + frame(DATA, 0, 1)


FLOODS: dict[str, Callable[[Http2], Callable[[int], bytes]]] = {
    "rapid reset": reset,
    "rapid reset by an error": lambda http2: lambda n: http2.get(2 * n + 1, MAPS) + frame(WINDOW, 0, 2 * n + 1, struct.pack(">I", 0)),
    "continuation": first_continued,
    "empty continuation": first_continued_by_nothing,
    "settings": lambda _: lambda n: frame(SETTINGS, 0, 0, setting(WINDOW_SIZE, n % 2**16)),
    "ping": lambda _: lambda n: frame(PING, 0, 0, struct.pack(">Q", n)),
    "empty data": empty_data,
    "window": lambda _: lambda n: frame(WINDOW, 0, 0, struct.pack(">I", 1)),
    "priority": lambda _: lambda n: frame(PRIORITY, 0, 2 * n + 1, struct.pack(">IB", 0, 1)),
    "unknown": lambda _: lambda n: frame(200, 0, 0, b"x" * 1000),
    "anonymous": lambda http2: lambda n: http2.get(2 * n + 1, MAPS, token="nobody"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_frames_hold_nobody_up(name: str, address: Address, watched: Watched) -> None:
    floods = [Http2(address) for _ in range(2)]
    for http2 in floods:
        flood(http2, FLOODS[name](http2))
        watched.is_well()
    for http2 in floods:
        http2.close()
    watched.is_well()


def test_frames_that_are_none_end_their_connection_alone(address: Address, watched: Watched) -> None:
    ask = Http2(address).request(MAPS)
    huge = block(("x", "")) [:-1] + integer(2**40, 7)
    wrong = {
        "longer than agreed": frame(DATA, 0, 1, b"x" * 20_000),
        "length beyond the end": b"\xff\xff\xff" + bytes([HEADERS, END_HEADERS, 0, 0, 0, 1]),
        "stream 0": frame(HEADERS, END_STREAM | END_HEADERS, 0, ask),
        "even stream": frame(HEADERS, END_STREAM | END_HEADERS, 2, ask),
        "stream backwards": frame(HEADERS, END_STREAM | END_HEADERS, 5, ask) + frame(HEADERS, END_STREAM | END_HEADERS, 3, ask),
        "data of no stream": frame(DATA, 0, 7, b"x"),
        "continuation of nothing": frame(CONTINUATION, END_HEADERS, 1, ask),
        "interrupted headers": frame(HEADERS, END_STREAM, 1, ask) + frame(PING, 0, 0, b"12345678"),
        "window beyond all": frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1)) * 2,
        "window of nothing": frame(WINDOW, 0, 0, struct.pack(">I", 0)),
        "settings of a wrong size": frame(SETTINGS, 0, 0, b"abc"),
        "settings beyond all": frame(SETTINGS, 0, 0, setting(WINDOW_SIZE, 2**32 - 1)),
        "settings of a stream": frame(SETTINGS, 0, 1),
        "acknowledged ping of a wrong size": frame(PING, ACK, 0, b"x"),
        "push": frame(PUSH, END_HEADERS, 1, struct.pack(">I", 2) + ask),
        "padding beyond the end": frame(DATA, 8, 1, b"\xff"),
        "number without end": frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\xff" * 40),
        "text beyond the end": frame(HEADERS, END_STREAM | END_HEADERS, 1, huge),
        "index of nothing": frame(HEADERS, END_STREAM | END_HEADERS, 1, integer(100_000, 7, 0x80)),
        "table beyond all": frame(HEADERS, END_STREAM | END_HEADERS, 1, integer(2**30, 5, 0x20) + ask),
        "bad text": frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\0\x81\xff\x81\xff"),
    }  # fmt: skip
    for name, frames in wrong.items():
        http2 = Http2(address, timeout=10)
        try:
            http2.send(frames)
        except OSError:
            pass
        codes = [kind for kind, *_ in http2.frames_until(GOAWAY, RST)]
        assert GOAWAY in codes or RST in codes or http2.ends(), f"{name}: {codes}"
        http2.close()
    watched.is_well()


def test_answers_that_nobody_reads_cost_little(yard: Yard, address: Address) -> None:
    """A list of 5 MB for each of 200 clients, and for each of 100 streams of one."""
    http = Http(yard)
    for n in range(10):
        assert http.ask("POST", MAPS, config_map(f"blob-{n}", text="x" * 500_000))[0] == 201
    watched = Watched(yard)
    ask = f"GET {MAPS} HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {address.token}\r\n\r\n".encode()
    sockets = [address.connect() for _ in range(200)]
    for one in sockets:
        one.sendall(ask)
    codes = [one.recv(12) for one in sockets]
    streams = Http2(address, setting(WINDOW_SIZE, 0))
    streams.send(*[streams.get(2 * n + 1, MAPS) for n in range(100)])
    # those for whom there is no room are told to come back
    assert {*codes} == {b"HTTP/1.1 200", b"HTTP/1.1 429"}, {*codes}
    code, text = http.ask("GET", f"{MAPS}/blob-0?resourceVersion=0")
    assert code in (200, 429), text
    assert http.ask("GET", "/readyz")[0] == 200
    assert watched.resident() - watched.before < ROOM + 128, f"{watched.resident() - watched.before} MiB"
    for one in sockets:
        one.close()
    streams.close()
    for n in range(10):
        deadline = time.monotonic() + 30
        while http.ask("DELETE", f"{MAPS}/blob-{n}")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


# What a refused client has still to send, in parts that come slowly.
REST, PART, PAUSE = 10 << 20, b" " * 16_384, 0.001


def send_by_http1(address: Address, token: str) -> tuple[int, bytes]:
    """The code of the answer to a POST that is read once all of it is sent, and the answer to a request after it."""
    one = address.connect()
    head = f"POST {MAPS} HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {token}\r\n"
    one.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {REST}\r\n\r\n".encode())
    for _ in range(0, REST, len(PART)):
        one.sendall(PART)
        time.sleep(PAUSE)
    one.sendall(f"GET /version HTTP/1.1\r\nHost: {address.authority}\r\n\r\n".encode())
    seen = b""
    while b"gitVersion" not in seen:
        new = one.recv(65_536)
        assert new, seen
        seen += new
    one.close()
    return int(seen.split()[1]), seen.rpartition(b"\r\n\r\n")[2]


def send_by_http2(address: Address, token: str) -> tuple[int, bytes]:
    http2 = Http2(address)
    ask = http2.request(MAPS, "POST", token=token) + block(("content-type", "application/json"))
    http2.send(frame(HEADERS, END_HEADERS, 1, ask))
    # of the connection and of the stream
    windows, bodies, ended, frames = [65_535, 65_535], {1: b"", 3: b""}, set(), http2.frames()

    def take() -> None:
        kind, flags, stream, payload = next(frames)
        assert kind not in (RST, GOAWAY), (stream, payload)
        if kind == WINDOW:
            windows[stream] += int.from_bytes(payload, "big")
        if kind == SETTINGS and not flags & ACK:
            windows[1] += dict(struct.iter_unpack(">HI", payload)).get(WINDOW_SIZE, 65_535) - 65_535
            # the server counts by its new window from here on
            http2.send(frame(SETTINGS, ACK, 0))
        if kind == DATA:
            bodies[stream] += payload
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            ended.add(stream)

    for sent in range(0, REST, len(PART)):
        while min(windows) < len(PART):
            take()
        http2.send(frame(DATA, END_STREAM if sent + len(PART) >= REST else 0, 1, PART))
        windows = [window - len(PART) for window in windows]
        time.sleep(PAUSE)
    http2.send(http2.get(3, "/version"))
    while ended != {1, 3}:
        take()
    http2.close()
    return json.loads(bodies[1])["code"], bodies[3]


@pytest.mark.parametrize("send", [send_by_http1, send_by_http2])
def test_a_refusal_reaches_who_is_still_sending(send: Callable[[Address, str], tuple[int, bytes]], address: Address, watched: Watched) -> None:
    """413 comes after 3 of 10 MB, 401 before the first: it is there once all is sent, and the connection goes on."""
    for token, code in ((address.token, 413), ("nobody", 401)):
        told, version = send(address, token)
        assert told == code and b"gitVersion" in version, (told, version)
    watched.is_well()


def test_no_request_hides_in_anothers_body(address: Address, watched: Watched) -> None:
    """What one reader of HTTP/1 takes for a body and another for a request: it is refused, or it is the body of who sent it."""
    hidden = f"GET /version HTTP/1.1\r\nHost: {address.authority}\r\n\r\n"
    head = f"POST {MAPS}?dryRun=All HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {address.token}\r\nContent-Type: application/json\r\n"
    chunked = "Transfer-Encoding: chunked\r\n"
    shapes = {
        "both lengths": head + "Content-Length: 5\r\n" + chunked + "\r\n0\r\n\r\n" + hidden,
        "two lengths": head + f"Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n" + hidden,
        "a list of lengths": head + f"Content-Length: 0, {len(hidden)}\r\n\r\n" + hidden,
        "a signed length": head + f"Content-Length: +{len(hidden)}\r\n\r\n" + hidden,
        "a negative length": head + "Content-Length: -1\r\n\r\n" + hidden,
        "a length in hexadecimal digits": head + f"Content-Length: 0x{len(hidden):x}\r\n\r\n" + hidden,
        "a length beyond all": head + "Content-Length: 99999999999999999999\r\n\r\n" + hidden,
        "another coding": head + "Transfer-Encoding: xchunked\r\n\r\n" + hidden,
        "chunked and more": head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
        "chunked twice": head + chunked + chunked + "\r\n0\r\n\r\n" + hidden,
        "a space before the colon": head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
        "a folded header": head + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a bare line feed": head + "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a bare return": head + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a zero in a header": head + "X: a\0b\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a chunk of a wrong size": head + chunked + "\r\nffffffffffffffff1\r\n" + hidden,
        "a negative chunk": head + chunked + "\r\n-1\r\n" + hidden,
        "an extension without end": head + chunked + "\r\n1;" + "x" * 200_000,
        "trailers without end": head + chunked + "\r\n0\r\n" + "X: y\r\n" * 20_000,
        "headers without end": head + "X: y\r\n" * 20_000,
        "no host": hidden.replace("Host", "Hos") ,
        "two hosts": hidden.replace("\r\n\r\n", "\r\nHost: evil.example.com\r\n\r\n"),
        "an address of another": hidden.replace("GET /version", "GET http://evil.example.com/version"),
        "another version": hidden.replace("HTTP/1.1", "HTTP/9.9"),
        "an upgrade to HTTP/2": hidden.replace("\r\n\r\n", "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"),
    }  # fmt: skip
    harmless = {"no host", "an upgrade to HTTP/2"}
    for name, text in shapes.items():
        one = address.connect(timeout=15)
        answers = b""
        try:
            one.sendall(text.encode())
            while part := one.recv(65536):
                answers += part
                # a request that was taken is answered, and then the connection waits for another one
                if b"gitVersion" in answers or b"HTTP/1.1 4" in answers:
                    break
        except OSError:
            pass
        one.close()
        seen = b"gitVersion" in answers
        assert b"HTTP/1.1 5" not in answers, f"{name}: {answers[:300]!r}"
        assert seen == (name in harmless), f"{name}: {answers[:300]!r}"
    watched.is_well()


def test_one_connection_of_many_watches_is_bounded(yard: Yard, address: Address) -> None:
    watched = Watched(yard)
    connections = []
    for _ in range(20):
        http2 = Http2(address, setting(WINDOW_SIZE, 0))
        http2.send(*[http2.get(2 * n + 1, f"{MAPS}?watch=1") for n in range(500)])
        connections.append(http2)
    text = json.dumps({"data": {"k": "x" * 100_000}})
    assert watched.http.ask("POST", MAPS, config_map("seen"))[0] == 201
    for n in range(50):
        assert watched.http.ask("PATCH", f"{MAPS}/seen", {"data": {"n": str(n), "k": text}})[0] == 200
    watched.is_well(grown=200)
    for http2 in connections:
        http2.close()
    assert watched.http.ask("DELETE", f"{MAPS}/seen")[0] == 200
