"""Clients that end their half of a connection, by TLS, by TCP or by both, and listen on: they get what they asked for, no part passes for the
whole, and nothing is kept for those that are gone."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator

import pytest
from conftest import Yard, stop, wait_for
from half_closed import ENDS, Halves
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, Address, block, frame
from test_durability import MAPS, Http, config_map

# A stream that has nothing to say to such a client ends after 10 s.
PAUSE = 10


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("halves"), "--no-node")
    yield yard
    stop(yard)


@pytest.fixture(scope="module")
def address(yard: Yard) -> Address:
    return Address(pathlib.Path(yard.kubeconfig).read_text())


@pytest.fixture(scope="module")
def http(yard: Yard) -> Http:
    http = Http(yard)
    for n in range(3):
        assert http.ask("POST", MAPS, config_map(f"large-{n}", text="x" * 900_000))[0] == 201
    return http


@pytest.fixture(autouse=True)
def nothing_is_left(yard: Yard, http: Http) -> Iterator[None]:
    """Descriptors of the server that are sockets are as many after a test as before."""
    http.ask("GET", "/version")
    before = sockets(yard)
    yield
    wait_for("the connections' end", lambda: sockets(yard) <= before, 3 * PAUSE)


def sockets(yard: Yard) -> int:
    count = 0
    for entry in pathlib.Path(f"/proc/{yard.running['pid']}/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


def request(address: Address, path: str, body: str = "", headers: str = "") -> bytes:
    """With a body it is a POST of that length, unless the headers say otherwise."""
    method = "POST" if body else "GET"
    if body and "Transfer-Encoding" not in headers and "Content-Length" not in headers:
        headers += f"Content-Length: {len(body)}\r\n"
    media = "Content-Type: application/json\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {address.token}\r\n{media}{headers}\r\n{body}".encode()


CHUNKED = "Transfer-Encoding: chunked\r\n"


def chunks(*parts: str) -> str:
    return "".join(f"{len(part):x}\r\n{part}\r\n" for part in parts)


@pytest.mark.parametrize("end", ENDS)
def test_what_was_asked_is_answered(end: str, address: Address, http: Http) -> None:
    large = http.ask("GET", MAPS)[1].encode()
    for requests, count, told in [
        (request(address, "/version"), 1, b"gitVersion"),
        (request(address, MAPS), 1, large[-1000:]),
        (request(address, f"{MAPS}/large-0") + request(address, MAPS) + request(address, "/version"), 3, b"gitVersion"),
        (request(address, "/version", headers="Connection: close\r\n"), 1, b"gitVersion"),
    ]:  # fmt: skip
        client = Halves(address)
        client.send(requests)
        ENDS[end](client)
        answers = client.rest()
        assert answers.count(b"HTTP/1.1 200 OK") == count and told in answers, answers[-300:]
        client.close()


@pytest.mark.parametrize("end", ENDS)
def test_a_body_that_is_whole_is_taken_and_no_other(end: str, address: Address, http: Http) -> None:
    text = json.dumps(config_map(f"whole-{end}", text="y" * 200_000))
    half = len(text) // 2
    for name, sent, code in [
        ("whole", request(address, MAPS, text), b"201"),
        ("deleted", f"DELETE {MAPS}/whole-{end} HTTP/1.1\r\nHost: {address.authority}\r\nAuthorization: Bearer {address.token}\r\n\r\n".encode(), b"200"),
        ("chunks", request(address, MAPS, chunks(text[:half], text[half:]) + "0\r\n\r\n", CHUNKED), b"201"),
        ("cut", request(address, MAPS, text.replace("whole", "cut"))[:-1], b"400"),
        ("no last chunk", request(address, MAPS, chunks(text.replace("whole", "cut")), CHUNKED), b"400"),
        ("no body", request(address, MAPS, text.replace("whole", "cut")).split(b"\r\n\r\n")[0] + b"\r\n\r\n", b"400"),
        ("cut in a chunk", request(address, MAPS, chunks(text.replace("whole", "cut"))[:half], CHUNKED), b"400"),
        ("no head", request(address, MAPS)[:-1], b""),
        ("nothing", b"", b""),
    ]:  # fmt: skip
        client = Halves(address)
        client.send(sent)
        begun = time.monotonic()
        ENDS[end](client)
        answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 " + code) if code else not answer.startswith(b"HTTP/1.1 2"), f"{name}: {answer[:300]!r}"
        assert time.monotonic() - begun < PAUSE, name
        client.close()
    assert http.ask("GET", f"{MAPS}/cut-{end}")[0] == 404
    assert http.ask("GET", f"{MAPS}/whole-{end}")[0] == 200


def test_a_watch_goes_on_while_there_is_something_to_say(address: Address, http: Http) -> None:
    clients = {}
    for end, say in ENDS.items():
        for more in ("", "G", "GET /version HTTP/1.1\r\n\r\n", "x" * 100_000):
            name = f"seen-{end}-{len(more)}"
            client = clients[name] = Halves(address)
            client.send(request(address, f"{MAPS}?watch=1&fieldSelector=metadata.name%3D{name}"))
            client.until(b"\r\n\r\n")
            client.send(more.encode())
            say(client)
    told = {}
    for name, client in clients.items():
        assert http.ask("POST", MAPS, config_map(name))[0] == 201
        told[name] = client.until(b'"ADDED"')
        assert http.ask("DELETE", f"{MAPS}/{name}")[0] == 200
        told[name] += client.until(b'"DELETED"')
    begun = time.monotonic()
    for name, client in clients.items():
        told[name] += client.rest()
        assert not told[name].endswith(b"0\r\n\r\n"), f"{name} has not come to its end"
        client.close()
    assert time.monotonic() - begun < 2 * PAUSE


@pytest.mark.parametrize("end", ENDS)
def test_a_watch_whose_time_is_up_says_so(end: str, address: Address) -> None:
    client = Halves(address)
    client.send(request(address, f"{MAPS}?watch=1&timeoutSeconds=2&fieldSelector=metadata.name%3Dnone"))
    ENDS[end](client)
    assert client.rest().endswith(b"0\r\n\r\n")
    client.close()


@pytest.mark.parametrize("end", ENDS)
def test_streams_of_http2_are_answered(end: str, address: Address, http: Http) -> None:
    text = json.dumps(config_map(f"second-{end}")).encode()
    fields = lambda method, path: block(
        (":method", method), (":scheme", "https"), (":authority", address.authority), (":path", path),
        ("authorization", f"Bearer {address.token}"), ("content-type", "application/json"))  # fmt: skip
    client = Halves(address, http2=True)
    client.send(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, fields("GET", "/version")))
    client.send(frame(HEADERS, END_HEADERS, 3, fields("POST", MAPS)) + frame(DATA, END_STREAM, 3, text))
    # one whose body does not end, and one whose stream does not
    client.send(frame(HEADERS, END_HEADERS, 5, fields("POST", MAPS)) + frame(DATA, 0, 5, text.replace(b"second", b"cut")))
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 7, fields("GET", f"{MAPS}?watch=1&fieldSelector=metadata.name%3Dnone")))
    begun = time.monotonic()
    ENDS[end](client)
    told = client.rest()
    assert time.monotonic() - begun < 3 * PAUSE
    assert b"gitVersion" in told and f'"name":"second-{end}"'.encode() in told, told[-500:]
    client.close()
    assert http.ask("GET", f"{MAPS}/cut-{end}")[0] == 404


def test_those_that_are_gone_leave_nothing(yard: Yard, address: Address) -> None:
    """Watches whose clients go without a word, or with one; what they leave is looked for after every test."""
    before = sockets(yard)
    for n in range(60):
        client = Halves(address)
        client.send(request(address, f"{MAPS}?watch=1&fieldSelector=metadata.name%3Dnone") + (b"G" if n % 2 else b""))
        client.until(b"\r\n\r\n")
        (client.reset, client.close, client.both)[n % 3]()
        client.close()
    assert sockets(yard) >= before + 20, "they are counted"


def test_clients_that_may_be_gone_are_asked(yard: Yard, address: Address) -> None:
    """Timers of TCP (man 5 proc, `tcp`): 2 is one that asks."""
    client = Halves(address)
    client.send(request(address, "/version"))
    client.until(b"gitVersion")
    port = client.socket.getsockname()[1]

    def timer() -> str:
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{address.place[1]:04X}") and fields[2].endswith(f":{port:04X}"):
                return fields[5].split(":")[0]
        return ""

    wait_for("the timer", lambda: timer() == "02")
    client.close()
