"""`trainyard operator` on real Kubernetes (`cluster.py`), and in the swap beside upstream's Trainer."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import threading
import time

import pytest
import yaml

from cluster import AS_UPSTREAM, MANIFESTS, NAMESPACE, Cluster, Operator, create, running, trainjob, url
from conftest import BINARY, wait_for
from test_recordings import GOLDEN, NOT_YET, hold, replay

@pytest.mark.timeout(1800)
def test_recordings_on_kubernetes(cluster: Cluster, tmp_path: pathlib.Path):
    """Scenarios of Trainer, with the shipped rights alone; before, the probe names what is missing."""
    cluster.kubectl("delete", "clustertrainingruntimes", "--all", "--ignore-not-found")  # of tests before
    operator = Operator(cluster, tmp_path, url(), config={
        **AS_UPSTREAM, "clientConnection": {"qps": 500, "burst": 1000}, "health": {"livenessEndpointName": "alive", "readinessEndpointName": "/prepared"},
        "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 3}},
    })  # fmt: skip
    with running(operator):
        assert operator.fetch(operator.health, "/alive") == "ok" and operator.fetch(operator.health, "/prepared").endswith("\nready\n")
        workers = 'controller_runtime_max_concurrent_reconciles{controller="trainjob_controller"}'
        wait_for("a leader with three workers", lambda: operator.number(workers) == 3)
        wait_for("runtimes to be missed", lambda: "[!]runtimes: there is no ClusterTrainingRuntime" in operator.fetch(operator.health, "/readyz"))
        cluster.runtimes()
        passed, failed = replay(tmp_path, "trainer", "--kubeconfig", cluster.kubeconfig, "--scale", "1.5")
        hold(passed, failed, "trainer", NOT_YET["trainer"])
        log = operator.log.read_text()
        assert "forbidden" not in log, [line for line in log.splitlines() if "forbidden" in line][:3]
        assert "bug:" not in log
        assert operator.number("controller_runtime_reconcile_panics_total") == 0
        assert operator.number('trainyard_trainjob_end_seconds_count{state="Complete"}') > 0
        assert operator.number("trainyard_admission_total") > 100


@pytest.mark.timeout(600)
def test_a_leader_may_be_killed_while_jobs_come_in(cluster: Cluster, tmp_path: pathlib.Path):
    """The other replica serves webhooks all the while, and reconciles once the lease has run out. Nothing is made twice."""
    election = {"leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"}}
    where = url()
    one, two = (Operator(cluster, tmp_path, where, config=election) for _ in range(2))
    with running(one, two):
        cluster.runtimes()
        wait_for("a leader", lambda: one.leads() or two.leads())
        leader, other = (one, two) if one.leads() else (two, one)
        before = cluster.leader()
        jobs = [trainjob(f"train-{i}") for i in range(40)]
        create(cluster, "killed", *jobs[:20])
        assert leader.end(signal.SIGKILL) == -signal.SIGKILL
        create(cluster, "killed", *jobs[20:])
        wait_for("all JobSets", lambda: len(cluster.items("-n", "killed", "jobsets")) == len(jobs), 180)
        assert other.leads() and cluster.leader() != before
        snapshots = [o for o in cluster.items("-n", "killed", "configmaps") if o["metadata"]["name"].endswith("-runtime-snapshot")]
        assert len(snapshots) == len(jobs)

        # at its end the lease is given back, so the next leader need not wait for it to run out
        third = Operator(cluster, tmp_path, where, config=election)
        with running(third):
            assert not third.leads()
            assert other.end() == 0
            wait_for("the third to lead", third.leads)
            assert "gave the lease back" in other.log.read_text()
    cluster.kubectl("delete", "namespace", "killed", "--wait=false")


@pytest.mark.timeout(600)
def test_certificates_are_exchanged_without_a_gap(cluster: Cluster, tmp_path: pathlib.Path):
    """The Secret is taken away while TrainJobs are admitted: two replicas agree on a new authority, and no request fails."""
    where = url()
    one, two = (Operator(cluster, tmp_path, where, "--certificate-period=1") for _ in range(2))
    with running(one, two):
        cluster.runtimes()
        cluster.namespace("rotated")
        body = yaml.safe_dump(trainjob("train"))
        stop, refused, admitted = threading.Event(), [], []

        def admit() -> None:
            while not stop.is_set():
                done = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "-n", "rotated", "create", "--dry-run=server",
                                       "-f", "-"], input=body, capture_output=True, text=True)  # fmt: skip
                (admitted if done.returncode == 0 else refused).append(done.stderr)

        held = cluster.secret()
        admitting = threading.Thread(target=admit)
        admitting.start()
        try:
            wait_for("admission to be under way", lambda: admitted)
            cluster.kubectl("-n", NAMESPACE, "delete", "secret", "kubeflow-trainer-webhook-cert")
            wait_for("a new authority", lambda: cluster.secret().get("ca.crt") not in (None, held["ca.crt"]))
            # it is made by the new authority once the API server trusts that one
            wait_for("a new certificate", lambda: cluster.secret().get("tls.crt") != held["tls.crt"], 120)
            count = len(admitted)
            wait_for("admission to go on", lambda: len(admitted) > count + 10 or refused)
        finally:
            stop.set()
            admitting.join()
        assert not refused, refused[:3]

        # one that nobody can use is replaced at once
        cluster.kubectl("-n", NAMESPACE, "patch", "secret", "kubeflow-trainer-webhook-cert", "-p", '{"data": {"tls.crt": "eA=="}}')
        wait_for("a good certificate", lambda: len(cluster.secret().get("tls.crt", "")) > 100)
        # and an authority that is taken out of the configurations is put back
        patch = '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]'
        cluster.kubectl("patch", "mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org", "--type=json", "-p", patch)
        dry = lambda: cluster.kubectl("-n", "rotated", "create", "--dry-run=server", "-f", "-", input=body, check=False)
        wait_for("admission to work again", dry)


@pytest.mark.timeout(1200)
def test_swap_with_upstreams_controller(theirs: Cluster, tmp_path: pathlib.Path):
    """Theirs to ours and back, with running TrainJobs of every framework: not one child changes."""
    cluster = theirs
    kinds = ["torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed", "mlx-distributed"]
    jobs = [trainjob(f"train-{i}", runtime, trainer={"numNodes": 2}) for i, runtime in enumerate(kinds)]
    jobs.append(trainjob("suspended", suspend=True))
    wait_for("upstream's webhooks", lambda: cluster.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(jobs[0]), check=False), 120)
    create(cluster, "swap", *jobs)
    settled = settle(cluster, "swap", len(jobs))

    cluster.stop("trainer")
    # here theirs are registered by URL; in a cluster both are by Service, and ours take the place of theirs
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "defaulter.trainer.kubeflow.org")
    cluster.kubectl("delete", "validatingwebhookconfiguration", "validator.trainer.kubeflow.org")
    cluster.install()
    operator = Operator(cluster, tmp_path, url(), config=AS_UPSTREAM)
    with running(operator):
        wait_for("ours to look at all TrainJobs", lambda: operator.number('controller_runtime_reconcile_total{controller="trainjob_controller"') >= len(jobs))
        nothing_changes(cluster, "swap", settled)
        create(cluster, "swap", trainjob("ours"))
        settled = settle(cluster, "swap", len(jobs) + 1)
        assert operator.end() == 0
    cluster.start("trainer")
    try:
        # of a suspended TrainJob's JobSet upstream writes empty metadata and resources at each look, which ours leaves out
        nothing_changes(cluster, "swap", settled, but=("jobsets.jobset.x-k8s.io/suspended",))
    finally:
        cluster.stop("trainer")


def settle(cluster: Cluster, namespace: str, count: int) -> dict[str, str]:
    """Waits until all TrainJobs have children and nothing moves any more."""
    wait_for("all JobSets", lambda: len(cluster.items("-n", namespace, "jobsets")) == count, 180)
    last: list[dict[str, str]] = [{}]

    def quiet() -> bool:
        now = [cluster.versions(namespace), time.monotonic()]
        if now[0] != last[0]:
            last[:] = now
            return False
        return now[1] - last[1] > 5

    wait_for("nothing to move", quiet, 180)
    return last[0]


def nothing_changes(cluster: Cluster, namespace: str, settled: dict[str, str], but: tuple[str, ...] = ()) -> None:
    """For 30 s."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        now = cluster.versions(namespace)
        changed = {name for name in (settled.keys() | now.keys()) - set(but) if settled.get(name) != now.get(name)}
        assert not changed, changed


