"""`trainyard doctor`: on the laptop's own server, without rights, and on real Kubernetes with and without an operator."""

from __future__ import annotations

import json
import pathlib
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from cluster import MANIFESTS, Cluster, Operator, running, trainjob, url
from conftest import BINARY, ROOT, Yard, stop, wait_for

MEMBERS = {"severity", "code", "check", "object", "message", "remedy", "command"}
# Every command that the cases in the code propose; they are written by their test.
REMEDIES = (ROOT / "crates/doctor/src/rules/remedies.txt").read_text().splitlines()
WRITES = {"apply", "create", "delete", "patch", "scale"}


def doctor(kubeconfig: str | pathlib.Path, *flags: str, code: int | None = None) -> list[dict]:
    """What it finds; fails where the exit code is another."""
    done = subprocess.run([BINARY, "doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *flags],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert all(set(finding) == MEMBERS for finding in found)
    has_errors = any(finding["severity"] == "error" for finding in found)
    assert done.returncode == (5 if has_errors else 0), (done.returncode, done.stderr)
    assert code is None or done.returncode == code, ill(found)
    return found


def ill(found: list[dict]) -> list[str]:
    """What is wrong, but for limits that the kernel of this machine does not enforce."""
    wrong = [f for f in found if f["severity"] != "ok" and f["code"] != "TY0720"]
    return [f"{f['severity']} {f['object']}: {f['message']}" for f in wrong]


def one(found: list[dict], check: str, object: str, part: str) -> dict:
    """The finding of an object whose message has this in it."""
    fits = [f for f in found if f["check"] == check and f["object"] == object and part in f["message"]]
    assert len(fits) == 1, (check, object, part, found)
    return fits[0]


def test_a_laptop_is_well(yard: Yard):
    found = doctor(yard.kubeconfig, code=0)
    assert not ill(found)
    checks = {"versions", "health", "kinds", "rights", "webhooks", "controllers", "nodes", "runtimes", "jobs"}
    assert {f["check"] for f in found} == checks
    (limits,) = (f["message"] for f in found if f["check"] == "nodes")
    assert limits.startswith(("limits of memory and processors are enforced", "limits of memory are enforced")), limits
    done = yard.run("doctor")
    assert done.stdout.splitlines()[0].startswith("ok       versions     Server/https://127.0.0.1:")
    assert done.stderr.strip().endswith(" ok"), done.stderr
    assert yaml.safe_load(yard.run("doctor", "-o", "yaml").stdout) == found


def test_what_may_not_be_seen_is_unknown(yard: Yard, tmp_path: pathlib.Path):
    """Somebody with no rights but those that everybody has."""
    yard.kubectl("create", "serviceaccount", "nobody")
    token = yard.kubectl("create", "token", "nobody").stdout.strip()
    config = yaml.safe_load(pathlib.Path(yard.kubeconfig).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = tmp_path / "nobody.yaml"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    found = doctor(path, code=0)
    assert one(found, "jobs", "TrainJobs", "unknown: needs list on trainjobs")["severity"] == "unknown"
    assert one(found, "webhooks", "webhook configurations", "unknown: needs list on mutatingwebhookconfigurations")
    assert one(found, "webhooks", "TrainJob/default (dry run)", "unknown: needs create on trainjobs.trainer.kubeflow.org")
    lacks = one(found, "rights", "Namespace/default", "you may not get, list, watch trainjobs.trainer.kubeflow.org")
    assert lacks["severity"] == "warning" and "kubectl create role" in lacks["remedy"]
    # the commands themselves say so too
    done = yard.run("get", "--kubeconfig", str(path), check=False)
    assert done.returncode == 1 and "trainyard doctor" in done.stderr, done.stderr


def test_nothing_answers(yard: Yard, tmp_path: pathlib.Path):
    config = pathlib.Path(yard.kubeconfig).read_text()
    server = yaml.safe_load(config)["clusters"][0]["cluster"]["server"]
    path = tmp_path / "away.yaml"
    path.write_text(config.replace(server, "https://127.0.0.1:1"))
    done = yard.run("doctor", "--kubeconfig", str(path), check=False)
    assert done.returncode == 4 and "cannot reach the API server at https://127.0.0.1:1" in done.stderr, done.stderr
    path.write_text(config.replace("token: ", "token: not"))
    done = yard.run("doctor", "--kubeconfig", str(path), check=False)
    assert done.returncode == 1 and "credentials" in done.stderr, done.stderr


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server on which nobody works."""
    started = Yard(tmp_path_factory.mktemp("idle"), "--no-node", "--controllers", "none")
    yield started
    stop(started)


def test_without_controllers_kinds_and_jobs_are_missed(idle: Yard):
    found = doctor(idle.kubeconfig, code=5)
    kinds = "CustomResourceDefinition/trainjobs.trainer.kubeflow.org"
    assert one(found, "kinds", kinds, "not installed")["remedy"].startswith("kubectl apply")
    done = idle.run("get", "--kubeconfig", idle.kubeconfig, check=False)
    assert done.returncode == 1 and "manifests/overlays/manager" in done.stderr and "trainyard doctor" in done.stderr


def test_what_stands_still_is_told_with_its_reason(yard: Yard):
    """A quota that lets no pod in, and a JobSet of which nothing was made."""
    yard.kubectl("create", "namespace", "tight")
    yard.kubectl("-n", "tight", "create", "quota", "none", "--hard=pods=0")
    job = trainjob("waits", trainer={"command": ["true"]})
    yard.kubectl("-n", "tight", "create", "-f", "-", input=json.dumps(job))
    events = lambda: yard.kubectl("-n", "tight", "get", "events").stdout
    wait_for("the quota to be hit", lambda: "exceeded quota" in events())
    found = doctor(yard.kubeconfig, "-n", "tight", "--stuck-after", "0s", code=5)
    stuck = one(found, "jobs", "JobSet/tight/waits", "pods are refused: FailedCreate")
    assert "exceeded quota: none" in stuck["message"] and "resourcequota" in stuck["remedy"]
    assert not ill(doctor(yard.kubeconfig, "-n", "tight", "--stuck-after", "1h")), "it is young"
    assert not ill(doctor(yard.kubeconfig, "-n", "default", "--stuck-after", "0s")), "it is elsewhere"
    yard.kubectl("delete", "namespace", "tight")


@pytest.mark.timeout(600)
def test_on_kubernetes(cluster: Cluster, tmp_path: pathlib.Path):
    """With an operator outside the cluster; then without it; then with an old kind and fewer rights."""
    cluster.namespace("examined")
    here = ("-n", "examined", "--stuck-after", "0s")
    account = "ServiceAccount/kubeflow-system/kubeflow-trainer-controller-manager"
    definition = "CustomResourceDefinition/trainjobs.trainer.kubeflow.org"
    role = cluster.get("clusterrole", "kubeflow-trainer-controller-manager")
    kind = cluster.get("crd", "trainjobs.trainer.kubeflow.org")
    operator = Operator(cluster, tmp_path, url())
    with running(operator):
        cluster.runtimes()
        wait_for("a leader", operator.leads)
        found = doctor(cluster.kubeconfig, *here)
        assert "Kubernetes v1." in one(found, "versions", f"Server/{server(cluster)}", "trainyard")["message"]
        assert one(found, "kinds", definition, "v1alpha1")["severity"] == "ok"
        assert one(found, "rights", account, "it may do all")["severity"] == "ok"
        assert one(found, "webhooks", "TrainJob/examined (dry run)", "is refused")["severity"] == "ok"
        assert one(found, "controllers", "Lease/kubeflow-system/trainer.kubeflow.org", "leads")["severity"] == "ok"
        # there is no kubelet, so the Deployment that the manifests bring has no pods
        deployment = "Deployment/kubeflow-system/kubeflow-trainer-controller-manager"
        assert one(found, "controllers", deployment, "none of 2 replicas")["severity"] == "error"

        cluster.kubectl("-n", "examined", "create", "-f", "-", input=json.dumps(trainjob("waits")))
        wait_for("its JobSet", lambda: cluster.items("-n", "examined", "jobsets"))

        rules = [rule for rule in role["rules"] if "jobsets" not in rule["resources"]]
        cluster.kubectl("patch", "clusterrole", role["metadata"]["name"], "--type=merge", "-p", json.dumps({"rules": rules}))
        fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/"
        patch = [{"op": "remove", "path": fields + "activeDeadlineSeconds"}]
        cluster.kubectl("patch", "crd", "trainjobs.trainer.kubeflow.org", "--type=json", "-p", json.dumps(patch))
        try:
            lacks = lambda: [f for f in doctor(cluster.kubeconfig, *here)
                             if f["object"] == account and f["severity"] == "error" and "jobsets.jobset.x-k8s.io" in f["message"]]  # fmt: skip
            (missing,) = wait_for("the missing right to be told", lacks)
            assert missing["remedy"].startswith("kubectl apply --server-side")
            old = one(doctor(cluster.kubeconfig, *here), "kinds", definition, "it lacks spec.activeDeadlineSeconds")
            assert old["severity"] == "warning" and "manifests/crds" in old["remedy"]
        finally:
            cluster.kubectl("replace", "-f", "-", input=json.dumps({**role, "metadata": named(role)}))
            cluster.kubectl("replace", "-f", "-", input=json.dumps({**current(cluster, kind), "spec": kind["spec"]}))
        operator.end(signal.SIGKILL)
        found = doctor(cluster.kubeconfig, *here, code=5)
        dead = one(found, "webhooks", "TrainJob/examined (dry run)", "a webhook does not answer")
        assert dead["severity"] == "error" and "kubectl -n kubeflow-system" in dead["remedy"]
    # the webhooks' configurations stay; without an operator nothing could be changed or deleted
    with running(Operator(cluster, tmp_path, url())):
        cluster.kubectl("-n", "examined", "delete", "trainjobs", "--all", "--wait=false")
        cluster.kubectl("delete", "namespace", "examined", "--wait=false")


def test_each_remedy_can_be_typed(cluster: Cluster):
    """Real kubectl takes it; what writes is dry-run by the server, over fields that somebody else has written."""
    cluster.namespace("team")
    # operators of tests before have registered by URL, which no manifest takes back
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org", "--ignore-not-found")
    cluster.kubectl("delete", "validatingwebhookconfiguration", "validator.trainer.kubeflow.org", "--ignore-not-found")
    deployment = ["-n", "kubeflow-system", "patch", "deployment", "kubeflow-trainer-controller-manager"]
    image = {"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "registry.example/mine:1"}]}}}}
    cluster.kubectl(*deployment, "--field-manager=somebody", "-p", json.dumps(image))
    plain = ["apply", "--server-side", "-k", MANIFESTS / "overlays/manager", "--dry-run=server"]
    done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, *plain], capture_output=True, text=True)
    assert "conflict" in done.stderr, "so that it means something below"
    tried = 0
    for line in REMEDIES:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
        lexer.whitespace_split = True
        words: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= set("&;|"):
                words.append([])
            else:
                words[-1].append(word)
        for program, *flags in words:
            if program == "kubectl":
                verb = next(word for at, word in enumerate(flags) if not word.startswith("-") and flags[at - 1] != "-n")
                flags += ["--dry-run=server"] if verb in WRITES else []
                done = subprocess.run([program, "--kubeconfig", cluster.kubeconfig, *flags], cwd=ROOT, capture_output=True, text=True, timeout=120)
                # objects and kinds of the cases are not there
                absent = verb not in ("apply", "create") and any(part in done.stderr for part in ("NotFound", "not found", "doesn't have a resource type"))
                assert done.returncode == 0 or absent, (line, done.stderr)
                tried += 1
            elif program == "trainyard":
                done = subprocess.run([BINARY, *flags, "--kubeconfig", cluster.kubeconfig], capture_output=True, text=True, timeout=60)
                assert done.returncode == 0 or "not found" in done.stderr, (line, done.stderr)
                tried += 1
            else:
                assert program in ("grep", "helm"), line
    assert tried > len(REMEDIES) - 3
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS / "overlays/manager")


def server(cluster: Cluster) -> str:
    return yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]


def named(object: dict) -> dict:
    return {"name": object["metadata"]["name"], "labels": object["metadata"].get("labels", {})}


def current(cluster: Cluster, object: dict) -> dict:
    return cluster.get(object["kind"], object["metadata"]["name"])
