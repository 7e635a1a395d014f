"""Stores of other clouds for tests of downloads: stubs after the public descriptions of their interfaces, and, where they were
built (`make clouds`), fake-gcs-server and Azurite. All hold the same objects."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from conftest import wait_for

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trainyard-clouds"
FAKE_GCS = CACHE / "bin/fake-gcs-server"
AZURITE = CACHE / "node_modules/azurite/dist/src/blob/main.js"
# Azurite's, from its documentation
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PAGE = 3

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data: bytes) -> str:
    """As Google tells it: base64 of four bytes, the highest first."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


class Server:
    """A web server in this process. `route` answers; what it is asked is kept."""

    def __init__(self, route: Callable[[BaseHTTPRequestHandler, str, dict], tuple], port: int = 0):
        server = self
        self.requests: list[tuple[str, str, dict, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_): ...

            def do_GET(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.requests.append((self.command, self.path, dict(self.headers), self.body))
                path, _, query = self.path.partition("?")
                status, headers, body = route(self, path, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    if value is not None:
                        self.send_header(name, value)
                # who does not say how long it is ends with the connection
                self.close_connection |= headers.get("Content-Length", "") is None
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_POST = do_PUT = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.handle_error = lambda *_: None  # clients go when they have what they want
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def ranged(handler: BaseHTTPRequestHandler, data: bytes, headers: dict) -> tuple:
    wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range") or "")
    if not wanted:
        return 200, headers, data
    start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
    if start >= len(data):
        return 416, {}, b""
    return 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}, data[start:end]


def below(objects: dict[str, bytes], query: dict, marker: str) -> tuple[list[str], list[str], str]:
    """Names and folders of one page, and where the next begins."""
    names, folders = [], []
    for name in sorted(objects):
        if not name.startswith(query.get("prefix", "")) or name < marker:
            continue
        rest = name[len(query.get("prefix", "")) :]
        if query.get("delimiter") and "/" in rest:
            folder = name[: len(name) - len(rest) + rest.index("/") + 1]
            if folder not in folders:
                folders.append(folder)
            continue
        if len(names) == min(PAGE, int(query.get("maxResults") or query.get("maxresults") or PAGE)):
            return names, folders, name
        names.append(name)
    return names, folders, ""


class Google:
    """Its JSON API, with a token if `token` is set. `tell` changes what is said of an object."""

    scheme = "gs"

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.generations: dict[str, int] = {}
        self.token, self.tell, self.on_media = None, {}, lambda name, count: None
        self.media = 0
        self.server = Server(self.route)

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.generations[name] = self.generations.get(name, 1_700_000_000_000_000) + 1

    def variables(self) -> dict:
        return {"STORAGE_EMULATOR_HOST": self.server.url}

    def about(self, name: str) -> dict:
        data = self.objects[name]
        told = {"name": name, "size": str(len(data)), "generation": str(self.generations[name]), "crc32c": crc32c(data)}
        return {**told, **self.tell.get(name, {})}

    def route(self, handler, path: str, query: dict) -> tuple:
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            message = f"{handler.headers.get('Authorization', 'Anonymous caller')} does not have storage.objects.get access"
            return 401, {}, json.dumps({"error": {"code": 401, "message": message}}).encode()
        found = re.fullmatch(r"/storage/v1/b/bucket/o(?:/(.*))?", path)
        if not found:
            return 404, {}, json.dumps({"error": {"code": 404, "message": "The specified bucket does not exist."}}).encode()
        if found[1] is None:
            names, folders, after = below(self.objects, query, query.get("pageToken", ""))
            page = {"items": [self.about(name) for name in names], "prefixes": folders, "nextPageToken": after}
            return 200, {}, json.dumps({key: value for key, value in page.items() if value}).encode()
        name = urllib.parse.unquote(found[1])
        if name not in self.objects or query.get("generation", str(self.generations[name])) != str(self.generations[name]):
            return 404, {}, json.dumps({"error": {"code": 404, "message": f"No such object: bucket/{name}"}}).encode()
        if query.get("alt") != "media":
            return 200, {}, json.dumps(self.about(name)).encode()
        self.media += 1
        self.on_media(name, self.media)
        return ranged(handler, self.objects[name], {"x-goog-generation": str(self.generations[name])})

    def close(self) -> None:
        self.server.close()


class S3:
    """AWS' REST API, path style; a request must carry what `allowed` takes, if that is set: else the answer is `refusal`."""

    scheme = "s3"

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.allowed, self.tell, self.on_media = None, {}, lambda name, count: None
        self.refusal = "AccessDenied"
        self.media = 0
        # where pages began, and whether they do where they are asked to
        self.pages: list[str] = []
        self.begins = True
        self.server = Server(self.route)

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data

    def variables(self) -> dict:
        return {"ENDPOINT": self.server.url, "REGION": "us-east-1", "ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": "s3cr3t-key"}

    def route(self, handler, path: str, query: dict) -> tuple:
        def refused(status: int, code: str) -> tuple:
            message = escape(handler.headers.get("Authorization", "") + handler.headers.get("x-amz-security-token", ""))
            return status, {}, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

        if self.allowed and not self.allowed(handler, query):
            return refused(400 if self.refusal == "ExpiredToken" else 403, self.refusal)
        found = re.fullmatch(r"/bucket(?:/(.*))?", path)
        if not found:
            return refused(404, "NoSuchBucket")
        if not found[1]:
            query = {**query, "maxResults": query.get("max-keys")}
            start = query.get("start-after", "")
            self.pages.append(query.get("continuation-token") or start)
            marker = query.get("continuation-token") or (start + "\0" if start and self.begins else "")
            names, folders, after = below(self.objects, query, marker)
            def quoted(name: str) -> str:
                return urllib.parse.quote_plus(name, safe="/")

            contents = "".join(f"<Contents><Key>{quoted(name)}</Key><Size>{len(self.objects[name])}</Size><ETag>{escape(self.etag(name))}</ETag></Contents>" for name in names)
            contents += "".join(f"<CommonPrefixes><Prefix>{quoted(name)}</Prefix></CommonPrefixes>" for name in folders)
            more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(after)}</NextContinuationToken>" if after else ""
            return 200, {}, f"<?xml version='1.0'?><ListBucketResult><EncodingType>url</EncodingType>{contents}{more}</ListBucketResult>".encode()
        name = urllib.parse.unquote(found[1])
        if name not in self.objects:
            return refused(404, "NoSuchKey")
        if handler.headers.get("If-Match", self.etag(name)) != self.etag(name):
            return refused(412, "PreconditionFailed")
        if handler.command == "GET":
            self.media += 1
            self.on_media(name, self.media)
        headers = {"ETag": self.etag(name)}
        if handler.headers.get("x-amz-checksum-mode") == "ENABLED":
            sums = {"crc32": base64.b64encode(zlib.crc32(self.objects[name]).to_bytes(4, "big")).decode(), **self.tell.get(name, {})}
            headers |= {f"x-amz-checksum-{kind}": value for kind, value in sums.items()} | {"x-amz-checksum-type": "FULL_OBJECT"}
        return ranged(handler, self.objects[name], headers)

    def etag(self, name: str) -> str:
        """As of an object that came in parts: no MD5."""
        return f'"{hashlib.md5(self.objects[name]).hexdigest()}-2"'

    def close(self) -> None:
        self.server.close()


def is_signed(handler: BaseHTTPRequestHandler, key: str, secret: str, token: str | None = None) -> bool:
    """Whether a request has the signature (version 4) that botocore would have given it, with this key."""
    from botocore.auth import S3SigV4Auth, SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)", handler.headers.get("Authorization", ""))
    if not found or found[1] != key or handler.headers.get("x-amz-security-token") != token or "host" not in found[4].split(";"):
        return False
    sum_ = handler.headers.get("x-amz-content-sha256", hashlib.sha256(handler.body).hexdigest())
    if sum_ not in ("UNSIGNED-PAYLOAD", hashlib.sha256(handler.body).hexdigest()):
        return False
    headers = {name: handler.headers[name] for name in found[4].split(";")}
    request = AWSRequest(handler.command, f"http://{handler.headers['Host']}{handler.path}", headers, handler.body)
    request.context["timestamp"] = handler.headers["X-Amz-Date"]
    signer = (S3SigV4Auth if found[3] == "s3" else SigV4Auth)(Credentials(key, secret, token), found[3], found[2])
    return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request) == found[5]


