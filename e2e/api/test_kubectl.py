"""kubectl, unmodified, in every minor version on this machine."""

import json
import pathlib
import subprocess

import pytest
import yaml

from conftest import Yard, wait_for

MINORS = ["1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.36"]


def plain(name: str, command: list[str], nodes: int = 1) -> str:
    return yaml.safe_dump({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "jax-distributed"}, "trainer": {"command": command, "numNodes": nodes}},
    })  # fmt: skip


@pytest.fixture(params=MINORS)
def kubectl(request, yard: Yard, kubectls: dict[str, str]):
    program = kubectls.get(request.param)
    if program is None:
        pytest.skip(f"kubectl {request.param} is not on this machine")
    return lambda *words, **options: yard.kubectl(*words, program=program, **options)


def test_a_jobs_life(kubectl, request):
    name = f"life-{abs(hash(request.node.name)) % 10_000}"
    assert "created" in kubectl("apply", "-f", "-", input=plain(name, ["sh", "-c", "echo hello; sleep 1; echo bye"], 2)).stdout
    assert "unchanged" in kubectl("apply", "-f", "-", input=plain(name, ["sh", "-c", "echo hello; sleep 1; echo bye"], 2)).stdout
    assert f"trainjob.trainer.kubeflow.org/{name} condition met" in kubectl(
        "wait", "--for=condition=Complete", f"trainjob/{name}", "--timeout=60s"
    ).stdout
    assert "NAME" in kubectl("get", "trainjobs").stdout and "Complete" in kubectl("get", "trainjob", name).stdout
    pods = kubectl("get", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}", "-o", "name").stdout.split()
    assert len(pods) == 2
    assert kubectl("logs", pods[0]).stdout == "hello\nbye\n"
    assert kubectl("logs", "-f", pods[1], "--tail=1").stdout == "bye\n"
    for kind in ("trainjob", "jobset"):
        assert name in kubectl("describe", kind, name).stdout
    assert "Completed" in kubectl("describe", "job", f"{name}-node-0").stdout
    assert kubectl("describe", *pods[0].split("/")).returncode == 0
    assert "Scheduled" in kubectl("events", "--for", pods[0]).stdout
    assert kubectl("get", "events").returncode == 0
    kubectl("label", "trainjob", name, "team=a")
    kubectl("patch", "trainjob", name, "--type=merge", "-p", '{"metadata":{"annotations":{"a":"b"}}}')
    assert json.loads(kubectl("get", "trainjob", name, "-o", "json").stdout)["metadata"]["annotations"]["a"] == "b"
    assert "deleted" in kubectl("delete", "trainjob", name, "--cascade=foreground").stdout
    assert kubectl("get", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}", "-o", "name").stdout == ""


def test_explain_and_resources(kubectl):
    text = kubectl("explain", "trainjob.spec.trainer.numNodes").stdout
    assert "numNodes <integer>" in text and len(text.split("DESCRIPTION:")[1].strip()) > 10, text
    resources = kubectl("api-resources").stdout
    for kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime", "JobSet", "Pod", "Job"):
        assert f" {kind}\n" in resources, kind
    assert " Deployment\n" in resources, "kept, though nobody runs them"


def test_workloads_are_kept_and_not_run(kubectl):
    """`kubectl apply --prune` lists every kind that it may remove; what nobody runs is said when it is made."""
    made = kubectl("create", "deployment", "kept", "--image=none", "--replicas=2")
    assert "created" in made.stdout and "Warning: this control plane keeps Deployments but runs none" in made.stderr
    kubectl("scale", "deployment", "kept", "--replicas=3")
    assert "0/3" in kubectl("get", "deployments", "kept", "--no-headers").stdout
    manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pruned", "labels": {"prune": "me"}}})
    kubectl("apply", "-f", "-", "--prune", "-l", "prune=me", input=manifest)
    kubectl("apply", "-f", "-", "--prune", "-l", "prune=me", input=manifest.replace("pruned", "stays"))
    assert kubectl("get", "cm", "-l", "prune=me", "-o", "name").stdout.strip() == "configmap/stays"
    kubectl("delete", "deployment", "kept")


def test_the_api_server_has_a_service(kubectl):
    endpoints = json.loads(kubectl("get", "endpoints", "kubernetes", "-n", "default", "-o", "json").stdout)
    port = endpoints["subsets"][0]["ports"][0]["port"]
    assert kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}").stdout.endswith(f":{port}")
    service = json.loads(kubectl("get", "service", "kubernetes", "-n", "default", "-o", "json").stdout)
    assert service["spec"]["ports"][0]["targetPort"] == port and service["spec"]["clusterIP"] == "10.96.0.1"


def test_server_side_apply_and_diff(kubectl, request):
    name = f"conf-{abs(hash(request.node.name)) % 10_000}"
    manifest = lambda value: json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}})
    kubectl("apply", "--server-side", "-f", "-", input=manifest("1"))
    conflict = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", input=manifest("2"), check=False)
    assert conflict.returncode == 1 and "conflict" in conflict.stderr
    before = json.loads(kubectl("get", "cm", name, "-o", "json").stdout)["metadata"]["resourceVersion"]
    differs = kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", input=manifest("3"), check=False)
    assert differs.returncode == 1 and "+  a: \"3\"" in differs.stdout, differs.stdout + differs.stderr
    assert json.loads(kubectl("get", "cm", name, "-o", "json").stdout)["metadata"]["resourceVersion"] == before
    kubectl("delete", "cm", name)


def test_generated_and_authorised(kubectl, request):
    name = f"gen-{abs(hash(request.node.name)) % 10_000}"
    assert kubectl("auth", "can-i", "create", "pods").stdout.strip() == "yes"
    kubectl("create", "namespace", name)
    kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", name)
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b", "-n", name)
    kubectl("create", "serviceaccount", "sa", "-n", name)
    assert "default" in kubectl("get", "serviceaccounts", "-n", name).stdout
    kubectl("delete", "namespace", name)
    assert kubectl("get", "namespace", name, check=False).returncode == 1


def test_watch_shows_changes(yard: Yard):
    process = subprocess.Popen(
        ["kubectl", "--kubeconfig", yard.kubeconfig, "get", "trainjobs", "-w"], stdout=subprocess.PIPE, text=True
    )
    try:
        yard.kubectl("create", "-f", "-", input=plain("watched", ["sh", "-c", "sleep 1"]))
        lines: list[str] = []
        wait_for("Complete in the watch", lambda: lines.append(process.stdout.readline()) or "Complete" in lines[-1], 60)
        assert lines[0].split()[:2] == ["NAME", "STATE"]
    finally:
        process.kill()
    yard.kubectl("delete", "trainjob", "watched")


def test_nodes_and_version(yard: Yard):
    nodes = json.loads(yard.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    assert len(nodes) == 1
    assert {"type": "Ready", "status": "True"}.items() <= next(
        {k: c[k] for k in ("type", "status")} for c in nodes[0]["status"]["conditions"] if c["type"] == "Ready"
    ).items()
    assert yard.kubectl("version").returncode == 0


def test_no_token_no_answer(yard: Yard, tmp_path: pathlib.Path):
    import ssl
    import urllib.error
    import urllib.request

    unverified = ssl._create_unverified_context()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(yard.running["server"] + "/api/v1/pods", context=unverified)
    assert refused.value.code == 401
    foreign = urllib.request.Request(yard.running["server"] + "/version", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign, context=unverified)
    assert refused.value.code == 403
