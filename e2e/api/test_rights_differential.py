"""Who may do what, asked of Kubernetes' API server and of `trainyard up`: both must say the same to the same users.

    SEED=7 RIGHTS=300 pytest e2e/api/test_rights_differential.py     other users, more of them

`random_rights.py` makes up roles, bindings, users and agents of nodes, and their requests, all dry runs. Compared are the code, and of a refusal
the Status. `rights_differences.yaml` names what may differ and why; a request that is refused upstream and not here has no
excuse there. UPSTREAM and OURS name kubeconfigs of control planes that run already. REPORT names a file for all that differs.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
import yaml

from cluster import start
from conftest import Yard, stop, wait_for
from random_rights import HERE, RBAC, THERE, Request, Scenario, collection, everybodys, machines, make, make_node
from test_api_differential import Side, replay

SEED = os.environ.get("SEED", "1")
COUNT = int(os.environ.get("RIGHTS", "60"))
NAMED: list[dict[str, str]] = yaml.safe_load((pathlib.Path(__file__).parent / "rights_differences.yaml").read_text())
THREADS = 6
# What a subresource answers once it is allowed depends on a node, which there is not.
NODES_OWN = re.compile(r"/(exec|attach|portforward|proxy|log|eviction|binding|ephemeralcontainers|resize)\b")


class Party:
    """One of the servers, with the tokens of its service accounts."""

    def __init__(self, side: Side):
        self.server = side.server
        self.tokens: dict[str, str] = {}

    def put(self, objects: list[tuple[str, dict]]) -> None:
        for path, body in objects:
            answer = self.server.request("POST", path, body)
            assert answer.code in (201, 409), f"POST {path} {body}: {answer.text}"

    def prepare(self, scenarios: list[Scenario]) -> None:
        self.put(everybodys())
        for scenario in scenarios:
            self.put(scenario.objects)
            spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
            token = self.server.request("POST", f"{collection('serviceaccounts', HERE)}/{scenario.account}/token", spec)
            self.tokens[scenario.account] = token.json["status"]["token"]
        wait_for("service accounts", lambda: self.server.request("GET", collection("serviceaccounts", HERE) + "/default").code == 200, 60)
        self.put(machines())
        # watches tell of objects in order: who knows the last ones knows all
        for number, (role, binding) in enumerate((("ClusterRole", "clusterrolebindings"), ("Role", "rolebindings"))):
            name = f"last-{number}"
            self.put([(collection(f"{role.lower()}s", HERE), {"metadata": {"name": name}, "rules": [{"apiGroups": ["last"], "resources": ["*"], "verbs": ["get"]}]}),
                      (collection(binding, HERE), {"metadata": {"name": name}, "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
                                                   "subjects": [{"kind": "User", "name": name, "apiGroup": RBAC}]})])  # fmt: skip
            about = {"user": name, "resourceAttributes": {"group": "last", "resource": "x", "verb": "get", "namespace": HERE}}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": about}
            ask = lambda review=review: self.server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            wait_for("roles to count", lambda ask=ask: ask().json["status"]["allowed"], 60)
        roles = lambda: self.server.request("GET", collection("clusterroles", "")).json["items"]
        wait_for("aggregated roles", lambda: all(r.get("rules") for r in roles() if r.get("aggregationRule")), 60)

    def ask(self, scenario: Scenario, request: Request) -> dict:
        headers = dict(request.headers)
        if request.as_account:
            headers["Authorization"] = "Bearer " + self.tokens[scenario.account]
        else:
            groups = [scenario.group, *(["system:authenticated"] if scenario.group == "system:nodes" else [])]
            headers |= {"Impersonate-User": scenario.user, "Impersonate-Group": groups}
        content = headers.pop("Content-Type", "application/json")
        return told(request, self.server.request(request.method, request.path, request.body, content, headers))


def told(request: Request, answer: replay.Answer) -> dict:
    """What is compared of an answer."""
    body = answer.json if isinstance(answer.json, dict) else {"message": answer.text}
    if answer.code == 403:
        return {"code": 403, **{k: body.get(k) for k in ("message", "reason", "details")}}
    if NODES_OWN.search(request.path) or answer.code == 503:
        return {"code": "allowed"}
    if answer.code >= 400:
        return {"code": answer.code, "message": re.sub(r"\s+", " ", body.get("message", ""))}
    out: dict = {"code": answer.code}
    status = body.get("status")
    if body.get("kind") == "SelfSubjectRulesReview":
        # everybody may read the runtimes of a cluster, of which upstream's API server knows nothing
        rules = (rule for part in ("resourceRules", "nonResourceRules") for rule in status[part] if rule.get("apiGroups") != ["trainer.kubeflow.org"])
        out["rules"] = sorted(json.dumps(rule, sort_keys=True) for rule in rules)
    elif body.get("kind", "").endswith("AccessReview"):
        out["status"] = status
    elif body.get("kind") == "SelfSubjectReview":
        info = status["userInfo"]
        out["user"] = {**{k: v for k, v in info.items() if k != "uid"}, "extra": {k: v for k, v in info.get("extra", {}).items() if "credential-id" not in k}}
    return out


def grows(theirs: dict, ours: dict) -> bool:
    """Whether we allow what upstream refuses."""
    # a policy whose parameters its maker may not read is invalid
    allowed = lambda a: (a.get("status") or {}).get("allowed", True) if a["code"] not in (403, 422) else False
    return allowed(ours) and not allowed(theirs)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Party]]:
    if "UPSTREAM" in os.environ:
        yield [Party(Side(os.environ["UPSTREAM"])), Party(Side(os.environ["OURS"]))]
        return
    for cluster in start(tmp_path_factory):
        # nodes are users like others, with rights of their own
        cluster.harness("stop", "kube-apiserver")
        cluster.start("kube-apiserver", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement,NodeRestriction")
        yard = Yard(tmp_path_factory.mktemp("home"), "--no-node", "--listen", "127.0.0.1:0")
        try:
            yield [Party(Side(cluster.kubeconfig)), Party(Side(yard.kubeconfig))]
        finally:
            stop(yard)


@pytest.mark.timeout(1800)
def test_rights_are_those_of_upstream(parties: list[Party]):
    scenarios = [make(SEED, number) for number in range(COUNT)]
    begin = time.monotonic()
    for party in parties:
        party.prepare(scenarios)
    scenarios += [make_node(SEED, number) for number in range(COUNT)]

    def play(scenario: Scenario) -> list[tuple[str, Request, dict, dict]]:
        pairs = ((request, *(party.ask(scenario, request) for party in parties)) for request in scenario.requests)
        return [(scenario.user, request, theirs, ours) for request, theirs, ours in pairs if theirs != ours]

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = [difference for differences in pool.map(play, scenarios) for difference in differences]
    groups: dict[str, list[str]] = defaultdict(list)
    named: Counter[str] = Counter()
    for user, request, theirs, ours in found:
        report = f"{user}: {request.method} {request.path} {request.headers or ''} {json.dumps(request.body)}\n- {json.dumps(theirs)}\n+ {json.dumps(ours)}"
        about = f"{request.method} {request.path.split('?')[0]}: {theirs['code']} | {ours['code']}"
        why = None if grows(theirs, ours) else next((n["why"] for n in NAMED if re.search(n["report"], report)), None)
        if why:
            named[why] += 1
        else:
            groups["MORE RIGHTS " + about if grows(theirs, ours) else about].append(report)
    asked = sum(len(scenario.requests) for scenario in scenarios)
    others = sum(map(len, groups.values()))
    summary = f"seed {SEED}: {COUNT} users and as many agents of nodes, {asked} requests, {named.total()} named differences, {others} others, in {time.monotonic() - begin:.0f} s"
    text = "\n\n".join([summary, *(f"{len(r)} × {about}\n{r[0]}" for about, r in sorted(groups.items(), key=lambda g: (not g[0].startswith("MORE"), -len(g[1]))))])
    if "REPORT" in os.environ:
        pathlib.Path(os.environ["REPORT"]).write_text(text)
    print(text[:8000])
    assert not groups, summary


def test_the_same_seed_makes_the_same_users():
    assert repr(make("1", 5)) == repr(make("1", 5)) != repr(make("2", 5))
    assert {HERE, THERE} <= {body["metadata"]["name"] for _, body in everybodys()}
