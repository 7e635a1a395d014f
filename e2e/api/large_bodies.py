"""What long requests cost: every list and map of every kind, filled until the body has a size, then four times as much.

    python e2e/api/large_bodies.py SERVER TOKEN PID [BYTES [KIND]]

Nothing is stored (`dryRun=All`). Prints each field for which four times as much costs far more than four times the server's
processor time (so other load does not count), and what kept it for long; the exit code is 1 if there is any.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator

import yaml

from schemas import Server

HERE = pathlib.Path(__file__).parent
# Seconds under which nothing is a finding, and over which everything is.
SHORT, LONG = 1.0, 20
# MiB that one request may leave behind, and for how many seconds more: the allocator gives back what was freed a moment later.
MUCH, MOMENT = 600, 15
# 5xx that upstream answers, too.
UPSTREAMS = (
    b"unable to convert unstructured", b"strconv.", b"error in our request", b"json: ", b"unable to parse", b"failed to create",
    b"does not contain declared merge key",
)  # fmt: skip
# Of kinds that hold a pod's template, the pod's own fields are asked of the pod.
TEMPLATE = "template"
DEPTH = 9

Path = tuple[str | int, ...]


class Documents:
    def __init__(self, server: Server):
        self.schemas: dict[str, dict] = {}
        for document in server.documents().values():
            self.schemas |= document.get("components", {}).get("schemas", {})

    def of(self, api_version: str, kind: str) -> dict | None:
        group, _, version = api_version.rpartition("/")
        wanted = {"group": group, "version": version, "kind": kind}
        return next((s for s in self.schemas.values() if wanted in s.get("x-kubernetes-group-version-kind", [])), None)

    def open(self, node: dict) -> dict:
        """A node itself, where it is a reference."""
        reference = node.get("$ref") or next((part.get("$ref") for part in node.get("allOf", []) if "$ref" in part), None)
        return self.schemas[reference.rsplit("/", 1)[1]] if reference else node

    def collections(self, node: dict, path: Path = (), seen: tuple[int, ...] = ()) -> Iterator[tuple[Path, dict]]:
        """All lists and maps below a node, with their schemas; `0` stands for an element."""
        node = self.open(node)
        if len(path) > DEPTH or id(node) in seen:
            return
        seen = (*seen, id(node))
        if "items" in node:
            yield path, node
            yield from self.collections(node["items"], (*path, 0), seen)
        elif isinstance(node.get("additionalProperties"), dict):
            yield path, node
            yield from self.collections(node["additionalProperties"], (*path, "key"), seen)
        for name, member in node.get("properties", {}).items():
            yield from self.collections(member, (*path, name), seen)

    def fields(self, base: dict) -> Iterator[tuple[Path, dict, bool, str]]:
        """All lists and maps of an object's kind, each to be filled with elements that are alike and that are not; with a name."""
        for where, node in self.collections(self.of(base["apiVersion"], base["kind"]) or {}):
            if ("managedFields" in where and where[-1] != "managedFields") or (TEMPLATE in where and "spec" in where[where.index(TEMPLATE) :]):
                continue
            for alike in (False, True):
                yield where, node, alike, f"{'.'.join(map(str, where))} {'alike' if alike else 'distinct'}"

    def element(self, node: dict, number: int) -> object:
        """An element that says what it must, and its number in each of its texts."""
        node = self.open(node)
        if "items" in node:
            return []
        match node.get("type"):
            case "integer" | "number":
                return number % 60_000 + 1
            case "boolean":
                return True
            case "string":
                return f"n{number}"
        properties = node.get("properties")
        if properties is None:
            return f"n{number}" if node.get("additionalProperties") is None else {}
        names = set(node.get("required", [])) | {"name", "key"} & set(properties)
        return {name: self.element(properties[name], number) for name in sorted(names)}


def put(value: object, path: Path, filled: object) -> object:
    """`value` with `filled` at a path; elements on the way that are not there are made."""
    if not path:
        return filled
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items = list(value) if isinstance(value, list) and value else [None]
        items[0] = put(items[0], rest, filled)
        return items
    members = dict(value) if isinstance(value, dict) else {}
    if step == "key" and step not in members and members:
        step = next(iter(members))
    members[step] = put(members.get(step), rest, filled)
    return members


