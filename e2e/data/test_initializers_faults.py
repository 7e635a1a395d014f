"""`trainyard initialize` where the world is at fault: names that cannot be looked up, addresses and credentials that expire, storms of
refusals, servers that fall silent, listings that break off; and what no fault may bring about: a token told to another host."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import clouds
import pytest
from conftest import BINARY
from test_initializers import initialize, listing
from web import Web, content

PART = 64 << 10
TEXT = content("text", 8 * PART + 5)


@pytest.fixture
def servers() -> Iterator[Callable]:
    """Makes servers that end with the test."""
    open_ones: list = []

    def start(kind, *args, **options):
        open_ones.append(kind(*args, **options))
        return open_ones[-1]

    yield start
    for one in open_ones:
        one.close()


class Run(NamedTuple):
    process: subprocess.Popen
    into: pathlib.Path

    def ended(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=120)[1]
        return self.process.returncode, said


def start(into: pathlib.Path, uri: str, *prefix: str, **variables: str) -> Run:
    env = {"PATH": os.environ["PATH"], "HOME": str(into.parent), "AWS_EC2_METADATA_DISABLED": "true", "PART_SIZE": str(PART), **variables}
    words = [*prefix, BINARY, "initialize", "dataset", "--into", str(into), "--uri", uri]
    return Run(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), into)


# --- names

GONE = 20
# its own table of hosts, and no name server that answers: HOSTS RESOLV COMMAND…
NAMES = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf || exit 99; shift 2; exec "$@"'


@pytest.mark.timeout(180)
def test_names_may_be_gone_for_twenty_seconds(servers, tmp_path: pathlib.Path):
    """Before the first answer, and when the connection broke on the way."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    enter = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    runs, lost = [], []
    for when in ["before", "on the way"]:
        hosts = tmp_path / when.replace(" ", "-")
        hosts.write_text("127.0.0.1 store.test\n")

        def leave(hosts=hosts) -> None:
            lost.append(time.monotonic())
            hosts.write_text("")
            back = threading.Timer(GONE, hosts.write_text, ["127.0.0.1 store.test\n"])
            back.daemon = True
            back.start()

        def behave(handler, count: int, leave=leave) -> dict:
            if handler.command == "GET" and count == 4:
                leave()
                return {"cut": 1000}
            return {}

        server = servers(Web, {"/x.bin": TEXT}, behave if when == "on the way" else None)
        if when == "before":
            leave()
        uri = server.url.replace("127.0.0.1", "store.test") + "/x.bin"
        prefix = [*enter, "sh", "-c", NAMES, "names", str(hosts), str(tmp_path / "resolv.conf")]
        runs.append(start(tmp_path / f"into-{when}", uri, *prefix, CONCURRENCY="1"))
    for run in runs:
        assert run.ended()[0] == 0
        assert listing(run.into) == {"x.bin": TEXT}
    assert len(lost) == 2 and time.monotonic() - lost[0] >= GONE, "they were not gone"


# --- what is hopeless ends with its code


def closed_port() -> int:
    return clouds.free_port()


