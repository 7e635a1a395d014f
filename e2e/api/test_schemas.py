"""The API answers requests that its OpenAPI documents describe, and others. `make soak` asks for more."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import Yard, stop
from test_api import Raw

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("schemas"), "--no-node")
    yield yard
    stop(yard)


def test_no_request_made_of_the_documents_fails_the_server(yard: Yard) -> None:
    token = Raw(yard).headers["Authorization"].split()[1]
    environment = {"SEED": "1", "CASES": "300", **os.environ}
    words = [sys.executable, HERE / "schemas.py", yard.running["server"], token, HERE / "corpus/schemas.jsonl"]
    timeout = max(600, int(environment["CASES"]))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5000:]
    print(done.stdout)
    assert Raw(yard).open("/readyz").read() == b"ok"
    yard.kill()
    yard.up()
    assert Raw(yard).open("/readyz").read() == b"ok", "whatever was stored can be read"


def test_every_parameter_of_a_path_is_described(yard: Yard) -> None:
    raw = Raw(yard)
    groups = raw.call("/openapi/v3")[1]["paths"]
    seen = 0
    for group in groups:
        for path, item in raw.call(f"/openapi/v3/{group}")[1]["paths"].items():
            for method, operation in item.items():
                named = {p["name"] for p in operation["parameters"] if p["in"] == "path" and p["required"]}
                assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, (method, path)
                has_body = method != "get" and operation["x-kubernetes-action"] != "connect"
                assert ("requestBody" in operation) == has_body, (method, path)
                seen += 1
    assert seen > 200
