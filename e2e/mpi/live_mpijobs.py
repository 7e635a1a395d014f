"""MPIJobs beside mpi-operator 0.8.2, live: `make mpijob-live`, outside the gate.

    MPIJOBS=300 SEED=1 pytest e2e/mpi/live_mpijobs.py       more of them, other ones
    SEED=1 MPIJOB=12,17 pytest e2e/mpi/live_mpijobs.py      these of them alone

Random MPIJobs (`random_mpijobs.py`) are given to Kubernetes with mpi-operator and to Kubernetes with our operator. Compared are the
answers to each write and then, after each step of a job's life, all objects, their status and the events of MPIJobs, after the
normalisation of the recordings (`golden/replay.py`). The kubelet is played. `mpijob_differences.yaml` names what differs on
purpose. A job for which mpi-operator's side never does what the next step needs is passed over and named; only few may be. Then both
operators take over from each other.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from cluster import AS_UPSTREAM, Cluster, Operator, running, start, url
from conftest import ROOT, wait_for
from random_mpijobs import ROUNDS, Case, make

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay

SEED = os.environ.get("SEED", "1")
ALONE = os.environ.get("MPIJOB")
NUMBERS = [int(number) for number in ALONE.split(",")] if ALONE else range(int(os.environ.get("MPIJOBS", "32")))
DIFFERENCES = yaml.safe_load((ROOT / "e2e/mpi/mpijob_differences.yaml").read_text())
# How long nothing must move, how long it may take until then, and by how much longer a difference may take to go away.
QUIET, PATIENCE, SLOW = 2.0, 240, 8
# Of how many jobs one may be passed over (one always may).
PASSED_OVER = 50
CHILDREN = ["Job", "Pod", "Service", "ConfigMap", "Secret", "PodGroup", "PodGroup.volcano"]
NO_LIMITS = {"clientConnection": {"qps": 1000, "burst": 1000}}
ROLE = "training.kubeflow.org/job-role"
ENDED = ("Succeeded", "Failed")


class Absent(Exception):
    """What a step needs has not come about in time."""


class Side:
    """One of the control planes, and the kubelet of it."""

    def __init__(self, name: str, cluster: Cluster):
        self.name, self.cluster = name, cluster
        flags = dict.fromkeys(("server", "token", "ca", "context"))
        self.server = replay.Server.from_args(argparse.Namespace(**flags, kubeconfig=cluster.kubeconfig, insecure=False))
        self.shown: dict[str, tuple[str, dict]] = {}

    def write(self, method: str, path: str, body: dict | None = None, content_type: str = "application/json") -> dict:
        """The answer, as far as it is compared."""
        answer = self.server.request(method, path + "?fieldManager=live", body, content_type)
        if answer.code < 400:
            return {"code": answer.code, "warnings": answer.warnings}
        status = answer.json if isinstance(answer.json, dict) else {"message": answer.text}
        return {"code": answer.code, "reason": status.get("reason"), "message": replay.short(replay.Normaliser().text(status.get("message") or ""))}

    def prepare(self, namespaces: list[str]) -> None:
        each(namespaces, lambda name: self.write("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        accounts = lambda: self.server.request("GET", "/api/v1/serviceaccounts").json["items"]
        wait_for(f"a service account in each namespace ({self.name})",
                 lambda: set(namespaces) <= {a["metadata"]["namespace"] for a in accounts()}, PATIENCE)  # fmt: skip

    def pods(self, namespace: str, role: str) -> list[dict]:
        """A job's pods of a role that have not ended, by name."""
        found = self.server.list("Pod", namespace, f"{ROLE}={role}") or []
        alive = [p for p in found if "deletionTimestamp" not in p["metadata"] and p.get("status", {}).get("phase") not in ENDED]
        return sorted(alive, key=lambda p: p["metadata"]["name"])

    def plays(self, pods: list[dict], phase: str, **options) -> None:
        for pod in pods:
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": replay.kubelet_status(pod, phase, **options)}
            path = self.server.path("Pod", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"], subresource="status")
            self.server.request("PATCH", path, body, replay.PATCH_TYPES["strategic"])

    def create(self, case: Case) -> dict:
        there = [self.write("POST", self.path_of(o, case.namespace), o) for o in case.there]
        self.plays(self.pods(case.namespace, "worker"), "Running")
        # of a job whose name is none, its names are nobody's
        refused = [answer for answer in there if answer["code"] != 201]
        return {**self.write("POST", self.server.path("MPIJob", namespace=case.namespace), case.job), "refused": refused}

    def path_of(self, o: dict, namespace: str, **name: str) -> str:
        kind = "PodGroup.volcano" if "volcano" in o["apiVersion"] else o["kind"]
        return self.server.path(kind, namespace=namespace, **name)

    def replaces(self, namespace: str, launcher: list[dict]) -> None:
        """Waits until the launcher's Job has another pod than this, or has ended."""

        def done() -> bool:
            ended = lambda job: any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in job.get("status", {}).get("conditions", []))
            new = {p["metadata"]["uid"] for p in self.pods(namespace, "launcher")} - {p["metadata"]["uid"] for p in launcher}
            return bool(new) or all(ended(job) for job in self.server.list("Job", namespace) or [])

        try:
            wait_for(f"another launcher in {namespace} ({self.name})", done, PATIENCE)
        except pytest.fail.Exception as error:
            raise Absent(str(error)) from None

    def step(self, case: Case, step: dict | str) -> dict:
        """A merge patch of the MPIJob, or what a word stands for."""
        name, namespace = case.job["metadata"]["name"], case.namespace
        path = lambda kind, named: self.server.path(kind, namespace=namespace, name=named)
        patch = lambda kind, named, body: self.write("PATCH", path(kind, named), body, replay.PATCH_TYPES["merge"])
        delete = lambda kind, named, **options: self.write("DELETE", path(kind, named), options or None)
        workers, launcher = self.pods(namespace, "worker"), self.pods(namespace, "launcher")
        gang = ROUNDS[case.round][0]
        group = "PodGroup.volcano" if gang == "volcano" else "PodGroup"
        match step:
            case {"status": _}:
                return self.write("PATCH", self.server.path("MPIJob", namespace=namespace, name=name, subresource="status"), step,
                                  replay.PATCH_TYPES["merge"])  # fmt: skip
            case dict():
                return patch("MPIJob", name, step)
            case "taken freed":
                freed = [self.path_of(o, namespace, name=o["metadata"]["name"]) for o in case.there if "labels" not in o["metadata"]]
                for there in freed:
                    self.write("DELETE", there)
                return patch("MPIJob", name, {"metadata": {"labels": {"try": "again"}}})
            case "first ready" | "first unready":
                self.plays(workers[:1], "Running", ready=step == "first ready")
            case "ready" | "unready":
                self.plays(workers, "Running", ready=step == "ready")
            case "launcher runs":
                self.plays(launcher, "Running")
            case "succeeds":
                self.plays(launcher, "Succeeded")
            case "fails":
                self.plays(launcher, "Failed", exitCode=3, message="it was bound to fail")
            case "worker fails":
                self.plays(workers[:1], "Failed")
            case "fails once":
                self.plays(launcher, "Failed", exitCode=3)
                # of a job that nobody has resumed there is none
                if launcher:
                    self.replaces(namespace, launcher)
            case "launcher evicted":
                self.plays(launcher, "Failed", reason="Evicted", message="low on memory")
            case "worker succeeds":
                self.plays(workers[-1:], "Succeeded")
            case "worker evicted":
                self.plays(workers[:1], "Failed", reason="Evicted")
            case "worker deleted":
                return delete("Pod", workers[0]["metadata"]["name"]) if workers else {}
            case "worker relabelled":
                label = ("operator-name", "job-name", "job-role")[len(workers) % 3]
                labels = {"metadata": {"labels": {f"training.kubeflow.org/{label}": "other"}}}
                return patch("Pod", workers[0]["metadata"]["name"], labels) if workers else {}
            case "deadline passes":
                return patch("Job", f"{name}-launcher", {"spec": {"activeDeadlineSeconds": 1}})
            case "launcher expires":
                return patch("Job", f"{name}-launcher", {"spec": {"ttlSecondsAfterFinished": 0}})
            case "config deleted":
                return delete("ConfigMap", f"{name}-config")
            case "config changed":
                return patch("ConfigMap", f"{name}-config", {"data": {"hostfile": None, "other": "1"}})
            case "service deleted":
                return delete("Service", name)
            case "secret deleted":
                return delete("Secret", f"{name}-ssh")
            case "secret widened":
                return patch("Secret", f"{name}-ssh", {"data": {"other": "MQ=="}})
            case "group deleted":
                return delete(group, name) if gang else {}
            case "group changed":
                return patch(group, name, {"spec": {"minMember": 9}}) if gang else {}
            case "service changed":
                return patch("Service", name, {"spec": {"selector": {"some": "body else"}, "publishNotReadyAddresses": True}})
            case "secret emptied":
                return patch("Secret", f"{name}-ssh", {"data": {"ssh-publickey": None}})
            case "deleted":
                return delete("MPIJob", name)
            case "deleted foreground" | "deleted orphan":
                return delete("MPIJob", name, propagationPolicy=step.split()[1].capitalize())
            case "made again":
                return self.write("POST", self.server.path("MPIJob", namespace=namespace), case.job)
            case _:
                raise ValueError(f"no such step: {step}")
        return {"workers": len(workers), "launcher": len(launcher)}

    def objects(self) -> tuple[dict[str, str], dict[str, dict[str, dict]]]:
        """Resource versions by uid, and of each namespace the normalised objects by kind and name. What is being deleted is ended
        as a kubelet would."""
        versions: dict[str, str] = {}
        found: dict[str, list[dict]] = {}
        for kind in ["MPIJob", *CHILDREN]:
            api_version, plural = replay.KINDS[kind]
            answer = self.server.request("GET", f"/{'apis' if '/' in api_version else 'api'}/{api_version}/{plural}")
            for o in answer.json["items"]:
                meta = o["metadata"]
                if not meta["namespace"].startswith("mpi-") or meta["name"] == "kube-root-ca.crt":
                    continue
                if kind == "Pod" and "deletionTimestamp" in meta and o["status"].get("phase") not in ENDED:
                    self.plays([o], "Failed", exitCode=143)
                versions[meta["uid"]] = meta["resourceVersion"]
                known = self.shown.get(meta["uid"])
                if known is None or known[0] != meta["resourceVersion"]:
                    norm = replay.Normaliser()
                    whole = {"apiVersion": api_version, "kind": kind.split(".")[0], **o}
                    norm.learn([whole])
                    known = self.shown[meta["uid"]] = (meta["resourceVersion"], comparable(norm.object(whole)))
                found.setdefault(meta["namespace"], []).append(known[1])
        events: dict[str, set[str]] = {}
        for event in self.server.request("GET", "/api/v1/events").json["items"]:
            if event["involvedObject"]["kind"] == "MPIJob" and event["metadata"]["namespace"].startswith("mpi-"):
                line = f"{event['type']} {event['reason']}: {replay.short(replay.Normaliser().text(event.get('message') or ''))}"
                events.setdefault(event["metadata"]["namespace"], set()).add(line)
                versions[event["metadata"]["uid"]] = ""
        told = {namespace: {"Event/all": {"kind": "Event", "lines": sorted(lines)}} for namespace, lines in events.items()}
        by_key = {namespace: replay.by_key(replay.ordered(objects)) for namespace, objects in found.items()}
        return versions, {namespace: {**by_key.get(namespace, {}), **told.get(namespace, {})} for namespace in {*by_key, *told}}