class Azure:
    """Its REST API; a request must carry what `allowed` takes, if that is set."""

    scheme = "az"

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.allowed, self.tell, self.on_media = None, {}, lambda name, count: None
        self.media = 0
        self.server = Server(self.route)

    def put(self, name: str, data: bytes) -> None:
        self.objects[name], self.etags[name] = data, f"0x{len(self.etags):X}{hashlib.md5(data).hexdigest()[:8]}"

    def variables(self) -> dict:
        return {"AZURE_STORAGE_ENDPOINT": self.server.url, "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY}

    def route(self, handler, path: str, query: dict) -> tuple:
        def refused(status: int, code: str) -> tuple:
            text = f"\ufeff<?xml version='1.0'?><Error><Code>{code}</Code><Message>{escape(handler.headers.get('Authorization', ''))}</Message></Error>"
            return status, {"x-ms-error-code": code}, text.encode()

        if self.allowed and not self.allowed(handler.headers, query):
            return refused(403, "AuthenticationFailed") if "Authorization" in handler.headers or "sig" in query else refused(401, "NoAuthenticationInformation")
        found = re.fullmatch(rf"/{ACCOUNT}/bucket(?:/(.*))?", path)
        if not found:
            return refused(404, "ContainerNotFound")
        if found[1] is None:
            names, folders, after = below(self.objects, query, query.get("marker", ""))
            blobs = "".join(self.about(name) for name in names)
            blobs += "".join(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in folders)
            text = f"\ufeff<?xml version='1.0' encoding='utf-8'?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{escape(after)}</NextMarker></EnumerationResults>"
            return 200, {}, text.encode()
        name = urllib.parse.unquote(found[1])
        if name not in self.objects:
            return refused(404, "BlobNotFound")
        if handler.headers.get("If-Match", f'"{self.etags[name]}"') != f'"{self.etags[name]}"':
            return refused(412, "ConditionNotMet")
        if handler.command == "GET":
            self.media += 1
            self.on_media(name, self.media)
        sum_ = self.tell.get(name, {}).get("md5", md5(self.objects[name]))
        return ranged(handler, self.objects[name], {"ETag": f'"{self.etags[name]}"', "Content-MD5" if "Range" not in handler.headers else "x-ms-blob-content-md5": sum_})

    def about(self, name: str) -> str:
        data, sum_ = self.objects[name], self.tell.get(name, {}).get("md5", md5(self.objects[name]))
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{self.etags[name]}</Etag><Content-Length>{len(data)}</Content-Length>"
            f"<Content-MD5>{sum_}</Content-MD5></Properties></Blob>"
        )

    def close(self) -> None:
        self.server.close()


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def started(words: list[str], log: pathlib.Path, port: int) -> subprocess.Popen:
    process = subprocess.Popen(words, stdout=log.open("w"), stderr=subprocess.STDOUT)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    wait_for(f"{words[0]} to answer", answers)
    return process


