"""`trainyard initialize`: names that cannot be files, patterns that match nothing, and servers that send the whole file for a part."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator

import clouds
import pytest
from test_initializers import initialize, listing
from test_initializers_clouds import fetch
from test_initializers_faults import Hub, servers  # noqa: F401 (a fixture)
from web import Web, content

PART = 64 << 10
TEXT = content("text", 8 * PART + 5)
GOOD = {"good.txt": b"good", "sub/more.txt": b"more", "a?#%.txt": b"odd"}
ODD = {"a//b": b"2", "sub/../up": b"3", "dot/./x": b"4", "full/": b"5", ".trainyard/state": b"6", "n" * 256: b"7", "good.txt/below": b"8"}


@pytest.fixture(params=[clouds.S3, clouds.Google, clouds.Azure])
def store(request) -> Iterator:
    one = request.param()
    yield one
    one.close()


def test_a_name_that_cannot_be_a_file_costs_that_file(store, tmp_path: pathlib.Path):
    for name, data in {**GOOD, **ODD}.items():
        store.put(f"data/{name}", data)
    into = tmp_path / "into"
    kept = {name: data for name, data in {**GOOD, "good.txt/below": b"8"}.items() if name != "good.txt"}
    left = [name for name in ODD if name != "good.txt/below"] + ["good.txt"]
    for _ in range(2):
        done = fetch(store, into, "/data/", "-o", "json")
        assert done.returncode == 0 and listing(into) == kept, done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("dataset-initializer: warning: 7 files"), last
        assert all(json.dumps(f"data/{name}") in last for name in left), last
        assert {one["source"] for one in json.loads(done.stdout)["leftOut"]} == {f"data/{name}" for name in left}
    for flags, variables in (["--strict"], {}), ([], {"STRICT": "1"}):
        done = fetch(store, tmp_path / "strict", "/data/", *flags, **variables)
        assert done.returncode == 2 and "Nothing was written" in done.stderr, done.stderr
        assert not (tmp_path / "strict").exists()
    # patterns take them away without a word
    done = fetch(store, tmp_path / "patterns", "/data/", "--strict", IGNORE_PATTERNS="*//*,*/..*,*/./*,*/full/,*nnnn*,*/.trainyard/*,*.txt/*")
    assert done.returncode == 0 and listing(tmp_path / "patterns") == GOOD and "warning" not in done.stderr, done.stderr


def test_where_no_name_can_be_a_file_the_run_fails(store, tmp_path: pathlib.Path):
    store.put("data//x", b"x")
    done = fetch(store, tmp_path / "into", "/data/")
    assert done.returncode == 2 and '"data//x"' in done.stderr, done.stderr


def test_files_of_a_folder_that_cannot_be_copied_are_left_out(tmp_path: pathlib.Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "x#1").write_bytes(b"x")
    (source / "plain").write_bytes(b"y")
    os.mkfifo(source / "pipe")
    open(bytes(source) + b"/\xff", "wb").close()
    done = initialize(tmp_path / "into", f"file://{source}/")
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x#1": b"x", "plain": b"y"}, done.stderr
    assert "2 files cannot be written" in done.stderr and "it is a pipe" in done.stderr and "not UTF-8" in done.stderr, done.stderr
    done = initialize(tmp_path / "one", f"file://{source}/pipe")
    assert done.returncode == 2 and "it is a pipe" in done.stderr, done.stderr


def test_a_pattern_that_matches_nothing_is_named(store, tmp_path: pathlib.Path):
    store.put("data/a.bin", b"a")
    store.put("data/b.txt", b"b")
    done = fetch(store, tmp_path / "into", "/data/", ALLOW_PATTERNS="*.bin,*.safetensor", IGNORE_PATTERNS="*.txt,tmp/*")
    assert done.returncode == 0 and listing(tmp_path / "into") == {"a.bin": b"a"}, done.stderr
    said = [line.partition("warning: ")[2] for line in done.stderr.splitlines() if "warning" in line]
    assert said == ["ALLOW_PATTERNS: *.safetensor matches no file of the location", "IGNORE_PATTERNS: tmp/* matches no file of the location"]


# --- the whole for a part


class Whole(Hub):
    """The server where the large files lie knows no ranges; of the first answer it breaks off after some bytes."""

    def file(self, handler, path: str, query: dict) -> tuple:
        if "Range" not in handler.headers and not hasattr(self, "broke"):
            self.broke = True
            handler.close_connection = True
            return 200, {"Content-Length": str(len(TEXT))}, TEXT[: 2 * PART]
        return 200, {}, TEXT


@pytest.mark.parametrize("part", [PART, 16 << 20])
def test_a_hubs_mirror_without_ranges_is_read_whole(servers, tmp_path: pathlib.Path, part: int):  # noqa: F811
    hub = servers(Whole, lives=99)
    done = initialize(tmp_path / "into", "hf://acme/data", HF_ENDPOINT=hub.server.url, PART_SIZE=str(part), timeout=20)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
    assert len([headers for _, _, headers, _ in hub.cdn.requests if "range" not in {name.lower() for name in headers}]) <= 3


def test_a_store_without_ranges_is_read_whole(store, tmp_path: pathlib.Path, monkeypatch):
    monkeypatch.setattr(clouds, "ranged", lambda handler, data, headers: (200, headers, data))
    for number in range(3):
        store.put(f"data/{number}.bin", TEXT)
    done = fetch(store, tmp_path / "into", "/data/", timeout=20)
    assert done.returncode == 0 and listing(tmp_path / "into") == {f"{number}.bin": TEXT for number in range(3)}, done.stderr
    assert "fetched again" not in done.stderr, done.stderr


def test_a_web_server_that_says_it_has_ranges_is_read_whole(servers, tmp_path: pathlib.Path):  # noqa: F811
    web = servers(Web, {"/x.bin": TEXT}, lambda handler, count: {"no_ranges": True, "headers": {"Accept-Ranges": "bytes"}})
    done = initialize(tmp_path / "into", f"{web.url}/x.bin", PART_SIZE=str(PART), timeout=20)
    assert done.returncode == 0 and listing(tmp_path / "into") == {"x.bin": TEXT}, done.stderr