def comparable(o: dict) -> dict:
    """What may differ between two runs of the same system, taken away."""
    o = copy.deepcopy(o)
    # how often an object was written until it was as it is
    o["metadata"].pop("generation", None)
    if o["kind"] == "Job":
        o["status"] = {k: v for k, v in o.get("status", {}).items() if k != "uncountedTerminatedPods"}
    if o["kind"] == "PodGroup":
        # a defaulted queue is written by Volcano's own schema or by nobody
        o.pop("status", None)
    return o


def each(items: list, act: Callable) -> list:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(act, items))


def at_rest(sides: list[Side], cases: list[Case], known: set[str], slow: float) -> list[dict[str, dict[str, dict]]]:
    """The objects of both sides, once they have not changed for a while. While an unknown difference is there, a while is `slow`."""
    deadline, seen, since = time.monotonic() + PATIENCE + slow, None, time.monotonic()
    while True:
        looks = each(sides, Side.objects)
        versions, objects = [look[0] for look in looks], [look[1] for look in looks]
        if versions != seen:
            seen, since = versions, time.monotonic()
        # on a machine with too much to do the same takes longer, and what stands still may not have begun
        still = (time.monotonic() - since) / max(1.0, min(4.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1))))
        if still > QUIET:
            alike = all(not differences(case, *(o.get(case.namespace, {}) for o in objects))[0] for case in cases if case.namespace not in known)
            if alike or still > slow:
                return objects
        assert time.monotonic() < deadline, f"something still moves after {PATIENCE + slow:.0f} s"
        time.sleep(QUIET / 3)


