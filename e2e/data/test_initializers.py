"""`trainyard initialize`: recordings of upstream's initializers, kills at any byte, servers with faults, and jobs on a laptop.

What the library half does by itself is tested in `crates/fetch`; here are the binary, real servers and real crashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import clouds
import pytest
from conftest import BINARY, ROOT, Yard, stop, wait_for
from web import Web, content

GOLDEN = ROOT / "e2e/golden" / "initializers"
# What starts the data cache is not part of this version: no cache, so no cases that make one.
NOT_YET = {"cache-account-there", "cache-all", "cache-poll-error", "cache-without-cache-image", "cache-without-iam-role"}
KILLS = int(os.environ.get("SOAK_KILLS", "20"))
SEED = int(os.environ.get("SEED", "1"))
PART = 256 << 10
STREAMS = 4


def initialize(into: pathlib.Path, uri: str, *flags: str, kind: str = "dataset", timeout: float = 90, **variables: str):
    env = {"PATH": os.environ["PATH"], "HOME": str(into.parent), "STORAGE_URI": uri, "AWS_EC2_METADATA_DISABLED": "true", **variables}
    words = [BINARY, "initialize", kind, "--into", str(into), *flags]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=timeout)


def listing(folder: pathlib.Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".trainyard" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def web() -> Iterator[type]:
    open_ones: list[Web] = []

    def start(*args, **options) -> Web:
        open_ones.append(Web(*args, **options))
        return open_ones[-1]

    yield start
    for one in open_ones:
        one.close()


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, GOLDEN / "hub.py"], stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().split()[-1]
    process.kill()
    process.wait()


# --- recordings


@pytest.mark.timeout(600)
def test_recordings_of_upstreams_initializers():
    pytest.importorskip("moto")
    command = f"{BINARY} initialize {{kind}} --into {{target}}"
    done = subprocess.run([sys.executable, GOLDEN / "replay.py", "check", command, "-j", "16"], capture_output=True, text=True)
    failed = set(re.findall(r"^FAILED (\S+):", done.stdout, re.MULTILINE))
    count = sum(map(int, re.findall(r"(\d+) (?:passed|failed)", done.stdout)))
    assert count == len(list((GOLDEN / "cases").glob("*.yaml"))), done.stdout + done.stderr
    assert failed - NOT_YET == set(), done.stdout
    assert NOT_YET - failed == set(), "these pass now; take them off the list"


# --- crashes


def killed(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.timeout(1800)
def test_a_kill_at_any_byte_costs_at_most_a_part_for_each_stream(web, tmp_path: pathlib.Path):
    """Files of several parts and small ones, killed when the server has sent a number of bytes, then run to the end."""
    chance = random.Random(SEED)
    sizes = {"/big": 9 * PART + 17, "/bigger": 14 * PART, "/small": 1000, "/part": PART, "/empty": 0}
    files = {path: content(path, size) for path, size in sizes.items()}
    total = sum(sizes.values())
    for attempt in range(KILLS):
        server = web(files)
        uri = " ".join(server.url + path for path in files)
        into = tmp_path / f"into-{attempt}"
        at, crossed = chance.randrange(total), threading.Event()
        server.on_bytes = lambda served, at=at, crossed=crossed: served >= at and crossed.set()
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "STORAGE_URI": uri, "PART_SIZE": str(PART), "CONCURRENCY": str(STREAMS)}
        process = subprocess.Popen([BINARY, "initialize", "model", "--into", str(into)], env=env, stderr=subprocess.PIPE)
        wait_for("the byte to be sent", lambda: crossed.is_set() or process.poll() is not None)
        killed(process)
        process.communicate()
        seen = listing(into) if into.exists() else {}
        assert all(files["/" + name] == data for name, data in seen.items()), f"SEED={SEED} {attempt}: a wrong file is in place"
        torn = tear(into / ".trainyard", chance)
        done = initialize(into, uri, kind="model", PART_SIZE=str(PART), CONCURRENCY=str(STREAMS))
        assert done.returncode == 0, done.stderr
        assert listing(into) == {path[1:]: data for path, data in files.items()}, f"SEED={SEED} {attempt}"
        # what the kernel had taken from the server and the dead process never read is in the streams' sockets
        again = server.served - total
        assert torn or again <= STREAMS * (PART + (512 << 10)) + sizes["/part"] + sizes["/small"], f"SEED={SEED} {attempt}: {again} bytes came again"


def tear(state: pathlib.Path, chance: random.Random) -> bool:
    """In three of four runs: what a power cut may leave. Data that never reached the disk, torn journals, a torn state."""
    files = sorted(path for path in state.rglob("*") if path.is_file()) if state.exists() else []
    how = chance.randrange(4) if files else 0
    match how:
        case 1:
            victim = chance.choice(files)
            victim.write_bytes(victim.read_bytes()[: chance.randrange(victim.stat().st_size + 1)])
        case 2:
            for part in files:
                if part.parent.name == "part" and part.suffix == "" and part.stat().st_size:
                    data = bytearray(part.read_bytes())
                    at = chance.randrange(len(data))
                    data[at : at + 4096] = bytes(len(data[at : at + 4096]))
                    part.write_bytes(data)
        case 3:
            for path in files:
                if path.name == "state":
                    path.write_bytes(path.read_bytes() + b'{"file":{"target":"sm')
    return how != 0


# --- faults

TEXT = content("text", 700_000)
SHA = hashlib.sha256(TEXT).hexdigest()

# fault → how often, and variables. Each ends with the right file.
MENDED: dict[str, tuple[dict, int]] = {
    "cut": ({"cut": 300_000}, 2),
    "cut at once": ({"cut": 0}, 2),
    "longer than it is": ({"longer": 100}, 2),
    "stalled": ({"cut": 100_000, "stall": 3}, 2),
    "busy": ({"status": 429, "headers": {"Retry-After": "1"}}, 2),
    "unavailable": ({"status": 503}, 2),
    "broken gateway": ({"status": 502}, 2),
    "weak etag": ({"etag": 'W/"x"'}, 99),
    "no etag": ({"etag": None}, 99),
    "no ranges": ({"no_ranges": True}, 99),
    "ranges told and not kept": ({"no_ranges": True, "headers": {"Accept-Ranges": "bytes"}}, 99),
    "packed, and right by its checksum": ({"headers": {"Content-Encoding": "br"}}, 99),
    "packed": ({"gzip": True}, 99),
    "flipped bit": ({"corrupt": 350_000}, 3),
}


@pytest.mark.parametrize("name", MENDED)
def test_a_fault_is_mended(web, tmp_path: pathlib.Path, name: str):
    fault, times = MENDED[name]
    server = web({"/x.bin": TEXT}, lambda handler, count: fault if count <= times and (handler.command == "GET" or times == 99) else {})
    into = tmp_path / "into"
    done = initialize(into, f"{server.url}/x.bin#sha256={SHA}", PART_SIZE=str(PART), STALL_SECONDS="1")
    assert done.returncode == 0, done.stderr
    assert listing(into) == {"x.bin": TEXT}


def test_a_server_without_head_is_asked_for_a_first_byte(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT}, lambda handler, count: {"status": 405} if handler.command == "HEAD" else {})
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", PART_SIZE=str(PART))
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr


@pytest.mark.parametrize(
    "fault, code, words",
    [
        ({"corrupt": 1}, 5, "checksum"),
        ({"status": 403}, 4, "403"),
        ({"status": 401}, 4, "BEARER_TOKEN"),
        ({"status": 404}, 3, "404"),
        ({"status": 302, "headers": {"Location": "/x.bin"}}, 1, "redirects"),
    ],
)
def test_what_cannot_be_mended_has_its_exit_code(web, tmp_path: pathlib.Path, fault: dict, code: int, words: str):
    server = web({"/x.bin": TEXT}, lambda handler, count: fault)
    done = initialize(tmp_path / "into", f"{server.url}/x.bin#sha256={SHA}", PART_SIZE=str(PART))
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert listing(tmp_path / "into") == {}


def test_what_is_packed_in_an_unknown_way_is_no_file(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT}, lambda handler, count: {"headers": {"Content-Encoding": "br"}})
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", PART_SIZE=str(PART))
    assert (done.returncode, '"br"' in done.stderr) == (1, True), done.stderr
    assert listing(tmp_path / "into") == {}
    server.files["/x.br"] = TEXT  # named so, it is meant to stay so
    done = initialize(tmp_path / "into", f"{server.url}/x.br", PART_SIZE=str(PART))
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.br": TEXT}, done.stderr


@pytest.mark.parametrize("name, there, words", [("x.bin", "x.bin/mine", "a folder is where"), ("sub/x.bin", "sub", "a file is where")])
def test_what_stands_in_the_way_is_told_before_the_first_byte(tmp_path: pathlib.Path, name: str, there: str, words: str):
    source, into = tmp_path / "source", tmp_path / "into"
    for path, text in [(source / "a.bin", "new"), (source / name, "new"), (into / there, "mine")]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for flags in [(), ("--dry-run",)]:
        done = initialize(into, f"file://{source}", *flags)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert listing(into) == {there: b"mine"}
    done = initialize(into, f"file://{source}", "--verify")
    assert (done.returncode, "2 of 2 files" in done.stderr) == (5, True), done.stderr


def test_a_file_that_changes_on_the_way_is_begun_anew(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT})
    other = content("other", 700_000)
    server.on_bytes = lambda served: server.files.update({"/x.bin": other})
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", PART_SIZE=str(PART), CONCURRENCY="1")
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": other}, done.stderr


def test_a_second_run_fetches_nothing_and_verify_finds_what_was_changed(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT, "/y.bin": TEXT[:5]})
    uri, into = f"{server.url}/x.bin#sha256={SHA} {server.url}/y.bin", tmp_path / "into"
    assert json.loads(initialize(into, uri, "--dry-run", "-o", "json").stdout)["bytes"] == len(TEXT) + 5
    assert not into.exists()
    assert json.loads(initialize(into, uri, "-o", "json").stdout)["bytesFetched"] == len(TEXT) + 5
    assert json.loads(initialize(into, uri, "-o", "json").stdout)["bytesFetched"] == 0
    assert initialize(into, uri, "--verify").returncode == 0
    (into / "x.bin").write_bytes(b"?" + TEXT[1:])
    done = initialize(into, uri, "--verify")
    assert done.returncode == 5 and "x.bin" in done.stderr, done.stderr
    assert json.loads(initialize(into, uri, "-o", "json").stdout)["bytesFetched"] == len(TEXT)
    assert listing(into)["x.bin"] == TEXT


def test_a_run_with_nothing_to_do_writes_nothing(web, tmp_path: pathlib.Path):
    server, into = web({"/x.bin": TEXT, "/y.bin": TEXT[:5]}), tmp_path / "into"
    uri, state = f"{server.url}/x.bin#sha256={SHA} {server.url}/y.bin", into / ".trainyard/state"

    def run() -> tuple[int, int]:
        done = initialize(into, uri, "-o", "json")
        assert done.returncode == 0 and listing(into) == {"x.bin": TEXT, "y.bin": TEXT[:5]}, done.stderr
        return state.stat().st_ino, state.stat().st_mtime_ns

    first = run()
    assert run() == first
    os.utime(into / "x.bin", (1, 1))  # its content is read, and that is recorded
    touched = run()
    assert touched != first and run() == touched
    assert server.served == len(TEXT) + 5


def test_two_runs_in_one_folder_wait_for_each_other(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT})
    into = tmp_path / "into"
    words = [BINARY, "initialize", "model", "--into", str(into), "--uri", f"{server.url}/x.bin"]
    both = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(one.communicate()[1], one.returncode) for one in both]
    assert [code for _, code in ends] == [0, 0], ends
    assert listing(into) == {"x.bin": TEXT} and server.served == len(TEXT), ends


def test_sigterm_keeps_what_came(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": content("x", 12 * PART)}, lambda handler, count: {"cut": 1000, "stall": 60} if count > 8 else {})
    into = tmp_path / "into"
    env = {**os.environ, "PART_SIZE": str(PART), "CONCURRENCY": "2"}
    words = [BINARY, "initialize", "model", "--into", str(into), "--uri", f"{server.url}/x.bin"]
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    wait_for("some parts", lambda: server.served > 5 * PART)
    process.terminate()
    said = process.communicate()[1]
    assert process.returncode == 143 and "kept" in said, said
    server.behave, before = (lambda handler, count: {}), server.served
    assert initialize(into, f"{server.url}/x.bin", PART_SIZE=str(PART)).returncode == 0
    assert server.served - before < 9 * PART


def test_a_storm_of_refusals_is_sat_out(web, tmp_path: pathlib.Path):
    server = web({"/x.bin": TEXT}, lambda handler, count: {"status": 429} if handler.command == "GET" and count <= 10 else {})
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", PART_SIZE=str(64 << 10))
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr


# A volume of its own size, which may be read-only: SIZE FOLDER ro|rw COMMAND…
VOLUME = """
mount -t tmpfs -o "size=$1" none "$2" && { [ "$3" = rw ] || mount -o remount,ro "$2"; } || exit 99
shift 3; exec "$@"
"""


@pytest.mark.parametrize(
    "size, how, fault, code, words",
    [
        ("400k", "rw", {}, 6, "are missing"),
        # packed, so that nobody knows the size before it is there
        ("400k", "rw", {"gzip": True}, 6, "disk is full"),
        ("9m", "ro", {}, 1, "read-only"),
    ],
)
def test_a_volume_without_room_is_told(web, tmp_path: pathlib.Path, size: str, how: str, fault: dict, code: int, words: str):
    server = web({"/x.txt": random.Random(1).randbytes(900_000)}, lambda handler, count: fault)
    into = tmp_path / "into"
    into.mkdir()
    enter = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    words_ = [*enter, "sh", "-c", VOLUME, "volume", size, into, how, BINARY, "initialize", "dataset", "--into", into, "--uri", f"{server.url}/x.txt"]
    done = subprocess.run(words_, capture_output=True, text=True, timeout=60)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


# --- secrets


def test_no_secret_is_told_to_anybody(web, tmp_path: pathlib.Path):
    """Not in the log, not in errors, not in the state, and not to the host that a redirect leads to."""
    secrets = {"ACCESS_TOKEN": "hf_s3cr3t-0001", "SECRET_ACCESS_KEY": "s3cr3t/0002", "BEARER_TOKEN": "s3cr3t-0003", "AWS_SESSION_TOKEN": "s3cr3t-0004"}
    elsewhere = web({"/x.bin": TEXT})
    other_host = elsewhere.url.replace("127.0.0.1", "localhost") + "/x.bin?X-Amz-Signature=s3cr3t-0005-signature"
    def behave(handler, count):
        return {"status": 302, "headers": {"Location": other_host}} if "/x.bin" in handler.path else {"status": 403}
    server = web({"/x.bin": TEXT}, behave)
    host = server.url.removeprefix("http://")
    seen = ""
    for uri in [
        f"{server.url}/x.bin?sig=s3cr3t-0006-in-query",
        f"http://user:s3cr3t-0007@{host}/x.bin",
        f"http://user:s3cr3t-0007@{host}/no?sig=s3cr3t-0006-in-query",
        "s3://bucket/x",
        "hf://acme/x",
        "ftp://user:s3cr3t-0007@host/x?s3cr3t-0006-in-query",
    ]:
        done = initialize(tmp_path / "into", uri, ACCESS_KEY_ID="id", ENDPOINT=server.url, HF_ENDPOINT=server.url, RUST_LOG="trace", **secrets)
        seen += done.stdout + done.stderr
    state = b"".join(path.read_bytes() for path in (tmp_path / "into").rglob("*") if path.is_file() and ".trainyard" in path.parts)
    assert "s3cr3t" not in seen, seen
    assert b"x.bin" in state and b"s3cr3t" not in state
    assert elsewhere.requests and not [headers for _, _, headers in elsewhere.requests if "Authorization" in headers]


def test_a_placeholder_signs_for_those_alone_who_gave_no_credentials(web, tmp_path: pathlib.Path):
    """Servers for tests want to see some key. Who gave half a key, or a profile, wants to be somebody."""
    server = web({}, lambda handler, count: {"status": 403})
    place = {"ENDPOINT": server.url, "REGION": "us-east-1"}
    for variables, code in [({}, 4), ({"ACCESS_KEY_ID": "id"}, 2), ({"AWS_PROFILE": "me"}, 4), ({"SECRET_ACCESS_KEY": "s3cr3t"}, 2)]:
        server.requests.clear()
        done = initialize(tmp_path / "into", "s3://bucket/x", **place, **variables)
        assert done.returncode == code and "s3cr3t" not in done.stderr, done.stderr
        signed = [headers for _, _, headers in server.requests if "anonymous/" in headers.get("authorization", headers.get("Authorization", ""))]
        assert bool(signed) == (not variables), (variables, server.requests)


# --- wrong input


@pytest.mark.parametrize(
    "uri, code, words",
    [
        ("nonsense", 2, "scheme"),
        ("gopher://x/y", 2, "gopher"),
        ("cache://a/b", 2, "data cache"),
        ("file:///nowhere/at/all", 3, "file:///nowhere/at/all: there is no such file or folder on this machine; look for its name in /\n"),
        ("http://127.0.0.1:1/x#sha256=12", 2, "sha256"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_written(tmp_path: pathlib.Path, uri: str, code: int, words: str):
    done = initialize(tmp_path / "into", uri)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "into").exists()


def test_a_target_that_cannot_be_one_is_named(tmp_path: pathlib.Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    for into in [source / "a", source / "a/sub"]:
        done = initialize(into, f"file://{source / 'a'}", HOME=str(tmp_path))
        assert (done.returncode, f"{source / 'a'} is a file" in done.stderr) == (2, True), done.stderr
    done = initialize(source / "yet/to/be", f"file://{source}", HOME=str(tmp_path))
    assert (done.returncode, "copied into itself" in done.stderr) == (2, True), done.stderr
    assert listing(source) == {"a": b"a"} and len(list(source.iterdir())) == 1


def test_a_folder_is_copied_and_a_file_that_is_a_folder_there_is_refused(tmp_path: pathlib.Path):
    source, into = tmp_path / "source", tmp_path / "into"
    (source / "a").mkdir(parents=True)
    (source / "a" / "b.txt").write_text("b")
    (source / "c.txt").write_text("c")
    done = initialize(into, f"file://{source}", IGNORE_PATTERNS="c*")
    assert done.returncode == 0 and listing(into) == {"a/b.txt": b"b"}, done.stderr
    (into / "c.txt").mkdir()
    done = initialize(into, f"file://{source}")
    assert done.returncode == 2 and "c.txt" in done.stderr, done.stderr
    done = initialize(into, f"file://{source}", IGNORE_PATTERNS="*")
    assert done.returncode == 0 and "IGNORE_PATTERNS *" in done.stderr, done.stderr


# --- as upstream's image, and what it reports on the way


@pytest.mark.parametrize(
    "name, words, code, said",
    [
        ("python", ["-m", "pkg.initializers.dataset"], 0, "done: 1 files"),
        ("bash", ["-c", "python -m pkg.initializers.model"], 0, "done: 1 files"),
        ("initializer", ["model"], 0, "done: 1 files"),
        ("bash", ["-c", "echo hello"], 2, "no bash in this image"),
        ("python3", ["train.py"], 2, "no python3 in this image"),
    ],
)
def test_the_images_names_stand_for_upstreams_programs(web, tmp_path: pathlib.Path, name: str, words: list[str], code: int, said: str):
    server = web({"/x.bin": TEXT})
    (tmp_path / name).symlink_to(pathlib.Path(BINARY).resolve())
    env = {"STORAGE_URI": f"{server.url}/x.bin", "TRAINYARD_INITIALIZE_INTO": str(tmp_path / "into"), "PATH": "/bin"}
    done = subprocess.run([tmp_path / name, *words], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "into" / "x.bin").exists() == (code == 0)


def test_a_status_server_is_told_how_far_it_is(web, tmp_path: pathlib.Path):
    posts: list[tuple[str, dict]] = []
    def take(handler, path, query) -> tuple:
        posts.append((handler.headers["Authorization"], json.loads(handler.body)["trainerStatus"]))
        return 200, {}, b"{}"
    status, server = clouds.Server(take), web({"/x.bin": TEXT})
    (tmp_path / "token").write_text("s3cr3t-0008\n")
    variables = {"KUBEFLOW_TRAINER_SERVER_URL": f"{status.url}/status", "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token")}
    done = initialize(tmp_path / "into", f"{server.url}/x.bin", **variables)
    status.close()
    assert done.returncode == 0 and "s3cr3t" not in done.stderr, done.stderr
    authorization, last = posts[-1]
    assert authorization == "Bearer s3cr3t-0008" and last["progressPercentage"] == 100, posts
    assert {"name": "bytes_total", "value": str(len(TEXT))} in last["metrics"], posts
    refused = initialize(tmp_path / "other", f"{server.url}/x.bin", **variables)
    assert refused.returncode == 0 and "progress is not reported" in refused.stderr, "nobody listens there, and nothing depends on it"


# --- on a laptop


EXAMPLE = ROOT / "examples/initializers/train-with-data.yaml"


@pytest.mark.timeout(240)
def test_a_job_with_initializers_runs_on_a_laptop(tmp_path: pathlib.Path, hub: str):
    yard = Yard(tmp_path / "home")
    try:
        yard.kubectl("create", "secret", "generic", "hub", "--from-literal=ACCESS_TOKEN=hf_reader")
        yard.kubectl("apply", "-f", "-", input=EXAMPLE.read_text().replace("https://huggingface.co", hub))
        done = yard.run("wait", "tuned", "--timeout", "120s", check=False)
        told = yard.run("describe", "tuned", check=False).stdout
        assert done.returncode == 0, done.stderr + told
        files = yard.kubectl("logs", "-l", "jobset.sigs.k8s.io/replicatedjob-name=node", "--tail=-1").stdout.split()
        # where the machine refuses namespaces, mounts are paths: the volume's own
        files = [re.sub(r"^.*/(dataset|model)/", r"/workspace/\1/", name) for name in files if "/.trainyard/" not in name]
        assert {"/workspace/dataset/data/a.parquet", "/workspace/model/model-00002-of-00002.safetensors"} <= set(files), files
        assert not [name for name in files if "/model/original/" in name], files
        assert "hf_reader" not in yard.kubectl("logs", "-l", "jobset.sigs.k8s.io/replicatedjob-name=dataset-initializer", "--tail=-1").stdout
    finally:
        stop(yard)