@pytest.mark.timeout(240)
def test_a_network_that_gives_up_has_its_exit_code(servers, tmp_path: pathlib.Path):
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, says nothing
    broken = servers(clouds.S3)
    broken.put("data/x", TEXT)
    whole = broken.server
    torn = servers(clouds.Server, lambda handler, path, query: (200, {"Content-Length": None}, broken.route(handler, path, query)[2][:-30]))
    busy = servers(Web, {"/x.bin": TEXT}, lambda handler, count: {"status": 503, "headers": {"Retry-After": "1"}})
    cut = servers(Web, {"/x.bin": TEXT}, lambda handler, count: {"cut": 0} if handler.command == "GET" else {})
    drip = servers(Web, {"/x.bin": TEXT}, lambda handler, count: {"cut": 100} if handler.command == "GET" else {})
    quiet = servers(Web, {"/x.bin": TEXT}, lambda handler, count: {"cut": 100, "stall": 3} if handler.command == "GET" else {})
    runs = {
        "nobody listens": start(tmp_path / "a", f"http://127.0.0.1:{closed_port()}/x.bin"),
        "no answer": start(tmp_path / "b", f"http://127.0.0.1:{silent.getsockname()[1]}/x.bin", STALL_SECONDS="1"),
        "silence on the way": start(tmp_path / "c", f"{quiet.url}/x.bin", STALL_SECONDS="1"),
        "busy": start(tmp_path / "d", f"{busy.url}/x.bin"),
        "cut": start(tmp_path / "e", f"{cut.url}/x.bin"),
        "some bytes a try": start(tmp_path / "f", f"{drip.url}/x.bin", CONCURRENCY="1"),
        "a listing that breaks off": start(tmp_path / "g", "s3://bucket/data/", **{**broken.variables(), "ENDPOINT": torn.url}),
    }
    ends = {name: (run.ended(), listing(run.into) if run.into.exists() else {}) for name, run in runs.items()}
    silent.close()
    assert {name: (code, files) for name, ((code, _), files) in ends.items()} == dict.fromkeys(runs, (7, {})), ends
    assert all("run this again: it continues" in said for (_, said), _ in ends.values()), ends
    assert whole.requests == [], "the one that is torn was asked"


# --- patience


def test_a_server_that_asks_for_patience_gets_it(servers, tmp_path: pathlib.Path):
    """Nothing is asked before the time that Retry-After names, and 503 counts as 429."""
    asked: list[float] = []

    def behave(handler, count: int) -> dict:
        if handler.command != "GET":
            return {}
        asked.append(time.monotonic())
        return {"status": 503 if len(asked) % 2 else 429, "headers": {"Retry-After": "2"}} if len(asked) <= 2 else {}

    server = servers(Web, {"/x.bin": TEXT}, behave)
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", PART_SIZE=str(PART), CONCURRENCY="1")
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
    assert all(later - earlier >= 2 for earlier, later in zip(asked[:2], asked[1:3])), asked


@pytest.mark.parametrize("after", [None, "0", "1"])
@pytest.mark.timeout(120)
def test_a_storm_is_sat_out_by_all_streams(servers, tmp_path: pathlib.Path, after: str | None):
    """One request in four is let in: each piece is refused more often than one alone would bear."""
    headers = {} if after is None else {"Retry-After": after}
    turn = iter(range(1_000_000))

    def behave(handler, count: int) -> dict:
        return {"status": 429, "headers": headers} if handler.command == "GET" and next(turn) % 4 else {}

    files = {f"/{name}": content(str(name), 2 * PART) for name in range(8)}
    server = servers(Web, files, behave)
    done = initialize(tmp_path / "into", " ".join(server.url + path for path in files), PART_SIZE=str(PART), timeout=110)
    assert done.returncode == 0, done.stderr
    assert listing(tmp_path / "into") == {path[1:]: data for path, data in files.items()}


def test_a_server_that_cuts_every_answer_is_asked_for_the_rest(servers, tmp_path: pathlib.Path):
    server = servers(Web, {"/x.bin": content("x", 3 << 20)}, lambda handler, count: {"cut": 128 << 10} if handler.command == "GET" else {})
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", CONCURRENCY="2", PART_SIZE="1M", timeout=110)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": content("x", 3 << 20)}, done.stderr