def holds(when: str | None, case: Case) -> bool:
    """Whether a difference may be seen in this case."""
    gang, domain = ROUNDS[case.round]
    facts = {"gang": bool(gang), "domain": bool(domain),
             "waits": any((s["spec"].get("launcherCreationPolicy") or "AtStartup") != "AtStartup"
                          for s in (case.job, *(s for s in case.steps if isinstance(s, dict))) if "spec" in s)}  # fmt: skip
    return all(facts[word] for word in (when or "").split(" and ") if word)


def differences(case: Case, theirs: dict[str, dict], own: dict[str, dict]) -> tuple[list[str], set[str]]:
    """The diffs that nobody has named, and the names of the others."""
    faults, named = [], set()
    for key in {**theirs, **own}:
        left, right = theirs.get(key), own.get(key)
        if left == right:
            continue
        lines = replay.hunks(left, right)
        allowed = [d for d in DIFFERENCES if re.fullmatch(d["kind"], key.split("/")[0]) and holds(d.get("when"), case)]
        names = lambda line, allowed=allowed: {d["about"] for d in allowed if any(re.fullmatch(p, line) for p in d["lines"])}
        changed = [names(line) for line in lines if line[0] in "+-"]
        if left is not None and right is not None and all(changed):
            named |= set.union(*changed)
        else:
            faults.append("\n".join([f"--- mpi-operator: {key}", f"+++ trainyard: {key}", *lines[:60]]))
    return faults, named


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes with mpi-operator."""
    for started in start(tmp_path_factory, "--mpi"):
        collects(started)
        yield started


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes with our manifests."""
    for started in start(tmp_path_factory):
        started.install()
        started.install_mpijobs()
        collects(started)
        yield started


