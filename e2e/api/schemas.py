"""Requests made up from the published OpenAPI documents (Schemathesis): valid ones and wrong ones, for every operation of every group.

    SEED=7 CASES=20000 python e2e/api/schemas.py SERVER TOKEN [CORPUS]

No answer may be a 5xx, and none may be missing: then the case is printed, added to the corpus, and the exit code is 1. Cases of the
corpus are asked first.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import random
import ssl
import sys
import time
import warnings

import hypothesis
import schemathesis
from schemathesis.core import NOT_SET

warnings.filterwarnings("ignore")
# Warnings are bounded by their length; Python bounds the number of headers.
http.client._MAXHEADERS = 10_000

# What ends other requests' ground, or does not end: these are asked by other tests.
LEFT_OUT = ("/namespaces/{name}",)
# Of one operation, at least: to begin with one takes longer than a case.
CASES_EACH = 25
METHODS = ("get", "put", "post", "patch", "delete")


class Server:
    def __init__(self, url: str, token: str):
        self.address = url.removeprefix("https://")
        self.token = token
        self.tls = ssl._create_unverified_context()  # the test's own server
        self.connection: http.client.HTTPSConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, media: str = "application/json") -> tuple[int, bytes]:
        """Code and body; code 0: the connection ended without an answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media}
        for attempt in (1, 2):
            fresh = self.connection is None
            if self.connection is None:
                self.connection = http.client.HTTPSConnection(self.address, context=self.tls, timeout=60)
            try:
                self.connection.request(method, path, body, headers)
                answer = self.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                self.connection = None
                # a kept connection may have been closed by the server meanwhile
                if fresh or attempt == 2:
                    return 0, repr(error).encode()
        raise AssertionError

    def documents(self) -> dict[str, dict]:
        paths = json.loads(self.ask("GET", "/openapi/v3")[1])["paths"]
        return {group: json.loads(self.ask("GET", f"/openapi/v3/{group}")[1]) for group in sorted(paths)}


def usable(path: str, method: str) -> bool:
    return method in METHODS and not (method == "delete" and path.endswith(LEFT_OUT))


def requests(schema: schemathesis.BaseSchema, path: str, method: str, count: int, seed: int) -> list[dict]:
    """Requests for one operation, as data."""
    operation = schema[path][method.upper()]
    made: list[dict] = []
    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    for share, mode in zip((count - count // 2, count // 2), modes):
        if not share:
            continue

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=share, database=None, deadline=None, phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def collect(case: schemathesis.Case) -> None:
            query = dict(case.query or {})
            # a watch ends when its client wants; not before
            query.pop("watch", None)
            body = None if case.body is NOT_SET else case.body
            names = {name: str(value) or "x" for name, value in (case.path_parameters or {}).items()}
            # most requests are for what may be there
            rng = random.Random(f"{seed}{names}")
            if "namespace" in names and rng.random() < 0.8:
                names["namespace"] = "default"
            if "name" in names and rng.random() < 0.5:
                names["name"] = "one"
            made.append({"method": method.upper(), "path": path, "names": names, "query": query, "body": body,
                         "media": case.media_type or "application/json"})  # fmt: skip

        try:
            collect()
        except hypothesis.errors.HypothesisException:
            continue  # nothing can be wrong here (no parameter has a rule)
    return made


def send(server: Server, request: dict) -> tuple[int, bytes]:
    from urllib.parse import quote, urlencode

    path = request["path"]
    for name, value in request["names"].items():
        path = path.replace("{" + name + "}", quote(value, safe="", errors="replace"))
    query = urlencode({str(k): v for k, v in request["query"].items()}, doseq=True, errors="replace")
    body = request["body"]
    if body is not None:
        body = body if isinstance(body, bytes) else json.dumps(body, default=str).encode("utf-8", "replace")
    media = request["media"] if request["media"].isascii() else "application/json"
    return server.ask(request["method"], f"{path}?{query}" if query else path, body, media)


def has_failed(code: int, told: bytes) -> bool:
    """Upstream answers some wrong patches and versions with code 500, too, without a reason, a namespace that can be no part of a path with
    500, and a revision that is yet to come with 504; so does this server, by recordings."""
    if code == 504:
        return b"Too large resource version" not in told
    if code != 500:
        return code > 500 or code == 0
    try:
        status = json.loads(told)
    except ValueError:
        return True
    if str(status.get("message")).startswith("Internal error occurred: invalid resource name "):
        return False
    return not (status.get("kind") == "Status" and "reason" not in status)


def main() -> int:
    server = Server(sys.argv[1], sys.argv[2])
    corpus = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    seed, cases = int(os.environ.get("SEED", "1")), int(os.environ.get("CASES", "2000"))
    print(f"SEED={seed} CASES={cases}", flush=True)
    failed = 0

    def check(request: dict, known: bool) -> None:
        nonlocal failed
        code, told = send(server, request)
        if has_failed(code, told):
            failed += 1
            print(f"{code} {json.dumps(request, default=str)[:2000]}\n  {told[:500]!r}", flush=True)
            if corpus and not known:
                line = json.dumps(request, default=lambda value: value.decode("latin-1"))
                corpus.open("a").write(line + "\n")

    kept = corpus.read_text().splitlines() if corpus and corpus.exists() else []
    for line in kept:
        check(json.loads(line), True)
    documents = server.documents()
    operations = [
        (group, path, method) for group, document in documents.items() for path, item in document["paths"].items()
        for method in item if usable(path, method)
    ]  # fmt: skip
    rng = random.Random(seed)
    rng.shuffle(operations)
    begun, asked = time.monotonic(), 0
    share = max(CASES_EACH, -(-cases // len(operations)))
    schemas = {group: schemathesis.openapi.from_dict(document) for group, document in documents.items()}
    for number, (group, path, method) in enumerate(operations):
        if asked >= cases:
            break
        for request in requests(schemas[group], path, method, share, seed + number):
            check(request, False)
            asked += 1
    print(f"{asked} cases of {len(operations)} operations, {len(kept)} of the corpus, {failed} failed, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
