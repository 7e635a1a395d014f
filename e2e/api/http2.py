"""HTTP/2 by hand, so that a test can say what no library would: frames of any kind, in any order, with any length."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import struct
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(key: int, value: int) -> bytes:
    return struct.pack(">HI", key, value)


def integer(number: int, bits: int, first: int = 0) -> bytes:
    """A number as HPACK writes it."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([first | number])
    out, number = bytearray([first | most]), number - most
    while number >= 128:
        out.append(number % 128 | 128)
        number //= 128
    out.append(number)
    return bytes(out)


def block(*headers: tuple[str, str]) -> bytes:
    """Headers, none of them indexed or compressed."""
    out = b""
    for name, value in headers:
        out += b"\0" + integer(len(name), 7) + name.encode() + integer(len(value), 7) + value.encode()
    return out


class Address:
    """Where a control plane listens, and who may ask, out of its kubeconfig."""

    def __init__(self, kubeconfig: str):
        found = {key: re.search(rf"{key}: *\"?([^\s\"]+)", kubeconfig)[1] for key in ("server", "token", "certificate-authority-data")}
        host, port = found["server"].removeprefix("https://").rsplit(":", 1)
        self.place, self.authority, self.token = (host, int(port)), f"{host}:{port}", found["token"]
        self.authorities = base64.b64decode(found["certificate-authority-data"]).decode()

    def connect(self, protocol: str = "http/1.1", timeout: float = 30) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.authorities)
        context.set_alpn_protocols([protocol])
        raw = socket.socket()
        # what is not read stays with the server
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(timeout)
        raw.connect(self.place)
        return context.wrap_socket(raw, server_hostname=self.place[0])


class Http2:
    """One connection."""

    def __init__(self, address: Address, *settings: bytes, timeout: float = 30):
        self.address = address
        self.socket = address.connect("h2", timeout)
        assert self.socket.selected_alpn_protocol() == "h2"
        self.send(PREFACE, frame(SETTINGS, 0, 0, b"".join(settings)))

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def request(self, path: str, method: str = "GET", token: str | None = None) -> bytes:
        fields = [(":method", method), (":scheme", "https"), (":authority", self.address.authority), (":path", path)]
        return block(*fields, ("authorization", f"Bearer {token or self.address.token}"))

    def get(self, stream: int, path: str, **more: str) -> bytes:
        """The frame of a request without a body."""
        return frame(HEADERS, END_STREAM | END_HEADERS, stream, self.request(path, **more))

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of what comes, until the server closes or is silent for the time-out."""
        while head := self.read(9):
            length = int.from_bytes(head[:3], "big")
            payload = self.read(length) if length else b""
            if payload is None:
                return
            yield head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload

    def read(self, count: int) -> bytes | None:
        got = b""
        while len(got) < count:
            try:
                part = self.socket.recv(count - len(got))
            except OSError:
                return None
            if not part:
                return None
            got += part
        return got

    def frames_until(self, *kinds: int) -> Iterator[tuple[int, int, int, bytes]]:
        """As `frames`, up to the first of these kinds."""
        for found in self.frames():
            yield found
            if found[0] in kinds:
                return

    def ends(self) -> bool:
        """Whether the server ends the connection."""
        for kind, *_ in self.frames():
            if kind == GOAWAY:
                return True
        try:
            return not self.socket.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.socket.close()
