"""A machine with NVIDIA GPUs and a `python3` that has PyTorch, as its user: `make gpu`, outside the gate, whose machine has none.

    TRAINYARD_BIN=target/release/trainyard pytest --noconftest e2e/live_gpu.py

Nothing but pytest and PyYAML is needed, so it also runs where nothing can be installed.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "target/release/trainyard")).absolute()
# NVIDIA H100 80GB HBM3
SMI = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
                     capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
COUNT, PRODUCT, MEBIBYTES = len(SMI), SMI[0].split(",")[0].strip(), int(SMI[0].split(",")[1])
# as a user would write it: the word with a number in it (H100, A100, T4)
SHORT = next(word for word in PRODUCT.replace("-", " ").split() if any(c.isdigit() for c in word))
PATIENCE = 120

TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.randn(4096, 64, device="cuda")
y = x[:, :1] * x[:, 1:2]
first = None
for step in range(300):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    first = first or loss.item()
total = torch.ones(1, device="cuda"); dist.all_reduce(total)
assert loss.item() < first / 4, (first, loss.item())
print(f"rank {rank} of {int(total.item())} on {torch.cuda.get_device_name()} trained", flush=True)
dist.destroy_process_group()
"""
SEEN = "import os, torch; print('sees', torch.cuda.device_count(), repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\n"
# holds a GPU, computing, until a file is there
HOLD = """
import pathlib, sys, time, torch
held = torch.ones(4 << 30, dtype=torch.uint8, device="cuda")
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("holds", time.time(), flush=True)
until = time.monotonic() + 100
while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < until:
    for _ in range(50): a @ a
    torch.cuda.synchronize()
print("lets go", time.time(), flush=True)
"""
FULL = """
import torch
blocks = [torch.ones(8 << 30, dtype=torch.uint8, device="cuda") for _ in range(64)]
"""
TASK = """
name: digits
resources: {accelerators: "%s:%d"}
workdir: .
setup: echo prepared
run: torchrun --nproc-per-node $SKYPILOT_NUM_GPUS_PER_NODE train.py
"""


