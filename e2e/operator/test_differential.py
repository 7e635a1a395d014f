"""Random TrainJobs, given to Kubernetes with upstream's controllers, to Kubernetes with our operator, and to `trainyard up`: all
must make the same of them.

    SEED=7 CASES=1000 pytest e2e/operator/test_differential.py       other cases, more of them
    SEED=1 CASE=12 pytest e2e/operator/test_differential.py          one of them alone

Compared are the answers to each write (code, reason, message, warnings), and then all objects that the controllers made and
their status, after the normalisation of the recordings (`golden/replay.py`). The real control planes are built by `cargo xtask
kubernetes`; where they cannot be, for want of Go, these tests are skipped. All run without a node: pods end when a case says so.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import http.client
import json
import os
import pathlib
import re
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from cluster import AS_UPSTREAM, Cluster, Operator, running, url
from conftest import ROOT, Yard, stop, wait_for
from random_trainjobs import Case, make

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay

SEED = os.environ.get("SEED", "1")
NUMBERS = [int(os.environ["CASE"])] if "CASE" in os.environ else range(int(os.environ.get("CASES", "100")))
CASES = [make(SEED, number) for number in NUMBERS]
# How long all of them may take until nothing moves any more, and how long nothing must move to say so.
PATIENCE, QUIET = 240, 2.0
# What the controllers make, Pods and Jobs among it. Namespaces bring two objects of their own.
KINDS = ["TrainJob", "JobSet", "Job", "Pod", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "PodGroup", "PodGroup.volcano"]
THREADS = 8


class Side:
    """One of the control planes."""

    def __init__(self, name: str, kubeconfig: str):
        self.name = name
        flags = dict.fromkeys(("server", "token", "ca", "context"))
        self.server = replay.Server.from_args(argparse.Namespace(**flags, kubeconfig=kubeconfig, insecure=False))
        self.shown: dict[str, tuple[str, dict]] = {}
        self.moved, self.ended = time.monotonic(), threading.Event()
        for kind in KINDS:
            threading.Thread(target=self.follow, args=(kind,), daemon=True).start()

    def follow(self, kind: str) -> None:
        """Notes when objects of a kind change: looks at all of them are dear, and worth it only once nothing moves."""
        while not self.ended.wait(0.2):
            connection = self.server.connect()
            try:
                events = self.server.send(connection, "GET", collection(kind) + "?watch=1")
                while not self.ended.is_set() and events.readline():
                    self.moved = time.monotonic()
            except (OSError, http.client.HTTPException):  # cut off, or nothing for a minute: again
                continue
            finally:
                connection.close()

    def write(self, method: str, path: str, body: dict, content_type: str = "application/json") -> dict:
        """The answer, as far as it is compared."""
        answer = self.server.request(method, path + "?fieldManager=differential", body, content_type)
        seen = {"code": answer.code, "warnings": replay.without_ours(answer.warnings)}
        if answer.code >= 400:
            status = answer.json if isinstance(answer.json, dict) else {"message": answer.text}
            norm = replay.Normaliser()
            seen["reason"] = status.get("reason")
            seen["message"] = in_any_order(replay.short(norm.text(status.get("message") or "")))
        return seen

    def prepare(self, cases: list[Case]) -> None:
        each(cases, lambda case: self.write("POST", "/api/v1/namespaces", {
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}}))  # fmt: skip
        accounts = lambda: self.server.request("GET", "/api/v1/serviceaccounts").json["items"]
        wait_for(f"a service account in each namespace ({self.name})",
                 lambda: {c.namespace for c in cases} <= {a["metadata"]["namespace"] for a in accounts()}, PATIENCE)  # fmt: skip

    def runtime(self, case: Case) -> dict:
        """Creates the runtime; where it is let in, waits until admission of TrainJobs has seen it."""
        if case.runtime is None:
            return {}
        seen = self.write("POST", self.server.path(case.runtime["kind"], namespace=case.namespace), case.runtime)
        if seen["code"] == 201 and case.job["spec"]["runtimeRef"]["name"] == case.runtime["metadata"]["name"]:
            path = self.server.path("TrainJob", namespace=case.namespace) + "?dryRun=All"
            unseen = lambda: "must be created before" in self.server.request("POST", path, case.job).text
            wait_for(f"admission to see the runtime of {case.namespace} ({self.name})", lambda: not unseen(), PATIENCE)
        return seen

    def create(self, case: Case) -> dict:
        return self.write("POST", self.server.path("TrainJob", namespace=case.namespace), case.job)

    def step(self, case: Case, step: dict | str) -> dict:
        if isinstance(step, dict):
            path = self.server.path("TrainJob", namespace=case.namespace, name=case.job["metadata"]["name"])
            return self.write("PATCH", path, step, replay.PATCH_TYPES["merge"])
        phase = {"succeed": "Succeeded", "fail": "Failed"}[step]
        pods = [p for p in self.server.list("Pod", case.namespace) or []
                if "deletionTimestamp" not in p["metadata"] and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]  # fmt: skip
        policy = case.runtime and case.runtime["spec"]["template"]["spec"].get("successPolicy")
        if step == "succeed" and policy:
            # the JobSet ends with these, and whether others are done by then would be chance
            label = lambda pod, key: pod["metadata"]["labels"][f"jobset.sigs.k8s.io/{key}"]
            pods = [p for p in pods if label(p, "replicatedjob-name") in policy["targetReplicatedJobs"]]
            if policy["operator"] == "Any":
                pods = [p for p in pods if label(p, "job-index") == "0"]
        if step == "fail":  # of several that fail at once, who is noticed first is chance
            pods = sorted(pods, key=lambda p: p["metadata"]["name"])[:1]
        for pod in pods:
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": replay.kubelet_status(pod, phase)}
            path = self.server.path("Pod", namespace=case.namespace, name=pod["metadata"]["name"], subresource="status")
            self.server.request("PATCH", path, body, replay.PATCH_TYPES["strategic"])
        return {"pods": len(pods)}

    def clear(self, cases: list[Case]) -> None:
        """Takes away what `runtime` and `create` made, and waits until nothing is left of it but claims that are to stay."""
        each(cases, lambda case: self.server.request("DELETE", self.server.path("TrainJob", namespace=case.namespace)))
        for case in cases:
            if case.runtime:
                where = {"namespace": case.namespace, "name": case.runtime["metadata"]["name"]}
                self.server.request("DELETE", self.server.path(case.runtime["kind"], **where))
        left = lambda: {o["kind"] for objects in self.objects()[1].values() for o in objects} - {"PersistentVolumeClaim"}
        wait_for(f"all to be collected ({self.name})", lambda: not left(), PATIENCE)

    def objects(self) -> tuple[dict[str, str], dict[str, list[dict]]]:
        """Resource versions by uid, and the normalised objects of each namespace."""
        versions, found = {}, {}
        for kind in KINDS:
            api_version, _ = replay.KINDS[kind]
            for o in self.server.request("GET", collection(kind)).json["items"]:
                meta = o["metadata"]
                if not meta["namespace"].startswith("case-") or meta["name"] == "kube-root-ca.crt":
                    continue
                versions[meta["uid"]] = meta["resourceVersion"]
                known = self.shown.get(meta["uid"])
                if known is None or known[0] != meta["resourceVersion"]:
                    norm = replay.Normaliser()
                    whole = {"apiVersion": api_version, "kind": kind.split(".")[0], **o}
                    norm.learn([whole])
                    known = self.shown[meta["uid"]] = (meta["resourceVersion"], comparable(norm.object(whole)))
                found.setdefault(meta["namespace"], []).append(known[1])
        return versions, {namespace: replay.ordered(objects) for namespace, objects in found.items()}


def collection(kind: str) -> str:
    """The path of all objects of a kind, in all namespaces."""
    api_version, plural = replay.KINDS[kind]
    return f"/{'apis' if '/' in api_version else 'api'}/{api_version}/{plural}"


def in_any_order(message: str) -> str:
    """A message with its parts in alphabetical order: plugins run in the order of a Go map upstream (Q-10)."""
    head, mark, rest = message.partition("[spec.")
    if not mark or not rest.endswith("]"):
        return message
    return f"{head}[{', '.join(sorted(re.split(r', (?=spec[.])', 'spec.' + rest[:-1])))}]"


def comparable(o: dict) -> dict:
    """What may differ between two runs of the same system, taken away."""
    o = copy.deepcopy(o)
    # how often an object was written until it was as it is
    o["metadata"].pop("generation", None)
    if o["kind"] == "Job":
        o["status"] = {k: v for k, v in o.get("status", {}).items() if k not in ("uncountedTerminatedPods",)}
    for condition in o.get("status", {}).get("conditions") or []:
        condition.pop("observedGeneration", None)
    return o


def is_sure(o: dict) -> bool:
    """Whether an object is there in any case, and not only where all children are."""
    frozen = o["kind"] == "ConfigMap" and o["metadata"]["name"].endswith("-runtime-snapshot")
    return frozen or o["kind"] not in ("PodGroup", "ConfigMap", "Secret")


def each(cases: list[Case], act) -> list:
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(act, cases))


def at_rest(sides: list[Side], known: set[str]) -> list[dict[str, list[dict]]]:
    """The objects of all sides, once they have not changed for a while. While one differs from the first in a namespace of
    which that is not known yet, a while is longer."""
    deadline = time.monotonic() + PATIENCE
    seen, since = None, time.monotonic()
    while True:
        if time.monotonic() - max(side.moved for side in sides) < QUIET / 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        looks = [side.objects() for side in sides]
        versions, objects = [look[0] for look in looks], [look[1] for look in looks]
        if versions != seen:
            seen, since = versions, time.monotonic()
        still = time.monotonic() - since
        sure = [{n: list(filter(is_sure, found)) for n, found in side.items()} for side in objects]
        alike = all(sure[0].get(n) == own.get(n) for own in sure[1:] for n in {*sure[0], *own} - known)
        if still > (QUIET if alike else 10 * QUIET) or time.monotonic() > deadline:
            return objects
        time.sleep(QUIET / 2)


@pytest.fixture
def sides(theirs: Cluster, cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[list[Side]]:
    """Upstream's, and ours in both ways."""
    operator = Operator(cluster, tmp_path, url(), config={**AS_UPSTREAM, "clientConnection": {"qps": 500, "burst": 1000}})
    with running(operator):
        cluster.runtimes()
        yard = Yard(tmp_path / "home", "--no-node", "--listen", "127.0.0.1:0")
        try:
            *real, _ = sides = [Side("upstream", theirs.kubeconfig), Side("the operator", cluster.kubeconfig), Side("trainyard up", yard.kubeconfig)]
            yield sides
            for side in sides:
                side.ended.set()
            for side in real:
                side.clear(CASES)
        finally:
            stop(yard)