def collects(cluster: Cluster) -> None:
    """Waits until garbage collection knows MPIJobs: it asks what is served every 30 s."""
    orphan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-none", "namespace": "default", "ownerReferences": [
        {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "gone", "uid": "gone"}]}}  # fmt: skip
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(orphan))
    wait_for("garbage collection", lambda: not cluster.get("-n", "default", "configmap", "of-none"), 180)


def leads(cluster: Cluster) -> bool:
    return bool(cluster.get("-n", "mpi-operator", "lease", "mpi-operator").get("spec", {}).get("holderIdentity"))


def runs(cluster: Cluster) -> bool:
    """Whether mpi-operator does: of one that has ended there is no program."""
    return pathlib.Path("/proc", (cluster.folder / "mpi-operator.pid").read_text().split()[0], "exe").exists()


def start_upstream(cluster: Cluster, *flags: str) -> None:
    """mpi-operator with these flags; the Lease of one that was stopped is not waited for."""
    cluster.kubectl("-n", "mpi-operator", "delete", "lease", "mpi-operator", "--ignore-not-found")
    cluster.start("mpi-operator", *flags)
    wait_for("mpi-operator to lead", lambda: leads(cluster), 60)


def operator(cluster: Cluster, folder: pathlib.Path, gang: str = "", domain: str = "") -> Operator:
    """Ours, for MPIJobs alone."""
    config = {**AS_UPSTREAM, **NO_LIMITS, "mpi": {"gangScheduling": gang, "clusterDomain": domain}}
    return Operator(cluster, folder, url(), "--controllers=mpijob", config=config)


