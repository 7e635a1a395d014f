"""The unmodified Kubeflow SDK 0.5.0, with real torch."""

import threading
import time

import pytest
import yaml

from conftest import Yard, wait_for

kubernetes = pytest.importorskip("kubernetes")
kubeflow = pytest.importorskip("kubeflow.trainer")


def train_digits(epochs: int = 3):
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    images = torch.tensor(digits.data[rank::world], dtype=torch.float32) / 16
    labels = torch.tensor(digits.target[rank::world])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} rank {rank}/{world}", flush=True)
    dist.destroy_process_group()
    print(f"trained on rank {rank}", flush=True)


def fail_loudly():
    raise ValueError("this is meant to fail")


@pytest.fixture(scope="module")
def client(yard: Yard):
    backend = kubeflow.KubernetesBackendConfig(config_file=yard.kubeconfig)
    return kubeflow.TrainerClient(backend_config=backend)


def test_runtimes_are_listed(client):
    names = {runtime.name for runtime in client.list_runtimes()}
    assert {"torch-distributed", "jax-distributed", "deepspeed-distributed"} <= names
    assert client.get_runtime("torch-distributed").trainer.framework == "torch"


# torch aborts now and then when an interpreter ends after `destroy_process_group` ("terminate called without an active exception", once in
# six runs here). Upstream's semantics start that rank again, and it waits for ranks that are done.
@pytest.mark.flaky(reruns=3)
@pytest.mark.timeout(120)
def test_a_job_from_start_to_end(client):
    name = client.train(trainer=kubeflow.CustomTrainer(func=train_digits, func_args={"epochs": 4}, num_nodes=2))
    faults: list[Exception] = []
    ended = threading.Event()

    def poll():
        """The SDK's models are strict: at no instant may a field that they require be missing."""
        while not ended.is_set():
            try:
                client.get_job(name)
            except Exception as fault:
                faults.append(fault)
                return
            time.sleep(0.02)

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=60, polling_interval=1)
        followed = list(client.get_job_logs(name, follow=True))
        done = client.wait_for_job_status(name, timeout=120, polling_interval=1)
    finally:
        ended.set()
        watcher.join()
    assert not faults, faults
    assert done.status == "Complete"
    assert done.num_nodes == 2
    assert [step.name for step in done.steps] == ["node-0", "node-1"]
    assert followed[-1].rstrip() == "trained on rank 0", followed
    assert "trained on rank 1" in "\n".join(client.get_job_logs(name, step="node-1"))
    assert any(event.reason for event in client.get_job_events(name))
    assert name in {job.name for job in client.list_jobs()}
    client.delete_job(name)
    with pytest.raises(RuntimeError):
        client.get_job(name)


@pytest.mark.timeout(180)
def test_a_failing_job_says_why(yard: Yard, client):
    """Under a runtime that does not restart: torch-distributed tries six times, with pauses that add up to minutes."""
    runtime = yaml.safe_load(yard.kubectl("get", "clustertrainingruntime", "torch-distributed", "-o", "yaml").stdout)
    runtime["metadata"] = {"name": "torch-once", "labels": runtime["metadata"]["labels"]}
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["backoffLimit"] = 0
    node["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    yard.kubectl("apply", "-f", "-", input=yaml.safe_dump(runtime))
    name = client.train(runtime="torch-once", trainer=kubeflow.CustomTrainer(func=fail_loudly, num_nodes=1))
    done = client.wait_for_job_status(name, status={"Failed"}, timeout=150, polling_interval=1)
    assert done.status == "Failed"
    assert "this is meant to fail" in "\n".join(client.get_job_logs(name))
    events = client.get_job_events(name)
    assert any("node-0" in event.involved_object_name and event.reason == "Failed" for event in events), events
    assert any("failed" in event.message.lower() for event in events), events
    client.delete_job(name)


@pytest.mark.timeout(180)
def test_a_failing_job_is_tried_again(client):
    """Under torch-distributed, as upstream has it: while it is tried again, the SDK can tell why."""
    name = client.train(trainer=kubeflow.CustomTrainer(func=fail_loudly, num_nodes=1))

    def failed() -> bool:
        assert client.get_job(name).status in ("Created", "Running")
        return any("node-0" in event.involved_object_name and event.reason == "Failed" for event in client.get_job_events(name))

    wait_for("an event that tells of the failure", failed, 120)
    client.delete_job(name)


def test_a_followed_log_waits_for_the_start(yard: Yard):
    """As soon as the pod has a node; before, upstream's answer is an empty log."""
    core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(yard.kubeconfig))
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow-start"},
        "spec": {"restartPolicy": "Never", "initContainers": [{"name": "first", "image": "none", "command": ["sleep", "1"]}],
                 "containers": [{"name": "node", "image": "none", "command": ["echo", "here at last"]}]},
    }  # fmt: skip
    wait_for("the service account", lambda: core.list_namespaced_service_account("default").items, 20)
    core.create_namespaced_pod("default", pod)
    wait_for("a node", lambda: core.read_namespaced_pod("slow-start", "default").spec.node_name, 20)
    options = {"name": "slow-start", "namespace": "default", "container": "node"}
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_pod_log(**options)
    assert refused.value.status == 400 and "ContainerCreating" in refused.value.body
    lines = kubernetes.watch.Watch().stream(core.read_namespaced_pod_log, follow=True, **options)
    assert list(lines) == ["here at last"]
    core.delete_namespaced_pod("slow-start", "default")


def test_the_optimizer_client_asks_for_katib(yard: Yard):
    """What README and COMPATIBILITY.md say of it: no kind of Trainer's, and no silent success."""
    optimizer = pytest.importorskip("kubeflow.optimizer")
    client = optimizer.OptimizerClient(backend_config=kubeflow.KubernetesBackendConfig(config_file=yard.kubeconfig))
    with pytest.raises(RuntimeError) as refused:
        client.list_jobs()
    assert refused.value.__cause__.status == 404
    from kubeflow.optimizer.constants import constants

    assert (constants.GROUP, constants.EXPERIMENT_PLURAL) == ("kubeflow.org", "experiments")
