"""TLS by hand over a socket: a client that can end its half in every way that there is, and then listen."""

from __future__ import annotations

import errno
import socket
import ssl
import struct

from http2 import Address


class Halves:
    """A connection. `http2`: what it speaks, else HTTP/1.1."""

    def __init__(self, address: Address, http2: bool = False, timeout: float = 60):
        context = ssl.create_default_context(cadata=address.authorities)
        context.set_alpn_protocols(["h2" if http2 else "http/1.1"])
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.coming, self.going, server_hostname=address.place[0])
        self.socket = socket.create_connection(address.place, timeout=timeout)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.push()
                self.coming.write(self.socket.recv(65536))
        self.push()
        self.kept = b""

    def push(self) -> None:
        self.socket.sendall(self.going.read())

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.push()

    def read(self) -> bytes:
        """What comes next; empty once the server has ended its half, or all of the connection."""
        if self.kept:
            kept, self.kept = self.kept, b""
            return kept
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            try:
                part = self.socket.recv(65536)
            except ConnectionError:
                return b""
            if not part:
                return b""
            self.coming.write(part)

    def rest(self) -> bytes:
        """All that comes until the server ends its half."""
        told = b""
        while part := self.read():
            told += part
        return told

    def until(self, text: bytes) -> bytes:
        """What comes up to the end of this text."""
        told = b""
        while text not in told:
            part = self.read()
            assert part, f"it ended after {told[-500:]!r}"
            told += part
        end = told.index(text) + len(text)
        self.kept = told[end:]
        return told[:end]

    def farewell(self) -> None:
        """TLS's own end, and nothing of TCP's."""
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass  # it has said so; what it reads is not the other's answer to that
        self.push()

    def fin(self) -> None:
        """TCP's end, and nothing of TLS's."""
        self.socket.shutdown(socket.SHUT_WR)

    def both(self) -> None:
        self.farewell()
        # the farewell is an end, too: the server may have answered and gone by now, and what it said is still to be read
        try:
            self.fin()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def reset(self) -> None:
        """Gone at once, with nothing of what is on the way."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


# Ways to say that nothing more will come.
ENDS = {"farewell": Halves.farewell, "fin": Halves.fin, "both": Halves.both}