class Comparison:
    """The lives of some cases on both sides, and where they differ."""

    def __init__(self, sides: list[Side]):
        self.sides = sides
        self.wrong: dict[str, list[str]] = {}
        self.named: dict[str, set[str]] = {}
        # why those were left where they were
        self.passed_over: dict[str, str] = {}
        self.admitted, self.started = 0, 0

    def lives(self, cases: list[Case]) -> None:
        begin = time.monotonic()
        for side in self.sides:
            side.prepare([case.namespace for case in cases])
        taken = [case for case, code in zip(cases, self.act("create", cases, Side.create), strict=True) if code == 201]
        self.admitted += len(taken)
        self.settle("created", cases)
        for number in range(max(len(case.steps) for case in cases)):
            at = [case for case in taken if number < len(case.steps) and case.namespace not in {*self.wrong, *self.passed_over}]
            self.act(f"step {number + 1}", at, lambda side, case, number=number: side.step(case, case.steps[number]))
            # mpi-operator tries again when as much time has passed as since the job was made
            again = any(case.steps[number] == "taken freed" for case in at)
            self.settle(f"step {number + 1}", cases, time.monotonic() - begin if again else 0)

    def act(self, about: str, cases: list[Case], act: Callable[[Side, Case], dict]) -> list[int]:
        """What `act` gives for each case, on both sides; the codes of the answers."""

        def answer(side: Side, case: Case) -> dict:
            try:
                return act(side, case)
            except Absent as error:
                return {"absent": str(error)}

        theirs, own = (each(cases, lambda case, side=side: answer(side, case)) for side in self.sides)
        for case, left, right in zip(cases, theirs, own, strict=True):
            if "absent" in left:
                self.passed_over[case.namespace] = f"{about}: {left['absent']}"
            elif left != right:
                self.wrong.setdefault(case.namespace, []).append("\n".join([f"{about}:", *replay.hunks(left, right)]))
        return [answer.get("code", 0) for answer in theirs]

    def settle(self, about: str, cases: list[Case], slow: float = 0) -> None:
        theirs, own = at_rest(self.sides, cases, {*self.wrong, *self.passed_over}, SLOW * QUIET + slow)
        if about == "created":
            self.started += sum(any(key.startswith("Service/") for key in theirs.get(case.namespace, {})) for case in cases)
        for case in cases:
            if case.namespace in {*self.wrong, *self.passed_over}:
                continue
            faults, named = differences(case, theirs.get(case.namespace, {}), own.get(case.namespace, {}))
            for name in named:
                self.named.setdefault(name, set()).add(case.namespace)
            if faults:
                self.wrong[case.namespace] = [f"{about}:", *faults]


