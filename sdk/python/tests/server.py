"""As much of an API server as MPIJobs need: a thread that answers over HTTP, and faults on demand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


def status(code: int, reason: str, message: str, **details: Any) -> tuple[int, dict[str, Any]]:
    fields = {"code": code, "reason": reason, "message": message, "details": details}
    return code, {"kind": "Status", "status": "Failure", **fields}


def not_found(kind: str, name: str) -> tuple[int, dict[str, Any]]:
    return status(404, "NotFound", f'{kind} "{name}" not found', name=name, kind=kind)


class Server:
    """Objects by namespace and name, and what was asked."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[str, list[bytes]] = {}
        self.past: dict[str, Any] | None = None
        """What is kept of pods that are gone; their logs are by their uids."""
        self.events: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, dict[str, list[str]], Any]] = []
        self.faults: list[tuple[int, dict[str, Any]]] = []
        """Answers that come first, in their order."""
        self.steps: list[dict[str, Any]] = []
        """Statuses of jobs: each look takes the next."""
        self.lingers = 0
        """Looks at a deleted job that still find it."""
        self.breaks = 0
        """Followed logs that break off after their first piece."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                query = parse_qs(url.query)
                outer.asked.append((self.command, url.path, query, body))
                if outer.faults:
                    self.send(*outer.faults.pop(0))
                elif "/history.trainyard.dev/" in url.path:
                    self.history(url.path, query)
                elif url.path.endswith("/log"):
                    self.log(url.path.split("/")[-2], "follow" in query, int(query.get("tailLines", ["0"])[0]))
                else:
                    self.send(*outer.object(self.command, url.path.strip("/").split("/"), query, body))

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def send(self, code: int, answer: dict[str, Any]) -> None:
                self.whole(code, "application/json", json.dumps(answer).encode())

            def whole(self, code: int, kind: str, data: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def history(self, path: str, query: dict[str, list[str]]) -> None:
                if outer.past is None:
                    self.send(*not_found("mpijobs.history.trainyard.dev", path))
                elif path.endswith("/log"):
                    self.log(query["pod"][0], False, int(query.get("tailLines", ["0"])[0]))
                else:
                    self.send(200, outer.past)

            def log(self, pod: str, follow: bool, tail: int) -> None:
                if pod not in outer.logs:
                    self.send(*not_found("pods", pod))
                    return
                pieces = outer.logs[pod]
                if not follow:
                    self.whole(200, "text/plain", b"".join(b"".join(pieces).splitlines(keepends=True)[-tail:]))
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    if outer.breaks:
                        outer.breaks -= 1
                        self.close_connection = True
                        return
                self.wfile.write(b"0\r\n\r\n")

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def object(self, verb: str, path: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, dict[str, Any]]:
        namespace = path[path.index("namespaces") + 1] if "namespaces" in path else ""
        if path[-1] == "pods":
            wanted = dict(pair.split("=") for pair in query["labelSelector"][0].split(","))
            return 200, {"items": [p for p in self.pods if wanted.items() <= p["metadata"]["labels"].items()]}
        if path[-1] == "events":
            return 200, {"items": self.events}
        if path[-1] == "mpijobs":
            if verb == "GET":
                return 200, {"items": [job for (of, _), job in self.jobs.items() if namespace in ("", of)]}
            return self.create(namespace, query, body)
        return self.one(verb, (namespace, path[-1]), body)

    def one(self, verb: str, key: tuple[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        job = self.jobs.get(key)
        if job is None:
            return not_found("mpijobs.kubeflow.org", key[1])
        if verb == "DELETE":
            job["metadata"]["deletionTimestamp"] = "now"
        elif verb == "PATCH":
            merge(job, body)
        elif "deletionTimestamp" in job["metadata"]:
            self.lingers -= 1
            if self.lingers < 0:
                del self.jobs[key]
                return not_found("mpijobs.kubeflow.org", key[1])
        elif self.steps:
            job["status"] = self.steps.pop(0)
        return 200, job

    def create(self, namespace: str, query: dict[str, list[str]], body: Any) -> tuple[int, dict[str, Any]]:
        name = body["metadata"]["name"]
        if (namespace, name) in self.jobs:
            return status(409, "AlreadyExists", f'mpijobs.kubeflow.org "{name}" already exists', name=name)
        made: dict[str, Any] = json.loads(json.dumps(body))
        made["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}", "managedFields": [{"manager": "x"}]}
        if "dryRun" not in query:
            self.jobs[(namespace, name)] = made
        return 201, made


def merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def pod(name: str, role: str, state: str | None = "terminated") -> dict[str, Any]:
    """A pod of the job `train`; `None`: its container has not started."""
    containers = [] if state is None else [{"name": role, "restartCount": 0, "state": {state: {}}}]
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": role}]},
        "status": {"containerStatuses": containers},
    }


def conditions(*holds: tuple[str, str, str]) -> dict[str, Any]:
    """A status with these conditions, all true: type, reason, message."""
    return {
        "conditions": [{"type": kind, "status": "True", "reason": why, "message": text} for kind, why, text in holds]
    }
