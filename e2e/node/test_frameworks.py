"""Every framework runs for real: the examples, as jobs for kubectl and by `trainyard run`, on two nodes each.

A framework is left out, with its reason, where its packages cannot be installed: `make e2e` tries to.
"""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, Yard, wait_for

EXAMPLES = ROOT / "examples"
JOB_SECS = 240


def needs(*modules: str, mpi: bool = False) -> None:
    """Leaves the test out where a module, or mpirun, is not there."""
    missing = [f"the Python module {module}" for module in modules if importlib.util.find_spec(module) is None]
    if mpi and shutil.which("mpirun") is None:
        missing.append("Open MPI (Debian's package openmpi-bin)")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `make e2e` installs what the examples need")


def apply(yard: Yard, path: pathlib.Path) -> None:
    """What the comment in each job.yaml says: the script is here, not in an image."""
    text = path.read_text().replace("/workspace", str(path.parent))
    yard.kubectl("apply", "-f", "-", input=text)


def logs(yard: Yard, job: str, step: str) -> str:
    return yard.run("logs", job, "--step", step, "--no-prefix").stdout


def completed(yard: Yard, job: str, step: str = "node-0") -> str:
    """The log of one step of the job, once the job is complete."""
    done = yard.run("wait", job, "--timeout", f"{JOB_SECS}s", timeout=JOB_SECS + 30, check=False)
    told = yard.run("describe", job, check=False).stdout
    assert done.returncode == 0, f"{done.stderr}\n{told}\n{logs(yard, job, step)}"
    return logs(yard, job, step)


def trained(log: str, units: str, count: int, rows: int, least: float = 90) -> None:
    """The last line says how good the model is, and what all ranks together have seen."""
    found = re.search(rf"final accuracy (\d+\.\d+)% from (\d+) images on (\d+) {units}$", log, re.M)
    assert found, log
    assert (int(found[2]), int(found[3])) == (rows, count), log
    assert float(found[1]) >= least, log


@pytest.mark.timeout(JOB_SECS + 60)
def test_jax(yard: Yard):
    needs("jax", "sklearn")
    apply(yard, EXAMPLES / "jax-digits/job.yaml")
    log = completed(yard, "jax-digits")
    assert re.search(r"^process 0 of 2 on jax-digits-node-0-0: 718 images, 2 devices$", log, re.M), log
    assert "process 1 of 2 on jax-digits-node-0-1: 718 images" in logs(yard, "jax-digits", "node-1")
    trained(log, "processes", 2, 1436)


@pytest.mark.timeout(JOB_SECS + 60)
def test_xgboost(yard: Yard):
    needs("xgboost", "sklearn")
    apply(yard, EXAMPLES / "xgboost-cancer/job.yaml")
    log = completed(yard, "xgboost-cancer")
    found = re.search(r"final accuracy (\d+\.\d+)% from 450 rows, 2 of 2 models alike$", log, re.M)
    assert found and float(found[1]) >= 90, log
    assert "worker 1 of 2 on xgboost-cancer-node-0-1: 225 rows" in logs(yard, "xgboost-cancer", "node-1")


@pytest.mark.timeout(JOB_SECS + 60)
def test_mpi_with_a_launcher_of_its_own(yard: Yard):
    """Two nodes with two slots each; the launcher runs mpirun and no rank."""
    needs("mpi4py", "sklearn", mpi=True)
    apply(yard, EXAMPLES / "mpi-digits/runtime.yaml")
    apply(yard, EXAMPLES / "mpi-digits/job.yaml")
    log = completed(yard, "mpi-digits", "launcher-0")
    placed = dict(re.findall(r"rank (\d) of 4 on (\S+): \d+ images", log))
    assert placed == {str(rank): f"mpi-digits-node-0-{rank // 2}" for rank in range(4)}, log
    trained(log, "ranks", 4, 1437)


@pytest.mark.timeout(JOB_SECS + 60)
def test_mlx_with_the_launcher_as_a_node(yard: Yard):
    needs("mlx", "sklearn", mpi=True)
    apply(yard, EXAMPLES / "mlx-digits/job.yaml")
    log = completed(yard, "mlx-digits", "launcher-0")
    placed = dict(re.findall(r"rank (\d) of 2 on (\S+): \d+ images", log))
    assert placed == {"0": "mlx-digits-node-0-0", "1": "mlx-digits-launcher-0-0"}, log
    trained(log, "ranks", 2, 1437)


def add_ranks_up():
    import os
    import socket

    os.environ.setdefault("MLX_MPI_LIBNAME", "libmpi.so.40")
    import mlx.core as mx

    world = mx.distributed.init(strict=True, backend="mpi")
    total = mx.distributed.all_sum(mx.array(10 ** world.rank())).item()
    print(f"rank {world.rank()} of {world.size()} on {socket.gethostname()} has {total}", flush=True)