@pytest.mark.timeout(3600)
def test_random_mpijobs_fare_alike(upstream: Cluster, ours: Cluster, tmp_path: pathlib.Path):
    cases = [make(SEED, number) for number in NUMBERS]
    sides = [Side("mpi-operator", upstream), Side("trainyard", ours)]
    comparison, begin = Comparison(sides), time.monotonic()
    for round_, (gang, domain) in enumerate(ROUNDS):
        now = [case for case in cases if case.round == round_]
        if not now:
            continue
        upstream.stop("mpi-operator")
        start_upstream(upstream, f"--gang-scheduling={gang}", f"--cluster-domain={domain}")
        at_work = operator(ours, tmp_path, gang, domain)
        with running(at_work):
            wait_for("ours to lead", lambda at_work=at_work: at_work.number("mpi_operator_is_leader") == 1, 60)
            comparison.lives(now)
            assert runs(upstream), "mpi-operator ended: it gives up where it cannot renew its Lease in 5 s, as on a machine with too much to do"
            log = at_work.log.read_text()
            assert "bug:" not in log
            assert at_work.end() == 0
        for side in sides:
            each(now, lambda case, side=side: side.write("DELETE", f"/api/v1/namespaces/{case.namespace}"))
    wrong, named, passed_over = comparison.wrong, comparison.named, comparison.passed_over
    summary = (f"seed {SEED}: {len(cases)} MPIJobs, {comparison.admitted} let in, {comparison.started} started, {len(wrong)} differ, "
               f"{len(set().union(*named.values()))} on purpose, {len(passed_over)} passed over, in {time.monotonic() - begin:.0f} s")  # fmt: skip
    print(summary)
    for name, where in named.items():
        print(f"  {len(where)} times: {name}")
    for namespace, why in passed_over.items():
        print(f"  passed over: {namespace}, {why}")
    report = [summary]
    for case in cases:
        if case.namespace in wrong and len(report) < 12:
            text = yaml.safe_dump({"job": case.job, "steps": case.steps}, sort_keys=False, width=160)
            number = case.namespace.removeprefix("mpi-")
            report.append("\n".join([f"=== SEED={SEED} MPIJOB={number}", *wrong[case.namespace][:4], "--- the case", text]))
    assert not wrong, "\n".join(report) + f"\nall that differ: {sorted(wrong)}"
    assert len(passed_over) <= max(1, len(cases) // PASSED_OVER), f"too many say nothing: {passed_over}"
    if len(cases) >= 100:
        assert comparison.started > 0.7 * len(cases), f"too few say anything: {summary}"
        unseen = {d["about"] for d in DIFFERENCES} - set(named)
        assert not unseen, f"named and never seen: {unseen}"


# What a job has gone through when the operators change, and what it then needs to succeed.
RESUME, SUSPEND = ({"spec": {"runPolicy": {"suspend": value}}} for value in (False, True))
RUN = ["ready", "launcher runs"]
STATES: dict[str, tuple[dict, list, list | None]] = {
    "running": ({}, RUN, ["succeeds"]),
    "created": ({}, [], [*RUN, "succeeds"]),
    "waiting": ({"launcherCreationPolicy": "WaitForWorkersReady"}, ["first ready"], [*RUN, "succeeds"]),
    "suspended": ({"runPolicy": {"suspend": True}}, [], [RESUME, *RUN, "succeeds"]),
    "paused": ({}, [*RUN, SUSPEND], [RESUME, *RUN, "succeeds"]),
    "failed": ({"runPolicy": {"backoffLimit": 0}}, [*RUN, "fails"], None),
    **{f"succeeded-{policy.lower()}": ({"runPolicy": {"cleanPodPolicy": policy}}, [*RUN, "succeeds"], None) for policy in ("All", "Running", "None")},
}  # fmt: skip


def lives(when: str) -> list[tuple[Case, list | None]]:
    """A job in each state, with what comes after the operators have changed."""
    made = []
    for state, (spec, before, after) in STATES.items():
        pod = lambda *command: {"template": {"spec": {"containers": [{"name": "main", "image": "none", "command": list(command)}]}}}
        roles = {"Launcher": {"replicas": 1, "restartPolicy": "Never", **pod("mpirun")}, "Worker": {"replicas": 2, **pod()}}
        namespace = f"mpi-{when}-{state}"
        job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "job", "namespace": namespace},
               "spec": {**spec, "mpiReplicaSpecs": roles}}  # fmt: skip
        made.append((Case(namespace, 0, job, before), after))
    return made