def filled(documents: Documents, node: dict, size: int, alike: bool) -> object:
    """A list or map of so many bytes."""
    inner = node.get("items") or node.get("additionalProperties")
    one = documents.element(inner, 10_000)
    count = max(1, size // (len(json.dumps(one, separators=(",", ":"))) + (1 if "items" in node else 8)))
    elements = (documents.element(inner, 0 if alike else i) for i in range(count))
    return list(elements) if "items" in node else {f"k{i}": element for i, element in enumerate(elements)}


class Meter:
    """Asks the same with more and more in it, and says what costs far more than its length, or is answered with a 5xx. `share`: of all that
    could be asked; which it is follows from the seed."""

    def __init__(self, server: Server, pid: int, size: int, share: float = 1, seed: str = ""):
        self.server, self.size, self.share, self.seed = server, size, share, seed
        self.process = pathlib.Path(f"/proc/{pid}")
        self.asked = 0
        self.found: list[str] = []

    def chosen(self, what: str) -> bool:
        return random.Random(f"{self.seed} {what}").random() < self.share

    def processor(self) -> float:
        fields = (self.process / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """MiB."""
        lines = (self.process / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10

    def left_behind(self, before: int) -> int:
        """MiB that a request has added to what was resident before it, and that are not given back."""
        until = time.monotonic() + MOMENT
        while (grown := self.resident() - before) > MUCH and time.monotonic() < until:
            time.sleep(0.1)
        return grown

    def cost(self, method: str, path: str, body: object, media: str) -> tuple[float, int, bytes]:
        self.asked += 1
        text = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        start = self.processor()
        code, told = self.server.ask(method, path, text, media)
        return self.processor() - start, code, told

    def look(self, what: str, method: str, request: Callable[[int], tuple[str, object]], media: str = "application/json") -> None:
        """`request` gives path and body for a size in bytes."""
        if not self.chosen(what):
            return
        before = self.resident()
        some, code, told = self.cost(method, *request(self.size // 16), media)
        part = all_of_it = 0.0
        if some > SHORT / 40:  # what is quadratic takes 256 times as long
            part, code, told = self.cost(method, *request(self.size // 4), media)
        if some <= SHORT / 40 or part > SHORT / 12:
            all_of_it, code, told = self.cost(method, *request(self.size), media)
        grown = self.left_behind(before)
        slow = all_of_it > LONG or (all_of_it > SHORT and all_of_it > 8 * max(part, some))
        # a full disk is no fault of the request; what upstream answers so, too, has Go's words
        broken = code == 0 or (code >= 500 and not any(words in told for words in UPSTREAMS))
        if slow or broken or grown > MUCH:
            self.found.append(what)
            more = told[:200].decode(errors="replace") if broken else ""
            print(f"{what}: {part:.2f} s, then {all_of_it:.2f} s ({code}), {grown} MiB {more}", flush=True)


def main() -> int:
    size = int(sys.argv[4]) if len(sys.argv) > 4 else 1_500_000
    only = sys.argv[5] if len(sys.argv) > 5 else ""
    server = Server(sys.argv[1], sys.argv[2])
    meter = Meter(server, int(sys.argv[3]), size)
    documents, begun = Documents(server), time.monotonic()
    # pods are refused before anything else without it
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.ask("POST", "/api/v1/namespaces/default/serviceaccounts", json.dumps(account).encode())
    for kind, entry in yaml.safe_load((HERE / "api_objects.yaml").read_text().replace("${NS}", "default")).items():
        if only and only != kind:
            continue
        base = entry["object"]
        path = entry["path"] + "?dryRun=All&fieldManager=m"
        for where, node, alike, named in documents.fields(base):

            def request(bytes_: int, where: Path = where, node: dict = node, alike: bool = alike) -> tuple[str, object]:
                return path, put(copy.deepcopy(base), where, filled(documents, node, bytes_, alike))

            meter.look(f"POST {kind} {named}", "POST", request)
    print(f"{meter.asked} requests, {len(meter.found)} findings, {time.monotonic() - begun:.0f} s")
    return 1 if meter.found else 0


if __name__ == "__main__":
    sys.exit(main())
