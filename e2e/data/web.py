"""A web server for tests of downloads: ranges, etags, and faults on demand. It counts what it serves."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCRAP = 16 << 10


def content(name: str, size: int) -> bytes:
    """Bytes that follow from a name, fast."""
    seed = hashlib.sha256(name.encode()).digest()
    return (hashlib.shake_256(seed).digest(min(size, 1 << 20)) * (size // (1 << 20) + 1))[:size]


class Web:
    """Files by path. `behave` changes what is answered: it is given the handler and the request's number for that path, and
    returns the names of what is to go wrong."""

    def __init__(self, files: dict[str, bytes], behave: Callable[[BaseHTTPRequestHandler, int], dict] | None = None):
        web = self
        self.files, self.behave = files, behave or (lambda handler, count: {})
        self.served, self.lock, self.counts = 0, threading.Lock(), {}
        self.requests: list[tuple[str, str, dict]] = []
        self.on_bytes: Callable[[int], None] = lambda served: None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_): ...

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                path = self.path.split("?")[0]
                with web.lock:
                    web.counts[path] = count = web.counts.get(path, 0) + 1
                    web.requests.append((self.command, self.path, dict(self.headers)))
                try:
                    web.answer(self, path, web.behave(self, count))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # clients are killed
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, path: str, fault: dict) -> None:
        data = self.files.get(path)
        if "status" in fault or data is None:
            handler.send_response(fault.get("status", 404))
            for name, value in fault.get("headers", {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        etag = fault.get("etag", f'"{hashlib.md5(data).hexdigest()}"')
        headers = {"Content-Type": "application/octet-stream", **fault.get("headers", {})}
        if etag:
            headers["ETag"] = etag
        wanted = None if fault.get("no_ranges") else re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range") or "")
        if not fault.get("no_ranges"):
            headers["Accept-Ranges"] = "bytes"
        if wanted and handler.headers.get("If-Range", etag) != etag:
            wanted = None
        status, body = 200, data
        if fault.get("gzip"):
            body, wanted = gzip.compress(data), None
            headers["Content-Encoding"] = "gzip"
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
            status, body = 206, data[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        if "corrupt" in fault and body:
            at = fault["corrupt"] % len(body)
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) + fault.get("longer", 0)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        end = fault.get("cut", len(body))
        for at in range(0, end, SCRAP):
            scrap = body[at : min(at + SCRAP, end)]
            handler.wfile.write(scrap)
            with self.lock:
                self.served += len(scrap)
            self.on_bytes(self.served)
        if fault.get("stall"):
            time.sleep(fault["stall"])  # the server is slow, not the test
        if "cut" in fault or fault.get("longer") or fault.get("stall"):
            handler.close_connection = True