class Yard:
    """A control plane of its own, and a folder with scripts."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        self.environment = {**os.environ, "TRAINYARD_HOME": str(folder / "yard"), "HOME": str(folder / "home"), "COLUMNS": "200"}
        self.environment.pop("KUBECONFIG", None)
        for name, text in {"train.py": TRAIN, "seen.py": SEEN, "hold.py": HOLD, "full.py": FULL}.items():
            (folder / name).write_text(text)
        (folder / "task.yaml").write_text(TASK % (SHORT, COUNT))

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command prints, on both streams; it ends with `code`."""
        begin = time.monotonic()
        done = subprocess.run([BINARY, *words], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300, check=False)  # fmt: skip
        print(f"$ trainyard {' '.join(words)}  # {done.returncode}, {time.monotonic() - begin:.2f} s\n{done.stdout}", file=sys.stderr)
        assert done.returncode == code, done.stdout
        return done.stdout

    def get(self, path: str) -> dict:
        config = yaml.safe_load(pathlib.Path(self("kubeconfig").strip()).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        request = urllib.request.Request(cluster["server"] + path, headers={"Authorization": f"Bearer {user['token']}"})
        with urllib.request.urlopen(request, context=trust) as answer:
            return json.load(answer)

    def says(self, job: str, what: str) -> bool:
        return what in self("logs", job)


def wait(what: str, until: Callable[[], object]) -> object:
    end = time.monotonic() + PATIENCE
    while not (found := until()):
        assert time.monotonic() < end, f"in {PATIENCE} s: {what}"
        time.sleep(0.2)
    return found


def used_mebibytes() -> int:
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return max(map(int, subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("gpu"))
    yard("up", "--detach")
    yield yard
    yard("sky", "down", "-a", "-y")
    yard("down")


def test_the_node_has_what_the_driver_names(yard: Yard) -> None:
    nodes = wait("a node with GPUs", lambda: [node for node in yard.get("/api/v1/nodes")["items"]
                                              if node["status"].get("allocatable", {}).get("nvidia.com/gpu")])  # fmt: skip
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == [str(COUNT)]
    labels = nodes[0]["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"].replace("-", " ") == PRODUCT.replace("-", " "), labels
    assert int(labels["nvidia.com/gpu.memory"]) == MEBIBYTES, labels


@pytest.mark.parametrize("warm", [[], ["--warm"]])
def test_a_job_trains_on_all_gpus(yard: Yard, warm: list[str]) -> None:
    for _ in range(1 + len(warm)):
        out = yard("run", *warm, "--gpus", str(COUNT), "--nproc-per-node", str(COUNT), "train.py")
    assert [f"rank {rank} of {COUNT} on {PRODUCT} trained" in out for rank in range(COUNT)] == [True] * COUNT
    assert "not a warm start" not in out
    if warm:
        yard("run", "--no-warm", "--gpus", str(COUNT), "seen.py")


def test_a_job_that_asks_for_none_sees_none(yard: Yard) -> None:
    assert "sees 0 ''" in yard("run", "--nproc-per-node", "1", "seen.py")
    assert f"sees {COUNT} " in yard("run", "--nproc-per-node", "1", "--gpus", str(COUNT), "seen.py")


def test_one_gpu_is_one_jobs_at_a_time_and_outlives_the_control_plane(yard: Yard) -> None:
    """Also: `top` says what it does, the one that waits says why, and a killed control plane gives it to nobody else."""
    go = yard.folder / "go"
    yard("run", "-d", "--name", "first", "--gpus", str(COUNT), "hold.py", str(go))
    wait("the first job computes", lambda: yard.says("first", "holds"))
    yard("run", "-d", "--name", "second", "--gpus", "1", "hold.py", str(go))
    wait("why the second waits", lambda: "nvidia.com/gpu" in yard("explain", "second"))
    busy = wait("use of the GPU", lambda: [row for row in json.loads(yard("top", "first", "-o", "json")) if row["gpuPercent"]])
    assert busy[0]["gpuMemoryBytes"] > 4 << 30, busy

    # at once: the killed one may still have its lock
    os.kill(json.loads(yard("status", "-o", "json"))["pid"], signal.SIGKILL)
    yard("up", "--detach")
    assert not yard.says("second", "holds")
    go.touch()
    for job in ("first", "second"):
        yard("wait", job, "--for", "complete", "--timeout", "120s")
    times = {job: yard("logs", job) for job in ("first", "second")}
    at = lambda job, what: float(next(line for line in times[job].splitlines() if what in line).split()[-1])
    assert at("first", "lets go") < at("second", "holds"), times
    wait("the memory is free", lambda: used_mebibytes() < 2048)


def test_more_than_there_are(yard: Yard) -> None:
    assert "TY0213" in yard("run", "--gpus", str(COUNT + 1), "seen.py", code=2)


def test_a_gpu_whose_memory_is_full_is_the_reason(yard: Yard) -> None:
    out = yard("run", "--name", "full", "--gpus", "1", "--nproc-per-node", "1", "full.py", code=1)
    assert "memory" in out and "OutOfMemoryError" in out
    why = yard("explain", "full")
    assert "GPU" in why and "memory" in why
    wait("the memory is free", lambda: used_mebibytes() < 2048)


def test_a_task_file_gets_the_gpus(yard: Yard) -> None:
    """`launch`, `exec`, `stop` and `start`; the same with a cluster that finds the GPU taken, or asks for too many."""
    free = lambda: yard("sky", "gpus", "list", SHORT).split(" free")[0].split("  ")[-1].strip()
    assert free() == f"{COUNT} of {COUNT}"
    assert SHORT in yard("sky", "launch", "--dryrun", "-y", "task.yaml")
    out = yard("sky", "launch", "-y", "-c", "dev", "task.yaml")
    assert "prepared" in out and f"rank 0 of {COUNT} on {PRODUCT} trained" in out, out
    assert PRODUCT in yard("sky", "exec", "dev", "nvidia-smi -L")
    assert "sees 1 " in yard("sky", "exec", "dev", "--gpus", f"{SHORT}:1", "python3 seen.py")
    assert free() == f"0 of {COUNT}"
    yard("sky", "launch", "-y", "-c", "other", "--gpus", f"{SHORT}:1", "true", code=1)
    # a job waits until the cluster lets go, and the cluster until the job has ended
    yard("run", "-d", "--name", "third", "--gpus", "1", "seen.py")
    wait("why it waits", lambda: "nvidia.com/gpu" in yard("explain", "third"))
    yard("sky", "launch", "-y", "-c", "many", "--infra", "local", "--gpus", f"{SHORT}:{COUNT + 1}", "true", code=1)
    yard("sky", "stop", "-y", "dev")
    yard("wait", "third", "--for", "complete", "--timeout", "120s")
    yard("sky", "start", "-y", "dev")
    assert free() == f"0 of {COUNT}"
    assert PRODUCT in yard("sky", "exec", "dev", "nvidia-smi -L")
    yard("sky", "down", "-y", "dev")
    assert f"rank 0 of {COUNT} on {PRODUCT} trained" in yard("run", "--gpus", str(COUNT), "--nproc-per-node", str(COUNT), "train.py")


def test_the_doctor_finds_the_machine_well(yard: Yard) -> None:
    yard("doctor")