def quiet(side: Side) -> dict[str, str]:
    """The resource versions of all objects, once they stand still."""
    seen: list = [{}, 0.0]

    def still() -> bool:
        now = {uid: version for uid, version in side.objects()[0].items() if version}
        if now != seen[0]:
            seen[:] = now, time.monotonic()
        return time.monotonic() - seen[1] > QUIET

    wait_for("nothing to move", still, PATIENCE)
    return seen[0]


def nothing_changes(side: Side, before: dict[str, str], seconds: float = 30) -> None:
    """Holds every object to its resource version, for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = {uid: version for uid, version in side.objects()[0].items() if version}
        if now != before:
            changed = {uid for uid in {*now, *before} if now.get(uid) != before.get(uid)}
            found = [side.shown.get(uid, (None, uid))[1] for uid in changed]
            pytest.fail(f"changed by the other operator: {yaml.safe_dump(found)[:4000]}")
        time.sleep(1)


def live(side: Side, cases: list[Case], steps: Callable[[Case], list]) -> None:
    """Takes all through their steps, side by side."""
    for number in range(max(len(steps(case)) for case in cases)):
        for case in cases:
            if number < len(steps(case)):
                side.step(case, steps(case)[number])
        quiet(side)


def has(side: Side, case: Case, kind: str) -> bool:
    job = side.server.request("GET", side.server.path("MPIJob", namespace=case.namespace, name="job")).json
    return any(c["type"] == kind and c["status"] == "True" for c in job.get("status", {}).get("conditions", []))


@pytest.mark.timeout(1800)
def test_swap_both_ways(upstream: Cluster, tmp_path: pathlib.Path):
    """mpi-operator ends and our operator takes over its MPIJobs, and back: nothing is written, and the jobs go on to their ends."""
    side = Side("both", upstream)
    here, back = lives("here"), lives("back")
    cases = [case for case, _ in here + back]
    upstream.stop("mpi-operator")
    upstream.install()
    upstream.install_mpijobs()
    start_upstream(upstream)
    side.prepare([case.namespace for case in cases])
    assert {side.create(case)["code"] for case in cases} == {201}
    quiet(side)
    live(side, cases, lambda case: case.steps)
    for case in cases:
        state = case.namespace.split("-")[2]
        kind = {"running": "Running", "suspended": "Suspended", "paused": "Suspended", "failed": "Failed", "succeeded": "Succeeded"}.get(state, "Created")
        assert has(side, case, kind), case.namespace

    def finish(jobs: list[tuple[Case, list | None]]) -> None:
        after = {case.namespace: steps for case, steps in jobs if steps}
        going_on = [case for case, steps in jobs if steps]
        live(side, going_on, lambda case: after[case.namespace])
        for case in going_on:
            assert has(side, case, "Succeeded"), case.namespace

    before = quiet(side)
    upstream.stop("mpi-operator")
    at_work = operator(upstream, tmp_path)
    with running(at_work):
        # its Lease lasts for 15 s after its holder
        wait_for("ours to lead", lambda: at_work.number("mpi_operator_is_leader") == 1, 120)
        nothing_changes(side, before)
        finish(here)
        before = quiet(side)
        assert "bug:" not in at_work.log.read_text()
        assert at_work.end() == 0
    upstream.start("mpi-operator")
    wait_for("mpi-operator to lead", lambda: leads(upstream), 60)
    nothing_changes(side, before)
    finish(back)