def test_a_listing_that_breaks_off_is_asked_for_again(servers, tmp_path: pathlib.Path):
    """Without a length only its end shows whether it is whole."""
    for name, (kind, variable) in {"s3": (clouds.S3, "ENDPOINT"), "gs": (clouds.Google, "STORAGE_EMULATOR_HOST"), "az": (clouds.Azure, "AZURE_STORAGE_ENDPOINT")}.items():
        store = servers(kind)
        objects = {f"{index}.txt": str(index).encode() for index in range(7)}
        for key, data in objects.items():
            store.put(f"data/{key}", data)
        turn = iter(range(1000))

        def route(handler, path, query, store=store, turn=turn) -> tuple:
            status, headers, body = store.route(handler, path, query)
            is_listing = b"prefix" in handler.path.encode()
            return (status, {"Content-Length": None}, body[: len(body) // 2] if next(turn) % 2 == 0 else body) if is_listing else (status, headers, body)

        torn = servers(clouds.Server, route)
        variables = {**store.variables(), variable: torn.url}
        done = initialize(tmp_path / name, f"{store.scheme}://bucket/data/", **variables)
        assert done.returncode == 0 and listing(tmp_path / name) == objects, done.stderr


# --- what expires


class Hub:
    """A hub whose large files lie at signed addresses of another host, each good for `lives` requests."""

    def __init__(self, lives: int):
        self.lives, self.given, self.left, self.resolved = lives, 0, 0, 0
        self.next: Callable[[str], str | None] = lambda path: None
        self.server = clouds.Server(self.route)
        self.cdn = clouds.Server(self.file)

    def route(self, handler, path: str, query: dict) -> tuple:
        if "/revision/" in path:
            return 200, {}, json.dumps({"sha": "a" * 40}).encode()
        if "/tree/" in path:
            lfs = {"oid": hashlib.sha256(TEXT).hexdigest(), "size": len(TEXT), "pointerSize": 130}
            link = self.next(path)
            return 200, {"Link": f'<{link}>; rel="next"'} if link else {}, json.dumps([{"type": "file", "path": "x.bin", "oid": "0" * 40, "size": len(TEXT), "lfs": lfs}]).encode()
        self.resolved += 1
        self.given, self.left = self.given + 1, self.lives
        place = self.cdn.url.replace("127.0.0.1", "localhost")
        return 302, {"Location": f"{place}/x.bin?X-Signature=s3cr3t-signature-{self.given}"}, b""

    def file(self, handler, path: str, query: dict) -> tuple:
        if query.get("X-Signature") != f"s3cr3t-signature-{self.given}" or self.left <= 0:
            return 403, {}, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
        self.left -= 1
        return clouds.ranged(handler, TEXT, {})

    def close(self) -> None:
        self.server.close()
        self.cdn.close()


def test_a_signed_address_that_expires_is_asked_for_anew(servers, tmp_path: pathlib.Path):
    hub = servers(Hub, lives=2)
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.server.url, ACCESS_TOKEN="hf_s3cr3t", PART_SIZE=str(PART), CONCURRENCY="1")
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
    assert 5 <= hub.resolved <= 9, hub.resolved
    assert all(headers.get("authorization", headers.get("Authorization")) == "Bearer hf_s3cr3t" for _, _, headers, _ in hub.server.requests)
    assert not [headers for _, _, headers, _ in hub.cdn.requests if "s3cr3t" in str(headers)], "the token went to where the files lie"
    state = b"".join(path.read_bytes() for path in (tmp_path / "into" / ".trainyard").rglob("*") if path.is_file())
    assert "s3cr3t" not in done.stderr and b"s3cr3t" not in state


def test_a_signed_address_that_never_opens_is_no_access(servers, tmp_path: pathlib.Path):
    hub = servers(Hub, lives=0)
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.server.url, PART_SIZE=str(PART), CONCURRENCY="1")
    assert done.returncode == 4 and "s3cr3t" not in done.stderr, done.stderr
    assert "x.bin" in done.stderr and "to which the hub sends" in done.stderr, done.stderr
    assert hub.resolved == 2 and listing(tmp_path / "into") == {}


class Shy(Hub):
    """The first address that it gives does not open, or it does not have the file that it lists."""

    def __init__(self, lost: bool = False):
        super().__init__(lives=99)
        self.lost = lost

    def route(self, handler, path: str, query: dict) -> tuple:
        return (404, {}, b"") if self.lost and "/resolve/" in path else super().route(handler, path, query)

    def file(self, handler, path: str, query: dict) -> tuple:
        return (403, {}, b"") if self.given == 1 else super().file(handler, path, query)


