"""Random requests, given to Kubernetes' API server and to `trainyard up`: both must answer alike.

    SEED=7 CASES=2000 pytest e2e/api/test_api_differential.py            other scenarios, more of them
    SEED=1 CASE=12 pytest e2e/api/test_api_differential.py -k topic      one of them alone

`random_api.py` makes scenarios up that change objects anywhere (`case`), `random_topics.py` those that go through a topic (`topic`). Compared are code, content type, warnings and body of every answer, managed fields included,
after the normalisation of the recordings (`golden/replay.py`). What differs is grouped by rule: what was asked of which kind,
and how the answers differ. `api_differences.yaml` names what may differ and why, and bounds how much else may in the cases of
the gate. REPORT names a file for all that differs; STRICT=1 allows nothing that has no name.
Nothing but the API servers is at work while answers are compared: upstream's controller manager is stopped, and ours is started
again without controllers. UPSTREAM and OURS name kubeconfigs of control planes that run already (one that was used must be told other seeds).
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import copy
import functools
import http.client
import json
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import Iterator

import pytest
import yaml

from cluster import start
from conftest import ROOT, Yard, stop, wait_for
import random_api
import random_topics
import random_topics_admission  # noqa: F401
import random_topics_beside  # noqa: F401
import random_topics_custom  # noqa: F401
import random_topics_kinds  # noqa: F401
import random_topics_lives  # noqa: F401
import random_topics_mutating  # noqa: F401
import random_topics_time  # noqa: F401
import random_topics_workloads  # noqa: F401
import random_topics_writes  # noqa: F401
from random_api import Scenario, Step

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay

# Scenarios in the gate, 10,000 requests in all, of each of the two makers: objects that are changed anywhere, and topics that are gone through.
GATE = {"case": 690, "topic": 195}
SEED = os.environ.get("SEED", "1")
NUMBERS = {about: [int(os.environ["CASE"])] if "CASE" in os.environ else range(int(os.environ.get("CASES", gate))) for about, gate in GATE.items()}
MAKERS = {"case": random_api.make, "topic": random_topics.make}
DIFFERENCES = yaml.safe_load((pathlib.Path(__file__).parent / "api_differences.yaml").read_text())
NAMED: list[dict[str, str]] = DIFFERENCES["named"]
# So many scenarios at a time: most wait for a server or for the end of a watch.
THREADS = 10
# Both servers are asked at once.
BOTH = concurrent.futures.ThreadPoolExecutor(2 * THREADS)
# How long a namespace may take to have its service account, a new kind to be served.
PATIENCE = 60
# Documents about what is served, and the part that lists it.
DESCRIBED = {"APIGroupList": "groups", "APIGroupDiscoveryList": "items", "APIResourceList": "resources", "APIVersions": "serverAddressByClientCIDRs"}
# Codes after which a step with `until` has something to wait for.
DONE = ("200", "201")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\b\d+\b|(?:case|topic)-\d+')


class Side:
    """One of the API servers."""

    def __init__(self, kubeconfig: str):
        flags = dict.fromkeys(("server", "token", "ca", "context"))
        self.server = replay.Server.from_args(argparse.Namespace(**flags, kubeconfig=kubeconfig, insecure=False))

    def prepare(self, namespaces: list[str]) -> None:
        make = lambda name: self.server.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(make, namespaces))
        # metadata alone: thousands of certificates are many megabytes
        meta = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        here = lambda path: {o["metadata"].get("namespace") for o in self.server.request("GET", path, headers=meta).json["items"] or []}
        wait_for("service accounts", lambda: set(namespaces) <= here("/api/v1/serviceaccounts"), PATIENCE)
        wait_for("root certificates", lambda: set(namespaces) <= here("/api/v1/configmaps?fieldSelector=metadata.name=kube-root-ca.crt"), PATIENCE)

    def ask(self, step: Step, said: dict[str, str]) -> dict:
        """The answer, as far as it is compared; what later steps may use of it goes into `said`."""
        fill = lambda text: re.sub(r"\$\{(\w+)\}", lambda m: said.get(m[1], said.get(m[1].rpartition("_")[2], "1")), text)
        body = fill(step.body if isinstance(step.body, str) else json.dumps(step.body)) if step.body is not None else None
        headers = dict(step.headers)
        content_type = headers.pop("Content-Type", "application/json")
        send = lambda: self.server.request(step.method, fill(step.path), body, content_type, headers)
        if step.until:
            if said["code"] in DONE:
                wait_for(f"{step.path} to answer {step.until}", lambda: send().code == step.until, PATIENCE)
            return {}
        answers: list[replay.Answer] = []

        def is_told() -> bool:
            answers.append(send())
            # a definition has changed
            return "storage is (re)initializing" not in answers[-1].text

        try:
            wait_for("the storage of a kind", is_told, PATIENCE)
        except (OSError, http.client.HTTPException) as error:
            return {"code": 0, "text": repr(error)}
        answer = answers[-1]
        said["code"] = str(answer.code)
        answer = without_chance(answer, step.body)
        meta = answer.json.get("metadata") if isinstance(answer.json, dict) else None
        if isinstance(meta, dict) and answer.code < 300:
            new = {n: meta[k] for n, k in (("rv", "resourceVersion"), ("uid", "uid"), ("continue", "continue")) if meta.get(k)}
            if isinstance(meta.get("name"), str):
                said["own_rv"] = meta.get("resourceVersion", "1")
            said.update(new, **({f"{step.save}_{n}": v for n, v in new.items()} if step.save else {}))
        return seen(answer, said["namespace"])


def without_chance(answer: replay.Answer, body: object) -> replay.Answer:
    """A name that the server made up and a refusal tells, as the prefix that it was made of."""
    if isinstance(body, str) and "generateName" in body:
        try:
            body = yaml.load(body, replay.Loader)
        except yaml.YAMLError:
            return answer
    prefix = (body.get("metadata") or {}).get("generateName") if isinstance(body, dict) and isinstance(body.get("metadata"), dict) else None
    if not prefix or not isinstance(prefix, str) or answer.code < 400:
        return answer
    answer.text = re.sub(re.escape(prefix[:58]) + "[bcdfghjklmnpqrstvwxz2456789]{5}", prefix[:58] + "*", answer.text)
    answer.json = json.loads(answer.text) if answer.json is not None else None
    return answer


@functools.lru_cache(1 << 16)
def ruled(text: str) -> str:
    return replay.Normaliser().text(text)


class Normaliser(replay.Normaliser):
    """Remembers texts: the same few make up most objects."""

    def text(self, s: str) -> str:
        return super().text(s) if self.names else ruled(s)


def seen(answer: replay.Answer, namespace: str) -> dict:
    kind = answer.headers.get("Content-Type") or ""
    out: dict = {"code": answer.code, "type": kind}
    warnings = [w for w in answer.warnings if not any(re.search(o, w) for o in DIFFERENCES["warnings"])]
    if warnings:
        out["warnings"] = warnings
    if answer.headers.get("Retry-After"):
        out["retry"] = answer.headers["Retry-After"]
    norm = Normaliser()
    norm.keep = ("managedFields", "resourceVersion")
    values = [answer.json]
    if answer.json is None:
        lines = [line for line in answer.text.splitlines() if line.strip()]
        try:
            values = [yaml.load(answer.text, replay.Loader)] if "yaml" in kind else [json.loads(line) for line in lines]
        except (ValueError, yaml.YAMLError):
            values = []
            out["text"] = norm.text(answer.text.strip())
    for value in values:
        if isinstance(value, dict):
            for o in [value, value.get("object"), *(value.get("items") or [])]:
                if isinstance(o, dict) and isinstance(o.get("metadata"), dict) and isinstance(o["metadata"].get("name"), str):
                    norm.learn([o])
    values = [described(v, namespace) if isinstance(v, dict) and v.get("kind") in DESCRIBED else v for v in values]
    values = [own_part(v) if isinstance(v, dict) and "openapi" in v else v for v in values]
    values = [comparable(norm.object(v)) if isinstance(v, dict) else v for v in values]
    values = [in_order(v) if isinstance(v, dict) and v.get("kind") == "Status" else v for v in values]
    values = [v for v in values if not (isinstance(v, dict) and named(v.get("object") or {}) in DIFFERENCES["objects"])]
    out["body"] = values[0] if len(values) == 1 else values
    return out


def in_order(status: dict) -> dict:
    """As the recordings have it; a message says once what is a cause twice."""
    details = status.get("details") or {}
    causes = details.get("causes") or []
    once = [cause for i, cause in enumerate(causes) if cause not in causes[:i]]
    if len(once) == len(causes):
        return replay.in_order(status)
    message = replay.in_order(copy.deepcopy({**status, "details": {**details, "causes": once}}))["message"]
    return {**replay.in_order(status), "message": message}


def described(document: dict, namespace: str) -> dict:
    """Of a document about groups or kinds, what only one server has by design left out, what other scenarios make, and where it is."""
    part = DESCRIBED[document["kind"]]
    name = lambda one: one.get("resource") or one.get("name") or (one.get("metadata") or {}).get("name") or ""
    foreign = lambda one: name(one).endswith(".example") and name(one) != f"{namespace}.example"
    if part == "serverAddressByClientCIDRs":
        return {**document, part: [{**one, "serverAddress": "<address>"} for one in document[part]]}
    absent = [*DIFFERENCES["groups"], *DIFFERENCES["resources"]]
    kept = [one for one in document.get(part) or [] if name(one) not in absent and not foreign(one)]
    for version in [v for one in kept for v in one.get("versions") or [] if "resources" in v]:
        version["resources"] = [r for r in version["resources"] if name(r) not in absent]
        for resource in version["resources"]:
            resource["subresources"] = [s for s in resource.get("subresources") or [] if f"{name(resource)}/{s['subresource']}" not in absent]
    return {**document, part: kept}


def own_part(document: dict) -> dict:
    """Of an OpenAPI document, the schemas of its own group, and which paths there are for which methods."""
    schemas = document.get("components", {}).get("schemas", {})
    methods = {path: sorted(set(item) - {"parameters"}) for path, item in document.get("paths", {}).items() if not any(re.search(p, path) for p in DIFFERENCES["paths"])}
    own = {name: schema for name, schema in schemas.items() if not name.startswith("io.k8s.")}
    for schema in [schema for name, schema in own.items() if name.endswith("List")]:
        for part in [schema, *schema.get("properties", {}).values()]:
            part.pop("description", None)
    return {"paths": methods, "schemas": own}


def comparable(value: dict) -> dict:
    """Without what `api_differences.yaml` leaves out: the prose of columns, the objects that every namespace is born with, and
    the parts of messages that are `cut`."""
    allocated(value)
    inner = value.get("object")
    for column in [*(value.get("columnDefinitions") or []), *((inner.get("columnDefinitions") or []) if isinstance(inner, dict) else [])]:
        column.pop("description", None)
    for holder in (value, inner if isinstance(inner, dict) else {}):
        for part in ("items", "rows"):
            if isinstance(holder.get(part), list):
                holder[part] = [o for o in holder[part] if named(o.get("object") or o) not in DIFFERENCES["objects"]]
    for rules in value["status"].values() if value.get("kind") == "SelfSubjectRulesReview" and value.get("status") else []:
        # upstream goes through bindings in an order of chance
        if isinstance(rules, list):
            rules.sort(key=lambda one: json.dumps(one, sort_keys=True))
    for part in [value, *((value.get("details") or {}).get("causes") or [])] if value.get("kind") == "Status" else []:
        for pattern in DIFFERENCES["cut"]:
            part["message"] = re.sub(pattern, "", part.get("message") or "")
        # upstream lists the faults of an applied object in an order of its own
        head, colon, faults = part["message"].partition("errors:\n")
        if colon:
            part["message"] = head + colon + "\n".join(sorted(faults.splitlines()))
    return value


def allocated(value: object) -> None:
    """Puts a word in the place of ports that a server has chosen by chance (a trial of upstream's: 32769 and up)."""
    for member in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        allocated(member)
    if isinstance(value, dict):
        for field in ("nodePort", "healthCheckNodePort"):
            if isinstance(value.get(field), int) and value[field] >= 30000:
                value[field] = "<port>"
        if isinstance(value.get("cells"), list):
            value["cells"] = [re.sub(r"\b10\.96\.\d+\.\d+|(?<=:)3\d{4}(?=/)", "<allocated>", c) if isinstance(c, str) else c for c in value["cells"]]


def named(o: dict) -> str | None:
    return (o.get("metadata") or {}).get("name")


def paths(theirs: object, ours: object, at: str = "") -> Iterator[tuple[str, object, object]]:
    """Where two values differ: the way there, and both."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            if theirs.get(key, ...) != ours.get(key, ...):
                yield from paths(theirs.get(key, ...), ours.get(key, ...), f"{at}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            if one != other:
                yield from paths(one, other, f"{at}[]")
    else:
        yield at, theirs, ours


def message(answer: dict) -> str:
    body = answer.get("body")
    return body.get("message", "") if isinstance(body, dict) and body.get("kind") == "Status" else answer.get("text", "")


def rule(scenario: Scenario, step: Step, theirs: dict, ours: dict) -> str:
    """What a difference is about: it is the same for all that have the same cause, as far as one can say."""
    what = f"{step.method}{step.headers.get('Content-Type', '').removeprefix('application').removesuffix('-patch+json')} {scenario.kind}"
    if theirs["code"] != ours["code"] or theirs["code"] >= 400:
        short = lambda a: f"{a['code']} {QUOTED.sub('…', faults(message(a), theirs, ours))[:230]}"
        return f"{what}: {short(theirs)} | {short(ours)}"
    places = sorted({re.sub(r"(case|topic)-\d+", "NS", place) for place, *_ in paths(theirs, ours)})
    return f"{what}: {theirs['code']} {' '.join(places)}"


def faults(text: str, theirs: dict, ours: dict) -> str:
    """Of a message that lists faults, those that the other does not."""
    causes = lambda a: {f"{c.get('field')}: {c.get('message')}" for c in ((a.get("body") or {}).get("details") or {}).get("causes") or []} if isinstance(a.get("body"), dict) else set()
    own, other = (causes(theirs), causes(ours)) if text == message(theirs) else (causes(ours), causes(theirs))
    return " ; ".join(sorted(own - other)) if own and own - other else text


def play(scenario: Scenario, sides: list[Side]) -> tuple[int, list[tuple[str, str]]]:
    """How many requests were made, and the differences: rule and report. A scenario ends where the two no longer hold the same."""
    said: list[dict[str, str]] = [{"namespace": scenario.namespace, "own_rv": "1"} for _ in sides]
    count, found = 0, []
    for number, step in enumerate(scenario.steps):
        theirs, ours = BOTH.map(Side.ask, sides, [step, step], said)
        count += 1
        if theirs == ours:
            if step.until and said[0]["code"] not in DONE:
                # what the rest is about was refused
                break
            continue
        lines = replay.hunks(theirs, ours)
        body = step.body if isinstance(step.body, str) else json.dumps(step.body)
        request = f"{step.method} {step.path} {step.headers or ''}\n{body[:3000]}"
        report = "\n".join([f"=== SEED={SEED} CASE={scenario.namespace.partition('-')[2]} of {scenario.kind}, step {number + 1}: {request}",
                            "--- upstream", "+++ trainyard", *lines])  # fmt: skip
        found.append((rule(scenario, step, theirs, ours), report))
        if step.method != "GET" and (theirs["code"] < 300 or ours["code"] < 300):
            break
    return count, found


def brief(report: str, lines: int = 70) -> str:
    return "\n".join(report.splitlines()[:lines])


def reason(about: str, report: str) -> str | None:
    """Why a difference may be there."""
    return next((n["why"] for n in NAMED if re.search(n["rule"], about) and re.search(n.get("report", ""), report)), None)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    if "UPSTREAM" in os.environ:
        yield [Side(os.environ["UPSTREAM"]), Side(os.environ["OURS"])]
        return
    for cluster in start(tmp_path_factory):
        yard = Yard(tmp_path_factory.mktemp("home"), "--no-node", "--listen", "127.0.0.1:0")
        both = [Side(cluster.kubeconfig), Side(yard.kubeconfig)]
        list(BOTH.map(lambda side: side.prepare([f"{about}-{n}" for about in MAKERS for n in NUMBERS[about]]), both))
        yard.run("down")
        yard.flags = (*yard.flags, "--controllers", "none")
        yard.up()
        os.kill(manager := int((cluster.folder / "kube-controller-manager.pid").read_text().split()[0]), signal.SIGSTOP)
        try:
            yield both
        finally:
            os.kill(manager, signal.SIGCONT)
            stop(yard)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("about", MAKERS)
def test_requests_are_answered_alike(sides: list[Side], about: str):
    if "UPSTREAM" in os.environ:
        list(BOTH.map(lambda side: side.prepare([f"{about}-{n}" for n in NUMBERS[about]]), sides))
    begin = time.monotonic()
    scenarios = [MAKERS[about](SEED, number) for number in NUMBERS[about]]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(lambda scenario: play(scenario, sides), scenarios))
    groups: dict[str, list[str]] = collections.defaultdict(list)
    named: collections.Counter[str] = collections.Counter()
    for _, found in outcomes:
        for what, report in found:
            why = reason(what, report)
            if why:
                named[why] += 1
            else:
                groups[what].append(report)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    requests = sum(count for count, _ in outcomes)
    summary = (f"{about}s of seed {SEED}: {len(scenarios)} scenarios, {requests} requests, {sum(named.values())} named differences, "
               f"{sum(map(len, groups.values()))} others of {len(groups)} rules, in {time.monotonic() - begin:.0f} s")  # fmt: skip
    print(summary)
    if "REPORT" in os.environ:
        pathlib.Path(f"{os.environ['REPORT']}.{about}").write_text("\n".join(
            [summary, *(f"{n:5} {why}" for why, n in named.most_common()), *(f"{len(r):5} {what}" for what, r in ordered),
             *(brief(report) for _, reports in ordered for report in reports[:2])]))  # fmt: skip
    shown = [f"{len(reports)} × {what}\n{brief(min(reports, key=len))}" for what, reports in ordered[:8]]
    print("\n\n".join(shown))
    # other seeds have as many, more or less
    share = len(scenarios) / GATE[about] * (1 if SEED == "1" else 1.25)
    bound = 0 if "CASE" in os.environ or "STRICT" in os.environ else round(DIFFERENCES["open"][about] * share)
    assert sum(map(len, groups.values())) <= bound, f"{summary}; {bound} are allowed: lower `open`, or say why"


def test_the_same_seed_makes_the_same_scenarios():
    for make in MAKERS.values():
        assert repr(make("1", 5)) == repr(make("1", 5)) != repr(make("2", 5))