def test_a_wrong_configuration_is_told_with_its_line(tmp_path: pathlib.Path):
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    cases = [
        ("webhook:\n  port: 70000\n", "config.yaml:4: webhook.port: Invalid value: 70000: must be between 1 and 65535"),
        ("webhok: {}\n", "failed to decode config file"),
        ("leaderElection:\n  leaseDuration: 1s\n", "config.yaml:4: leaderElection.leaseDuration: must be greater than renewDeadline"),
        ("featureGates:\n  Nope: true\n", 'config.yaml:4: featureGates[Nope]: Unsupported value: "Nope"'),
    ]
    path = tmp_path / "config.yaml"
    for text, message in cases:
        path.write_text(head + text)
        done = subprocess.run([BINARY, "operator", "--config", path], capture_output=True, text=True, timeout=60)
        assert (done.returncode, message in done.stderr) == (1, True), (text, done.stderr)
    done = subprocess.run([BINARY, "operator", "--controllers=job"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "the cluster's own work" in done.stderr


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kustomize is part of kubectl")
def test_the_manifests_are_whole():
    """Every object of the overlay once, restricted pods, and the image that a release sets."""
    text = subprocess.run(["kubectl", "kustomize", MANIFESTS / "overlays/manager"], capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(text.stdout))
    keys = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(keys) == len(set(keys))
    assert {"ClusterRole", "Role", "Deployment", "Secret", "MutatingWebhookConfiguration", "CustomResourceDefinition"} <= {kind for kind, _ in keys}
    (deployment,) = [o for o in objects if o["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("trainyard:")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (shipped,) = [o for o in objects if o["kind"] == "ConfigMap" and "controller_manager_config.yaml" in o["data"]]
    assert yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])["leaderElection"]["leaderElect"] is True
    assert GOLDEN.exists()