@pytest.mark.timeout(1800)
def test_random_trainjobs_fare_alike(sides: list[Side]):
    cases = CASES
    wrong: dict[str, list[str]] = {}

    def compare(about: str, act) -> None:
        """What `act` gives for each case, on all sides."""
        theirs, *others = [each(cases, lambda case, side=side: act(side, case)) for side in sides]
        for case, *answers in zip(cases, theirs, *others, strict=True):
            for side, own in zip(sides[1:], answers[1:], strict=True):
                if answers[0] != own:
                    wrong.setdefault(case.namespace, []).append(diff(side, about, answers[0], own))
            if about == "create" and answers[0].get("code") == 201:
                admitted.append(case.namespace)

    def settle(about: str) -> None:
        theirs, *others = at_rest(sides, set(wrong))
        for case in cases:
            if case.namespace not in wrong:
                faults = []
                for side, own in zip(sides[1:], others, strict=True):
                    faults += differences(side, about, theirs.get(case.namespace, []), own.get(case.namespace, []))
                if faults:
                    wrong[case.namespace] = faults
        built.append(sum(any(o["kind"] == "JobSet" for o in objects) for objects in theirs.values()))

    admitted, built, begin = [], [], time.monotonic()
    for side in sides:
        side.prepare(cases)
    compare("runtime", Side.runtime)
    compare("create", Side.create)
    settle("created")
    for number in range(max(len(case.steps) for case in cases)):
        step = lambda side, case: (
            side.step(case, case.steps[number])
            if number < len(case.steps) and case.steps[number] and case.namespace in admitted and case.namespace not in wrong else {}
        )  # fmt: skip
        compare(f"step {number + 1}", step)
        settle(f"step {number + 1}")
    summary = (f"seed {SEED}: {len(cases)} cases, {len(admitted)} admitted, {max(built)} with a JobSet, {len(wrong)} differ, "
               f"in {time.monotonic() - begin:.0f} s")  # fmt: skip
    print(summary)
    report = [summary]
    for case in cases:
        if case.namespace in wrong and len(report) < 12:
            number = case.namespace.removeprefix("case-")
            text = yaml.safe_dump({"runtime": case.runtime, "job": case.job, "steps": case.steps}, sort_keys=False, width=160)
            report.append("\n".join([f"=== SEED={SEED} CASE={number}", *wrong[case.namespace][:3], "--- the case", text]))
    assert not wrong, "\n".join(report) + f"\nall that differ: {sorted(wrong)}"
    if len(cases) >= 100:
        assert len(admitted) > 0.5 * len(cases) and max(built) > 0.4 * len(cases), f"too few say anything: {summary}"


def differences(side: Side, about: str, left: list[dict], right: list[dict]) -> list[str]:
    """Where the objects of a case differ from upstream's."""
    if not any(o["kind"] == "JobSet" for o in left):
        # one of the children was refused: which of the others came before it is chance upstream
        left, right = (list(filter(is_sure, objects)) for objects in (left, right))
    theirs, own = replay.by_key(left), replay.by_key(right)
    return [diff(side, f"{about}: {key}", theirs.get(key), own.get(key))
            for key in {**theirs, **own} if theirs.get(key) != own.get(key)]  # fmt: skip


def diff(side: Side, about: str, theirs, own) -> str:
    lines = replay.hunks(theirs, own)
    return "\n".join([f"--- upstream: {about}", f"+++ {side.name}: {about}", *lines[:60], *(["…"] if len(lines) > 60 else [])])


def test_the_same_seed_makes_the_same_cases():
    as_text = lambda case: json.dumps([case.namespace, case.runtime, case.job, case.steps])
    assert as_text(make("1", 5)) == as_text(make("1", 5)) != as_text(make("2", 5))