@pytest.mark.timeout(JOB_SECS + 60)
def test_mpi_by_the_sdk(yard: Yard):
    """The Kubeflow SDK starts functions by mpirun and bash, and writes them into /home/mpiuser."""
    needs("kubeflow", "mlx", mpi=True)
    from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient

    client = TrainerClient(backend_config=KubernetesBackendConfig(config_file=yard.kubeconfig))
    trainer = CustomTrainer(func=add_ranks_up, num_nodes=3)
    name = client.train(runtime=client.get_runtime("mlx-distributed"), trainer=trainer)
    lines = re.findall(r"rank (\d) of 3 on (\S+) has (\d+)", completed(yard, name, "launcher-0"))
    hosts = [f"{name}-node-0-0", f"{name}-node-0-1", f"{name}-launcher-0-0"]
    assert sorted(lines) == [(str(rank), host, "111") for rank, host in enumerate(hosts)]


@pytest.mark.timeout(JOB_SECS + 60)
def test_deepspeed_by_run(yard: Yard):
    """`trainyard run` starts the script by mpirun, and its ranks have the variables of the job."""
    needs("deepspeed", "mpi4py", "torch", "sklearn", mpi=True)
    script = str(EXAMPLES / "deepspeed-digits/train.py")
    words = ["--runtime", "deepspeed-distributed", "--nodes", "2", "--name", "deepspeed-digits"]
    log = yard.run("run", *words, script, timeout=JOB_SECS).stdout
    placed = dict(re.findall(r"rank (\d) of 2 on (\S+): \d+ images", log))
    assert placed == {"0": "deepspeed-digits-node-0-0", "1": "deepspeed-digits-launcher-0-0"}, log
    trained(log, "ranks", 2, 1437)
    own, every = map(int, re.search(r"rank 0 keeps the state of (\d+) of (\d+) parameters", log).groups())
    assert every / 2 <= own < every * 0.6, "ZeRO splits the optimizer's state over the ranks"


@pytest.mark.timeout(JOB_SECS + 60)
def test_a_plain_container(yard: Yard):
    """No framework and no policy of one: the fit over both nodes' patients is the fit over all of them."""
    needs("sklearn")
    import numpy as np

    spec = importlib.util.spec_from_file_location("plain_regression", EXAMPLES / "plain-regression/train.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows, progress, test_rows, test_progress = script.load()
    rest = test_progress - test_rows @ np.linalg.lstsq(rows, progress, rcond=None)[0]
    explained = 1 - (rest**2).sum() / ((test_progress - test_progress.mean()) ** 2).sum()

    apply(yard, EXAMPLES / "plain-regression/runtime.yaml")
    apply(yard, EXAMPLES / "plain-regression/job.yaml")
    log = completed(yard, "plain-regression")
    assert f"final fit {explained:.4f} from {len(rows)} patients on 2 nodes" in log, log
    assert f"node 1 explains {explained:.4f} of the variance" in logs(yard, "plain-regression", "node-1")


def mpi_job(name: str, script: str, **trainer) -> str:
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "mlx-distributed"},
                 "trainer": {"numNodes": 2, "command": ["sh", "-c", script], **trainer}},
    }  # fmt: skip
    return json.dumps(body)


@pytest.mark.timeout(JOB_SECS + 60)
def test_what_a_launcher_finds(yard: Yard):
    """A key pair that fits, the hostfile, a shell in the other pod; and every rank has the variables that mpirun has to pass."""
    needs(mpi=True)
    script = """
        cat /etc/mpi/hostfile
        cp /home/mpiuser/.ssh/id_rsa key && chmod 600 key
        test "$(ssh-keygen -y -f key | cut -d' ' -f1,2)" = "$(cut -d' ' -f1,2 /home/mpiuser/.ssh/id_rsa.pub)" && echo one pair
        cmp /home/mpiuser/.ssh/id_rsa.pub /home/mpiuser/.ssh/authorized_keys && echo authorized
        ssh found-node-0-0.found hostname
        mpirun -x COLOUR sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) is $COLOUR'
    """
    yard.kubectl("create", "-f", "-", input=mpi_job("found", script, env=[{"name": "COLOUR", "value": "blue"}]))
    log = completed(yard, "found", "launcher-0")
    assert log.splitlines()[:5] == [
        "found-node-0-0.found slots=1", "found-launcher-0-0.found slots=1", "one pair", "authorized", "found-node-0-0",
    ]  # fmt: skip
    ranks = sorted(re.findall(r"^rank .*", log, re.M))
    assert ranks == ["rank 0 of 2 on found-node-0-0 is blue", "rank 1 of 2 on found-launcher-0-0 is blue"]