def test_an_address_that_is_refused_at_once_is_asked_for_anew(servers, tmp_path: pathlib.Path):
    hub = servers(Shy)
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.server.url)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
    assert hub.resolved == 2


def test_a_listed_file_that_is_not_there_is_named(servers, tmp_path: pathlib.Path):
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=servers(Shy, lost=True).server.url)
    assert done.returncode == 3 and "x.bin" in done.stderr and "lists the file" in done.stderr, done.stderr
    assert "no such dataset" not in done.stderr, done.stderr


@pytest.mark.timeout(180)
def test_what_is_complete_needs_no_hub(servers, tmp_path: pathlib.Path):
    hub, into = servers(Hub, lives=99), tmp_path / "into"
    settings = {"HF_ENDPOINT": hub.server.url, "HF_TOKEN": "hf_s3cr3t", "ACCESS_TOKEN": "hf_0ther"}
    assert initialize(into, "hf://acme/data", HF_HUB_OFFLINE="1", **settings).returncode == 2
    assert initialize(into, "hf://acme/data", **settings).returncode == 0
    # the hub's own variable before upstream's, which is a login to it
    assert {headers.get("authorization", headers.get("Authorization")) for _, _, headers, _ in hub.server.requests} == {"Bearer hf_s3cr3t"}
    hub.server.requests.clear()
    done = initialize(into, "hf://acme/data", HF_HUB_OFFLINE="1", **settings)
    assert done.returncode == 0 and "HF_HUB_OFFLINE" in done.stderr and not hub.server.requests, done.stderr
    nobody = {**settings, "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = initialize(into, "hf://acme/data", **nobody)
    assert done.returncode == 0 and "warning" in done.stderr and "127.0.0.1:9" in done.stderr, done.stderr
    (into / "x.bin").unlink()
    assert initialize(into, "hf://acme/data", HF_HUB_OFFLINE="1", **settings).returncode == 2
    hub.server.requests.clear()
    assert initialize(into, "hf://acme/data", HF_HUB_DISABLE_IMPLICIT_TOKEN="1", **settings).returncode == 0
    assert not [headers for _, _, headers, _ in hub.server.requests if "Bearer" in str(headers)]


def test_a_clock_that_is_not_the_servers_is_told(servers, tmp_path: pathlib.Path):
    said = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
    store = servers(clouds.Server, lambda handler, path, query: (403, {}, said))
    done = initialize(tmp_path / "into", "s3://b/data/", ENDPOINT=store.url, ACCESS_KEY_ID="a", SECRET_ACCESS_KEY="s3cr3t-key")
    assert (done.returncode, "clock" in done.stderr) == (4, True), done.stderr


class Expiring:
    """Credentials that a server gives, of which the newest is good for `lives` requests; then it is refused before its time."""

    def __init__(self, lives: int):
        self.lives, self.given, self.left = lives, 0, 0
        self.server = clouds.Server(self.give)

    def give(self, handler, path: str, query: dict) -> tuple:
        self.given, self.left = self.given + 1, self.lives
        until = "2099-01-01T00:00:00Z"
        aws = {"AccessKeyId": f"AKID{self.given}", "SecretAccessKey": "s3cr3t-key", "Token": f"s3cr3t-session-{self.given}", "Expiration": until}
        token = {"access_token": f"s3cr3t-token-{self.given}", "expires_in": 3600}
        return 200, {"Metadata-Flavor": "Google"}, json.dumps(aws if path == "/pod" else token).encode()

    def opens(self, is_newest: bool) -> bool:
        if is_newest and self.left > 0:
            self.left -= 1
            return True
        return False

    def close(self) -> None:
        self.server.close()


def expiring(name: str, servers, lives: int) -> tuple:
    """A store, credentials for it that expire, and the variables that say so."""
    given = servers(Expiring, lives)
    if name == "s3":
        store = servers(clouds.S3)
        store.refusal = "ExpiredToken"
        store.allowed = lambda handler, query: given.opens(clouds.is_signed(handler, f"AKID{given.given}", "s3cr3t-key", f"s3cr3t-session-{given.given}"))
        return store, given, {"ENDPOINT": store.server.url, "REGION": "us-east-1", "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{given.server.url}/pod"}
    if name == "azure":
        store = servers(clouds.Azure)
        store.allowed = lambda headers, query: given.opens(headers.get("Authorization") == f"Bearer s3cr3t-token-{given.given}")
        return store, given, {**store.variables(), "AZURE_STORAGE_KEY": "", "AZURE_POD_IDENTITY_AUTHORITY_HOST": given.server.url}
    store = servers(clouds.Google)
    route = store.route

    def checked(handler, path: str, query: dict) -> tuple:
        store.token = f"s3cr3t-token-{given.given}" if given.opens(handler.headers.get("Authorization") == f"Bearer s3cr3t-token-{given.given}") else "none"
        return route(handler, path, query)

    door = servers(clouds.Server, checked)
    return store, given, {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": door.url, "GCE_METADATA_HOST": given.server.host}


@pytest.mark.parametrize("name", ["s3", "google", "azure"])
def test_credentials_that_expire_on_the_way_are_asked_for_anew(servers, tmp_path: pathlib.Path, name: str):
    store, given, variables = expiring(name, servers, lives=4)
    store.put("data/x.bin", TEXT)
    done = initialize(tmp_path / "into", f"{store.scheme}://bucket/data/x.bin", PART_SIZE=str(PART), CONCURRENCY="1", **variables)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
    assert 3 <= given.given <= 5 and "s3cr3t" not in done.stderr, (given.given, done.stderr)


@pytest.mark.parametrize("name", ["s3", "google", "azure"])
def test_credentials_that_are_never_good_are_asked_for_anew_once(servers, tmp_path: pathlib.Path, name: str):
    store, given, variables = expiring(name, servers, lives=0)
    store.put("data/x.bin", TEXT)
    done = initialize(tmp_path / "into", f"{store.scheme}://bucket/data/x.bin", **variables)
    assert (done.returncode, given.given) == (4, 2) and "s3cr3t" not in done.stderr, done.stderr


# --- a token is for one host


def neighbours() -> tuple[int, int]:
    """Two free ports, of which one begins like the other."""
    for short in range(2000, 3276):
        for digit in range(10):
            with socket.socket() as one, socket.socket() as other:
                try:
                    one.bind(("127.0.0.1", short))
                    other.bind(("127.0.0.1", short * 10 + digit))
                except OSError:
                    continue
                return short, short * 10 + digit
    raise AssertionError("no two ports are free")


def test_a_token_is_not_sent_to_an_address_that_begins_like_the_hubs(servers, tmp_path: pathlib.Path):
    """By the next page of a listing, and by a redirect."""
    short, longer = neighbours()
    hub, thief = servers(Hub, lives=99), servers(Hub, lives=99)
    own = servers(clouds.Server, hub.route, port=short)
    other = servers(clouds.Server, thief.route, port=longer)
    hub.next = lambda path: f"{other.url}/api/datasets/acme/data/tree/{'a' * 40}"
    hub.cdn.url = f"{other.url}/acme"
    initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=own.url, ACCESS_TOKEN="hf_s3cr3t", HF_TOKEN="hf_s3cr3t")
    assert [headers for _, _, headers, _ in own.requests if "hf_s3cr3t" in str(headers)], "the hub needs it"
    assert other.requests and not [headers for _, _, headers, _ in other.requests if "hf_s3cr3t" in str(headers)]


def test_a_token_of_a_pod_is_not_sent_to_just_any_host(servers, tmp_path: pathlib.Path):
    (tmp_path / "token").write_text("s3cr3t-pod")
    variables = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23.example.com/v1", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}
    done = initialize(tmp_path / "into", "s3://bucket/x", **variables)
    assert done.returncode == 2 and "AWS_CONTAINER_CREDENTIALS_FULL_URI" in done.stderr and "s3cr3t" not in done.stderr, done.stderr
