"""A proxy that a test puts between a client and a server, to make faults: it delays, cuts, and answers in the server's place.

`Proxy` speaks HTTP/1.1 over TLS for a real control plane's API server; `Slow` passes bytes on, later.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import ssl
import threading
from collections.abc import Callable

import yaml

from cluster import Cluster


@dataclasses.dataclass
class Request:
    method: str
    path: str
    query: str
    body: bytes

    @property
    def watches(self) -> bool:
        return "watch=" in self.query and "watch=false" not in self.query


def refusal(code: int, reason: str, message: str) -> bytes:
    """An answer of the API server that refuses."""
    return answer(code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message})


def answer(code: int, body: dict) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (code, len(text), text)


class Listener:
    """A server on a port of its own, in a thread of its own."""

    def __init__(self, tls: ssl.SSLContext | None = None):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = self.call(asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls))
        self.port = self.server.sockets[0].getsockname()[1]

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                await self.talk(reader, writer)
            finally:
                writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def close(self) -> None:
        async def end() -> None:
            self.server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Slow(Listener):
    """Passes bytes on to a port after so many seconds, both ways."""

    def __init__(self, to: int, delay: float):
        self.to, self.delay, self.passed = to, delay, 0
        super().__init__()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.to)

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while some := await source.read(1 << 20):
                    await asyncio.sleep(self.delay)
                    self.passed += 1
                    target.write(some)
                    await target.drain()
            finally:
                target.close()

        await asyncio.gather(pass_on(reader, forth), pass_on(back, writer))


class Proxy(Listener):
    """Stands before an API server. `fault` may answer a request itself; for what it leaves, it gives None."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, fault: Callable[[Request], bytes | None]):
        self.fault, self.open_watches = fault, set()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(cluster.folder / "server.crt", cluster.folder / "server.key")
        self.trust = ssl.create_default_context(cafile=cluster.folder / "ca.crt")
        config = yaml.safe_load(cluster.account.read_text())
        self.to = int(config["clusters"][0]["cluster"]["server"].rsplit(":", 1)[1])
        super().__init__(tls)
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        # the operator's account, through here
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def cut(self) -> int:
        """Ends all watches in the middle; how many there were."""

        async def end() -> int:
            cut = list(self.open_watches)
            for writer in cut:
                writer.transport.abort()
            return len(cut)

        return self.call(end())

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.to, ssl=self.trust)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await whole(reader, head)
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
                path, _, query = target.partition("?")
                request = Request(method, path, query, body)
                told = self.fault(request)
                if told is not None:
                    writer.write(told)
                    await writer.drain()
                    continue
                forth.write(head + body)
                await forth.drain()
                if request.watches:
                    self.open_watches.add(writer)
                await relay(back, writer)
        finally:
            self.open_watches.discard(writer)
            forth.close()


def header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""


async def whole(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body after a head, as it stands on the wire."""
    if header(head, b"transfer-encoding").lower() != b"chunked":
        return await reader.readexactly(int(header(head, b"content-length") or 0))
    parts = []
    while True:
        size = await reader.readuntil(b"\r\n")
        parts += [size, await reader.readexactly(int(size.split(b";")[0], 16) + 2)]
        if int(size.split(b";")[0], 16) == 0:
            return b"".join(parts)


async def relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Passes an answer on, each part of it at once."""
    head = await source.readuntil(b"\r\n\r\n")
    target.write(head)
    if header(head, b"transfer-encoding").lower() != b"chunked":
        target.write(await whole(source, head))
        await target.drain()
        return
    while True:
        size = await source.readuntil(b"\r\n")
        count = int(size.split(b";")[0], 16)
        target.write(size + await source.readexactly(count + 2))
        await target.drain()
        if count == 0:
            return
