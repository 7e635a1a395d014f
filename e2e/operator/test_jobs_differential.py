"""Random Jobs, JobSets and lives of TrainJobs, given to Kubernetes with its own and upstream's controllers and to `trainyard up`: both must
make the same of them.

    SEED=7 CASES=200 pytest e2e/operator/test_jobs_differential.py            other scenarios, more of them
    SEED=1 CASE=12 pytest e2e/operator/test_jobs_differential.py -k jobset    one of them alone (and of `wide-jobset`)

`random_jobs.py` makes scenarios up in the form of the recordings, `random_jobs_wide.py` those with what is rarer, and
`random_train_lives.py` those of TrainJobs. They are played on both sides step by step, with the player of the recordings: one step
is taken on both, then the next; a settle waits until both stand still and show the same, or until they have stood still for
longer than any backoff. Compared are answers, objects and events. Clocks of each side may come in between: a pod that failed is
followed by another after a backoff of 10 s, which no settle awaits while both show the same, and as both run without a node, pods that
are deleted are ended by garbage collection, which looks every 20 s. Where a clock ran and the sides differ, the scenario is played
again, at most twice.
`job_differences.yaml` names what may differ and why. REPORT names a file for all that differs. UPSTREAM and OURS name kubeconfigs of control planes that run already.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest
import yaml

from cluster import Cluster
from conftest import ROOT, Yard, stop
from random_jobs import Scenario
from random_jobs_wide import make
from test_api_differential import Side
from test_differential import comparable, in_any_order

sys.path.insert(0, str(ROOT / "e2e/golden"))
import replay

GATE = {"job": 20, "jobset": 16, "wide-job": 6, "wide-jobset": 5, "trainjob": 6}
SEED = os.environ.get("SEED", "1")
NUMBERS = {kind: [int(os.environ["CASE"])] if "CASE" in os.environ else range(int(os.environ.get("CASES", gate))) for kind, gate in GATE.items()}
NAMED: list[dict[str, str]] = yaml.safe_load((pathlib.Path(__file__).parent / "job_differences.yaml").read_text())
THREADS = int(os.environ.get("THREADS", "12"))
BOTH = concurrent.futures.ThreadPoolExecutor(2 * THREADS)
# How long nothing may move where both show the same, and where they do not: longer than what a Job waits after a failure, and
# than deleted pods without a node wait for their end (20 s).
QUIET, BACKOFF = 0.8, 25.0
TRIES = 3


class Play(replay.Run):
    """One scenario on one side."""

    def __init__(self, server: replay.Server, scenario: Scenario):
        folder = pathlib.Path(tempfile.mkdtemp()) / scenario.namespace
        folder.mkdir()
        (folder / "scenario.yaml").write_text(yaml.safe_dump({"steps": scenario.steps}, sort_keys=False))
        super().__init__(server, folder)
        self.clocked = False
        self.is_train = scenario.kind == "TrainJob"

    def take(self, verb: str, arg: dict) -> tuple[object, dict]:
        """What a settle, or the events, show now: a mark that changes with them, and what is compared."""
        seen: list[dict] = []
        marks: list[object] = []

        def settled(take, key, shape, *_):
            found = take()
            marks.append(sorted(map(key, found)))
            return shape(found)

        self.settled = settled
        seen.append(getattr(self, f"step_{verb}")(arg, None))
        if self.is_train:
            seen = [{name: [*map(comparable, found)] if name == "objects" else found for name, found in seen[0].items()}]
            if "events" in seen[0]:
                # what admission warns of is an event, too
                seen[0]["events"] = [line for line in seen[0]["events"] if " Warning CheckSettings: " not in line]
        self.clocked |= any(map(awaits_a_clock, self.server.list("Pod", self.name) or []))
        return marks[0], seen[0]

    def outcome(self, answer: replay.Answer, show: bool = False) -> dict:
        out = super().outcome(answer, show)
        if self.is_train and "message" in out:
            out["message"] = in_any_order(out["message"])
        if warnings := replay.without_ours(out.pop("warnings", [])):
            out["warnings"] = warnings
        return out

    def step_pods(self, arg: dict) -> dict:
        """Like the recordings' step, but for pods that are there or not by now; of pods that are alike it takes any."""
        arg = dict(arg)
        selector, limit, terminating = arg.pop("selector", None), arg.pop("limit", None), arg.pop("terminating", False)
        found = [p for p in self.server.list("Pod", self.name, selector) or []
                 if bool(p["metadata"].get("deletionTimestamp")) == terminating and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]  # fmt: skip
        self.norm.learn(found)
        codes = set()
        for pod in sorted(found, key=likeness)[:limit]:
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": replay.kubelet_status(pod, **arg)}
            codes.add(self.server.request("PATCH", self.path(pod, subresource="status"), body, replay.PATCH_TYPES["strategic"]).code)
        # of several that end, a controller may have deleted the last by the time that it ends
        return {"pods": min(len(found), limit or len(found)), "codes": sorted(codes - {404})}


    def step_bind(self, arg: dict) -> dict:
        """What a scheduler does: pods without a node get one."""
        codes = self.each_pod(arg, lambda pod: not pod["spec"].get("nodeName"), lambda pod: ("POST", self.path(pod, subresource="binding"), {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": arg["node"]}}))  # fmt: skip
        return {"codes": codes}

    def step_leave(self, arg: dict) -> dict:
        """Pods are evicted, deleted, or deleted at once."""
        eviction = lambda pod: {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"], "namespace": self.name}}
        ways = {
            "evict": lambda pod: ("POST", self.path(pod, subresource="eviction"), eviction(pod)),
            "delete": lambda pod: ("DELETE", self.path(pod), {}),
            "force": lambda pod: ("DELETE", self.path(pod), {"gracePeriodSeconds": 0}),
        }
        return {"codes": self.each_pod(arg, lambda pod: True, ways[arg["way"]])}

    def each_pod(self, arg: dict, wanted, request) -> list[int]:
        """One request for each of the live pods; of pods that are alike it takes any."""
        found = [p for p in self.server.list("Pod", self.name, arg.get("selector")) or []
                 if not p["metadata"].get("deletionTimestamp") and p.get("status", {}).get("phase") not in ("Succeeded", "Failed") and wanted(p)]  # fmt: skip
        self.norm.learn(found)
        found.sort(key=likeness)
        return sorted({self.server.request(*request(pod)).code for pod in found[: arg.get("limit")]} - {404})


def likeness(pod: dict) -> tuple:
    """Pods that are alike by this are the same to the controllers, but for their names, which are chance."""
    meta, ready = pod["metadata"], [c["status"] for c in pod["status"].get("conditions") or [] if c["type"] == "Ready"]
    return pod["status"].get("phase"), ready, "ownerReferences" in meta, meta.get("labels", {}).get("app", ""), meta["name"]


def awaits_a_clock(pod: dict) -> bool:
    """Failed: another may follow, or has. Deleted without a node: garbage collection will end it, or has."""
    return pod["status"].get("phase") == "Failed" or ("deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"])


def settle(plays: list[Play], verb: str, arg: dict) -> list[dict]:
    """What both sides show once they stand still."""
    begin = still = time.monotonic()
    seen: list[object] = []
    while True:
        marks, shown = zip(*BOTH.map(lambda play: play.take(verb, arg), plays), strict=True)
        if list(marks) != seen:
            seen, still = list(marks), time.monotonic()
        silence = time.monotonic() - still
        if silence > (QUIET if shown[0] == shown[1] else BACKOFF) or time.monotonic() - begin > 4 * BACKOFF:
            return list(shown)
        time.sleep(0.2)


def play(scenario: Scenario, sides: list[Side]) -> tuple[int, str | None, int]:
    """How many steps were alike, how the next one was not, and how often it was played."""
    tries = 0
    while True:
        alike, report, clocked = play_once(scenario, sides)
        tries += 1
        if report is None or not clocked or tries == TRIES:
            return alike, report, tries


def play_once(scenario: Scenario, sides: list[Side]) -> tuple[int, str | None, bool]:
    """`play`, and whether a clock of one side may have come in between."""
    plays = [Play(side.server, scenario) for side in sides]
    list(BOTH.map(Play.open, plays))
    try:
        for number, step in enumerate(scenario.steps):
            ((verb, arg),) = step.items()
            results = settle(plays, verb, arg) if verb in ("settle", "events") else list(BOTH.map(lambda one, step=step: one.step(step), plays))
            theirs, ours = ([{"step": f"{number + 1} {verb}", **result}] for result in results)
            lines = replay.differences(theirs, ours)
            if lines:
                return number, "\n".join(lines), any(one.clocked for one in plays)
        return len(scenario.steps), None, False
    finally:
        list(BOTH.map(Play.close, plays))


if "UPSTREAM" in os.environ:

    @pytest.fixture(scope="module")
    def upstream() -> str:
        return os.environ["UPSTREAM"]

else:

    @pytest.fixture(scope="module")
    def upstream(theirs: Cluster) -> str:
        return theirs.kubeconfig


@pytest.fixture(scope="module")
def sides(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    """Upstream's, and ours without a node."""
    if "OURS" in os.environ:
        yield [Side(upstream), Side(os.environ["OURS"])]
        return
    yard = Yard(tmp_path_factory.mktemp("home"), "--no-node", "--listen", "127.0.0.1:0")
    try:
        yield [Side(upstream), Side(yard.kubeconfig)]
    finally:
        stop(yard)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", GATE)
def test_random_jobs_fare_alike(sides: list[Side], kind: str):
    begin = time.monotonic()
    scenarios = [make(SEED, number, kind) for number in NUMBERS[kind]]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(lambda scenario: play(scenario, sides), scenarios))
    steps, again, named, wrong = sum(alike for alike, *_ in outcomes), sum(tries > 1 for *_, tries in outcomes), 0, []
    for scenario, (_, report, _) in zip(scenarios, outcomes, strict=True):
        if report is None:
            continue
        if any(re.search(entry["report"], report) and re.search(entry.get("kind", ""), kind) for entry in NAMED):
            named += 1
            continue
        number = scenario.namespace.rpartition("-")[2]
        wrong.append(f"=== SEED={SEED} CASE={number} {kind}\n{report}\n--- the scenario\n{yaml.safe_dump(scenario.steps, sort_keys=False, width=160)}")
    summary = (f"{kind}s of seed {SEED}: {len(scenarios)} scenarios, {steps} steps alike, {again} played again, {named} named differences, "
               f"{len(wrong)} others, in {time.monotonic() - begin:.0f} s")  # fmt: skip
    print(summary)
    if "REPORT" in os.environ:
        pathlib.Path(f"{os.environ['REPORT']}.{kind}").write_text("\n".join([summary, *wrong]))
    assert not wrong, "\n".join([summary, *wrong[:8]])


def test_the_same_seed_makes_the_same_scenarios():
    for kind in GATE:
        assert repr(make("1", 5, kind)) == repr(make("1", 5, kind)) != repr(make("2", 5, kind))