class FakeGcsServer:
    scheme = "gs"

    def __init__(self, folder: pathlib.Path):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [str(FAKE_GCS), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-public-host", f"127.0.0.1:{port}"]
        self.process = started(words, folder / "log", port)
        body = json.dumps({"name": "bucket"}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/storage/v1/b", body, {"Content-Type": "application/json"})).close()

    def put(self, name: str, data: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        request = urllib.request.Request(f"{self.url}/upload/storage/v1/b/bucket/o?{query}", data, {"Content-Type": "application/octet-stream"}, method="POST")
        urllib.request.urlopen(request).close()

    def variables(self) -> dict:
        return {"STORAGE_EMULATOR_HOST": self.url}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Azurite:
    scheme = "az"

    def __init__(self, folder: pathlib.Path):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = ["node", str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--skipApiVersionCheck", "--silent"]
        self.process = started(words, folder / "log", port)
        self.ask("bucket?restype=container", b"")

    def ask(self, path: str, data: bytes) -> None:
        """A PUT, signed with the account's key."""
        date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-date": date, "x-ms-version": "2021-12-02"}
        place, _, query = path.partition("?")
        resource = f"/{ACCOUNT}/{ACCOUNT}/{place}" + "".join(f"\n{name}:{value}" for name, value in urllib.parse.parse_qsl(query))
        lines = ["PUT", "", "", str(len(data) or ""), "", "application/octet-stream", "", "", "", "", "", "", *(f"{name}:{value}" for name, value in headers.items()), resource]
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), "\n".join(lines).encode(), "sha256")).decode()
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Type": "application/octet-stream"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{ACCOUNT}/{path}", data, headers, method="PUT")).close()

    def put(self, name: str, data: bytes) -> None:
        self.ask("bucket/" + urllib.parse.quote(name), data)

    def variables(self) -> dict:
        return {"AZURE_STORAGE_ENDPOINT": self.url, "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