@pytest.mark.timeout(JOB_SECS + 60)
def test_more_ranks_than_slots(yard: Yard):
    """mpirun refuses, its words are in the log, and the launcher's status is its own."""
    needs(mpi=True)
    yard.kubectl("create", "-f", "-", input=mpi_job("many", "mpirun -np 5 hostname"))
    wait_for("mpirun's refusal", lambda: "not enough slots" in yard.run("logs", "many", check=False).stdout, JOB_SECS)
    why = lambda: json.loads(yard.run("explain", "many", "-o", "json").stdout)
    wait_for("the reason", lambda: why()["reason"] == "MpiSlots", JOB_SECS)
    yard.run("delete", "many")


@pytest.mark.timeout(JOB_SECS + 60)
def test_mpirun_that_is_not_there(yard: Yard):
    """The log says what to install; a command that is mpirun itself, too."""
    body = json.loads(mpi_job("no-mpi", "", env=[{"name": "PATH", "value": "/nowhere"}]))
    body["spec"]["trainer"]["command"] = ["mpirun", "hostname"]
    yard.kubectl("create", "-f", "-", input=json.dumps(body))
    wait_for("the advice", lambda: "install openmpi-bin" in yard.run("logs", "no-mpi", check=False).stdout, JOB_SECS)
    wait_for("the status", lambda: "exit code 127" in yard.run("describe", "no-mpi").stdout, JOB_SECS)
    yard.run("delete", "no-mpi")


@pytest.mark.timeout(JOB_SECS + 60)
def test_a_rank_that_fails_ends_the_job_of_all(yard: Yard):
    """The workers' ssh servers never end by themselves: the launcher's end is the job's, and nothing is left running."""
    needs(mpi=True)
    runtime = json.loads(yard.kubectl("get", "clustertrainingruntime", "mlx-distributed", "-o", "json").stdout)
    runtime["metadata"] = {"name": "mpi-once", "labels": {"trainer.kubeflow.org/framework": "mpi"}}
    launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]
    launcher["backoffLimit"], launcher["template"]["spec"]["restartPolicy"] = 0, "Never"
    yard.kubectl("apply", "-f", "-", input=json.dumps(runtime))
    body = json.loads(mpi_job("one-fails", "mpirun sh -c 'test $OMPI_COMM_WORLD_RANK = 0 && exit 3; exec sleep 98764'"))
    body["spec"]["runtimeRef"]["name"] = "mpi-once"
    yard.kubectl("create", "-f", "-", input=json.dumps(body))
    done = yard.run("wait", "one-fails", "--timeout", f"{JOB_SECS}s", timeout=JOB_SECS + 30, check=False)
    assert done.returncode not in (0, 124), done.stderr
    assert yard.job("one-fails")["status"]["conditions"][-1]["type"] == "Failed"

    def sleeping() -> str:
        return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout

    wait_for("all ranks to be gone", lambda: "sleep 98764" not in sleeping(), JOB_SECS)


BAD = {
    "reserved for XGBoost": ("xgboost-distributed", {"env": [{"name": "DMLC_TASK_ID", "value": "1"}]}, "DMLC_TASK_ID is reserved for the XGBoost runtime"),
    "reserved for MPI": ("mlx-distributed", {"env": [{"name": "OMPI_MCA_plm_rsh_args", "value": ""}]}, "must not have reserved envs, invalid envs configured: [OMPI_MCA_plm_rsh_args]"),
    "negative ranks": ("mlx-distributed", {"numProcPerNode": -1}, "numProcPerNode must be greater than or equal to 1"),
    "ranks in words": ("mlx-distributed", {"numProcPerNode": "two"}, "numProcPerNode"),
    "negative nodes": ("jax-distributed", {"numNodes": -2}, "numNodes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused_with_a_reason(yard: Yard, case: str):
    runtime, trainer, reason = BAD[case]
    body = json.loads(mpi_job("bad", "true"))
    body["spec"] = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    done = yard.kubectl("create", "-f", "-", input=json.dumps(body), check=False)
    assert done.returncode != 0 and reason in done.stderr, done.stderr
    assert "bad" not in yard.kubectl("get", "trainjobs", "-o", "name").stdout.replace("trainjob.trainer.kubeflow.org/", "").split()


def test_a_runtime_with_two_policies(yard: Yard):
    runtime = json.loads(yard.kubectl("get", "clustertrainingruntime", "jax-distributed", "-o", "json").stdout)
    runtime["metadata"] = {"name": "two-policies"}
    runtime["spec"]["mlPolicy"]["xgboost"] = {}
    done = yard.kubectl("create", "-f", "-", input=json.dumps(runtime), check=False)
    assert done.returncode != 0 and "Only one of the policy can be configured" in done.stderr, done.stderr
