"""`trainyard initialize` against servers and files that have no end: each meets a bound that its message names, in little memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pathlib
import sys
import time

import clouds
import pytest
from test_initializers import initialize, listing
from test_initializers_faults import Hub, servers, start  # noqa: F401 (a fixture)
from web import Web

MIB = 1 << 20
SLICE = b"x" * 65_536


def pour(handler, first: bytes, piece: bytes, status: int = 200) -> tuple:
    """An answer that does not end, for some time."""
    handler.send_response(status)
    handler.send_header("Connection", "close")
    handler.end_headers()
    end = time.monotonic() + 30
    handler.wfile.write(first)
    while time.monotonic() < end:
        handler.wfile.write(piece)
    raise ConnectionResetError


def page(names: list[str], token: str | None, cut: bool = True) -> tuple:
    rows = "".join(f"<Contents><Key>{name}</Key><Size>1</Size><ETag>x</ETag></Contents>" for name in names)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return 200, {}, f"<ListBucketResult><IsTruncated>{str(cut).lower()}</IsTruncated>{rows}{more}</ListBucketResult>".encode()


def thousand(query: dict) -> list[str]:
    first = int(query.get("continuation-token", 0)) * 1000
    return [f"data/{number:0900}" for number in range(first, first + 1000)]


S3 = {
    "a page without end": (lambda handler, query: pour(handler, b"<ListBucketResult>", SLICE), "8 MiB"),
    "elements without end": (lambda handler, query: pour(handler, b"<ListBucketResult>", b"<a/>" * 9999), "8 MiB"),
    "pages without end": (lambda handler, query: page(thousand(query), str(int(query.get("continuation-token", 0)) + 1)), "LISTING_MAX"),
    "empty pages": (lambda handler, query: page([], str(int(query.get("continuation-token", 0)) + 1)), "1000 pages"),
    "the same token": (lambda handler, query: page(["data/a"], "again"), "twice"),
    "a circle": (lambda handler, query: page(["data/a"], str((int(query.get("continuation-token", 0)) + 1) % 3)), "twice"),
    "more, and not where": (lambda handler, query: page(["data/a"], None), "how to ask"),
    "a refusal without end": (lambda handler, query: pour(handler, b"<Error>", SLICE, 403), "credentials"),
}


# The most memory of a process counts that of the process that started it, before it became another program: here a small one.
MEASURE = """
import os, pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10))
sys.exit(code % 256)
"""


def measured(into: pathlib.Path, uri: str, **variables: str) -> tuple[int, str, int]:
    """Exit code, what was said, and the most memory in MiB."""
    memory = into.parent / "memory"
    code, said = start(into, uri, sys.executable, "-S", "-c", MEASURE, str(memory), **variables).ended()
    return code, said, int(memory.read_text())


@pytest.mark.parametrize("name", S3)
def test_an_object_stores_listing_has_an_end(servers, tmp_path: pathlib.Path, name: str):  # noqa: F811
    answer, says = S3[name]
    store = servers(clouds.Server, lambda handler, path, query: answer(handler, query))
    variables = {"ENDPOINT": store.url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "s3cr3t-key", "REGION": "r", "LISTING_MAX": "64M"}
    code, said, memory = measured(tmp_path / "into", "s3://b/data/", **variables)
    assert code not in (0, 101) and says in said and memory < 256, (code, memory, said)
    assert not (tmp_path / "into").exists()


def test_what_a_server_says_is_no_command_of_a_terminal(servers, tmp_path: pathlib.Path):  # noqa: F811
    said = "<Error><Code>Nope&#27;[2J</Code><Message>&#27;]0;title&#7; &#x9b;31m \u202e" + "long" * 12_000 + "</Message></Error>"
    store = servers(clouds.Server, lambda handler, path, query: (400, {}, said.encode()))
    done = initialize(tmp_path / "into", "s3://b/data/", ENDPOINT=store.url, ACCESS_KEY_ID="a", SECRET_ACCESS_KEY="s3cr3t-key")
    assert done.returncode == 1 and "\\x1b]0;title\\x07 \\x9b31m \\u{202e}long" in done.stderr, done.stderr[:500]
    assert not {character for character in done.stderr if (ord(character) < 32 and character != "\n") or character in "\x9b\u202e"}
    assert len(done.stderr) < 17_000


def google(handler, query: dict) -> tuple:
    return 200, {}, json.dumps({"items": [{"name": "data/a", "size": "1"}], "nextPageToken": "again"}).encode()


def azure(handler, query: dict) -> tuple:
    blob = "<Blob><Name>data/a</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>"
    return 200, {}, f"<EnumerationResults><Blobs>{blob}</Blobs><NextMarker>again</NextMarker></EnumerationResults>".encode()


@pytest.mark.parametrize("scheme, answer", [("gs", google), ("az", azure)])
def test_the_same_token_twice_is_no_end(servers, tmp_path: pathlib.Path, scheme: str, answer):  # noqa: F811
    store = servers(clouds.Server, lambda handler, path, query: answer(handler, query))
    places = {"STORAGE_EMULATOR_HOST": store.url, "AZURE_STORAGE_ENDPOINT": store.url, "AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_SAS_TOKEN": "sig=x"}
    done = initialize(tmp_path / "into", f"{scheme}://bucket/data/", **places)
    assert done.returncode == 1 and "twice" in done.stderr and not (tmp_path / "into").exists(), done.stderr


def test_a_hubs_pages_lead_somewhere(servers, tmp_path: pathlib.Path):  # noqa: F811
    hub = servers(Hub, lives=99)
    hub.next = lambda path: path + "?recursive=true"
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.server.url)
    assert done.returncode == 1 and "twice" in done.stderr, done.stderr


def test_a_hubs_answers_have_an_end(servers, tmp_path: pathlib.Path):  # noqa: F811
    hub = servers(clouds.Server, lambda handler, path, query: pour(handler, b'{"sha": "', SLICE))
    code, said, memory = measured(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.url)
    assert code == 1 and "32 MiB" in said and memory < 200, (code, memory, said)


def test_a_byte_now_and_then_is_no_progress(servers, tmp_path: pathlib.Path):  # noqa: F811
    """Each byte comes before the silence is too long, and the file would come in days."""
    data, dripped = b"x" * MIB, []

    def drip(handler, count: int) -> dict:
        if handler.command == "HEAD" or dripped:
            return {}
        handler.send_response(200)
        for name, value in {"Content-Length": str(MIB), "ETag": f'"{hashlib.md5(data).hexdigest()}"'}.items():
            handler.send_header(name, value)
        handler.end_headers()
        dripped.append(0)
        while True:  # until the client goes
            handler.wfile.write(b"x")
            dripped[0] += 1
            time.sleep(0.2)  # the server is slow, not the test

    web = servers(Web, {"/x.bin": data}, drip)
    done = initialize(tmp_path / "into", f"{web.url}/x.bin", STALL_SECONDS="1", PART_SIZE="16M", timeout=60)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": data}, done.stderr
    assert dripped[0] < 60


# --- files


def zero(path: pathlib.Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


@pytest.mark.parametrize("make", [zero, os.mkfifo, hole])
@pytest.mark.parametrize("name", ["state", "state.new", "lock"])
def test_a_state_without_end_is_refused(tmp_path: pathlib.Path, name: str, make):
    source, into = tmp_path / "source", tmp_path / "into"
    source.write_bytes(b"x")
    (into / ".trainyard").mkdir(parents=True)
    make(into / ".trainyard" / name)
    # nobody waits for what is not there
    done = initialize(into, f"file://{source}", timeout=20)
    is_ours = name == "state.new" or (name, make) == ("lock", hole)
    assert (done.returncode == 0) == is_ours and (is_ours or f".trainyard/{name}" in done.stderr), done.stderr
    assert listing(into) == ({"source": b"x"} if is_ours else {})


@pytest.mark.parametrize("variable, make", list(itertools.product(["HF_TOKEN_PATH", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_WEB_IDENTITY_TOKEN_FILE"], [zero, hole])))
def test_a_token_without_end_is_refused(servers, tmp_path: pathlib.Path, variable: str, make):  # noqa: F811
    make(tmp_path / "token")
    gone = servers(clouds.Server, lambda handler, path, query: (404, {}, b""))
    uri = {"HF": "hf://acme/data", "GO": "gs://bucket/data/", "AW": "s3://bucket/data/"}[variable[:2]]
    places = {"HF_ENDPOINT": gone.url, "ENDPOINT": gone.url, "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": gone.url, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r"}
    code, said, memory = measured(tmp_path / "into", uri, **{**places, "AWS_ENDPOINT_URL_STS": gone.url, variable: str(tmp_path / "token")})
    assert code in (3, 4) and memory < 200, (code, memory, said)
